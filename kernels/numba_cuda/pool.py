"""Max and average pooling over windows of the planes of x (N, C, H, W), with gradients.

N C OH OW KH KW comparisons or additions; at least x read and y written once, and the indices of the
maxima (int64) for the max. One version each way, as the work is all memory traffic:

    window    one thread a result: neighbours along a row of the output
    gather    gradients: one thread an element of dx looks at every window that holds it and adds
              up its share, so nothing is written twice and the order of the sum is fixed
    owner     the gradient of a max whose windows do not overlap: one thread writes all of a window
    scatter   the gradient of a max whose windows are not known: one block a plane, which adds each
              g where its index says

Kernel size, stride and dilation are constants of a kernel: the loops over a window unroll.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from kernels.numba_cuda.common import (
    Pair,
    ceil_div,
    check_version,
    compute_dtype,
    contiguous,
    empty,
    launcher,
    scalar_type,
)
from kernels.numba_cuda.transpose import cast
from kernels.simt import cuda

CATALOG = [
    ("max_pool2d", "window", "one thread a result"),
    ("max_pool2d_backward", "gather", "one thread an element asks every window that holds it"),
    ("max_pool2d_backward", "owner", "windows that share nothing: one thread writes all of one"),
    ("max_pool2d_backward", "scatter", "one block a plane adds each g where its index says"),
    ("avg_pool2d", "window", "one thread a result"),
    ("avg_pool2d_backward", "gather", "one thread an element asks every window that holds it"),
]


class Window(NamedTuple):
    """The constants of a pooling kernel."""

    kernel: Pair
    stride: Pair
    dilation: Pair = (1, 1)


@functools.cache
def max_forward(acc_t, window: Window, inside_always: bool):
    """Grid (planes, row tiles, column tiles); x (planes, H, W), y and index (planes, OH, OW)."""
    (kh, kw), (sh, sw), (dh, dw) = window

    @cuda.jit
    def max_pool2d_window(x, y, index, pad_h, pad_w):
        p = cuda.blockIdx.x
        oh = cuda.blockIdx.y * cuda.blockDim.y + cuda.threadIdx.y
        ow = cuda.blockIdx.z * cuda.blockDim.x + cuda.threadIdx.x
        if oh < y.shape[1] and ow < y.shape[2]:
            best, at = acc_t(0), -1
            for i in range(kh):
                h = oh * sh + i * dh - pad_h
                for j in range(kw):
                    v = ow * sw + j * dw - pad_w
                    if inside_always or (0 <= h < x.shape[1] and 0 <= v < x.shape[2]):
                        value = acc_t(x[p, h, v])
                        nan_first = value != value and best == best
                        if at < 0 or value > best or nan_first:
                            best = value
                            at = h * x.shape[2] + v
            y[p, oh, ow] = best
            index[p, oh, ow] = at

    return max_pool2d_window


@functools.cache
def max_gather(acc_t, window: Window):
    """Grid (planes, row tiles, column tiles) of dx (planes, H, W); g, index (planes, OH, OW)."""
    (kh, kw), (sh, sw), (dh, dw) = window

    @cuda.jit
    def max_pool2d_gather(g, index, dx, pad_h, pad_w):
        p = cuda.blockIdx.x
        h = cuda.blockIdx.y * cuda.blockDim.y + cuda.threadIdx.y
        v = cuda.blockIdx.z * cuda.blockDim.x + cuda.threadIdx.x
        if h < dx.shape[1] and v < dx.shape[2]:
            here = h * dx.shape[2] + v
            acc = acc_t(0)
            for i in range(kh):
                top = h + pad_h - i * dh
                oh = top // sh
                if top >= 0 and oh * sh == top and oh < g.shape[1]:
                    for j in range(kw):
                        left = v + pad_w - j * dw
                        ow = left // sw
                        if left >= 0 and ow * sw == left and ow < g.shape[2]:  # noqa: SIM102
                            if index[p, oh, ow] == here:
                                acc += acc_t(g[p, oh, ow])
            dx[p, h, v] = acc

    return max_pool2d_gather


@functools.cache
def max_owner(acc_t, window: Window):
    """Grid (planes, window row tiles, window column tiles); arrays as in max_gather.

    Windows as wide as their stride share nothing: the thread of a window writes all of it, and
    threads past the last window write zeros to the rows and columns that no window holds.
    """
    kh, kw = window.kernel

    @cuda.jit
    def max_pool2d_owner(g, index, dx):
        p = cuda.blockIdx.x
        oh = cuda.blockIdx.y * cuda.blockDim.y + cuda.threadIdx.y
        ow = cuda.blockIdx.z * cuda.blockDim.x + cuda.threadIdx.x
        height, width = dx.shape[1], dx.shape[2]
        inside = oh < g.shape[1] and ow < g.shape[2]
        at = index[p, oh, ow] if inside else -1
        gv = acc_t(g[p, oh, ow]) if inside else acc_t(0)
        for i in range(kh):
            h = oh * kh + i
            for j in range(kw):
                v = ow * kw + j
                if h < height and v < width:
                    dx[p, h, v] = gv if at == h * width + v else acc_t(0)

    return max_pool2d_owner


SCATTER_BLOCK = 128


@functools.cache
def max_scatter(acc_t):
    """Grid (planes,); g and index (planes, OH * OW), dx (planes, H * W)."""

    @cuda.jit
    def max_pool2d_scatter(g, index, dx):
        p, t = cuda.blockIdx.x, cuda.threadIdx.x
        for i in range(t, dx.shape[1], SCATTER_BLOCK):
            dx[p, i] = acc_t(0)
        cuda.syncthreads()
        for i in range(t, g.shape[1], SCATTER_BLOCK):
            if index[p, i] >= 0:
                cuda.atomic.add(dx, (p, index[p, i]), acc_t(g[p, i]))

    return max_pool2d_scatter


@cuda.jit(device=True)
def _covered(out, stride, kernel, pad, size, include_pad):
    """Along one axis, how many elements the window of output `out` counts."""
    start = out * stride - pad
    end = min(start + kernel, size + pad)
    if not include_pad:
        start = max(start, 0)
        end = min(end, size)
    return end - start


@functools.cache
def avg_forward(acc_t, window: Window, include_pad: bool, divisor: int | None):
    """Grid (planes, row tiles, column tiles); x (planes, H, W), y (planes, OH, OW)."""
    (kh, kw), (sh, sw), _ = window

    @cuda.jit
    def avg_pool2d_window(x, y, pad_h, pad_w):
        p = cuda.blockIdx.x
        oh = cuda.blockIdx.y * cuda.blockDim.y + cuda.threadIdx.y
        ow = cuda.blockIdx.z * cuda.blockDim.x + cuda.threadIdx.x
        if oh < y.shape[1] and ow < y.shape[2]:
            acc = acc_t(0)
            for i in range(kh):
                h = oh * sh + i - pad_h
                for j in range(kw):
                    v = ow * sw + j - pad_w
                    if 0 <= h < x.shape[1] and 0 <= v < x.shape[2]:
                        acc += acc_t(x[p, h, v])
            if divisor is None:
                rows = _covered(oh, sh, kh, pad_h, x.shape[1], include_pad)
                columns = _covered(ow, sw, kw, pad_w, x.shape[2], include_pad)
                y[p, oh, ow] = acc / acc_t(rows * columns)
            else:
                y[p, oh, ow] = acc / acc_t(divisor)

    return avg_pool2d_window


@functools.cache
def avg_gather(acc_t, window: Window, include_pad: bool, divisor: int | None):
    """Grid (planes, row tiles, column tiles) of dx (planes, H, W); g (planes, OH, OW)."""
    (kh, kw), (sh, sw), _ = window

    @cuda.jit
    def avg_pool2d_gather(g, dx, pad_h, pad_w):
        p = cuda.blockIdx.x
        h = cuda.blockIdx.y * cuda.blockDim.y + cuda.threadIdx.y
        v = cuda.blockIdx.z * cuda.blockDim.x + cuda.threadIdx.x
        if h < dx.shape[1] and v < dx.shape[2]:
            acc = acc_t(0)
            for i in range(kh):
                top = h + pad_h - i
                oh = top // sh
                if top >= 0 and oh * sh == top and oh < g.shape[1]:
                    for j in range(kw):
                        left = v + pad_w - j
                        ow = left // sw
                        if left >= 0 and ow * sw == left and ow < g.shape[2]:
                            if divisor is None:
                                rows = _covered(oh, sh, kh, pad_h, dx.shape[1], include_pad)
                                columns = _covered(ow, sw, kw, pad_w, dx.shape[2], include_pad)
                                acc += acc_t(g[p, oh, ow]) / acc_t(rows * columns)
                            else:
                                acc += acc_t(g[p, oh, ow]) / acc_t(divisor)
            dx[p, h, v] = acc

    return avg_pool2d_gather


def _tiling(planes: int, height: int, width: int):
    """Grid and block for one thread a pixel."""
    bx = 8 if width <= 8 else 16 if width <= 16 else 32
    by = min(256 // bx, 1 << max(height - 1, 0).bit_length())
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


_plans: dict[tuple, Callable] = {}


def _planned(key: tuple, make: Callable, *args) -> Callable:
    plan = _plans.get(key)
    if plan is None:
        plan = _plans[key] = make(*args)
    return plan


def _plan_max(x, window: Window, padding: Pair, ceil_mode: bool):
    """The function x -> (y, indices)."""
    out = _output("max_pool2d", x.shape, window, padding, ceil_mode)
    inside = _never_leaves(x.shape, window, padding, out)
    kernel = max_forward(scalar_type(x.dtype), window, inside)
    run = launcher("max_pool2d", "window", kernel, *_tiling(x.shape[0] * x.shape[1], *out))
    shape = (*x.shape[:2], *out)

    def forward(x):
        y, index = empty(shape, x.dtype, x), empty(shape, np.int64, x)
        if y.size:
            run(_planes(x), _planes(y), _planes(index), *padding)
        return y, index

    return forward


def max_pool2d(
    x,
    kernel: Pair,
    stride: Pair,
    padding: Pair = (0, 0),
    dilation: Pair = (1, 1),
    ceil_mode: bool = False,
):
    """Maxima over windows of x (N, C, H, W): values, and int64 positions in the H * W plane.

    The first maximum wins, and a NaN wins over everything. Raises ValueError where no window fits.
    """
    key = ("max", type(x), x.shape, x.dtype, kernel, stride, padding, dilation, ceil_mode)
    window = Window(tuple(kernel), tuple(stride), tuple(dilation))
    return _planned(key, _plan_max, x, window, tuple(padding), ceil_mode)(x)


def _plan_max_backward(g, index, x_shape, window: Window | None, padding: Pair, version):
    """The function (g, index) -> dx."""
    name = "max_pool2d_backward"
    _check_gradient(name, g, index.shape)
    if len(x_shape) != 4 or g.shape[:2] != x_shape[:2]:
        raise ValueError(f"{name}: a gradient {g.shape} does not belong to an input {x_shape}")
    shares_nothing = window is not None and window == Window(window.stride, window.stride)
    shares_nothing = shares_nothing and padding == (0, 0)
    best = "scatter" if window is None else "owner" if shares_nothing else "gather"
    version = version or best
    if (version == "owner" and not shares_nothing) or (version == "gather" and window is None):
        raise ValueError(f"{name}: version {version!r} needs other windows than {window}")
    planes = x_shape[0] * x_shape[1]
    if version == "owner":
        kernel = max_owner(scalar_type(g.dtype), window)
        windows = (ceil_div(x_shape[2 + i], window.kernel[i]) for i in range(2))
        run = launcher(name, version, kernel, *_tiling(planes, *windows))
    elif version == "gather":
        kernel = max_gather(scalar_type(g.dtype), window)
        run = launcher(name, version, kernel, *_tiling(planes, *x_shape[2:]))
    else:
        kernel = max_scatter(scalar_type(g.dtype))
        run = launcher(name, version, kernel, planes, SCATTER_BLOCK)

    def backward(g, index):
        dtype = compute_dtype(g.dtype) if version == "scatter" else g.dtype
        dx = empty(x_shape, dtype, g)
        if dx.size == 0:
            return dx
        if version != "scatter":
            extra = padding if version == "gather" else ()
            run(_planes(g), _planes(index), _planes(dx), *extra)
            return dx
        flat = (contiguous(a).reshape(planes, -1) for a in (g, index, dx))
        run(*flat)
        return dx if dtype == g.dtype else cast(dx, g.dtype)

    return backward


def max_pool2d_backward(
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

    With the windows (kernel, stride, padding, dilation) each element of dx gathers, in a fixed
    order; without them g is scattered, and on a GPU the order of overlapping windows is open.
    """
    check_version("max_pool2d_backward", version, ("gather", "owner", "scatter"))
    window = None
    if kernel is not None:
        window = Window(tuple(kernel), tuple(stride or kernel), tuple(dilation))
    x_shape = tuple(x_shape)
    key = ("max_backward", type(g), g.shape, g.dtype, x_shape, window, padding, version)
    make = (g, indices, x_shape, window, tuple(padding), version)
    return _planned(key, _plan_max_backward, *make)(g, indices)


