"""The operators and methods of `cupy.ndarray` that are functions of arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from . import _functions
from ._array import SCALARS, fresh, ndarray, operand, view, wrap
from ._generate import function
from ._quiet import quietly
from ._trace import attach
from ._ufunc import make, ufunc

_BINARY = {
    "add": "add", "sub": "subtract", "mul": "multiply", "truediv": "true_divide",
    "floordiv": "floor_divide", "mod": "remainder", "pow": "power", "and": "bitwise_and",
    "or": "bitwise_or", "xor": "bitwise_xor", "lshift": "left_shift", "rshift": "right_shift",
}  # fmt: skip
_COMPARE = {
    "eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater",
    "ge": "greater_equal",
}  # fmt: skip
_UNARY = {"neg": "negative", "pos": "positive", "abs": "absolute", "invert": "invert"}

#: methods that are NumPy's function of this name, with CuPy's signature
_REDUCTIONS = """
all(self, axis=None, out=None, keepdims=False)
any(self, axis=None, out=None, keepdims=False)
argmax(self, axis=None, out=None, dtype=None, keepdims=False)
argmin(self, axis=None, out=None, dtype=None, keepdims=False)
argpartition(self, kth, axis=-1)
choose(self, choices, out=None, mode='raise')
clip(self, min=None, max=None, out=None)
cumprod(self, axis=None, dtype=None, out=None)
cumsum(self, axis=None, dtype=None, out=None)
dot(self, b, out=None)
max(self, axis=None, out=None, keepdims=False)
mean(self, axis=None, dtype=None, out=None, keepdims=False)
min(self, axis=None, out=None, keepdims=False)
nonzero(self)
prod(self, axis=None, dtype=None, out=None, keepdims=False)
ptp(self, axis=None, out=None, keepdims=False)
ravel(self, order='C')
repeat(self, repeats, axis=None)
round(self, decimals=0, out=None)
searchsorted(self, v, side='left', sorter=None)
squeeze(self, axis=None)
std(self, axis=None, dtype=None, out=None, ddof=0, keepdims=False)
sum(self, axis=None, dtype=None, out=None, keepdims=False)
swapaxes(self, axis1, axis2)
trace(self, offset=0, axis1=0, axis2=1, dtype=None, out=None)
var(self, axis=None, dtype=None, out=None, ddof=0, keepdims=False)
"""

ufuncs: dict[str, ufunc] = {}


def ufunc_named(name: str) -> ufunc:
    """CuPy's ufunc `name`, one object per name."""
    found = ufuncs.get(name)
    if found is None:
        found = ufuncs[name] = make(name)
    return found


def _yields(other: Any) -> bool:
    """Whether the other operand's own operator comes first."""
    return type(other) not in SCALARS and (
        getattr(other, "__array_ufunc__", ufunc_named) is None
        or (
            hasattr(other, "__host_value__")
            and getattr(other, "__array_priority__", 0) > ndarray.__array_priority__
        )
    )


def _attach_operator(symbol: str, name: str) -> None:
    compute = ufunc_named(name)

    def forward(self: ndarray, other: Any) -> Any:
        if type(other) is not ndarray and _foreign(other):
            return NotImplemented
        return compute(self, other)

    def reflected(self: ndarray, other: Any) -> Any:
        return NotImplemented if _foreign(other) else compute(other, self)

    def in_place(self: ndarray, other: Any) -> ndarray:
        return compute.in_place(self, other)

    setattr(ndarray, f"__{symbol}__", forward)
    attach(symbol, compute, "binary" if name in _BINARY.values() else "compare")
    if name in _BINARY.values():
        setattr(ndarray, f"__r{symbol}__", reflected)
        setattr(ndarray, f"__i{symbol}__", in_place)


def _foreign(other: Any) -> bool:
    kind = type(other)
    return kind is not ndarray and kind not in SCALARS and _yields(other)


def _attach_unary(symbol: str, name: str) -> None:
    compute = ufunc_named(name)
    setattr(ndarray, f"__{symbol}__", lambda self: compute(self))
    attach(symbol, compute, "unary")


class _Generated:
    """A method that is generated at its first use: 25 of them would take 20 ms of the import."""

    def __init__(self, line: str) -> None:
        self.name, _, rest = line.partition("(")
        self.signature = f"({rest}"

    def __get__(self, array: ndarray | None, owner: type) -> Callable:
        made = function(self.name, self.signature, _numpy_method(self.name), "cupy.ndarray")
        setattr(ndarray, self.name, made)
        return made if array is None else made.__get__(array, owner)


def _attach_reduction(line: str) -> None:
    method = _Generated(line)
    setattr(ndarray, method.name, method)


def _numpy_method(name: str) -> Callable:
    return getattr(np.ndarray, name, None) or getattr(np, name)


def _attach(method: Callable) -> Callable:
    setattr(ndarray, method.__name__, method)
    return method


@_attach
def astype(
    self: ndarray, dtype: Any, order: str = "K", casting: Any = None, subok: Any = None,
    copy: bool = True,
) -> ndarray:  # fmt: skip
    """A copy of another dtype; the array itself if `copy` is false and nothing changes."""
    if subok is not None:
        raise TypeError("astype: subok is not supported")
    result = quietly(self._array.astype, dtype, order or "K", casting or "unsafe", copy=copy)
    return self if result is self._array else fresh(result)


@_attach
def copy(self: ndarray, order: str = "C") -> ndarray:
    return fresh(self._array.copy(order))


@_attach
def flatten(self: ndarray, order: str = "C") -> ndarray:
    return fresh(self._array.flatten(order))


