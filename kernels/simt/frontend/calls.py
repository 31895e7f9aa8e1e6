"""Calls in a kernel: CUDA's own functions, device functions, everything else."""

from __future__ import annotations

import ast
import itertools
import types as pytypes
from typing import Any

import numpy as np
from numba.core import types
from numba.extending import is_jitted

from kernels.simt.devlib import lookup
from kernels.simt.frontend import declare, resolve
from kernels.simt.frontend.resolve import DYNAMIC, canonical
from kernels.simt.frontend.scope import Scope, Translator
from kernels.simt.frontend.source import of as source_of
from kernels.simt.frontend.structure import lower_returns
from kernels.simt.ir import stubs
from kernels.simt.ir.nodes import (
    assign,
    binary,
    call,
    collective,
    const,
    load,
    located,
    store,
    terminates,
)
from kernels.simt.ir.program import Function, Program
from kernels.support.errors import CompileError, Unstructured

BARRIERS = {"syncthreads", "syncwarp", "cg.GridGroup.sync"}
COUNTED = {"syncthreads_count", "syncthreads_and", "syncthreads_or"}
SHUFFLES = {"shfl_sync", "shfl_up_sync", "shfl_down_sync", "shfl_xor_sync"}
VOTES = {"all_sync", "any_sync", "eq_sync", "ballot_sync", "match_any_sync", "match_all_sync"}
VOTES |= {"activemask", "match_all_pred"}
COLLECTIVES = BARRIERS | COUNTED | SHUFFLES | VOTES
FENCES = {"threadfence", "threadfence_block", "threadfence_system"}
_INLINE_DEPTH = 40
_AXES = {"x": 0, "y": 1, "z": 2}

DONE = object()


def is_compile_time(value: Any) -> bool:
    """Whether a local variable bound to `value` is an alias to be folded, not a variable."""
    if value is DYNAMIC or isinstance(
        value, bool | int | float | complex | str | tuple | np.generic
    ):
        return False
    return value is not None and not isinstance(value, np.ndarray)


def constant_special(program, name: str | None) -> Any:
    """The number that a CUDA name is in this specialisation, or DYNAMIC."""
    if name == "warpsize":
        return stubs.WARP_SIZE
    if name and name.startswith("blockDim."):
        return program.block[_AXES[name[-1]]]
    return DYNAMIC


def linear_thread(program) -> ast.expr:
    """This thread's position in its block, x fastest."""
    x, y, z = program.block
    value: ast.expr = load("_tx")
    if y > 1 or z > 1:
        value = binary(value, ast.Add(), binary(load("_ty"), ast.Mult(), const(x)))
    if z > 1:
        value = binary(value, ast.Add(), binary(load("_tz"), ast.Mult(), const(x * y)))
    return value


def lane(program) -> ast.expr:
    """This thread's lane in its warp."""
    x, y, z = program.block
    base = load("_tx") if x % stubs.WARP_SIZE == 0 else linear_thread(program)
    if x * y * z <= stubs.WARP_SIZE or (x == stubs.WARP_SIZE):
        return base
    return binary(base, ast.BitAnd(), const(stubs.WARP_SIZE - 1))


def special(norm: Translator, name: str, node: ast.expr) -> ast.expr:
    """Syntax for a CUDA name that is a value: `threadIdx.x`, `laneid`, ..."""
    kind, _, axis = name.partition(".")
    known = constant_special(norm.program, name)
    if known is not DYNAMIC:
        return const(known)
    if kind in ("threadIdx", "blockIdx", "gridDim") and axis:
        return load({"threadIdx": "_t", "blockIdx": "_b", "gridDim": "_g"}[kind] + axis)
    if name == "laneid":
        return lane(norm.program)
    if (
        lookup.function(name) is not None
    ):  # a device function passed as an argument that is not folded
        return load(norm.program.extern(lookup.function(name), name))
    raise norm.error(node, f"cuda.{name} cannot be used as a value; call it")


def target_name(norm: Translator, node: ast.AST) -> str | None:
    """The CUDA name that a call refers to, or None."""
    if not isinstance(node, ast.Call):
        return None
    function = norm.static(node.func)
    return None if function is DYNAMIC else canonical(function)


