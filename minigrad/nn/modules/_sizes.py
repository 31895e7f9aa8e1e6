"""Small conversions that convolution and pooling share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def ntuple(value: Any, n: int) -> tuple:
    """`value` as a tuple of `n`: an int is repeated, an iterable is kept as it is."""
    if isinstance(value, Iterable):
        return tuple(value)
    return (value,) * n
