"""From a line of the pointwise table to the text of a Numba CUDA kernel.

The text of `add` for two contiguous arrays reads

    def pointwise_add(a_, b_, out):
        i = cuda.grid(1)
        if i < out.size:
            a = T(a_[i])
            b = T(b_[i])
            out[i] = (a + b)

with `T` the compute type: every input is converted on load and every literal is written `T(0.5)`,
so that a float32 kernel has no double. Calls are assigned first (`t0 = math.exp(x)`), so
that `where` is a select without branches.

The text is registered with `linecache`: tracebacks, `inspect` and the SIMT compiler read it like
the text of a file.
"""

from __future__ import annotations

import functools
import linecache
import math
from collections.abc import Callable

import numpy as np

from kernels.launchers.common import MAX_BLOCK, ceil_div, compute_dtype
from kernels.launchers.expression import Translator
from kernels.launchers.pointwise import Form
from kernels.numba_cuda.common import array, number, scalar_type, signature
from kernels.pointwise import Expr
from kernels.simt import cuda

_MATH = (
    "acos acosh asin asinh atan atan2 atanh ceil cos cosh erf erfc exp exp2 expm1 floor fmod isinf"
    " isnan lgamma log log10 log1p log2 pow sin sinh sqrt tan tanh trunc"
)
_FLOAT_CALLS = {name: f"math.{name}" for name in _MATH.split()} | {"abs": "math.fabs"}


THREADS = 256
# Blocks of the strided kernels, for long rows and short ones; TALL: long ones on a CPU, which works
# out the place of a tile as often as there are blocks
WIDE, TALL, NARROW = (128, 2), (128, 8), (32, 8)


def flat_tiling(n: int, gpu: bool) -> tuple[int, int]:
    """Grid and block of the contiguous kernel."""
    return ceil_div(n, THREADS), THREADS


def row_tiling(rows: int, length: int, gpu: bool) -> tuple[tuple[int, int], int]:
    """Block of the strided kernel, and the columns of its tile, for so many rows of some length.

    A CPU loops over the threads beyond the end of a row, too: there short or few rows have few
    threads. Each block is compiled anew, so there are few of these.
    """
    if length > NARROW[0]:
        block = WIDE if gpu or rows < TALL[1] else TALL
    elif gpu or length == NARROW[0]:
        block = NARROW
    else:
        width = 4 if length <= 4 else 8 if length <= 8 else 16
        block = width, 8 if rows <= 8 else 32 if rows <= 32 else MAX_BLOCK // width
    return block, block[0]


class _Python(Translator):
    float_calls = _FLOAT_CALLS

    def operation(self, operator: str, a: str, b: str) -> str:
        if operator not in ("%", "//") or self.kind != "f":
            return super().operation(operator, a, b)
        # numba-cuda computes both from floor(a / b) * b, which is NaN for an infinite b
        a, b = self.named(a), self.named(b)
        rest = self.named(f"math.fmod({a}, {b})")
        other = f"({rest} < T(0)) != ({b} < T(0))"
        if operator == "//":
            less = self.named(f"(T(1) if ({rest} != T(0)) & ({other}) else T(0))")
            quotient = self.named(f"({a} - {rest}) / {b} - {less}")
            below = self.named(f"math.floor({quotient})")
            nearest = self.named(f"({below} + T(1) if {quotient} - {below} > T(0.5) else {below})")
            plain = self.named(f"{a} / {b}")
            zero = self.named(f"({plain} * T(0) if {quotient} == T(0) else {nearest})")
            return f"({plain} if {b} == T(0) else {zero})"
        signed = self.named(f"({rest} + {b} if {other} else {rest})")
        zero = self.named(f"(T(-0.0) if {b} < T(0) else T(0))")
        return f"({signed} if {rest} != T(0) else {zero})"

    def call_rsqrt(self, x: str) -> str:
        return f"libdevice.rsqrt{self.suffix}({x})"

    def call_rint(self, x: str) -> str:
        return f"libdevice.rint{self.suffix}({x})" if self.kind == "f" else x

    def call_pow(self, a: str, b: str) -> str:
        if self.kind == "f":
            return f"math.pow({a}, {b})"
        return f"({a} ** {b} if {a} != 0 or {b} >= 0 else 0)"  # as in C, where 0 ** -1 is 0

    def call_fmod(self, a: str, b: str) -> str:
        if self.kind == "f":
            return f"math.fmod({a}, {b})"
        rest = self.named(f"{a} % {b}")
        if self.kind in "bu":
            return rest
        other = f"({rest} != T(0)) & (({a} < T(0)) != ({b} < T(0)))"
        return f"({rest} - {b} if {other} else {rest})"


translate = _Python.translate


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
    """The index of element j of the current row; unsigned, which no analysis could tell, where
    strides may be negative."""
    offsets = {"0": "", "1": " + j", "c": " + j", "r": " - j", "s": f" + j * {name}_{ndim - 1}"}
    index = f"{name}_row{offsets[inner]}"
    return index if inner == "c" else f"U({index})"


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


def parameters(expr: Expr, form: Form) -> list[tuple[str, str]]:
    """Names and types of the kernel's parameters: inputs, params, out, `form.numbers`."""
    scalar = number(form.compute)
    found = [
        (name, "boolean" if name in expr.masks else scalar)
        if operand.dtype is None
        else (f"{name}_", array(operand.dtype))
        for name, operand in zip(expr.args, form.operands)
    ]
    found += [(name, scalar) for name in expr.params]
    found.append(("out", array(form.out)))
    if form.ndim:
        found += [(name, "int64") for name in form.numbers(expr.args)]
    return found


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


@functools.cache
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
        "U": np.uint64,
    }
    exec(compile(text, label, "exec"), space)
    function = space[_function_name(expr)]
    return cuda.jit(signature(*(t for _, t in parameters(expr, form))))(function)
