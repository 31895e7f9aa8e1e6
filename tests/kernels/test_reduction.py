"""Reductions: every line, every version, any axes, any layout."""

from __future__ import annotations

import numpy as np
import pytest

import kernels
from kernels import numba_cuda, reference
from kernels.launchers.reduction import VERSIONS
from kernels.reduction import TABLE
from tests.kernels.helpers import BFLOAT16, DEVICES, assert_close, check, get, normal, put, wide
from tests.simt.plans import plan

pytestmark = pytest.mark.parametrize("device", DEVICES)
SIZES = [1, 31, 32, 33, 255, 257, 1023, 1025, 100_003]
LAYOUTS = [  # shape, axis
    ((5, 17), 1),
    ((5, 33), -1),
    ((9, 255), 1),
    ((4, 1025), 1),
    ((3, 40_000), 1),
    ((17, 5), 0),
    ((1025, 3), 0),
    ((5000, 130), 0),
    ((6, 33, 65), 1),
    ((6, 33, 65), (0, 2)),
    ((3, 4, 5, 6), (1, 3)),
    ((2, 257, 3, 33), (0, 2, 3)),
    ((3, 4, 5), (0, 1, 2)),
    ((3, 1, 5), 1),
    ((3, 4), ()),
    ((), None),
]


def check_reduce(name: str, x: np.ndarray, device: str, **kwargs) -> None:
    """Against float64; sums are allowed errors relative to the sum of absolute values."""
    axes = kwargs.get("axis")
    with np.errstate(all="ignore"):
        absolute = np.abs(wide(x)) ** (2 if name in ("sum_squares", "norm2") else 1)
        scale = absolute.sum(axes, keepdims=kwargs.get("keepdims", False))
        if name == "mean":
            scale = scale * (scale.size / max(x.size, 1))
    check("reduce", name, x, device=device, scale=scale, **kwargs)


@pytest.mark.parametrize("name", TABLE)
def test_line(name, device, rng):
    for n in (1, 31, 33, 128, 1025):
        x = normal(rng, n)
        if name == "prod":
            x = 1 + x / 100
        check_reduce(name, x, device)
    if name in ("prod", "any"):  # columns take a line as rows do; `test_axes` has others
        check_reduce(name, 1 + normal(rng, (40, 9)) / 1000, device, axis=0)


@pytest.mark.parametrize("version", VERSIONS)
def test_ladder(version, device, rng):
    for n in SIZES:
        check_reduce("sum", normal(rng, n), device, version=version)
    if version == "sequential":
        check_reduce("mean", normal(rng, (33, 31)), device, version=version)


@pytest.mark.parametrize(("shape", "axis"), LAYOUTS)
def test_axes(shape, axis, device, rng):
    x = normal(rng, shape)
    for name in ("max", "mean"):
        check_reduce(name, x, device, axis=axis)
    check_reduce("mean", x, device, axis=axis, keepdims=True)


@pytest.mark.parametrize(("shape", "axis"), [s for s in LAYOUTS if not isinstance(s[1], tuple)])
def test_arg_reductions(shape, axis, device, rng):
    x = rng.integers(-3, 4, shape).astype(np.float32)  # ties: the first one wins
    for name in ("argmax", "argmin"):
        check("reduce", name, x, axis=axis, device=device)
    check("reduce", "argmax", np.asarray(x, np.int32), axis=axis, device=device)


def test_arg_reductions_of_long_rows_and_nan(device, rng):
    x = np.round(normal(rng, (2, 70_000)) * 50)
    check("reduce", "argmax", x, axis=1, device=device)
    check("reduce", "argmin", x, device=device)
    for at in (40_000, 69_999):
        x[1, at] = np.nan
        check("reduce", "argmax", x, axis=1, device=device)
    lowest = np.full(100, -np.inf, np.float32)
    check("reduce", "argmax", lowest, device=device)


@pytest.mark.parametrize("length", [17, 33, 64, 1000])
def test_arg_reductions_of_rows(length, device, rng):
    x = np.round(normal(rng, (13, length)) * 3)
    x[1] = -np.inf
    x[2, 5:9] = np.inf
    x[3, [3, 16]] = np.nan
    x[4, 16] = np.nan
    for name in ("argmax", "argmin"):
        check("reduce", name, x, axis=1, device=device)
        lowest = np.full((3, length), -128, np.int8)
        check("reduce", name, lowest, axis=1, device=device)


@pytest.mark.parametrize("inner", [2, 3, 8, 33, 128])
def test_few_columns(inner, device, rng):
    """With fewer rows than a block takes at once, and more than a segment has; ties, NaN, the
    identity."""
    for outer, length in ((3, 17), (1, 70), (2, 600), (1, 9000)):
        x = np.round(normal(rng, (outer, length, inner)) * 9)
        for name in ("mean", "min"):
            check_reduce(name, x, device, axis=1)
        x[0, :, 0] = -np.inf
        x[0, [5, 13], -1] = np.nan
        for name in ("argmax", "argmin"):
            check("reduce", name, x, axis=1, device=device)
    if device == "cpu":
        with kernels.trace() as trace:
            kernels.reduce("argmax", x, 1, backend="numba")
            kernels.reduce("max", x[:, :70], 1, backend="numba")
        assert [*trace.rows] == [("reduce.argmax", "columns"), ("reduce.max", "columns")]


