"""Errors of communication, with torch's names."""

from __future__ import annotations

from collections.abc import Sequence


def disagreement(ranks: Sequence[int], calls: Sequence[str]) -> str:
    """The text for ranks that call different things."""
    said = "; ".join(f"rank {rank}: {call}" for rank, call in zip(ranks, calls))
    return f"the ranks call different things: {said}"


class DistError(RuntimeError):
    """An error of the package distributed."""


class DistBackendError(DistError):
    """Ranks disagree, or one does not answer."""


class DistNetworkError(DistError):
    """Ranks cannot find each other."""
