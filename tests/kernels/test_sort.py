"""Sorting rows, with equal elements, zeros and NaN of both signs."""

from __future__ import annotations

import numpy as np
import pytest

import kernels
from kernels.launchers.sort import SEARCHES, VERSIONS, longest
from tests.kernels.helpers import BFLOAT16, DEVICES, get, put

pytestmark = pytest.mark.parametrize("device", DEVICES)

SHAPES = [
    (3, 1),
    (70, 2),
    (9, 7),
    (5, 8),
    (3, 31),
    (4, 32),
    (3, 33),
    (1, 100),
    (2, 1023),
    (2, 1025),
]
DTYPES = "bool uint8 int8 int16 int32 int64 uint64 float16 float32 float64".split()


def tied(rng, shape, dtype) -> np.ndarray:
    """Many equal elements; of floats also zeros, infinities and NaN of both signs."""
    x = rng.integers(0 if np.dtype(dtype).kind in "bu" else -9, 10, shape)
    if np.dtype(dtype).kind not in "fV":
        return x.astype(dtype)
    special = rng.choice([0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan], shape)
    return np.where(rng.random(shape) < 0.4, special, x).astype(dtype)


def ordered(x: np.ndarray, descending: bool) -> np.ndarray:
    """The positions that sort rows, by Python's sort, which is stable; NaN is the largest."""
    wide = x.astype(np.float32) if x.dtype == BFLOAT16 else x

    def key(row, i: int):
        absent = bool(row[i] != row[i])
        return absent, 0 if absent else row[i].item()

    def order(row) -> list[int]:
        ranks = {k: r for r, k in enumerate(sorted({key(row, i) for i in range(len(row))}))}
        sign = -1 if descending else 1
        return sorted(range(len(row)), key=lambda i: sign * ranks[key(row, i)])

    return np.array([order(row) for row in wide], np.int64).reshape(x.shape)


def check(x: np.ndarray, device: str, *args, **kwargs) -> None:
    descending, start, stop = (*args, *(False, 0, None)[len(args) :])
    expected = ordered(x, descending)[:, start:stop]
    for backend in ("numba", "cupy"):
        found = kernels.sort(put(x, device), *args, backend=backend, **kwargs)
        values, positions = map(get, found)
        np.testing.assert_array_equal(positions, expected)
        assert positions.dtype == np.int64 and values.dtype == x.dtype
        assert values.tobytes() == np.take_along_axis(x, expected, 1).tobytes()


@pytest.mark.parametrize("version", VERSIONS)
def test_ladder(version, device, rng):
    for shape in SHAPES:
        for descending in (False, True):
            check(tied(rng, shape, np.float32), device, descending, version=version)


@pytest.mark.parametrize("dtype", [*DTYPES, BFLOAT16])
def test_dtypes(dtype, device, rng):
    for version in VERSIONS:
        for descending in (False, True):
            check(tied(rng, (3, 37), dtype), device, descending, version=version)


@pytest.mark.parametrize("dtype", [np.int8, np.int64, np.uint64, np.float32, np.float64])
def test_the_least_and_the_largest(dtype, device):
    info = np.finfo(dtype) if np.dtype(dtype).kind == "f" else np.iinfo(dtype)
    x = np.array([[info.max, info.min, 1, 0, info.max, info.min]], dtype)
    for version in VERSIONS:
        check(x, device, version=version)
        check(x, device, True, version=version)


@pytest.mark.parametrize("version", VERSIONS)
def test_some_of_the_places(version, device, rng):
    x = tied(rng, (5, 300), np.int16)
    for start, stop in ((0, 1), (0, 9), (149, 150), (290, 300), (17, 260), (4, 4)):
        check(x, device, True, start, stop, version=version)


@pytest.mark.parametrize("n", [4096, 8192, 9001])
def test_long_rows(n, device, rng):
    for dtype in (np.float32, np.int64) if n == 4096 else (np.float32,):
        x = rng.standard_normal((2, n)).astype(dtype)
        for backend in ("numba", "cupy"):
            values, positions = map(get, kernels.sort(put(x, device), backend=backend))
            np.testing.assert_array_equal(positions, np.argsort(x, 1, kind="stable"))
            np.testing.assert_array_equal(values, np.sort(x, 1))


def test_other_layouts_and_nothing(device, rng):
    x = tied(rng, (40, 90), np.float32)
    check(x.T, device)
    check(x[::-2, 3::5], device)
    check(np.broadcast_to(x[:1], (7, 90)), device)
    for shape in ((0, 5), (5, 0)):
        check(x[: shape[0], : shape[1]], device)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int8, np.int64, np.uint8])
def test_places_in_sorted_rows(dtype, device, rng):
    for rows, n, m in ((1, 1, 33), (3, 31, 1025), (2, 1023, 5000), (1, 4096, 10), (1500, 5, 3)):
        x, values = np.sort(tied(rng, (rows, n), dtype)), tied(rng, (rows, m), dtype)
        for side in ("left", "right"):
            expected = [np.searchsorted(a, b, side) for a, b in zip(x, values)]
            for version in SEARCHES:
                for backend in ("numba", "cupy"):
                    given = put(x, device), put(values, device), side == "right"
                    found = kernels.searchsorted(*given, backend=backend, version=version)
                    np.testing.assert_array_equal(get(found), expected)
                    assert found.dtype == np.int64


def test_places_where_there_is_nothing(device, rng):
    x, some = np.zeros((2, 0), np.float32), np.zeros((2, 3), np.float32)
    for a, b in ((x, some), (some, x), (some[:0], some[:0])):
        found = get(kernels.searchsorted(put(a, device), put(b, device), backend="cupy"))
        assert found.shape == b.shape and not found.any()
    with pytest.raises(ValueError, match=r"expected \(rows, n\) and \(rows, m\), got"):
        kernels.searchsorted(some, some[:1], backend="cupy")
    with pytest.raises(TypeError, match="one dtype that has an order"):
        kernels.searchsorted(some, some.astype(np.int32), backend="cupy")
    long = np.zeros((1, 9000), np.float32)
    with pytest.raises(ValueError, match="version 'shared' takes rows of up to 8192, got 9000"):
        kernels.searchsorted(long, long, backend="cupy", version="shared")


def test_refusals(device):
    x = put(np.ones((2, 9000), np.float32), device)
    with pytest.raises(ValueError, match=r"sort: expected rows \(rows, n\), got \(9000,\)"):
        kernels.sort(x[0], backend="cupy")
    with pytest.raises(ValueError, match="version 'merge' takes rows of up to 8192, got 9000"):
        kernels.sort(x, backend="cupy", version="merge")
    with pytest.raises(ValueError, match="expected 0 <= start <= stop <= 9000, got 5 and 3"):
        kernels.sort(x, False, 5, 3, backend="cupy")
    with pytest.raises(TypeError, match="complex numbers have no order"):
        kernels.sort(put(np.ones((2, 3), np.complex64), device), backend="cupy")
    assert longest(np.dtype(np.float64)) == 4096
