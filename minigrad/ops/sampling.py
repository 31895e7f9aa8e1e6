"""Values of images at arbitrary points (`grid_sample`), and the undoing of max pooling."""

from __future__ import annotations

import functools
import itertools
import math
import operator
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

import minigrad
from kernels import dispatch
from minigrad import dtypes
from minigrad.autograd.mode import autocasts, no_grad
from minigrad.autograd.mode import mode as state
from minigrad.autograd.node import Op
from minigrad.ops.bags import ScaledSums, can_be_summed
from minigrad.ops.combine import of_its_own
from minigrad.ops.composed import FEW, composed
from minigrad.ops.pointwise import POINTWISE, check_floating
from minigrad.tensor import Tensor, wrap

MODES = ("bilinear", "nearest", "bicubic")
PADDING = ("zeros", "border", "reflection")


def affine_grid(theta: Tensor, size: Sequence[int], align_corners: bool | None = None) -> Tensor:
    """The points (N, H, W, 2) to which matrices theta (N, 2, 3) move a grid over [-1, 1], for
    size (N, C, H, W); (N, D, H, W, 3) for theta (N, 3, 4) and size (N, C, D, H, W).

    align_corners: whether -1 and 1 are the centres of the corner elements, not their outer edges;
        None is False, with a warning.
    """
    check_floating("affine_grid", theta)
    align_corners = _aligned("affine_grid", align_corners)
    dims = len(size) - 2
    if dims not in (2, 3) or theta._array.shape[1:] != (dims, dims + 1):
        raise ValueError(
            f"Expected a batch of {dims}D affine matrices of shape Nx{dims}x{dims + 1} for size "
            f"{tuple(size)}. Got {tuple(theta.shape)}."
        )
    if min(size) <= 0:
        raise ValueError(f"Expected non-zero, positive output size. Got {tuple(size)}")
    size, on_cpu = tuple([int(n) for n in size]), type(theta._array) is np.ndarray
    unseen = state.recorder is None and state.observer is None
    if on_cpu and unseen and math.prod(size[2:]) <= FEW:
        points = wrap(_kept_points(size[2:], align_corners, theta._array.dtype))
    else:
        points = _points(size[2:], align_corners, theta.dtype, theta.device)
    return (points @ theta.transpose(1, 2)).reshape(size[0], *size[2:], dims)


def _points(size: tuple, align_corners: bool, dtype: Any, device: Any) -> Tensor:
    """The points of a grid over [-1, 1], each with a 1 behind it: (1, points, dims + 1)."""
    options: dict[str, Any] = {"dtype": dtype, "device": device}
    axes = []
    for n in reversed(size):  # x, y, z
        span = 1.0 if align_corners else (n - 1) / n
        axes.append(minigrad.linspace(-span, span, n, **options) if n > 1 else
                    minigrad.zeros(1, **options))  # fmt: skip
    planes = minigrad.meshgrid(*reversed(axes), indexing="ij")
    one = minigrad.ones(size, **options)
    return minigrad.stack([*reversed(planes), one], -1).reshape(1, -1, len(size) + 1)


@functools.lru_cache(16)
def _kept_points(size: tuple, align_corners: bool, dtype: np.dtype) -> Any:
    """Those on the CPU, which are the same each time."""
    return _points(size, align_corners, dtypes.from_numpy_dtype(dtype), "cpu")._array


def _aligned(name: str, align_corners: bool | None) -> bool:
    """The flag, whose default was True in torch before version 1.3."""
    if align_corners is None:
        warnings.warn(
            f"{name}: align_corners is not given, and is False. Fix: align_corners=False, or True "
            "for -1 and 1 at the centres of the corner elements",
            UserWarning,
            stacklevel=6,
        )
    return bool(align_corners)


@autocasts
def grid_sample(
    input: Tensor,
    grid: Tensor,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool | None = None,
) -> Tensor:
    """Values of input (N, C, H, W) at the points grid (N, OH, OW, 2), x before y, in [-1, 1]:
    (N, C, OH, OW). Volumes (N, C, D, H, W) take grid (N, OD, OH, OW, 3).

    mode: "bilinear", "nearest", or "bicubic" for images. padding_mode: of points outside. The
    gradient reaches input and grid.
    """
    dims = input._array.ndim - 2
    _check_grid(input, grid, dims, mode, padding_mode)
    align_corners = _aligned("grid_sample", align_corners)
    if dims == 2 and mode != "bicubic" and state.observer is None:
        options: dict[str, Any] = {"padding_mode": padding_mode, "align_corners": align_corners}
        return GridSample.apply(input, grid, mode=mode, **options)
    options = {
        "mode": mode,
        "padding_mode": padding_mode,
        "align_corners": align_corners,
    }
    if state.enabled and (input.requires_grad or grid.requires_grad):
        return _composed(input, grid, **options)  # whose gradient looks at numbers
    return composed(_composed, input, grid, **options)


