"""Registers, shared memory, spills, PTX and SASS from the real compilers, with no GPU."""

from __future__ import annotations

import importlib
import itertools
import math
import re

import numpy as np
import pytest

import kernels
from kernels import lab
from kernels.lab.gpu_model import compiled, sass
from kernels.simt import cuda
from kernels.simt.api import to_numba_cuda
from kernels.support.errors import CompileError

pytestmark = pytest.mark.needs("numba_cuda")
X = np.zeros((16, 16), np.float32)


@cuda.jit
def tiled(a, b, c):
    tile = cuda.shared.array((16, 17), np.float32)
    i, j = cuda.grid(2)
    tile[cuda.threadIdx.y, cuda.threadIdx.x] = a[i, j]
    cuda.syncthreads()
    total = np.float32(0)
    for k in range(16):
        total += tile[k, cuda.threadIdx.x] * b[i, k]
    c[i, j] = total


@cuda.jit
def hungry(x, out):
    """Keeps more values at once than a thread may have registers when it is told to use few."""
    values = cuda.local.array(48, np.float32)
    for i in range(48):
        values[i] = x[cuda.grid(1) * 48 + i]
    for i in range(48):
        for j in range(48):
            values[i] = values[i] * values[j] + values[47 - j]
    for i in range(48):
        out[cuda.grid(1) * 48 + i] = values[i]


REVERSED = """
template <typename T, int N> __global__ void reversed(T* x) {
    __shared__ T tile[N];
    tile[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = tile[N - 1 - threadIdx.x];
}
"""


@pytest.mark.parametrize("cc", [(7, 5), (8, 0), (9, 0), (12, 0)])
def test_a_kernel_in_python(cc):
    found = lab.compiled(tiled, X, X, X, cc=cc)
    assert found.shared == 16 * 17 * 4
    assert 16 <= found.registers <= 64
    assert (found.stack, found.spill_stores, found.spill_loads) == (0, 0, 0)
    assert f".target sm_{cc[0]}{cc[1]}" in found.ptx
    assert found.cubin[:4] == b"\x7fELF"
    assert found.occupancy(256).registers == found.registers
    assert found.occupancy(256, shared=100).shared == found.shared + 100


def test_generations_share_what_does_not_depend_on_them():
    """A kernel is lowered once for all generations: each one's PTX is that of its own lowering."""
    from numba import cuda as numba_cuda
    from numba import float32, float64

    def kernel(x, total):
        i = numba_cuda.grid(1)
        numba_cuda.atomic.add(total, 0, float64(math.tanh(x[i]) / x[i - 1]))

    signature = (float32[::1], float64[::1])

    def text(ptx):
        """Without the numbers that tell one compilation's names from another's."""
        return re.sub(r"_ZN?\d[\w$]+", "name", ptx)

    made = numba_cuda.jit(fastmath=True)(kernel)
    for cc in [(7, 5), (8, 0), (8, 9), (9, 0), (10, 0), (12, 0)]:
        own, _ = numba_cuda.compile_ptx(kernel, signature, cc=cc, fastmath=True)
        assert text(to_numba_cuda.ptx(made, signature, cc)) == text(own)
        assert "tanh.approx.f32" in own and "add.f64" in own


@pytest.mark.parametrize("cc", [(8, 0), (9, 0)])
def test_a_kernel_in_cuda_c(cc):
    found = lab.compiled(kernels.raw_kernel(REVERSED, "reversed<double, 64>"), cc=cc)
    assert found.shared == 64 * 8
    assert found.registers >= 4
    assert "reversed<double, 64>" in str(found)


def test_fewer_registers_spill():
    """The gates of other tests mean something: a spill is seen."""
    x = np.zeros(48, np.float32)
    freely = lab.compiled(hungry, x, x)
    assert freely.registers > 48
    bound = lab.compiled(cuda.jit(max_registers=24)(hungry.py_func), x, x)
    assert bound.registers <= 24
    assert bound.spill_stores > 0
    assert bound.spill_loads > 0
    assert "spilled" in str(bound)


def test_ptx_stands_below_the_line_it_was_made_of():
    found = lab.compiled(tiled, X, X, X)
    path, first, text = found.source
    source = dict(enumerate(text.splitlines(), first))
    made = {
        source[line].strip(): " ".join(instructions)
        for (where, line), instructions in compiled.ptx_lines(found.ptx).items()
        if where == path
    }
    assert "st.shared.f32" in made["tile[cuda.threadIdx.y, cuda.threadIdx.x] = a[i, j]"]
    assert "bar.sync" in made["cuda.syncthreads()"]
    assert "fma.rn.f32" in made["total += tile[k, cuda.threadIdx.x] * b[i, k]"]
    assert "st.global.f32" in made["c[i, j] = total"]
    listing = found.listing()
    assert listing.index("cuda.syncthreads()") < listing.index("bar.sync")
    assert found.entry not in listing


