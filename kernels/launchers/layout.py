"""How arrays of any strides lie in memory: the arguments of strided kernels."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

from kernels.launchers.common import namespace


def contiguous_strides(shape: Sequence[int]) -> list[int]:
    """Strides in elements of a C-contiguous array."""
    return [math.prod(shape[d + 1 :]) for d in range(len(shape))]


def broadcast_strides(a, shape: Sequence[int]) -> list[int]:
    """a's strides in elements as if broadcast to `shape`: 0 where it repeats."""
    own = [0 if n == 1 else s // a.itemsize for n, s in zip(a.shape, a.strides)]
    return [0] * (len(shape) - a.ndim) + own


def merge(shape: Sequence[int], strides: list[list[int]]) -> tuple[list[int], list[list[int]]]:
    """Drop dimensions of size 1 and merge neighbours that every array walks as one.

    strides: one list per array, in elements. Returns sizes and strides of what is left, at least
    one dimension.
    """
    sizes: list[int] = []
    merged: list[list[int]] = [[] for _ in strides]
    for d, size in enumerate(shape):
        if size == 1:
            continue
        if sizes and all(m[-1] == s[d] * size for m, s in zip(merged, strides)):
            sizes[-1] *= size
            for m, s in zip(merged, strides):
                m[-1] = s[d]
        else:
            sizes.append(size)
            for m, s in zip(merged, strides):
                m.append(s[d])
    return (sizes, merged) if sizes else ([1], [[1] for _ in strides])


def window(name: str, a) -> tuple[Callable, int]:
    """How to see the memory of an array like `a` as a flat array, and where a's first element lies.

    Where it can be, the flat view is a `ravel` in memory order, which costs less than a window: of
    an expanded array, that of its elements, each once.
    Raises ValueError for strides that are no multiples of the item size (fields of records).
    """
    if a.flags.c_contiguous:
        return ravel, 0
    if any(s % a.itemsize for s in a.strides):
        raise ValueError(f"{name}: strides {a.strides} are no multiples of the item size: copy it")
    if is_dense(a):
        return ravel_in_memory_order, 0
    once = (*(0 if s == 0 else slice(None) for s in a.strides), ...)
    if is_dense(a[once]):  # an expanded array
        return lambda a: a[once].ravel("K"), 0
    steps = [(n - 1) * (s // a.itemsize) for n, s in zip(a.shape, a.strides)]
    start = -sum(s for s in steps if s < 0)
    extent = (start + 1 + sum(s for s in steps if s > 0),)
    flip = tuple(slice(None, None, -1 if s < 0 else 1) for s in steps)
    as_strided, item = namespace(a).lib.stride_tricks.as_strided, (a.itemsize,)
    return lambda a: as_strided(a[flip], extent, item), start


def is_dense(a) -> bool:
    """Whether a is a C-contiguous array with its axes in another order."""
    size = a.itemsize
    for stride, n in sorted((s, n) for s, n in zip(a.strides, a.shape) if n != 1):
        if stride != size:
            return False
        size *= n
    return True


def ravel(a):
    """A contiguous array as a flat view."""
    return a.ravel()


def ravel_in_memory_order(a):
    """A dense array (see `is_dense`) as a flat view."""
    return a.ravel("K")


def borders(shape: Sequence[int], pads: tuple, mode: str) -> list[tuple[tuple, tuple]]:
    """(border, what it copies) as indices of the array of this shape with pads (before, after) per
    dimension, dimension after dimension: what is copied along one has the borders of those before.
    mode: "reflect", "replicate" or "circular"."""
    return [
        ((slice(None),) * d + (border,), (slice(None),) * d + (source,))
        for d, (n, (a, b)) in enumerate(zip(shape, pads, strict=True))
        for border, source in _ends(n, a, b, a, mode)
    ]


def parts_with_borders(shape: Sequence[int], pads: tuple, mode: str) -> list[tuple[tuple, tuple]]:
    """(part, what it copies) as indices of the array with pads and of the one without, which has
    this shape: the parts are all but the borders along the last dimension."""
    along = [
        [(slice(a, a + n), slice(0, n)), *_ends(n, a, b, 0, mode)]
        for n, (a, b) in zip(shape, pads, strict=True)
    ]
    along[-1:] = [places[:1] for places in along[-1:]]
    return [
        (tuple([part for part, _ in places]), tuple([source for _, source in places]))
        for places in itertools.product(*along)
    ]


def _ends(n: int, a: int, b: int, first: int, mode: str) -> list[tuple[slice, slice]]:
    """The borders along a dimension of n elements, and what they copy if these begin at `first`."""
    last = first + n - 1
    if mode == "reflect":
        before, after = (first + a, first), (last - 1, last - 1 - b)
    elif mode == "circular":
        before, after = (last + 1 - a, last + 1), (first, first + b)
    else:
        before, after = (first, first + 1), (last, last + 1)
    step = -1 if mode == "reflect" else 1
    ends = ((slice(0, a), before), (slice(a + n, a + n + b), after))
    return [
        (border, slice(start, None if stop < 0 else stop, step))
        for (border, (start, stop)), wide in zip(ends, (a, b), strict=True)
        if wide
    ]
