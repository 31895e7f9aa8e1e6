"""What the tests of the kernel families share: devices, random inputs, errors against float64."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

import ml_dtypes
import numpy as np
import pytest

from kernels import raw_kernel
from kernels.families import normal as normal  # for the tests of the families
from tests import software_gpu

DEVICES = ("cpu", pytest.param("gpu", marks=pytest.mark.gpu))
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def of_each_capability(device: str) -> Iterator[None]:
    """On the device "gpu", the GPUs of different compute capabilities are the current one in turn;
    on the CPU, once."""
    if device == "cpu":
        yield
        return
    import cupy

    numbers = range(cupy.cuda.runtime.getDeviceCount())
    first = {cupy.cuda.Device(n).compute_capability: n for n in reversed(numbers)}
    for number in sorted(first.values()):
        with cupy.cuda.Device(number):
            yield


def put(a: np.ndarray, device: str):
    """The array on the device, with the same values and strides; numbers go by value."""
    if device == "cpu" or not isinstance(a, np.ndarray):
        return a
    import cupy

    if a.flags.c_contiguous or a.size == 0:
        return cupy.asarray(a)
    low, high = np.lib.array_utils.byte_bounds(a)  # all memory that the view walks through
    memory = np.frombuffer((ctypes.c_uint8 * (high - low)).from_address(low), a.dtype)
    first = (a.__array_interface__["data"][0] - low) // a.itemsize
    there = cupy.asarray(memory)[first:]
    return cupy.lib.stride_tricks.as_strided(there, a.shape, a.strides)


def occupy_gpu(seconds: float = 0.2) -> None:
    """Keep the current stream busy for about so long: what is launched next has not ended when the
    host looks. (In the software GPU work waits anyway.)"""
    if not software_gpu.installed():
        code = (
            "__global__ void spin(long long n) { auto t = clock64(); while (clock64() - t < n); }"
        )
        raw_kernel(code, "spin").on_gpu().launch((1,), (1,), (np.int64(seconds * 1.5e9),))


def get(a) -> np.ndarray:
    """The array as NumPy's."""
    return a if isinstance(a, np.ndarray) else a.get()


def eps(dtype) -> float:
    """Distance from 1 to the next number of the dtype; 0 for integers, which must be exact."""
    dtype = np.dtype(dtype)
    return 0.0 if dtype.kind in "iub" else float(ml_dtypes.finfo(dtype).eps)


def wide(a) -> np.ndarray:
    """The array in float64 (integers in int64), for the reference."""
    a = get(a)
    return a.astype(np.int64 if a.dtype.kind in "iu" else np.float64)


def assert_close(actual, expected: np.ndarray, scale, terms: int = 1, steps: float = 4) -> None:
    """|actual - expected| <= steps * eps * sqrt(terms) * scale, and the same shape.

    scale: what rounding errors are relative to, for a sum the sum of the absolute values. A sum in
    float32 that is stored in 16 bits is allowed the rounding of both.
    """
    actual = get(actual)
    assert actual.shape == expected.shape
    e = eps(actual.dtype)
    summed = eps(np.float32) if 0 < eps(np.float32) < e else e
    bound = steps * (summed * np.sqrt(max(terms, 1)) + e) * (np.abs(scale) + np.abs(expected))
    assert np.array_equal(np.isinf(expected), np.isinf(wide(actual)))
    with np.errstate(invalid="ignore"):  # inf - inf
        error = np.abs(wide(actual) - expected)
    far = error > bound
    assert not far.any(), f"error {error[far].max():.3g}: {far.sum()} of {error.size} too far off"
    assert np.array_equal(np.isnan(expected), np.isnan(wide(actual)))


def as_wide(value):
    """Arrays in the reference's precision, float dtypes as float64; everything else unchanged."""
    if isinstance(value, np.ndarray):
        return value if value.dtype == bool else wide(value)
    if isinstance(value, (list, tuple)):
        return type(value)(as_wide(v) for v in value)
    return np.float64 if value in (np.float32, np.float16, BFLOAT16) else value


def check(name: str, *args, device: str = "cpu", scale=None, terms: int = 1, **kwargs) -> None:
    """Compare `kernels.numba_cuda.<name>(*args, **kwargs)` with the reference in float64.

    `version=` goes to the kernel alone. scale: as in `assert_close`, default 1.
    """
    from kernels import numba_cuda, reference

    def placed(value):
        if isinstance(value, np.ndarray):
            return put(value, device)
        return [put(v, device) for v in value] if isinstance(value, list) else value

    actual = getattr(numba_cuda, name)(
        *map(placed, args), **{k: placed(v) for k, v in kwargs.items()}
    )
    kwargs.pop("version", None)
    wanted = {k: as_wide(v) for k, v in kwargs.items()}
    expected = np.asarray(getattr(reference, name)(*map(as_wide, args), **wanted))
    assert_close(actual, wide(expected), 1.0 if scale is None else scale, terms=terms)
