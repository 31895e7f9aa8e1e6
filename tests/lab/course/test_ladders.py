"""No false alarm on any shipped kernel, and its results are as ever under the recorder."""

from __future__ import annotations

import numpy as np
import pytest

from kernels import dispatch
from kernels.lab.course import ladders

EVERY = [
    (dialect, family, version)
    for dialect in ("numba", "cupy")
    for family, profiles in ladders.families(dialect).items()
    for version, _ in profiles
]
# Kernels whose threads share memory, each way of doing so once; the rest with `-m slow`
SOONER = {
    ("numba", "reduce", "sequential"),
    ("numba", "cumsum", "blelloch"),
    ("numba", "cumsum", "shuffle"),
    ("numba", "conv2d", "tiled"),
    ("numba", "max_pool2d_backward", "scatter"),
    ("numba", "softmax", "one_read"),
    ("numba", "embedding_backward", "atomic"),
    ("numba", "scatter_add", "lines"),
    ("numba", "cross_entropy", "warp"),
    ("numba", "recurrent_backward", "sequence"),
    ("cupy", "matmul", "double_buffer"),
    ("cupy", "matmul", "mma_sync"),
    ("cupy", "cumsum", "blelloch"),
    ("cupy", "softmax", "one_read"),
    ("cupy", "scatter_add", "atomic"),
}
CASES = [c if c in SOONER else pytest.param(*c, marks=pytest.mark.slow) for c in EVERY]


@pytest.mark.parametrize(("dialect", "family", "version"), CASES)
def test_shipped_kernels_are_clean(dialect, family, version):
    expected = _changed(ladders.problem(family, version), backend="numpy")
    problem = ladders.problem(family, version)
    with ladders.profiled() as launches:
        actual = _changed(problem, backend=dialect)
    assert version in [launch.version for launch in launches]
    for launch in launches:
        report = launch.report
        assert report.findings == [], str(report)
        assert report.blocks == report.grid_blocks and report.totals.executions
    moved = sum(launch.report.totals.bytes for launch in launches)
    assert moved >= sum(a.nbytes for a in actual) > 0
    for mine, oracle in zip(actual, expected, strict=True):
        close = 1e-2 if mine.dtype.itemsize == 2 else 1e-4
        largest = np.abs(oracle.astype(np.float64)).max(initial=1)  # of sums, some end near zero
        assert np.allclose(mine, oracle, rtol=close, atol=close * largest)


def _changed(problem: ladders.Problem, backend: str) -> list[np.ndarray]:
    """What an operation returns, or the arguments that it works on in place."""
    keywords = dict(problem.keywords)
    if backend == "numpy":
        keywords.pop("version", None)
    result = problem._replace(keywords=keywords).run(backend=backend)
    if result is None:
        result = [a for a in problem.args if isinstance(a, np.ndarray)]
    return list(result) if isinstance(result, tuple | list) else [result]


class _Launched(dispatch.Trace):
    """The versions that are launched; nothing is computed."""

    def __init__(self) -> None:
        super().__init__()
        self.versions: list[str] = []

    def takes(self, family, version, kernel, grid, block, args) -> bool:
        self.versions.append(version)
        return True

    def has_numbers(self) -> bool:
        return False


@pytest.mark.parametrize("written_in", ["numba", "cupy"])
def test_each_problem_runs_its_version(written_in):
    others = {}
    for dialect, family, version in EVERY:
        if dialect == written_in:
            with dispatch.trace(_Launched()) as launched:
                ladders.problem(family, version).run(backend=dialect)
            if version not in launched.versions:
                others[family, version] = launched.versions
    assert others == {}


def test_every_family_has_a_problem():
    import kernels

    for written_in in ("numba", "cupy"):
        there = {family for family, dialect, *_ in kernels.catalog() if dialect == written_in}
        assert set(ladders.families(written_in)) == there
    assert SOONER <= set(EVERY)


def test_a_ladder_is_summed_up():
    profiles = list(ladders.profile_versions("transpose"))
    table = ladders.summary(profiles).splitlines()
    assert [line.split()[0] for line in table] == ["version", "naive", "tile", "padded", "few"]
    ways = [line.split()[-1] for line in table[2:]]
    assert float(ways[0][1:]) > 10 and ways[1] == "x1"
    assert profiles[0].problem.text == "transpose(float32[70, 66], (1, 0), version=naive)"
