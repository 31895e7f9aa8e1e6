"""Random choices of transforms, by the seed that `minigrad.manual_seed` sets.

The numbers come from NumPy's Philox, keyed by the seed and counted by calls: a worker process need
not load a kernel for one number.
"""

from __future__ import annotations

import numpy as np

from minigrad.random import current_generator


def draw() -> np.random.Generator:
    """A generator of its own for each call; the next one is another."""
    seed, call = current_generator().next_call()
    return np.random.Generator(np.random.Philox(key=seed, counter=[0, 0, 0, call]))


def chance(p: float) -> bool:
    """True with probability p."""
    return bool(draw().random() < p)


def uniform(low: float, high: float) -> float:
    """A number between the two."""
    return float(draw().uniform(low, high))


def below(count: int) -> int:
    """An integer from 0 to count - 1."""
    return int(draw().integers(count))
