"""Data types (`minigrad.float32`, ...) and the promotion rules of torch.

A `dtype` names a NumPy element type. Promotion differs from NumPy's in two ways: a higher
*category* (bool < integer < floating) determines the result, with its own width (int64 + float32 is
float32), and Python scalars and 0-dimensional tensors only matter when their category is the
highest.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np


class dtype:
    """An element type. Attributes: `itemsize` (bytes), `is_floating_point`, `is_signed`."""

    __slots__ = ("_numpy", "legacy_name", "name")

    def __init__(self, name: str, legacy_name: str, numpy_dtype: np.dtype | None) -> None:
        self.name = name
        self.legacy_name = legacy_name
        self._numpy = numpy_dtype

    @property
    def numpy(self) -> np.dtype:
        """The NumPy dtype behind this one; bfloat16 needs the `ml_dtypes` package."""
        if self._numpy is None:
            self._numpy = _load_bfloat16()
        return self._numpy

    @property
    def itemsize(self) -> int:
        return 2 if self._numpy is None else self._numpy.itemsize

    @property
    def is_floating_point(self) -> bool:
        return self._numpy is None or category(self._numpy) == FLOATING

    @property
    def is_complex(self) -> bool:
        return self._numpy is not None and self._numpy.kind == "c"

    def to_complex(self) -> dtype:
        """The complex dtype whose parts have this one."""
        return self if self.is_complex else complex128 if self is float64 else complex64

    def to_real(self) -> dtype:
        """The dtype of the parts of a complex one."""
        return {"complex64": float32, "complex128": float64}.get(self.name, self)

    @property
    def is_signed(self) -> bool:
        return self.name not in ("bool", "uint8", "uint16", "uint32", "uint64")

    def __repr__(self) -> str:
        return f"minigrad.{self.name}"

    def __reduce__(self) -> str | tuple:
        return (_by_name, (self.name,))


class _Absent(dtype):
    """A dtype of torch that no tensor has here: programs compare with it."""

    __slots__ = ()

    def __init__(self, name: str) -> None:
        super().__init__(name, f"{name.capitalize()}Tensor", None)

    @property
    def is_complex(self) -> bool:
        return self.name == "complex32"

    @property
    def numpy(self) -> np.dtype:
        other = "float16 or bfloat16" if self.is_floating_point else "int8 or uint8"
        other = "complex64" if self.is_complex else other
        raise TypeError(f"{self.name}: minigrad has no tensors of this dtype; fix: use {other}")

    @property
    def itemsize(self) -> int:
        return 4 if self.is_complex else 1

    @property
    def is_floating_point(self) -> bool:
        return self.name.startswith("float")

    @property
    def is_signed(self) -> bool:
        return not self.name.startswith("uint") and self.name != "float8_e8m0fnu"


def _load_bfloat16() -> np.dtype:
    try:
        import ml_dtypes
    except ImportError as error:
        raise RuntimeError(
            "bfloat16: expected the package ml_dtypes, which gives NumPy this type; "
            "fix: pip install ml_dtypes, or use float16"
        ) from error
    found = np.dtype(ml_dtypes.bfloat16)
    _FROM_NUMPY[found] = bfloat16
    return found


float32 = float_ = dtype("float32", "FloatTensor", np.dtype(np.float32))
float64 = double = dtype("float64", "DoubleTensor", np.dtype(np.float64))
float16 = half = dtype("float16", "HalfTensor", np.dtype(np.float16))
bfloat16 = dtype("bfloat16", "BFloat16Tensor", None)
int8 = dtype("int8", "CharTensor", np.dtype(np.int8))
int16 = short = dtype("int16", "ShortTensor", np.dtype(np.int16))
int32 = int_ = dtype("int32", "IntTensor", np.dtype(np.int32))
int64 = long = dtype("int64", "LongTensor", np.dtype(np.int64))
uint8 = dtype("uint8", "ByteTensor", np.dtype(np.uint8))
uint16 = dtype("uint16", "UInt16Tensor", np.dtype(np.uint16))
uint32 = dtype("uint32", "UInt32Tensor", np.dtype(np.uint32))
uint64 = dtype("uint64", "UInt64Tensor", np.dtype(np.uint64))
bool_ = dtype("bool", "BoolTensor", np.dtype(np.bool_))
complex64 = cfloat = dtype("complex64", "ComplexFloatTensor", np.dtype(np.complex64))
complex128 = cdouble = dtype("complex128", "ComplexDoubleTensor", np.dtype(np.complex128))
ABSENT = {
    name: _Absent(name)
    for name in (
        *("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"),
        "complex32",
        *(f"{sign}int{bits}" for sign in ("", "u") for bits in range(1, 8)),
    )
}

ALL = (
    *(float32, float64, float16, bfloat16, int8, int16, int32, int64),
    *(uint8, uint16, uint32, uint64, bool_, complex64, complex128),
)
_BY_NAME = ABSENT | {d.name: d for d in ALL}
_FROM_NUMPY = {d._numpy: d for d in ALL if d._numpy is not None}

BOOL, INTEGER, FLOATING, COMPLEX = 0, 1, 2, 3
_CATEGORY = {"b": BOOL, "u": INTEGER, "i": INTEGER, "f": FLOATING, "c": COMPLEX}


def _by_name(name: str) -> dtype:
    return _BY_NAME[name]


def from_numpy_dtype(numpy_dtype: Any) -> dtype:
    """The minigrad dtype of a NumPy dtype; TypeError for one that tensors can't hold."""
    numpy_dtype = np.dtype(numpy_dtype)
    found = _FROM_NUMPY.get(numpy_dtype)
    if found is None and numpy_dtype.name == "bfloat16":
        return _FROM_NUMPY.setdefault(bfloat16.numpy, bfloat16)
    if found is None:
        names = ", ".join(d.name for d in ALL)
        raise TypeError(
            f"can't convert an array of type {numpy_dtype}: minigrad has {names} "
            "(strings and objects are not supported)"
        )
    return found


