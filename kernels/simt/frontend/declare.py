"""Arrays that a kernel declares: `shared.array` and `local.array`, and what they are made of.

numba-cuda accepts a shape only as a literal: a number, a name bound to one, or a tuple of these. It
does not evaluate `N + 1`, `int(N)` or `module.N`. Neither does this compiler, so that a kernel that
runs here also runs on a GPU.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

import numpy as np

from kernels.simt.frontend import resolve
from kernels.simt.frontend.resolve import DYNAMIC
from kernels.simt.frontend.scope import Translator
from kernels.simt.ir import memory
from kernels.simt.ir.nodes import load
from kernels.simt.ir.program import ArrayDecl, field_names
from kernels.support.errors import CompileError

if TYPE_CHECKING:
    from numba.core import types

LIMIT_STATIC_SHARED = 48 * 1024
_PYTHON_TYPES = {float: "float64", int: "int64", bool: "boolean", complex: "complex128"}
# Python's compiler folds arithmetic on literals, so numba-cuda sees the result
_ARITHMETIC = (ast.Constant, ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop, ast.Tuple, ast.Load)


def literal(norm: Translator, node: ast.expr) -> Any:
    """The integer, or tuple of integers, that numba-cuda's typing takes `node` for, or DYNAMIC."""
    value = _value(norm, node)
    known = type(value) is int or (type(value) is tuple and all(type(n) is int for n in value))
    return value if known else DYNAMIC


def _value(norm: Translator, node: ast.expr) -> Any:
    match node:
        case ast.Name(id=name):
            known = norm.integer(name)
            return norm.static(node) if known is DYNAMIC else known
        case ast.Constant():
            return norm.static(node)
        case ast.Subscript(value=base, slice=index):
            items, position = literal(norm, base), literal(norm, index)
            known = type(items) is tuple and type(position) is int
            return items[position] if known and -len(items) <= position < len(items) else DYNAMIC
        case ast.IfExp(test=test) if not norm.hoists(test):
            chosen = norm.expr(test)
            if isinstance(chosen, ast.Constant):
                return literal(norm, node.body if chosen.value else node.orelse)
        case ast.BinOp() | ast.UnaryOp() | ast.Tuple():
            if all(isinstance(part, _ARITHMETIC) for part in ast.walk(node)):
                return eval(compile(ast.Expression(node), "<literal>", "eval"))
            if isinstance(node, ast.Tuple):
                return tuple(literal(norm, item) for item in node.elts)
    return DYNAMIC


def array(norm: Translator, space: str, node: ast.Call) -> ast.expr:
    """The name of the array that a call of `cuda.shared.array` or `cuda.local.array` declares."""
    given = dict(zip(("shape", "dtype", "alignment"), node.args))
    given |= {keyword.arg: keyword.value for keyword in node.keywords}
    if "shape" not in given or "dtype" not in given:
        raise norm.error(node, f"cuda.{space}.array needs a shape and a dtype")
    shape = literal(norm, given["shape"])
    if shape is DYNAMIC:
        raise _unknown(norm, space, given["shape"])
    shape = (shape,) if isinstance(shape, int) else shape
    if "alignment" in given:
        alignment = literal(norm, given["alignment"])
        if not (isinstance(alignment, int) and alignment > 0 and alignment & (alignment - 1) == 0):
            raise norm.error(
                node, f"the alignment of cuda.{space}.array must be a power of two known to the"
                f" compiler, not {ast.unparse(given['alignment'])}"
            )  # fmt: skip
    dtype = _element(norm, space, given["dtype"])
    if space == "shared" and shape == (0,):
        return _declared(norm, ArrayDecl("", "shared", None, dtype, node.lineno), node)
    if any(n < 1 for n in shape):
        raise norm.error(node, f"cuda.{space}.array of shape {shape} is empty")
    return _declared(norm, ArrayDecl("", space, shape, dtype, node.lineno), node)


def _unknown(norm: Translator, space: str, node: ast.expr) -> CompileError:
    """The error for a shape that numba-cuda rejects, with the fix."""
    text = ast.unparse(node)
    names = [part for part in ast.walk(node) if isinstance(part, ast.Name)]
    fix = f"write SIZE = {text} outside of the kernel, and SIZE here"
    unknown = [n.id for n in names if DYNAMIC is literal(norm, n) is norm.static(n)]
    if computed := [name for name in unknown if name in norm.assigned]:
        fix = f"bind {computed[0]} to a number, once, or compute it outside of the kernel"
    elif unknown:
        fix = "give the largest size that is needed, as a constant"
        if space == "shared":
            fix += (
                ", or use dynamic shared memory: shape 0, and its bytes as the launch's 4th number"
            )
    return norm.error(
        node, f"the shape of cuda.{space}.array must be constant integers: numbers, names bound to"
        f" one, or a tuple of these; numba-cuda does not evaluate {text!r}: {fix}"
    )  # fmt: skip


def _element(norm: Translator, space: str, node: ast.expr) -> types.Type:
    """The type of the elements, named in any way that numba-cuda understands."""
    match node:
        case ast.Attribute(value=ast.Name(id=name), attr="dtype") if name in norm.names:
            array = norm.program.given.get(getattr(norm.names[name], "id", None))
            given = DYNAMIC if array is None else array.dtype
        case ast.Call(func=function, args=[inner]) if norm.static(function) is np.dtype:
            given = norm.static(inner)
        case _:
            given = norm.static(node)
    text = ast.unparse(node)
    if given is DYNAMIC:
        raise norm.error(
            node, f"the dtype of cuda.{space}.array must be known to the compiler, as float32 or"
            f" the x.dtype of a parameter are; {text!r} is not"
        )  # fmt: skip
    if isinstance(given, type) and given in _PYTHON_TYPES:
        raise norm.error(
            node, f"the dtype of cuda.{space}.array must be one of Numba's or NumPy's; numba-cuda"
            f" does not take Python's {text}: write {_PYTHON_TYPES[given]}"
        )  # fmt: skip
    return resolve.dtype_of(given, norm.where(node))


def _declared(norm: Translator, array: ArrayDecl, node: ast.Call) -> ast.expr:
    """Declares an array; a shared one is one variable per source location, even if inlined."""
    key = (norm.source.filename, node.lineno, node.col_offset, array.shape, str(array.dtype))
    places = norm.program.places
    if array.space == "shared" and key in places:
        return load(places[key])
    hint = norm.declaring or array.space
    array.name = places[key] = norm.program.fresh(hint)
    norm.program.arrays[array.name] = array
    norm.program.fields |= field_names(array.dtype)
    if array.space == "shared":
        _check_shared(norm, node)
    return load(array.name)


def _check_shared(norm: Translator, node: ast.Call) -> None:
    arrays = [a for a in norm.program.arrays.values() if a.space == "shared" and a.shape]
    size = sum(int(np.prod(a.shape)) * memory.itemsize(a.dtype) for a in arrays)
    if size > LIMIT_STATIC_SHARED:
        raise norm.error(
            node,
            f"static shared memory is {size} bytes; a block has {LIMIT_STATIC_SHARED}"
            " (use a smaller tile, or dynamic shared memory: shape 0 and the launch's 4th number)",
        )
