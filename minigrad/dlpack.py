"""DLPack for tensors, on the CPU including bfloat16.

NumPy can't exchange bfloat16. The elements are exported as 16-bit integers, and the dtype code in
the capsule is then replaced (`DLTensor.dtype.code` of dlpack.h; a versioned capsule has a longer
header before it).
"""

from __future__ import annotations

import ctypes
from typing import Any

import ml_dtypes
import numpy as np

from minigrad.backends import device_module

_ON_GPU = 2, 13  # kDLCUDA, kDLCUDAManaged
_CODE_OFFSETS = {b"dltensor": 20, b"dltensor_versioned": 52}
_UINT, _BFLOAT = 1, 4
_BFLOAT16 = np.dtype(ml_dtypes.bfloat16)

_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_is_valid.argtypes = ctypes.py_object, ctypes.c_char_p
_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.argtypes, _pointer.restype = (ctypes.py_object, ctypes.c_char_p), ctypes.c_void_p


def _code(capsule: Any) -> ctypes.c_uint8:
    """A writable reference to the dtype code in a capsule."""
    name = next(name for name in _CODE_OFFSETS if _is_valid(capsule, name))
    return ctypes.c_uint8.from_address(_pointer(capsule, name) + _CODE_OFFSETS[name])


def capsule_of(array: np.ndarray, **kwargs: Any) -> Any:
    """The capsule that `Tensor.__dlpack__` returns."""
    if array.dtype != _BFLOAT16:
        return array.__dlpack__(**kwargs)
    capsule = array.view(np.uint16).__dlpack__(**kwargs)
    _code(capsule).value = _BFLOAT
    return capsule


def array_of(exporter: Any) -> Any:
    """An array of NumPy's or CuPy's that shares memory with an object that has `__dlpack__`."""
    if exporter.__dlpack_device__()[0] in _ON_GPU:
        return device_module("cuda").from_dlpack(exporter)
    words = _AsUint16(exporter)
    array = np.from_dlpack(words)
    return array.view(_BFLOAT16) if words.is_bfloat else array


class _AsUint16:
    """An exporter that presents bfloat16 as uint16."""

    def __init__(self, exporter: Any) -> None:
        self.exporter, self.is_bfloat = exporter, False

    def __dlpack__(self, **kwargs: Any) -> Any:
        capsule = self.exporter.__dlpack__(**kwargs)
        code = _code(capsule)
        if code.value == _BFLOAT:
            self.is_bfloat, code.value = True, _UINT
        return capsule

    def __dlpack_device__(self) -> tuple:
        return self.exporter.__dlpack_device__()


class _Capsule:
    """The exporter of a capsule, which can be taken once."""

    def __init__(self, capsule: Any) -> None:
        self.capsule = capsule

    def __dlpack__(self, **kwargs: Any) -> Any:
        return self.capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        name = next(name for name in _CODE_OFFSETS if _is_valid(self.capsule, name))
        offset = _CODE_OFFSETS[name] - 12  # device type and number lie before ndim and dtype
        kind, number = (ctypes.c_int32 * 2).from_address(_pointer(self.capsule, name) + offset)
        return kind, number


def exporter_of(given: Any) -> Any:
    """An object that has `__dlpack__`: the given one, or that of a capsule."""
    return _Capsule(given) if type(given).__name__ == "PyCapsule" else given
