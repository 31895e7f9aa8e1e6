"""Maps of arrays for Hopper's copy engine (TMA), which fetches boxes of them by itself.

A map is a CUtensorMap, 128 bytes that the driver fills in and a kernel takes by value. The driver
is called through ctypes: the structure must begin at a multiple of its own size in memory.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Callable

import numpy as np

BOX = 64  # rows and columns: a row of 128 bytes, which is what the swizzle works on
MAP = np.dtype([("opaque", np.uint64, 16)])
_DATA_TYPES = {"float16": 6, "bfloat16": 9}  # CU_TENSOR_MAP_DATA_TYPE_...
_INTERLEAVE_NONE, _SWIZZLE_128B, _L2_PROMOTION_128B, _ZEROS_OUTSIDE = 0, 3, 2, 0


def tensor_map(x) -> np.ndarray:
    """The map of a contiguous array (z, rows, columns) of 16-bit floats on a GPU, in boxes of one z
    and BOX x BOX; a 0-dimensional array of MAP.

    The array must begin, and its rows follow each other, at multiples of 16 bytes.
    """
    return encode(x.data.ptr, x.shape, x.dtype.name)


def is_map(value) -> bool:
    """Whether an argument of a kernel is a map."""
    return isinstance(value, np.ndarray) and value.dtype == MAP


def map_at(x) -> Callable[[int], bytes]:
    """The bytes of `tensor_map`, for what lies at an address as x does."""
    shape, dtype = x.shape, x.dtype.name
    return lambda address: encode(address, shape, dtype).tobytes()


@functools.lru_cache(maxsize=256)
def encode(address: int, shape: tuple[int, int, int], dtype: str) -> np.ndarray:
    """`tensor_map` of what lies at an address. Raises RuntimeError where the driver refuses."""
    z, rows, columns = shape
    pitch = 2 * columns
    room = np.zeros(2 * MAP.itemsize, np.uint8)
    start = -room.ctypes.data % MAP.itemsize
    result = room[start : start + MAP.itemsize].view(MAP).reshape(())
    status = _driver().cuTensorMapEncodeTiled(
        ctypes.c_void_p(result.ctypes.data),
        ctypes.c_int(_DATA_TYPES[dtype]),
        ctypes.c_uint32(3),
        ctypes.c_void_p(address),
        (ctypes.c_uint64 * 3)(columns, rows, z),
        (ctypes.c_uint64 * 2)(pitch, pitch * rows),
        (ctypes.c_uint32 * 3)(BOX, BOX, 1),
        (ctypes.c_uint32 * 3)(1, 1, 1),
        ctypes.c_int(_INTERLEAVE_NONE),
        ctypes.c_int(_SWIZZLE_128B),
        ctypes.c_int(_L2_PROMOTION_128B),
        ctypes.c_int(_ZEROS_OUTSIDE),
    )
    if status:
        raise RuntimeError(
            f"cuTensorMapEncodeTiled: error {status} for {dtype} {shape} at {address:#x}"
        )
    return result


@functools.cache
def _driver() -> ctypes.CDLL:
    return ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
