"""Datasets and functions that processes started with spawn import."""

from __future__ import annotations

import os
import random
import signal
import time

import numpy as np

import minigrad
from minigrad.utils import data


class Rows(data.Dataset):
    """Row i holds 4 times the number i, and the number of the process that read it."""

    def __init__(self, size: int = 10) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int):
        return minigrad.full((4,), index), os.getpid()


class Described(Rows):
    """What a worker knows: its WorkerInfo, and random numbers of three generators."""

    def __getitem__(self, index: int):
        info = data.get_worker_info()
        drawn = random.random(), np.random.rand(), minigrad.randint(0, 1 << 30, (1,)).item()
        return (*drawn, info.id, info.num_workers, info.seed, info.dataset is self, self.size)


class Faulty(Rows):
    """An action at sample 5: what the constructor is given."""

    def __init__(self, action: str) -> None:
        super().__init__(10)
        self.action = action

    def __getitem__(self, index: int):
        if index == 5:
            if self.action == "raise":
                raise KeyError("sample five is broken")
            if self.action == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            if self.action == "exit":
                os._exit(3)
            if self.action == "sleep":
                time.sleep(60)
            if self.action == "lambda":
                return lambda: None
        return index


class Share(data.IterableDataset):
    """0 .. size - 1, shared out between the workers."""

    def __init__(self, size: int = 10) -> None:
        self.size = size

    def __iter__(self):
        info = data.get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        return iter(range(first, self.size, step))


class Big(Rows):
    """Images of 300 kB: more than a pipe holds."""

    def __getitem__(self, index: int):
        return minigrad.full((3, 160, 160), float(index)), {"name": f"n{index}", "i": index}


def resize(worker: int) -> None:
    """A worker_init_fn that changes the worker's copy of its dataset."""
    data.get_worker_info().dataset.size = 100 + worker


def fail(worker: int) -> None:
    """A worker_init_fn that raises."""
    raise OSError("no licence")


def keep(batch: list) -> list:
    """A collate_fn that does nothing."""
    return batch


def tagged(worker: int) -> None:
    """A worker_init_fn that leaves a variable in the process."""
    assert "MINIGRAD_TAGGED" not in os.environ
    os.environ["MINIGRAD_TAGGED"] = str(worker)
