"""Beside Nsight Compute: the kernels run in the lab, and its output is understood."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

OUTPUT = """==PROF== Connected to process 7
==PROF== Profiling "copy" - 1: 0%....50%....100% - 1 pass
"ID","Process ID","Kernel Name","Block Size","Metric Name","Metric Unit","Metric Value"
"""


@pytest.fixture(scope="module")
def benchmark():
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        import lab_vs_ncu
    finally:
        sys.path.pop(0)
    return lab_vs_ncu


def test_output_of_ncu_is_read(benchmark):
    metrics = [name for parts in benchmark.METRICS.values() for name in parts]
    rows = [
        f'"{i}","7","{kernel}","(256, 1, 1)","{name}","","{number}"'
        for i, kernel in enumerate(["_ZN8__main__4copyE", "fill", "_ZN8__main__4copyE"])
        for name, number in zip(metrics, ["1,024", *map(str, range(2, len(metrics) + 1))])
    ]
    found = list(benchmark.launches(OUTPUT + "\n".join(rows), {"copy"}))
    expected = {"requests": 1026, "sectors": 7, "wavefronts": 5, "ideal_wavefronts": 6}
    assert found == [expected | {"flops": 7 + 8 + 2 * 9}] * 2


def test_figures_of_the_lab_are_those_of_the_definitions(benchmark):
    """The whole grid by hand; what a GPU says of the same launches, the benchmark prints."""
    cases = {case.name: case for case in benchmark.cases()}
    warps = 16 * 256 // 32
    for step, sectors in ((1, 4), (2, 8), (8, 32)):
        found = benchmark.in_the_lab(cases[f"copy, step {step}, shift 0"])
        assert (found["requests"], found["sectors"]) == (2 * warps, 2 * warps * sectors)
    found = benchmark.in_the_lab(cases["copy, step 1, shift 1"])
    assert found["sectors"] == 2 * warps * 5
    for step, ways in ((1, 1), (2, 2), (32, 32), (33, 1)):
        assert benchmark.in_the_lab(cases[f"banks, step {step}"])["wavefronts"] == 32 + ways
    assert benchmark.in_the_lab(cases["matmul_tiled"])["flops"] == 2 * 64**3
