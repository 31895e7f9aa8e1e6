"""Which memory an array is a view of.

An optimiser keeps parameters in one buffer (`minigrad.optim.arena`), but a program must see each in
memory of its own. So the buffer says where its parts begin and end.
"""

from __future__ import annotations

import weakref
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

import numpy as np

from minigrad.backends import is_batched

_PARTS: dict[int, Sequence[tuple[int, int]]] = {}  # by the id of a buffer, bytes from its start


def divide(buffer: Any, parts: Sequence[tuple[int, int]]) -> None:
    """Let the parts of an array, (start, stop) in elements and ascending, count as memory of their
    own."""
    try:
        weakref.finalize(buffer, _PARTS.pop, id(buffer), None).atexit = False
    except TypeError:  # an array that can't be referred to weakly stays one memory
        return
    _PARTS[id(buffer)] = parts


def base_of(array: Any) -> Any:
    """The array that this one is a view of, or None."""
    base = getattr(array, "base", None)
    if not isinstance(base, type(array)):
        base = getattr(base, "base", None)  # NumPy's as_strided puts an object in between
    return base if isinstance(base, type(array)) else None


def root_of(array: Any) -> tuple[Any, int, int]:
    """(the array that holds the memory of a view, start, stop): the view's part of it in elements
    of that array."""
    if is_batched(array):
        array.memory()
    root = array
    while (base := base_of(root)) is not None:
        root = base
    parts = _PARTS.get(id(root))
    if parts:
        place = (_address(array) - _address(root)) // root.itemsize
        start, stop = parts[max(bisect_right(parts, (place, root.size)) - 1, 0)]
        if start <= place < stop:
            return root, start, stop
    return root, 0, root.size


def _address(array: Any) -> int:
    of_numpy = isinstance(array, np.ndarray)
    return array.__array_interface__["data"][0] if of_numpy else array.data.ptr
