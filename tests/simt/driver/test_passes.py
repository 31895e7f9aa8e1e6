"""The kernel after each pass: one pass alone on a small normal form, and all that are listed."""

from __future__ import annotations

import enum
import re
from textwrap import dedent

import numpy as np
import pytest
from numba import float32, int32
from numba.core import types

from kernels.simt import cuda
from kernels.simt.driver import listing, pipeline
from kernels.simt.emit.module import module_text
from kernels.simt.ir.hints import Hint, decode, encode
from kernels.simt.ir.safety import Safety
from kernels.simt.transforms.block_interleave import interleaved
from kernels.simt.transforms.canonicalise import prepare
from kernels.simt.transforms.short_loops import hint_short_loops
from kernels.simt.transforms.tile_forwarding import forward
from kernels.support.errors import LaunchError

VECTOR, MATRIX = types.Array(types.float32, 1, "C"), types.Array(types.float32, 2, "C")


def built(func, *args, block=(8, 1, 1)):
    """The normal form of a function, straight from the front end."""
    return pipeline.Compilation(func, args, block).run(pipeline.FRONT[:1]).program


def text(program) -> str:
    """The listing of a normal form without its header and the lines of the source."""
    _, *lines = listing.normal_form(program).splitlines()
    return dedent("\n".join(re.sub(r" +# line \d+$", "", line) for line in lines))


def test_canonicalisation_aligns_the_barriers_of_both_branches():
    def kernel(x):
        if x[0] > 0:
            x[1] = 1
            cuda.syncthreads()
            x[2] = 2
        else:
            cuda.syncthreads()
            x[3] = 3

    program = built(kernel, VECTOR)
    assert text(program) == dedent("""\
        if x[0] > 0:
            x[1] = 1
            cuda.syncthreads()
            x[2] = 2
        else:
            cuda.syncthreads()
            x[3] = 3""")
    prepare(program)
    assert text(program) == dedent("""\
        side = bool(x[0] > 0)
        if side:
            x[1] = 1
        cuda.syncthreads()
        if side:
            x[2] = 2
        else:
            x[3] = 3""")


def test_tile_forwarding_reads_the_memory_behind_a_tile():
    def kernel(a, out):
        tile = cuda.shared.array(8, float32)
        total = float32(0)
        for p in range(0, a.size, 8):
            tile[cuda.threadIdx.x] = a[p + cuda.threadIdx.x]
            cuda.syncthreads()
            for q in range(8):
                total += tile[q]
            cuda.syncthreads()
        out[cuda.threadIdx.x] = total

    program = built(kernel, VECTOR, VECTOR)
    forward(program)
    assert text(program) == dedent("""\
        total = _float32(0)
        for p in range(0, a.size, 8):
            cuda.syncthreads()
            for q in range(8):
                total = total + _float32(a[p + q])
            cuda.syncthreads()
        out[threadIdx.x] = total""")


def sums_of_columns(a, b, out):
    """Every block of a column fills the same tile, and scales it by its own number."""
    tile = cuda.shared.array((4, 8), float32)
    x, y = cuda.grid(2)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    total = float32(0)
    for p in range(0, a.shape[0], 4):
        own = b[y, p]
        tile[ty, tx] = a[p + ty, x]
        cuda.syncthreads()
        for q in range(4):
            total += tile[q, tx] * own
        cuda.syncthreads()
    out[y, x] = total


def test_interleaving_cuts_out_what_fills_a_common_array():
    program = built(sums_of_columns, MATRIX, MATRIX, MATRIX, block=(8, 4, 1))
    before = text(program)
    together = interleaved(program)
    assert together.interleaving.axis == "_by"
    assert together.interleaving.common == {"tile"}
    fill = ["tile[ty, tx] = a[p + ty, x]", "cuda.syncthreads()", "own = b[y, p]"]
    assert "".join(f"    {line}\n" for line in fill) in text(together)
    assert text(program) == before and program.interleaving is None


def test_short_loops_are_hinted():
    def kernel(x, n):
        for i in range(4):
            x[i] = 0
        for j in range(n):
            x[j] = 1

    program = built(kernel, VECTOR, types.int64)
    program.body = hint_short_loops(program.body)
    assert text(program) == dedent("""\
        for i in range(4):  # unrolled
            x[i] = 0
        for j in range(n):
            x[j] = 1""")


@pytest.mark.parametrize("hint", Hint)
def test_hints_are_decoded_as_they_are_encoded(hint):
    assert decode(encode("q", hint)) is hint
    assert decode("q") is None and encode("q", None) == "q"


