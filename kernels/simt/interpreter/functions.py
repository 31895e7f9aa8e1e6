"""Copies of kernels for the interpreter, with other globals, constants and device functions.

The copy has the same code, with typed constants (see `values`). Its globals and closure variables
are replaced: `math`, `numpy` and number types by versions with CUDA's typing, `numba.cuda` by our
namespace, device functions by copies of the same kind.
"""

from __future__ import annotations

import builtins
import contextlib
import dis
import functools
import math
import operator
import sys
from collections.abc import Callable
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from kernels.simt.interpreter.values import (
    BUILTINS,
    KERNEL_MATH,
    KERNEL_NUMPY,
    NUMBER_TYPES,
    Int,
    NumberType,
    as_dtype,
    cast,
    value_of,
)
from kernels.simt.ir import stubs
from kernels.support.errors import CompileError

KERNEL_MARK = "__minigrad_kernel__"
"""A global of every copy, by which its frames are recognised."""


def interpretable(function: Any, known: dict[int, FunctionType] | None = None) -> FunctionType:
    """A copy of the function (or of the one behind a dispatcher) that runs as a CUDA thread."""
    known = {} if known is None else known
    python = getattr(function, "py_func", function)
    if id(python) in known:
        return known[id(python)]
    if not isinstance(python, FunctionType):
        raise CompileError(f"{function!r} is no Python function, so it cannot be interpreted")
    scope: dict[str, Any] = {
        "__builtins__": vars(builtins) | BUILTINS,
        "__name__": python.__module__,
        KERNEL_MARK: True,
    }
    cells = tuple(CellType() for _ in python.__closure__ or ())
    made = FunctionType(_code(python.__code__), scope, python.__name__, closure=cells)
    made.__defaults__ = value_of(python.__defaults__)
    known[id(python)] = made  # before its globals, which may refer to it
    for name in _names(python.__code__):
        if name in python.__globals__:
            scope[name] = _replaced(python.__globals__[name], known)
    for cell, original in zip(cells, python.__closure__ or ()):
        with contextlib.suppress(ValueError):  # a variable that is not assigned yet
            cell.cell_contents = _replaced(original.cell_contents, known)
    return made


def _names(code: CodeType) -> set[str]:
    nested = (constant for constant in code.co_consts if isinstance(constant, CodeType))
    return set(code.co_names).union(*map(_names, nested))


def _code(code: CodeType) -> CodeType:
    instructions, constants = bytearray(code.co_code), list(code.co_consts)
    small: dict[int, int] = {}  # an integer that Python 3.14 does not keep as a constant: its place
    for step in dis.get_instructions(code):
        if step.opname == "LOAD_SMALL_INT":
            if step.argval not in small:
                small[step.argval] = len(constants)
                constants.append(step.argval)
            if small[step.argval] > 0xFF:
                raise CompileError(f"{code.co_name}: more than 256 constants are not interpreted")
            loaded = dis.opmap["LOAD_CONST"], small[step.argval]
            instructions[step.offset : step.offset + 2] = loaded
    typed = tuple(_constant(constant) for constant in constants)
    return code.replace(co_code=bytes(instructions), co_consts=typed)


def _constant(constant: Any) -> Any:
    if isinstance(constant, CodeType):
        return _code(constant)
    if isinstance(constant, tuple):
        return tuple(_constant(part) for part in constant)
    return value_of(constant)


class ModuleView:
    """A module whose attributes are replaced as a kernel's globals are."""

    def __init__(self, module: ModuleType, known: dict[int, FunctionType]) -> None:
        self._module, self._known = module, known

    def __getattr__(self, name: str) -> Any:
        if name in NUMBER_TYPES:
            return NUMBER_TYPES[name]
        value = _replaced(getattr(self._module, name), self._known)
        setattr(self, name, value)
        return value


def _replaced(value: Any, known: dict[int, FunctionType]) -> Any:
    if isinstance(value, stubs.Stub | stubs.Namespace):
        return value
    name = stubs.canonical(value)
    if name is not None:
        return stubs.by_name(name)
    if isinstance(value, ModuleType) or stubs.is_namespace(value):
        return _replaced_module(value, known)
    if isinstance(value, FunctionType) or hasattr(value, "py_func"):
        return interpretable(value, known)
    if isinstance(value, BuiltinFunctionType) and getattr(math, value.__name__, None) is value:
        return getattr(KERNEL_MATH, value.__name__)
    if isinstance(value, type) and issubclass(value, np.generic):
        return NumberType(np.dtype(value))
    if isinstance(value, np.ndarray):
        frozen = value.view()
        frozen.flags.writeable = False
        return value_of(frozen)
    if _is_numba_number(value):
        return NumberType(as_dtype(value))
    return value_of(value)


