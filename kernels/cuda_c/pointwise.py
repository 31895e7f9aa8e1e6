"""From a line of the pointwise table to the text of a CUDA C kernel.

The line becomes a device function over the compute type `T`; around it stand

- contiguous: a block takes a segment of the flat arrays, in packs of 16 bytes where all of them
  are aligned, so that a warp moves 512 bytes with one instruction;
- strided: a block takes a tile of the two innermost dimensions, rows along y and columns along x;
  its number gives the tile and, the same for all its threads, the outer indices.
"""

from __future__ import annotations

import functools

import numpy as np

from kernels.cuda_c.common import Kernel, scalar_type, source, storage_type
from kernels.launchers.common import ceil_div, compute_dtype
from kernels.launchers.expression import Translator
from kernels.launchers.pointwise import Form
from kernels.pointwise import FUNCTIONS, Expr

GPU_THREADS, CPU_THREADS = 256, 32
GPU_ELEMENTS, CPU_ELEMENTS = 2048, 8192  # of a block


def flat_tiling(n: int, gpu: bool) -> tuple[int, int]:
    """Grid and block of the contiguous kernel; a thread costs more than an element on a CPU."""
    elements, threads = (GPU_ELEMENTS, GPU_THREADS) if gpu else (CPU_ELEMENTS, CPU_THREADS)
    return ceil_div(n, elements), threads


def row_tiling(rows: int, length: int, gpu: bool) -> tuple[tuple[int, int], int]:
    """Block of the strided kernel, and the columns of its tile, for rows of some length."""
    if not gpu:  # a thread walks along a row
        return (1, 8), 1024
    return ((32, 8), 32) if length <= 32 else ((128, 2), 512)


class _C(Translator):
    assignment = "const auto {} = {};"
    choice = "({0} ? {1} : {2})"

    def __init__(self, dtype: np.dtype) -> None:
        super().__init__(dtype)
        self.float_calls = {name: name + self.suffix for name in FUNCTIONS}
        self.float_calls |= {"abs": "fabs" + self.suffix, "isnan": "isnan", "isinf": "isinf"}

    def operation(self, operator: str, a: str, b: str) -> str:
        calls = {"//": "floor_divide", "%": "remainder_of"}
        if operator in calls:
            return f"{calls[operator]}<T>({a}, {b})"
        return super().operation(operator, a, b)

    def call_abs(self, x: str) -> str:
        if self.kind == "i":
            return self.choice.format(f"{x} < T(0)", f"-{x}", x)
        return super().call_abs(x)

    def call_pow(self, a: str, b: str) -> str:
        call = f"pow{self.suffix}" if self.kind == "f" else "integer_power<T>"
        return f"{call}({a}, {b})"

    def call_fmod(self, a: str, b: str) -> str:
        call = f"fmod{self.suffix}" if self.kind == "f" else "integer_fmod<T>"
        return f"{call}({a}, {b})"


translate = _C.translate


def _value(name: str, expr: Expr, index: str, dtype: np.dtype) -> str:
    """An element as the compute type, or a mask's as a truth value."""
    element = f"{name}_{index}"
    if name not in expr.masks:
        return f"T({element})"
    return element if dtype.kind == "b" else f"({scalar_type(dtype)}){element} != 0"


def _function(expr: Expr, form: Form) -> list[str]:
    """The device function of the line: values and params to the result as it is stored."""
    statements, result = translate(expr.text, compute_dtype(form.compute))
    if form.out.kind == "b" and expr.result != "bool" and form.compute.kind != "b":
        result = f"{result} != T(0)"
    values = [f"{'bool' if name in expr.masks else 'T'} {name}" for name in expr.args]
    values += [f"T {name}" for name in expr.params]
    return [
        f"typedef {scalar_type(form.compute)} T;",
        f"typedef {storage_type(form.out)} R;",
        f"__device__ __forceinline__ R line({', '.join(values)}) {{",
        *("    " + statement for statement in statements),
        f"    return R({result});",
        "}",
    ]


def _call(expr: Expr, form: Form, at: dict[str, str]) -> str:
    """The call of `line` with the element of each array at `at[name]`."""
    values = [
        f"{name}_" if o.dtype is None else _value(name, expr, at[name], o.dtype)
        for name, o in zip(expr.args, form.operands)
    ]
    return f"line({', '.join([*values, *(f'{name}_' for name in expr.params)])})"


def _arrays(expr: Expr, form: Form) -> list[tuple[str, str]]:
    """Name and C type of each array that is read."""
    return [
        (name, storage_type(o.dtype))
        for name, o in zip(expr.args, form.operands)
        if o.dtype is not None
    ]