def _composed(
    input: Tensor, grid: Tensor, mode: str, padding_mode: str, align_corners: bool
) -> Tensor:
    """`grid_sample` of other operations."""
    size = input._array.shape[2:]
    places = [_unnormalised(grid[..., d], n, align_corners) for d, n in enumerate(reversed(size))]
    if mode == "bicubic":
        return _bicubic(input, places, padding_mode, align_corners)
    places = [
        _kept_inside(p, n, padding_mode, align_corners)
        for p, n in zip(places, reversed(size), strict=True)
    ]
    if mode == "nearest":
        with no_grad():
            nearest = [POINTWISE["round"](p) for p in places]
        found = _weighted(input, [[(p, None)] for p in nearest])
        if not (state.enabled and grid.requires_grad):
            return found
        nothing = POINTWISE["where"](False, grid[..., 0], 0.0)  # whose gradient is zero
        return found + nothing.unsqueeze(1)
    with no_grad():
        lower = [POINTWISE["floor"](p) for p in places]
    return _weighted(
        input,
        [[(low, low + 1 - p), (low + 1, p - low)] for p, low in zip(places, lower, strict=True)],
    )


class GridSample(Op):
    """`grid_sample` of images in one launch, and two for its gradients."""

    repeats = True

    @staticmethod
    def forward(x: Any, grid: Any, mode: str, padding_mode: str, align_corners: bool) -> Any:
        return dispatch.active.grid_sample(x, grid, mode, padding_mode, align_corners)

    @staticmethod
    def vjp(ctx: Any, g: Tensor, **options: Any) -> tuple:
        tensors = ctx.tensors()
        if not state.enabled:
            arrays = (t._array for t in (g, *tensors))
            grads = dispatch.active.grid_sample_backward(*arrays, *options.values())
            return tuple([wrap(a) if need else None for a, need in zip(grads, ctx.needs)])
        wanted = [t for t, need in zip(tensors, ctx.needs, strict=True) if need]
        y = _composed(*tensors, **options)
        found = iter(minigrad.autograd.grad(y, wanted, g, create_graph=True))
        return tuple([next(found) if need else None for need in ctx.needs])


def _check_grid(input: Tensor, grid: Tensor, dims: int, mode: str, padding_mode: str) -> None:
    if mode not in MODES or padding_mode not in PADDING:
        raise ValueError(
            f"grid_sample: expected mode among {MODES} and padding_mode among {PADDING}, got "
            f"{mode!r} and {padding_mode!r}"
        )
    if dims not in (2, 3) or grid._array.ndim != dims + 2 or grid._array.shape[-1] != dims:
        raise RuntimeError(
            "grid_sampler(): expected 4D or 5D input and grid with same number of dimensions, but "
            f"got input with sizes {list(input.shape)} and grid with sizes {list(grid.shape)}"
        )
    if input._array.shape[0] != grid._array.shape[0]:
        raise RuntimeError(
            "grid_sampler(): expected grid and input to have same batch size, but got input with "
            f"sizes {list(input.shape)} and grid with sizes {list(grid.shape)}"
        )
    if mode == "bicubic" and dims != 2:
        raise RuntimeError("grid_sampler(): bicubic interpolation only supports 4D input")
    check_floating("grid_sampler", input, grid)
    if input._array.dtype != grid._array.dtype:
        raise RuntimeError(
            f"grid_sampler(): expected input and grid to have same dtype, but input has "
            f"{input.dtype} and grid has {grid.dtype}"
        )
    if 0 in input._array.shape[2:]:
        raise RuntimeError(
            "grid_sampler(): expected input to have non-empty spatial dimensions, but input has "
            f"sizes {list(input.shape)}"
        )


def _unnormalised(x: Tensor, n: int, align_corners: bool) -> Tensor:
    """From [-1, 1] to positions of elements."""
    return (x + 1) * ((n - 1) / 2) if align_corners else ((x + 1) * n - 1) * 0.5


