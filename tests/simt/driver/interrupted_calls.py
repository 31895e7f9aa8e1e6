"""The calls that it is given, which are interrupted: `test_interrupt` starts this program."""

import contextlib
import importlib
import os
import signal
import sys
import time

import numpy as np

import kernels
from kernels import cuda
from kernels.simt.backend import helpers, sharing
from kernels.support import thread_pool

signal.signal(signal.SIGINT, signal.default_int_handler)


@cuda.jit(device=True)
def never(x, limit):
    while True:
        if x[0] == limit:
            return x[1]
        x[1] += 1


@cuda.jit
def no_increment(x):
    i = cuda.grid(1)
    while i < x.size:
        x[i] += 1


@cuda.jit(debug=True)
def checked(x):
    i = cuda.grid(1)
    while i < x.size:
        x[i] += 1


@cuda.jit(debug=False)
def unchecked(x):
    i = cuda.grid(1)
    while i < x.size:
        x[i] += 1


@cuda.jit(debug=False)
def unchecked_for(x, n):
    s = 0.0
    for k in range(n):
        s += x[k * k % x.size]
    x[cuda.grid(1)] = s


@cuda.jit
def barriers(x):
    while x.size > 0:
        cuda.syncthreads()
        x[cuda.threadIdx.x] += 1


@cuda.jit
def threads_disagree(x):
    i = cuda.threadIdx.x
    while i < 100:
        x[i] += cuda.shfl_xor_sync(0xFFFFFFFF, x[i], 1)


@cuda.jit
def long_for(x, n):
    s = 0.0
    for k in range(n):
        s += x[k * k % x.size]
    x[cuda.grid(1)] = s


@cuda.jit
def function(x):
    x[cuda.grid(1)] = never(x, -1)


@cuda.jit
def grid(x):
    while x.size > 0:
        cuda.cg.this_grid().sync()
        x[cuda.grid(1)] += 1


@cuda.jit(debug=False)
def other_block(x):
    """The first block ends when the second, which does not end, has begun."""
    if cuda.blockIdx.x == 0:
        while cuda.atomic.add(x, 0, 0) == 0:
            pass
    else:
        cuda.atomic.add(x, 0, 1)
        while x[1] == 0:
            for _ in range(1000):
                x[2] += 1


@cuda.jit
def fine(x):
    i = cuda.grid(1)
    while i < x.size:
        x[i] = i
        i += cuda.gridsize(1)


def launch(kernel, *args, blocks=2, threads=1):
    thread_pool.set_num_threads(threads)
    x = np.zeros(4096)
    for _ in range(2 * (threads > 1)):  # starts the helpers
        fine[32, 32]._cost = 10**9  # nanoseconds: worth several OS threads
        fine[32, 32](x)
    x[:] = 0
    helpers.pool()[sharing.SKIP] = 0
    kernel.specialise((32, 1, 1), (x, *args))
    kernel[blocks, 32]._cost = 10**9
    ready()
    kernel[blocks, 32](x, *args)


def matmul(threads):
    thread_pool.set_num_threads(threads)
    a = np.ones((8192, 8192), np.float32)
    kernels.matmul(a[:512, :512].copy(), a[:512, :512].copy())
    ready()
    kernels.matmul(a, a)


def small_launches():
    x = np.zeros(100, np.float32)
    kernels.exp(x)
    ready()
    while True:
        kernels.exp(x)


def generated(name, lines):
    """A kernel that no cache has."""
    text = [f"    x[{i}] = x[{i + 1}] * {time.time()} + math.sin(x[{i}])" for i in range(lines)]
    with open(os.path.join(os.environ["FOLDER"], f"{name}.py"), "w") as file:
        file.write("import math\nfrom kernels import cuda\n@cuda.jit\ndef k(x):\n")
        file.write("\n".join(text))
    return importlib.import_module(name).k


def compilation():
    sys.path.insert(0, os.environ["FOLDER"])
    x = np.zeros(4096)
    generated("small", 1)[1, 1](x)  # imports Numba, which is done as a whole
    kernel = generated("large", 800)
    ready()
    kernel[1, 1](x)


def handler_that_returns():
    seen = []
    before = signal.signal(signal.SIGINT, lambda *_: seen.append(1))
    x = np.ones(4096)
    long_for.specialise((32, 1, 1), (x, 1))
    ready()
    long_for[1, 1](x, 600_000_000)
    assert seen == [1] and x[0] == 600_000_000, (seen, x[0])
    signal.signal(signal.SIGINT, before)


def own_exception():
    def end(number, frame):
        raise TimeoutError("enough")

    before = signal.signal(signal.SIGINT, end)
    try:
        launch(no_increment)
    except TimeoutError as error:
        assert str(error) == "enough"
    signal.signal(signal.SIGINT, before)


def ready():
    fine.specialise((32, 1, 1), (np.zeros(100),))
    print("ready", flush=True)


CALLS = {
    "no_increment": lambda: launch(no_increment),
    "checked": lambda: launch(checked),
    "unchecked": lambda: launch(unchecked, blocks=1),
    "unchecked_for": lambda: launch(unchecked_for, 10**12, blocks=1),
    "barriers": lambda: launch(barriers),
    "threads_disagree": lambda: launch(threads_disagree),
    "function": lambda: launch(function),
    "grid": lambda: launch(grid),
    "long_for": lambda: launch(long_for, 10**12),
    "no_increment, 3 threads": lambda: launch(no_increment, blocks=50, threads=3),
    "checked, 3 threads": lambda: launch(checked, blocks=50, threads=3),
    "barriers, 3 threads": lambda: launch(barriers, blocks=50, threads=3),
    "other_block, 3 threads": lambda: launch(other_block, threads=3),
    "matmul": lambda: matmul(1),
    "matmul, 2 threads": lambda: matmul(2),
    "small_launches": small_launches,
    "compilation": compilation,
    "own_exception": own_exception,
    "handler_that_returns": handler_that_returns,
}

for name in sys.argv[1:]:
    with contextlib.suppress(KeyboardInterrupt):
        CALLS[name]()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    x = np.zeros(100)
    fine[2, 32](x)
    assert (x == np.arange(100)).all()
    print("fine", flush=True)