def to_numpy_dtype(value: Any) -> np.dtype:
    """The NumPy dtype of a minigrad dtype, a Python type (float, int, bool) or a NumPy dtype."""
    if isinstance(value, dtype):
        return value._numpy or value.numpy
    if value is float:
        return np.dtype(np.float64)
    if value is int:
        return np.dtype(np.int64)
    if value is bool:
        return np.dtype(np.bool_)
    if value is complex:
        return np.dtype(np.complex128)
    raise TypeError(f"expected a minigrad dtype such as minigrad.float32, got {value!r}")


@cache
def category(numpy_dtype: np.dtype) -> int:
    """BOOL, INTEGER, FLOATING or COMPLEX."""
    return FLOATING if numpy_dtype.name == "bfloat16" else _CATEGORY[numpy_dtype.kind]


_NO_COMMON = {np.dtype(np.uint16), np.dtype(np.uint32), np.dtype(np.uint64)}


@cache
def promote(a: np.dtype, b: np.dtype) -> np.dtype:
    """The common type of two tensors of equal rank class (`torch.promote_types`)."""
    if a == b:
        return a
    if FLOATING not in (category(a), category(b)) and not _NO_COMMON.isdisjoint((a, b)):
        names = [from_numpy_dtype(dtype).legacy_name.removesuffix("Tensor") for dtype in (a, b)]
        raise RuntimeError(
            "Promotion for uint16, uint32, uint64 types is not supported, attempted to promote "
            f"{names[0]} and {names[1]}"
        )
    if COMPLEX in (category(a), category(b)):
        other = a if category(a) < COMPLEX else b
        double = np.complex128 in (a, b) or other == np.float64
        return np.dtype(np.complex128 if double else np.complex64)
    if category(a) != category(b):
        return a if category(a) > category(b) else b
    if category(a) == FLOATING and a.itemsize == b.itemsize == 2:
        return np.dtype(np.float32)  # float16 with bfloat16: neither contains the other
    if a.name == "bfloat16" or b.name == "bfloat16":
        return a if a.itemsize > b.itemsize else b
    return np.promote_types(a, b)


def refuse_complex(text: str, numpy_dtype: np.dtype) -> None:
    """RuntimeError where an operation of complex numbers has no meaning."""
    if numpy_dtype.kind == "c":
        raise RuntimeError(text)


def refused(name: str, numpy_dtype: np.dtype) -> NotImplementedError:
    """The error of an operation that does not take a dtype."""
    legacy = from_numpy_dtype(numpy_dtype).legacy_name.removesuffix("Tensor")
    return NotImplementedError(f"\"{name}\" not implemented for '{legacy}'")


class _Default:
    numpy = np.dtype(np.float32)


def default_numpy() -> np.dtype:
    """The NumPy type of Python floats and of factory functions without `dtype=`."""
    return _Default.numpy


def get_default_dtype() -> dtype:
    """The dtype of floating tensors made without `dtype=` (float32 unless changed)."""
    return from_numpy_dtype(_Default.numpy)


def set_default_dtype(d: dtype) -> None:
    """Change the default floating dtype; TypeError for a type that isn't floating."""
    if not (isinstance(d, dtype) and d.is_floating_point):
        raise TypeError(f"only floating-point types are supported as the default type, got {d!r}")
    _Default.numpy = d.numpy


def scalar_dtype(value: Any) -> np.dtype:
    """The NumPy type that a Python scalar has in promotion."""
    if isinstance(value, bool):
        return np.dtype(np.bool_)
    if isinstance(value, int):
        return np.dtype(np.int64)
    if isinstance(value, float):
        return _Default.numpy
    if isinstance(value, complex):
        return np.dtype(np.complex128 if _Default.numpy == np.float64 else np.complex64)
    raise TypeError(f"expected a Python bool, int, float or complex, got {type(value).__name__}")


