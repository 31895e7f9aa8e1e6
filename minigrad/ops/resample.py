"""Resampling of images and signals: `interpolate`, one dimension after the other.

A result of n elements takes, along each dimension, a weighted sum of few elements of the input: of
one (nearest), two (linear) or four (cubic). Nearest selects by index; for the others the weights
are the rows of a matrix, which multiplies the input, or along a long dimension, where nearly all of
it would be zeros, factors of what is selected by index.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from kernels.launchers.resample import Taps
from minigrad.autograd.mode import autocasts
from minigrad.autograd.mode import mode as grad_mode
from minigrad.backends import array_module, on_gpu
from minigrad.ops.combine import of_its_own, repeated_along
from minigrad.ops.composed import composed
from minigrad.ops.index import Pick
from minigrad.ops.pointwise import check_floating
from minigrad.ops.pool import averages
from minigrad.ops.taps import resampled
from minigrad.tensor import Tensor, wrap

_DIMENSIONS = {"linear": 1, "bilinear": 2, "bicubic": 2, "trilinear": 3}
_MODES = ("nearest", "nearest-exact", "area", *_DIMENSIONS)
_OF_BYTES = ("nearest", "nearest-exact", "bilinear", "bicubic")  # uint8 images have these


def _output_size(size: Any, scale_factor: Any, lengths: tuple[int, ...]) -> list[int]:
    """The lengths of the result, from `size=` or `scale_factor=`."""
    given = size if size is not None else scale_factor
    values = list(given) if isinstance(given, Sequence) else [given] * len(lengths)
    if len(values) != len(lengths):
        raise ValueError(
            "Input and output must have the same number of spatial dimensions, but got input with "
            f"spatial dimensions of {list(lengths)} and "
            f"{'scale_factor' if size is None else 'output size'} of {given}."
        )
    if size is not None:
        return [operator.index(v) for v in values]
    return [math.floor(n * float(v)) for n, v in zip(lengths, values, strict=True)]


def _check(input: Tensor, size: Any, scale_factor: Any, mode: str, align_corners: Any) -> None:
    if (size is None) == (scale_factor is None):
        what = "only one of" if size is not None else "either"
        raise ValueError(f"{what} size or scale_factor should be defined")
    if mode not in _MODES:
        raise NotImplementedError(f"interpolate: expected mode one of {_MODES}, got {mode!r}")
    if align_corners is not None and mode not in _DIMENSIONS:
        raise ValueError(
            "align_corners option can only be set with the interpolating modes: "
            "linear | bilinear | bicubic | trilinear"
        )
    if mode not in _OF_BYTES or input._array.dtype != np.uint8:
        check_floating("compute_indices_weights", input)
    dims = input._array.ndim - 2
    if not 1 <= dims <= 3 or _DIMENSIONS.get(mode, dims) != dims:
        raise NotImplementedError(
            f"Got {dims + 2}D input, but {mode} mode needs "
            f"{_DIMENSIONS.get(mode, '1, 2 or 3 spatial dimensions')} (and batch and channels)"
        )


@autocasts
def interpolate(
    input: Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """input (N, C, ...) resampled to `size`, or to its lengths times `scale_factor`.

    mode: "nearest", "nearest-exact", "area" (adaptive average), "linear" (3-D input), "bilinear",
    "bicubic" (4-D) or "trilinear" (5-D). align_corners: the corners of both grids coincide.
    recompute_scale_factor: coordinates use the ratio of the lengths, not the factor given.
    antialias: a smaller result takes all elements of the input, as image programs do; for
    "bilinear" and "bicubic".
    """
    _check(input, size, scale_factor, mode, align_corners)
    if recompute_scale_factor and size is not None:
        raise ValueError("recompute_scale_factor is not meaningful with an explicit size.")
    if antialias and mode not in ("bilinear", "bicubic"):
        raise ValueError(
            "Anti-alias option is restricted to bilinear and bicubic modes and requires a 4-D "
            "tensor as input"
        )
    lengths = input._array.shape[2:]
    target = _output_size(size, scale_factor, lengths)
    if min(target) <= 0 or 0 in input._array.shape[1:]:
        raise RuntimeError(
            f"Input and output sizes should be greater than 0, but got input {list(input.shape)} "
            f"output {target}"
        )
    factors: Sequence[Any] = [None] * len(lengths)
    if scale_factor is not None and not recompute_scale_factor:
        same = isinstance(scale_factor, Sequence)
        factors = scale_factor if same else [scale_factor] * len(lengths)
    if mode.startswith("nearest") and _may_gather(input, target):
        steps = [_step(mode, *given, align_corners) for given in zip(lengths, target, factors)]
        few = math.prod((*input._array.shape[:2], *target)) <= _FEW // 2
        if few and all(_repeats(*given, mode) for given in zip(lengths, target, steps)):
            counts = {d: m // n for d, (n, m) in enumerate(zip(lengths, target), 2)}
            return repeated_along(input, counts)
        return composed(_gathered, input, target=tuple(target), steps=tuple(steps), mode=mode)
    repeats, source = {}, input
    in_bytes = input._array.dtype == np.uint8 and not mode.startswith("nearest")
    # Bytes: rows first, as in Pillow and torch, for each pass rounds. Others: rows, the slowest
    # pass, where they are fewer.
    grows = math.prod(target[:-1]) > math.prod(lengths[:-1])
    order = range(len(lengths))
    for i in reversed(order) if in_bytes or grows else order:
        n, m, dim = lengths[i], target[i], i + 2
        step = _step(mode, n, m, factors[i], align_corners)
        input = input.float() if in_bytes else input
        if mode.startswith("nearest") and on_gpu(input._array) and _repeats(n, m, step, mode):
            repeats[dim] = m // n
        elif antialias:
            input = resampled(input, dim, _antialiased(n, m, step, mode))
        else:
            input = _along(input, dim, n, m, step, mode, bool(align_corners))
        if in_bytes:
            input = (input + 0.5).clamp(0, 255).byte()
    return repeated_along(input, repeats) if repeats else of_its_own(input, source)


def _step(mode: str, n: int, m: int, factor: float | None, align_corners: bool | None) -> float:
    """The distance, in elements of the input, between neighbours of the result."""
    if align_corners:
        return (n - 1) / (m - 1) if m > 1 else 0.0
    return 1 / factor if factor else n / m


def _nearest(n: int, m: int, step: float, mode: str) -> np.ndarray:
    """Which of n elements each of m takes."""
    offset = 0.5 if mode == "nearest-exact" else 0.0
    chosen = np.floor((np.arange(m) + offset).astype(np.float32) * np.float32(step))
    return chosen.astype(np.int64).clip(0, n - 1)


_FEW = 1 << 16  # elements of a result, of which Python would take most of the time


def _may_gather(x: Tensor, target: Sequence[int]) -> bool:
    """Whether a CPU takes all dimensions at once, by one index, and nobody notes operations."""
    shape = x._array.shape
    small = math.prod((*shape[:2], *target)) <= _FEW and tuple(target) != shape[2:]
    alone = grad_mode.recorder is None and grad_mode.observer is None
    return small and alone and type(x._array) is np.ndarray and x._array.dtype.kind != "c"


@functools.lru_cache(64)
def _nearest_places(lengths: tuple, target: tuple, steps: tuple, mode: str) -> np.ndarray:
    """The position in a plane, or a volume, of each element of the result."""
    taken = [_nearest(*given, mode) for given in zip(lengths, target, steps)]
    return np.ravel_multi_index(np.ix_(*taken), lengths).reshape(1, -1)


def _gathered(x: Tensor, target: tuple, steps: tuple, mode: str) -> Tensor:
    """The same elements of each plane, or volume, as those of the result."""
    shape = x._array.shape
    places = _nearest_places(shape[2:], target, steps, mode)
    planes = x.reshape(shape[0] * shape[1], math.prod(shape[2:]))
    index = np.broadcast_to(places, (shape[0] * shape[1], places.size))
    return of_its_own(Pick.apply(planes, wrap(index), dim=1).reshape(*shape[:2], *target), x)


@functools.lru_cache
def _repeats(n: int, m: int, step: float, mode: str) -> bool:
    """Whether each of n elements is taken equally often, by neighbours."""
    return m % n == 0 and bool((_nearest(n, m, step, mode) == np.arange(m) // (m // n)).all())


def _along(x: Tensor, dim: int, n: int, m: int, step: float, mode: str, aligned: bool) -> Tensor:
    """One dimension of n elements resampled to m."""
    if mode.startswith("nearest"):
        taken = _nearest(n, m, step, mode)
        if n == m and (taken == np.arange(m)).all():
            return x
        return x.index_select(dim, wrap(array_module(x._array).asarray(taken)))
    return resampled(x, dim, _taps(n, m, step, mode, aligned))


@functools.lru_cache
def _taps(n: int, m: int, step: float, mode: str, aligned: bool) -> Taps:
    """What m results take from n elements."""
    if mode == "area":
        return averages(n, m)
    positions = np.arange(m)
    centres = positions * step if aligned else (positions + 0.5) * step - 0.5
    places, shares = _cubic(centres) if mode == "bicubic" else _linear(centres, n, aligned)
    columns = np.concatenate(places).clip(0, n - 1)
    return Taps(m, n, np.tile(positions, len(places)), columns, np.concatenate(shares))


@functools.lru_cache
def _antialiased(n: int, m: int, step: float, mode: str) -> Taps:
    """A triangle or a cubic (a = -0.5) around each result, widened by `step` above 1."""
    wide = max(step, 1.0)
    centres = (np.arange(m) + 0.5)[:, None] * step
    reach = (2.0 if mode == "bicubic" else 1.0) * wide
    places = np.arange(n)
    d = np.abs(places + 0.5 - centres) / wide
    if mode == "bicubic":
        share = np.where(d < 1, (1.5 * d - 2.5) * d * d + 1, ((-0.5 * d + 2.5) * d - 4) * d + 2)
    else:
        share = 1 - d
    first = (centres - reach + 0.5).astype(np.int64)  # truncated, as in Pillow and torch
    after = (centres + reach + 0.5).astype(np.int64)
    covered = (places >= first) & (places < after)
    share = np.where(covered & (d < reach / wide), share, 0)
    share /= share.sum(1, keepdims=True)
    rows, columns = np.nonzero(covered)
    return Taps(m, n, rows, columns, share[covered])


def _linear(centres: np.ndarray, n: int, aligned: bool) -> tuple[list, list]:
    """The places of two neighbours and their shares."""
    centres = centres if aligned else centres.clip(min=0)
    left = np.floor(centres).astype(np.int64).clip(max=n - 1)
    share = (centres - left).clip(0, 1)
    return [left, left + 1], [1 - share, share]


def _cubic(centres: np.ndarray) -> tuple[list, list]:
    """The places of four neighbours and their shares: cubic convolution with a = -0.75 (Keys
    1981)."""
    a = -0.75
    left = np.floor(centres).astype(np.int64)
    t = centres - left

    def near(d: np.ndarray) -> np.ndarray:  # distances up to 1
        return ((a + 2) * d - (a + 3)) * d * d + 1

    def far(d: np.ndarray) -> np.ndarray:  # from 1 to 2
        return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a

    places = [left - 1, left, left + 1, left + 2]
    return places, [far(t + 1), near(t), near(1 - t), far(2 - t)]
