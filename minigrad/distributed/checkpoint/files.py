"""What saving and loading share: names of entries, shards, the form of the files, errors.

A folder has `index.pt` and one file per rank. The index (written by `minigrad.save`) is

    {"format": 1, "save": token, "ranks": count,
     "files": {rank: {"name", "bytes"}},
     "tensors": {name: {"shape", "dtype", "dim",
                        "pieces": [(rank, offset, start, stop, checksum), ...]}},
     "values": {name: value}}

A rank's file begins with `header(token, rank)`; then the elements of its pieces follow, in the byte
order of little-endian machines. A piece is a part of a tensor, flattened after `dim` was moved to
the front: its elements from `start` to `stop`, at `offset` bytes in the file. The token is random,
and the same for all files of a save.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

from minigrad import distributed as dist
from minigrad.distributed.groups import resolve
from minigrad.tensor import Tensor

FORMAT = 1
INDEX = "index.pt"
RANK_FILE = re.compile(r"rank-(\d+)\.([0-9a-f]{16})\.bin")
HEADER = 64


class CheckpointException(RuntimeError):
    """A checkpoint cannot be written or read, on some rank."""


@dataclass(frozen=True)
class Shard:
    """A part of a tensor that is divided among ranks: neighbouring elements of the flattened whole.

    tensor: the elements that this rank has, in any shape. shape: of the whole tensor. start: the
    place of the first element. dim: the dimension that is divided; it is moved to the front before
    the whole is flattened. A rank with several parts has a tuple of shards.
    """

    tensor: Tensor
    shape: tuple[int, ...]
    start: int
    dim: int = 0

    @property
    def stop(self) -> int:
        return self.start + self.tensor.numel()

    @property
    def size(self) -> int:
        """The elements of the whole tensor."""
        return prod(self.shape)


def shards(value: Any) -> tuple[Shard, ...]:
    """The parts of a tensor that a value of a state dict is; none of another value."""
    if isinstance(value, Tensor):
        return (Shard(value.detach(), tuple(value.shape), 0),)
    if isinstance(value, Shard):
        return (value,)
    if isinstance(value, tuple) and value and all(isinstance(part, Shard) for part in value):
        return value
    return ()


def header(token: str, rank: int) -> bytes:
    return f"minigrad checkpoint {FORMAT}, save {token}, rank {rank}\n".encode().ljust(HEADER)


def file_name(token: str, rank: int) -> str:
    return f"rank-{rank}.{token}.bin"


# --- entries by name


class Slot:
    """A value of a nested state dict: `name`, with dots, and where it is put."""

    def __init__(self, owner: Any, key: Any, name: str) -> None:
        self.owner, self.key, self.name = owner, key, name

    @property
    def value(self) -> Any:
        return self.owner[self.key]

    def put(self, value: Any) -> None:
        self.owner[self.key] = value


def is_stateful(value: Any) -> bool:
    return hasattr(value, "state_dict") and hasattr(value, "load_state_dict")


def unfolded(state: Any) -> Any:
    """A copy of the dicts and lists in which objects with a state are replaced by it."""
    if is_stateful(state):
        return unfolded(state.state_dict())
    if isinstance(state, dict):
        return {key: unfolded(value) for key, value in state.items()}
    if isinstance(state, list):
        return [unfolded(value) for value in state]
    return state


def slots(state: dict[Any, Any] | list[Any], prefix: str = "") -> Iterator[Slot]:
    """All values inside of dicts, and of lists that have tensors."""
    items = state.items() if isinstance(state, dict) else enumerate(state)
    for key, value in items:
        name = f"{prefix}{key}"
        if isinstance(value, dict) or (isinstance(value, list) and _has_tensors(value)):
            yield from slots(value, f"{name}.")
        else:
            yield Slot(state, key, name)


def _has_tensors(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return any(map(_has_tensors, value))
    if isinstance(value, dict):
        return any(map(_has_tensors, value.values()))
    return isinstance(value, Tensor | Shard)


# --- together


class Ranks:
    """The ranks that save or load together; one process where there is no group."""

    def __init__(self, operation: str, folder: str, group: Any, no_dist: bool) -> None:
        self.operation, self.folder, self._group = operation, folder, group
        alone = no_dist or not dist.is_initialized()
        self.rank = 0 if alone else resolve(group).rank
        self.size = 1 if alone else resolve(group).size

    def everywhere(self, work: Callable[[], Any]) -> list[Any]:
        """What `work` returns on each rank. Where it fails on one, all raise an error for it."""
        try:
            mine, failed = work(), None
        except Exception as error:
            mine, failed = None, error
        text = None if failed is None else str(failed) or type(failed).__name__
        all_of_them: list[Any] = [(mine, text)]
        if self.size > 1:
            all_of_them = [None] * self.size
            dist.all_gather_object(all_of_them, (mine, text), self._group)
        texts = [(rank, text) for rank, (_, text) in enumerate(all_of_them) if text is not None]
        if texts:
            said = texts[0][1]
            if self.size > 1:
                several = "all ranks" if len(texts) == self.size else f"rank {texts[0][0]}"
                said = f"{several}: {said}"
            raise CheckpointException(
                f"checkpoint.{self.operation}: {self.folder}: {said}"
            ) from failed
        return [result for result, _ in all_of_them]
