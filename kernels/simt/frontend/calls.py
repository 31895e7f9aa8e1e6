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
from kernels.simt.frontend import declare, iteration, resolve, vectors
from kernels.simt.frontend.resolve import DYNAMIC, canonical
from kernels.simt.frontend.scope import Closure, Scope, Translator
from kernels.simt.frontend.source import of as source_of
from kernels.simt.frontend.structure import lower_returns
from kernels.simt.ir import stubs
from kernels.simt.ir.nodes import (
    BLOCK,
    GRID,
    THREAD,
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
from kernels.simt.ir.safety import Safety
from kernels.support.errors import CompileError

BARRIERS = {"syncthreads", "syncwarp", "cg.GridGroup.sync"}
COUNTED = {"syncthreads_count", "syncthreads_and", "syncthreads_or"}
SHUFFLES = {"shfl_sync", "shfl_up_sync", "shfl_down_sync", "shfl_xor_sync"}
VOTES = {"all_sync", "any_sync", "eq_sync", "ballot_sync", "match_any_sync", "match_all_sync"}
VOTES |= {"activemask", "match_all_pred"}
COLLECTIVES = BARRIERS | COUNTED | SHUFFLES | VOTES
FENCES = {"threadfence", "threadfence_block", "threadfence_system"}
_INLINE_DEPTH = 40
_AXES = {"x": 0, "y": 1, "z": 2}
_DIMENSIONS = ("threadIdx", "blockIdx", "blockDim", "gridDim")

DONE = object()


def is_compile_time(value: Any) -> bool:
    """Whether a local variable bound to `value` is an alias to be folded, not a variable."""
    if value is DYNAMIC or isinstance(
        value, bool | int | float | complex | str | tuple | np.generic
    ):
        return False
    return value is not None and not isinstance(value, np.ndarray)


def without_aliases(
    norm: Translator, target: ast.Tuple | ast.List, value: ast.Tuple
) -> tuple[ast.Tuple | ast.List, ast.Tuple]:
    """`a, b = x, y` without the names of compile-time objects, which are remembered."""
    if len(target.elts) != len(value.elts):
        return target, value
    targets, values = ast.Tuple([], ast.Store()), ast.Tuple([], ast.Load())
    for element, item in zip(target.elts, value.elts):
        name = element.id if isinstance(element, ast.Name) and norm.once(element) else ""
        known = norm.static(item) if name else DYNAMIC
        _, _, axis = (canonical(known) or "").partition(".")
        if is_compile_time(known) and axis not in _AXES:  # threadIdx.x is a number
            norm.statics[name] = known
            continue
        targets.elts.append(element)
        values.elts.append(item)
    return targets, values


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
    if kind in _DIMENSIONS and not axis:  # printed, or passed on
        return ast.Tuple([special(norm, f"{kind}.{a}", node) for a in "xyz"], ast.Load())
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
    if isinstance(node, ast.NamedExpr) or may_divide_by_zero(norm, node):
        return True
    if not isinstance(node, ast.Call):
        return False
    function = norm.static(node.func)
    if function is DYNAMIC:
        return False
    if isinstance(function, Closure | stubs.VectorType):
        return True  # of a vector, a variable for each field
    name = canonical(function)
    if name is not None:
        return name in COLLECTIVES
    func = device_source(function)
    return func is not None and func not in norm.stack and inlines(func)


def may_divide_by_zero(norm: Translator, node: ast.AST) -> bool:
    """Whether `node` is a division that the debug mode looks at before it is done."""
    if norm.program.safety is not Safety.DEBUG or not isinstance(
        getattr(node, "op", None), _DIVISIONS
    ):
        return False
    divisor = node.right if isinstance(node, ast.BinOp) else node.value
    known = norm.static(divisor)
    return known is DYNAMIC or (isinstance(known, int | float) and known == 0)


_DEEPEST = 8192  # calls of a function by itself; the stack of a GPU's thread ends far sooner
_DIVISIONS = (ast.Div, ast.FloorDiv, ast.Mod)
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
        if name and lookup.function(name) is None:
            return True
        inner = device_source(value)
        if inner is not None and inner is not func and inlines(inner) and _depends_on_thread(inner):
            return True
    return False


def _is_simple(func: pytypes.FunctionType) -> bool:
    """No recursion, and no `return` inside a loop (which would take a flag).

    A function with a `while` may not end, and a launch is interrupted in its kernel's code only.
    """
    seen, todo = set(), [func]
    while todo:
        for value in _calls_of(todo.pop()):
            inner = device_source(value)
            if inner is func:
                return False
            if inner is not None and inner not in seen:
                seen.add(inner)
                todo.append(inner)
    loops = [n for n in ast.walk(source_of(func).tree) if isinstance(n, ast.For | ast.While)]
    if any(isinstance(loop, ast.While) for loop in loops):
        return True
    return not any(isinstance(n, ast.Return) for loop in loops for n in ast.walk(loop))


# -- translation ---------------------------------------------------------------------------


def statement(norm: Translator, node: ast.Call) -> Any:
    """A call as a statement of its own: DONE, or the expression that is left to evaluate."""
    name = target_name(norm, node)
    if name in BARRIERS:
        _check_inlined(norm, node, f"use cuda.{name}", "write a loop")
        args = norm.sequence(node.args)
        if name == "cg.GridGroup.sync":
            norm.program.cooperative = True
        norm.out.append(collective(name, None, args, node))
        return DONE
    if name in FENCES or name == "nanosleep":
        return DONE
    if name in stubs.STORES:
        _store_with_hint(norm, node)
        return DONE
    return None


def expression(norm: Translator, node: ast.Call) -> ast.expr:
    """The normal form of a call."""
    node = _unpacked(norm, node)
    function = norm.static(node.func)
    if function is DYNAMIC:
        return _plain(norm, node, norm.expr(node.func))
    if isinstance(function, Closure):
        if function in norm.stack:
            raise norm.error(node, "a function defined in a kernel cannot call itself")
        return _inline(norm, function, node, None)
    name = canonical(function)
    if (vector := stubs.vector_type(name)) is not None:
        return vectors.made(norm, vector, node)
    if name is not None:
        return _cuda(norm, name, node)
    func = device_source(function)
    if func is not None:
        if func not in norm.stack and (inlines(func) or _takes_vector(norm, node)):
            if len(norm.stack) > _INLINE_DEPTH:
                raise norm.error(node, "device functions are nested too deeply")
            return _inline(norm, func, node, _declared(function))
        return _separate(norm, func, node, _declared(function))
    if isinstance(function, type) and issubclass(function, np.generic):
        function = resolve.dtype_of(function, norm.where(node))
    if function in (max, min) and len(node.args) == 1:
        if not isinstance(node.args[0], ast.Tuple):  # a variable: Numba unpacks it
            return _plain(norm, node, load(function.__name__))
        node = located(ast.Call(node.func, node.args[0].elts, []), node)
    if function in (max, min) and len(node.args) > 2:  # pairwise
        nested = located(ast.Call(node.func, node.args[:2], []), node)
        return expression(norm, located(ast.Call(node.func, [nested, *node.args[2:]], []), node))
    if function is round and len(node.args) + len(node.keywords) == 2:
        digits = [*node.args, *(k.value for k in node.keywords)]
        return call(
            norm.program.extern(lookup.function("round.to"), "round_to"), *norm.sequence(digits)
        )
    if function is print:
        return _print(norm, node)
    if function is len and len(node.args) == 1:
        length = iteration.length(norm, node.args[0])
        if length is not None:
            return length
    if (
        isinstance(function, np.ufunc) and len(node.args) > function.nin
    ):  # `np.sin(x, out)`: Numba's
        return _plain(norm, node, load(norm.program.extern(function, function.__name__)))
    return _plain(norm, node, norm.materialise(function, node.func))


def _print(norm: Translator, node: ast.Call) -> ast.expr:
    """`print(x)`, with floats written as on a GPU."""
    result = _plain(norm, node, load("print"))
    printed = norm.program.extern(lookup.function("printed"), "printed")
    result.args = [
        a
        if isinstance(a, ast.Tuple) or isinstance(getattr(a, "value", None), str)
        else call(printed, a)
        for a in result.args
    ]
    return result


def _unpacked(norm: Translator, node: ast.Call) -> ast.Call:
    """The call with each `*tuple` among its arguments replaced by the items of the tuple."""
    if not any(isinstance(arg, ast.Starred) for arg in node.args):
        return node
    args: list[ast.expr] = []
    for arg in node.args:
        if not isinstance(arg, ast.Starred):
            args.append(arg)
            continue
        items = norm.lengths(norm.expr(arg.value))
        if items is None:
            raise norm.uncompiled(arg)
        args += [_named(norm, norm.stable(item, node), node) for item in items]
    return located(ast.Call(node.func, args, node.keywords), node)


def _plain(norm: Translator, node: ast.Call, function: ast.expr) -> ast.Call:
    values = norm.sequence([*node.args, *(k.value for k in node.keywords)])
    positional, named = values[: len(node.args)], values[len(node.args) :]
    keywords = [ast.keyword(k.arg, v) for k, v in zip(node.keywords, named)]
    return ast.Call(function, positional, keywords)


def _cuda(norm: Translator, name: str, node: ast.Call) -> ast.expr:
    if name in ("shared.array", "local.array"):
        _check_inlined(norm, node, f"declare a cuda.{name}", "pass it an array")
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
        _check_inlined(norm, node, f"use cuda.{name}", "write a loop")
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
    if name in stubs.LOADS:
        return _load_with_hint(norm, node)
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


def _check_inlined(norm: Translator, node: ast.AST, what: str, instead: str) -> None:
    if norm.separate is not None:
        raise norm.error(node, f"a function that calls itself cannot {what} on the CPU: {instead}")


def _load_with_hint(norm: Translator, node: ast.Call) -> ast.expr:
    """`cuda.ldca(array, i)`: `array[i]`."""
    array, index = _operands(norm, node, 2)
    found = ast.Subscript(array, index, ast.Load())
    return call(norm.program.extern(lookup.function("cache_hint"), "hinted"), array, index, found)


def _store_with_hint(norm: Translator, node: ast.Call) -> None:
    """`cuda.stcs(array, i, value)`: `array[i] = value`."""
    array, index, value = _operands(norm, node, 3)
    value = call(norm.program.extern(lookup.function("cache_hint"), "hinted"), array, index, value)
    target = located(ast.Subscript(array, index, ast.Store()), node)
    norm.out.append(located(ast.Assign([target], value), node))


def _operands(norm: Translator, node: ast.Call, count: int) -> list[ast.expr]:
    values = [*node.args, *(keyword.value for keyword in node.keywords)]
    if len(values) != count:
        raise norm.error(node, f"takes {count} arguments: the array, the index and what is stored")
    return [norm.stable(value, node) for value in norm.sequence(values)]


def _grid(norm: Translator, name: str, node: ast.Call) -> ast.expr:
    ndim = declare.literal(norm, node.args[0]) if len(node.args) == 1 else DYNAMIC
    if ndim not in (1, 2, 3):
        raise norm.error(node, f"cuda.{name} takes the constant 1, 2 or 3")
    parts: list[ast.expr] = []
    for axis, size in zip("xyz"[:ndim], norm.program.block):
        if name == "grid":
            base = binary(load(f"_b{axis}"), ast.Mult(), const(size))
            parts.append(binary(base, ast.Add(), load(f"_t{axis}")))
        else:
            parts.append(binary(load(f"_g{axis}"), ast.Mult(), const(size)))
    return parts[0] if ndim == 1 else ast.Tuple(parts, ast.Load())


def _takes_vector(norm: Translator, node: ast.Call) -> bool:
    """Whether a variable that is passed is a vector, which has no value of its own."""
    names = (arg.id for arg in node.args if isinstance(arg, ast.Name))
    return any(isinstance(norm.names.get(name), vectors.Vector) for name in names)


def _declared(function: Any) -> tuple[tuple, types.Type | None] | None:
    """(types of the parameters, type of the result) of a device function with one signature."""
    signatures = getattr(function, "declared", ())
    return signatures[0] if len(signatures) == 1 else None


def _converted(norm: Translator, value: ast.expr, kind: types.Type | None, at: ast.AST) -> ast.expr:
    """`value` as a number of the type that a signature declares."""
    if not isinstance(kind, types.Number | types.Boolean):
        return value
    kind = resolve.dtype_of(kind, norm.where(at))
    return located(call(norm.program.extern(kind, str(kind)), value), at)


def _separate(
    norm: Translator, func: pytypes.FunctionType, node: ast.Call, declared: tuple | None
) -> ast.expr:
    """A call of a device function that is compiled on its own."""
    name = _function(norm, func, node)
    result = _plain(norm, _by_position(norm, func, node), load(name))
    function = norm.program.functions[func]
    if function.depth is not None:
        inside = norm.separate is func
        result.args.append(
            binary(load(function.depth), ast.Add(), const(1)) if inside else const(0)
        )
        if function.placed:
            result.args += [load(name) for name in (*THREAD, *BLOCK, *GRID)]
    if declared is None:
        return result
    given = [_converted(norm, a, k, node) for a, k in zip(result.args, declared[0])]
    result.args = [*given, *result.args[len(given) :]]
    return _converted(norm, result, declared[1], node)


def _by_position(norm: Translator, func: pytypes.FunctionType, node: ast.Call) -> ast.Call:
    """The call of a function that has no defaults, without keywords."""
    signature = source_of(func).tree.args
    names = [a.arg for a in signature.posonlyargs + signature.args]
    given = {k.arg: k.value for k in node.keywords}
    rest = names[len(node.args) :]
    if len(node.args) > len(names) or given.keys() != set(rest):
        raise norm.error(node, f"{func.__name__}() takes {', '.join(names)}")
    return located(ast.Call(node.func, [*node.args, *(given[name] for name in rest)], []), node)


def _function(norm: Translator, func: pytypes.FunctionType, node: ast.AST) -> str:
    """The name of a device function that is compiled on its own."""
    known = norm.program.functions.get(func)
    if known is not None:
        if not known.body and norm.func is not func:
            raise norm.error(
                node, f"{func.__name__}() is called by a function that it calls: numba-cuda"
                " compiles functions that call themselves, but no circles of several"
            )  # fmt: skip
        if not known.body and known.depth is None:
            known.depth = norm.program.fresh("depth")
            known.placed = _depends_on_thread(func)
        return known.name
    inner = norm.inner(func)
    signature = inner.tree.args
    if signature.defaults or signature.kwonlyargs or signature.vararg:
        raise norm.error(
            inner.tree, "defaults and *args need a device function that can be inlined"
        )
    params = []
    for arg in signature.posonlyargs + signature.args:
        inner.names[arg.arg] = load(norm.program.fresh(arg.arg))
        params.append(inner.names[arg.arg].id)
    name = "_" + norm.program.fresh(f"device_{func.__name__}")
    function = norm.program.functions[func] = Function(name, params, [])
    inner.separate = func
    function.body = inner.block(inner.tree.body)
    if function.depth is not None:
        text = f"{func.__name__}() calls itself more than {_DEEPEST} times"
        error = ast.Raise(call("RecursionError", const(text)), None)
        test = ast.Compare(load(function.depth), [ast.Gt()], [const(_DEEPEST)])
        function.body.insert(0, located(ast.If(test, [located(error, inner.tree)], []), inner.tree))
        params.append(function.depth)
        if function.placed:
            params += (*THREAD, *BLOCK, *GRID)
    return name


def _inline(
    norm: Translator, func: pytypes.FunctionType | Closure, node: ast.Call, declared: tuple | None
) -> ast.expr:
    """The body of a device function in place of its call; returns the value's expression."""
    inner = norm.inner(func, norm.stack)
    inner.separate = norm.separate
    kinds = _kinds_by_name(inner, declared)
    for name, value in _bind(norm, inner, node):
        static = norm.static(value) if isinstance(value, ast.AST) else value
        if is_compile_time(static) and not _is_value(static):
            inner.statics[name] = static
            continue
        bound = norm.expr(value) if isinstance(value, ast.AST) else inner.materialise(value, node)
        bound = _converted(norm, bound, kinds.get(name), node)
        number = declare.literal(norm, value) if isinstance(value, ast.AST) else value
        if number is not DYNAMIC and name not in inner.assigned:
            inner.integers[name] = number
        if isinstance(bound, vectors.Vector) and name in inner.assigned:
            outer, inner.out = inner.out, norm.out
            vectors.bind(inner, name, bound, node)
            inner.out = outer
        elif _is_fixed(bound) and name not in inner.assigned:
            inner.names[name] = bound
        else:
            norm.out.append(assign(inner.variable(name), bound, node))
    body = inner.block(inner.tree.body)
    result = _result(norm, inner, body, node)
    return result if declared is None else _converted(norm, result, declared[1], node)


def _kinds_by_name(inner: Translator, declared: tuple | None) -> dict[str, types.Type]:
    signature = inner.tree.args
    names = [a.arg for a in signature.posonlyargs + signature.args]
    return dict(zip(names, declared[0])) if declared else {}


def _is_fixed(value: ast.expr) -> bool:
    """Whether a parameter may stand for `value` itself, in any number of places."""
    if isinstance(value, ast.Tuple):
        return all(map(_is_fixed, value.elts))
    return isinstance(value, ast.Name | ast.Constant)


def _is_value(static: Any) -> bool:
    return isinstance(static, resolve.Special) and static is not resolve.GRID_GROUP


def _bind(norm: Translator, inner: Translator, node: ast.Call):
    """(parameter, argument) pairs: syntax for what is given, the object itself for defaults."""
    signature = inner.tree.args
    positional = [a.arg for a in signature.posonlyargs + signature.args]
    names = positional + [a.arg for a in signature.kwonlyargs]
    given = dict(zip(positional, node.args))
    given |= {k.arg: k.value for k in node.keywords}
    defaults = _defaults(norm, inner)
    missing = [n for n in names if n not in given and n not in defaults]
    extra = node.args[len(positional) :]
    if missing or (extra and signature.vararg is None) or set(given) - set(names):
        raise norm.error(node, f"{inner.tree.name}() takes {', '.join(names)}")
    if signature.vararg is not None:
        names.append(signature.vararg.arg)
        given[names[-1]] = located(ast.Tuple(_in_order(norm, extra, node), ast.Load()), node)
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
                else _saved(norm, given[name], node),
            )
        else:
            yield name, given[name]


