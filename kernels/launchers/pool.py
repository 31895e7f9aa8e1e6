"""Pooling: windows, their checks, and which version a gradient takes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy import ndarray

import kernels
from kernels.families import Family, Operation, floats, normal, ones
from kernels.launchers import determinism
from kernels.launchers.common import (
    Dialect,
    Pair,
    ceil_div,
    check_version,
    compute_dtype,
    contiguous,
    empty,
    even_block,
    launcher,
    on_gpu,
    wide_enough,
)
from kernels.launchers.plans import Plans, place
from kernels.launchers.transpose import cast, pad
from kernels.support import processor

FORWARD = {"window": "one thread a result"}
MAX_FORWARD = {
    **FORWARD,
    "padded": "reads a copy with a border, which no window leaves: no thread differs from others",
}
GATHER = {"gather": "one thread an element asks every window that holds it"}
MAX_BACKWARD = {
    **GATHER,
    "owner": "one thread writes a step of the stride, and reads each window over it once",
    "scatter": "one block per plane adds each g where its index says",
    "plane": "one thread per plane adds each g where its index says, in order",
}


class Window(NamedTuple):
    """The constants of a pooling kernel."""

    kernel: Pair
    stride: Pair
    dilation: Pair = (1, 1)


SCATTER_BLOCK = 128
AT_ONCE = 1 << 19  # elements of planes in a border


def _tiling(like, planes: int, height: int, width: int, *, chooses: bool = False):
    """Grid and block for one thread a pixel, where `like` lies. chooses: each looks for a maximum,
    by branches where threads don't run together."""
    if on_gpu(like):
        bx = 8 if width <= 8 else 16 if width <= 16 else 32
        by = min(256 // bx, 1 << max(height - 1, 0).bit_length())
        while bx < width and bx * by < 256:  # a block of few rows has long ones
            bx *= 2
    else:
        bx, by = even_block(height, width)
        if chooses and bx > 8 and bx % 8 and not processor.vector_registers().have_masks:
            # LLVM takes the threads of such a row one by one; not if it knows no number of them, as
            # of a row that ends outside
            bx, by = 2 * bx, max(min(by, 128 // bx), 1)
    bx, by = wide_enough("pooling", width, bx), wide_enough("pooling", height, by)
    return (planes, ceil_div(height, by), ceil_div(width, bx)), (bx, by)


def pool_output_size(
    n: int, k: int, stride: int, padding: int, dilation: int, ceil_mode: bool
) -> int:
    """Length of one output dimension; with `ceil_mode` no window starts in the right padding."""
    span = n + 2 * padding - dilation * (k - 1) - 1
    out = (span + (stride - 1 if ceil_mode else 0)) // stride + 1
    if ceil_mode and (out - 1) * stride >= n + padding:
        out -= 1
    return out


def _output(name: str, x_shape, window: Window, padding: Pair, ceil_mode: bool) -> Pair:
    """Height and width of the output. Raises ValueError where there is none."""
    if len(x_shape) != 4:
        raise ValueError(f"{name}: expected x (N, C, H, W), got shape {tuple(x_shape)}")
    if min(*window.kernel, *window.stride, *window.dilation) < 1:
        raise ValueError(f"{name}: kernel, stride and dilation must be positive")
    for p, k in zip(padding, window.kernel):
        if not 0 <= 2 * p <= k:
            raise ValueError(
                f"{name}: padding must be at most half of the kernel, got {padding} for"
                f" {window.kernel}"
            )
    out = tuple(
        pool_output_size(
            x_shape[2 + i],
            window.kernel[i],
            window.stride[i],
            padding[i],
            window.dilation[i],
            ceil_mode,
        )
        for i in range(2)
    )
    if min(out) < 1:
        raise ValueError(
            f"{name}: a window of {window.kernel} is larger than the padded input"
            f" {tuple(x_shape[2:])} + 2 * {padding}"
        )
    return out


def _never_leaves(x_shape, window: Window, padding: Pair, out: Pair) -> bool:
    """Whether every window lies inside x."""
    return padding == (0, 0) and all(
        (out[i] - 1) * window.stride[i] + window.dilation[i] * (window.kernel[i] - 1)
        < x_shape[2 + i]
        for i in range(2)
    )


def _check_gradient(name: str, g, shape: tuple[int, ...]) -> None:
    if g.shape != shape:
        raise ValueError(f"{name}: expected a gradient of shape {shape}, got {g.shape}")


def _planes(a):
    """(N, C, H, W) as contiguous (N * C, H, W)."""
    return contiguous(a).reshape(a.shape[0] * a.shape[1], *a.shape[2:])


_plans = Plans()


def _plan_max(
    dialect: Dialect, x, window: Window, padding: Pair, ceil_mode: bool, version: str | None
):
    """The function x -> (y, indices)."""
    name = "max_pool2d"
    out = _output(name, x.shape, window, padding, ceil_mode)
    inside = _never_leaves(x.shape, window, padding, out)
    has_room = math.prod(x.shape[2:]) < 2**31  # for the places of a plane in int32
    if version == "padded" and not has_room:
        raise ValueError(f"{name}: version 'padded' takes smaller planes, got {x.shape}")
    version = version or ("padded" if has_room and not inside and not on_gpu(x) else "window")
    shape, planes = (*x.shape[:2], *out), x.shape[0] * x.shape[1]
    run: Callable
    if version == "padded":
        run = _in_border(dialect, x, window, padding, out)
    else:
        kernel = dialect.pool.max_forward(dialect.common.scalar_type(x.dtype), window, inside)
        run = launcher(name, version, kernel, *_tiling(x, planes, *out, chooses=True))

    def forward(x):
        y, index = empty(shape, x.dtype, x), empty(shape, np.int64, x)
        if y.size:
            run(_planes(x), _planes(y), _planes(index), *padding)
        return y, index

    return forward


def _in_border(dialect: Dialect, x, window: Window, padding: Pair, out: Pair) -> Callable:
    """The function of (planes of x, y, index, *padding) that copies some planes at a time into a
    border, which takes little memory and finds them in the cache."""
    borders = [_border(*sizes) for sizes in zip(x.shape[2:], out, *window, padding)]
    planes = x.shape[0] * x.shape[1]
    plane = math.prod(n + sum(border) for n, border in zip(x.shape[2:], borders))
    lowest = -np.inf if compute_dtype(x.dtype).kind == "f" else np.iinfo(x.dtype).min
    kernel = dialect.pool.max_padded(dialect.common.scalar_type(x.dtype), window)
    each = max(1, min(planes, AT_ONCE // plane))
    launches = {
        n: launcher("max_pool2d", "padded", kernel, *_tiling(x, n, *out, chooses=True))
        for n in {each, planes % each} - {0}
    }

    def run(x, y, index, *padding):
        for first in range(0, planes, each):
            part = slice(first, first + each)
            wide = pad(dialect, x[part], [(0, 0), *borders], value=lowest)
            launches[len(wide)](wide, y[part], index[part], *x.shape[1:], *padding)

    return run


def _border(n: int, out: int, k: int, stride: int, dilation: int, padding: int) -> Pair:
    """How much longer a dimension is for windows that all lie inside, before it and after it."""
    return padding, max((out - 1) * stride + dilation * (k - 1) + 1 - n - padding, 0)


def max_pool2d(
    dialect: Dialect,
    x,
    kernel: Pair,
    stride: Pair,
    padding: Pair = (0, 0),
    dilation: Pair = (1, 1),
    ceil_mode: bool = False,
    version: str | None = None,
):
    """Maxima over windows of x (N, C, H, W): values, and int64 positions in the H * W plane.

    The first maximum wins, and a NaN wins over everything. Raises ValueError where no window fits.
    """
    check_version("max_pool2d", version, MAX_FORWARD)
    window = Window(tuple(kernel), tuple(stride), tuple(dilation))
    options: tuple = (window, tuple(padding), ceil_mode, version)
    key = (dialect, "max", type(x) is ndarray or place(x), x.shape, x.dtype, options)
    plan = _plans.get(key) or _plans.keep(key, _plan_max(dialect, x, *options))
    return plan(x)


def _plan_adaptive(dialect: Dialect, x, size: Pair):
    """The function x -> (y, indices)."""
    if x.ndim != 4 or min(size) < 1 or 0 in x.shape[2:]:
        raise ValueError(f"adaptive_max_pool2d: expected x (N, C, H, W), got {x.shape}, for {size}")
    if max(math.prod(x.shape[2:]), *(n * (m + 1) for n, m in zip(x.shape[2:], size))) >= 2**31:
        raise ValueError(f"adaptive_max_pool2d: expected smaller images, got {x.shape}")
    kernel = dialect.pool.max_adaptive(dialect.common.scalar_type(x.dtype))
    tiling = _tiling(x, x.shape[0] * x.shape[1], *size)
    run = launcher("adaptive_max_pool2d", "window", kernel, *tiling)
    shape = (*x.shape[:2], *size)

    def forward(x):
        y, index = empty(shape, x.dtype, x), empty(shape, np.int64, x)
        if y.size:
            run(_planes(x), _planes(y), _planes(index))
        return y, index

    return forward


def adaptive_max_pool2d(dialect: Dialect, x, size: Pair):
    """Maxima of x (N, C, H, W) over windows from floor(i H / OH) up to ceil((i + 1) H / OH), as
    in max_pool2d: values, and int64 positions in the H * W plane.

    Raises ValueError for empty images.
    """
    size = int(size[0]), int(size[1])
    key = (dialect, "adaptive", type(x) is ndarray or place(x), x.shape, x.dtype, size)
    plan = _plans.get(key) or _plans.keep(key, _plan_adaptive(dialect, x, size))
    return plan(x)


def _overlap(window: Window) -> int:
    """How many windows at most reach into a step of the stride."""
    return math.prod(ceil_div(k, s) for k, s in zip(window.kernel, window.stride))


def _best_backward(window: Window | None, owned: bool, on_cpu: bool) -> str:
    if on_cpu:
        return "plane"
    if window is None:
        return "scatter"
    return "owner" if owned else "gather"


def _plan_max_backward(
    dialect: Dialect, g, index, x_shape, window: Window | None, padding: Pair, version
):
    """The function (g, index) -> dx."""
    name = "max_pool2d_backward"
    _check_gradient(name, g, index.shape)
    if index.dtype != np.int64:
        raise TypeError(f"{name}: expected indices of int64, got {index.dtype}")
    if len(x_shape) != 4 or g.shape[:2] != x_shape[:2]:
        raise ValueError(f"{name}: a gradient {g.shape} does not belong to an input {x_shape}")
    owned = (
        window is not None
        and window.dilation == (1, 1)
        and math.prod(window.stride) <= 16
        and _overlap(window) <= 16  # a thread holds all of it in registers
    )
    version = version or _best_backward(window, owned, not on_gpu(g))
    if (version == "owner" and not owned) or (version == "gather" and window is None):
        raise ValueError(f"{name}: version {version!r} needs other windows than {window}")
    planes, acc_t = x_shape[0] * x_shape[1], dialect.common.scalar_type(g.dtype)
    if version == "owner":
        steps = (ceil_div(x_shape[2 + i] + padding[i], window.stride[i]) for i in range(2))
        kernel, tiling = dialect.pool.max_owner(acc_t, window, *padding), _tiling(g, planes, *steps)
    elif version == "gather":
        kernel, tiling = dialect.pool.max_gather(acc_t, window), _tiling(g, planes, *x_shape[2:])
    elif version == "plane":
        kernel, tiling = dialect.pool.max_plane(acc_t), (planes, 1)
    else:
        kernel, tiling = dialect.pool.max_scatter(acc_t), (planes, SCATTER_BLOCK)
    run = launcher(name, version, kernel, *tiling)
    adds = version in ("plane", "scatter")

    def backward(g, index):
        dtype = compute_dtype(g.dtype) if adds else g.dtype
        dx = empty(x_shape, dtype, g)
        if dx.size == 0:
            return dx
        if version == "scatter" and on_gpu(g):
            determinism.refuse(f"{name} of unknown windows")
        if not adds:
            extra = padding if version == "gather" else ()
            run(_planes(g), _planes(index), _planes(dx), *extra)
            return dx
        flat = (contiguous(a).reshape(planes, -1) for a in (g, index, dx))
        run(*flat)
        return dx if dtype == g.dtype else cast(dialect, dx, g.dtype)

    return backward


def max_pool2d_backward(
    dialect: Dialect,
    g,
    indices,
    x_shape: tuple[int, int, int, int],
    kernel: Pair | None = None,
    stride: Pair | None = None,
    padding: Pair = (0, 0),
    dilation: Pair = (1, 1),
    version: str | None = None,
):
    """Gradient of max_pool2d for g (N, C, OH, OW): each g is added where its maximum came from.

    With the windows (kernel, stride, padding, dilation) the order of the sums is fixed; without
    them g is scattered, and on a GPU the order of overlapping windows is open.
    """
    check_version("max_pool2d_backward", version, MAX_BACKWARD)
    window = None
    if kernel is not None:
        window = Window(tuple(kernel), tuple(stride or kernel), tuple(dilation))
    options = (tuple(x_shape), window, tuple(padding), version)
    like = (g.shape, g.dtype, indices.shape, indices.dtype)
    key = (dialect, "max_backward", type(g) is ndarray or place(g), like, options)
    plan = _plans.get(key) or _plans.keep(key, _plan_max_backward(dialect, g, indices, *options))
    return plan(g, indices)


def _plan_avg(
    dialect: Dialect, x, window: Window, padding: Pair, ceil_mode: bool, include_pad: bool, divisor
):
    """The function x -> y."""
    out = _output("avg_pool2d", x.shape, window, padding, ceil_mode)
    kernel = dialect.pool.avg_forward(
        dialect.common.scalar_type(x.dtype), window, include_pad, divisor
    )
    run = launcher("avg_pool2d", "window", kernel, *_tiling(x, x.shape[0] * x.shape[1], *out))
    shape = (*x.shape[:2], *out)

    def forward(x):
        y = empty(shape, x.dtype, x)
        if y.size:
            run(_planes(x), _planes(y), *padding)
        return y

    return forward


def avg_pool2d(
    dialect: Dialect,
    x,
    kernel: Pair,
    stride: Pair,
    padding: Pair = (0, 0),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
):
    """Means over windows of x (N, C, H, W); the options are those of torch's avg_pool2d.

    Raises ValueError where no window fits.
    """
    options = (Window(tuple(kernel), tuple(stride)), tuple(padding), ceil_mode)
    options += (count_include_pad, divisor_override)
    key = (dialect, "avg", type(x) is ndarray or place(x), x.shape, x.dtype, options)
    plan = _plans.get(key) or _plans.keep(key, _plan_avg(dialect, x, *options))
    return plan(x)


def _plan_avg_backward(
    dialect: Dialect, g, x_shape, window: Window, padding: Pair, ceil_mode, include_pad, divisor
):
    """The function g -> dx."""
    name = "avg_pool2d_backward"
    out = _output(name, x_shape, window, padding, ceil_mode)
    _check_gradient(name, g, (*x_shape[:2], *out))
    kernel = dialect.pool.avg_gather(
        dialect.common.scalar_type(g.dtype), window, include_pad, divisor
    )
    run = launcher(name, "gather", kernel, *_tiling(g, x_shape[0] * x_shape[1], *x_shape[2:]))

    def backward(g):
        dx = empty(x_shape, g.dtype, g)
        if dx.size:
            run(_planes(g), _planes(dx), *padding)
        return dx

    return backward


def avg_pool2d_backward(
    dialect: Dialect,
    g,
    x_shape: tuple[int, int, int, int],
    kernel: Pair,
    stride: Pair,
    padding: Pair = (0, 0),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
):
    """Gradient of avg_pool2d with respect to x, for g (N, C, OH, OW): shares of g, gathered."""
    options = (tuple(x_shape), Window(tuple(kernel), tuple(stride)), tuple(padding), ceil_mode)
    options += (count_include_pad, divisor_override)
    key = (dialect, "avg_backward", type(g) is ndarray or place(g), g.shape, g.dtype, options)
    plan = _plans.get(key) or _plans.keep(key, _plan_avg_backward(dialect, g, *options))
    return plan(g)


def _shape(x, kernel, stride, padding, dilation, ceil_mode):
    sides = zip(x.shape[2:], kernel, stride, padding, dilation)
    return (*x.shape[:2], *(pool_output_size(*side, ceil_mode) for side in sides))


def _cost_of_max(x, kernel, stride, padding=(0, 0), dilation=(1, 1), ceil_mode=False, version=None):
    shape = _shape(x, kernel, stride, padding, dilation, ceil_mode)
    return [(shape, x.dtype), (shape, np.dtype(np.int64))], math.prod(shape) * math.prod(kernel)


def _cost_of_adaptive(x, size):
    shape = (*x.shape[:2], *size)
    return [(shape, x.dtype), (shape, np.dtype(np.int64))], x.size


def _cost_of_avg(x, kernel, stride, padding=(0, 0), ceil_mode=False, *_, **__):
    shape = _shape(x, kernel, stride, padding, (1, 1), ceil_mode)
    return [(shape, x.dtype)], math.prod(shape) * math.prod(kernel)


def _cost_of_max_backward(g, indices, x_shape, *_, **__):
    return [(tuple(x_shape), g.dtype)], g.size


def _cost_of_avg_backward(g, x_shape, kernel, *_, **__):
    return [(tuple(x_shape), g.dtype)], g.size * math.prod(kernel)


def _problem(version: str):
    return (floats(2, 3, 12, 11), (3, 3), (2, 2)), {}


def _problem_of_max_backward(version: str):
    x, window, stride = floats(2, 3, 12, 10), (3, 3), (2, 2)
    y, indices = kernels.max_pool2d(x, window, stride, backend="numpy")
    return (y, indices, x.shape, window, stride), {}


def _cases(rng, versions):
    for shape, *options in [
        ((2, 3, 33, 31), (2, 2), (2, 2), (0, 0)),
        ((1, 2, 9, 40), (3, 3), (1, 2), (1, 1)),
    ]:
        x = normal(rng, shape)
        for version in MAX_FORWARD:
            yield "max_pool2d", (x, *options), {"version": version}, 1
        y, index = kernels.max_pool2d(x, *options, backend="numpy")
        g = normal(rng, y.shape)
        for version in ("gather", "owner"):
            yield "max_pool2d_backward", (g, index, shape, *options), {"version": version}, 2
        yield "avg_pool2d", (x, *options), {"count_include_pad": False}, 2
        yield "avg_pool2d_backward", (g, shape, *options), {"count_include_pad": False}, 2
    for version in ("scatter", "plane"):
        yield "max_pool2d_backward", (g, index, shape), {"version": version}, 2
    for size in ((7, 5), (1, 13)):
        yield "adaptive_max_pool2d", (normal(rng, (2, 3, 33, 12)), size), {}, 1


def _compiled(versions):
    x = ones(2, 4, 12, 12)
    yield "adaptive_max_pool2d", (x, (5, 7)), {}
    for *window, padding in [  # tiling windows, overlapping ones, gaps, padding
        ((2, 2), (2, 2), (0, 0)),
        ((3, 3), (2, 2), (0, 0)),
        ((2, 2), (3, 3), (0, 0)),
        ((3, 3), (2, 1), (1, 1)),
    ]:
        shape = _shape(x, *window, padding, (1, 1), False)
        g, index, window = ones(*shape), np.zeros(shape, np.int64), (*window, padding)
        for version in versions("max_pool2d"):
            yield "max_pool2d", (x, *window), {"version": version}
        yield "max_pool2d_backward", (g, index, x.shape, *window), {}
        yield "max_pool2d_backward", (g, index, x.shape, *window), {"version": "gather"}
        for version in ("scatter", "plane"):
            yield "max_pool2d_backward", (g, index, x.shape), {"version": version}
        how = {"count_include_pad": padding == (0, 0)}
        yield "avg_pool2d", (x, *window), how
        yield "avg_pool2d_backward", (g, x.shape, *window), how


FAMILY = Family(
    "pool",
    (
        Operation(max_pool2d, _cost_of_max, _problem, MAX_FORWARD),
        Operation(
            adaptive_max_pool2d,
            _cost_of_adaptive,
            lambda version: ((floats(2, 3, 12, 11), (5, 5)), {}),
            FORWARD,
        ),
        Operation(
            max_pool2d_backward, _cost_of_max_backward, _problem_of_max_backward, MAX_BACKWARD
        ),
        Operation(avg_pool2d, _cost_of_avg, _problem, FORWARD),
        Operation(
            avg_pool2d_backward,
            _cost_of_avg_backward,
            lambda version: ((floats(2, 3, 5, 5), (2, 3, 12, 11), (3, 3), (2, 2)), {}),
            GATHER,
        ),
    ),
    _cases,
    _compiled,
)
