"""Ranks with different numbers of batches, which minigrad doesn't have: every rank takes as many
steps as the others. Other packages import these names, and use them if a program asks for it."""

from __future__ import annotations

from typing import Any

from minigrad._names import namespace

__all__ = ["Join", "JoinHook", "Joinable"]


class JoinHook:
    """What a rank without further batches does instead of a step."""


class Joinable:
    """The class of what can take part in a `Join`, which nothing has."""


class Join:
    """NotImplementedError: collectives wait for all ranks."""

    def __init__(self, joinables: Any, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError(
            "Join: minigrad has no steps in which some ranks have no batch; fix: give each rank "
            "the same number of batches, as DistributedSampler does"
        )


__getattr__, __dir__ = namespace(__name__)