def _replaced_module(value: Any, known: dict[int, FunctionType]) -> Any:
    if value is math:
        return KERNEL_MATH
    if value is np:
        return KERNEL_NUMPY
    if value is sys.modules.get("numba.cuda"):
        value = sys.modules["kernels.simt.cuda"]
    if isinstance(value, ModuleType):
        return ModuleView(value, known)
    for group in stubs.NAMESPACES:  # a group of numba.cuda's stubs that is a class there
        if value is getattr(sys.modules["numba.cuda"], group.name, None):
            return group
    return value


def _is_numba_number(value: Any) -> bool:
    types = sys.modules.get("numba.core.types")
    return types is not None and isinstance(value, types.Number | types.Boolean)


# --- device functions


def call_device_function(thread: Any, name: str, args: tuple, kwargs: dict) -> Any:
    """Atomics, vector types, and whatever `devlib` has a compiled function for."""
    if name.startswith("atomic."):
        return _atomic(thread, name.removeprefix("atomic."), *args, **kwargs)
    stub = stubs.by_name(name)
    if isinstance(stub, stubs.VectorType):
        return Vector(stub, args)
    plain = (arg.numpy() if isinstance(arg, Int) else arg for arg in args)
    return value_of(_compiled(name)(*plain))


@functools.cache
def _compiled(name: str) -> Callable:
    import numba

    from kernels.simt.devlib import registry

    function = registry.lookup(name)
    return numba.njit(lambda *args: function(*args))


_NUMBERS = frozenset(
    map(np.dtype, (np.float32, np.float64, np.int32, np.uint32, np.int64, np.uint64))
)
_INTEGERS = frozenset(dtype for dtype in _NUMBERS if dtype.kind in "iu")
_UNSIGNED = frozenset(dtype for dtype in _NUMBERS if dtype.kind == "u")


def _unless_nan(choose: Callable) -> Callable:
    def chosen(old: Any, value: Any) -> Any:
        return value if old != old else choose(old, value)

    return chosen


def _larger(old: Any, value: Any) -> Any:
    return value if value > old else old


def _smaller(old: Any, value: Any) -> Any:
    return value if value < old else old


_ATOMICS: dict[str, tuple[frozenset, Callable[[Any, Any], Any]]] = {
    "add": (_NUMBERS, operator.add),
    "sub": (_NUMBERS, operator.sub),
    "max": (_NUMBERS, _larger),
    "min": (_NUMBERS, _smaller),
    "nanmax": (_NUMBERS, _unless_nan(_larger)),
    "nanmin": (_NUMBERS, _unless_nan(_smaller)),
    "and_": (_INTEGERS, operator.and_),
    "or_": (_INTEGERS, operator.or_),
    "xor": (_INTEGERS, operator.xor),
    "exch": (_INTEGERS, lambda old, value: value),
    "inc": (_UNSIGNED, lambda old, value: 0 if old >= value else old + 1),
    "dec": (_UNSIGNED, lambda old, value: value if old == 0 or old > value else old - 1),
}


def _atomic(thread: Any, name: str, array: Any, *operands: Any) -> Any:
    if name == "compare_and_swap":
        operands = (0, *operands)
    index, *values = operands
    allowed, combine = _ATOMICS.get(name, (_INTEGERS, None))
    if array.dtype not in allowed:
        raise CompileError(
            f"atomic.{name}: CUDA has no such atomic for {array.dtype} elements, {thread.where()}"
        )
    old = array[index]
    values = [cast(array.dtype, value) for value in values]
    if combine is None:
        expected, new = values
        array[index] = new if old == expected else old
    else:
        array[index] = combine(old, values[0])
    thread.tick(array, (name, index))  # a loop around a failing atomic waits for another thread
    return old


class Vector:
    """A value of a vector type such as `float4`."""

    def __init__(self, stub: stubs.VectorType, parts: tuple) -> None:
        flat: list[Any] = []
        for part in parts:
            flat += part.values if isinstance(part, Vector) else [part]
        if len(flat) != stub.count:
            raise TypeError(f"{stub.name} takes {stub.count} numbers, got {len(flat)}")
        dtype = np.dtype(stub.base)
        self.values = tuple(cast(dtype, part) for part in flat)

    def __getattr__(self, field: str) -> Any:
        place = "xyzw"[: len(self.values)].find(field)
        if place < 0:
            raise AttributeError(f"a vector of {len(self.values)} has no field {field!r}")
        return self.values[place]

    def __setattr__(self, field: str, value: Any) -> None:
        if field != "values":
            raise TypeError("a field of a vector cannot be assigned: make a new vector")
        object.__setattr__(self, field, value)
