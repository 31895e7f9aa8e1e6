"""A digest of a Python function and all it refers to, by content.

Two functions with the same fingerprint compile to the same code: source text, the values of the
globals and closure variables it names, and the same for the device functions it calls.
"""

from __future__ import annotations

import ast
import enum
import hashlib
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

from . import calls, resolve, source
from .errors import CompileError


def of(func: FunctionType) -> str:
    """The fingerprint of `func`, as hexadecimal digits."""
    parts: list[str] = []
    _describe(func, parts, set())
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _describe(func: FunctionType, parts: list[str], seen: set[int]) -> None:
    if id(func) in seen:
        parts.append(f"again {func.__qualname__}")
        return
    seen.add(id(func))
    text = source.of(func)
    parts += [text.text, text.filename, str(text.first_line)]
    parts.append(repr((func.__defaults__, func.__kwdefaults__)))
    for name, value in _values(func):
        parts.append(f"{name} = {_value(value, parts, seen)}")


def _values(func: FunctionType):
    """(expression, object) for all that a function names and does not compute."""
    from .frontend import Normaliser
    from .program import Program

    norm = Normaliser(Program(func.__name__, "", 0, (1, 1, 1)), func)
    for argument in ast.walk(norm.source.tree.args):
        if isinstance(argument, ast.arg):
            norm.assigned.setdefault(argument.arg, 1)
    for node in ast.walk(norm.source.tree):
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
            try:
                value = norm.static(node)
            except CompileError:
                continue
            if value is not resolve.DYNAMIC:
                yield ast.unparse(node), value


def _value(value: Any, parts: list[str], seen: set[int]) -> str:
    name = resolve.canonical(value)
    if name is not None:
        return f"cuda.{name}"
    if isinstance(value, ModuleType):
        return f"module {value.__name__}"
    if isinstance(value, np.ndarray):
        return f"array {value.dtype} {value.shape} {hashlib.sha256(value.tobytes()).hexdigest()}"
    inner = calls.device_source(value)
    if inner is None and isinstance(value, FunctionType):
        inner = None if value.__module__.startswith(("numpy", "math")) else value
    if inner is None and hasattr(value, "py_func"):
        inner = value.py_func
    if inner is not None:
        try:
            _describe(inner, parts, seen)
        except CompileError:
            return f"function {inner.__module__}.{inner.__qualname__} {inner.__code__.co_code!r}"
        return f"function {inner.__qualname__}"
    if isinstance(value, type) and issubclass(value, enum.Enum):
        return f"enum {[(m.name, m.value) for m in value]}"
    if isinstance(value, type):
        return f"class {value.__module__}.{value.__qualname__}"
    text = repr(value)
    if " at 0x" in text:  # the address of an object says nothing about its content
        return (
            f"{type(value).__module__}.{type(value).__qualname__} {getattr(value, '__name__', '')}"
        )
    return text
