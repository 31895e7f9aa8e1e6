"""`DataLoader`: batches of a dataset, in order or shuffled, prefetched by worker processes."""

from __future__ import annotations

import multiprocessing
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any

import minigrad
from minigrad.tensor import Tensor
from minigrad.utils.data.collate import default_collate, default_convert
from minigrad.utils.data.dataset import Dataset, IterableDataset
from minigrad.utils.data.fetch import End, IterableFetcher, MapFetcher
from minigrad.utils.data.processes import Processes
from minigrad.utils.data.sampler import BatchSampler, RandomSampler, SequentialSampler
from minigrad.utils.data.worker import Threads, WorkerError


class DataLoader:
    """Iterate over `dataset` in batches.

    Args:
        dataset: a map-style `Dataset` (or anything with ``__getitem__`` and ``__len__``), or an
            `IterableDataset`.
        batch_size: samples per batch; None gives single samples.
        shuffle: a new random order every epoch.
        sampler, batch_sampler: other orders: iterables of indices, or of lists of indices.
        num_workers: processes that prefetch; 0 reads on demand, in this process.
        collate_fn: from a list of samples to a batch.
        pin_memory: put the batches into page-locked memory, out of which
            ``batch.to("cuda", non_blocking=True)`` copies beside the program and its kernels.
        drop_last: skip an incomplete last batch.
        timeout: seconds to wait for a worker's batch; 0 for no limit.
        worker_init_fn: called in each worker with its number before it reads.
        multiprocessing_context: the start method ("fork", "spawn", "forkserver") or a context of
            multiprocessing, by default its default; or "thread", for threads of this process, which
            share the dataset (see `worker`).
        generator: determines the order and the seeds of the workers.
        prefetch_factor: batches that each worker prefetches, by default 2.
        persistent_workers: keep the workers between epochs.
        in_order: False returns batches in the order of completion.

    The same seed gives the same order, whatever the number of workers. An exception in a worker is
    raised in the loop, with the worker's traceback in its text; a worker that is killed raises
    RuntimeError.

    >>> from minigrad.utils.data import DataLoader
    >>> [batch.tolist() for batch in DataLoader(range(5), batch_size=2)]
    [[0, 1], [2, 3], [4]]
    """

    _initialized = _warned = False

    def __init__(
        self,
        dataset: Dataset[Any] | Sequence[Any],
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Any = None,
        batch_sampler: Any = None,
        num_workers: int = 0,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None,
        generator: Any = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
    ) -> None:
        _check_workers(num_workers, timeout, prefetch_factor, persistent_workers)
        iterable = isinstance(dataset, IterableDataset)
        if iterable:
            _check_iterable(shuffle, sampler, batch_sampler)
        if sampler is not None and shuffle:
            raise ValueError("sampler option is mutually exclusive with shuffle")
        if batch_sampler is not None:
            if batch_size != 1 or shuffle or sampler is not None or drop_last:
                raise ValueError(
                    "batch_sampler option is mutually exclusive with batch_size, shuffle, "
                    "sampler, and drop_last"
                )
            batch_size, drop_last = None, False
        elif batch_size is None and drop_last:
            raise ValueError(
                "batch_size=None option disables auto-batching and is mutually exclusive with "
                "drop_last"
            )
        if sampler is None:
            if iterable:
                sampler = _InfiniteSampler()
            elif shuffle:
                sampler = RandomSampler(dataset, generator=generator)
            else:
                sampler = SequentialSampler(dataset)
        if batch_size is not None and batch_sampler is None:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        if collate_fn is None:
            collate_fn = default_convert if batch_sampler is None else default_collate

        self.dataset = dataset
        self.batch_size = batch_size
        self.sampler = sampler
        self.batch_sampler = batch_sampler
        self.drop_last = drop_last
        self.num_workers = num_workers
        self.multiprocessing_context = _context(multiprocessing_context, num_workers)
        self.collate_fn = collate_fn
        self.pin_memory = pin_memory
        self.pin_memory_device = pin_memory_device
        self.timeout = timeout
        self.worker_init_fn = worker_init_fn
        self.generator = generator
        self.prefetch_factor = (prefetch_factor or 2) if num_workers else None
        self.persistent_workers = persistent_workers
        self.in_order = in_order
        self._workers: Processes | Threads | None = None
        self._initialized = True

    def __setattr__(self, name: str, value: Any) -> None:
        fixed = ("batch_size", "batch_sampler", "sampler", "drop_last", "dataset")
        if self._initialized and name in (*fixed, "persistent_workers"):
            raise ValueError(
                f"{name} attribute should not be set after {type(self).__name__} is initialized"
            )
        super().__setattr__(name, value)

    def __len__(self) -> int:
        if isinstance(self.dataset, IterableDataset):
            size = len(self.dataset)
            if self.batch_size is None:
                return size
            return size // self.batch_size if self.drop_last else -(-size // self.batch_size)
        return len(self._index_source)

    @property
    def _index_source(self) -> Any:
        return self.sampler if self.batch_sampler is None else self.batch_sampler

    def __iter__(self) -> _BaseDataLoaderIter:
        # Drawn even without workers, so that the order that the sampler draws next from the same
        # generator does not depend on the number of workers.
        seed = int(minigrad.randint(0, 2**62, (1,), generator=self.generator).item())
        pinned = self.pin_memory and minigrad.cuda.is_available()
        if self.pin_memory and not pinned and not self._warned:
            self._warned = True  # once, not in every epoch
            warnings.warn(
                "'pin_memory' argument is set as true but no accelerator is found, "
                "then device pinned memory won't be used.",
                stacklevel=2,
            )
        if self.num_workers:
            return _MultiProcessingDataLoaderIter(self, self._read_ahead(seed), pinned)
        return _SingleProcessDataLoaderIter(self, self._read(), pinned)

    def _fetcher(self) -> IterableFetcher | MapFetcher:
        """A function from what the sampler gives to a batch."""
        batched = self.batch_sampler is not None
        if isinstance(self.dataset, IterableDataset):
            return IterableFetcher(self.dataset, self.collate_fn, batched, self.drop_last)
        return MapFetcher(self.dataset, self.collate_fn, batched)

    def _read(self) -> Generator[Any]:
        fetch = self._fetcher()
        for index in self._index_source:
            batch = fetch(index)
            if batch is End:
                return
            yield batch

    def _start_workers(self) -> Processes | Threads:
        context = self.multiprocessing_context
        if context == "thread":
            return Threads(self.num_workers, self._fetcher(), self.worker_init_fn)
        return Processes(
            self.num_workers,
            self._fetcher(),
            self.worker_init_fn,
            context or multiprocessing.get_context(),
        )

    def _read_ahead(self, seed: int) -> Generator[Any]:
        workers = self._workers or self._start_workers()
        if self.persistent_workers:
            self._workers = workers
        workers.begin(seed)
        try:
            yield from _ordered(self, workers)
        except BaseException as error:
            if self._workers is not None and not isinstance(error, GeneratorExit):
                self._workers = None  # one may have ended: the next epoch starts others
                workers.stop()
            raise
        finally:
            if not self.persistent_workers:
                workers.stop()


