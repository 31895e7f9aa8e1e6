"""Algorithms of several ranks, by torch's names."""

from __future__ import annotations

from minigrad._names import namespace
from minigrad.distributed.algorithms.join import Join, Joinable, JoinHook

__all__ = ["Join", "JoinHook", "Joinable"]

__getattr__, __dir__ = namespace(__name__)
