"""What a mask chooses: the checks and the launches.

The host must know how many elements a mask chooses before there can be a result:

    ends = mask_ends(mask)
    masked_select(x, mask, ends, int(ends[-1]))
"""

from __future__ import annotations

import numpy as np

from kernels.families import Family, Operation, floats, ones
from kernels.launchers.common import Dialect, ceil_div, contiguous, empty
from kernels.launchers.plans import Plans
from kernels.launchers.scan import cumsum

THREADS, EACH = 256, 16  # of a block, elements of a thread
PART = THREADS * EACH
VERSIONS = {"counted": "blocks count, a running sum says where each begins to write"}

_plans = Plans()


def mask_ends(dialect: Dialect, mask: np.ndarray) -> np.ndarray:
    """How many elements are True up to the end of each part of 4096, in order; int64.

    Raises TypeError for a mask that is not of bool.
    """
    if mask.dtype != bool:
        raise TypeError(f"mask_ends: expected a mask of bool, got {mask.dtype}")
    counts = empty((ceil_div(mask.size, PART),), np.dtype(np.int64), mask)
    if not counts.size:
        return counts
    launch = _launch("mask_ends", dialect.mask.count, (), len(counts), counts)
    launch(contiguous(mask).ravel(), counts)
    return cumsum(dialect, counts)


def masked_select(
    dialect: Dialect, x: np.ndarray, mask: np.ndarray, ends: np.ndarray, found: int
) -> np.ndarray:
    """The elements of x where a mask of its shape is True, in order, as one dimension.

    ends: `mask_ends` of the mask; found: the last of them. Raises ValueError for another shape,
    TypeError for other dtypes of mask and ends.
    """
    _check("masked_select", mask, ends)
    if x.shape != mask.shape:
        raise ValueError(f"masked_select: expected a mask of shape {x.shape}, got {mask.shape}")
    out = empty((found,), x.dtype, x)
    if found:
        launch = _launch("masked_select", dialect.mask.choose, (x.dtype,), len(ends), out)
        launch(contiguous(mask).ravel(), ends, contiguous(x).ravel(), out)
    return out


def mask_places(dialect: Dialect, mask: np.ndarray, ends: np.ndarray, found: int) -> np.ndarray:
    """The places (found, ndim), int64, where a mask of 1 to 4 dimensions is True, in order.

    ends, found: as `masked_select` says. Raises ValueError for other dimensions, TypeError for
    other dtypes.
    """
    _check("mask_places", mask, ends)
    ndim, sizes = mask.ndim, (1, 1, 1, *mask.shape)[-3:]
    if not 1 <= ndim <= 4:
        raise ValueError(f"mask_places: expected 1 to 4 dimensions, got {ndim}")
    out = empty((found, ndim), np.dtype(np.int64), mask)
    if found:
        constants = ndim, mask.size >= 1 << 31
        launch = _launch("mask_places", dialect.mask.places, constants, len(ends), out)
        launch(contiguous(mask).ravel(), ends, out.ravel(), *sizes)
    return out


def _check(name: str, mask, ends) -> None:
    """What a launch for the dtypes of an earlier one would read as those."""
    if mask.dtype != bool or ends.dtype != np.int64:
        raise TypeError(
            f"{name}: expected a mask of bool and its ends as int64 (`mask_ends`), got {mask.dtype}"
            f" and {ends.dtype}"
        )
    if ends.shape != (ceil_div(mask.size, PART),):
        raise ValueError(
            f"{name}: expected {ceil_div(mask.size, PART)} ends, one for each {PART} elements of"
            f" the mask, got {ends.shape}"
        )


def _launch(name: str, factory, constants: tuple, grid: int, like):
    return _plans.launch(name, "counted", factory, constants, grid, THREADS, like)


def _cost(mask):
    return [((ceil_div(mask.size, PART),), np.dtype(np.int64))], 0


def _cost_of_select(x, mask, ends, found):
    return [((found,), x.dtype)], 0


def _cost_of_places(mask, ends, found):
    return [((found, mask.ndim), np.dtype(np.int64))], 0


def _given(mask: np.ndarray) -> tuple:
    """A mask, its ends, and how many elements it chooses."""
    starts = range(0, mask.size, PART)
    ends = np.cumsum([mask.ravel()[i : i + PART].sum() for i in starts], dtype=np.int64)
    return mask, ends, int(mask.sum())


def _mask(*shape: int) -> np.ndarray:
    return floats(*shape) > 0


def _cases(rng, versions):
    for shape in ((9000,), (70, 65), (3, 5, 33), (2, 3, 5, 7)):
        given = _given(rng.random(shape) < 0.4)
        yield "mask_ends", given[:1], {}, 0
        yield "masked_select", (rng.standard_normal(shape).astype(np.float32), *given), {}, 0
        yield "mask_places", given, {}, 0


def _compiled(versions):
    yield "mask_ends", (ones(70, 65) > 0,), {}
    yield "masked_select", (ones(70, 65), *_given(ones(70, 65) > 0)), {}
    for ndim in range(1, 5):
        yield "mask_places", _given(ones(*[3] * ndim) > 0), {}


FAMILY = Family(
    "mask",
    (
        Operation(mask_ends, _cost, lambda version: ((_mask(40, 40),), {}), by_shape=VERSIONS),
        Operation(
            masked_select,
            _cost_of_select,
            lambda version: ((floats(40, 40), *_given(_mask(40, 40))), {}),
            by_shape=VERSIONS,
        ),
        Operation(
            mask_places,
            _cost_of_places,
            lambda version: (_given(_mask(40, 40)), {}),
            by_shape=VERSIONS,
        ),
    ),
    _cases,
    _compiled,
)