def _kept_inside(x: Tensor, n: int, padding_mode: str, align_corners: bool) -> Tensor:
    if padding_mode == "zeros":
        return x
    if padding_mode == "reflection":
        x = _reflected(x, 0, 2 * (n - 1)) if align_corners else _reflected(x, -1, 2 * n - 1)
    inside = (x > 0) & (x < n - 1)  # no number is the first place, as in the kernels
    return minigrad.where(inside, x, x.detach().nan_to_num().clamp(0, n - 1))


def _reflected(x: Tensor, low2: int, high2: int) -> Tensor:
    """x reflected into [low2 / 2, high2 / 2]."""
    if low2 == high2:
        return x * 0
    low, span = low2 / 2, (high2 - low2) / 2
    x = (x - low).abs()
    with no_grad():
        turns = POINTWISE["floor"](x / span)
    rest = x - turns * span
    return minigrad.where(turns % 2 == 0, rest + low, span - rest + low)


def _weighted(input: Tensor, parts: Sequence[Sequence[tuple[Tensor, Any]]]) -> Tensor:
    """The sum of input at whole positions times shares, zero outside: (N, C, ...).

    parts: per dimension, x first, pairs of positions (N, ...) along it and their shares (None: all
    of it); each combination of one pair per dimension counts.
    """
    n, c, *size = input._array.shape
    (position, share), *_ = parts[0]
    if share is not None and can_be_summed(input, position, share) and c:
        return _summed(input, parts)
    inside = [
        [(*_inside(place, length), share) for place, share in pairs]
        for pairs, length in zip(reversed(parts), size, strict=True)
    ]
    # Outside lies an element behind the last one, which is 0: an infinite one would give NaN
    flat = minigrad.nn.functional.pad(input.reshape(n, c, math.prod(size)), (0, 1))
    total: Any = None
    for corner in itertools.product(*inside):
        places, fits, shares = zip(*corner, strict=True)
        with no_grad():
            index = places[0]
            for place, length in zip(places[1:], size[1:], strict=True):
                index = index * length + place
            index = minigrad.where(functools.reduce(operator.and_, fits), index, math.prod(size))
        shape = index._array.shape[1:]
        index = index.reshape(n, 1, math.prod(shape)).expand(n, c, math.prod(shape))
        values = flat.gather(2, index).reshape(n, c, *shape)
        if shares[0] is None:  # the nearest element, as it is
            return values
        share = functools.reduce(operator.mul, shares).unsqueeze(1)
        total = values * share if total is None else minigrad.addcmul(total, values, share)
    return total


