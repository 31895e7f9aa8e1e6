"""What a kernel tells of itself: types, and what NVIDIA's compilers make of it."""

from __future__ import annotations

import io
import sys

import numpy as np
import pytest
from numba import float32, int32, types

from kernels.simt import cuda
from kernels.support.errors import CompileError


@pytest.fixture
def kernel():
    @cuda.jit
    def reversed_by(x, n):
        tile = cuda.shared.array(32, float32)
        i = cuda.threadIdx.x
        tile[i] = x[i]
        cuda.syncthreads()
        x[i] = tile[31 - i] * n

    return reversed_by


KINDS = (types.float32[::1], types.int64)


def test_overloads_are_what_was_compiled(kernel):
    assert (kernel.overloads, kernel.signatures) == ({}, [])
    x = np.zeros(32, np.float32)
    kernel[1, 32](x, 2)
    kernel[1, 32](cuda.to_device(x), 2)
    assert kernel.signatures == [KINDS]
    kernel[1, 32](x, 2.5)
    assert kernel.signatures == [KINDS, (types.float32[::1], types.float64)]


def test_inspect_types_prints_the_type_of_each_variable(kernel):
    kernel[1, 32](np.zeros(32, np.float32), 2)
    text = io.StringIO()
    kernel.inspect_types(file=text)
    assert "n: int64" in text.getvalue()
    assert "tile: array(float32, 1d, C)" in text.getvalue()


@pytest.mark.needs("numba_cuda")
def test_what_nvidias_compilers_make_of_a_kernel(kernel):
    kernel[1, 32](np.zeros(32, np.float32), 2)
    (ptx,) = kernel.inspect_asm().values()
    assert ptx == kernel.inspect_asm(KINDS)
    assert ".target sm_80" in ptx
    assert "bar.sync" in ptx
    assert "barrier" in kernel.inspect_llvm(KINDS)
    assert 8 <= kernel.get_regs_per_thread(KINDS) <= 64
    assert kernel.get_shared_mem_per_block() == {KINDS: 128}
    assert kernel.get_local_mem_per_thread(KINDS) == 0
    assert kernel.get_max_threads_per_block(KINDS) == 1024


@pytest.mark.needs("numba_cuda")
def test_compile_ptx():
    def scaled(a, b):
        return a * b + cuda.threadIdx.x

    ptx, returned = cuda.compile_ptx(scaled, (float32, int32), device=True)
    assert (".entry" in ptx, "tid.x" in ptx, returned) == (False, True, types.float64)

    @cuda.jit
    def kernel(x):
        x[0] = scaled_device(x[1])

    scaled_device = cuda.jit(lambda a: a * 2, device=True)
    ptx, returned = cuda.compile_ptx(kernel, "void(float32[::1])", cc=(9, 0))
    assert (".entry" in ptx, ".target sm_90" in ptx, returned) == (True, True, types.void)


def test_without_numba_cuda_it_says_what_to_install(kernel, monkeypatch):
    monkeypatch.setitem(sys.modules, "numba.cuda.compiler", None)
    monkeypatch.setattr("kernels.simt.api.to_numba_cuda._library.__wrapped__", None, raising=False)
    with pytest.raises(CompileError, match="cuda13"):
        kernel.inspect_asm((types.float32[::1], types.float32))
