"""Which spellings of a declared array's shape and type compile: those that numba-cuda takes."""

from __future__ import annotations

import runpy
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from numba import float32, types
from numba.core.errors import NumbaError

from kernels.simt import cuda
from kernels.simt.driver import pipeline
from kernels.support.errors import CompileError

SIDE = 6
REFUSED = [
    "SIDE + 1, float32",
    "-(-SIDE), float32",
    "SIDE // 2, float32",
    "(SIDE, SIDE + 1), float32",
    "SIZES + (2,), float32",
    "M + 1, float32",
    "MORE, float32",
    "[SIDE], float32",
    "NUMPY_SIDE, float32",
    "int(SIDE), float32",
    "module.SIDE, float32",
    "cuda.blockDim.x, float32",
    "True, float32",
    "n, float32",
    "x.shape[0], float32",
    "SIDE, float",
    "SIDE, float32, 12",
]
ACCEPTED = [
    "4 * 4, float32",
    "SIDE, np.float32",
    "SIZES, 'f4'",
    "(SIZES[1], M), x.dtype",
    "(M, T[0]), np.dtype('f4')",
    "(P, Q), np.float16",
    "SIDE if SIDE > 4 else 3, float32, 16",
]
KINDS = (types.float32[::1], types.int64)  # of the parameters x and n
TEXT = """
import numpy as np
from numba import float32
import types
SIDE, SIZES, NUMPY_SIDE, module = 6, (6, 8), np.int32(6), types.SimpleNamespace(SIDE=6)

def kernel(x, n):
    M = SIDE
    MORE = SIDE + 1
    T = (SIDE, 2)
    P, Q = SIZES
    for i in range(2):
        a = cuda.shared.array({0})
    b = cuda.local.array({0})
"""


def _kernel(tmp_path: Path, spelling: str):
    path = tmp_path / "spelled.py"
    path.write_text(TEXT.format(spelling))
    return cuda.jit(runpy.run_path(path, {"cuda": cuda})["kernel"])


@pytest.mark.parametrize("spelling", REFUSED + ACCEPTED)
def test_declarations_are_accepted_or_refused(spelling, tmp_path):
    kernel = _kernel(tmp_path, spelling)
    if spelling in ACCEPTED:
        pipeline.normal_form(kernel.py_func, KINDS, (32, 1, 1))
        return
    with pytest.raises(CompileError, match=r"spelled.py:13: the (shape|dtype|alignment) of"):
        pipeline.normal_form(kernel.py_func, KINDS, (32, 1, 1))


@pytest.mark.needs("numba_cuda")
@pytest.mark.parametrize("spelling", REFUSED + ACCEPTED)
def test_numba_cuda_accepts_and_refuses_the_same(spelling, tmp_path):
    kernel = _kernel(tmp_path, spelling)
    if spelling in ACCEPTED:
        assert ".entry" in kernel.ptx(KINDS)
        return
    with pytest.raises((NumbaError, ValueError)):
        kernel.ptx(KINDS)


def test_the_message_says_what_to_write(tmp_path):
    with pytest.raises(CompileError, match=r"write SIZE = SIDE \+ 1 outside of the kernel"):
        _kernel(tmp_path, "SIDE + 1, float32")[1, 1](np.zeros(3), 1)
    with pytest.raises(CompileError, match="bind MORE to a number"):
        _kernel(tmp_path, "MORE, float32")[1, 1](np.zeros(3), 1)
    with pytest.raises(CompileError, match="dynamic shared memory"):
        _kernel(tmp_path, "n, float32")[1, 1](np.zeros(3), 1)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16], ids=["float16", "bfloat16"])
def test_arrays_of_16_bit_floats(dtype):
    @cuda.jit
    def kernel(x, out):
        shared = cuda.shared.array(SIDE, dtype)
        private = cuda.local.array(2, x.dtype)
        i = cuda.threadIdx.x
        shared[i] = x[i] + float32(1 / 256)
        private[1] = shared[i] * float32(3)
        cuda.syncthreads()
        out[i] = shared[SIDE - 1 - i] + private[1]

    x, out = np.arange(SIDE).astype(dtype), np.zeros(SIDE, np.float32)
    kernel[1, SIDE](x, out)
    shared = (np.arange(SIDE) + 1 / 256).astype(dtype)
    private = (shared.astype(np.float32) * 3).astype(dtype)
    np.testing.assert_array_equal(out, shared[::-1].astype(np.float32) + private.astype(np.float32))
