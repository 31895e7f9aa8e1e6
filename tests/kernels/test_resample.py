"""Weighted sums of neighbours: both dialects beside the reference, and what they are used for."""

from __future__ import annotations

import numpy as np
import pytest

import kernels
import minigrad as m
from kernels import dispatch, reference
from kernels.launchers.resample import Taps, halves
from tests.kernels.helpers import BFLOAT16, DEVICES, get, normal, put

SHAPES = [((70,), 0), ((3, 70), -1), ((9, 257), 1), ((70, 33), 0), ((2, 5, 31, 3), 2), ((1, 1), 1)]


def some_taps(rng, size: int, results: int) -> Taps:
    """Windows of different lengths, some of them empty, some elements twice."""
    count = rng.integers(0, 4, results)
    rows = np.repeat(np.arange(results), count)
    columns = (rng.integers(0, size, results).repeat(count) + rng.integers(0, 3, len(rows))) % size
    return Taps(results, size, rows, columns, rng.standard_normal(len(rows)))


def matrix(taps: Taps) -> np.ndarray:
    rows = np.zeros((taps.results, taps.size))
    for i in range(taps.results):
        for k in range(taps.count[i]):
            rows[i, taps.first[i] + k] = taps.weights[k, i]
    return rows


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("backend", ["numba", "cupy"])
@pytest.mark.parametrize("shape, axis", SHAPES)
def test_both_dialects_are_products_with_a_matrix(backend, shape, axis, device, rng):
    x, dialect = normal(rng, shape), dispatch.dialect(backend)
    for results in (1, 31, 33, 2 * shape[axis]):
        taps = some_taps(rng, shape[axis], results)
        wide = np.moveaxis(np.moveaxis(x, axis, -1) @ matrix(taps).T, -1, axis)
        np.testing.assert_allclose(reference.resample(x, axis, taps), wide, rtol=1e-5, atol=1e-5)
        for _ in range(3):  # remembered, too
            got = dialect.resample(put(x, device), axis, taps)
            np.testing.assert_allclose(get(got), wide, rtol=1e-5, atol=1e-5)


def test_the_gradients_taps_are_the_transposed_matrix(rng):
    for size, results in ((1, 1), (5, 9), (40, 7)):
        taps = some_taps(rng, size, results)
        np.testing.assert_array_equal(matrix(taps.transposed), matrix(taps).T)
        assert taps.transposed.transposed is taps


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [np.float64, np.float16, BFLOAT16])
def test_other_dtypes_and_layouts(dtype, device, rng):
    x = normal(rng, (6, 8, 5)).astype(dtype)
    for view, axis in ((x[::2], 1), (x.transpose(2, 0, 1), 0), (x[:, ::-1], -1)):
        taps = halves(view.shape[axis])
        want = reference.resample(view, axis, taps).astype(float)
        for backend in ("numba", "cupy"):
            got = dispatch.dialect(backend).resample(put(view, device), axis, taps)
            assert got.dtype == dtype
            tolerance = 1e-12 if dtype == np.float64 else 1e-2
            np.testing.assert_allclose(get(got).astype(float), want, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("backend", ["numba", "cupy"])
def test_only_neighbours_are_read(backend, device):
    """Of an infinite element nothing reaches results that do not take it."""
    for shape in ((12,), (12, 40)):
        x = np.zeros(shape, np.float32)
        x[4] = np.inf
        got = get(dispatch.dialect(backend).resample(put(x, device), 0, halves(12)))
        want = np.zeros((11, *shape[1:]), np.float32)
        want[3:5] = np.inf
        np.testing.assert_array_equal(got, want)


def test_what_does_not_fit():
    x = np.ones((3, 4), np.float32)
    with pytest.raises(ValueError, match="expected 5 elements along 1"):
        kernels.resample(x, 1, halves(5))
    with pytest.raises(ValueError, match="does not fit"):
        kernels.resample(x, 0, halves(3), version="last")
    for axis in (2, -3):
        with pytest.raises(IndexError, match=f"resample: no axis {axis} in an array of 2"):
            kernels.resample(x, axis, halves(4))
    with pytest.raises(TypeError, match="resample"):
        kernels.resample(x.astype(int), 1, halves(4))
    for row, column in ((0, 4), (0, -1), (2, 0), (-1, 0)):
        with pytest.raises(ValueError, match="elements of 4 and results of 2"):
            Taps(2, 4, [row], [column], [1.0])
    assert kernels.resample(x[:0], 1, halves(4)).shape == (0, 3)


MODES = [
    *((mode, size, {}) for mode in ("bilinear", "bicubic", "area") for size in ((18, 20), (3, 4))),
    *((mode, (4, 3), {"antialias": True}) for mode in ("bilinear", "bicubic")),
    ("bilinear", (17, 5), {"align_corners": True}),
]


@pytest.mark.parametrize("mode, size, options", MODES)
def test_interpolation_of_an_infinite_element_is_torchs(torch, mode, size, options, rng):
    x = normal(rng, (2, 3, 9, 10))
    x[1, 2, 4, 5] = np.inf
    function = torch.nn.functional.interpolate
    want = function(torch.from_numpy(x), size, mode=mode, **options).numpy()
    got = m.nn.functional.interpolate(m.from_numpy(x), size, mode=mode, **options).numpy()
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("size", [(4, 7), (2, 9), (9, 4)])
def test_adaptive_averages_of_an_infinite_element_are_torchs(torch, size, rng):
    x = normal(rng, (2, 3, 9, 10))
    x[0, 1, 8, 0] = np.inf
    want = torch.nn.functional.adaptive_avg_pool2d(torch.from_numpy(x), size).numpy()
    got = m.nn.functional.adaptive_avg_pool2d(m.from_numpy(x), size).numpy()
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_taps_that_keep_their_elements():
    assert Taps(3, 3, [0, 1, 2], [0, 1, 2], [1, 1, 1]).keeps
    for rows, columns, shares in (
        ([0, 1, 2], [0, 2, 1], [1, 1, 1]),
        ([0, 1, 2], [0, 1, 2], [1, 1, 2]),
    ):
        assert not Taps(3, 3, rows, columns, shares).keeps
    assert not Taps(2, 3, [0, 1], [0, 1], [1, 1]).keeps and not halves(4).keeps
