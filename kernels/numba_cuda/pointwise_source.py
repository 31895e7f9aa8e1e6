"""From a line of the pointwise table to the text of a Numba CUDA kernel.

The text of `add` for two contiguous arrays reads

    def pointwise_add(a_, b_, out):
        i = cuda.grid(1)
        if i < out.size:
            a = T(a_[i])
            b = T(b_[i])
            out[i] = (a + b)

with `T` the compute type: every input is converted on load and every literal is written `T(0.5)`,
so that a float32 kernel holds no double. Calls become assignments of their own (`t0 = math.exp(x)`)
and equal calls are computed once, which leaves `where` as a select without branches.

The text is registered with `linecache`: tracebacks, `inspect` and the SIMT compiler see it as if it
came from a file.
"""

from __future__ import annotations

import ast
import linecache
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numba import types

from kernels.numba_cuda.common import compute_dtype, scalar_type, storage_type
from kernels.pointwise import Expr
from kernels.simt import cuda

_MATH = (
    "acos acosh asin asinh atan atan2 atanh ceil cos cosh erf exp exp2 expm1 floor fmod isinf isnan"
    " log log10 log1p log2 pow sin sinh sqrt tan tanh trunc"
)
_FLOAT_CALLS = {name: f"math.{name}" for name in _MATH.split()} | {"abs": "math.fabs"}
_INT_IDENTITIES = frozenset(("ceil", "floor", "rint", "trunc"))
_OPERATORS = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.BitAnd: "&",
    ast.BitOr: "|",
    ast.BitXor: "^",
    ast.LShift: "<<",
    ast.RShift: ">>",
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
}


class _Translator:
    """Turns an expression text into statements and one final expression, for one compute dtype."""

    def __init__(self, dtype: np.dtype) -> None:
        self.kind = dtype.kind
        self.suffix = "f" if dtype.itemsize == 4 else ""  # libdevice: rintf(float), rint(double)
        self.statements: list[str] = []
        self.temporaries: dict[str, str] = {}

    def __call__(self, node: ast.expr) -> str:
        return getattr(self, f"visit_{type(node).__name__.lower()}")(node)

    def visit_name(self, node: ast.Name) -> str:
        return node.id

    def visit_constant(self, node: ast.Constant) -> str:
        return f"T({node.value!r})"

    def visit_unaryop(self, node: ast.UnaryOp) -> str:
        x = self(node.operand)
        if isinstance(node.op, ast.USub):
            return f"(-{x})"
        return f"({x} == T(0))" if self.kind == "b" else f"(~{x})"

    def visit_binop(self, node: ast.BinOp) -> str:
        return f"({self(node.left)} {_OPERATORS[type(node.op)]} {self(node.right)})"

    def visit_compare(self, node: ast.Compare) -> str:
        return f"({self(node.left)} {_OPERATORS[type(node.ops[0])]} {self(node.comparators[0])})"

    def visit_call(self, node: ast.Call) -> str:
        name = node.func.id
        arguments = [self.named(self(a)) for a in node.args]
        special = getattr(self, f"call_{name}", None)
        if special is not None:
            return self.named(special(*arguments))
        if self.kind == "f":
            return self.named(f"{_FLOAT_CALLS[name]}({', '.join(arguments)})")
        if name in _INT_IDENTITIES:
            return arguments[0]
        raise TypeError(f"{name} needs a float compute dtype, not kind {self.kind!r}")

    def named(self, text: str) -> str:
        """A variable that holds `text`; names and literals stay as they are."""
        if text.isidentifier() or text.startswith("T("):
            return text
        if text not in self.temporaries:
            self.temporaries[text] = f"t{len(self.temporaries)}"
            self.statements.append(f"{self.temporaries[text]} = {text}")
        return self.temporaries[text]

    def call_where(self, c: str, a: str, b: str) -> str:
        return f"({a} if {c} else {b})"

    def call_maximum(self, a: str, b: str, operator: str = ">") -> str:
        if self.kind == "f":  # a NaN wins
            return f"({a} if ({a} {operator} {b}) | ({a} != {a}) else {b})"
        return f"({a} if {a} {operator} {b} else {b})"

    def call_minimum(self, a: str, b: str) -> str:
        return self.call_maximum(a, b, "<")

    def call_sign(self, x: str) -> str:  # x itself where it is 0 or NaN
        positive = f"T(1) if {x} > T(0) else {x}"
        return f"({positive})" if self.kind in "bu" else f"(T(-1) if {x} < T(0) else ({positive}))"

    def call_abs(self, x: str) -> str:
        if self.kind in "bu":
            return x
        return f"math.fabs({x})" if self.kind == "f" else f"abs({x})"

    def call_rsqrt(self, x: str) -> str:
        return f"libdevice.rsqrt{self.suffix}({x})"

    def call_rint(self, x: str) -> str:
        return f"libdevice.rint{self.suffix}({x})" if self.kind == "f" else x

    def call_isnan(self, x: str) -> str:
        return f"math.isnan({x})" if self.kind == "f" else f"({x} != {x})"

    def call_isinf(self, x: str) -> str:
        return f"math.isinf({x})" if self.kind == "f" else f"({x} != {x})"

    def call_pow(self, a: str, b: str) -> str:
        return f"math.pow({a}, {b})" if self.kind == "f" else f"({a} ** {b})"

    def call_fmod(self, a: str, b: str) -> str:
        if self.kind == "f":
            return f"math.fmod({a}, {b})"
        rest = self.named(f"{self.call_abs(a)} % {self.call_abs(b)}")
        return rest if self.kind in "bu" else f"({rest} if {a} >= T(0) else -{rest})"


