"""Checked mode tells of masks that name lanes which do not come, or do not name the caller."""

from __future__ import annotations

import numpy as np
import pytest

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
