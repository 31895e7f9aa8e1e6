"""What a recording depends on beside its arguments: the state of Python objects that it can reach.

A recording is valid while these have the values that they had: flags and numbers (`training`, a
dropout probability), which modules and tensors there are, hooks. Learning rates and step counts are
not among them: an optimiser reads its options at every step.

An attribute of an object, a class or a module counts where its name occurs in code that the step
can reach. What has state that cannot be compared (an iterator, the clock, a file) cannot be
recorded.
"""

from __future__ import annotations

import io
import random
import sys
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from itertools import repeat
from operator import call, is_
from types import (
    BuiltinFunctionType,
    CellType,
    CodeType,
    FunctionType,
    MethodType,
    MethodWrapperType,
    ModuleType,
)
from typing import Any

import numpy as np

from minigrad.nn import Module
from minigrad.optim import Optimizer
from minigrad.random import Generator
from minigrad.tensor import Tensor

_PLAIN = (int, float, bool, str, type(None), complex)
_OWN = ("minigrad", "kernels", "numpy", "builtins")
_DEPTH = 12
_MOST = 4096  # entries of a container
_MOST_BYTES = 1 << 16  # of an array of NumPy
_CLOCKS = ("time", "datetime")
_RANDOM = frozenset(
    "random rand randn randint randrange choice choices shuffle sample uniform normal gauss"
    " permutation standard_normal binomial".split()
)
_STATE = frozenset(("state_dict", "load_state_dict"))
_FILES = frozenset("open stdout stderr write_text write_bytes".split())
_BOUND = (BuiltinFunctionType, MethodWrapperType, MethodType, staticmethod, classmethod)
_MISSING = object()
_RARE = frozenset(
    "__init__ __new__ __del__ __repr__ __str__ __init_subclass__ __module__ __doc__"
    " __dict__ __weakref__ __annotations__ __firstlineno__ __static_attributes__"
    " __qualname__".split()
)
_ANY = frozenset(("getattr", "setattr", "hasattr", "vars", "__dict__"))  # attributes of any name


