"""A sampler that gives each rank its part of a data set."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sized

import minigrad
from minigrad.utils.data.sampler import Sampler


class DistributedSampler(Sampler[int]):
    """Every `num_replicas`-th index from `rank` on, of the same order on every rank.

    Each rank gets equally many: the first indices are repeated at the end, or with `drop_last` the
    last ones are left out. Call `set_epoch(n)` before each epoch for another order.

    num_replicas, rank: by default those of `minigrad.distributed`. seed: the same on all ranks.
    Raises ValueError for a rank outside 0 .. num_replicas - 1.
    """

    def __init__(
        self,
        dataset: Sized,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        from minigrad import distributed

        replicas = distributed.get_world_size() if num_replicas is None else num_replicas
        rank = distributed.get_rank() if rank is None else rank
        if not 0 <= rank < replicas:
            raise ValueError(
                f"Invalid rank {rank}, rank should be in the interval [0, {replicas - 1}]"
            )
        self.dataset, self.num_replicas, self.rank = dataset, replicas, rank
        self.shuffle, self.seed, self.drop_last, self.epoch = shuffle, seed, drop_last, 0
        count = len(dataset) / replicas
        self.num_samples = math.floor(count) if drop_last else math.ceil(count)
        self.total_size = self.num_samples * replicas

    def __iter__(self) -> Iterator[int]:
        count = len(self.dataset)
        order = list(range(count))
        if self.shuffle:
            generator = minigrad.Generator().manual_seed(self.seed + self.epoch)
            order = minigrad.randperm(count, generator=generator).tolist()
        if count and len(order) < self.total_size:
            order *= math.ceil(self.total_size / count)
        return iter(order[: self.total_size][self.rank :: self.num_replicas])

    def __len__(self) -> int:
        return self.num_samples

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of an epoch."""
        self.epoch = epoch
