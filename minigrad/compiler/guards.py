"""What a recording depends on beside its arguments: the state of Python objects that it can reach.

A recording is valid while these have the values that they had: flags and numbers (`training`, a
dropout probability), which modules and tensors there are. Learning rates and step counts are not
among them: an optimiser reads its options at every step.
"""

from __future__ import annotations

from types import CellType, FunctionType, MethodType, ModuleType
from typing import Any

from minigrad.nn import Module
from minigrad.optim import Optimizer
from minigrad.random import Generator
from minigrad.tensor import Tensor

_PLAIN = (int, float, bool, str, type(None), complex)
_OWN = ("minigrad", "kernels", "numpy", "builtins")
_DEPTH = 5
_MISSING = object()


class Watch:
    """Values by the dictionary (or cell) and the name under which they are found."""

    def __init__(self, *roots: Any) -> None:
        self._values: list[tuple[dict, Any, Any]] = []  # of a kind that compares by value
        self._same: list[tuple[dict, Any, Any]] = []  # others: the same object
        self._cells: list[tuple[CellType, Any]] = []
        self._lengths: list[tuple[Any, int]] = []
        self._seen: set[int] = set()
        for root in roots:
            self._visit(root, 0)

    def changed(self) -> str | None:
        """The name of something that has another value now, or None."""
        for where, name, value in self._same:
            if where.get(name, _MISSING) is not value:
                return str(name)
        for where, name, value in self._values:
            now = where.get(name, _MISSING)
            if now is not value and (type(now) is not type(value) or now != value):
                return str(name)
        for cell, value in self._cells:
            now = _contents(cell)
            if now is not value and not (type(value) in _PLAIN and now == value):
                return "a variable of an enclosing function"
        for container, length in self._lengths:
            if len(container) != length:
                return "the length of a list or dictionary"
        return None

    def _entry(self, where: dict, name: Any, value: Any, depth: int) -> None:
        if type(value) in _PLAIN:
            self._values.append((where, name, value))
        elif not (_is_library(value) and isinstance(value, (FunctionType, type, ModuleType))):
            self._same.append((where, name, value))
            self._visit(value, depth + 1)

    def _visit(self, value: Any, depth: int) -> None:
        kinds = (type, ModuleType, *_PLAIN)
        if id(value) in self._seen or depth > _DEPTH or isinstance(value, kinds):
            return
        self._seen.add(id(value))
        if isinstance(value, MethodType):
            self._visit(value.__self__, depth)
            self._visit(value.__func__, depth)
        elif isinstance(value, FunctionType):
            self._function(value, depth)
        elif isinstance(value, Module):
            self._module(value, depth)
        elif isinstance(value, dict):
            self._lengths.append((value, len(value)))
            for key, item in list(value.items())[:256]:
                self._entry(value, key, item, depth)
        elif isinstance(value, (list, tuple, set)):
            self._lengths.append((value, len(value)))
            for item in list(value)[:256]:
                self._visit(item, depth + 1)
        elif not isinstance(value, (Tensor, Optimizer, Generator)) and not _is_library(value):
            for name, item in getattr(value, "__dict__", {}).items():
                self._entry(value.__dict__, name, item, depth)

    def _function(self, function: FunctionType, depth: int) -> None:
        if _is_library(function):
            return
        for cell in function.__closure__ or ():
            value = _contents(cell)
            self._cells.append((cell, value))
            self._visit(value, depth + 1)
        for name in function.__code__.co_names:
            if name in function.__globals__:
                self._entry(function.__globals__, name, function.__globals__[name], depth)

    def _module(self, module: Module, depth: int) -> None:
        for name, value in module.__dict__.items():
            if name in ("_parameters", "_buffers", "_modules"):
                for key, item in value.items():
                    self._same.append((value, key, item))
                    self._visit(item, depth)  # the depth of a network is not limited
                self._lengths.append((value, len(value)))
            elif name.endswith("_hooks"):
                self._lengths.append((value, len(value)))
            elif not name.startswith("_") or type(value) in _PLAIN:
                self._entry(module.__dict__, name, value, depth)


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
        name = (value if isinstance(value, (FunctionType, type)) else type(value)).__module__
    return name.partition(".")[0] in _OWN
