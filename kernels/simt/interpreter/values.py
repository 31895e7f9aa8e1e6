"""Values inside the interpreter: Python code that computes with CUDA's types.

Numba computes integers in 64 bits and `float32 * 2.0` in float64; Python integers are unbounded,
and Python literals are weakly typed in NumPy. So integers are `Int`s here, float literals NumPy
float64s, and arrays are `KernelArray`s, whose elements are loaded and stored with C's conversions.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np

from kernels.simt.ir import stubs
from kernels.support.errors import KernelIndexError


class Int(int):
    """An integer of fixed width. Arithmetic widens to 64 bits, signed if any operand is."""

    bits = 64
    signed = True
    dtype = np.dtype(np.int64)

    def __new__(cls, value: Any) -> Int:
        number = int(value) & ((1 << cls.bits) - 1)
        if cls.signed and number >> (cls.bits - 1):
            number -= 1 << cls.bits
        return int.__new__(cls, number)

    def numpy(self) -> np.integer:
        return self.dtype.type(int(self))

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        # reached from `numpy_scalar <op> Int` and from calls such as np.sqrt(Int)
        operators = _UFUNC_OPERATORS.get(ufunc)
        if operators and all(isinstance(x, int | np.integer | np.bool_) for x in inputs):
            return operators(*(integer(x) for x in inputs))
        if ufunc is np.power and isinstance(inputs[0], np.floating):
            return ufunc(inputs[0], inputs[0].dtype.type(inputs[1]))  # Numba keeps float32 ** int
        plain = [x.numpy() if isinstance(x, Int) else x for x in inputs]
        return value_of(getattr(ufunc, method)(*plain, **kwargs))

    def __truediv__(self, other: Any) -> Any:
        return _with_float(np.true_divide, self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return _with_float(np.true_divide, other, self)

    def __neg__(self) -> Int:
        return _wide(self.signed)(-int(self))

    def __pos__(self) -> Int:
        return _wide(self.signed)(int(self))

    def __invert__(self) -> Int:
        return _wide(self.signed)(~int(self))

    def __abs__(self) -> Int:
        return _wide(self.signed)(abs(int(self)))

    def bit_count(self) -> Int:
        return Int(bin(int(self) & ((1 << self.bits) - 1)).count("1"))

    def __reduce__(self) -> tuple:
        return (int, (int(self),))


def _kind(bits: int, signed: bool) -> type[Int]:
    name = f"{'int' if signed else 'uint'}{bits}"
    return type(name, (Int,), {"bits": bits, "signed": signed, "dtype": np.dtype(name)})


INTEGERS: dict[np.dtype, type[Int]] = {Int.dtype: Int}
for _bits in (8, 16, 32, 64):
    for _signed in (True, False):
        if (_bits, _signed) != (64, True):
            _made = _kind(_bits, _signed)
            INTEGERS[_made.dtype] = _made


def _wide(signed: bool) -> type[Int]:
    return Int if signed else INTEGERS[np.dtype(np.uint64)]


def integer(x: Any) -> Int:
    """Any integer or boolean as an `Int` of its own width."""
    if isinstance(x, Int):
        return x
    if isinstance(x, np.integer):
        return INTEGERS[x.dtype](x)
    return Int(x)


def _plain(x: Any) -> Any:
    """A NumPy scalar (or a Python float or complex) for arithmetic with floats."""
    if isinstance(x, Int):
        return x.numpy()
    return np.int64(x) if type(x) is int else x


def _with_float(ufunc: np.ufunc, a: Any, b: Any) -> Any:
    if not (
        isinstance(a, int | float | complex | np.generic)
        and isinstance(b, int | float | complex | np.generic)
    ):
        return NotImplemented
    return value_of(ufunc(_plain(a), _plain(b)))


def _quotient(operation: Callable) -> Callable:
    def divided(a: int, b: int) -> int:
        return operation(a, b) if b else 0  # a GPU raises nothing

    return divided


def _install(name: str, operation: Callable, ufunc: np.ufunc) -> None:
    def compute(a: Any, b: Any) -> Any:
        if not (
            isinstance(a, int | np.integer | np.bool_)
            and isinstance(b, int | np.integer | np.bool_)
        ):
            return _with_float(ufunc, a, b)
        a, b = integer(a), integer(b)
        shift = name in ("lshift", "rshift")
        signed = a.signed if shift else a.signed or b.signed
        return _wide(signed)(operation(int(a), int(b) & 63 if shift else int(b)))

    setattr(Int, f"__{name}__", lambda self, other: compute(self, other))
    setattr(Int, f"__r{name}__", lambda self, other: compute(other, self))
    _UFUNC_OPERATORS[ufunc] = compute


_UFUNC_OPERATORS: dict[np.ufunc, Callable] = {}
_install("add", operator.add, np.add)
_install("sub", operator.sub, np.subtract)
_install("mul", operator.mul, np.multiply)
_install("floordiv", _quotient(operator.floordiv), np.floor_divide)
_install("mod", _quotient(operator.mod), np.remainder)
_install("and", operator.and_, np.bitwise_and)
_install("or", operator.or_, np.bitwise_or)
_install("xor", operator.xor, np.bitwise_xor)
_install("lshift", operator.lshift, np.left_shift)
_install("rshift", operator.rshift, np.right_shift)


def _power(self: Int, exponent: Any) -> Any:
    if isinstance(exponent, int | np.integer) and exponent >= 0:
        return _wide(self.signed or integer(exponent).signed)(
            pow(int(self), int(exponent), 1 << 64)
        )
    return _with_float(np.power, np.float64(self), exponent)


def _reflected_power(self: Int, base: Any) -> Any:
    if isinstance(base, np.floating):
        return np.power(base, base.dtype.type(self))
    return _power(integer(base), self) if isinstance(base, int) else NotImplemented


Int.__pow__ = _power
Int.__rpow__ = _reflected_power


_HALVES = (np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16))


def value_of(x: Any) -> Any:
    """A loaded or passed value as kernels compute with it."""
    if isinstance(x, np.ndarray):
        return x.view(KernelArray)
    if isinstance(x, np.void):
        return Record(x)
    if isinstance(x, bool | np.bool_ | Int):
        return x
    if type(x) is int or isinstance(x, np.integer):
        return integer(x)
    if isinstance(x, np.generic) and x.dtype in _HALVES:
        return np.float32(x)
    if type(x) is float:
        return np.float64(x)
    if type(x) is complex:
        return np.complex128(x)
    if type(x) is tuple:
        return tuple(value_of(part) for part in x)
    return x


class KernelArray(np.ndarray):
    """An array inside a kernel: bounds are checked, stores convert as C does."""

    def __getitem__(self, index: Any) -> Any:
        self._tick(index)
        try:
            found = super().__getitem__(_plain_index(index))
        except IndexError:
            raise self._outside(index) from None
        return found if isinstance(found, KernelArray) else value_of(found)

    def __setitem__(self, index: Any, value: Any) -> None:
        self._tick(index, stores=True)
        value = value.void if isinstance(value, Record) else cast_array(self.dtype, value)
        try:
            super().__setitem__(_plain_index(index), value)
        except IndexError:
            raise self._outside(index) from None

    def _tick(self, index: Any, stores: bool = False) -> None:
        thread = stubs.active_thread()
        if thread is not None:
            thread.tick(self, index, stores)

    def _outside(self, index: Any) -> KernelIndexError:
        thread = stubs.active_thread()
        where = thread.where() if thread is not None else "host code"
        parts = index if isinstance(index, tuple) else (index,)
        text = ", ".join(str(part) for part in parts)
        name = thread.name_of(self) if thread is not None else "array"
        return KernelIndexError(f"{name}[{text}] is outside its shape {np.shape(self)}, in {where}")

    @property
    def shape(self) -> tuple[Int, ...]:
        return tuple(Int(n) for n in np.ndarray.shape.__get__(self))

    @property
    def size(self) -> Int:
        return Int(np.ndarray.size.__get__(self))

    @property
    def ndim(self) -> Int:
        return Int(np.ndarray.ndim.__get__(self))


class Record:
    """An element of a structured array, a view of it: fields by name or as attributes."""

    __slots__ = ("void",)

    def __init__(self, void: np.void) -> None:
        object.__setattr__(self, "void", void)

    def __getitem__(self, name: str) -> Any:
        return value_of(self.void[name])

    def __setitem__(self, name: str, value: Any) -> None:
        self.void[name] = cast_array(self.void.dtype[name].base, value)

    def __getattr__(self, name: str) -> Any:
        if name not in (self.void.dtype.names or ()):
            raise AttributeError(
                f"the record has no field {name!r}; it has {self.void.dtype.names}"
            )
        return self[name]

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value


def cast_array(dtype: np.dtype, value: Any) -> Any:
    """What a store writes: `value` converted to `dtype` as C does."""
    plain = value.numpy() if isinstance(value, Int) else value
    return plain if dtype.names is not None else np.asarray(plain).astype(dtype)


def _plain_index(index: Any) -> Any:
    if isinstance(index, tuple):
        return tuple(_plain_index(part) for part in index)
    if isinstance(index, bool | np.bool_):
        return int(index)  # Numba indexes with a boolean as with an integer
    return int(index) if isinstance(index, Int) else index


def cast(dtype: np.dtype, value: Any) -> Any:
    """`int32(value)`, `float32(value)`: C's conversion."""
    if isinstance(value, np.ndarray):
        return value.astype(dtype)
    return value_of(cast_array(dtype, value)[()])


