"""Fetchers: from what the sampler gives to a batch, in the process or thread that reads it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from minigrad.utils.data.collate import default_collate
from minigrad.utils.data.dataset import rows_of


class End:
    """The class itself is what a fetcher returns when an iterable dataset has no more samples: a
    class stays the same object in another process."""


class MapFetcher:
    """Samples by index: of a batch, or without `batched` single ones."""

    def __init__(self, dataset: Any, collate: Callable[[Any], Any], batched: bool) -> None:
        self.dataset, self.collate, self.batched = dataset, collate, batched

    def fresh(self) -> MapFetcher:
        """The fetcher for another epoch."""
        return self

    def __call__(self, index: Any) -> Any:
        if not self.batched:
            return self.collate(self.dataset[index])
        if self.collate is default_collate:
            rows = rows_of(self.dataset, index)
            if rows is not None:
                return rows
        fetch_all = getattr(self.dataset, "__getitems__", None)
        if fetch_all is not None:
            return self.collate(fetch_all(index))
        return self.collate([self.dataset[i] for i in index])


class IterableFetcher:
    """The next samples of an iterable dataset, or `End`."""

    def __init__(
        self, dataset: Any, collate: Callable[[Any], Any], batched: bool, drop_last: bool
    ) -> None:
        self.dataset, self.collate = dataset, collate
        self.batched, self.drop_last = batched, drop_last
        self._samples: Iterator[Any] | None = None

    def fresh(self) -> IterableFetcher:
        """A fetcher that begins the dataset anew."""
        return IterableFetcher(self.dataset, self.collate, self.batched, self.drop_last)

    def __call__(self, index: Any) -> Any:
        if self._samples is None:
            # Created at the first fetch, in the worker, where `get_worker_info` works.
            self._samples = iter(self.dataset)
        if not self.batched:
            sample = next(self._samples, End)
            return sample if sample is End else self.collate(sample)
        batch = [sample for _, sample in zip(index, self._samples, strict=False)]
        if not batch or (self.drop_last and len(batch) < len(index)):
            return End
        return self.collate(batch)
