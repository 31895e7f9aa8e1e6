"""Shipped kernels with a chain of pointwise operations inside: an epilogue where a kernel stores
its result, or a prologue where it reads an array.

Neither is written into a kernel by hand. The kernel's own source is taken, and the store

    c[z, row, col] = acc            becomes     c[z, row, col] = epilogue(acc, y[z, row, col])

and likewise each load `x[i]` becomes `prologue(y[i], z[i])`. `epilogue` and `prologue` are device
functions of one line of text, as pointwise kernels are. The other arrays of the chain have the
shape of the array that is stored or read, or lack some of its dimensions, along which they are the
same.

So this works for a kernel that does nothing else with that array: it only stores its elements
(epilogue), or only loads them (prologue). Of others, these functions return None.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import inspect
import linecache
import math
import textwrap
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from kernels.launchers.common import compute_dtype
from kernels.numba_cuda.common import scalar_type
from kernels.numba_cuda.pointwise import translate
from kernels.pointwise import Expr
from kernels.simt import cuda


class _Unfit(Exception):
    """A kernel that nothing can be fused into at that argument."""


class Chain(NamedTuple):
    """What is fused: `expr`, whose argument `value` an epilogue is given (None in a prologue).

    kept: for each of the other arguments, which dimensions of the kernel's array it has; None for
        one element, the same everywhere.
    """

    expr: Expr
    value: str | None
    kept: tuple[tuple[bool, ...] | None, ...]
    compute: np.dtype

    @property
    def others(self) -> list[str]:
        return [name for name in self.expr.args if name != self.value]


@functools.cache
def joined(kernel: Any, place: int, chain: Chain) -> Callable | None:
    """The kernel (..., *other arrays, *params) that applies the chain to what it stores into its
    argument number `place`; or computes what it reads of that argument, in whose place it takes any
    array of that shape, for a chain without `value`."""
    try:
        return _rewritten(kernel, place, chain)
    except _Unfit:
        return None


@functools.cache
def loads(kernel: Any, place: int) -> int:
    """How often the text of a kernel reads an argument; 0 where it does other things with it."""
    try:
        function = _source(kernel)
        array = _Array(function, place, ast.Load)
        array.check()
    except _Unfit:
        return 0
    return len(array.accesses)


def _source(kernel: Any) -> ast.FunctionDef:
    if not hasattr(kernel, "py_func"):
        raise _Unfit(f"{kernel} is not a kernel of this dialect")
    found = ast.parse(textwrap.dedent(inspect.getsource(kernel.py_func))).body[0]
    if not isinstance(found, ast.FunctionDef):
        raise _Unfit(f"{kernel} is not defined by `def`")
    return found


class _Array:
    """The uses of an array that is an argument of a kernel."""

    def __init__(self, function: ast.FunctionDef, place: int, access: type) -> None:
        self.function, self.access = function, access
        self.name = function.args.args[place].arg
        self.accesses: list[ast.Subscript] = []

    def check(self) -> None:
        """Find all accesses. Raises _Unfit for any other use than that and of its shape."""
        known: set[ast.AST] = set()
        for node in ast.walk(self.function):
            if isinstance(node, ast.Subscript) and self._is_array(node.value):
                if isinstance(node.ctx, self.access) and not _has_slice(node.slice):
                    self.accesses.append(node)
                    known.add(node.value)
            elif isinstance(node, ast.Attribute) and self._is_array(node.value):
                known.add(node.value)
            elif isinstance(node, ast.AugAssign) and self._is_array(
                getattr(node.target, "value", None)
            ):
                raise _Unfit(f"{self.function.name} adds to {self.name}")
        uses = [node for node in ast.walk(self.function) if self._is_array(node)]
        if not self.accesses or any(use not in known for use in uses):
            raise _Unfit(f"{self.function.name} does other things with {self.name}")

    def _is_array(self, node: ast.AST | None) -> bool:
        return isinstance(node, ast.Name) and node.id == self.name


def _has_slice(index: ast.expr) -> bool:
    return any(isinstance(node, ast.Slice) for node in ast.walk(index))


class _Rewrite(ast.NodeTransformer):
    """Puts calls of the device function where the array is stored or loaded."""

    def __init__(self, array: _Array, chain: Chain, names: list[str], params: list[str]) -> None:
        self.array, self.chain, self.names, self.params = array, chain, names, params
        self.accesses = set(array.accesses)

    def call(self, access: ast.Subscript, values: list[ast.expr]) -> ast.expr:
        """The call of the device function for the element that is accessed."""
        found = list(values)
        for name, kept in zip(self.names, self.chain.kept, strict=True):
            found.append(ast.parse(f"{name}[{_index(access, kept)}]", mode="eval").body)
        found += [ast.Name(name, ast.Load()) for name in self.params]
        which = "prologue" if self.chain.value is None else "epilogue"
        return ast.Call(ast.Name(which, ast.Load()), found, [])

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        if not any(target in self.accesses for target in node.targets):
            return self.generic_visit(node)
        (target, *more) = node.targets
        if more or not isinstance(target, ast.Subscript):
            raise _Unfit(f"{self.array.function.name} stores several results at once")
        node.value = self.call(target, [self.visit(node.value)])
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        if node in self.accesses and self.chain.value is None:
            return self.call(node, [])
        return self.generic_visit(node)


def _index(access: ast.Subscript, kept: tuple[bool, ...] | None) -> str:
    """The index of an array that has only some dimensions of the accessed one."""
    if kept is None:
        return "0"
    index = access.slice
    parts = index.elts if isinstance(index, ast.Tuple) else [index]
    if len(parts) != len(kept):
        raise _Unfit("an index of another number of dimensions")
    return ", ".join(ast.unparse(part) for part, there in zip(parts, kept, strict=True) if there)


def _rewritten(kernel: Any, place: int, chain: Chain) -> Callable:
    function = _source(kernel)
    array = _Array(function, place, ast.Load if chain.value is None else ast.Store)
    array.check()
    own = {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}
    names = [_free(f"{name}_", own) for name in chain.others]
    params = [_free(name, own) for name in chain.expr.params]
    _Rewrite(array, chain, names, params).visit(function)
    which = "prologue" if chain.value is None else "epilogue"
    line = f"{which}({', '.join([chain.value or '', *chain.others]).strip(', ')})"
    function.args.args += [ast.arg(name) for name in (*names, *params)]
    function.decorator_list = []
    function.body.insert(0, ast.Expr(ast.Constant(f"{line} = {chain.expr.text}")))
    digest = hashlib.sha256(ast.unparse(function).encode()).hexdigest()[:8]
    function.name = f"{function.name}_{which}_{digest}"
    text = ast.unparse(ast.fix_missing_locations(function)) + "\n"
    return cuda.jit(fastmath=kernel.fastmath)(_made(text, function.name, kernel, which, chain))


def _free(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    taken.add(name)
    return name


def _made(text: str, name: str, kernel: Any, which: str, chain: Chain) -> Callable:
    """The function of a text, with what the kernel refers to."""
    function = kernel.py_func
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    space = dict(function.__globals__) | {n: cell.cell_contents for n, cell in cells}
    space |= {"__name__": __name__, which: _device(chain, which)}
    return _executed(text, f"<{name}>", space)[name]


def _device(chain: Chain, which: str) -> Callable:
    """The device function of a chain."""
    expr = chain.expr
    names = [n for n in (chain.value, *chain.others, *expr.params) if n is not None]
    loaded = [f"{n} = {n} != 0" if n in expr.masks else f"{n} = T({n})" for n in names]
    statements, result = translate(expr.text, compute_dtype(chain.compute))
    body = "".join(f"    {line}\n" for line in [*loaded, *statements, f"return {result}"])
    text = f"def {which}({', '.join(names)}):\n{body}"
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    space = {"__name__": __name__, "math": math, "libdevice": cuda.libdevice}
    space["T"] = scalar_type(chain.compute)
    return cuda.jit(device=True)(
        _executed(text, f"<{which} {chain.compute} {digest}>", space)[which]
    )


def _executed(text: str, label: str, space: dict[str, Any]) -> dict[str, Any]:
    linecache.cache[label] = (len(text), None, text.splitlines(keepends=True), label)
    exec(compile(text, label, "exec"), space)
    return space
