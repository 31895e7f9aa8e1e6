"""A thread pool that shares the blocks of a launch.

Compiled kernels release the GIL, so plain Python threads run them in parallel. The calling thread
works too; a launch returns when all of its blocks are done.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from queue import SimpleQueue

from kernels.support.interrupts import deferred
from kernels.support.processor import cores

_CHUNKS_PER_THREAD = 4  # small chunks, so that a thread that starts late gets fewer

wanted = ctypes.c_uint64()  # 0 until it is asked for; machine code reads it
#: How to read and to set the control word of a thread's arithmetic, once a program has changed one
#: (`kernels.simt.backend.control`): helpers take that of the thread that launches.
control: tuple[Callable[[], int], Callable[[int], None]] | None = None
_workers: list[threading.Thread] = []
_jobs: SimpleQueue = SimpleQueue()
_lock = threading.Lock()
_pid = 0


def get_num_threads() -> int:
    """How many OS threads a launch may use (MINIGRAD_NUM_THREADS, else a thread a core)."""
    if not wanted.value:
        given = os.environ.get("MINIGRAD_NUM_THREADS")
        if given and (not given.isdecimal() or int(given) < 1):
            raise ValueError(f"MINIGRAD_NUM_THREADS must be a positive integer, not {given!r}")
        wanted.value = int(given) if given else cores()
    return wanted.value


def set_num_threads(count: int) -> None:
    """Use `count` OS threads per launch from now on."""
    if not isinstance(count, int) or count < 1:
        raise ValueError(f"the number of threads must be a positive integer, not {count!r}")
    wanted.value = count


class _Job:
    """One launch: `run(first, last)` for chunks of `range(blocks)`."""

    def __init__(self, run: Callable[[int, int], int], blocks: int, threads: int) -> None:
        self.run, self.blocks = run, blocks
        self.chunk = max(1, -(-blocks // (threads * _CHUNKS_PER_THREAD)))
        self.next = 0
        self.status = 0
        self.error: BaseException | None = None
        self.control = None if control is None else control[0]()
        self.lock = threading.Lock()
        self.done = threading.Semaphore(0)

    def work(self) -> None:
        while True:
            with self.lock:
                first = self.next
                if first >= self.blocks or self.status or self.error:
                    return
                self.next = last = min(first + self.chunk, self.blocks)
            try:
                status = self.run(first, last)
            except BaseException as error:
                self.error = error
                return
            if status:
                self.status = status


def _worker() -> None:
    while True:
        job = _jobs.get()
        if control is not None and job.control is not None:
            control[1](job.control)
        job.work()
        job.done.release()


def _ensure(count: int) -> int:
    """Start threads until there are so many; how many helpers a launch may have. They are fewer
    where the system allows no more (a container has a limit)."""
    global _pid, _workers, _jobs
    with _lock:
        if _pid != os.getpid():  # a fork does not copy threads
            _pid, _workers, _jobs = os.getpid(), [], SimpleQueue()
        while len(_workers) < count:
            thread = threading.Thread(target=_worker, name="minigrad-kernel", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # can't start new thread
                break
            _workers.append(thread)
        return min(count, len(_workers))


def run(
    function: Callable[[int, int], int],
    blocks: int,
    threads: int,
    stop: Callable[[], None] = lambda: None,
) -> int:
    """Run `function` over all blocks on `threads` OS threads; the first status that is not 0.

    `stop` is called when the launch is interrupted, and must end the calls of `function` soon: no
    thread goes on with the memory of arguments when this has raised.
    """
    helpers = min(threads, blocks) - 1
    job = _Job(function, blocks, threads)

    def interrupt() -> None:
        job.next = blocks
        stop()

    with deferred(interrupt):
        helpers = _ensure(helpers)
        for _ in range(helpers):
            _jobs.put(job)
        job.work()
        for _ in range(helpers):
            job.done.acquire()
    if job.error is not None:
        raise job.error
    return job.status