@_attach
def fill(self: ndarray, value: Any) -> None:
    """Set all elements to a number or a 0-d array."""
    if isinstance(value, np.ndarray) and value.ndim:
        raise ValueError("non-scalar numpy.ndarray cannot be used for fill")
    self._array.fill(value if isinstance(value, np.ndarray) else operand(value))


@_attach
def reshape(self: ndarray, *shape: Any, order: str = "C", copy: bool | None = None) -> ndarray:
    """Another shape of the same elements, a view where that is possible."""
    new = shape[0] if len(shape) == 1 else shape
    return wrap(self._array.reshape(new, order=order, copy=copy), self)


@_attach
def transpose(self: ndarray, *axes: Any) -> ndarray:
    return view(self, self._array.transpose(*axes))


def _as_dtype(self: ndarray, dtype: Any = None, type: Any = None) -> ndarray:
    """The same memory as another dtype."""
    return view(self, self._array.view() if dtype is None else self._array.view(dtype))


ndarray.view = _as_dtype


@_attach
def diagonal(self: ndarray, offset: int = 0, axis1: int = 0, axis2: int = 1) -> ndarray:
    return _functions.diagonal(self, offset, axis1, axis2)


@_attach
def sort(self: ndarray, axis: int = -1, kind: str | None = None) -> None:
    """Sort in place."""
    self._array[...] = _functions.sort(self, axis, kind)._array


@_attach
def argsort(self: ndarray, axis: int | None = -1, kind: str | None = None) -> ndarray:
    return _functions.argsort(self, axis, kind)


@_attach
def partition(self: ndarray, kth: Any, axis: int = -1) -> None:
    """Partition in place."""
    self._array.partition(kth, axis)


@_attach
def take(self: ndarray, indices: Any, axis: int | None = None, out: Any = None) -> ndarray:
    return _functions.take(self, indices, axis, out)


@_attach
def put(self: ndarray, indices: Any, values: Any, mode: str = "wrap") -> None:
    """Set the elements at flat indices."""
    if mode not in ("wrap", "clip"):
        raise TypeError("clipmode not understood")
    where = indices._array if isinstance(indices, ndarray) else indices
    self._array.put(where, operand(values), mode)


@_attach
def compress(self: ndarray, condition: Any, axis: int | None = None, out: Any = None) -> ndarray:
    condition = condition._array if isinstance(condition, ndarray) else condition
    result = fresh(self._array.compress(condition, axis))
    if out is None:
        return result
    out[...] = result
    return out


@_attach
def byteswap(self: ndarray, inplace: bool = False) -> ndarray:
    swapped = self._array.byteswap(inplace)
    return self if inplace else fresh(swapped)


@_attach
def conj(self: ndarray) -> ndarray:
    return ufunc_named("conjugate")(self) if self._array.dtype.kind == "c" else self


ndarray.conjugate = conj


@_attach
def reduced_view(self: ndarray, dtype: Any = None) -> ndarray:
    """A view with as few dimensions as possible."""
    found = self._array
    flat = found.reshape(-1) if found.flags.c_contiguous else found
    return view(self, flat)


def _scatter(name: str) -> None:
    compute = getattr(np, name)

    def scatter(self: ndarray, slices: Any, value: Any) -> None:
        parts = slices if isinstance(slices, tuple) else (slices,)
        index = tuple(p._array if isinstance(p, ndarray) else p for p in parts)
        compute.at(self._array, index, operand(value))

    scatter.__doc__ = f"{name} of the elements at an index with values; repeated indices count."
    setattr(
        ndarray, {"add": "scatter_add", "maximum": "scatter_max"}.get(name, "scatter_min"), scatter
    )


class flatiter:
    """The elements of an array in C order: `a.flat[i]`, `a.flat[i] = v`, `for x in a.flat`."""

    def __init__(self, array: ndarray) -> None:
        self.base = array

    def __getitem__(self, index: Any) -> ndarray:
        index = index._array if isinstance(index, ndarray) else index
        return fresh(self.base._array.flat[index])

    def __setitem__(self, index: Any, value: Any) -> None:
        index = index._array if isinstance(index, ndarray) else index
        self.base._array.flat[index] = operand(value)

    def __iter__(self) -> Any:
        return (fresh(x) for x in self.base._array.flat)

    def __len__(self) -> int:
        return self.base.size

    def copy(self) -> ndarray:
        return self.base.flatten()


def _matmul(self: ndarray, other: Any) -> Any:
    return NotImplemented if _foreign(other) else _functions.matmul(self, other)


def _rmatmul(self: ndarray, other: Any) -> Any:
    return NotImplemented if _foreign(other) else _functions.matmul(other, self)


def _array_ufunc(self: ndarray, called: np.ufunc, method: str, *args: Any, **options: Any) -> Any:
    """NumPy's ufuncs of device arrays are CuPy's."""
    found = ufunc_named(called.__name__) if called is not np.matmul else _functions.matmul
    if isinstance(options.get("out"), tuple) and len(options["out"]) == 1:
        (options["out"],) = options["out"]
    return (found if method == "__call__" else getattr(found, method))(*args, **options)


for _symbol, _name in {**_BINARY, **_COMPARE}.items():
    _attach_operator(_symbol, _name)
for _symbol, _name in _UNARY.items():
    _attach_unary(_symbol, _name)
for _line in _REDUCTIONS.strip().splitlines():
    _attach_reduction(_line)
for _name in ("add", "maximum", "minimum"):
    _scatter(_name)
ndarray.__divmod__ = lambda self, other: ufunc_named("divmod")(self, other)
ndarray.__rdivmod__ = lambda self, other: ufunc_named("divmod")(other, self)
ndarray.__matmul__, ndarray.__rmatmul__ = _matmul, _rmatmul
ndarray.__array_ufunc__ = _array_ufunc
ndarray.flat = property(flatiter)
