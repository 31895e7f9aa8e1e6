"""Reductions, scans and divisions that a GPU computes in other ways than the CPU: both agree."""

from __future__ import annotations

import numpy as np
import pytest

import kernels
import minigrad as mg

pytestmark = pytest.mark.gpu
SHAPES = [
    ((1,), None), ((33,), None), ((70_001,), None), ((31, 33), 1), ((9, 1025), 1), ((9, 1023), 0),
    ((300, 130), 0), ((3, 40_000), 1), ((4, 3, 8, 9), (0, 2, 3)), ((3, 17, 65), (0, 2)),
    ((5, 0), 1),
]  # fmt: skip


def compare(call, *arrays: np.ndarray, rtol: float = 1e-10) -> None:
    """Values and gradients of `call` on a GPU are those on the CPU."""
    found = []
    for place in ("cpu", "cuda"):
        inputs = [mg.from_numpy(a.copy()).to(place).requires_grad_(True) for a in arrays]
        out = call(*inputs)
        (out * out).sum().backward()
        found.append([t.detach().cpu().numpy() for t in (out, *(x.grad for x in inputs))])
    for expected, got in zip(*found, strict=True):
        np.testing.assert_allclose(got, expected, rtol=rtol, atol=rtol)


@pytest.mark.parametrize(("shape", "dim"), SHAPES)
@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
def test_spread(shape, dim, rng):
    x = rng.standard_normal(shape) + 3
    for keepdim in (False, True):
        compare(lambda a, keep=keepdim: a.var(dim, keepdim=keep), x)
    if x.size > 1:
        compare(lambda a: a.std(dim, correction=0), x)
        compare(lambda a: a.transpose(0, -1).var(dim), x)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_spread_about_a_large_mean(dtype, rng):
    """As exactly as two passes have it: relative to the squares, not to the mean."""
    x = (rng.standard_normal((5, 20_000)) + 1000).astype(dtype)
    found = mg.from_numpy(x).to("cuda").var(1).cpu().numpy()
    np.testing.assert_allclose(found, x.astype(float).var(1, ddof=1), rtol=30 * np.finfo(dtype).eps)


@pytest.mark.parametrize(("shape", "axis"), SHAPES)
@pytest.mark.parametrize("backend", ["numba", "cupy"])
def test_deviations(backend, shape, axis, rng):
    x = (rng.standard_normal(shape) - 2).astype(np.float32)
    there = mg.from_numpy(x).to("cuda")._array
    found = kernels.deviations(there, axis, keepdims=True, backend=backend).get()
    expected = kernels.deviations(x.astype(float), axis, keepdims=True, backend="numpy")
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("p", [1, 3, 2.5, 0.5, -1, float("inf"), -float("inf")])
def test_norms(p, rng):
    x = rng.standard_normal((7, 33))
    compare(lambda a: a.norm(p, 1), x, rtol=1e-9)
    compare(lambda a: a.norm(p), x[:1], rtol=1e-9)
    x[2, 3] = 0
    if p > 0:
        compare(lambda a: a.norm(p, 1), x, rtol=1e-9)


@pytest.mark.parametrize("name", ["max", "min"])
@pytest.mark.parametrize("turned", [False, True])
def test_extrema_with_places(name, turned, rng):
    x = np.round(rng.standard_normal((33, 31)) * 2)
    x[4, 7] = np.nan
    for dim in (0, 1):
        pairs = []
        for place in ("cuda", "cpu"):
            there = mg.from_numpy(x).to(place)
            pairs.append(getattr(there.t() if turned else there, name)(dim))
        for ours, expected in zip(*pairs, strict=True):
            np.testing.assert_array_equal(ours.cpu().numpy(), expected.numpy())


def test_dot(rng):
    for n in (1, 31, 1025, 70_001):
        x, y = rng.standard_normal((2, n))
        compare(mg.dot, x, y)


def test_cross(rng):
    for shape, dim in (((33, 3), 1), ((3, 31), 0), ((5, 3, 33), 1), ((0, 3), 1)):
        x, y = rng.standard_normal((2, *shape))
        compare(lambda a, b, d=dim: mg.linalg.cross(a, b, dim=d), x, y)
    compare(
        lambda a, b: mg.linalg.cross(a.t(), b), *(rng.standard_normal(s) for s in ((3, 9), (1, 3)))
    )


def test_integers_divided_by_zeros():
    """The host does not wait to look at the divisors."""
    a = mg.tensor([7, -7, 5]).to("cuda")
    b = mg.tensor([2, 2, 0]).to("cuda")
    assert (a // b).tolist() == [3, -4, 0] and (a % b).tolist() == [1, 1, 0]
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        _ = a // 0


@pytest.mark.parametrize("name", ["cumsum", "logcumsumexp"])
def test_scans(name, rng):
    for shape in ((1,), (31,), (33, 32), (3, 1023), (2, 1025), (5, 9, 4), (40_001,)):
        for dim in (0, -1):
            compare(lambda x, d=dim: getattr(x, name)(d), rng.standard_normal(shape))
    compare(lambda x: getattr(x, name)(1), rng.standard_normal((40, 33)).T)


@pytest.mark.parametrize("backend", ["numba", "cupy"])
@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.float16, np.float32])
def test_running_sums_of_rows_that_begin_anywhere(backend, dtype, rng):
    memory = rng.integers(-3, 4, 3 * 20_001 + 1).astype(dtype)
    if dtype == np.float16:
        memory = memory[: 3 * 301 + 1]
    for first in (0, 1):
        x = memory[first : memory.size - 1 + first].reshape(3, -1)
        there = mg.from_numpy(memory).to("cuda")._array[first : memory.size - 1 + first]
        found = kernels.cumsum(there.reshape(3, -1), 1, backend=backend)
        np.testing.assert_array_equal(found.get(), np.cumsum(x, 1, dtype=dtype))


def test_logarithms_of_sums_of_nothing():
    """-inf is the logarithm of 0; what is not a number stays so."""
    inf, nan = np.inf, np.nan
    rows = [[-inf, -inf, 0, -inf], [inf, -inf, 0, inf], [0, nan, 0, 1], [-inf, 1, inf, nan]]
    x = mg.tensor(rows).to("cuda")
    expected = [
        [-inf, -inf, 0, 0], [inf, inf, inf, inf], [0, nan, nan, nan],
        [-inf, 1, inf, nan],
    ]  # fmt: skip
    np.testing.assert_array_equal(x.logcumsumexp(1).cpu().numpy(), expected)