def test_ptx_of_cuda_c_too():
    listing = lab.compiled(kernels.raw_kernel(REVERSED, "reversed<float, 32>")).listing()
    rows = [row.partition("|")[2].strip() for row in listing.splitlines()]
    assert rows[rows.index("__syncthreads();") + 1].startswith("bar.sync")


def test_sass_or_how_to_get_it():
    found = lab.compiled(tiled, X, X, X)
    try:
        sass.find_nvdisasm()
    except CompileError as error:
        assert "pip install nvidia-cuda-nvdisasm" in str(error)
        with pytest.raises(CompileError, match="nvdisasm"):
            found.listing("sass")
        return
    rows = found.listing("sass").splitlines()
    barrier = next(i for i, row in enumerate(rows) if "cuda.syncthreads()" in row)
    made = list(itertools.takewhile(lambda row: row.startswith("      |"), rows[barrier + 1 :]))
    assert any("BAR.SYNC" in row for row in made)


SASS = """
	//## File "/a/kernel.py", line 12
        /*0010*/                   S2R R18, SR_TID.X ;
        /*0020*/                   LDG.E R14, [R14.64] ;
	//## File "/b/inner.py", line 3 inlined at "/a/kernel.py", line 14
	//## File "/a/kernel.py", line 14
        /*0030*/              @!P0 BRA `(.L_x_0) ;
        /*0040*/                   NOP;
"""


def test_reading_sass():
    assert compiled.sass_lines(SASS) == {
        ("/a/kernel.py", 12): ["S2R R18, SR_TID.X", "LDG.E R14, [R14.64]"],
        ("/b/inner.py", 3): ["@!P0 BRA `(.L_x_0)"],
    }


def test_a_kernel_whose_line_numbers_the_compiler_refuses():
    """libNVVM fails on what numba-cuda writes for this one with lineinfo; without, all is well."""
    from numba import types

    module = importlib.import_module("kernels.numba_cuda.matmul")
    array, row = types.Array(types.float32, 3, "C"), types.Array(types.float32, 1, "C")
    kernel = module.register_2d(types.float32, module.SMALL, False, False, False)
    found = lab.compiled(kernel, array, array, row, array)
    assert 32 < found.registers < 128
    assert found.spill_stores == 0
    listing = found.listing()
    assert "fma.rn.f32" in listing
    if not found.has_lines:
        assert "(without line numbers)" in listing


@pytest.mark.parametrize(
    "kernel", [tiled, kernels.raw_kernel(REVERSED, "reversed<float, 32>")], ids=["python", "cuda c"]
)
def test_line_numbers_are_kept_or_not_and_change_nothing(kernel):
    given = (X, X, X) if kernel is tiled else ()
    with_lines, without = (lab.compiled(kernel, *given, lines=lines) for lines in (True, False))
    assert (with_lines.has_lines, without.has_lines) == (True, False)
    assert (with_lines.registers, with_lines.shared) == (without.registers, without.shared)
    assert "bar.sync" in without.listing().partition("(without line numbers)")[2]


def test_mistakes_are_named():
    with pytest.raises(TypeError, match="tiled has no signature; give example arguments"):
        lab.compiled(tiled)
    with pytest.raises(CompileError, match='identifier "y" is undefined'):
        lab.compiled(kernels.raw_kernel("__global__ void k(float* x) { *x = y; }", "k"))
    with pytest.raises(TypeError, match="expected a kernel"):
        lab.compiled(max)
    with pytest.raises(ValueError, match='"ptx" or "sass"'):
        lab.compiled(tiled, X, X, X).listing("llvm")

    @cuda.jit
    def adds_text(x):
        x[0] += "one"

    with pytest.raises(CompileError, match="adds_text: .*iadd"):
        lab.compiled(adds_text, X[0])


def test_a_signature_is_enough():
    @cuda.jit("void(float32[::1])")
    def ones(x):
        x[cuda.grid(1)] = 1

    assert lab.compiled(ones).registers > 0


@pytest.mark.needs("cuda.bindings")
def test_nvrtc_writes_to_memory_of_its_own():
    """An empty log has one byte, and Python has one object for each byte: b" " became b"\\0"."""
    from kernels.lab.gpu_model import nvrtc

    code = 'extern "C" __global__ void k(float* x) { x[threadIdx.x] = 1; }'
    *_, log, text, _ = nvrtc.translate(code, ["k"], "compute_80")
    assert log == "" and ".entry k" in text
    assert [bytes([byte])[0] for byte in range(256)] == list(range(256))
