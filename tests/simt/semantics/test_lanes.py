"""Checked mode tells of masks that name lanes which do not come, or do not name the caller."""

from __future__ import annotations

import numpy as np
import pytest

from kernels import raw_kernel
from kernels.simt import cuda
from kernels.support.errors import KernelError

FULL = 0xFFFFFFFF


def shuffle_in_a_branch(x):
    i = cuda.threadIdx.x
    if i % 32 < 20:
        x[i] += cuda.shfl_down_sync(FULL, x[i], 1)  # <-
    x[i] += 1


def vote_in_a_branch(x):
    i = cuda.threadIdx.x
    if i % 32 != 3 and i != 37:
        x[i] = cuda.ballot_sync(FULL, x[i] > 0)  # <-
    x[i] += 1


def different_shuffles_of_one_warp(x):
    i = cuda.threadIdx.x
    if i % 32 < 20:
        x[i] = cuda.shfl_sync(FULL, x[i], 0)  # <-
    else:
        x[i] = cuda.shfl_sync(FULL, x[i], 20)


def loop_that_lanes_leave(x):
    i = cuda.threadIdx.x
    while x[i] < 20:
        x[i] += 20
        cuda.syncwarp()  # <-
    x[i] += 1


def computed_mask(x):
    i = cuda.threadIdx.x
    mask = 0xFFFFF | (i // 64) << 20
    if i % 32 < 19:
        x[i] = cuda.any_sync(mask, x[i] > 0)  # <-
    x[i] += 1


def lane_outside_its_mask(x):
    i = cuda.threadIdx.x
    x[i] += cuda.shfl_xor_sync(0xFFFF, x[i], 1)  # <-


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (shuffle_in_a_branch, "lanes 20 to 31 in its mask 0xffffffff"),
        (vote_in_a_branch, "lane 3 in its mask 0xffffffff, but it does not"),
        (different_shuffles_of_one_warp, "lanes 20 to 31 in its mask 0xffffffff"),
        (loop_that_lanes_leave, "lanes 20 to 31 in its mask 0xffffffff"),
        (computed_mask, "lane 19 in its mask 0x000fffff"),
        (lane_outside_its_mask, r"mask 0x0000ffff, which does not name .* thread \(16, 0, 0\)"),
    ],
)
def test_missing_lanes_are_named(body, words, line_of):
    with pytest.raises(KernelError, match=rf":{line_of(body, '# <-')} .*{words}"):
        cuda.jit(body, debug=True)[1, 64](np.arange(64.0) % 32)


def test_lanes_that_have_ended_are_not_missed():
    @cuda.jit(debug=True)
    def kernel(x, out):
        i = cuda.threadIdx.x
        if i >= x.size:
            return
        if i < 32:  # a whole warp
            x[i] += cuda.shfl_xor_sync(FULL, x[i], 16)
        here = cuda.ballot_sync(FULL, True)
        if i % 32 < 4:
            x[i] = cuda.shfl_sync(0xF, x[i], 2)
        if x[i] > 3:
            mask = cuda.activemask()
            cuda.syncwarp(mask)
            out[i] = here
            cuda.syncwarp()  # the others have ended

    x, out = np.arange(40.0), np.zeros(40, np.int64)
    kernel[1, 80](x, out)
    assert out[[4, 34]].tolist() == [-1, 255]


def from_another_branch(x):
    i = cuda.threadIdx.x
    if i % 32 < 20:
        x[i] += cuda.shfl_down_sync(0xFFFFF, x[i], 4)  # <-
    x[i] += 1


def in_the_last_statement(x):
    i = cuda.threadIdx.x
    if i % 2 == 0:
        x[i] = cuda.shfl_sync(FULL, x[i], 3)  # <-


def after_a_return(x):
    i = cuda.threadIdx.x
    if i >= 40:
        return
    x[i] += cuda.shfl_xor_sync(FULL, x[i], 16)  # <-