def combine(tensors: np.dtype | None, zero_dim: np.dtype | None, scalar: np.dtype | None) -> Any:
    """Promotion across rank classes: tensors, then 0-dimensional tensors, then Python scalars.

    A lower class only changes the result when its category is higher; a complex number takes the
    precision of floating tensors.
    """
    result = tensors
    for lower in (zero_dim, scalar):
        if lower is None:
            continue
        if result is None or category(lower) > category(result):
            precise = result is not None and category(result) == FLOATING
            result = promote(result, np.dtype(np.complex64)) if precise else lower
    return result


_C_NAMES = {
    "int32": "int", "float16": "c10::Half", "bfloat16": "c10::BFloat16", "float32": "float",
    "float64": "double",
}  # fmt: skip


@cache
def largest(numpy_dtype: np.dtype) -> float:
    """The largest number of a floating dtype, without its sign also the least."""
    return finfo(from_numpy_dtype(numpy_dtype)).max


def integer_range(numpy_dtype: np.dtype, of_integers: bool) -> tuple[int, int]:
    """The least and the largest number that torch converts to an integer dtype: unsigned ones also
    take negative integers (but no negative floats), which wrap around."""
    limits = np.iinfo(numpy_dtype)
    wraps = numpy_dtype.kind == "u" and of_integers
    return (-limits.max if wraps else limits.min), limits.max


def fitting(value: Any, numpy_dtype: np.dtype) -> Any:
    """A number as one within the range of a dtype: negative integers wrap around in unsigned ones,
    as in torch. RuntimeError for others out of the range; an infinite float is within it."""
    kind = numpy_dtype.kind
    if kind in "bc" or type(value) is bool:
        return value
    fits = True
    if isinstance(value, complex):
        fits, value = not value.imag, value.real
    if kind in "iu":
        least, most = integer_range(numpy_dtype, isinstance(value, int))
        fits = fits and least <= value <= most
        if fits and value < 0 and kind == "u":
            return value + most + 1
    elif not -65504 <= value <= 65504:  # the smallest range, of float16
        fits = fits and not largest(numpy_dtype) < abs(value) < np.inf
    if not fits:
        name = _C_NAMES.get(numpy_dtype.name, f"{numpy_dtype.name}_t")
        raise RuntimeError(f"value cannot be converted to type {name} without overflow")
    return value


def promote_types(type1: dtype, type2: dtype) -> dtype:
    """The dtype that both promote to."""
    return from_numpy_dtype(promote(to_numpy_dtype(type1), to_numpy_dtype(type2)))


def can_cast(from_: dtype, to: dtype) -> bool:
    """Whether an in-place result of one dtype may be stored in another (no category is lost)."""
    return category(to_numpy_dtype(from_)) <= category(to_numpy_dtype(to))


class finfo:
    """Limits of a floating dtype, or of a complex one's parts: bits, eps, max, min, tiny,
    smallest_normal, resolution."""

    eps: float
    max: float
    min: float
    tiny: float
    smallest_normal: float
    resolution: float

    def __init__(self, type: dtype | None = None) -> None:
        type = type or get_default_dtype()
        if not (type.is_floating_point or type.is_complex):
            raise TypeError(f"minigrad.finfo() requires a floating point input type, got {type}")
        if type is bfloat16 or isinstance(type, _Absent):
            import ml_dtypes

            info: Any = ml_dtypes.finfo(getattr(ml_dtypes, type.name))
        else:
            info = np.finfo(type.numpy)
        self.bits = info.bits
        self.dtype = info.dtype.name
        for name in ("eps", "max", "min", "tiny", "smallest_normal"):
            setattr(self, name, float(getattr(info, name)))
        digits = 0 if isinstance(type, _Absent) else info.precision
        self.resolution = float(f"1e-{digits}")

    def __repr__(self) -> str:
        names = ("resolution", "min", "max", "eps", "smallest_normal", "tiny")
        limits = ", ".join(f"{name}={getattr(self, name):g}" for name in names)
        return f"finfo({limits}, dtype={self.dtype})"


class iinfo:
    """Limits of an integer dtype: bits, max, min."""

    def __init__(self, type: dtype) -> None:
        if type.is_floating_point or type.is_complex or type is bool_:
            raise TypeError(f"minigrad.iinfo() requires an integer input type, got {type}")
        info = np.iinfo(type.numpy)
        self.bits, self.min, self.max = info.bits, int(info.min), int(info.max)
        self.dtype = type.name

    def __repr__(self) -> str:
        return f"iinfo(min={self.min}, max={self.max}, dtype={self.dtype})"