def device_source(value: Any) -> pytypes.FunctionType | None:
    """The Python function behind a `@cuda.jit` function, ours or numba-cuda's."""
    function = getattr(value, "py_func", None)
    if isinstance(function, pytypes.FunctionType) and not _is_cpu(value):
        return function
    return None


def _is_cpu(value: Any) -> bool:
    """Whether `value` is a function that Numba compiles for the CPU, made by `numba.njit`."""
    return is_jitted(value) and type(value).__module__.startswith("numba.core")


def needs_statement(norm: Translator, node: ast.AST) -> bool:
    """Whether evaluating `node` itself takes statements."""
    if isinstance(node, ast.NamedExpr):
        return True
    if not isinstance(node, ast.Call):
        return False
    function = norm.static(node.func)
    if function is DYNAMIC:
        return False
    name = canonical(function)
    if name is not None:
        return name in COLLECTIVES
    func = device_source(function)
    return func is not None and func not in norm.stack and inlines(func)


_inlines: dict[pytypes.FunctionType, bool] = {}


def inlines(func: pytypes.FunctionType) -> bool:
    """Whether a device function is inlined: it has collectives or thread indices, or is simple."""
    known = _inlines.get(func)
    if known is None:
        _inlines[func] = False  # meanwhile: a recursive function is not inlined
        known = _inlines[func] = _depends_on_thread(func) or _is_simple(func)
    return known


def _calls_of(func: pytypes.FunctionType):
    scope = Scope(Program(func.__name__, "", 0, (1, 1, 1)), func)
    for node in ast.walk(scope.source.tree):
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
            try:
                value = scope.static(node)
            except CompileError:
                continue
            if value is not DYNAMIC:
                yield value


def _depends_on_thread(func: pytypes.FunctionType) -> bool:
    """Whether a function, or one that is inlined in it, needs the thread it is called by."""
    for value in _calls_of(func):
        name = canonical(value)
        if name and lookup.function(name) is None and not isinstance(value, stubs.VectorType):
            return True
        inner = device_source(value)
        if inner is not None and inner is not func and inlines(inner) and _depends_on_thread(inner):
            return True
    return False


def _is_simple(func: pytypes.FunctionType) -> bool:
    """No recursion, and no `return` inside a loop (which would take a flag)."""
    seen, todo = set(), [func]
    while todo:
        for value in _calls_of(todo.pop()):
            inner = device_source(value)
            if inner is func:
                return False
            if inner is not None and inner not in seen:
                seen.add(inner)
                todo.append(inner)
    loops = (n for n in ast.walk(source_of(func).tree) if isinstance(n, ast.For | ast.While))
    return not any(isinstance(n, ast.Return) for loop in loops for n in ast.walk(loop))


# -- translation ---------------------------------------------------------------------------


def statement(norm: Translator, node: ast.Call) -> Any:
    """A call as a statement of its own: DONE, or the expression that is left to evaluate."""
    name = target_name(norm, node)
    if name in BARRIERS:
        args = norm.sequence(node.args)
        if name == "cg.GridGroup.sync":
            norm.program.cooperative = True
        norm.out.append(collective(name, None, args, node))
        return DONE
    if name in FENCES or name == "nanosleep":
        return DONE
    return None


def expression(norm: Translator, node: ast.Call) -> ast.expr:
    """The normal form of a call."""
    if starred := [arg for arg in node.args if isinstance(arg, ast.Starred)]:
        raise norm.uncompiled(starred[0])
    function = norm.static(node.func)
    if function is DYNAMIC:
        return _plain(norm, node, norm.expr(node.func))
    if isinstance(function, stubs.VectorType):
        raise Unstructured(str(norm.error(node, f"cuda.{function.name} is not compiled")))
    name = canonical(function)
    if name is not None:
        return _cuda(norm, name, node)
    func = device_source(function)
    if func is not None:
        if func not in norm.stack and inlines(func):
            if len(norm.stack) > _INLINE_DEPTH:
                raise norm.error(node, "device functions are nested too deeply")
            return _inline(norm, func, node)
        return _plain(norm, node, load(_function(norm, func)))
    if isinstance(function, type) and issubclass(function, np.generic):
        function = resolve.dtype_of(function, norm.where(node))
    if function in (max, min) and len(node.args) == 1:
        if not isinstance(node.args[0], ast.Tuple):  # a variable: Numba unpacks it
            return _plain(norm, node, load(function.__name__))
        node = located(ast.Call(node.func, node.args[0].elts, []), node)
    if function in (max, min) and len(node.args) > 2:  # pairwise
        nested = located(ast.Call(node.func, node.args[:2], []), node)
        return expression(norm, located(ast.Call(node.func, [nested, *node.args[2:]], []), node))
    if function is round and len(node.args) == 2:  # to decimals: Numba has it
        return _plain(norm, node, load("round"))
    if function is len or function is isinstance:
        static = [norm.static(arg) for arg in node.args]
        if function is len and isinstance(static[0], tuple):
            return const(len(static[0]))
    return _plain(norm, node, norm.materialise(function, node.func))


