"""Mistakes planted in CUDA C are found, at their lines, with hints that fit; and nothing else."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from kernels import lab, raw_module

CODE = (Path(__file__).parent / "planted.cu").read_text()
LINES = CODE.splitlines()
MODULE = raw_module(CODE)
CASE = re.compile(
    r"//\? (\w+) (\d+) (\d+) (\d+) (\S+) (.*)\n__global__ void (\w+)\(.*\) \{\n((?:.*\n)*?)\}\n"
)
CASES = {match[7]: match for match in CASE.finditer(CODE)}


def argument(name: str):
    rng = np.random.default_rng(0)
    sizes = {"x": 64, "large": 256}
    if name in sizes:
        return rng.standard_normal(sizes[name]).astype(np.float32)
    return np.zeros(64, np.float32) if name == "out" else int(name)


@pytest.mark.parametrize("name", CASES)
def test_planted_mistakes_are_found(name):
    case = CASES[name]
    kind, hint = case[1], case[6]
    grid, block, shared = int(case[2]), int(case[3]), int(case[4])
    args = [argument(word) for word in case[5].split(",")]
    report = lab.profile(MODULE.get_function(name), grid, block, *args, shared=shared)
    first = CODE.count("\n", 0, case.start(8)) + 1
    body = range(first, first + case[8].count("\n"))
    marked = {i for i in body if LINES[i - 1].endswith("// <-")}
    marked |= {i for i, line in enumerate(LINES, 1) if line.endswith(f"// <- {name}")}
    assert {f.kind for f in report.findings} == {kind}, str(report)
    assert {line for f in report.findings for line in f.lines} == marked
    assert hint in report.findings[0].hint
    where = report.races if kind == "race" else report.errors + report.warnings
    assert where == report.findings
    for finding in report.findings:
        text = str(finding)
        assert text in str(report) and "thread (" in text and "fix: " in text
        assert all(access.source == LINES[access.lineno - 1] for access in finding.accesses)
        assert "cuda." not in text
        if kind == "race":
            one, other = finding.accesses
            assert (one.block, one.thread) != (other.block, other.thread)
            assert finding.array and finding.index is not None and finding.address is not None
    json.loads(report.json())


def test_there_are_many():
    assert len(CASES) == CODE.count("//?") >= 20


@pytest.mark.parametrize(
    ("name", "array", "index"),
    [
        ("no_barrier", "s", None),
        ("atomic_then_plain_read", "count", (0,)),
        ("last_block_reads_the_others", "table", (0,)),
        ("off_by_one", "out", (64,)),
        ("index_below_zero", "x", (-1,)),
    ],
)
def test_findings_name_the_element(name, array, index):
    case = CASES[name]
    args = [argument(word) for word in case[5].split(",")]
    report = lab.profile(MODULE.get_function(name), int(case[2]), int(case[3]), *args)
    (finding, *_) = report.findings
    assert finding.array == array and index in (None, finding.index), finding
