"""Whether the numbers of an index array are inside of what they index."""

from __future__ import annotations

from typing import Any

import numpy as np

_UNSIGNED = {np.dtype(f"i{n}"): np.dtype(f"u{n}") for n in (1, 2, 4, 8)}


def all_below(index: Any, size: int) -> bool:
    """Whether all integers of an array are in 0 .. size - 1."""
    if not index.size:
        return True
    unsigned = _UNSIGNED.get(index.dtype) if type(index) is np.ndarray else None
    if unsigned is None:
        return bool(index.min() >= 0 and index.max() < size)
    found = np.maximum.reduce(index.view(unsigned), axis=None)  # a negative number is a large one
    return bool(found < size)
