"""Every planted mistake is found, at its lines, with a hint that fits; and nothing else is."""

from __future__ import annotations

import inspect
import json

import pytest
from numba import float32

from kernels import lab
from kernels.simt import cuda
from tests.lab.report.planted import PLANTED, x, zeros


@pytest.mark.parametrize("case", PLANTED, ids=lambda case: case[0].__name__)
def test_planted_mistakes_are_found(case):
    kernel, grid, block, make, shared, kind, hint = case
    report = lab.profile(kernel, grid, block, *make(), shared=shared)
    source, first = inspect.getsourcelines(kernel.py_func)
    marked = {first + i for i, line in enumerate(source) if line.rstrip().endswith("# <-")}
    found = {f.kind for f in report.findings}
    assert found == {kind}, str(report)
    assert {line for f in report.findings for line in f.lines} >= marked
    assert hint in report.findings[0].hint
    where = report.races if kind == "race" else report.errors + report.warnings
    assert where == report.findings
    for finding in report.findings:
        text = str(finding)
        assert text in str(report) and "thread (" in text and "fix: " in text
        if kind == "race":
            first, second = finding.accesses
            assert (first.block, first.thread) != (second.block, second.thread)
            assert finding.array and finding.index is not None and finding.address is not None
    json.loads(report.json())


def test_there_are_many():
    assert len(PLANTED) >= 30
    assert sum(case[5] == "race" for case in PLANTED) >= 15


def test_what_is_allowed_is_not_reported():
    @cuda.jit
    def fine(x, out, count):
        s = cuda.shared.array(64, float32)
        flag = cuda.shared.array(1, float32)
        t = cuda.threadIdx.x
        flag[0] = 1  # all store the same value, which is reported as harmless
        s[t] = x[cuda.grid(1)]
        cuda.syncthreads()
        if t < 32:
            s[t] += s[t + 32]
            cuda.syncwarp()
            for step in (16, 8, 4, 2, 1):
                value = s[t]
                if t < step:
                    value += s[t + step]
                cuda.syncwarp()
                s[t] = value
                cuda.syncwarp()
        if t == 0:
            cuda.atomic.add(out, 0, s[0] * flag[-1])
        cuda.atomic.add(count, t % 4, 1)

    values, out = x(256), zeros(1)
    report = lab.profile(fine, 4, 64, values, out, zeros(8))
    assert [f.kind for f in report.findings] == ["harmless"] and report.findings == report.warnings
    assert report.warnings[0].array == "flag" and "store the same value" in str(report)
    assert abs(out[0] - values.astype(float).sum()) < 1e-4
