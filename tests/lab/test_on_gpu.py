"""The lab where there is a GPU: it takes kernels of numba.cuda itself, and runs them on the CPU."""

from __future__ import annotations

import numpy as np
import pytest

from kernels import lab

pytestmark = pytest.mark.gpu


def test_kernels_of_numba_cuda():
    from numba import cuda

    @cuda.jit(device=True)
    def half(v):
        return v * 0.5

    @cuda.jit
    def reverse(x, out):
        tile = cuda.shared.array(4, np.float32)
        i, t = cuda.grid(1), cuda.threadIdx.x
        tile[t] = half(x[i])
        cuda.syncthreads()
        out[i] = tile[cuda.blockDim.x - 1 - t]

    x = np.arange(8, dtype=np.float32)
    first, last = lab.step(reverse, 2, 4, x, np.empty_like(x))
    np.testing.assert_array_equal(first.shared["tile"], x[:4] / 2)
    assert last.thread(1)["i"] == 1
    assert "tile" in str(lab.barrier_frames(reverse, 2, 4, x, np.empty_like(x)))
    assert not lab.profile(reverse, 2, 4, x, np.empty_like(x)).races
    assert lab.compiled(reverse, x, np.empty_like(x), cc=8.0).shared == 16