class NumberType:
    """A scalar type inside a kernel: a conversion, and a dtype for shared and local arrays."""

    def __init__(self, dtype: np.dtype) -> None:
        self.dtype = dtype

    def __call__(self, value: Any = 0) -> Any:
        return cast(self.dtype, value)

    def __eq__(self, other: object) -> bool:
        return as_dtype(other) == self.dtype

    def __hash__(self) -> int:
        return hash(self.dtype)

    def __repr__(self) -> str:
        return str(self.dtype)


def as_dtype(kind: Any) -> np.dtype:
    """The NumPy dtype of a Numba type, a NumPy type or one of ours."""
    if isinstance(kind, NumberType):
        return kind.dtype
    if isinstance(kind, type | np.dtype | str):
        return np.dtype(kind)
    name = getattr(kind, "name", "")
    if name in ("float16", "bfloat16"):
        return np.dtype(name)
    from numba.np.numpy_support import as_dtype as numba_as_dtype

    return numba_as_dtype(kind)


# --- what replaces Python's own functions inside kernels


class Range:
    """`range` over `Int`s."""

    def __init__(self, *bounds: Any) -> None:
        self.inner = range(*(int(bound) for bound in bounds))

    def __iter__(self) -> Iterator[Int]:
        return map(Int, self.inner)

    def __len__(self) -> int:
        return len(self.inner)