def translate(text: str, dtype: np.dtype) -> tuple[list[str], str]:
    """Statements and the final expression of a table text, in Numba's Python, over type `T`."""
    translator = _Translator(dtype)
    result = translator(ast.parse(text, mode="eval").body)
    return translator.statements, result


@dataclass(frozen=True)
class Operand:
    """How a kernel reads one input.

    dtype: of the array, or None for a scalar passed by value in the compute dtype.
    inner: along the innermost dimension "1" (neighbours), "0" (one element for the whole row) or
        "s" (a stride passed at run time). Contiguous kernels have "1" everywhere.
    """

    dtype: np.dtype | None
    inner: str = "1"


@dataclass(frozen=True)
class Form:
    """What one generated kernel is specialised on, beside its table line.

    ndim: 0 for the contiguous kernel over flat arrays, else the number of dimensions, at least 2.
    out_inner: "c" for a contiguous result, else "1" or "s" as in `Operand`.
    """

    operands: tuple[Operand, ...]
    compute: np.dtype
    out: np.dtype
    ndim: int = 0
    out_inner: str = "c"


def _load(name: str, expr: Expr, index: str, dtype: np.dtype) -> str:
    if name not in expr.masks:
        return f"{name} = T({name}_[{index}])"
    return f"{name} = {name}_[{index}]" + ("" if dtype.kind == "b" else " != 0")


def _store(index: str, result: str, expr: Expr, form: Form) -> str:
    if form.out.kind == "b" and expr.result != "bool" and form.compute.kind != "b":
        result = f"{result} != T(0)"
    elif form.out.kind in "iuf" and compute_dtype(form.out) == form.out != form.compute:
        result = f"R({result})"
    return f"out[{index}] = {result}"


def _contiguous_body(expr: Expr, form: Form) -> list[str]:
    loads = [
        _load(name, expr, "i", operand.dtype)
        for name, operand in zip(expr.args, form.operands)
        if operand.dtype is not None
    ]
    statements, result = translate(expr.text, compute_dtype(form.compute))
    return [
        "    i = cuda.grid(1)",
        "    if i < out.size:",
        *("        " + line for line in loads + statements + [_store("i", result, expr, form)]),
    ]


def _row_start(name: str, ndim: int, contiguous: bool) -> str:
    """The statement that finds where a row of an array starts."""
    if contiguous:
        index = "i0"
        for d in range(1, ndim - 1):
            index = f"({index} * n{d} + i{d})"
        return f"{name}_row = {index} * n{ndim - 1}"
    terms = [f"{name}_start", *(f"i{d} * {name}_{d}" for d in range(ndim - 1))]
    return f"{name}_row = " + " + ".join(terms)


def _at(name: str, inner: str, ndim: int) -> str:
    """The index of element j of the current row."""
    offset = {"0": "", "1": " + j", "c": " + j", "s": f" + j * {name}_{ndim - 1}"}[inner]
    return f"{name}_row{offset}"


