"""Loops that count by hand run as those over a `range`, where they do the same."""

from __future__ import annotations

import numpy as np
import pytest

from kernels.simt import cuda
from tests.simt.plans import beside_checked

T = 8  # threads of a block


def counted(kernel) -> int:
    """How many loops the pass has made."""
    passes = kernel.inspect_passes()
    before, after = passes["normal form"], passes["counted loops"]
    return 0 if after == "(nothing changes)" else before.count("while ") - after.count("while ")


def run(function, *arrays, n=29):
    """The kernel, whose results are those of the checked mode, which leaves loops as they are."""
    fast, checked = beside_checked(function, (3, T), *arrays, n)
    assert not counted(checked)
    return fast


def numbers(size=29):
    return np.random.default_rng(3).integers(-9, 10, size)


def grid_stride(x, out, n):
    i = cuda.grid(1)
    while i < n:
        out[i] = x[i] * 2
        i += cuda.gridsize(1)


def stride_of_a_variable(x, out, n):
    i = cuda.threadIdx.x + cuda.blockIdx.x * cuda.blockDim.x
    stride = cuda.blockDim.x * cuda.gridDim.x
    while x.size > i:
        out[i] = x[i] + 1
        i = stride + i


def the_last_one_too(x, out, n):
    i = cuda.grid(1)
    while i <= n - 1:
        out[i] = -x[i]
        i += cuda.gridsize(1)


def the_counter_later(x, out, n):
    i = cuda.grid(1)
    while i < n // 2:
        out[i] = x[i]
        i += cuda.gridsize(1)
    while i < n:
        out[i] = 100 * i
        i += cuda.gridsize(1)


def loops_inside_of_a_loop(x, out, n):
    t = cuda.threadIdx.x
    row = cuda.blockIdx.x
    while row < 5:  # left to the blocks
        j = t
        total = 0
        while j < n:
            total += x[j] * row
            j += 3
        cuda.atomic.add(out, row, total)
        row += cuda.gridDim.x


def an_inner_counter_that_goes_on(x, out, n):
    i = cuda.grid(1)
    for k in range(3):
        while i < 9 * k:
            out[i] = x[i] + k
            i += cuda.gridsize(1)


def barriers(x, out, n):
    s = cuda.shared.array(T, np.int64)
    t = cuda.threadIdx.x
    k = 0
    total = 0
    while k < n:
        s[t] = x[k + t] if k + t < n else 0
        cuda.syncthreads()
        for q in range(T):
            total += s[q] * (q + t)
        cuda.syncthreads()
        k += T
    if cuda.blockIdx.x == 0:
        out[t] = total


def a_break(x, out, n):
    i = cuda.grid(1)
    while i < n:
        if x[i] == 7:
            break
        out[i] = 1
        i += cuda.gridsize(1)


def a_return(x, out, n):
    i = cuda.grid(1)
    while i < n:
        if x[i] > 5:
            return
        out[i] = 1
        i += cuda.gridsize(1)


@pytest.mark.parametrize(
    "function, loops",
    [
        (grid_stride, 1),
        (stride_of_a_variable, 1),
        (the_last_one_too, 1),
        (the_counter_later, 2),
        (loops_inside_of_a_loop, 1),
        (an_inner_counter_that_goes_on, 1),
        (barriers, 1),
        (a_break, 1),
        (a_return, 1),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
@pytest.mark.parametrize("n", [29, 0, 1, 24, 25])
def test_counted(function, loops, n):
    x = numbers()
    kernel = run(function, x, np.zeros(40, np.int64), n=min(n, x.size))
    assert counted(kernel) == loops


def a_bound_that_changes(x, out, n):
    i = cuda.grid(1)
    while i < n:
        out[i] = x[i]
        n -= 1
        i += cuda.gridsize(1)


def a_bound_in_memory(x, out, n):
    i = cuda.threadIdx.x
    while i < x[0] + 20:
        out[i] += 1
        i += T


def a_step_that_changes(x, out, n):
    i, step = cuda.grid(1), 1
    while i < n:
        cuda.atomic.add(out, i, 1)
        step = step + 1
        i += step


def a_step_of_unknown_sign(x, out, n):
    i = cuda.grid(1)
    step = n - 20
    while i < n:
        cuda.atomic.add(out, i, 1)
        i += step


def a_step_that_is_given(x, out, n):
    i = cuda.grid(1)
    while i < 40:
        cuda.atomic.add(out, i, 1)
        i += n
    n = 1
    out[0] = n


def a_step_in_the_middle(x, out, n):
    i = cuda.grid(1)
    while i < n:
        i += cuda.gridsize(1)
        out[i] = 1


def two_steps(x, out, n):
    i = cuda.grid(1)
    while i < n:
        cuda.atomic.add(out, i, 1)
        if x[i] > 0:
            i += 1
        i += 2


def a_step_that_is_left_out(x, out, n):
    i, tries = cuda.grid(1), 0
    while i < n:
        tries += 1
        if tries % 2 and tries < 9:
            continue
        cuda.atomic.add(out, i, 1)
        i += cuda.gridsize(1)


def a_break_whose_counter_is_read(x, out, n):
    i = cuda.grid(1)
    while i < n:
        if x[i] == 7:
            break
        i += cuda.gridsize(1)
    cuda.atomic.add(out, i % 8, 1)


def a_fraction(x, out, n):
    i = cuda.grid(1) * 1.5
    while i < n:
        cuda.atomic.add(out, int(i), 1)
        i += 3


def another_condition(x, out, n):
    i = cuda.grid(1)
    while i < n and x[i] != 7:
        out[i] = 1
        i += cuda.gridsize(1)


@pytest.mark.parametrize(
    "function",
    [
        a_bound_that_changes,
        a_bound_in_memory,
        a_step_that_changes,
        a_step_of_unknown_sign,
        a_step_that_is_given,
        a_step_in_the_middle,
        two_steps,
        a_step_that_is_left_out,
        a_break_whose_counter_is_read,
        a_fraction,
        another_condition,
    ],
    ids=lambda function: function.__name__,
)
def test_left_as_they_are(function):
    assert not counted(run(function, numbers(), np.zeros(80, np.int64)))


@pytest.mark.parametrize("kind", [np.int32, np.uint32, np.int64, np.uint64, np.float32])
def test_the_type_of_a_bound(kind):
    def kernel(x, out, n):
        i = cuda.grid(1)
        while i < n:
            out[i] = x[i]
            i += cuda.gridsize(1)

    loops = counted(run(kernel, numbers(), np.zeros(40, np.int64), n=kind(25)))
    assert loops == (kind not in (np.uint64, np.float32))


def test_a_counter_from_memory():
    def kernel(first, out, n):
        i = first[cuda.grid(1)]
        while i < n:
            cuda.atomic.add(out, int(i), 1)
            i += 3

    first = np.arange(24)
    assert counted(run(kernel, first, np.zeros(40, np.int64))) == 1
    assert counted(run(kernel, first.astype(np.float64), np.zeros(40, np.int64))) == 0
