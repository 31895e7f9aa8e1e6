"""A launch's arguments against the kernel's parameters, as the C++ compiler describes them."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kernels.support.errors import ArgumentError

_SLOT = 16  # arguments lie at multiples of this (include/minigrad/entry.h)
_KIND_NAMES = {"i": "int", "u": "uint", "f": "float", "b": "bool", "B": "bfloat"}
_FORMATS = {
    **{("i", n): c for n, c in ((1, "b"), (2, "h"), (4, "i"), (8, "q"))},
    **{("u", n): c for n, c in ((1, "B"), (2, "H"), (4, "I"), (8, "Q"))},
    ("f", 2): "e",
    ("B", 2): "H",
    ("f", 4): "f",
    ("f", 8): "d",
    ("b", 1): "?",
}


class ByValue(np.ndarray):
    """An argument that a GPU's kernel has among its parameters: the recorder counts no traffic of
    global memory for it."""


class Parameter(ctypes.Structure):
    """One parameter: mirrors mgh::Parameter in include/minigrad/describe.h."""

    _fields_ = tuple(
        (name, ctypes.c_int)
        for name in ("pointer", "constant", "kind", "element", "bytes", "element_bytes", "align")
    )


class Packer:
    """Checks the arguments of a launch and lays them out for the kernel."""

    def __init__(self, kernel: str, parameters: list[Parameter], names: list[str]) -> None:
        self.kernel = kernel
        self.names, self.parameters = names, parameters
        self.converters: list[Callable[[Any], Any]] = []
        layout = "="
        for index, parameter in enumerate(parameters):
            where = f"{kernel}: argument {index + 1} ({names[index]})"
            convert, code, size = _converter(parameter, where)
            self.converters.append(convert)
            layout += f"{code}{-size % _SLOT}x"
        self.layout = struct.Struct(layout)

    def __call__(self, args: Sequence) -> bytes:
        return self.layout.pack(*self.values(args))

    def number_types(self) -> list[tuple[str, str] | None]:
        """(name, NumPy's name of the type) of each parameter that is a number, else None."""
        return [
            (name, _type_name(kind, p.bytes))
            if not p.pointer and (kind := chr(p.kind)) in "iufb"
            else None
            for name, p in zip(self.names, self.parameters)
        ]

    def values(self, args: Sequence) -> list:
        """The arguments as `layout` packs them: addresses of arrays, numbers, bytes."""
        if len(args) != len(self.converters):
            raise ArgumentError(
                f"{self.kernel} takes {len(self.converters)} arguments"
                f" ({', '.join(self.names)}), not {len(args)}"
            )
        return [c(arg) for c, arg in zip(self.converters, args)]


def _converter(p: Parameter, where: str) -> tuple[Callable[[Any], Any], str, int]:
    """The function that converts an argument for packing, its code for `struct`, and its bytes."""
    kind = chr(p.kind)
    if p.pointer:
        return _pointer(p, where), "Q", 8
    if kind in "iufbB":
        return _scalar(kind, p.bytes, where), _FORMATS[kind, p.bytes], p.bytes
    return _record(p.bytes, where), f"{p.bytes}s", p.bytes


def _type_name(kind: str, size: int) -> str:
    return "bool" if kind == "b" else f"{_KIND_NAMES[kind]}{8 * size}"


_LOWEST = 1 << 32  # memory that programs allocate lies above; what is below is a count


def _pointer(p: Parameter, where: str) -> Callable[[Any], int]:
    kind, element = chr(p.kind), chr(p.element)
    fitting: dict[np.dtype, bool] = {}

    def fits(dtype: np.dtype) -> bool:
        if kind == "p":
            return True
        if kind == "x":
            return dtype.itemsize == p.bytes or (
                dtype.names is None and not p.bytes % dtype.itemsize
            )
        if dtype.kind == "c":  # complex64 as float2
            return kind == "v" and element == "f" and dtype.itemsize == p.bytes
        if element == "B":  # CuPy's programs keep bfloat16 in uint16
            return dtype.name == "bfloat16" or dtype == np.uint16
        if dtype.itemsize != p.element_bytes:
            return False
        return dtype.kind == element or (dtype.kind in "iub" and element in "iub")

    def check(array: np.ndarray) -> None:
        dtype = array.dtype
        if not fits(dtype) or dtype.hasobject or not dtype.isnative:
            if kind == "x":
                wanted, fix = f"records of {p.bytes} bytes", "give the array a dtype of that size"
            else:
                wanted = _type_name(element, p.element_bytes)
                name = "ml_dtypes.bfloat16" if element == "B" else repr(wanted)
                fix = f"convert it with .astype({name})"
            raise ArgumentError(f"{where} points to {wanted}, but the array is of {dtype}; {fix}")
        fitting[dtype] = True

    def unusual(value: Any) -> int:
        """The address of what `convert` could not tell; it may be empty or const."""
        if value is None:
            return 0
        if not isinstance(value, np.ndarray):
            return number(value)
        if value.dtype not in fitting:
            check(value)
        flags = value.flags
        if not flags.c_contiguous:
            raise ArgumentError(
                f"{where} is an array of shape {value.shape} whose elements do not lie one after"
                " the other (a transpose or a slice?); pass np.ascontiguousarray(array)"
            )
        if not p.constant and not flags.writeable:
            raise ArgumentError(
                f"{where} is a read-only array; the kernel may write to it: pass a copy, or"
                " declare the parameter const"
            )
        address = value.ctypes.data
        if address % align:
            raise ArgumentError(
                f"{where} must begin at a multiple of {align} bytes, but the array's data is at"
                f" {address:#x}; pass a copy"
            )
        return address

    def number(value: Any) -> int:
        """An address (`array.data.ptr`, a tensor's `data_ptr()`), or 0 for a null pointer."""
        address = int(value) if type(value) in (int, np.int64, np.uint64) else -1
        if address and not _LOWEST <= address < 1 << 64:
            raise ArgumentError(
                f"{where} is a pointer: pass an array or its address, not {value!r}, of type"
                f" {type(value).__name__}"
            )
        return address

    def convert(value: Any) -> int:
        if type(value) is np.ndarray and value.dtype in fitting:
            try:  # refuses what is not contiguous, not writeable, or empty: .ctypes.data takes 1 us
                address = addressof(from_buffer(value))
            except (TypeError, ValueError):
                return unusual(value)
            if not address % align:
                return address
        return unusual(value)

    align, addressof, from_buffer = p.align, ctypes.addressof, ctypes.c_char.from_buffer
    return convert


def _scalar(kind: str, size: int, where: str) -> Callable[[Any], Any]:
    name = _type_name(kind, size)

    def refuse(value: Any) -> None:
        what = f"an array of shape {value.shape}" if isinstance(value, np.ndarray) else repr(value)
        raise ArgumentError(f"{where} is a number of type {name}, not {what}")

    def number(value: Any) -> Any:
        if isinstance(value, np.ndarray) and value.ndim == 0:
            value = value[()]
        return value.item() if isinstance(value, np.generic) else value

    if kind in "fB":
        rounded = _rounding(kind, size)
        # What `struct` rounds by itself: finite, and far from overflowing.
        large = {("f", 4): 1e38, ("f", 8): 1e308}.get((kind, size), -1.0)

        def convert(value: Any) -> float:
            if type(value) is float and -large < value < large:
                return value
            if type(value) is not float:
                value = number(value)
                if not isinstance(value, int | float):
                    refuse(value)
            return rounded(value)

        return convert
    if kind == "b":
        low, high = 0, 1
    else:
        low = -(1 << 8 * size - 1) if kind == "i" else 0
        high = (1 << 8 * size - (kind == "i")) - 1

    def convert_integer(value: Any) -> int:
        if type(value) is not int:
            value = number(value)
            if not isinstance(value, int):
                refuse(value)
        if not low <= value <= high:
            raise ArgumentError(f"{where}: {value} does not fit into {name} ({low} to {high})")
        return value

    return convert_integer


def _rounding(kind: str, size: int) -> Callable[[float], Any]:
    """Rounds a number to a type as `struct` packs it; overflows to infinity as a cast does."""
    if kind == "B":
        import ml_dtypes

        return lambda value: int(ml_dtypes.bfloat16(value).view(np.uint16))
    if size == 2:

        def half(value: float) -> float:
            with np.errstate(over="ignore"):
                return float(np.float16(value))

        return half
    scale = ctypes.c_float if size == 4 else ctypes.c_double
    return lambda value: scale(value).value


def _record(size: int, where: str) -> Callable[[Any], bytes]:
    def convert(value: Any) -> bytes:
        packed = value.tobytes() if isinstance(value, np.ndarray | np.generic) else value
        if not isinstance(packed, bytes) or len(packed) != size:
            raise ArgumentError(
                f"{where} is a structure of {size} bytes: pass a NumPy record, array or bytes of"
                f" that size, not {value!r}"
            )
        return packed

    return convert
