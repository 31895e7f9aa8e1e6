"""A group of one process, without MPI: every collective leaves or copies its tensor."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

from minigrad.distributed.process_group import ProcessGroup


class Done:
    """A collective that is over."""

    def is_completed(self) -> bool:
        return True

    def wait(self, timeout: Any = None) -> bool:
        return True


class Alone(ProcessGroup):
    """The interface of `mpi.Group` for one rank."""

    rank, size = 0, 1
    ranks = (0,)

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout

    def all_reduce(self, array: Any, op: str) -> Done:
        return Done()

    def reduce(self, array: Any, dst: int, op: str) -> Done:
        return Done()

    def broadcast(self, array: Any, src: int) -> Done:
        return Done()

    def barrier(self) -> Done:
        return Done()

    def all_gather(self, out: Any, array: Any) -> Done:
        out.reshape(-1)[...] = array.reshape(-1)
        return Done()

    def gather(self, out: Any, array: Any, dst: int) -> Done:
        return self.all_gather(out, array)

    def scatter(self, array: Any, parts: Any, src: int) -> Done:
        return self.all_gather(array, parts)

    def reduce_scatter(self, out: Any, parts: Any, op: str) -> Done:
        return self.all_gather(out, parts)

    def all_to_all(self, out: Any, array: Any, give: Sequence[int], take: Sequence[int]) -> Done:
        return self.all_gather(out, array)

    def agree(self, text: str) -> None:
        """One rank agrees with itself."""

    def exchange(self, name: str, data: bytes) -> list[bytes]:
        return [data]

    def together(self) -> Any:
        return nullcontext()

    def subgroup(self, ranks: Sequence[int], timeout: float) -> Alone | None:
        return Alone(timeout) if ranks else None

    def leave(self) -> None:
        """Nobody waits for this rank."""
