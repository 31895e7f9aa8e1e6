"""Launches whose blocks several OS threads share: values, errors, forks, launches meanwhile."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from kernels import cuda
from kernels.simt.backend import helpers, sharing
from kernels.support import thread_pool
from kernels.support.errors import KernelIndexError

LONG = 10**9  # nanoseconds


@cuda.jit
def steps(x, n):
    i = cuda.grid(1)
    if i < x.size:
        for _ in range(n):
            x[i] += 1


@cuda.jit
def owners(x, blocks):
    """Each block counts how often it runs."""
    if cuda.threadIdx.x == 0:
        cuda.atomic.add(x, cuda.blockIdx.x, 1)
        blocks[cuda.blockIdx.x] = cuda.blockIdx.x


@cuda.jit
def beyond(x, last):
    i = cuda.grid(1)
    x[i if cuda.blockIdx.x != last else i + x.size] = i


@pytest.fixture(autouse=True)
def three_threads(monkeypatch):
    monkeypatch.setattr(thread_pool.wanted, "value", 3)


def shared(kernel, blocks, *args, threads=32):
    """Launch, and share it whatever it takes."""
    launcher = kernel[blocks, threads]
    for _ in range(2):  # the first may lack helpers
        launcher._cost = LONG
        helpers.pool()[sharing.SKIP] = 0
        launcher(*args)
    return launcher


def helped() -> int:
    """How many helpers have run."""
    return int(helpers.pool()[sharing.STARTED])


@pytest.mark.parametrize("cost", [LONG // 1000, LONG])  # quarters are kept, or not
@pytest.mark.parametrize("blocks", [2, 3, 11, 12, 13, 100, 1001, 100_000])
def test_each_block_runs_once(blocks, cost):
    x, numbers = np.zeros(blocks, np.int32), np.full(blocks, -1)
    for turn in range(1, 6):
        owners[blocks, 32]._cost = cost
        owners[blocks, 32](x, numbers)
        assert (x == turn).all() and (numbers == np.arange(blocks)).all()
    assert helped() >= min(2, blocks - 1)


def test_ranges_of_one_launch_after_the_other(monkeypatch):
    """More threads than processors, launches of other sizes at once after each other."""
    rng = np.random.default_rng(0)
    for threads, blocks in itertools.product((2, 3, 8), (2, 5, 17, 1000)):
        monkeypatch.setattr(thread_pool.wanted, "value", threads)
        ran, turns = np.zeros(blocks * 32), int(rng.integers(100, 200))
        for _ in range(turns):
            helpers.pool()[sharing.SKIP] = 0
            steps[blocks, 32]._cost = LONG
            steps[blocks, 32](ran, 1)
        assert (ran == turns).all()


@cuda.jit
def turns(x, order, counter, n):
    """Each block notes when it ran, then takes its time."""
    i = cuda.blockIdx.x
    if cuda.threadIdx.x == 0:
        order[i] = cuda.atomic.add(counter, 0, 1)
    for _ in range(n):
        x[i, cuda.threadIdx.x] = x[i, cuda.threadIdx.x] * 0.5 + 1


def test_threads_begin_with_their_own_part(monkeypatch):
    """The second of two threads does not take the blocks that follow those of the first one."""
    monkeypatch.setattr(thread_pool.wanted, "value", 2)
    x, order = np.zeros((64, 32)), np.zeros(64, np.int64)
    found = []
    for _ in range(20):  # a helper may come late
        shared(turns, 64, x, order, np.zeros(1, np.int64), 20_000)
        found.append(int(order[32]) - 64)  # the second launch
        if found[-1] < 16 and (np.diff(order[:16]) > 0).all():
            return
    pytest.fail(f"block 32 of 64 ran as number {found}")


def test_several_threads_take_part():
    """Blocks that wait for another one end only if somebody else runs that."""

    @cuda.jit
    def meet(x):
        if cuda.blockIdx.x == 0:
            while cuda.atomic.add(x, 0, 0) == 0:
                pass
        else:
            cuda.atomic.add(x, 0, 1)

    x = np.zeros(1, np.int32)
    shared(steps, 4, np.zeros(128), 1)
    meet.specialise((1, 1, 1), (x,))
    for _ in range(20):
        x[:] = 0
        helpers.pool()[sharing.SKIP] = 0
        meet[2, 1]._cost = LONG
        meet[2, 1](x)
        assert x[0] == 1


def test_the_cost_is_measured_and_decides():
    x, pool, launcher = np.zeros(64 * 64, np.float32), helpers.pool(), steps[64, 64]

    def cost(n: int) -> int:
        launcher(x, n)
        return launcher._cost

    assert min(cost(1) for _ in range(20)) < sharing.SHARE  # on a machine of any load
    shared(steps, 4, np.zeros(128), 1)
    for n in (1, 100_000):
        assert cost(100_000) > sharing.SHARE
        pool[sharing.SKIP] = pool[sharing.CODE] = 0
        cost(n)  # after a long one
        assert pool[sharing.CODE] != 0
    assert min(cost(1) for _ in range(20)) < sharing.SHARE
    launcher._cost = pool[sharing.CODE] = 0
    cost(1)
    assert pool[sharing.CODE] == 0


def test_errors_of_one_block_end_the_launch():
    x = np.zeros(32 * 500, np.int64)
    for last in (0, 250, 499):
        with pytest.raises(KernelIndexError, match="index"):
            shared(beyond, 500, x, last)
    shared(beyond, 500, x, -1)
    assert (x == np.arange(x.size)).all()


def test_one_thread_again(monkeypatch):
    x = np.zeros(3200)
    shared(steps, 100, x, 2)
    for count in (1, 2, 7, 1):
        monkeypatch.setattr(thread_pool.wanted, "value", count)
        shared(steps, 100, x, 1)
        assert helped() >= count - 1
    assert (x == 2 * 2 + 4 * 2).all()


def test_python_threads_launch_at_once():
    arrays = [np.zeros(32 * n) for n in range(20, 28)]

    def work(x):
        launcher = steps.configure(x.size // 32, 32)
        for _ in range(300):
            launcher._cost = LONG
            launcher(x, 5)

    threads = [threading.Thread(target=work, args=(x,)) for x in arrays]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all((x == 1500).all() for x in arrays)


def test_helpers_that_do_not_look_but_sleep(monkeypatch):
    """As where there are more threads than processors."""
    shared(steps, 4, np.zeros(128), 1)
    patience = helpers.pool()[sharing.PATIENCE]
    helpers.pool()[sharing.PATIENCE] = 0
    try:
        test_python_threads_launch_at_once()
        test_each_block_runs_once(100, LONG)
    finally:
        helpers.pool()[sharing.PATIENCE] = patience


def test_launches_run_alone_after_a_late_helper():
    """The second block takes ten times as long: its helper seems to have lost its processor."""

    @cuda.jit(debug=False)
    def uneven(x, n):
        for _ in range(n if cuda.blockIdx.x > 0 else n // 10):
            x[cuda.blockIdx.x] += 1

    x, pool = np.zeros(2), helpers.pool()
    pool[sharing.PENALTY] = 0
    uneven.specialise((1, 1, 1), (x, 1))
    shared(steps, 4, np.zeros(128), 1)
    launcher = uneven[2, 1]

    def launch(n: int) -> int:
        launcher._cost = LONG
        launcher(x, n)
        return int(pool[sharing.SKIP])

    for _ in range(50):
        if launch(1_000_000):
            break
    else:
        pytest.skip("no helper got a processor")
    until = launch(1)  # alone, so that nothing changes
    assert until == launch(1) and 0 < until - time.monotonic_ns() <= pool[sharing.PENALTY]
    pool[sharing.SKIP] = 0


def test_quarters_are_kept_unless_helpers_are_slower(monkeypatch):
    @cuda.jit(debug=False)
    def uneven(x, n):
        for _ in range(n if cuda.blockIdx.x >= 32 else n // 4):
            x[cuda.blockIdx.x] += 1

    monkeypatch.setattr(thread_pool.wanted, "value", 2)
    x, pool = np.zeros(64), helpers.pool()
    uneven.specialise((1, 1, 1), (x, 1))
    shared(steps, 4, np.zeros(128), 1)
    launcher = uneven[64, 1]

    def kept(cost: int = LONG // 1000, n: int = 10_000) -> tuple[int, int]:
        pool[sharing.SKIP], launcher._cost = 0, cost
        launcher(x, n)
        return int(pool[sharing.KEPT]), int(pool[sharing.UNEVEN])

    pool[sharing.UNEVEN] = 0
    assert kept()[0] == 8  # of the 32 of each thread
    assert kept(LONG)[0] == kept(LONG // 20_000)[0] == 0
    numbers = [int(pool[sharing.UNEVEN])]
    found = [kept() for _ in range(200)]
    if not any(number > 1 for _, number in found):
        pytest.skip("no helper got a processor")
    numbers += [number for _, number in found]
    for (blocks, number), before in zip(found, numbers):
        assert blocks == (0 if before >= 8 else 8)
        assert number == before + 1 or (number == 0 and (before < 8 or before == 72))
    pool[sharing.UNEVEN] = 0


STEPS = """
import os, sys
import numpy as np
from kernels import cuda
from kernels.simt.backend import helpers, sharing
from kernels.support import thread_pool

@cuda.jit
def steps(x, n):
    i = cuda.grid(1)
    for _ in range(n):
        x[i] += 1

x = np.zeros(3200)
def launch():
    steps[100, 32]._cost = 10**9
    steps[100, 32](x, 3)
"""

FORK = """
thread_pool.set_num_threads(3)
launch(); launch()
assert helpers.pool()[sharing.STARTED] == 2
child = os.fork()
if child == 0:
    assert helpers.pool()[sharing.STARTED] == 0
    for _ in range(3):
        launch()
    os._exit(0 if helpers.pool()[sharing.STARTED] == 2 and (x == 15).all() else 1)
assert os.waitpid(child, 0)[1] == 0
launch()
assert (x == 9).all()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_fork_starts_its_own_helpers(tmp_path):
    run(FORK, tmp_path)


ENDS = """
thread_pool.set_num_threads(4)
for _ in range(3):
    launch()
"""


def test_a_process_ends_while_helpers_look_for_work(tmp_path):
    for _ in range(3):
        run(ENDS, tmp_path)


def run(program: str, folder: Path) -> None:
    path = folder / "program.py"  # the compiler wants to read it
    path.write_text(STEPS + program)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
