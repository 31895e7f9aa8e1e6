"""What a GPU's compiler makes of the kernels, without a GPU: PTX for three generations.

The launchers choose the kernels as for arrays on a GPU, in the calls that families declare. Each is
compiled to PTX for compute capability 8.0, and by ptxas to machine code; some, and all with
`-m slow`, for 7.5 and 9.0 too, for which numba-cuda writes the same and only libNVVM and ptxas may
differ. Gates: no double in a float32 kernel, no local memory, no spilled register, no division of
64-bit integers (a subroutine) in an innermost loop. A row of the catalog that no call launches
fails.
"""

from __future__ import annotations

import functools

import numpy as np
import pytest
from numba import typeof

from kernels import lab, launchers
from kernels.lab.gpu_model import nvrtc, resources
from kernels.launchers.pointwise import Form, Operand
from kernels.numba_cuda import int8
from kernels.numba_cuda.pointwise import kernel
from kernels.pointwise import TABLE
from kernels.simt.api import to_numba_cuda

pytestmark = pytest.mark.needs("numba_cuda")
GENERATIONS = [(8, 0), (7, 5), (9, 0)]
PARTS = 6  # of the kernels, for parallel workers; all generations of a kernel in one part
# How many kernels there are for each one that is compiled for all generations.
EACH = pytest.mark.parametrize("each", [12, pytest.param(1, marks=pytest.mark.slow)])
AT_MOST = 8  # of one kernel, for other constants and types; all with `-m slow`
# libdevice reduces large arguments of these with doubles and a table in local memory, as nvcc's
# own sinf does; the float32 path that ordinary arguments take has neither.
WITH_DOUBLES = {
    "pointwise_sin",
    "pointwise_sin_vjp0",
    "pointwise_cos",
    "pointwise_cos_vjp0",
    "pointwise_tan",
    "pointwise_sinc",
    "pointwise_sinc_vjp0",
    "pointwise_lgamma_vjp0",  # digamma, which reflects at 0 by tan
    "pointwise_digamma",
    "pointwise_digamma_vjp0",
}

# libdevice writes one instruction with .ftz into each of these, whatever the options. None changes
# a result: the argument of rsqrt is 0 or at least 2^-25 and its result at least 2^-64; the quotient
# is exp(-|x|) / 2, added to exp(|x|) / 2, beside which a quotient below 1.2e-38 is rounded away.
FLUSHES = dict.fromkeys(
    [f"pointwise_{name}" for name in ("asin", "acos", "asinh", "acosh")]  # rsqrt.approx.ftz
    + [f"pointwise_{name}{of}" for name in ("sinh", "cosh") for of in ("", "_vjp0")],  # div
    1,
)


@functools.cache
def launched() -> dict[tuple[str, str], list[tuple]]:
    """By row of the catalog, the (kernel, types) that the calls of all families launch."""
    return {
        row: [(k, () if k.signature else tuple(map(typeof, args))) for k, args in launches]
        for row, launches in resources.launched("numba").items()
    }


def test_every_row_of_the_catalog_is_compiled():
    rows = {(operation, version) for operation, version, _ in launchers.catalog("numba")}
    missing = rows - set(launched())
    assert not missing, f"`compiled` of a family does not launch {sorted(missing)}"


def lines():
    """Every line of the table and every derivative, as contiguous float32 kernels."""
    f32 = np.dtype(np.float32)
    for line in TABLE.values():
        if line.domain == "int":
            continue
        for expr in (line, *(line.vjp(i) for i in range(len(line.args)))):
            if expr is not None:
                masks = [np.dtype(bool) if a in expr.masks else f32 for a in expr.args]
                result = np.dtype(bool) if expr.result == "bool" else f32
                yield kernel(expr, Form(tuple(map(Operand, masks)), f32, result))


def problems(kernel, types: tuple = (), generations=GENERATIONS) -> list[str]:
    """What a float32 kernel must not have, in its PTX and after ptxas."""
    found = []
    for cc in generations:
        made = lab.compiled(kernel, *types, cc=cc, lines=False)
        words = [f"{made.spill_stores} spilled bytes"] if made.spill_stores else []
        if divisions := nvrtc.divisions_in_loops(made.ptx):
            words.append(f"{divisions} divisions of 64-bit integers in a loop")
        if (flushes := nvrtc.flushes(made.ptx)) > FLUSHES.get(kernel.__name__, 0):
            words.append(f"{flushes} instructions that flush small numbers")
        if kernel.__name__ not in WITH_DOUBLES:
            words += [word for word in (".f64", ".local") if word in made.ptx]
            words += [f"{made.stack} bytes of stack"] if made.stack else []
        found += [f"{cc}: {word}" for word in words]
    return found


def failures(kernels, each: int) -> dict[str, list[str]]:
    return {
        f"{k.py_func.__code__.co_filename}: {k.__name__}{types}": found
        for number, (k, types) in enumerate(kernels)
        if (found := problems(k, types, GENERATIONS[: None if number % each == 0 else 1]))
    }


def spread(kernels: list[tuple]) -> list[tuple]:
    """Of each kernel, the first and last of its constants and types, and some between them."""
    by_name: dict[str, list[tuple]] = {}
    for one, types in kernels:
        by_name.setdefault(one.__name__, []).append((one, types))
    chosen = []
    for of_one in by_name.values():
        steps = np.linspace(0, len(of_one) - 1, min(len(of_one), AT_MOST)).round()
        chosen += [of_one[int(step)] for step in steps]
    return chosen


@EACH
@pytest.mark.parametrize("part", range(PARTS))
def test_launched_kernels(part, each):
    """Each kernel once for the types that it is launched with."""
    every = {(id(k), types): (k, types) for row in launched().values() for k, types in row}
    chosen = list(every.values()) if each == 1 else spread(list(every.values()))
    assert failures(chosen[part::PARTS], each) == {}


@EACH
@pytest.mark.parametrize("part", range(PARTS))
def test_every_line_of_the_table(part, each):
    assert failures([(line, ()) for line in lines()][part::PARTS], each) == {}


def test_the_gate_sees_a_double():
    """A kernel with a Python float in it must fail."""
    from kernels.simt import cuda

    def doubled(x):
        x[cuda.grid(1)] += 0.1

    assert "(8, 0): .f64" in problems(cuda.jit("void(float32[::1])")(doubled))


def test_the_gate_sees_a_division_in_a_loop():
    from kernels.simt import cuda

    def divided(x, n):
        for i in range(x.size):
            x[i] //= n

    signature = "void(int64[::1], int64)"
    found = problems(cuda.jit(signature)(divided))
    assert any(word.endswith("divisions of 64-bit integers in a loop") for word in found)


def test_a_kernel_has_a_copy_of_its_own():
    """Even where it lies in memory where another one lay."""
    from kernels.simt import cuda
    from kernels.simt.api import to_numba_cuda

    def made(number):
        @cuda.jit
        def store(x):
            x[0] = number

        return store

    for number in range(20):
        copy = to_numba_cuda.dispatcher(made(number)).py_func
        assert copy.__closure__[0].cell_contents == number


@pytest.mark.parametrize("version", ["dp4a", "tiled"])
def test_four_products_of_bytes_are_one_instruction(version):
    kernel = int8.matmul_kernel(version, False)
    assert "dp4a.s32.s32" in to_numba_cuda.ptx(kernel, kernel.signature, (7, 5))
