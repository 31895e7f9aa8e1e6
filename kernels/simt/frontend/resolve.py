"""Name resolution: what a name in a kernel means, by the identity of the object it is bound to."""

from __future__ import annotations

import ast
import builtins
import enum
import math
import types as pytypes
from typing import TYPE_CHECKING, Any

import numpy as np

from kernels.simt.ir import stubs
from kernels.support.errors import CompileError

if TYPE_CHECKING:
    from numba.core import types

DYNAMIC = object()  # a value that is not known at compile time
_DIMENSIONS = ("threadIdx", "blockIdx", "blockDim", "gridDim")


class Special:
    """A CUDA name that is no Python object: `threadIdx.x`, a grid group, its `sync`."""

    def __init__(self, name: str) -> None:
        self.name = name


GRID_GROUP = Special("grid_group")


def canonical(value: Any) -> str | None:
    """The dotted CUDA name of `value` ("atomic.add"), whether ours or numba-cuda's own."""
    return value.name if isinstance(value, Special) else stubs.canonical(value)


def attribute(base: Any, name: str, where: str) -> Any:
    """`base.name` for a `base` known at compile time."""
    known = canonical(base)
    if known in _DIMENSIONS:
        if name not in "xyz":
            raise CompileError(f"{where}: cuda.{known} has x, y and z, not {name!r}")
        return Special(f"{known}.{name}")
    if base is GRID_GROUP and name == "sync":
        return Special("cg.GridGroup.sync")
    if isinstance(base, np.ndarray):
        return DYNAMIC
    try:
        return getattr(base, name)
    except AttributeError as error:
        raise CompileError(f"{where}: {error}") from error


def free_variables(func: pytypes.FunctionType) -> dict[str, Any]:
    """The closure variables of `func` by name."""
    cells = func.__closure__ or ()
    values = {}
    for name, cell in zip(func.__code__.co_freevars, cells):
        try:
            values[name] = cell.cell_contents
        except ValueError:  # defined later, or never
            continue
    return values


def lookup(func: pytypes.FunctionType, name: str) -> Any:
    """The object a non-local name is bound to, or DYNAMIC where there is none."""
    closure = free_variables(func)
    if name in closure:
        return closure[name]
    if name in func.__globals__:
        return func.__globals__[name]
    return getattr(builtins, name, DYNAMIC)


def dtype_of(value: Any, where: str) -> types.Type:
    """The Numba type that a dtype argument (`float32`, `np.int32`, `"f4"`, ...) stands for; for
    16-bit floats one of `devlib.half`, since Numba's CPU target has none."""
    from numba.core import types
    from numba.np.numpy_support import from_dtype

    if isinstance(value, types.Type):
        return _half(str(value)) or value
    try:
        dtype = np.dtype(value)
        return _half(dtype.name) or from_dtype(dtype)
    except Exception as error:
        raise CompileError(f"{where}: {value!r} is not a dtype") from error


def _half(name: str) -> types.Type | None:
    if name not in ("float16", "bfloat16"):
        return None
    from kernels.simt.devlib import half

    return getattr(half, name)


def number(value: Any) -> ast.expr | None:
    """A Python number, string, None or tuple of them as syntax; None if it is none of these."""
    if isinstance(value, enum.IntEnum):
        value = int(value)
    if isinstance(value, bool | int | str | type(None) | complex) and type(value) in (
        bool,
        int,
        str,
        type(None),
        complex,
    ):
        return ast.Constant(value)
    if type(value) is float:
        return ast.Constant(value) if not math.isnan(value) else None
    if isinstance(value, tuple) and type(value) is tuple:
        items = [number(item) for item in value]
        if all(item is not None for item in items):
            return ast.Tuple(items, ast.Load())
    return None