def _context(value: Any, num_workers: int) -> Any:
    """The context of multiprocessing that is meant, "thread", or None."""
    if value is None:
        return None
    if num_workers == 0:
        raise ValueError(
            "multiprocessing_context can only be used with multi-process loading "
            f"(num_workers > 0), but got num_workers={num_workers}"
        )
    if isinstance(value, str):
        methods = [*multiprocessing.get_all_start_methods(), "thread"]
        if value not in methods:
            raise ValueError(
                "multiprocessing_context option should specify a valid start method in "
                f"{methods!r}, but got multiprocessing_context={value!r}"
            )
        return value if value == "thread" else multiprocessing.get_context(value)
    if not isinstance(value, multiprocessing.context.BaseContext):
        raise TypeError(
            "multiprocessing_context option should be a valid context object or a string "
            f"specifying the start method, but got multiprocessing_context={value}"
        )
    return value


def _check_workers(
    num_workers: int, timeout: float, prefetch_factor: int | None, persistent_workers: bool
) -> None:
    if num_workers < 0:
        raise ValueError(
            "num_workers option should be non-negative; "
            "use num_workers=0 to disable multiprocessing."
        )
    if timeout < 0:
        raise ValueError("timeout option should be non-negative")
    if num_workers == 0 and prefetch_factor is not None:
        raise ValueError(
            "prefetch_factor option could only be specified in multiprocessing."
            "let num_workers > 0 to enable multiprocessing, otherwise set prefetch_factor to None."
        )
    if prefetch_factor is not None and prefetch_factor < 0:
        raise ValueError("prefetch_factor option should be non-negative")
    if persistent_workers and num_workers == 0:
        raise ValueError("persistent_workers option needs num_workers > 0")