class Watch:
    """Values by where they are found: a dictionary and a name, an attribute, a cell, a list.

    unknown: what has state that cannot be watched; None if there is nothing of that kind.
    """

    def __init__(self, *roots: Any) -> None:
        self.unknown: str | None = None
        self._values: list[tuple[Callable, Any, Any]] = []  # of a kind that compares by value
        self._same: list[tuple[Callable, Any, Any]] = []  # others: the same object
        self._cells: list[tuple[CellType, Any]] = []
        self._lists: list[tuple[Any, tuple]] = []
        self._empty: list[Mapping] = []  # dictionaries without entries: most are for hooks
        self._sized: list[Mapping] = []  # others, and how many entries each has
        self._lengths: list[int] = []
        self._arrays: list[tuple[np.ndarray, bytes]] = []
        self._of_state: list[Mapping] = []  # hooks for `state_dict` and `load_state_dict`
        self._random = _random_state()
        self._names = {"forward"}  # in the code that is reached
        self._spaces: list[tuple[Mapping, int]] = []  # attributes of objects, by name
        self._taken: set[tuple[int, str]] = set()
        self._seen: set[int] = set()
        self._held: list[Any] = []  # so that no other object has the id of one that was seen
        for root in roots:
            self._visit(root, 0)
        self._find_attributes()
        found = [*self._same, *self._values]
        columns: Any = zip(*found, strict=True) if found else ((), (), ())
        self._getters, self._keys, self._objects = columns

    def changed(self) -> str | None:
        """The name of something that has another value now, or None."""
        # Most often all are the same objects; that takes a tenth of the time in loops of C's
        now = map(call, self._getters, self._keys, repeat(_MISSING))
        if not all(map(is_, now, self._objects)) and (name := self._other_value()) is not None:
            return name
        for cell, value in self._cells:
            now = _contents(cell)
            if now is not value and not _alike(now, value):
                return "a variable of an enclosing function"
        if any(self._empty) or list(map(len, self._sized)) != self._lengths:
            return "the length of a dictionary"
        for items, before in self._lists:
            if len(items) != len(before) or not all(map(_alike, items, before)):
                return "a list"
        for array, content in self._arrays:
            if _content(array) != content:
                return "an array of NumPy"
        return None

    def _other_value(self) -> str | None:
        """The name of something that is another object and does not compare as equal."""
        for get, name, value in self._same:
            if get(name, _MISSING) is not value:
                return str(name)
        for get, name, value in self._values:
            now = get(name, _MISSING)
            if now is not value and not _alike(now, value):
                return str(name)
        return None

    def drew(self) -> bool:
        """Whether the code has drawn random numbers from Python or NumPy since this was made."""
        return bool(_RANDOM & self._names) and _random_state() != self._random

    def _find_attributes(self) -> None:
        """Watch attributes until their code names no further ones."""
        before = None
        while before != (before := (len(self._names), len(self._spaces))):
            everything = bool(_ANY & self._names)
            for number, (space, depth) in enumerate(list(self._spaces)):
                for name in list(space):
                    called = name.startswith("__") and name not in _RARE
                    if not (everything or called or name in self._names):
                        continue
                    if (number, name) not in self._taken:
                        self._taken.add((number, name))
                        self._entry(space.get, name, space[name], depth)
            if _STATE & self._names:
                while self._of_state:
                    self._container(self._of_state.pop(), 0)
        if _FILES & self._names:
            self._cannot(f"a file ({min(_FILES & self._names)})")

    def _entry(self, get: Callable, name: Any, value: Any, depth: int) -> None:
        if type(value) in _PLAIN or isinstance(value, np.generic):
            self._values.append((get, name, value))
        else:
            self._same.append((get, name, value))
        self._visit(value, depth + 1)

    def _length(self, entries: Mapping) -> None:
        if not entries:
            self._empty.append(entries)
            return
        self._sized.append(entries)
        self._lengths.append(len(entries))

    def _visit(self, value: Any, depth: int) -> None:
        if type(value) in _PLAIN or id(value) in self._seen or depth > _DEPTH:
            return
        self._seen.add(id(value))
        self._held.append(value)
        if isinstance(value, (ModuleType, type)):
            self._namespace(value, depth)
        elif isinstance(value, _BOUND):
            self._bound(value, depth)
        elif isinstance(value, property):
            for function in (value.fget, value.fset):
                self._visit(function, depth)
        elif isinstance(value, partial):
            for item in (value.func, value.args, value.keywords):
                self._visit(item, depth)
        elif isinstance(value, FunctionType):
            self._function(value, depth)
        elif isinstance(value, Module):
            self._module(value, depth)
        elif isinstance(value, (dict, list, tuple, set, deque)):
            self._container(value, depth)
        elif isinstance(value, np.ndarray):
            self._array(value)
        elif isinstance(value, io.IOBase):
            self._cannot("a file")
        elif hasattr(type(value), "__next__"):
            self._cannot(f"an iterator of type {type(value).__name__}")
        elif isinstance(value, np.random.Generator | np.random.RandomState | random.Random):
            self._cannot("random numbers that are not minigrad's")
        elif isinstance(value, Tensor):
            for hooks in (value._hooks, value._accumulate_hooks):
                self._visit(hooks, depth)
        elif not isinstance(value, (Optimizer, Generator)):
            self._object(value, depth)

    def _cannot(self, what: str) -> None:
        if self.unknown is None:
            self.unknown = what

    def _namespace(self, value: Any, depth: int) -> None:
        """A module or a class."""
        if (value.__name__ if isinstance(value, ModuleType) else value.__module__) in _CLOCKS:
            self._cannot("the time")
        elif not _is_library(value):
            self._spaces.append((vars(value), depth))
            if isinstance(value, type):
                for base in value.__bases__:
                    self._visit(base, depth)

    def _bound(self, value: Any, depth: int) -> None:
        if getattr(value, "__module__", None) in _CLOCKS:
            self._cannot("the time")
        own = getattr(value, "__self__", None)
        self._visit(None if isinstance(own, ModuleType) else own, depth)
        self._visit(getattr(value, "__func__", None), depth)

    def _function(self, function: FunctionType, depth: int) -> None:
        if _is_library(function):
            return
        for cell in function.__closure__ or ():
            value = _contents(cell)
            self._cells.append((cell, value))
            self._visit(value, depth + 1)
        for value in (function.__defaults__, function.__kwdefaults__, function.__dict__):
            self._visit(value, depth + 1)
        self._code(function.__code__, function.__globals__, depth)

    def _code(self, code: CodeType, variables: dict, depth: int) -> None:
        self._names.update(code.co_names)
        for name in code.co_names:
            if name in variables:
                self._entry(variables.get, name, variables[name], depth)
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                self._code(constant, variables, depth)

    def _module(self, module: Module, depth: int) -> None:
        self._length(module.__dict__)
        for name, value in module.__dict__.items():
            if name in ("_parameters", "_buffers", "_modules"):
                for key, item in value.items():
                    self._same.append((value.get, key, item))
                    self._visit(item, depth)  # the depth of a network is not limited
                self._length(value)
            elif name.endswith("_hooks") and "state_dict" in name:  # many, of use to few steps
                self._of_state.append(value)
            elif name.endswith("_hooks"):
                self._container(value, depth)
            elif not name.startswith("_") or type(value) in _PLAIN:
                self._entry(module.__dict__.get, name, value, depth)
        self._visit(type(module), depth)

    def _container(self, value: Any, depth: int) -> None:
        if len(value) > _MOST:
            self._cannot(f"a {type(value).__name__} of {len(value)} entries")
        elif isinstance(value, dict):
            self._length(value)
            for key, item in value.items():
                self._entry(value.get, key, item, depth)
        else:
            if not isinstance(value, tuple):
                self._lists.append((value, tuple(value)))
            for item in value:
                self._visit(item, depth + 1)

    def _array(self, array: np.ndarray) -> None:
        if array.dtype.hasobject or array.nbytes > _MOST_BYTES:
            self._cannot(f"an array of NumPy of {array.nbytes} bytes (make it a tensor)")
        else:
            self._arrays.append((array, _content(array)))

    def _object(self, value: Any, depth: int) -> None:
        if _is_library(value):
            self._visit(getattr(value, "__wrapped__", None), depth)  # a compiled function
            return
        if hasattr(value, "__dict__"):
            self._length(value.__dict__)
            self._spaces.append((value.__dict__, depth))
        for kind in type(value).__mro__:
            slots = kind.__dict__.get("__slots__", ())
            for name in (slots,) if isinstance(slots, str) else slots:
                if name not in ("__dict__", "__weakref__"):
                    get = partial(getattr, value)
                    self._entry(get, name, get(name, _MISSING), depth)
        self._visit(type(value), depth)