def _contiguous_body(expr: Expr, form: Form) -> list[str]:
    sizes = [o.dtype.itemsize for o in form.operands if o.dtype is not None]
    width, arrays = 16 // max(form.out.itemsize, *sizes, 1), _arrays(expr, form)
    pointers = [f"aligned16({name}_)" for name, _ in arrays] + ["aligned16(out)"]
    packed = {name: "pack.at[w]" for name, _ in arrays}
    return [
        f"    const long long packs = {' && '.join(pointers)} ? n / {width} : 0;",
        "    const long long share = (packs + gridDim.x - 1) / gridDim.x;",
        "    const long long first = blockIdx.x * share;",
        "    const long long last = first + share < packs ? first + share : packs;",
        "    for (long long p = first + threadIdx.x; p < last; p += blockDim.x) {",
        *(
            f"        const auto {name}_pack = ((const Pack<{c_type}, {width}>*){name}_)[p];"
            for name, c_type in arrays
        ),
        f"        Pack<R, {width}> result;",
        "        #pragma unroll",
        f"        for (int w = 0; w < {width}; ++w) result.at[w] = {_call(expr, form, packed)};",
        f"        ((Pack<R, {width}>*)out)[p] = result;",
        "    }",
        f"    const long long rest = packs * {width} + blockIdx.x * (long long)blockDim.x;",
        "    const long long step = (long long)gridDim.x * blockDim.x;",
        "    for (long long i = rest + threadIdx.x; i < n; i += step) {",
        f"        out[i] = {_call(expr, form, {name: '[i]' for name, _ in arrays})};",
        "    }",
    ]


def _row_start(name: str, ndim: int, contiguous: bool) -> str:
    """The statement that finds where a row of an array starts."""
    if contiguous:
        index = "i0"
        for d in range(1, ndim - 1):
            index = f"({index} * n{d} + i{d})"
        return f"const long long {name}_row = {index} * n{ndim - 1};"
    terms = [f"{name}_start", *(f"i{d} * {name}_{d}" for d in range(ndim - 1))]
    return f"const long long {name}_row = {' + '.join(terms)};"


def _strided_body(expr: Expr, form: Form) -> list[str]:
    ndim, row, last = form.ndim, form.ndim - 2, form.ndim - 1
    inner = {name: o.inner for name, o in zip(expr.args, form.operands)} | {"out": form.out_inner}
    names = [name for name, _ in _arrays(expr, form)]
    offsets = {"0": "", "1": " + j", "c": " + j", "r": " - j"}
    at = {
        name: f"{name}_row" + offsets.get(inner[name], f" + j * {name}_{last}")
        for name in (*names, "out")
    }
    split = []
    for d in reversed(range(1, row)):
        split += [f"const long long i{d} = outer % (unsigned)n{d};", f"outer /= (unsigned)n{d};"]
    if row > 0:
        split.append("const long long i0 = outer;")
    value = _call(expr, form, {name: f"[{at[name]}]" for name in names})
    return [
        "    const unsigned tile = blockIdx.x / (unsigned)tiles_x;",
        "    unsigned outer = tile / (unsigned)tiles_y;",
        f"    const long long i{row} = tile % (unsigned)tiles_y * blockDim.y + threadIdx.y;",
        *("    " + line for line in split),
        f"    if (i{row} >= n{row}) return;",
        f"    const long long columns = (n{last} + tiles_x - 1) / tiles_x;",
        "    const long long first = blockIdx.x % (unsigned)tiles_x * columns;",
        f"    const long long last = first + columns < n{last} ? first + columns : n{last};",
        *("    " + _row_start(name, ndim, False) for name in names),
        "    " + _row_start("out", ndim, form.out_inner == "c"),
        "    for (long long j = first + threadIdx.x; j < last; j += blockDim.x) {",
        f"        out[{at['out']}] = {value};",
        "    }",
    ]


def _parameters(expr: Expr, form: Form) -> list[str]:
    """Inputs and params, whose names end in `_` so that they clash with none of the kernel's own;
    out; then n, or the sizes, tiles and strides of `launchers.pointwise`."""
    scalar = scalar_type(form.compute)
    found = [
        f"{'bool' if name in expr.masks else scalar} {name}_"
        if o.dtype is None
        else f"const {storage_type(o.dtype)}* {name}_"
        for name, o in zip(expr.args, form.operands)
    ]
    found += [f"{scalar} {name}_" for name in expr.params]
    found.append(f"{storage_type(form.out)}* out")
    numbers = form.numbers(expr.args) if form.ndim else ["n"]
    return found + [f"long long {name}" for name in numbers]


def text(expr: Expr, form: Form) -> str:
    """The source of the kernel, which `pointwise.cuh` precedes."""
    name = "pointwise_" + expr.name.replace(".", "_")
    body = _strided_body(expr, form) if form.ndim else _contiguous_body(expr, form)
    head = f'extern "C" __global__ void {name}({", ".join(_parameters(expr, form))}) {{'
    return "\n".join([*_function(expr, form), "", head, *body, "}", ""])


@functools.cache
def kernel(expr: Expr, form: Form) -> Kernel:
    """The kernel for one table line and one form."""

    def flat(*args):
        return (*args, args[-1].size)

    def strided(*args):
        return args

    name = "pointwise_" + expr.name.replace(".", "_")
    code = source("pointwise.cuh") + text(expr, form)
    return Kernel(code, name, (), (), strided if form.ndim else flat)