def _check_iterable(shuffle: Any, sampler: Any, batch_sampler: Any) -> None:
    for name, value in (("shuffle", shuffle or None), ("sampler", sampler)):
        if value is not None:
            raise ValueError(
                f"DataLoader with IterableDataset: expected unspecified {name} option, "
                f"but got {name}={value}"
            )
    if batch_sampler is not None:
        raise ValueError(
            "DataLoader with IterableDataset: expected unspecified batch_sampler option, "
            f"but got batch_sampler={batch_sampler}"
        )


class _InfiniteSampler:
    """The sampler of an iterable dataset: infinite; the dataset determines the end."""

    def __iter__(self) -> Iterator[None]:
        while True:
            yield None


def _ordered(loader: DataLoader, workers: Processes | Threads) -> Iterator[Any]:
    """Submit tasks to the workers round-robin, and yield the batches in the order of the tasks."""
    indices = iter(loader._index_source)
    epoch = workers.epoch
    active = list(range(workers.count))  # workers that still have samples
    done: dict[int, Any] = {}
    worker_of: dict[int, int] = {}
    number = 0

    def submit() -> None:
        nonlocal number
        index = next(indices, End) if active else End
        if index is End:
            return
        worker = active[number % len(active)]
        worker_of[number] = worker
        workers.submit(worker, number, index)
        number += 1

    for _ in range(loader.prefetch_factor * workers.count):
        submit()
    expected = 0
    while worker_of:
        if workers.epoch != epoch:
            raise RuntimeError(
                "DataLoader: its persistent workers read a later epoch now; only the latest "
                "iterator goes on"
            )
        while expected not in done if loader.in_order else not done:
            which, batch = workers.result(loader.timeout)
            done[which] = batch
        which = expected if loader.in_order else next(iter(done))
        batch = done.pop(which)
        worker = worker_of.pop(which)
        expected += 1
        if isinstance(batch, WorkerError):
            batch.reraise()
        if batch is End:
            if worker in active:
                active.remove(worker)
            submit()
            continue
        submit()
        yield batch


class _BaseDataLoaderIter:
    """What `iter(loader)` returns: one pass over the batches; its length is theirs."""

    def __init__(self, loader: DataLoader, batches: Generator, pinned: bool) -> None:
        self._loader, self._read = loader, batches
        self._batches: Iterator[Any] = map(_pin, batches) if pinned else batches

    def __iter__(self) -> _BaseDataLoaderIter:
        return self

    def __next__(self) -> Any:
        return next(self._batches)

    def __len__(self) -> int:
        return len(self._loader._index_source)


class _SingleProcessDataLoaderIter(_BaseDataLoaderIter):
    """Reads on demand, in this process."""


class _MultiProcessingDataLoaderIter(_BaseDataLoaderIter):
    """Reads ahead in workers."""

    def _shutdown_workers(self) -> None:
        """End the pass; the workers end, too, unless they are persistent."""
        self._read.close()


def _pin(batch: Any) -> Any:
    if isinstance(batch, Tensor):
        return batch.pin_memory()
    if isinstance(batch, Mapping):
        return type(batch)({key: _pin(value) for key, value in batch.items()})
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*map(_pin, batch))
    if isinstance(batch, Sequence) and not isinstance(batch, (str, bytes)):
        return type(batch)(_pin(value) for value in batch)
    own = getattr(batch, "pin_memory", None)  # a class of batches with a method of its own
    return batch if own is None else own()