PASSES = (
    "normal form, counted loops, canonicalisation, tile forwarding, turned blocks,"
    " interleaved blocks, SSA renaming, merged stores, types, wide blocks, uniformity, bounds,"
    " fission, storage, plan, module"
).split(", ")


def test_printing_leaves_the_plan_as_it_is():
    """Twice the same text, and nothing added to what the program imports."""
    given = (MATRIX,) * 3, (8, 4, 1)
    done = pipeline.Compilation(sums_of_columns, *given).run(pipeline.PASSES[:-1])
    externs = dict(done.program.externs)
    first = module_text(done.plan, fastmath=False)
    assert module_text(done.plan, fastmath=False) == first
    assert done.program.externs == externs


def test_the_kernel_after_each_pass():
    kernel = cuda.jit(sums_of_columns)
    with pytest.raises(LaunchError, match="launch the kernel first"):
        kernel.inspect_passes()
    a, b, out = np.ones((9, 8), np.float32), np.ones((8, 9), np.float32), np.zeros((8, 8))
    kernel[(1, 2), (8, 4)](a[:8].copy(), b, out.astype(np.float32))
    found = kernel.inspect_passes()
    assert list(found) == PASSES
    assert "cuda.syncthreads()" in found["normal form"] and "# line " in found["normal form"]
    assert found["tile forwarding"] == listing.UNCHANGED
    assert "fill tile with the same" in found["interleaved blocks"]
    assert "total: float32" in found["types"]
    assert "spill arrays: own, total" in found["storage"]
    assert "the first block, for all that are interleaved:" in found["plan"]
    assert found["module"] == kernel.inspect_cpu()
    assert [line for line in str(found).splitlines() if line.startswith("-- ")] == [
        f"-- {number}. {name} ".ljust(88, "-") for number, name in enumerate(PASSES, 1)
    ]
    assert kernel.inspect_passes((8, 4)).keys() == found.keys()


class Mode(enum.Enum):
    KEEP = 1
    DOUBLE = 2


class Wide(enum.IntEnum):
    LOW = 3


@pytest.mark.parametrize("given", [Mode.DOUBLE, Wide.LOW, (Mode.KEEP, 2)], ids=repr)
def test_the_passes_of_a_kernel_with_an_enumeration(given):
    @cuda.jit
    def kernel(x, mode):
        if cuda.grid(1) < x.size:
            x[cuda.grid(1)] = 1 if mode == given else 2

    x = np.zeros(5, np.float32)
    kernel[1, 8](x, given)
    found = kernel.inspect_passes()
    assert x.tolist() == [1] * 5
    assert found["module"] == kernel.inspect_cpu()


def test_interleaving_that_does_not_pay_is_left_out():
    """A block keeps 32 KiB of accumulators for itself, and shares a tile of 512 bytes."""

    def kernel(a, out):
        tile = cuda.shared.array((4, 32), float32)
        kept = cuda.local.array(64, float32)
        x, y = cuda.grid(2)
        tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
        for i in range(64):
            kept[i] = y
        for p in range(0, a.shape[0], 4):
            tile[ty, tx] = a[p + ty, x]
            cuda.syncthreads()
            for i in range(64):
                kept[i] += tile[i % 4, tx]
            cuda.syncthreads()
        for i in range(64):
            out[y, x] += kept[i]

    done = pipeline.Compilation(kernel, (MATRIX, MATRIX), (32, 4, 1))
    found = listing.passes(done)
    assert found["plan"].startswith("Interleaving does not pay")
    assert "SSA renaming, not interleaved" in found
    assert done.program.interleaving is None and done.plan.interleaving is None
    assert "_joined" not in found["module"]


@pytest.mark.parametrize("safety", [Safety.UNCHECKED, Safety.DEBUG])
def test_control_flow_of_all_kinds_is_listed(safety):
    def kernel(x, n):
        t = cuda.grid(1)
        while cuda.syncthreads_or(int32(x[t] > 0)):
            if t < n:
                x[t] -= 1
        if x[t] < 0:
            return
        for p in range(n):
            if p % 2:
                cuda.syncthreads()
        if t % 2:
            x[t] = cuda.shfl_down_sync(0xFFFFFFFF, x[t], 1)

    done = pipeline.Compilation(kernel, (VECTOR, types.int64), (32, 1, 1), safety=safety)
    found = listing.passes(done)
    assert "cuda.syncthreads_or(" in found["fission"]
    assert "cuda.shfl_down_sync(4294967295, sent_1, 1)" in found["fission"]
    assert "threads with " in found["fission"] and "mask active" in found["plan"]