def _content(array: np.ndarray) -> bytes:
    """The bytes of an array, and of a masked one its mask; `np.ma.masked` has no `tobytes`."""
    mask = np.ma.getmaskarray(array).tobytes() if isinstance(array, np.ma.MaskedArray) else b""
    return np.ndarray.tobytes(array) + mask


def _alike(now: Any, before: Any) -> bool:
    """Whether two values are the same object, or equal ones of a kind that compares by value."""
    if now is before:
        return True
    if type(now) is not type(before):
        return False
    if not (type(now) in _PLAIN or isinstance(now, np.generic)):
        return False
    return bool(now == before) and (bool(now) or repr(now) == repr(before))  # 0.0 is not -0.0


def _random_state() -> tuple:
    """What Python's and NumPy's own generators would draw next."""
    state: Any = np.random.get_state(legacy=True)
    return random.getstate(), *[s.tobytes() if isinstance(s, np.ndarray) else s for s in state]


def _contents(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return _MISSING


def _is_library(value: Any) -> bool:
    """Whether a function, class, module or object is a library's: no state of a program."""
    if isinstance(value, (Module, Tensor)):
        return False
    if isinstance(value, ModuleType):
        name = value.__name__
    else:
        kind = value if isinstance(value, (FunctionType, type)) else type(value)
        name = kind.__module__ or ""
    first = name.partition(".")[0]
    mine = isinstance(value, (ModuleType, FunctionType, type))
    return first in _OWN or (mine and first != "__main__" and first in sys.stdlib_module_names)
