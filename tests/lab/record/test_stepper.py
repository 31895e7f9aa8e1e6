"""The trace of a block: which threads execute a line together, what they read, write and hold."""

from __future__ import annotations

import numpy as np
import pytest

from kernels import cuda, lab
from kernels.lab.record import stepper
from kernels.support.errors import KernelError

f32 = np.float32


@cuda.jit(device=True)
def doubled(v):
    w = v * 2
    return w


@cuda.jit
def branches(x, out, n):
    i = cuda.grid(1)
    s = 0.0
    if i % 2 == 0:
        s = 1.0
    else:
        s = 2.0
    for k in range(i % 3):
        if k == 0:
            continue
        s += doubled(k)
    if i < n:
        out[i] = x[n - 1 - i] + s


@cuda.jit
def reverse_columns(x, out):
    tile = cuda.shared.array((32, 32), "float32")
    i, j = cuda.grid(2)
    tile[cuda.threadIdx.y, cuda.threadIdx.x] = x[j, i]
    cuda.syncthreads()
    out[j, i] = tile[cuda.threadIdx.x, cuda.threadIdx.y]


@cuda.jit
def counts(x, bins):
    cuda.atomic.add(bins, x[cuda.grid(1)], 1)


def line_of(kernel, text: str) -> int:
    import inspect

    lines, first = inspect.getsourcelines(kernel.py_func)
    return next(first + i for i, line in enumerate(lines) if text in line)


def steps_at(trace, line: int) -> list:
    return [step for step in trace.steps if step.place[1] == line]


def test_branches_and_loops_come_together_again():
    """Lanes of a branch are one step; all are together behind it; iterations do not mix."""
    n = 40
    x, out = np.arange(n, dtype=f32), np.zeros(n, f32)
    trace = lab.step(branches, 1, 64, x, out, n).trace
    (even,), (odd,) = (steps_at(trace, line_of(branches, text)) for text in ("s = 1.0", "s = 2.0"))
    assert even.threads == list(range(0, 64, 2))
    assert odd.threads == list(range(1, 64, 2))
    header = steps_at(trace, line_of(branches, "for k"))
    assert [len(step.threads) for step in header] == [64, 64 - 22, 21]
    (test,) = steps_at(trace, line_of(branches, "if i < n"))
    assert test.threads == list(range(64))
    (last,) = steps_at(trace, line_of(branches, "out[i]"))
    assert last.threads == list(range(n))
    body = steps_at(trace, line_of(doubled, "w = v * 2"))
    assert [step.threads for step in body] == [list(range(2, 64, 3))]
    assert all("doubled.w" in event.changes for event in body[0].events)


def test_accesses_and_values_are_those_of_the_launch():
    n = 40
    rng = np.random.default_rng(seed := 3)
    x, out = rng.random(n).astype(f32), np.zeros(n, f32)
    trace = lab.step(branches, 1, 64, x, out, n).trace
    assert not out.any(), "the arrays are copied"
    branches[1, 64](x, out, n)
    (last,) = steps_at(trace, line_of(branches, "out[i]"))
    for thread, event in zip(last.threads, last.events):
        load, store = event.touches
        assert (load.op, trace.arrays[load.array].name, load.index) == ("load", "x", n - 1 - thread)
        assert (store.op, trace.arrays[store.array].name, store.index) == ("store", "out", thread)
        assert store.value == out[thread], seed


def test_strided_arguments_keep_their_addresses():
    x = np.arange(64 * 64, dtype=f32).reshape(64, 64)[:32, 1:63:2].T.copy().T[:, ::-1][:, :31]
    wide = np.zeros((32, 64), f32)
    wide[:, :31] = x
    view = wide[:, 30::-1]
    out = np.zeros((31, 32), f32)

    @cuda.jit
    def take(a, b):
        i = cuda.grid(1)
        if i < 31:
            b[i, 3] = a[3, i]

    (store,) = [s for s in lab.step(take, 1, 32, view, out).trace.steps if s.events[0].touches]
    for i, event in enumerate(store.events):
        assert event.touches[0].index == 3 * 31 + i
        assert event.touches[1].value == view[3, i]


def test_barriers_part_the_epochs_and_shared_arrays_have_their_names():
    x, out = np.arange(1024, dtype=f32).reshape(32, 32), np.zeros((32, 32), f32)
    found = lab.step(reverse_columns, 1, (32, 32), x, out)
    (barrier,) = [step for step in found.trace.steps if step.barrier]
    assert barrier.barrier == "syncthreads"
    assert len(barrier.threads) == 1024
    assert {step.epoch for step in found.trace.steps} == {0, 1}
    assert [(a.name, a.space) for a in found.trace.arrays] == [
        ("x", "global"),
        ("out", "global"),
        ("tile", "shared"),
    ]


def test_an_atomic_is_one_access_with_what_it_left():
    x, bins = np.array([1, 0, 1, 1], np.int32), np.zeros(2, np.int32)
    (step,) = [s for s in lab.step(counts, 1, 4, x, bins).trace.steps if s.events[0].touches]
    assert [[touch.op for touch in event.touches] for event in step.events] == 4 * [
        ["load", "atomic"]
    ]
    assert [event.touches[1].value for event in step.events] == [1, 1, 2, 3]


def test_a_kernel_that_fails_is_traced_up_to_there():
    @cuda.jit
    def outside(x):
        i = cuda.grid(1)
        x[i] = i

    with pytest.raises(IndexError):
        lab.step(outside, 1, 8, np.zeros(4))
    trace = stepper.trace(outside, 1, 8, (np.zeros(4),), 0, (0, 0, 0), 1000)
    assert "outside its shape (4,)" in trace.error
    assert trace.steps[-1].place[1] == line_of(outside, "x[i] = i")

    @cuda.jit
    def divergent(x):
        if cuda.threadIdx.x < 3:
            cuda.syncthreads()
        x[0] = 1.0

    with pytest.raises(KernelError):
        lab.step(divergent, 1, 8, np.zeros(4))
    assert "divergent" in stepper.trace(divergent, 1, 8, (np.zeros(4),), 0, (0,), 1000).error


def test_long_runs_are_cut_and_say_so():
    @cuda.jit
    def long(x):
        for k in range(1000):
            x[cuda.threadIdx.x] += k

    trace = stepper.trace(long, 1, 4, (np.zeros(4),), 0, (0,), 400)
    assert trace.cut
    assert sum(len(step.threads) for step in trace.steps) == 400
