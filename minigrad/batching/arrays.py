"""What tensors hold inside of `vmap`: one array for all elements, with the shape of one of them.

A `BatchedArray` has its elements along the first dimension of `whole`. A level is one call of
`vmap`; where calls nest, the `whole` of a newer level may be a BatchedArray of an older one. While
a level is in force the operations of the dialect come to `call`, as do NumPy's functions of such
an array: a rule (`rules.py`, `numpy_rules.py`) computes all elements at once, and what has no rule
runs once for each element. So what is above arrays, gradients included, needs no rules.

What needs the numbers themselves in Python (`item`, a condition) raises `Unbatchable`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from math import inf
from types import SimpleNamespace
from typing import Any, NoReturn

import numpy as np
from numpy.lib.stride_tricks import as_strided

from minigrad.backends import array_module, is_batched
from minigrad.ops.views import expand_array

RULES: dict[str, Callable] = {}
"""By the name of an operation of the dialect, or of a function or method of NumPy:
rule(batch, *args, **kwargs) with the `whole` of each result; it raises `NoRule` for what it has no
way to compute."""


def rule(*names: str) -> Callable[[Callable], Callable]:
    """Decorator: the rule of the operations of these names."""

    def register(function: Callable) -> Callable:
        RULES.update(dict.fromkeys(names, function))
        return function

    return register


def of_numpy(*names: str) -> Callable[[Callable], Callable]:
    """Decorator: the rule of functions and methods of NumPy."""
    return rule(*[f"numpy.{name}" for name in names])


def next_axis(axis: Any) -> Any:
    """An axis of an element, or several, as one of the whole."""
    if isinstance(axis, tuple | list):
        return tuple([next_axis(a) for a in axis])
    return axis + 1 if axis >= 0 else axis


_CREATION = ("zeros", "ones", "empty", "full")
_METHODS = (
    "all any argmax argmin argsort astype clip conj copy cumprod cumsum diagonal flatten max mean"
    " min prod ravel repeat reshape round squeeze std sum swapaxes take trace transpose var view"
).split()
_WRITING = frozenset("copyto fill_diagonal place put put_along_axis putmask".split())
_READS = "item tolist tobytes nonzero __bool__ __float__ __int__ __index__ __complex__".split()
_READ = (
    "vmap: It looks like you're calling .item() on a Tensor, or use one in data-dependent control "
    "flow. That needs one call of the function for each element"
)
_WRITTEN = (
    "vmap: inplace arithmetic(self, *extra_args) is not possible because there exists a Tensor "
    "`other` in extra_args that has more elements than `self`. This happened due to `other` being "
    "vmapped over but `self` not being vmapped over in a vmap. Please try to use out-of-place "
    "operators instead of inplace arithmetic: `self` has one element for all calls, so it cannot "
    "take one value for each"
)


class Unbatchable(RuntimeError):
    """Something that all elements cannot do at once: `vmap` calls its function for each element."""


class _NoAttribute(Unbatchable, AttributeError):
    pass


class NoRule(Exception):
    """A rule has no way to compute these arguments: they are computed for each element."""


class Shape(tuple):
    """The shape of an element, and the levels of the array that has it."""

    levels: tuple[int, ...] = ()


class BatchedArray(np.lib.mixins.NDArrayOperatorsMixin):
    """The elements of one level; see the file's header."""

    __slots__ = ("__weakref__", "level", "shape", "whole")
    __array_priority__ = 950

    def __init__(self, whole: Any, level: int) -> None:
        self.whole, self.level = whole, level
        self.shape = shape = Shape(whole.shape[1:])
        shape.levels = (level, *levels_of(whole))

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """`isinstance` finds an array of the same library: who asks where it lies is told right."""
        return np.ndarray

    @property
    def module(self) -> _Namespace:
        """What `array_module` returns: NumPy, whose new arrays have all elements, too."""
        return _Namespace(self)

    dtype = property(lambda self: self.whole.dtype)
    itemsize = property(lambda self: self.whole.dtype.itemsize)
    ndim = property(lambda self: len(self.shape))
    size = property(lambda self: self.whole.size // len(self.whole))
    nbytes = property(lambda self: self.size * self.itemsize)
    strides = property(lambda self: self.whole.strides[1:])
    flags = property(lambda self: self.whole.flags)
    base = property(lambda self: self.whole.base)
    T = property(lambda self: self.transpose())

    def memory(self) -> NoReturn:
        """The memory behind an element has the other elements, too: it is asked for in vain."""
        raise Unbatchable("vmap: the memory of an element")

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        raise Unbatchable(_READ)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        plain = method == "__call__" and ufunc.signature is None
        name = "matmul" if ufunc is np.matmul else f"numpy.{'ufunc' if plain else method}"
        out = kwargs.pop("out", None)
        if out is not None or method == "at":
            check_target(inputs[0] if out is None else out[0], inputs)
        found = call(getattr(ufunc, method), inputs, kwargs, name)
        if out is None:
            return found
        out[0][...] = found
        return out[0]

    def __array_function__(self, function: Callable, types: Any, args: Any, kwargs: Any) -> Any:
        name = f"{function.__module__}.{function.__name__}"
        if function.__name__ in _WRITING:
            check_target(args[0], args)
        method = {"numpy.amin": "min", "numpy.amax": "max"}.get(name, name.removeprefix("numpy."))
        if method in _METHODS and type(args[0]) is BatchedArray:
            return getattr(args[0], method)(*args[1:], **kwargs)
        return call(function, args, kwargs, name)

    def __getitem__(self, key: Any) -> Any:
        return call(operator.getitem, (self, key), {}, "numpy.getitem")

    def __setitem__(self, key: Any, value: Any) -> None:
        check_target(self, (key, value))
        call(operator.setitem, (self, key, value), {}, "numpy.setitem")

    def __len__(self) -> int:
        return self.shape[0]

    def __iter__(self) -> Iterator:
        return iter([self[i] for i in range(len(self))])

    def __getattr__(self, name: str) -> Any:
        raise _NoAttribute(f"vmap: ndarray.{name} of all elements at once")


def _part(name: str) -> property:
    """The real or the imaginary parts, a view that can be written."""

    def part(self: BatchedArray) -> BatchedArray:
        return BatchedArray(getattr(self.whole, name), self.level)

    def write(self: BatchedArray, value: Any) -> None:
        part(self)[...] = value

    return property(part, write)


@cache
def _calling(name: str) -> Callable:
    return lambda array, *args, **kwargs: getattr(array, name)(*args, **kwargs)


def _method(name: str) -> Callable:
    function = _calling(name)
    return lambda self, *args, **kwargs: call(function, (self, *args), kwargs, f"numpy.{name}")


def _read(self: BatchedArray, *args: Any) -> Any:
    raise Unbatchable(_READ)


for _name in ("real", "imag"):
    setattr(BatchedArray, _name, _part(_name))
for _name in _METHODS:
    setattr(BatchedArray, _name, _method(_name))
for _name in _READS:
    setattr(BatchedArray, _name, _read)


class _Namespace:
    """NumPy, for functions of an array whose new arrays have all elements of its levels."""

    __name__ = "numpy"
    lib = SimpleNamespace(stride_tricks=SimpleNamespace())

    def __init__(self, like: BatchedArray) -> None:
        self._like = like

    def __getattr__(self, name: str) -> Any:
        function, like = getattr(np, name), self._like
        if name in _CREATION:
            return lambda shape, *args, **kwargs: created(name, like, shape, *args, **kwargs)
        return function

    @staticmethod
    def asarray(array: Any, dtype: Any = None) -> Any:
        if type(array) is not BatchedArray:
            return np.asarray(array, dtype)
        return array if dtype is None else array.astype(dtype, copy=False)

    @staticmethod
    def ascontiguousarray(array: Any) -> Any:
        return array.copy() if type(array) is BatchedArray else np.ascontiguousarray(array)


def _as_strided(x: Any, shape: tuple, strides: tuple) -> Any:
    """NumPy's, which asks no class of arrays."""
    function = _as_strided if is_batched(x) else as_strided
    return call(function, (x, shape, strides), {}, "numpy.as_strided")


_Namespace.lib.stride_tricks.as_strided = _as_strided


def created(name: str, like: BatchedArray, shape: Any, *args: Any, **kwargs: Any) -> BatchedArray:
    """A new array of a shape for each element of `like`."""
    own = (shape,) if isinstance(shape, int | np.integer) else tuple(shape)
    make = getattr(array_module(like.whole), name)
    return BatchedArray(make((len(like.whole), *own), *args, **kwargs), like.level)


def levels_of(array: Any) -> tuple[int, ...]:
    """The levels of an array, the newest first."""
    return array.shape.levels if type(array) is BatchedArray else ()


def _arrays(values: Iterable[Any]) -> list[BatchedArray]:
    """The batched arrays among values, and in lists and tuples of them."""
    found: list[BatchedArray] = []
    for value in values:
        if type(value) is BatchedArray:
            found.append(value)
        elif type(value) in (tuple, list):
            found += _arrays(value)
    return found


def check_target(target: Any, values: tuple, error: type[Exception] = Unbatchable) -> None:
    """Raise an error with torch's words if what is written has levels that the target has not."""
    if not {a.level for a in _arrays(values)} <= {*levels_of(target)}:
        raise error(_WRITTEN)


# --- calls -----------------------------------------------------------------------------------


class Batch:
    """What a rule works with: a call of `function` on arrays of one level, `size` elements each."""

    __slots__ = ("level", "run", "size")

    def __init__(self, level: int, size: int, run: Callable) -> None:
        self.level, self.size, self.run = level, size, run

    def has(self, array: Any) -> bool:
        """Whether this is an array with elements of the level."""
        return type(array) is BatchedArray and array.level == self.level

    def whole(self, array: Any) -> Any:
        """All elements of an array of the level."""
        if not self.has(array):
            raise NoRule
        return array.whole

    def beside(self, array: Any, ndim: int) -> Any:
        """The `whole` of an array, whose elements get `ndim` dimensions so that they broadcast;
        other arrays and numbers as they are."""
        if isinstance(array, list | tuple):
            raise NoRule
        if not self.has(array):
            return array
        whole, missing = array.whole, ndim - array.ndim
        return whole if not missing else whole.reshape(self.size, *[1] * missing, *array.shape)

    def aligned(self, arrays: Any) -> list:
        """Arrays and numbers that broadcast together, as they do without the level."""
        ndim = max([a.ndim for a in arrays if hasattr(a, "ndim")])
        return [self.beside(a, ndim) for a in arrays]

    def flat(self, array: Any) -> Any:
        """(n, elements)"""
        return self.whole(array).reshape(self.size, array.size)

    def full(self, array: Any) -> Any:
        """The `whole` of an array, of one without the level by repeating it; None stays None."""
        if array is None or self.has(array):
            return None if array is None else array.whole
        shape = (self.size, *array.shape)
        if type(array) is BatchedArray:
            return array.module.broadcast_to(array, shape)
        return expand_array(array, shape)

    def fold(self, array: Any) -> Any:
        """(n, N, ...) as (n * N, ...)."""
        if array is None:
            return None
        full = self.full(array)
        return full.reshape(full.shape[0] * full.shape[1], *full.shape[2:])

    def unfold(self, found: Any) -> Any:
        """Undo `fold` for a result, or several."""
        if isinstance(found, tuple | list):
            return tuple([self.unfold(part) for part in found])
        if found is None:
            return None
        return found.reshape(self.size, found.shape[0] // self.size, *found.shape[1:])

    def fold_channels(self, array: Any) -> Any:
        """(n, N, C, ...) as (N, n * C, ...)."""
        full = self.full(array).swapaxes(0, 1)
        return full.reshape(full.shape[0], full.shape[1] * full.shape[2], *full.shape[3:])

    def unfold_channels(self, found: Any) -> Any:
        """Undo `fold_channels`."""
        rows, channels, *rest = found.shape
        return found.reshape(rows, self.size, channels // self.size, *rest).swapaxes(0, 1)


def call(function: Callable, args: tuple, kwargs: dict, name: str, below: float = inf) -> Any:
    """A function of arrays, some of them batched: by its rule, or for each element. below: a level
    that a rule has taken out of its arguments."""
    given = _arrays((*args, *kwargs.values()) if kwargs else args)
    if not given:
        return function(*args, **kwargs)
    if kwargs.get("out") is not None:
        check_target(kwargs["out"], args)
    newest = max(given, key=lambda array: array.level)
    level, size = newest.level, len(newest.whole)
    if level >= below:
        raise NoRule
    rule = RULES.get(name)
    if rule is not None:
        batch = Batch(level, size, lambda *a, **k: call(function, a, k, name, level))
        try:
            return _batched(rule(batch, *args, **kwargs), level)
        except NoRule:
            pass
    return _each(lambda *a, **k: call(function, a, k, name), args, kwargs, level, size)


def _batched(found: Any, level: int) -> Any:
    if isinstance(found, tuple | list):
        return getattr(type(found), "_make", tuple)([_batched(part, level) for part in found])
    if not isinstance(found, np.ndarray) or (type(found) is BatchedArray and found.level == level):
        return found
    return BatchedArray(found, level)


def _each(function: Callable, args: tuple, kwargs: dict, level: int, size: int) -> Any:
    """The results of a function for each element, stacked."""
    found = [function(*_element(args, level, i), **_element(kwargs, level, i)) for i in range(size)]
    out = kwargs.get("out")
    return _stacked(found, level) if out is None else out


def _element(value: Any, level: int, i: int) -> Any:
    if type(value) is BatchedArray:
        return value.whole[i, ...] if value.level == level else value
    if type(value) in (tuple, list):
        return type(value)([_element(item, level, i) for item in value])
    if type(value) is dict:
        return {key: _element(item, level, i) for key, item in value.items()}
    return value


def _stacked(parts: list, level: int) -> Any:
    first = parts[0]
    if isinstance(first, tuple | list):
        return tuple([_stacked([*column], level) for column in zip(*parts, strict=True)])
    if isinstance(first, np.ndarray | np.generic):
        if len({part.shape for part in parts}) > 1:
            raise Unbatchable("vmap: results whose shapes depend on the values of elements")
        return BatchedArray(np.stack(parts), level)
    if all(part is first or part == first for part in parts[1:]):
        return first
    raise Unbatchable(_READ)