def _plain(norm: Translator, node: ast.Call, function: ast.expr) -> ast.expr:
    values = norm.sequence([*node.args, *(k.value for k in node.keywords)])
    positional, named = values[: len(node.args)], values[len(node.args) :]
    keywords = [ast.keyword(k.arg, v) for k, v in zip(node.keywords, named)]
    return ast.Call(function, positional, keywords)


def _cuda(norm: Translator, name: str, node: ast.Call) -> ast.expr:
    if name in ("shared.array", "local.array"):
        return declare.array(norm, name.partition(".")[0], node)
    if name == "const.array_like":
        value = norm.static(node.args[0])
        if not isinstance(value, np.ndarray):
            raise norm.error(node, "cuda.const.array_like takes a global or closure NumPy array")
        return load(norm.program.constant_array(value))
    if name in ("grid", "gridsize"):
        return _grid(norm, name, node)
    if name == "lanemask_lt":
        bit = binary(const(1), ast.LShift(), lane(norm.program))
        kind = norm.program.extern(types.uint32, "uint32")
        return call(kind, binary(bit, ast.Sub(), const(1)))
    if name in COLLECTIVES:
        if name in BARRIERS:
            raise norm.error(node, f"cuda.{name}() returns nothing")
        dest = norm.program.fresh("received")
        args = norm.sequence([*node.args, *(k.value for k in node.keywords)])
        if name == "match_all_sync":  # returns (mask, predicate)
            args = [norm.stable(arg, node) for arg in args]
            second = norm.program.fresh("received")
            norm.out.append(collective(name, store(dest), args, node))
            norm.out.append(collective("match_all_pred", store(second), args, node))
            return ast.Tuple([load(dest), load(second)], ast.Load())
        norm.out.append(collective(name, store(dest), args, node))
        return load(dest)
    if name in FENCES:
        return const(None)
    if lookup.function(name) is None:
        raise norm.error(node, f"cuda.{name} is not supported")
    space = "global"
    if node.args and name.startswith("atomic."):
        array = norm.expr(node.args[0])
        if isinstance(array, ast.Name) and array.id in norm.program.arrays:
            space = "shared"
    function = lookup.function(name, space)
    label = norm.program.extern(function, name if space == "global" else f"own_{name}")
    if space == "shared":
        norm.program.ordered.add(label)
    return _plain(norm, node, load(label))


def _grid(norm: Translator, name: str, node: ast.Call) -> ast.expr:
    ndim = declare.literal(norm, node.args[0]) if len(node.args) == 1 else DYNAMIC
    if ndim not in (1, 2, 3):
        raise norm.error(node, f"cuda.{name} takes the constant 1, 2 or 3")
    parts = []
    for axis, size in zip("xyz"[:ndim], norm.program.block):
        if name == "grid":
            base = binary(load(f"_b{axis}"), ast.Mult(), const(size))
            parts.append(binary(base, ast.Add(), load(f"_t{axis}")))
        else:
            parts.append(binary(load(f"_g{axis}"), ast.Mult(), const(size)))
    return parts[0] if ndim == 1 else ast.Tuple(parts, ast.Load())


def _function(norm: Translator, func: pytypes.FunctionType) -> str:
    """The name of a device function that is compiled on its own."""
    known = norm.program.functions.get(func)
    if known is not None:
        return known.name
    inner = norm.inner(func)
    if inner.source.tree.args.defaults or inner.source.tree.args.kwonlyargs:
        raise norm.error(inner.source.tree, "defaults need a device function that can be inlined")
    params = []
    for arg in inner.source.tree.args.args:
        inner.names[arg.arg] = load(norm.program.fresh(arg.arg))
        params.append(inner.names[arg.arg].id)
    name = "_" + norm.program.fresh(f"device_{func.__name__}")
    function = norm.program.functions[func] = Function(name, params, [])
    function.body = inner.block(inner.source.tree.body)
    return name


