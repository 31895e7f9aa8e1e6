"""Size: the shape of a tensor."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable
from typing import Any, SupportsIndex


class Size(tuple):
    """The shape of a tensor: a tuple of integers with `numel()`. TypeError for other elements."""

    __slots__ = ()

    def __new__(cls, lengths: Iterable = ()) -> Size:
        return tuple.__new__(cls, [_length(i, n) for i, n in enumerate(lengths)])

    def numel(self) -> int:
        """The number of elements."""
        return math.prod(self)

    def __getitem__(self, key: Any) -> Any:
        item = tuple.__getitem__(self, key)
        return size_of(item) if isinstance(key, slice) else item

    def __add__(self, other: Any) -> Size:
        if not isinstance(other, tuple):
            raise TypeError(
                f"can only concatenate tuple (not {type(other).__name__}) to minigrad.Size"
            )
        return Size((*self, *other))

    def __radd__(self, other: Any) -> Size:
        if not isinstance(other, tuple):
            return NotImplemented
        return Size((*other, *self))

    def __mul__(self, times: SupportsIndex) -> Size:
        return size_of(tuple.__mul__(self, times))

    __rmul__ = __mul__

    def __repr__(self) -> str:
        return f"minigrad.Size({list(self)})"


def size_of(shape: tuple) -> Size:
    """The `Size` of a tuple of integers."""
    return tuple.__new__(Size, shape)


def _length(place: int, n: Any) -> int:
    try:
        return int(operator.index(n))  # True is 1
    except TypeError:
        raise TypeError(
            f"minigrad.Size() takes an iterable of 'int' (item {place} is '{type(n).__name__}')"
        ) from None