def _enumerate(values: Any, start: int = 0) -> Iterator[tuple[Int, Any]]:
    return ((Int(i), value) for i, value in enumerate(values, start))


def _common(a: Any, b: Any) -> np.dtype:
    return np.result_type(np.asarray(_plain(a)).dtype, np.asarray(_plain(b)).dtype)


def _extreme(choose: Callable, ufunc: np.ufunc) -> Callable:
    def pick(*values: Any) -> Any:
        if len(values) == 1:
            values = tuple(values[0])
        result = values[0]
        for value in values[1:]:
            floats = isinstance(result, float | np.floating) or isinstance(
                value, float | np.floating
            )
            dtype = _common(result, value)
            # with a float, C's fmax and fmin: the other operand beside a NaN
            result = ufunc(_plain(result), _plain(value)) if floats else choose(result, value)
            result = cast(dtype, result) if floats else result
        return result

    return pick


def _round(value: Any, digits: int | None = None) -> Any:
    if digits is None:
        return cast(np.dtype(np.int64), np.rint(_plain(value)))
    return cast(np.asarray(_plain(value)).dtype, round(float(value), int(digits)))


def _length(value: Any) -> Int:
    return Int(len(value))


def _print(*values: Any, **options: Any) -> None:
    """`print`, with floats written as on a GPU."""
    floats = (float, np.floating)
    print(*(f"{v:.6f}" if isinstance(v, floats) else v for v in values), **options)


BUILTINS: dict[str, Any] = {
    "print": _print,
    "range": Range,
    "len": _length,
    "enumerate": _enumerate,
    "int": NumberType(np.dtype(np.int64)),
    "float": NumberType(np.dtype(np.float64)),
    "max": _extreme(max, np.fmax),
    "min": _extreme(min, np.fmin),
    "round": _round,
}


class Functions:
    """A module (`math` or `numpy`) as kernels see it: some names replaced, the others its own."""

    def __init__(self, module: Any, replaced: dict[str, Any]) -> None:
        self.__dict__.update(replaced)
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


def _math_function(function: Callable) -> Callable:
    """float32 in, float32 out (computed in float64 and rounded); anything else float64."""

    def call(*args: Any) -> Any:
        narrow = all(isinstance(arg, np.float32) for arg in args)
        try:
            result = function(*(float(arg) for arg in args))
        except OverflowError:
            result = math.inf
        except ValueError:  # outside the domain: C returns NaN, or an infinity at a pole
            result = _domain(function, *args)
        return np.float32(result) if narrow else np.float64(result)

    return call


def _domain(function: Callable, *args: Any) -> float:
    if args[0] == 0 and function in (math.log, math.log2, math.log10):
        return -math.inf
    if function is math.log1p and args[0] == -1:
        return -math.inf
    if function is math.atanh and abs(args[0]) == 1:
        return math.copysign(math.inf, args[0])
    if function is math.pow and args[0] == 0:
        return math.inf
    if function is math.gamma or function is math.lgamma:
        return math.inf
    return math.nan


def _rounding(ufunc: np.ufunc) -> Callable:
    def call(x: Any) -> Any:
        return ufunc(x if isinstance(x, np.floating) else np.float64(x))

    return call


_MATH = (
    "acos acosh asin asinh atan atan2 atanh copysign cos cosh degrees erf erfc exp exp2 expm1 fabs"
    " fmod gamma hypot lgamma log log10 log1p log2 nextafter pow radians remainder sin sinh sqrt"
    " tan tanh"
)
KERNEL_MATH = Functions(
    math,
    {name: _math_function(getattr(math, name)) for name in _MATH.split() if hasattr(math, name)}
    | {name: _rounding(getattr(np, name)) for name in ("floor", "ceil", "trunc")},
)
SCALAR_NAMES = (
    "int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64 complex128"
)
NUMBER_TYPES = {name: NumberType(np.dtype(name)) for name in SCALAR_NAMES.split()}
NUMBER_TYPES["bfloat16"] = NumberType(np.dtype(ml_dtypes.bfloat16))
KERNEL_NUMPY = Functions(np, NUMBER_TYPES)