def _strided_body(expr: Expr, form: Form) -> list[str]:
    """A block takes a tile of the two innermost dimensions, rows along y and columns along x; its
    number gives the tile and, the same for all its threads, the outer indices."""
    ndim, row, last = form.ndim, form.ndim - 2, form.ndim - 1
    named = [(n, o) for n, o in zip(expr.args, form.operands) if o.dtype is not None]
    split = []
    for d in reversed(range(1, row)):
        split += [f"i{d} = outer % n{d}", f"outer = outer // n{d}"]
    if row > 0:
        split.append("i0 = outer")
    loads = [
        _load(name, expr, _at(name, operand.inner, ndim), operand.dtype) for name, operand in named
    ]
    statements, result = translate(expr.text, compute_dtype(form.compute))
    inner = [_row_start(name, ndim, False) for name, _ in named]
    inner.append(_row_start("out", ndim, form.out_inner == "c"))
    inner += [*loads, *statements, _store(_at("out", form.out_inner, ndim), result, expr, form)]
    return [
        "    tile = cuda.blockIdx.x // tiles_x",
        "    outer = tile // tiles_y",
        f"    i{row} = (tile % tiles_y) * cuda.blockDim.y + cuda.threadIdx.y",
        "    j = (cuda.blockIdx.x % tiles_x) * cuda.blockDim.x + cuda.threadIdx.x",
        *("    " + line for line in split),
        f"    if i{row} < n{row} and j < n{last}:",
        *("        " + line for line in inner),
    ]


def parameters(expr: Expr, form: Form) -> list[tuple[str, types.Type]]:
    """Names and types of the kernel's parameters: inputs, params, out; then, where it is strided,
    sizes, tiles per row of tiles and per matrix, and each array's start and strides."""
    scalar = scalar_type(form.compute)
    found = [
        (name, types.boolean if name in expr.masks else scalar)
        if operand.dtype is None
        else (f"{name}_", types.Array(storage_type(operand.dtype), 1, "C"))
        for name, operand in zip(expr.args, form.operands)
    ]
    found += [(name, scalar) for name in expr.params]
    found.append(("out", types.Array(storage_type(form.out), 1, "C")))
    if form.ndim:
        sizes = [*(f"n{d}" for d in range(form.ndim)), "tiles_x", "tiles_y"]
        for name, operand in zip(expr.args, form.operands):
            if operand.dtype is not None:
                sizes += _stride_names(name, operand.inner, form.ndim)
        if form.out_inner != "c":
            sizes += _stride_names("out", form.out_inner, form.ndim)
        found += [(name, types.int64) for name in sizes]
    return found


def _stride_names(name: str, inner: str, ndim: int) -> list[str]:
    count = ndim if inner == "s" else ndim - 1
    return [f"{name}_start", *(f"{name}_{d}" for d in range(count))]


def source(expr: Expr, form: Form) -> str:
    """The kernel's text."""
    names = ", ".join(n for n, _ in parameters(expr, form))
    body = _strided_body(expr, form) if form.ndim else _contiguous_body(expr, form)
    return "\n".join([f"def {_function_name(expr)}({names}):", *body, ""])


def _function_name(expr: Expr) -> str:
    return "pointwise_" + expr.name.replace(".", "_")


def _label(expr: Expr, form: Form) -> str:
    inputs = " ".join(
        "scalar" if o.dtype is None else f"{o.dtype}{'' if o.inner == '1' else '/' + o.inner}"
        for o in form.operands
    )
    shape = f"{form.ndim}-d" if form.ndim else "contiguous"
    out = f"{form.out}{'' if form.out_inner == 'c' else '/' + form.out_inner}"
    return f"<pointwise {expr.name}: {shape} {inputs} -> {form.compute} -> {out}>"


def kernel(expr: Expr, form: Form) -> Callable:
    """The kernel for one table line and one form, with its signature."""
    text, label = source(expr, form), _label(expr, form)
    linecache.cache[label] = (len(text), None, text.splitlines(keepends=True), label)
    space = {
        "__name__": __name__,
        "cuda": cuda,
        "libdevice": cuda.libdevice,
        "math": math,
        "T": scalar_type(form.compute),
        "R": scalar_type(form.out),
    }
    exec(compile(text, label, "exec"), space)
    function = space[_function_name(expr)]
    return cuda.jit(types.void(*(t for _, t in parameters(expr, form))))(function)
