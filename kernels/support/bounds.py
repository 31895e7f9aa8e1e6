"""Whether the numbers of an index array are inside of what they index."""

from __future__ import annotations

from typing import Any

import numpy as np

_UNSIGNED = {np.dtype(f"i{n}"): np.dtype(f"u{n}") for n in (1, 2, 4, 8)}
_MANY = 1 << 12  # up to here `argmax` takes less time than a ufunc takes to begin


def all_below(index: Any, size: int) -> bool:
    """Whether all integers of an array are in 0 .. size - 1."""
    if not index.size:
        return True
    if 0 in index.strides:  # what is repeated is looked at once
        index = index[tuple([slice(None, 1 if step == 0 else None) for step in index.strides])]
    count = index.size
    unsigned = _UNSIGNED.get(index.dtype) if type(index) is np.ndarray else None
    if unsigned is None:
        return bool(index.min() >= 0 and index.max() < size)
    words = index.view(unsigned)  # a negative number is a large one
    if count > _MANY:
        return bool(np.maximum.reduce(words, axis=None) < size)
    return words.item(words.argmax()) < size