def _defaults(norm: Translator, inner: Translator) -> dict[str, Any]:
    """The default values of the parameters, by name."""
    signature = inner.tree.args
    names = [a.arg for a in signature.posonlyargs + signature.args]
    if inner.outer is None:
        defaults = dict(zip(reversed(names), reversed(inner.func.__defaults__ or ())))
        return defaults | (inner.func.__kwdefaults__ or {})
    given = dict(zip(reversed(names), reversed(signature.defaults)))
    pairs = zip(signature.kwonlyargs, signature.kw_defaults)
    given |= {arg.arg: default for arg, default in pairs if default is not None}
    for (
        default
    ) in given.values():  # evaluated where the function is defined, not where it is called
        if inner.outer.static(default) is DYNAMIC:
            raise norm.uncompiled(default)
    return {name: inner.outer.static(default) for name, default in given.items()}


def _in_order(norm: Translator, values: list[ast.expr], node: ast.AST) -> list[ast.expr]:
    """Arguments evaluated now, under names that the caller's scope knows."""
    return [
        value if norm.static(value) is not DYNAMIC else _named(norm, norm.stable(v, node), node)
        for value, v in zip(values, norm.sequence(values))
    ]


def _named(norm: Translator, value: ast.expr, node: ast.AST) -> ast.expr:
    """A source name, one that no identifier can be, for a value of the normal form."""
    name = f" {next(_serial)}"
    norm.names[name] = value
    return located(ast.Name(name, ast.Load()), node)


