"""Running sums, products and extrema."""

from __future__ import annotations

import numpy as np
import pytest

import kernels
from kernels import numba_cuda, reference
from kernels.launchers.scan import EXTREMA, VERSIONS
from tests.kernels.helpers import BFLOAT16, DEVICES, assert_close, check, get, normal, put, wide

pytestmark = pytest.mark.parametrize("device", DEVICES)

LENGTHS = [(1,), (31,), (33,), (255,), (257,), (3, 1025), (70_001,), (2, 20_000)]


def check_sums(name: str, x: np.ndarray, axis: int, device: str, **kwargs) -> None:
    scale = np.cumsum(np.abs(wide(x)), axis) if name == "cumsum" else 1
    terms = 9 if name == "cumsum" else x.size  # errors of a product's factors add up
    check(name, x, axis, device=device, scale=scale, terms=terms, **kwargs)


def factors(rng, shape, dtype=np.float32) -> np.ndarray:
    """Elements whose running products neither vanish nor overflow."""
    if np.dtype(dtype).kind == "i":  # products are exact in float64, too
        return np.where(rng.random(shape) < 0.9, 1, normal(rng, shape, dtype))
    return np.exp(normal(rng, shape) / 256).astype(dtype)


@pytest.mark.parametrize("version", VERSIONS)
def test_ladder_of_sums(version, device, rng):
    for shape in LENGTHS:
        check_sums("cumsum", normal(rng, shape), -1, device, version=version)
        check_sums("cumprod", factors(rng, shape), -1, device, version=version)


@pytest.mark.parametrize("dtype", [np.float64, np.float16, np.int64, np.int32])
def test_axes_and_dtypes_of_sums(dtype, device, rng):
    for name, x in {
        "cumsum": normal(rng, (5, 33, 20), dtype),
        "cumprod": factors(rng, (5, 33, 20), dtype),
    }.items():
        for axis in range(-3, 3):
            if dtype is np.float16 and name == "cumsum":
                x = np.abs(x) / 16
            check_sums(name, x, axis, device)
        check_sums(name, x.transpose(2, 0, 1), 0, device)
        check_sums(name, x[:, :0], 1, device)


@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_sums_of_columns_side_by_side(dtype, device, rng):
    """On a CPU: tiles of columns, and many short rows, which become columns."""
    for shape, axis in (
        ((9, 257), 0), ((9, 300), 0), ((5, 2), 0), ((3, 9, 31), 1), ((3, 9, 32), 1),
        ((3, 9, 257), 1), ((2, 3, 4, 40), 1), ((64, 2), 1), ((5, 13, 8), 2), ((65, 9), 1),
    ):  # fmt: skip
        for name, x in (("cumsum", normal(rng, shape, dtype)), ("cumprod", factors(rng, shape))):
            check_sums(name, x, axis, device)
            check_sums(name, x[::-1], axis, device)
    x = normal(rng, (70, 8))
    with kernels.trace() as trace:
        check_sums("cumsum", x, 1, device)
    copies = sum(count for (family, _), (count, _) in trace.rows.items() if family == "transpose")
    assert copies == (2 if device == "cpu" else 0)


@pytest.mark.parametrize("axis", [0, 1])
def test_sums_on_a_cpu_do_not_lose_what_is_small(axis, device):
    """A thread adds a million numbers one by one: in float32 that is off by a thousandth."""
    if device != "cpu":
        pytest.skip("sums of segments are added there")
    x = np.full((1, 1 << 20) if axis else (1 << 20, 1), 0.1, np.float32)
    found = kernels.cumsum(x, axis, backend="numba")
    np.testing.assert_allclose(found.ravel()[-1], 0.1 * (1 << 20), rtol=1e-6)


def tied(rng, shape, dtype=np.float32) -> np.ndarray:
    """Many equal elements, zeros among them, and some NaN, both of either sign."""
    x = np.asarray(np.round(rng.standard_normal(shape) * 3)).astype(dtype)
    if x.dtype.kind != "f" and x.dtype != BFLOAT16:
        return x
    x = np.where(rng.random(shape) < 3 / max(x.size, 3), np.nan, x).astype(dtype)
    return np.where((x == 0) | np.isnan(wide(x)), x * rng.choice([-1, 1], shape), x).astype(dtype)


def check_extrema(name: str, x: np.ndarray, axis: int, device: str, **kwargs) -> None:
    values, places = getattr(numba_cuda, name)(put(x, device), axis, **kwargs)
    expected, where = getattr(reference, name)(x, axis)
    assert values.dtype == x.dtype and places.dtype == np.int64
    np.testing.assert_array_equal(wide(get(values)), wide(expected))
    np.testing.assert_array_equal(get(places), where)


@pytest.mark.parametrize("name", ["cummax", "cummin"])
@pytest.mark.parametrize("version", EXTREMA)
def test_versions_of_extrema(version, name, device, rng):
    for shape in LENGTHS:
        check_extrema(name, tied(rng, shape), -1, device, version=version)
        falling = np.sort(normal(rng, shape))[..., ::-1].copy()  # the first element stays
        check_extrema(name, falling, -1, device, version=version)
        check_extrema(name, np.full(shape, -np.inf, np.float32), -1, device, version=version)


EXTREMA_DTYPES = [np.float32, np.float64, np.float16, BFLOAT16, np.int64, np.int32, np.int8]
EXTREMA_DTYPES += [np.uint8, np.uint32, bool]


@pytest.mark.parametrize("name", ["cummax", "cummin"])
@pytest.mark.parametrize("dtype", EXTREMA_DTYPES)
def test_axes_and_dtypes_of_extrema(dtype, name, device, rng):
    x = tied(rng, (5, 33, 20), dtype)
    for axis in range(-3, 3):
        check_extrema(name, x, axis, device)
    check_extrema(name, x.transpose(2, 0, 1), 0, device)
    check_extrema(name, x[:, ::-2], 1, device)
    check_extrema(name, x[:, :0], 1, device)
    check_extrema(name, x.reshape(-1), 0, device, version="shuffle")


def test_errors(device, rng):
    x = put(normal(rng, (3, 4)), device)
    for name in ("cumsum", "cumprod", "cummax", "cummin"):
        scan = getattr(kernels, name)
        with pytest.raises(IndexError, match=f"{name}: axis 2 is out of range"):
            scan(x, 2, backend="numba")
        with pytest.raises(ValueError, match="scans along the last axis"):
            scan(x, 0, version="shuffle", backend="numba")
    with pytest.raises(ValueError, match="expected a version among"):
        kernels.cummax(x, version="blelloch", backend="numba")
    with pytest.raises(TypeError, match="uint64 is not ordered"):
        kernels.cummax(x.astype(np.uint64), backend="numba")
    assert_close(kernels.cumsum(x, backend="numba"), np.cumsum(wide(x), -1), 4)
