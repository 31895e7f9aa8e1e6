"""The kernels of reduction.cu for a line of the reduction table."""

from __future__ import annotations

import functools

import numpy as np

from kernels.cuda_c.common import Kernel, as_passed, scalar_type, source, storage_type
from kernels.cuda_c.pointwise import translate
from kernels.launchers.common import compute_dtype
from kernels.launchers.reduction import PARTIAL, accumulator_dtype, result_dtype
from kernels.reduction import DEVIATIONS, TABLE

_START = {"0": "0", "1": "1", "lowest": "-infinity()", "highest": "infinity()"}
_INTEGERS = {"lowest": "(-9223372036854775807LL - 1)", "highest": "9223372036854775807LL"}


def _function(head: str, types: dict[str, str], text: str, dtype: np.dtype, cast: str) -> str:
    statements, result = translate(text, dtype)
    typedefs = [f"    typedef {c_type} {name};" for name, c_type in types.items()]
    body = [*typedefs, *("    " + s for s in statements), f"    return {cast}({result});"]
    return "\n".join([f"__device__ __forceinline__ {head} {{", *body, "}"])


@functools.cache
def line_text(name: str, read: np.dtype, dtype: np.dtype, first: bool, last: bool) -> str:
    """What stands before a file of kernels: the types and functions of a line, for elements of
    dtype `read` and a result of `dtype`.

    first, last: whether this pass sees the elements themselves, and whether it leaves the final
    result; passes in between hand on accumulators.
    """
    line, acc = TABLE[name], accumulator_dtype(name, dtype)
    truth = line.result == "bool"
    element = compute_dtype(read) if truth and first else acc
    start = _START[line.identity]
    if acc.kind == "i":
        start = _INTEGERS.get(line.identity, start)
    stored = result_dtype(name, dtype) if last else acc
    finish = ("a != 0" if truth else line.finish) if last else "a"
    T = scalar_type(element)
    functions = [
        _function("A load(S x_)", {"T": T}, line.map if first else "x", element, "A"),
        _function("A combine(A a, A b)", {"T": "A"}, line.combine, acc, "A"),
        _function("R finish(A a, long long n_)", {"T": "A"}, finish, acc, "R"),
    ]
    functions[0] = functions[0].replace(" T;\n", " T;\n    const T x = T(x_);\n", 1)
    functions[2] = functions[2].replace(" T;\n", " T;\n    const A n = A(n_);\n", 1)
    types = zip("SAR", (storage_type(read), scalar_type(acc), storage_type(stored)))
    return "\n".join(
        [
            source("common.cuh"),
            "#define MINIGRAD_LINE",
            *(f"typedef {c_type} {letter};" for letter, c_type in types),
            f"#define START {start}",
            *functions,
            "",
        ]
    )


def _moments_text(read: np.dtype, dtype: np.dtype, first: bool, last: bool) -> str:
    """As `line_text`, for the sum of the squares of the distances from the mean."""
    element, result = (storage_type(read), storage_type(dtype))
    lines = [
        source("common.cuh"),
        "#define MINIGRAD_LINE",
        f"typedef {scalar_type(dtype)} T;",
        source("moments.cuh"),
        f"typedef {element if first else 'Moments'} S;",
        "typedef Moments A;",
        f"typedef {result if last else 'Moments'} R;",
        "#define START Moments{0, 0, 0, 0}",
        "__device__ __forceinline__ R finish(A a, long long n) {",
        f"    return {'R(a.squares)' if last else 'a'};",
        "}",
        "",
    ]
    return "\n".join(lines)


@functools.cache
def _text(name: str, *key) -> str:
    """The source for the arguments of `line_text`."""
    text = _moments_text(*key) if name == DEVIATIONS.name else line_text(name, *key)
    return text + source("reduction.cu")


def _with_results(x, out, *numbers):
    return (x, out, out.size, *numbers)


def _with_partials(x, out, *numbers):
    return (x, out, out.size // PARTIAL, *numbers)


def ladder(version: str, *key) -> Kernel:
    """One step of the teaching ladder: kernel(x, out, n, count), a partial result a block."""
    return Kernel(_text(*key), version, (), (), as_passed)


def rows_by_block(threads: int, *key) -> Kernel:
    """kernel(x, out, length, segment, segments, count): a block for each segment of a row."""
    return Kernel(_text(*key), "rows_by_block", (), (threads,), as_passed)


def rows_by_warp(*key) -> Kernel:
    """kernel(x, out, rows, length, count): a warp for each row."""
    return Kernel(_text(*key), "rows_by_warp", (), (), as_passed)


def columns_by_tile(width: int, height: int, *key) -> Kernel:
    """kernel(x, out, length, inner, segment, segments, tiles, count)."""
    return Kernel(_text(*key), "columns_by_tile", (), (width, height), as_passed)


def by_thread(rows: bool, *key) -> Kernel:
    """kernel(x, out, length, inner, count): a thread for each result."""
    partial = key[0] == DEVIATIONS.name and not key[-1]
    return Kernel(_text(*key), "by_thread", (), (), _with_partials if partial else _with_results)


def arg_by_thread(rows: bool, name: str, read: np.dtype) -> Kernel:
    """kernel(x, out, length, inner): a thread for each result."""
    return Kernel(_text(name, read, read, True, False), "arg_by_thread", (), (), _with_results)


def arg_by_warp(name: str, read: np.dtype) -> Kernel:
    """kernel(x, out, rows, length): a warp for each row."""
    return Kernel(_text(name, read, read, True, False), "arg_by_warp", (), (), as_passed)


def arg_by_block(threads: int, name: str, read: np.dtype, first: bool) -> Kernel:
    """kernel(x, positions, best, out, length, segment, segments)."""
    text = _text(name, read, read, True, False)
    return Kernel(text, "arg_by_block", (), (threads, first), as_passed)