def test_views(device, rng):
    x = normal(rng, (12, 40, 33))
    views = [x.transpose(2, 0, 1), x[..., ::-1], x[:, :, 4], x[3:, 1:, :7]]
    views += [np.broadcast_to(x[:, :1], x.shape), x.transpose(0, 2, 1)]
    for view in views:
        for axis in (0, -1, None):
            scale = np.abs(wide(view)).sum(axis)
            got = numba_cuda.reduce("sum", put(view, device), axis=axis)
            assert_close(got, wide(view).sum(axis), scale)


@pytest.mark.parametrize("dtype", [np.float64, np.float16, BFLOAT16, np.int32, np.uint8, bool])
def test_dtypes(dtype, device, rng):
    x = normal(rng, (50, 70)) > 0 if dtype is bool else normal(rng, (50, 70), dtype)
    logical = [("any", 1), ("all", None)] if dtype in (np.float16, bool) else []
    for name, axis in [*logical, ("sum", 0), ("max", 1)][: 2 if dtype is bool else None]:
        want = reference.reduce(name, x, axis)
        got = numba_cuda.reduce(name, put(x, device), axis)
        assert got.dtype == want.dtype
        if np.dtype(dtype).kind in "iub":  # integers wrap around at the same place
            np.testing.assert_array_equal(get(got), want)
        else:
            check_reduce(name, x, device, axis=axis)
    if np.dtype(dtype).itemsize == 1:
        counted = numba_cuda.reduce("sum", put(x, device), dtype=np.dtype(np.int64))
        assert int(counted) == int(x.sum(dtype=np.int64))


def test_empty(device):
    for shape, axis in [((0,), None), ((0, 3), 0), ((3, 0), 1), ((0, 3), 1), ((2, 0, 3), (0, 1))]:
        x = np.zeros(shape, np.float32)
        for name in ("sum", "prod", "mean", "any", "all"):
            check("reduce", name, x, axis=axis, device=device)
    with pytest.raises(ValueError, match=r"max: cannot reduce an empty axis of shape \(0, 3\)"):
        numba_cuda.reduce("max", put(np.zeros((0, 3), np.float32), device), 0)


def test_accuracy_is_that_of_pairwise_sums(device):
    """A million times 0.1: adding one by one in float32 is off by 1 %."""
    x = np.full(1_000_000, 0.1, np.float32)
    for shape, axis in [((1_000_000,), 0), ((500_000, 2), 0), ((2, 500_000), 1)]:
        got = get(numba_cuda.reduce("sum", put(x.reshape(shape), device), axis))
        np.testing.assert_allclose(got, 1e5 / got.size, rtol=4e-6)


def test_rows_on_a_cpu(device, rng):
    """Threads that have a row each read far apart there, so only very short rows take one."""
    if device != "cpu":
        pytest.skip("other limits hold there")
    for length, version in ((16, "thread"), (17, "warp"), (1024, "warp"), (1025, "block")):
        x = normal(rng, (20, length))
        with kernels.trace() as trace:
            out = kernels.reduce("sum", x, 1, backend="numba")
        assert list(trace.rows) == [("reduce.sum", version)]
        np.testing.assert_allclose(out, wide(x).sum(1), rtol=1e-5, atol=1e-4)


def test_accumulators_of_a_block_on_a_cpu_stay_in_registers(device):
    """With 256 threads they would be in memory: 64 are as many as AVX2's registers hold."""
    from kernels.launchers.reduction import pass_key

    if device != "cpu":
        pytest.skip("other limits hold there")
    x = np.ones((2, 100_000), np.float32)
    kernels.reduce("sum", x, 1, backend="numba")
    float32 = np.dtype(np.float32)
    kernel = numba_cuda.reduction.rows_by_block(64, *pass_key("sum", float32, float32, True, False))
    assert "64 threads in a row" in plan(kernel)


def test_repeats_bit_by_bit(device, rng):
    x = put(normal(rng, 300_001), device)
    sums = {float(numba_cuda.reduce("sum", x)) for _ in range(5)}
    assert len(sums) == 1


def test_nan_wins_and_infinities(device):
    for bad in (np.nan, np.inf, -np.inf):
        x = np.ones(1025, np.float32)
        x[777] = bad
        for name in ("max", "min", "sum", "norm_inf"):
            want = reference.reduce(name, x)
            np.testing.assert_array_equal(get(numba_cuda.reduce(name, put(x, device))), want)


def test_errors(device, rng):
    x = put(normal(rng, (3, 4)), device)
    with pytest.raises(ValueError, match="no reduction named 'median'"):
        numba_cuda.reduce("median", x)
    with pytest.raises(IndexError, match="axis 2 is out of range for 2"):
        numba_cuda.reduce("sum", x, 2)
    with pytest.raises(ValueError, match="names one dimension twice"):
        numba_cuda.reduce("sum", x, (0, -2))
    with pytest.raises(ValueError, match="takes one axis or all"):
        numba_cuda.reduce("argmax", put(normal(rng, (2, 2, 2)), device), (0, 1))
    with pytest.raises(ValueError, match="expected a version"):
        kernels.sum(x, version="fast", backend="numba")
    with pytest.raises(ValueError, match="'sequential' reduces all axes"):
        kernels.sum(x, 1, version="sequential", backend="numba")