def _saved(norm: Translator, value: ast.expr, node: ast.AST) -> ast.expr:
    """An argument evaluated at once, kept in a variable of the caller under a source name."""
    return _named(norm, norm.stable(norm.expr(value), node), node)


_serial = itertools.count()


def _result(norm: Translator, inner: Translator, body: list[ast.stmt], node: ast.Call) -> ast.expr:
    returns = [s for s in ast.walk(ast.Module(body, [])) if isinstance(s, ast.Return)]
    valued = [s for s in returns if s.value is not None]
    if not returns:
        norm.out += body
        return const(None)
    if len(returns) == 1 and body[-1] is returns[0]:
        norm.out += body[:-1]
        return returns[0].value if valued else const(None)
    function = inner.tree.name
    if valued and len(valued) < len(returns):
        raise norm.error(node, f"{function}() returns a value on some paths only")
    if valued and not terminates(body, (ast.Return,)):
        raise norm.error(node, f"{function}() does not return a value on every path")
    shapes = {len(s.value.elts) if isinstance(s.value, ast.Tuple) else None for s in valued}
    width = shapes.pop() if len(shapes) == 1 else None
    names = [norm.program.fresh(function) for _ in range(width or 1)]
    alike = vectors.are_alike([s.value for s in valued])

    def replace(stmt: ast.Return) -> list[ast.stmt]:
        if stmt.value is None:
            return []
        values = stmt.value.elts if width else [stmt.value]
        return [assign(name, value, stmt) for name, value in zip(names, values)]

    norm.out += lower_returns(body, norm.program.fresh("returned"), replace)
    if not valued:
        return const(None)
    if alike:
        return vectors.of(valued[0].value.kind, [load(n) for n in names])
    return ast.Tuple([load(n) for n in names], ast.Load()) if width else load(names[0])