def _summed(input: Tensor, parts: Sequence[Sequence[tuple[Tensor, Any]]]) -> Tensor:
    """As `_weighted`, by one product with a sparse matrix of shares."""
    n, c, *size = input._array.shape
    index: Any = None
    fits: Any = None
    shares: Any = None
    for pairs, length in zip(reversed(parts), size, strict=True):
        places, share = (minigrad.stack(list(each)) for each in zip(*pairs, strict=True))
        place, inside = _inside(places, length)
        if index is None:
            index, fits, shares = place, inside, share
            continue
        index = (index.unsqueeze(1) * length + place).flatten(0, 1)
        fits = (fits.unsqueeze(1) & inside).flatten(0, 1)
        shares = (shares.unsqueeze(1) * share).flatten(0, 1)
    count, _, *points = index._array.shape
    plane = math.prod(size)
    first = wrap(_multiples(plane, n)).reshape(n, *[1] * len(points))
    index = minigrad.where(fits, index + first, n * plane).movedim(0, -1).reshape(-1)
    ends = wrap(_multiples(count, index._array.size // count + 1))
    # Outside lies an element behind the last one, which is 0: an infinite one would give NaN
    nothing = _zeros(c, input._array.dtype)
    rows = minigrad.cat([input.movedim(1, -1).reshape(n * plane, c), wrap(nothing)])
    found = ScaledSums.apply(rows, index, ends, shares.movedim(0, -1).reshape(-1))
    return of_its_own(found.reshape(n, *points, c).movedim(-1, 1).contiguous(), input)


@functools.lru_cache(64)
def _multiples(step: int, count: int) -> Any:
    """0, step, 2 * step, ...: constants, the same ones for remembered launches."""
    return np.arange(0, step * count, step) if step else np.zeros(count, np.int64)


@functools.lru_cache(64)
def _zeros(count: int, dtype: np.dtype) -> Any:
    return np.zeros((1, count), dtype)


def _inside(place: Tensor, length: int) -> tuple[Tensor, Tensor]:
    """Positions as int64, 0 outside, and whether they are inside."""
    with no_grad():
        fits = (place >= 0) & (place <= length - 1)
        return minigrad.where(fits, place, 0.0).to(minigrad.int64), fits


def _bicubic(input: Tensor, places: list, padding_mode: str, align_corners: bool) -> Tensor:
    """Cubic convolution with a = -0.75 (Keys 1981) over the 4 by 4 elements around."""
    parts = []
    for p, length in zip(places, input._array.shape[:1:-1], strict=True):
        with no_grad():
            low = POINTWISE["floor"](p)
            around = [low + k for k in range(-1, 3)]
            around = [_kept_inside(q, length, padding_mode, align_corners) for q in around]
            around = [POINTWISE["round"](q) for q in around]
        parts.append(list(zip(around, _cubic_shares(p - low), strict=True)))
    return _weighted(input, parts)


def _cubic_shares(t: Tensor) -> list[Tensor]:
    a = -0.75

    def near(d: Tensor) -> Tensor:  # distances up to 1
        return ((a + 2) * d - (a + 3)) * d * d + 1

    def far(d: Tensor) -> Tensor:  # from 1 to 2
        return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a

    return [far(t + 1), near(t), near(1 - t), far(2 - t)]


def _tuple(value: Any, dims: int) -> tuple[int, ...]:
    return (int(value),) * dims if isinstance(value, int) else tuple(int(v) for v in value)


def _unpool(
    name: str, input: Tensor, indices: Tensor, sizes: tuple, output_size: Any, dims: int
) -> Tensor:
    """input put at its positions in planes of zeros."""
    kernel, stride, padding = (_tuple(v, dims) for v in sizes)
    if input._array.ndim not in (dims + 1, dims + 2) or input.shape != indices.shape:
        raise RuntimeError(
            f"{name}: expected input and indices of one shape with {dims + 1} or {dims + 2} "
            f"dimensions, got {list(input.shape)} and {list(indices.shape)}"
        )
    check_floating(name, input)
    if indices._array.dtype != "int64":
        raise RuntimeError(f"elements in indices should be type int64 but got: {indices.dtype}")
    given = input._array.shape[-dims:]
    if 0 in input._array.shape[-dims - 1 :] or (dims == 3 and min(stride) <= 0):
        raise RuntimeError(
            f"{name}: expected an input that is not empty, except for its batch, and in three "
            f"dimensions strides above 0, got {list(input.shape)} and {stride}"
        )
    natural = tuple(
        (n - 1) * s + k - 2 * p for n, s, k, p in zip(given, stride, kernel, padding, strict=True)
    )
    size = natural if output_size is None else tuple(int(n) for n in tuple(output_size))
    if len(size) not in (dims, dims + 2):
        raise ValueError(
            f"{name}: output_size should be a sequence containing {dims} or {dims + 2} elements, "
            f"but it has a length of {len(size)}"
        )
    size = size[-dims:]
    for n, m, s in zip(natural, size, stride, strict=True):
        if not n - s < m < n + s:
            raise ValueError(
                f"invalid output_size {list(size)} (dim 0 must be between {n - s} and {n + s})"
            )
    lead = input._array.shape[:-dims]
    plane = math.prod(size)
    flat = indices.reshape(*lead, math.prod(given))
    if flat.numel() and (int(flat.min()) < 0 or int(flat.max()) >= plane):
        raise RuntimeError(f"{name}: found an invalid max index (output volumes are {list(size)})")
    zeros = input.new_zeros((*lead, plane))
    return zeros.scatter(-1, flat, input.reshape(flat.shape)).reshape(*lead, *size)


def _define_unpool(dims: int) -> Any:
    name = f"max_unpool{dims}d"

    def function(
        input: Tensor,
        indices: Tensor,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        output_size: Any = None,
    ) -> Tensor:
        step = kernel_size if stride is None or stride == () else stride
        return _unpool(name, input, indices, (kernel_size, step, padding), output_size, dims)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Undoes `max_pool{dims}d`: its maxima at their indices, zeros elsewhere."
    return autocasts(function)


max_unpool1d, max_unpool2d, max_unpool3d = (_define_unpool(d) for d in (1, 2, 3))
