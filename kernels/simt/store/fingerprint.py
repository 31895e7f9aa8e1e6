"""A digest of a Python function and all it refers to, by content.

Two functions with the same fingerprint compile to the same code: their bytecode with its lines, the
values of the globals and closure variables they name, and the same for the functions they call.
It is computed for each kernel in each process, so it parses nothing and needs no Numba.
"""

from __future__ import annotations

import dis
import enum
import functools
import hashlib
import re
from collections.abc import Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from kernels.simt.device.arrays import DeviceNDArray
from kernels.simt.frontend import resolve
from kernels.simt.ir.stubs import Namespace
from kernels.support.errors import CompileError

# A cell of a notebook has a file of its own in each session, named after its text.
_SESSION = re.compile(r"ipykernel_\d+")


def of(func: FunctionType) -> str:
    """The fingerprint of `func`, as hexadecimal digits."""
    parts: list[str] = []
    _describe(func, parts, set())
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def names(func: FunctionType) -> set[str]:
    """All names that `func` and the functions it calls use, of globals and of attributes."""
    found: set[str] = set()
    seen: set[int] = set()
    todo = [func]
    while todo:
        one = todo.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        codes = [one.__code__]
        while codes:
            code = codes.pop()
            found.update(code.co_names, code.co_freevars)
            codes += [c for c in code.co_consts if isinstance(c, CodeType)]
        values = [_python(v) for _, v in _values(one, one.__code__)]
        found.update(str(getattr(v, "__name__", "")) for v in values)  # under other names
        todo += [v for v in values if isinstance(v, FunctionType)]
    return found


def _python(value: Any) -> Any:
    """The Python function of a kernel or device function, anything else as it is."""
    if isinstance(value, ModuleType | Namespace):  # they would look for a near name first
        return value
    return getattr(value, "py_func", value)


def _describe(func: FunctionType, parts: list[str], seen: set[int]) -> None:
    if id(func) in seen:
        parts.append(f"again {func.__qualname__}")
        return
    seen.add(id(func))
    parts += [_SESSION.sub("ipykernel", func.__code__.co_filename), _code(func.__code__)]
    parts.append(repr((func.__defaults__, func.__kwdefaults__)))
    for name, value in _values(func, func.__code__):
        parts.append(f"{name} = {_value(value, parts, seen)}")


def _code(code: CodeType) -> str:
    constants = [
        _code(c)
        if isinstance(c, CodeType)
        else sorted(map(repr, c))
        if isinstance(c, frozenset)
        else repr(c)
        for c in code.co_consts
    ]
    names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
    counts = (code.co_argcount, code.co_kwonlyargcount, code.co_flags, code.co_firstlineno)
    return repr((code.co_code, code.co_linetable, code.co_exceptiontable, names, counts, constants))


def _values(func: FunctionType, code: CodeType) -> Iterator[tuple[str, Any]]:
    """(name, object) for all globals and closure variables named, and attributes taken of them."""
    for first, *attributes in _named(code):
        value = resolve.lookup(func, first)
        if value is resolve.DYNAMIC:
            continue
        yield first, value
        for attribute in attributes:
            try:
                value = resolve.attribute(value, attribute, "")
            except CompileError:
                value = resolve.DYNAMIC
            if value is resolve.DYNAMIC:
                break
            yield attribute, value
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _values(func, constant)


@functools.lru_cache(maxsize=1024)
def _named(code: CodeType) -> tuple[list[str], ...]:
    """Per use of a global or a closure variable its name, and the attributes taken one of another.
    Kernels share the code of device functions, and factories make many of one code."""
    found: list[list[str]] = []
    follows = False
    for step in dis.get_instructions(code):
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF"):
            found.append([step.argval])
            follows = True
        elif step.opname in ("LOAD_ATTR", "LOAD_METHOD") and follows:
            found[-1].append(step.argval)
        elif step.opname != "PUSH_NULL":
            follows = False
    return tuple(found)


def _value(value: Any, parts: list[str], seen: set[int]) -> str:
    name = resolve.canonical(value)
    if name is not None:
        return f"cuda.{name}"
    if isinstance(value, ModuleType):
        return f"module {value.__name__}"
    if isinstance(value, DeviceNDArray):
        order = value.is_c_contiguous(), value.is_f_contiguous()
        return f"device array {value.dtype} {value.ndim} {order}"
    if isinstance(value, np.ndarray):
        return f"array {value.dtype} {value.shape} {hashlib.sha256(value.tobytes()).hexdigest()}"
    inner = _python(value)
    if isinstance(inner, FunctionType):
        if not (inner.__module__ or "").startswith(("numpy", "math")):
            _describe(inner, parts, seen)
        told = [getattr(value, name, None) for name in ("signature", "fastmath", "gpu_options")]
        return f"function {inner.__module__}.{inner.__qualname__} {told}"
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
