"""Ctrl-C ends a launch or a compilation within a second, and the next call works.

The signal goes to a child process, which says when it is about to begin what does not end.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest

CHILD = """
import os, signal, sys, threading, time
signal.signal(signal.SIGINT, signal.default_int_handler)
import numpy as np
from kernels import lab, raw_kernel
from kernels.support import thread_pool

CODE = '''
#include <cooperative_groups.h>
__global__ void endless(float* x) { while (x[0] == 0) x[1] += 1; }
__global__ void empty(float* x) { while (true) {} }
__global__ void maths(float* x) { while (x[0] == 0) x[1] = sinf(x[1] + powf(x[2], 1.5f)); }
__global__ void flag(volatile float* x) {
    if (blockIdx.x == 0) while (x[0] == 0) {}
    else x[0] = 1;
}
__global__ void lock(int* x) { while (atomicCAS(x, 7, 1) != 7) {} }
__global__ void sleeps(float* x) { while (x[0] == 0) __nanosleep(100); }
__global__ void barriers(float* x) { while (x[0] == 0) __syncthreads(); }
__global__ void shuffles(float* x) { while (x[0] == 0) x[1] = __shfl_xor_sync(~0u, x[1], 1); }
__global__ void grid(float* x) { while (x[0] == 0) cooperative_groups::this_grid().sync(); }
__global__ void hours(float* x) {
    for (int i = 0; i < 1 << 20; ++i)
        for (int j = 0; j < 1 << 20; ++j) x[1] += x[0] * j;
}
__global__ void last(float* x) { if (blockIdx.x == 99) while (x[0] == 0) x[1] += 1; }
__global__ void fine(float* x) { x[threadIdx.x] = threadIdx.x; }
'''

def launch(name, grid, block, debug, wide=False, dtype=np.float32):
    x = np.zeros(64, dtype)
    kernel = raw_kernel(CODE, name, debug=debug, enable_cooperative_groups=name == "grid")
    if name == "lock" or wide:  # the first launch is short
        thread_pool.set_num_threads(3)
        kernel.compile()
        kernel.module.on_cpu().kernel(name).seconds_a_block = 1.0
    else:
        kernel.compile()
    ready()
    kernel((grid,), (block,), (x,))

def compile():
    slow = "template <int N> struct F { static const unsigned v = F<N - 1>::v + F<N - 2>::v; };"
    slow += "template <> struct F<0> { static const unsigned v = 1; };"
    slow += "template <> struct F<1> { static const unsigned v = 1; };"
    slow += "template <int N> __device__ double f(double x) { return sin(x + F<N>::v) * f<N-1>(x);}"
    slow += "template <> double f<0>(double x) { return x; }"
    slow += f"/* {time.time()} */ __global__ void k(double* x) {{ *x = f<850>(*x); }}"
    ready()
    raw_kernel(slow, "k").compile()

def profile():  # a profile itself ends a loop that spins on a value
    lab.profile(raw_kernel(CODE, "fine"), 1, 32, np.zeros(64, np.float32))
    ready()
    lab.profile(raw_kernel(CODE, "hours"), 1, 32, np.zeros(64, np.float32))

def in_a_thread():
    ended = threading.Event()
    def run():
        try:
            launch("endless", 1, 32, None)
        except KeyboardInterrupt:
            ended.set()
    threading.Thread(target=run, daemon=True).start()
    try:
        time.sleep(60)
    except KeyboardInterrupt:
        assert ended.wait(0.7)
        raise

def ready():
    raw_kernel(CODE, "fine").compile()
    print("ready", flush=True)

for turn in range(2):  # the next call, interrupted too
    try:
        CALL
    except KeyboardInterrupt:
        pass
    else:
        sys.exit("it ended before the interrupt")
    x = np.zeros(64, np.float32)
    raw_kernel(CODE, "fine")((1,), (64,), (x,))
    assert (x == np.arange(64)).all()
    assert len(threading.enumerate()) <= 4
    print("fine", flush=True)
"""


def interrupted(call: str, wait: float = 0.15) -> None:
    """Interrupts the call twice; both times it must end within a second."""
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD.replace("CALL", call)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        for _ in range(2):
            assert child.stdout.readline() == "ready\n", child.stderr.read()
            time.sleep(wait)
            began = time.monotonic()
            child.send_signal(signal.SIGINT)
            told = child.stdout.readline()
            assert told == "fine\n", child.stderr.read()
            assert time.monotonic() - began < 1
        _, messages = child.communicate(timeout=20)
        assert child.returncode == 0, messages
    finally:
        child.kill()
        child.wait()


@pytest.mark.parametrize("debug", [None, False])
@pytest.mark.parametrize("kernel", ["endless", "empty", "maths", "sleeps", "barriers", "shuffles"])
def test_kernels_that_do_not_end(kernel, debug):
    interrupted(f'launch("{kernel}", 1, 32, {debug})')


@pytest.mark.parametrize("debug", [None, False])
def test_a_block_that_waits_for_another(debug):
    interrupted(f'launch("flag", 2, 1, {debug})')
    interrupted(f'launch("lock", 2, 32, {debug}, dtype=np.int32)')


def test_a_grid_that_does_not_end():
    interrupted('launch("grid", 3, 32, None)')


@pytest.mark.parametrize("kernel", ["endless", "last"])
def test_on_several_os_threads(kernel):
    interrupted(f'launch("{kernel}", 100, 8, None, wide=True)')
    interrupted(f'launch("{kernel}", 100, 8, False, wide=True)')


def test_in_another_python_thread():
    interrupted("in_a_thread()")


def test_a_compilation():
    interrupted("compile()", wait=0.4)


def test_a_profile():
    interrupted("profile()", wait=0.3)
