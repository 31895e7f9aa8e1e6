"""`if threadIdx.x < 32` around a shuffle: the loops run over these threads, without a mask."""

from __future__ import annotations

import numpy as np
import pytest

from kernels.simt import cuda

FULL = 0xFFFFFFFF
THREADS = 128
MASK = "_s_active[_u(_t)] ="


def launched(body, threads: int = THREADS) -> tuple[np.ndarray, str]:
    """What a kernel makes of an array, in both modes the same, and its plain code."""
    x = np.random.default_rng(0).integers(0, 100, threads).astype(np.float32)
    results = []
    for debug in (False, True):
        out, kernel = np.full(threads, -1, np.float32), cuda.jit(body, debug=debug)
        kernel[1, threads](x, out)
        results.append(out)
        if not debug:
            text = kernel.inspect_cpu()
    np.testing.assert_array_equal(*results)
    return results[0], text


def first_warp(x, out):
    t = cuda.threadIdx.x
    value = x[t]
    if t < 32:
        value += cuda.shfl_down_sync(FULL, value, 16)
        value += cuda.shfl_xor_sync(FULL, value, 8)
        out[t] = value


def warp_by_number(x, out):
    t = cuda.threadIdx.x
    warp = t // 32
    value = x[t]
    if warp == 2 and t != 5:
        value += cuda.shfl_down_sync(FULL, value, 3)
        cuda.syncwarp()
        out[t] = value


def middle_warps(x, out):
    t = cuda.threadIdx.x
    value = x[t]
    if 32 <= t and not t >= 96:
        for step in range(1, 4):
            value += cuda.shfl_up_sync(FULL, value, step)
            if t % 2 == 0:
                value += 1
        out[t] = value


@pytest.mark.parametrize("body", [first_warp, warp_by_number, middle_warps])
def test_neighbours_need_no_mask(body):
    out, text = launched(body)
    assert MASK not in text and "_any_" not in text
    changed = {"first_warp": slice(0, 32), "warp_by_number": slice(64, 96)}
    inside = changed.get(body.__name__, slice(32, 96))
    assert (out[inside] >= 0).all() and (np.delete(out, np.arange(THREADS)[inside]) == -1).all()


def every_other(x, out):
    t = cuda.threadIdx.x
    value = x[t]
    if t % 2 == 0:
        value += cuda.shfl_xor_sync(0x55555555, value, 2)
        out[t] = value


def half_a_warp(x, out):
    """A shuffle that reads ahead runs by whole warps."""
    t = cuda.threadIdx.x
    value = x[t]
    if t < 16:
        value += cuda.shfl_down_sync(0xFFFF, value, 1, 16)
        value += cuda.shfl_down_sync(0xFFFF, value, 0)
        out[t] = value


def by_value(x, out):
    t = cuda.threadIdx.x
    value = x[t - t]
    if value >= 0:
        value += cuda.shfl_xor_sync(FULL, value, 1)
        out[t] = value


def by_variable(x, out):
    """The condition's variable changes before it."""
    t = cuda.threadIdx.x
    at = t
    for _ in range(int(x[0]) + 1):
        at += 32
    value = x[t]
    if at < 32:
        value += cuda.shfl_xor_sync(FULL, value, 1)
        out[t] = value


def with_the_others(x, out):
    t = cuda.threadIdx.x
    value = x[t]
    if t < 32:
        value += cuda.shfl_xor_sync(FULL, value, 1)
    else:
        value -= cuda.shfl_xor_sync(FULL, value, 2)
    out[t] = value


def with_a_vote(x, out):
    t = cuda.threadIdx.x
    if t < 32 and cuda.any_sync(FULL, x[t] > 50):
        out[t] = cuda.popc(cuda.ballot_sync(FULL, x[t] > 50))


@pytest.mark.parametrize(
    "body",
    [every_other, half_a_warp, by_value, by_variable, with_the_others, with_a_vote],
)
def test_what_is_not_known_or_asked_for_keeps_its_mask(body):
    _, text = launched(body)
    assert "_s_active" in text


def test_blocks_of_rows_keep_their_mask():
    @cuda.jit
    def first_columns(x, out):
        tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
        value = x[ty, tx]
        if tx < 32:
            value += cuda.shfl_xor_sync(FULL, value, 1)
            out[ty, tx] = value

    x = np.arange(128, dtype=np.float32).reshape(2, 64)
    out = np.zeros_like(x)
    first_columns[1, (64, 2)](x, out)
    inside = x[:, :32]
    np.testing.assert_array_equal(
        out[:, :32], inside + inside.reshape(2, 16, 2)[:, :, ::-1].reshape(2, 32)
    )
    assert not out[:, 32:].any()
