"""Worker threads of a DataLoader.

Workers are threads of this process, not processes.  They use the dataset object itself: nothing is
pickled, and samples are not copied between processes.  This works in a notebook and on every
platform, and unlike a fork it is safe with the threads of the kernels and of a CUDA driver.
Reading files, decoding images and NumPy release Python's lock, so workers run in parallel with
training; a dataset that computes in pure Python gains nothing.

Unlike worker processes, workers share global state (a counter in the dataset is one counter),
including the random generators of `random` and `numpy.random`.  For reproducible random
augmentation, use minigrad's generator, of which each worker has its own, or one seeded with
`get_worker_info().seed`.
"""

from __future__ import annotations

import queue
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

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
        dataset: the dataset that the worker reads.
    """

    id: int
    num_workers: int
    seed: int
    dataset: Any


def get_worker_info() -> WorkerInfo | None:
    """The `WorkerInfo` of the calling worker, None in the main thread."""
    return getattr(_local, "info", None)


class WorkerError:
    """An exception from a worker, raised again in the main thread with its traceback."""

    def __init__(self, error: BaseException, where: str) -> None:
        self.error = error
        self.text = f"Caught {type(error).__name__} {where}.\nOriginal {traceback.format_exc()}"

    def reraise(self) -> None:
        """Raise an exception of the same type whose text holds the worker's traceback."""
        kind = type(self.error)
        try:
            # KeyError prints repr(text), without line breaks.
            error = kind(_Plain(self.text)) if kind is KeyError else kind(self.text)
        except Exception:
            error = RuntimeError(self.text)  # its constructor takes other arguments
        raise error from self.error


class _Plain(str):
    def __repr__(self) -> str:
        return str(self)


@dataclass(eq=False)
class Epoch:
    """One pass over the data, for the workers.

    fetchers: per worker, a function from the indices of the sampler to a batch.
    seeds: per worker, see `WorkerInfo`.
    """

    fetchers: list[Callable[[Any], Any]]
    seeds: list[int]
    dataset: Any


class Workers:
    """`count` threads that fetch batches; each has a queue of tasks, and all share one of
    results."""

    def __init__(self, count: int, init: Callable[[int], None] | None) -> None:
        self.count = count
        self.results: queue.SimpleQueue = queue.SimpleQueue()
        self._tasks = [queue.SimpleQueue() for _ in range(count)]
        self._threads = [
            # Daemon threads: a program that ends during an epoch does not wait for them.
            threading.Thread(
                target=_work,
                args=(i, count, self._tasks[i], self.results, init),
                name=f"minigrad-dataloader-{i}",
                daemon=True,
            )
            for i in range(count)
        ]
        for thread in self._threads:
            thread.start()

    def begin(self, epoch: Epoch) -> None:
        """Let every worker read from `epoch` from now on."""
        for tasks in self._tasks:
            tasks.put(epoch)

    def submit(self, worker: int, epoch: Epoch, number: int, index: Any) -> None:
        """Request batch `number` from `worker`."""
        self._tasks[worker].put((epoch, number, index))

    def stop(self) -> None:
        """Let the threads end after their current task."""
        for tasks in self._tasks:
            tasks.put(_STOP)

    def __del__(self) -> None:
        # Persistent workers end with their loader: the threads refer to the queues, not to it.
        self.stop()


def _work(
    worker: int,
    count: int,
    tasks: queue.SimpleQueue,
    results: queue.SimpleQueue,
    init: Callable[[int], None] | None,
) -> None:
    failed: WorkerError | None = None
    started = False
    while True:
        task = tasks.get()
        if task is _STOP:
            return
        if isinstance(task, Epoch):
            _local.info = WorkerInfo(worker, count, task.seeds[worker], task.dataset)
            use_thread_generator(task.seeds[worker])
            if init is not None and not started:
                try:
                    init(worker)
                except Exception as error:
                    failed = WorkerError(error, f"in DataLoader worker thread {worker}")
            started = True
            continue
        epoch, number, index = task
        if failed is not None:
            results.put((epoch, number, failed))
            continue
        try:
            result = epoch.fetchers[worker](index)
        except Exception as error:
            result = WorkerError(error, f"in DataLoader worker thread {worker}")
        results.put((epoch, number, result))
