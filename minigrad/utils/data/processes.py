"""Worker processes of a DataLoader.

Each worker has two pipes of its own: tasks come through one, batches leave through the other. So no
lock is shared, and a worker that is killed disturbs no other one; the loop sees the end of its pipe
and names it. Batches are pickled with their arrays beside the pickle (protocol 5), without a
segment of shared memory that a killed process would leave behind.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import queue
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection, wait
from typing import Any

import numpy as np

from kernels import simt
from minigrad.utils.data.worker import Reader, WorkerError

_SECONDS = 5.0  # that a worker may take to finish its sample when it shall stop, then it is ended


class Processes:
    """`count` processes that fetch batches; see `Threads` for the interface.

    context: of the module multiprocessing, with the start method.
    """

    def __init__(
        self, count: int, fetcher: Any, init: Callable[[int], None] | None, context: Any
    ) -> None:
        self.count, self.epoch = count, 0
        self._processes: list[Any] = []
        self._tasks: list[Connection] = []
        self._results: list[Connection] = []
        with _interrupts_blocked():
            for i in range(count):
                self._start(Reader(i, count, fetcher, init, "process"), context)

    def _start(self, reader: Reader, context: Any) -> None:
        tasks, ours = context.Pipe(duplex=False)
        results, theirs = context.Pipe(duplex=False)
        _widen(results)
        # A fork inherits every open pipe; one that it kept open would never come to its end.
        inherited = [ours, results, *self._tasks, *self._results]
        forked = context.get_start_method() == "fork"
        process = context.Process(
            target=_work,
            args=(reader, tasks, theirs, inherited if forked else []),
            name=f"minigrad-dataloader-{len(self._processes)}",
            daemon=True,  # ended with this process
        )
        process.start()
        tasks.close()
        theirs.close()
        self._processes.append(process)
        self._tasks.append(ours)
        self._results.append(results)

    def begin(self, seed: int) -> None:
        """Start an epoch in every worker; worker i gets the seed `seed + i`."""
        self.epoch += 1
        for i in range(self.count):
            self._send(i, seed + i)

    def submit(self, worker: int, number: int, index: Any) -> None:
        """Request batch `number` from `worker`."""
        self._send(worker, (self.epoch, number, index))

    def _send(self, worker: int, task: Any) -> None:
        try:
            self._tasks[worker].send(task)
        except BrokenPipeError:
            self._ended(worker)

    def result(self, timeout: float) -> tuple[int, Any]:
        """(number, batch) of a batch of this epoch; timeout in seconds, 0 for none.

        RuntimeError where none comes in this time, or a worker has ended.
        """
        end = time.monotonic() + timeout if timeout else None
        while True:
            left = None if end is None else max(0.0, end - time.monotonic())
            # A pipe is at its end when its process is: the sentinel is not needed.
            ready = wait(self._results, left)
            if not ready:
                raise RuntimeError(
                    f"DataLoader timed out after {timeout} seconds waiting for a worker process"
                )
            for pipe in ready:
                assert isinstance(pipe, Connection)
                try:
                    epoch, number, batch = _receive(pipe)
                except (EOFError, OSError):
                    self._ended(self._results.index(pipe))
                if epoch == self.epoch:  # otherwise of an epoch that was not read to its end
                    return number, batch

    def _ended(self, worker: int) -> None:
        process = self._processes[worker]
        process.join(_SECONDS)
        code = process.exitcode
        if code is not None and code < 0:
            how = f"is killed by signal: {signal.strsignal(-code)}"
        else:
            how = f"exited unexpectedly with exit code {code}"
        raise RuntimeError(f"DataLoader worker {worker} (pid {process.pid}) {how}.")

    def stop(self) -> None:
        """End the processes: each finishes its current sample, for at most 5 seconds."""
        for pipe in self._tasks:
            with contextlib.suppress(OSError):
                pipe.send(None)
            pipe.close()
        end = time.monotonic() + _SECONDS
        for process in self._processes:
            process.join(max(0.0, end - time.monotonic()))
            if process.is_alive():
                process.terminate()
                process.join(_SECONDS)
        for pipe in self._results:
            pipe.close()
        self._processes, self._tasks, self._results = [], [], []

    def __del__(self) -> None:
        with contextlib.suppress(Exception):  # the interpreter may be ending
            self.stop()


@contextlib.contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Ctrl-C waits: a process that has just begun has no handler that ignores it yet."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _work(
    reader: Reader, tasks: Connection, results: Connection, inherited: list[Connection]
) -> None:
    """The main function of a worker."""
    for pipe in inherited:
        pipe.close()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the loop ends its workers at Ctrl-C
    simt.set_num_threads(1)
    finished: queue.SimpleQueue = queue.SimpleQueue()
    sender = threading.Thread(target=_send_all, args=(finished, results), daemon=True)
    sender.start()
    for epoch, number, index in _tasks(reader, tasks):
        finished.put(_pickled(epoch, number, reader.read(index)))


def _tasks(reader: Reader, pipe: Connection) -> Iterator[tuple]:
    """The tasks in their order; a new epoch discards those of the one before, None ends."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    waiting: deque[tuple] = deque()
    while True:
        while not waiting or pipe.poll():
            if pipe not in wait([pipe, parent.sentinel]):
                return  # the parent was killed
            try:
                task = pipe.recv()
            except EOFError:
                return
            if task is None:
                return
            if isinstance(task, int):
                waiting.clear()
                reader.begin(task)
            else:
                waiting.append(task)
        yield waiting.popleft()


