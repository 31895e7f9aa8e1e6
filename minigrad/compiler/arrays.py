"""Arrays that report what is done with them: what tensors hold while a step is recorded.

A `TracedArray` computes at once, on the NumPy array `value`, and tells the recorder of its thread.
Views are views of `value`. Whatever needs the numbers themselves in Python (`item`, a condition, a
function of NumPy with a result of unknown shape) cannot be recorded: the recorder is told, and the
call goes on with `value`, so the step still ends with the right results.
"""

from __future__ import annotations

import importlib
import operator
from collections.abc import Callable
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np

from kernels.launchers.common import on_gpu
from minigrad.autograd.mode import mode
from minigrad.compiler.places import on_host
from minigrad.ops.views import expand_array

# Functions of NumPy whose results have shapes that follow from those of their arguments.
_RECORDED = frozenset(
    "all amax amin angle any argmax argmin argpartition argsort array_split ascontiguousarray"
    " broadcast_arrays broadcast_to clip concatenate cumprod cumsum diagonal dot einsum"
    " expand_dims flip matmul max mean min moveaxis outer pad partition prod ravel repeat"
    " reshape roll rollaxis rot90 sort split squeeze stack std sum swapaxes take take_along_axis"
    " tensordot tile trace transpose tril triu var vdot where copy real imag diff"
    " searchsorted".split()
)
_ABOUT = frozenset(("may_share_memory", "shares_memory", "shape", "ndim", "result_type"))
_CREATION = frozenset(("zeros_like", "ones_like", "empty_like", "full_like"))
_METHODS = (
    "all any argmax argmin argsort astype clip conj copy cumprod cumsum diagonal dot flatten max"
    " mean min prod ravel repeat reshape round squeeze std sum swapaxes take trace transpose"
    " var view".split()
)
_READS = "item tolist tobytes nonzero __bool__ __float__ __int__ __index__ __complex__".split()


class TracedArray(np.lib.mixins.NDArrayOperatorsMixin):
    """An array of a step that is being recorded, of NumPy or CuPy; see the file's header."""

    __slots__ = ("__weakref__", "value")
    __array_priority__ = 900

    def __init__(self, value: Any) -> None:
        self.value = value

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """`isinstance` finds an array of the same library: who asks where it lies is told right."""
        return type(self.value)

    @property
    def module(self) -> Any:
        """What `array_module` returns: NumPy or CuPy, whose new arrays are traced too; for other
        threads than the one that records, the library itself."""
        namespace = _namespace(on_gpu(self.value))
        return namespace if mode.recorder is not None else namespace._module

    def recorded(self, module: Any) -> Any:
        """A module of SciPy whose functions are recorded when they are called."""
        return _Functions(module)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        stop("NumPy reads an array")
        value = on_host(self.value)
        return value if dtype is None else value.astype(dtype)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if method == "at":
            stop(f"np.{ufunc.__name__}.at")
            return getattr(ufunc, method)(*plain(inputs), **plain(kwargs))
        return call(getattr(ufunc, method), inputs, kwargs, f"numpy.{ufunc.__name__}")

    def __array_function__(self, function: Callable, types: Any, args: Any, kwargs: Any) -> Any:
        name = function.__name__
        if name in _CREATION:
            return create(function, args, kwargs)
        if name in _RECORDED:
            return call(function, args, kwargs, f"numpy.{name}")
        if name not in _ABOUT:
            stop(f"np.{name}")
        return function(*plain(args), **plain(kwargs))

    def __getitem__(self, key: Any) -> Any:
        if _by_value(key):
            stop("an index by a mask or a tensor, through NumPy")
            return self.value[plain(key)]
        return call(operator.getitem, (self, key), {}, "numpy.getitem")

    def __setitem__(self, key: Any, value: Any) -> None:
        recorder = mode.recorder
        if recorder is None:
            self.value[plain(key)] = plain(value)
        elif _by_value(key):
            stop("an assignment by a mask or a tensor, through NumPy")
            self.value[plain(key)] = plain(value)
        else:
            recorder.use(self)
            parts = key if isinstance(key, tuple) else (key,)
            if not any(part is Ellipsis for part in parts):
                parts = (*parts, ...)  # a view, of a single element, too
            recorder.assign(self.value[parts], value)

    def __len__(self) -> int:
        return len(self.value)

    def __iter__(self) -> Any:
        return iter([self[i] for i in range(len(self.value))])

    def __getattr__(self, name: str) -> Any:
        """What is not here: properties of `value`, or a method that is not recorded."""
        found = getattr(self.value, name)
        if name in _PROPERTIES:
            return found
        stop(f"ndarray.{name}")
        return found


_PROPERTIES = frozenset(
    "shape dtype ndim size itemsize nbytes strides flags base device"
    " __cuda_array_interface__".split()
)