def _inline(norm: Translator, func: pytypes.FunctionType, node: ast.Call) -> ast.expr:
    """The body of a device function in place of its call; returns the value's expression."""
    inner = norm.inner(func, norm.stack)
    for name, value in _bind(norm, inner, node):
        static = norm.static(value) if isinstance(value, ast.AST) else value
        if is_compile_time(static) and not _is_value(static):
            inner.statics[name] = static
            continue
        bound = norm.expr(value) if isinstance(value, ast.AST) else inner.materialise(value, node)
        if isinstance(bound, ast.Name | ast.Constant) and name not in inner.assigned:
            inner.names[name] = bound
            number = declare.literal(norm, value) if isinstance(value, ast.AST) else value
            if number is not DYNAMIC:
                inner.integers[name] = number
        else:
            norm.out.append(assign(inner.variable(name), bound, node))
    body = inner.block(inner.source.tree.body)
    return _result(norm, func, body, node)


def _is_value(static: Any) -> bool:
    return isinstance(static, resolve.Special) and static is not resolve.GRID_GROUP


def _bind(norm: Translator, inner: Translator, node: ast.Call):
    """(parameter, argument) pairs: syntax for what is given, the object itself for defaults."""
    signature = inner.source.tree.args
    names = [a.arg for a in signature.posonlyargs + signature.args + signature.kwonlyargs]
    given = dict(zip(names, node.args))
    given |= {k.arg: k.value for k in node.keywords}
    defaults = dict(zip(reversed(names), reversed(inner.func.__defaults__ or ())))
    defaults |= inner.func.__kwdefaults__ or {}
    missing = [n for n in names if n not in given and n not in defaults]
    if missing or len(node.args) > len(names) or set(given) - set(names):
        raise norm.error(node, f"{inner.func.__name__}() takes {', '.join(names)}")
    ordered = [n for n in names if n in given]
    hoisting = [n for n in ordered if norm.hoists(given[n])]
    for name in names:
        if name not in given:
            yield name, defaults[name]
        elif hoisting and name != hoisting[-1] and not isinstance(given[name], ast.Constant):
            # a later argument needs statements: keep the order of evaluation
            yield (
                name,
                given[name]
                if norm.static(given[name]) is not DYNAMIC
                else _Saved(norm, given[name], node).syntax,
            )
        else:
            yield name, given[name]


class _Saved:
    """An argument evaluated at once, kept in a variable of the caller under a source name."""

    def __init__(self, norm: Translator, value: ast.expr, node: ast.AST) -> None:
        saved = norm.save(norm.expr(value), node)
        name = f" {next(_serial)}"  # no identifier of the source can be this
        norm.names[name] = saved
        self.syntax = located(ast.Name(name, ast.Load()), node)


_serial = itertools.count()


def _result(norm: Translator, func, body: list[ast.stmt], node: ast.Call) -> ast.expr:
    returns = [s for s in ast.walk(ast.Module(body, [])) if isinstance(s, ast.Return)]
    valued = [s for s in returns if s.value is not None]
    if not returns:
        norm.out += body
        return const(None)
    if len(returns) == 1 and body[-1] is returns[0]:
        norm.out += body[:-1]
        return returns[0].value if valued else const(None)
    if valued and len(valued) < len(returns):
        raise norm.error(node, f"{func.__name__}() returns a value on some paths only")
    if valued and not terminates(body, (ast.Return,)):
        raise norm.error(node, f"{func.__name__}() does not return a value on every path")
    shapes = {len(s.value.elts) if isinstance(s.value, ast.Tuple) else None for s in valued}
    width = shapes.pop() if len(shapes) == 1 else None
    names = [norm.program.fresh(func.__name__) for _ in range(width or 1)]

    def replace(stmt: ast.Return) -> list[ast.stmt]:
        if stmt.value is None:
            return []
        values = stmt.value.elts if width else [stmt.value]
        return [assign(name, value, stmt) for name, value in zip(names, values)]

    norm.out += lower_returns(body, norm.program.fresh("returned"), replace)
    if not valued:
        return const(None)
    return ast.Tuple([load(n) for n in names], ast.Load()) if width else load(names[0])
