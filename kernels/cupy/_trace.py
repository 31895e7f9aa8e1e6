"""Arrays without values, for which operations are recorded: what a fused function is called with.

While a thread records, every function of this CuPy asks `recording()` first.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from kernels.support import forks

#: threads that record now; functions look here first, which takes 20 ns
active = 0
_lock = forks.lock()


class _Current(threading.local):
    history: Any = None


_current = _Current()


def recording() -> Any:
    """The history of this thread, or None."""
    return _current.history


class into:
    """Record into a history for a block; None: compute for a block."""

    def __init__(self, history: Any) -> None:
        self.history = history

    def __enter__(self) -> None:
        global active
        self.before = _current.history
        with _lock:
            active += (self.history is not None) - (self.before is not None)
        _current.history = self.history

    def __exit__(self, *error: object) -> None:
        global active
        with _lock:
            active += (self.before is not None) - (self.history is not None)
        _current.history = self.before


def recorded(function: Callable) -> Callable:
    """`function`, which is recorded under its name while its thread records."""

    @functools.wraps(function)
    def called(*args: Any, **options: Any) -> Any:
        if active and _current.history is not None:
            found = _current.history.function(function.__name__, function, args, options)
            if found is not NotImplemented:
                return found
        return function(*args, **options)

    return called


class Traced:
    """An array or a number of a function that is being fused: a dtype, a number of dimensions.

    `node` is what computes its value; an operation in place changes that.
    """

    __array_ufunc__ = None  # a number of NumPy's leaves the operation to this class
    __hash__: Any = None

    def __init__(self, history: Any, node: Any) -> None:
        self._history, self.node = history, node
        self._shared = False  # whether it is a view or has views

    dtype = property(lambda self: self.node.dtype)
    ndim = property(lambda self: self.node.ndim)

    @property
    def shape(self) -> Any:
        raise NotImplementedError("`shape` is not supported, currently.")

    def __repr__(self) -> str:
        kind = "number" if self.node.is_number else f"{self.ndim}-dimensional array"
        return f"<{kind} of {self.dtype} in a fused function>"

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"cupy.fuse: arrays in a fused function have no {name!r}; they have operators, astype,"
            " copy, sum, prod, max, min, all, any, basic indexing, dtype and ndim"
        )

    def _no_value(self) -> Any:
        raise TypeError("Cannot convert to Python scalar in cupy.fuse")

    __bool__ = __int__ = __float__ = __complex__ = __index__ = _no_value

    def __iter__(self) -> Any:
        raise TypeError("cupy.fuse: an array in a fused function cannot be iterated")

    def __getitem__(self, index: Any) -> Any:
        return self._history.view(self, index)

    def __setitem__(self, index: Any, value: Any) -> None:
        if index is not Ellipsis and index != slice(None):
            raise ValueError("The fusion supports `[...]` or `[:]`.")
        self._history.store(self, value)

    def copy(self) -> Any:
        return self._history.cast(self, self.dtype)

    def astype(
        self, dtype: Any, order: Any = None, casting: Any = None, subok: Any = None,
        copy: bool = True,
    ) -> Any:  # fmt: skip
        for name, value in (("order", order), ("casting", casting), ("subok", subok)):
            if value is not None:
                raise TypeError(f"{name} is not supported yet")
        if not copy and self.dtype == np.dtype(dtype):
            return self
        return self._history.cast(self, np.dtype(dtype))

    def sum(
        self, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False
    ) -> Any:
        return self._history.reduce("sum", self, axis, dtype, out, keepdims)

    def prod(
        self, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False
    ) -> Any:
        return self._history.reduce("prod", self, axis, dtype, out, keepdims)

    def max(self, axis: Any = None, out: Any = None, keepdims: bool = False) -> Any:
        return self._history.reduce("max", self, axis, None, out, keepdims)

    def min(self, axis: Any = None, out: Any = None, keepdims: bool = False) -> Any:
        return self._history.reduce("min", self, axis, None, out, keepdims)

    def all(self, axis: Any = None, out: Any = None, keepdims: bool = False) -> Any:
        return self._history.reduce("all", self, axis, None, out, keepdims)

    def any(self, axis: Any = None, out: Any = None, keepdims: bool = False) -> Any:
        return self._history.reduce("any", self, axis, None, out, keepdims)


def attach(symbol: str, compute: Callable, kind: str) -> None:
    """The operator `symbol` of arrays in fused functions. `kind`: unary, compare or binary."""
    if kind == "unary":
        setattr(Traced, f"__{symbol}__", lambda self: compute(self))
        return
    setattr(Traced, f"__{symbol}__", lambda self, other: compute(self, other))
    if kind == "compare":
        return
    setattr(Traced, f"__r{symbol}__", lambda self, other: compute(other, self))

    def in_place(self: Traced, other: Any) -> Any:
        if self.node.is_number:
            return compute(self, other)
        return compute(self, other, self)

    setattr(Traced, f"__i{symbol}__", in_place)
