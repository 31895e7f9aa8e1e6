"""Cross products of vectors of three elements."""

from __future__ import annotations

import math

import numpy as np

from kernels.families import Family, Operation, floats, like_first, normal, ones
from kernels.launchers.common import Dialect, ceil_div, contiguous, empty
from kernels.launchers.plans import Plans
from kernels.launchers.relaunch import remembered

THREADS = 256
VERSIONS = {"thread": "a thread per vector"}

_plans = Plans()


@remembered(2)
def cross(dialect: Dialect, a: np.ndarray, b: np.ndarray, axis: int = -1) -> np.ndarray:
    """The cross products of the vectors of a and b along `axis`, for arrays of one shape and dtype;
    16-bit floats are multiplied in float32. Raises ValueError unless the axis has three elements.
    """
    if (a.shape, a.dtype) != (b.shape, b.dtype):
        raise ValueError(
            f"cross: expected arrays of one shape and dtype, got {a.shape} of {a.dtype} and"
            f" {b.shape} of {b.dtype}"
        )
    if not -a.ndim <= axis < a.ndim or a.shape[axis] != 3:
        raise ValueError(f"cross: expected three elements along axis {axis}, got shape {a.shape}")
    out = empty(a.shape, a.dtype, a)
    if out.size:
        inner = math.prod(a.shape[axis % a.ndim + 1 :])
        grid, kernel = ceil_div(out.size // 3, THREADS), dialect.cross.kernel
        launch = _plans.launch("cross", "thread", kernel, (a.dtype,), grid, THREADS, a)
        launch(contiguous(a).ravel(), contiguous(b).ravel(), out.ravel(), inner)
    return out


def _cases(rng, versions):
    for shape, axis in [((33, 3), -1), ((5, 3, 7), 1), ((3, 1025), 0)]:
        yield "cross", (normal(rng, shape), normal(rng, shape), axis), {}, 3


def _compiled(versions):
    yield "cross", (ones(43, 3), ones(43, 3)), {}


FAMILY = Family(
    "cross",
    (
        Operation(
            cross,
            like_first(3),
            lambda version: ((floats(400, 3), floats(400, 3)), {}),
            by_shape=VERSIONS,
        ),
    ),
    _cases,
    _compiled,
)