def _pickled(epoch: int, number: int, batch: Any) -> list[Any]:
    """The messages of a batch: the sizes of its arrays and their pickle, then the arrays."""
    buffers: list[pickle.PickleBuffer] = []
    try:
        body = pickle.dumps(batch, 5, buffer_callback=buffers.append)
    except Exception as error:
        # A batch that cannot be sent, or an exception of a class that cannot.
        buffers.clear()
        if isinstance(batch, WorkerError):
            batch.kind = RuntimeError
        else:
            batch = WorkerError(error, "as a DataLoader worker process pickled a batch")
        body = pickle.dumps(batch, 5)
    raw = [buffer.raw() for buffer in buffers]
    return [pickle.dumps((epoch, number, [part.nbytes for part in raw], body)), *raw]


def _send_all(finished: queue.SimpleQueue, pipe: Connection) -> None:
    """The thread that writes: the worker reads its next batch while the loop has not taken one."""
    with contextlib.suppress(BrokenPipeError):
        while True:
            head, *arrays = finished.get()
            pipe.send_bytes(head)
            for array in arrays:
                _write(pipe, array)


def _receive(pipe: Connection) -> tuple[int, int, Any]:
    epoch, number, sizes, body = pickle.loads(pipe.recv_bytes())
    buffers = [np.empty(size, np.uint8) for size in sizes]
    for buffer in buffers:
        _read(pipe, memoryview(buffer))
    return epoch, number, pickle.loads(body, buffers=buffers)


# `Connection` collects what it receives in memory of its own. On POSIX, where a pipe is a file, an
# array is written and read in place.
_IN_PLACE = hasattr(os, "readv")


def _write(pipe: Connection, array: memoryview) -> None:
    if not _IN_PLACE:
        pipe.send_bytes(array)
        return
    while array:
        array = array[os.write(pipe.fileno(), array) :]


def _read(pipe: Connection, array: memoryview) -> None:
    if not _IN_PLACE:
        pipe.recv_bytes_into(array)
        return
    while array:
        count = os.readv(pipe.fileno(), [array])
        if not count:
            raise EOFError
        array = array[count:]


def _widen(pipe: Connection) -> None:
    """Let a pipe hold 1 MB, where the system allows it: fewer switches between the processes."""
    with contextlib.suppress(ImportError, AttributeError, OSError):
        import fcntl

        fcntl.fcntl(pipe.fileno(), fcntl.F_SETPIPE_SZ, 1 << 20)