def _plan_avg(x, window: Window, padding: Pair, ceil_mode: bool, include_pad: bool, divisor):
    """The function x -> y."""
    out = _output("avg_pool2d", x.shape, window, padding, ceil_mode)
    kernel = avg_forward(scalar_type(x.dtype), window, include_pad, divisor)
    run = launcher("avg_pool2d", "window", kernel, *_tiling(x.shape[0] * x.shape[1], *out))
    shape = (*x.shape[:2], *out)

    def forward(x):
        y = empty(shape, x.dtype, x)
        if y.size:
            run(_planes(x), _planes(y), *padding)
        return y

    return forward


def avg_pool2d(
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
    options = (ceil_mode, count_include_pad, divisor_override)
    key = ("avg", type(x), x.shape, x.dtype, kernel, stride, padding, options)
    window = Window(tuple(kernel), tuple(stride))
    return _planned(key, _plan_avg, x, window, tuple(padding), *options)(x)


def _plan_avg_backward(g, x_shape, window: Window, padding: Pair, ceil_mode, include_pad, divisor):
    """The function g -> dx."""
    name = "avg_pool2d_backward"
    out = _output(name, x_shape, window, padding, ceil_mode)
    _check_gradient(name, g, (*x_shape[:2], *out))
    kernel = avg_gather(scalar_type(g.dtype), window, include_pad, divisor)
    run = launcher(name, "gather", kernel, *_tiling(x_shape[0] * x_shape[1], *x_shape[2:]))

    def backward(g):
        dx = empty(x_shape, g.dtype, g)
        if dx.size:
            run(_planes(g), _planes(dx), *padding)
        return dx

    return backward


def avg_pool2d_backward(
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
    x_shape = tuple(x_shape)
    options = (ceil_mode, count_include_pad, divisor_override)
    key = ("avg_backward", type(g), g.shape, g.dtype, x_shape, kernel, stride, padding, options)
    window = Window(tuple(kernel), tuple(stride))
    return _planned(key, _plan_avg_backward, g, x_shape, window, tuple(padding), *options)(g)
