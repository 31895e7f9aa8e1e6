"""A warp that keeps what lane 0 adds up: each step runs for the lanes that the next one reads."""

from __future__ import annotations

import numpy as np
import pytest

from kernels.simt import cuda

FULL = 0xFFFFFFFF
ROWS = 4


def launched(body) -> tuple[np.ndarray, str]:
    """What a kernel makes of an array, in both modes the same, and its plain code."""
    x = np.random.default_rng(0).integers(0, 100, (ROWS, 32)).astype(np.float32)
    results, text = [], ""
    for debug in (True, False):
        out, kernel = np.full((ROWS, 32), -1, np.float32), cuda.jit(body, debug=debug)
        kernel[1, (32, ROWS)](x, out)
        results.append(out)
        text = kernel.inspect_cpu()
    np.testing.assert_array_equal(*results)
    return results[0], text


def lanes(text: str) -> list[int]:
    """How many lanes each loop over the threads of a row takes."""
    loops = [line.strip() for line in text.splitlines() if "for _tx in range(" in line]
    ends = [loop.removeprefix("for _tx in range(").removesuffix("):") for loop in loops]
    return [int(end.rpartition(", ")[2].strip("()")) for end in ends if end[-1].isdigit()]


def total_of_a_warp(x, out):
    t, row = cuda.threadIdx.x, cuda.threadIdx.y
    value = x[row, t]
    value += cuda.shfl_down_sync(FULL, value, 16)
    value += cuda.shfl_down_sync(FULL, value, 8)
    value += cuda.shfl_down_sync(FULL, value, 4)
    value += cuda.shfl_down_sync(FULL, value, 2)
    value += cuda.shfl_down_sync(FULL, value, 1)
    if t == 0 and row < 3:
        out[row, t] = value


def first_lanes(x, out):
    """Two values, of which one is needed further than the other."""
    t, row = cuda.threadIdx.x, cuda.threadIdx.y
    value = x[row, t]
    ahead = cuda.shfl_down_sync(FULL, value, 5)
    both = value * ahead
    last = cuda.shfl_down_sync(FULL, both, 3)
    if t < 6:
        out[row, t] = last - value


def test_steps_of_a_sum_run_for_the_lanes_that_are_read():
    out, text = launched(total_of_a_warp)
    x = np.random.default_rng(0).integers(0, 100, (ROWS, 32)).astype(np.float32)
    np.testing.assert_array_equal(out[:3, 0], x[:3].sum(1))
    assert (out[3] == -1).all() and (out[:, 1:] == -1).all()
    assert {16, 8, 4, 2, 1} <= set(lanes(text)) and lanes(text).count(32) == 1


def test_values_are_kept_for_the_lanes_of_their_last_reader():
    out, text = launched(first_lanes)
    assert (out[:, 6:] == -1).all() and (out[:, :6] != -1).any()
    assert set(lanes(text)) == {6, 9, 14}


def every_lane(x, out):
    t, row = cuda.threadIdx.x, cuda.threadIdx.y
    value = x[row, t] + cuda.shfl_down_sync(FULL, x[row, t], 16)
    value += cuda.shfl_down_sync(FULL, value, 8)
    out[row, t] = value


def in_a_loop(x, out):
    t, row = cuda.threadIdx.x, cuda.threadIdx.y
    value = x[row, t]
    for step in range(int(x[0, 0]) % 3 + 2):
        value += cuda.shfl_down_sync(FULL, value, step)
    if t == 0:
        out[row, t] = value


def with_an_else(x, out):
    t, row = cuda.threadIdx.x, cuda.threadIdx.y
    value = x[row, t] + cuda.shfl_down_sync(FULL, x[row, t], 16)
    if t == 0:
        out[row, 0] = value
    else:
        out[row, t] = -value


def by_the_value(x, out):
    """Which lanes store is not known before."""
    t, row = cuda.threadIdx.x, cuda.threadIdx.y
    value = x[row, t] + cuda.shfl_down_sync(FULL, x[row, t], 16)
    if value > 100:
        out[row, t] = value


@pytest.mark.parametrize("body", [every_lane, in_a_loop, with_an_else, by_the_value])
def test_where_other_lanes_are_read_all_run(body):
    _, text = launched(body)
    assert set(lanes(text)) == {32} or body is in_a_loop


def test_the_last_lanes_read_their_own_value():
    """A distance beyond the warp's end, of lanes that are needed."""

    def beyond(x, out):
        t, row = cuda.threadIdx.x, cuda.threadIdx.y
        value = x[row, t] + cuda.shfl_down_sync(FULL, x[row, t], 20)
        if t < 17:
            out[row, t] = value

    out, _ = launched(beyond)
    x = np.random.default_rng(0).integers(0, 100, (ROWS, 32)).astype(np.float32)
    np.testing.assert_array_equal(out[:, 12:17], 2 * x[:, 12:17])


def test_a_guard_that_is_known_needs_no_second_loop():
    """`t < 16`: the loop ends at 16, and there is none for whole rows."""

    def half(x, out):
        t, row = cuda.threadIdx.x, cuda.threadIdx.y
        if t < 16:
            out[row, t] = x[row, t + 16]

    out, text = launched(half)
    assert (out[:, 16:] == -1).all() and (out[:, :16] != -1).all()
    assert lanes(text) == [16] and "_hi" not in text