def _property(name: str) -> property:
    return property(lambda self: getattr(self.value, name))


def _view(name: str) -> property:
    def write(self: TracedArray, value: Any) -> None:
        getattr(self, name)[...] = value

    return property(lambda self: call(getattr, (self, name), {}, f"numpy.{name}"), write)


def _method(name: str) -> Callable:
    def method(self: TracedArray, *args: Any, **kwargs: Any) -> Any:
        return call(getattr(type(self.value), name), (self, *args), kwargs, f"numpy.{name}")

    return method


def _read(name: str) -> Callable:
    def method(self: TracedArray, *args: Any) -> Any:
        stop(f"{name.strip('_')}() of a tensor")
        return getattr(self.value, name)(*args)

    return method


for _name in _PROPERTIES - {"device", "__cuda_array_interface__"}:  # which NumPy's need not have
    setattr(TracedArray, _name, _property(_name))
for _name in ("T", "real", "imag"):
    setattr(TracedArray, _name, _view(_name))
for _name in _METHODS:
    setattr(TracedArray, _name, _method(_name))
for _name in _READS:
    setattr(TracedArray, _name, _read(_name))


class _Namespace:
    """NumPy or CuPy, with functions that make arrays for the recorder."""

    def __init__(self, module: Any) -> None:
        self._module, self.__name__ = module, module.__name__

    def __getattr__(self, name: str) -> Any:
        function = getattr(self._module, name)
        if name in ("zeros", "ones", "empty", "full", "eye", "arange"):
            return lambda *args, **kwargs: create(function, args, kwargs)
        if name == "broadcast_to" and self._module is np:
            function = expand_array  # which can be written, as without a recorder
        if name in ("asarray", "ascontiguousarray", "reshape", "broadcast_to"):
            return lambda *args, **kwargs: call(function, args, kwargs, f"numpy.{name}")
        if self._module is np or isinstance(function, type) or not callable(function):
            return function
        return lambda *args, **kwargs: self._other(name, function, args, kwargs)

    @property
    def lib(self) -> Any:
        """`lib.stride_tricks.as_strided`, which makes a view."""

        def as_strided(*args: Any, **kwargs: Any) -> Any:
            function = self._module.lib.stride_tricks.as_strided
            return call(function, args, kwargs, "numpy.as_strided")

        return SimpleNamespace(stride_tricks=SimpleNamespace(as_strided=as_strided))

    def _other(self, name: str, function: Callable, args: Any, kwargs: dict) -> Any:
        """A function of CuPy, which does not ask its arguments as NumPy does."""
        if name in _CREATION:
            return create(function, args, kwargs)
        if name in _RECORDED or hasattr(function, "nargs"):
            return call(function, args, kwargs, f"cupy.{name}")
        if name not in _ABOUT:
            stop(f"cupy.{name}")
        return function(*plain(args), **plain(kwargs))


class _Functions:
    """A module whose functions have results with shapes that follow from their arguments."""

    def __init__(self, module: Any) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        function, whole = getattr(self._module, name), f"{self._module.__name__}.{name}"
        return lambda *args, **kwargs: call(function, args, kwargs, whole)


@cache
def _namespace(gpu: bool) -> _Namespace:
    return _Namespace(importlib.import_module("cupy" if gpu else "numpy"))


def is_plain(array: Any) -> bool:
    """Whether an array is one of NumPy or CuPy, not traced, and of no other class."""
    return type(array) is np.ndarray or (type(array) is not TracedArray and on_gpu(array))


def stop(reason: str) -> None:
    """Tell this thread's recorder that the step cannot be recorded."""
    if mode.recorder is not None:
        mode.recorder.stop(reason)


def call(function: Callable, args: Any, kwargs: dict, name: str) -> Any:
    """Call a function of NumPy, and record it."""
    if mode.recorder is None:
        return function(*plain(args), **plain(kwargs))
    return mode.recorder.numpy(function, args, kwargs, name)


def create(function: Callable, args: Any, kwargs: dict) -> Any:
    """Call a function that makes an array out of a shape, and record it."""
    array = function(*plain(args), **plain(kwargs))
    return array if mode.recorder is None else mode.recorder.created(array)


def plain(value: Any) -> Any:
    """`value` with NumPy's arrays in place of traced ones, in tuples, lists and dictionaries."""
    kind = type(value)
    if kind is TracedArray:
        return value.value
    if kind is tuple or kind is list:
        return kind([plain(v) for v in value])
    if kind is dict:
        return {k: plain(v) for k, v in value.items()}
    return value


def _by_value(key: Any) -> bool:
    parts = key if isinstance(key, tuple) else (key,)
    return any(type(part) in (TracedArray, list) or is_plain(part) for part in parts)