def in_a_loop_that_lanes_leave(x):
    i = cuda.threadIdx.x
    k = 0
    while k <= i:
        x[i] += cuda.shfl_up_sync(FULL, x[i], 1)  # <-
        k += 1


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (from_another_branch, r"lane 20, .* \(missing: lanes 20 to 31; .* thread \(16, 0, 0\)\)"),
        (in_the_last_statement, r"lane 3, .* \(missing: lanes 1, 3, .* thread \(0, 0, 0\)\)"),
        (after_a_return, r"lane 16, .* \(missing: lanes 8 to 31; .* thread \(32, 0, 0\)\)"),
        (in_a_loop_that_lanes_leave, r"lane 0, .* \(missing: lane 0; .* thread \(1, 0, 0\)\)"),
    ],
)
def test_a_shuffle_from_a_lane_that_does_not_execute_it(body, words, line_of):
    with pytest.raises(KernelError, match=rf"shuffle at .*:{line_of(body, '# <-')} .*{words}"):
        cuda.jit(body, debug=True)[1, 64](np.arange(64.0))


def test_a_shuffle_from_a_lane_that_the_block_does_not_have():
    @cuda.jit(debug=True)
    def kernel(x):
        i = cuda.threadIdx.x
        x[i] += cuda.shfl_down_sync(FULL, x[i], 8)

    kernel[1, 64](np.arange(64.0))
    with pytest.raises(KernelError, match=r"lane 8, .*missing: lanes 8 to 31"):
        kernel[1, 40](np.arange(64.0))


def test_idioms_without_missing_lanes():
    """Masks from votes, whole warps that leave, guarded data, sources inside of the branch."""

    @cuda.jit(debug=True)
    def kernel(x, out):
        i = cuda.grid(1)
        value = x[i] if i < x.size else 0.0
        for step in (16, 8, 4, 2, 1):
            value += cuda.shfl_down_sync(FULL, value, step)
        if i % 32 == 0:
            out[i // 32] = value
        if i // 32 == 1:
            return  # a whole warp
        out[8] = cuda.shfl_sync(FULL, value, 31)
        mask = cuda.ballot_sync(FULL, i % 32 < 10)
        if i % 32 < 10:
            out[9] = cuda.shfl_sync(mask, value, 9)
            here = cuda.activemask()
            out[10] = cuda.shfl_sync(here, value, 0)
        if i % 32 >= 24:
            out[11] = cuda.shfl_xor_sync(0xFF000000, value, 4)

    kernel[1, 96](np.ones(70), np.zeros(12))


@pytest.mark.parametrize(
    ("body", "lines"),
    [
        ("if (t % 32 < 20) x[t] += __shfl_down_sync(0xfffff, x[t], 4);", "lane 20"),
        ("if (t < 40) x[t] += __shfl_down_sync(0xffffffff, x[t], 16);", "lane 16"),
        ("if (t >= 40) return; x[t] += __shfl_xor_sync(0xffffffff, x[t], 16);", "lane 16"),
    ],
)
def test_shuffles_of_cuda_c(body, lines):
    code = f"__global__ void k(float* x) {{ int t = threadIdx.x;\n{body} }}"
    with pytest.raises(KernelError, match=rf"__shfl_\w+ on line 2: .*{lines}, which does not"):
        raw_kernel(code, "k")((1,), (64,), (np.ones(64, np.float32),))


def test_idioms_of_cuda_c():
    code = """__global__ void k(const float* x, float* out, int n) {
        int i = threadIdx.x;
        float value = i < n ? x[i] : 0;
        for (int step = 16; step; step /= 2) value += __shfl_down_sync(0xffffffff, value, step);
        if (i % 32 == 0) out[i / 32] = value;
        if (i / 32 == 1) return;
        unsigned mask = __ballot_sync(0xffffffff, i % 32 < 10);
        if (i % 32 < 10) out[4] = __shfl_sync(mask, value, 9);
    }"""
    out = np.zeros(5, np.float32)
    raw_kernel(code, "k")((1,), (96,), (np.ones(70, np.float32), out, 70))
    assert out[:3].tolist() == [32, 32, 6]
