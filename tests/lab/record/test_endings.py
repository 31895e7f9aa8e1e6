"""What ends a run under the recorder: Ctrl-C, a loop without an end, what cannot be compiled."""

from __future__ import annotations

import signal
import threading
import time

import numpy as np
import pytest
from numba import float32

from kernels import cuda, lab, raw_kernel
from kernels.lab.report.hints import c_loop, endless_loop, guard_hint
from kernels.support.errors import CompileError


@cuda.jit
def long(x):
    i = cuda.grid(1)
    for _ in range(1 << 40):
        for j in range(x.size):
            x[i] += x[j]


@cuda.jit
def add_one(x):
    x[cuda.grid(1)] += float32(1)


LONG_C = """
__global__ void long_c(float* x) {
    for (long long k = 0; k < 1ll << 40; ++k) x[threadIdx.x] += k;
}"""


def interrupted_after(seconds: float, kernel) -> float:
    """Seconds from Ctrl-C until the profile of a kernel that runs for years has ended."""
    sent: list[float] = []

    def interrupt():
        sent.append(time.monotonic())
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    timer = threading.Timer(seconds, interrupt)
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        lab.profile(kernel, 2, 64, np.zeros(64, np.float32))
    return time.monotonic() - sent[0]


@pytest.mark.parametrize("dialect", ["numba", "cuda_c"])
def test_an_interrupt_ends_a_run_and_the_next_works(dialect, monkeypatch):
    kernel = long if dialect == "numba" else raw_kernel(LONG_C, "long_c")
    monkeypatch.setattr("kernels.lab.record.cuda_c_profiler.MAX_STEPS", 1 << 60)
    interrupted_after(4, kernel)  # it is compiled by then
    assert interrupted_after(0.5, kernel) < 1
    x = np.zeros(64, np.float32)
    assert not lab.profile(add_one, 1, 64, x).findings and (x == 1).all()


def test_what_does_not_compile_is_explained_as_a_launch_does():
    @cuda.jit
    def allocates(x):
        y = x + 1
        x[cuda.grid(1)] = y[0]

    with pytest.raises(CompileError, match="a kernel cannot allocate memory"):
        lab.profile(allocates, 1, 32, np.zeros(32, np.float32))


@pytest.mark.parametrize(
    ("source", "index", "hint"),
    [
        ("out[t] = x[t]", 70, "`if t < out.shape[0]:`"),
        ("out[x.size - t] = 1", 70, "`x.size - t` must be less than out.shape[0]"),
        ("out[t - 1] = 1", -1, "`if t - 1 >= 0:`"),
        ("cuda.atomic.add(out, x[t], 1)", 70, "`x[t]` must be less than out.shape[0]"),
        ("total += row[t] +", 70, "its index must be less than out.shape[0]"),
    ],
)
def test_a_guard_is_written_with_the_kernels_own_names(source, index, hint):
    assert hint in guard_hint("out", 0, index, f"    {source}")


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["while (k < n) {", "x[i] += 1;"], "does `k` change?"),
        (["while (k < n) {", "k -= 1;"], "does `k` change in the right direction?"),
        (["for (int k = 0; k < n; j++) {", "x[j] = 1;"], "does `k` change?"),
        (["while (true) {", "x[j] = 1;"], "is its `break` ever reached?"),
        (["x[j] = 1;", "y = 2;"], "this thread does not end"),
    ],
)
def test_endless_loops_of_cuda_c(lines, message):
    assert message in endless_loop(c_loop(lines, 2))[0]
