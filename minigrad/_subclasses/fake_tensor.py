"""torch's place of the question whether a tensor only pretends to have data."""

from __future__ import annotations

from typing import Any

from minigrad._names import namespace

__all__ = ["is_fake"]


def is_fake(x: Any) -> bool:
    """False: minigrad has no such tensors; those of the device meta say so by `is_meta`."""
    return False


__getattr__, __dir__ = namespace(__name__)
