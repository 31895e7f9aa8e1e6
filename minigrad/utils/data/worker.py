"""What a worker of a DataLoader does, in a process (see `processes`) or in a thread.

Threads are for datasets that read files, decode images or use NumPy, which release Python's lock:
they use the dataset object itself, so nothing is pickled and no sample is copied, and they are safe
beside a CUDA driver, which a fork is not. They share global state (a counter in the dataset is one
counter), including the generators of `random` and `numpy.random`; each has a generator of minigrad
of its own.
"""

from __future__ import annotations

import queue
import random
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import minigrad
from minigrad.random import use_thread_generator

_local = threading.local()
_STOP = object()


@dataclass(frozen=True)
class WorkerInfo:
    """The worker that runs this code.

    Attributes:
        id: 0 to num_workers - 1.
        num_workers: the number of workers.
        seed: different for every worker and epoch, drawn from the generator of the loader.
        dataset: the dataset that the worker reads; in a process, its copy.
    """

    id: int
    num_workers: int
    seed: int
    dataset: Any


def get_worker_info() -> WorkerInfo | None:
    """The `WorkerInfo` of the calling worker, None outside of workers."""
    return getattr(_local, "info", None)


class WorkerError:
    """An exception from a worker, raised again in the loop with its traceback as text."""

    def __init__(self, error: BaseException, where: str) -> None:
        self.kind: type[BaseException] = type(error)
        self.text = f"Caught {self.kind.__name__} {where}.\nOriginal {traceback.format_exc()}"

    def reraise(self) -> None:
        """Raise an exception of the same type whose text holds the worker's traceback."""
        try:
            # KeyError prints repr(text), without line breaks.
            error = self.kind(_Plain(self.text)) if self.kind is KeyError else self.kind(self.text)
        except Exception:
            error = RuntimeError(self.text)  # its constructor takes other arguments
        raise error


class _Plain(str):
    def __repr__(self) -> str:
        return str(self)


class Reader:
    """The work of one worker: `begin` an epoch, then `read` batches.

    kind: "process" or "thread".
    """

    def __init__(
        self, worker: int, count: int, fetcher: Any, init: Callable[[int], None] | None, kind: str
    ) -> None:
        self._worker, self._count, self._fetcher, self._kind = worker, count, fetcher, kind
        self._init = init
        self._failed: WorkerError | None = None
        self._fetch: Any = None

    def begin(self, seed: int) -> None:
        """Start an epoch: seeds of the random generators, a fresh fetcher; at first, `init`."""
        _local.info = WorkerInfo(self._worker, self._count, seed, self._fetcher.dataset)
        if self._kind == "process":
            random.seed(seed)
            np.random.seed(np.random.SeedSequence(seed).generate_state(4))
            minigrad.manual_seed(seed)
        else:
            use_thread_generator(seed)
        init, self._init = self._init, None
        if init is not None:
            try:
                init(self._worker)
            except Exception as error:
                self._failed = self._error(error)
        self._fetch = self._fetcher.fresh()

    def read(self, index: Any) -> Any:
        """The batch of what the sampler gave, or a `WorkerError`."""
        if self._failed is not None:
            return self._failed
        try:
            return self._fetch(index)
        except Exception as error:
            return self._error(error)

    def _error(self, error: Exception) -> WorkerError:
        return WorkerError(error, f"in DataLoader worker {self._kind} {self._worker}")


class Threads:
    """`count` threads that fetch batches; each has a queue of tasks, and all share one of
    results."""

    def __init__(self, count: int, fetcher: Any, init: Callable[[int], None] | None) -> None:
        self.count, self.epoch = count, 0
        self._results: queue.SimpleQueue = queue.SimpleQueue()
        self._tasks = [queue.SimpleQueue() for _ in range(count)]
        for i, tasks in enumerate(self._tasks):
            # Daemon threads: a program that ends during an epoch does not wait for them.
            threading.Thread(
                target=_work,
                args=(Reader(i, count, fetcher, init, "thread"), tasks, self._results),
                name=f"minigrad-dataloader-{i}",
                daemon=True,
            ).start()

    def begin(self, seed: int) -> None:
        """Start an epoch in every worker; worker i gets the seed `seed + i`."""
        self.epoch += 1
        for i, tasks in enumerate(self._tasks):
            tasks.put(seed + i)

    def submit(self, worker: int, number: int, index: Any) -> None:
        """Request batch `number` from `worker`."""
        self._tasks[worker].put((self.epoch, number, index))

    def result(self, timeout: float) -> tuple[int, Any]:
        """(number, batch) of a batch of this epoch; timeout in seconds, 0 for none."""
        while True:
            try:
                epoch, number, batch = self._results.get(timeout=timeout or None)
            except queue.Empty:
                raise RuntimeError(
                    f"DataLoader timed out after {timeout} seconds waiting for a worker thread"
                ) from None
            if epoch == self.epoch:  # otherwise of an epoch that was not read to its end
                return number, batch

    def stop(self) -> None:
        """Let the threads end after their current task."""
        for tasks in self._tasks:
            tasks.put(_STOP)

    def __del__(self) -> None:
        # Persistent workers end with their loader: the threads refer to the queues, not to it.
        self.stop()


def _work(reader: Reader, tasks: queue.SimpleQueue, results: queue.SimpleQueue) -> None:
    while (task := tasks.get()) is not _STOP:
        if isinstance(task, int):
            reader.begin(task)
        else:
            epoch, number, index = task
            results.put((epoch, number, reader.read(index)))
