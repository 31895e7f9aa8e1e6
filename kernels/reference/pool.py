"""Max and average pooling with their gradients."""

from __future__ import annotations

import numpy as np

from kernels.reference.common import Pair, compute_dtype, traced, windows


def pool_output_size(
    n: int, k: int, stride: int, padding: int, dilation: int, ceil_mode: bool
) -> int:
    """Length of one output dimension of a pool; no window starts in the right padding."""
    span = n + 2 * padding - dilation * (k - 1) - 1
    out = (span + (stride - 1 if ceil_mode else 0)) // stride + 1
    if ceil_mode and (out - 1) * stride >= n + padding:
        out -= 1
    return out


def _pool_windows(x, kernel: Pair, stride: Pair, padding: Pair, dilation: Pair, ceil_mode, fill):
    """Windows (N, C, OH, OW, KH, KW) of x padded with `fill`."""
    out, pads = [], []
    for i in range(2):
        n = x.shape[2 + i]
        size = pool_output_size(n, kernel[i], stride[i], padding[i], dilation[i], ceil_mode)
        reach = (size - 1) * stride[i] + dilation[i] * (kernel[i] - 1) + 1
        out.append(size)
        pads.append((padding[i], max(0, reach - n - padding[i])))
    padded = np.pad(x, ((0, 0), (0, 0), *pads), constant_values=fill)
    return windows(padded, kernel, stride, dilation, tuple(out))


@traced
def max_pool2d(
    x: np.ndarray,
    kernel: Pair,
    stride: Pair,
    padding: Pair = (0, 0),
    dilation: Pair = (1, 1),
    ceil_mode: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """Maximum over windows of x (N, C, H, W), and its int64 position in the flattened H * W plane.

    The first maximum wins; NaN wins over everything.
    """
    lowest = -np.inf if x.dtype.kind in "fV" else np.iinfo(x.dtype).min
    win = _pool_windows(x, kernel, stride, padding, dilation, ceil_mode, lowest)
    flat = win.reshape(*win.shape[:4], kernel[0] * kernel[1])
    best = flat.astype(compute_dtype(x.dtype), copy=False).argmax(-1)
    # Padding may tie with a window of -inf, but is never its maximum.
    plane = np.ones((1, 1, *x.shape[2:]), np.bool_)
    inside = _pool_windows(plane, kernel, stride, padding, dilation, ceil_mode, False)
    inside = np.broadcast_to(inside.reshape(1, 1, *flat.shape[2:]), flat.shape)
    chosen = np.take_along_axis(inside, best[..., None], -1)[..., 0]
    best = np.where(chosen, best, inside.argmax(-1))
    y = np.take_along_axis(flat, best[..., None], -1)[..., 0]
    oh, ow = win.shape[2:4]
    kh, kw = np.divmod(best, kernel[1])
    row = np.arange(oh)[:, None] * stride[0] - padding[0] + kh * dilation[0]
    col = np.arange(ow) * stride[1] - padding[1] + kw * dilation[1]
    return y, row * x.shape[3] + col


@traced
def adaptive_max_pool2d(x: np.ndarray, size: Pair) -> tuple[np.ndarray, np.ndarray]:
    """Maxima of x (N, C, H, W) over windows from floor(i H / OH) up to ceil((i + 1) H / OH), and
    their int64 positions in the flattened H * W plane."""
    shape, (height, width) = (*x.shape[:2], *size), x.shape[2:]
    y, index = np.empty(shape, x.dtype), np.empty(shape, np.int64)
    for oh, ow in np.ndindex(*size):
        top, bottom = oh * height // size[0], -(-(oh + 1) * height // size[0])
        left, right = ow * width // size[1], -(-(ow + 1) * width // size[1])
        window = x[:, :, top:bottom, left:right].reshape(*shape[:2], -1)
        best = window.astype(compute_dtype(x.dtype)).argmax(-1)
        y[..., oh, ow] = np.take_along_axis(window, best[..., None], -1)[..., 0]
        rows, columns = np.divmod(best, right - left)
        index[..., oh, ow] = (top + rows) * width + left + columns
    return y, index


@traced
def max_pool2d_backward(
    g: np.ndarray,
    indices: np.ndarray,
    x_shape: tuple[int, int, int, int],
    kernel: Pair | None = None,
    stride: Pair | None = None,
    padding: Pair = (0, 0),
    dilation: Pair = (1, 1),
) -> np.ndarray:
    """Gradient of max_pool2d: each g (N, C, OH, OW) is added where its maximum came from.

    The windows help other dialects to gather; here the indices say everything.
    """
    n, c, h, w = x_shape
    dx = np.zeros((n * c, h * w), compute_dtype(g.dtype))
    plane = np.arange(n * c)[:, None]
    flat = (n * c, g.shape[2] * g.shape[3])
    np.add.at(dx, (plane, indices.reshape(flat)), g.reshape(flat).astype(dx.dtype))
    return dx.reshape(x_shape).astype(g.dtype, copy=False)


def _pool_divisors(
    x_shape, kernel: Pair, stride: Pair, padding: Pair, out: Pair, count_include_pad: bool
) -> np.ndarray:
    """How many elements each average window (OH, OW) divides by."""
    lengths = []
    for i in range(2):
        n = x_shape[2 + i]
        start = np.arange(out[i]) * stride[i] - padding[i]
        end = np.minimum(start + kernel[i], n + padding[i])
        if not count_include_pad:
            start, end = np.maximum(start, 0), np.minimum(end, n)
        lengths.append(end - start)
    return np.outer(*lengths)


@traced
def avg_pool2d(
    x: np.ndarray,
    kernel: Pair,
    stride: Pair,
    padding: Pair = (0, 0),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> np.ndarray:
    """Mean over windows of x (N, C, H, W)."""
    compute = x.astype(compute_dtype(x.dtype), copy=False)
    win = _pool_windows(compute, kernel, stride, padding, (1, 1), ceil_mode, 0)
    divisor = divisor_override or _pool_divisors(
        x.shape, kernel, stride, padding, win.shape[2:4], count_include_pad
    )
    return (win.sum((-2, -1)) / divisor).astype(x.dtype)


@traced
def avg_pool2d_backward(
    g: np.ndarray,
    x_shape: tuple[int, int, int, int],
    kernel: Pair,
    stride: Pair,
    padding: Pair = (0, 0),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> np.ndarray:
    """Gradient of avg_pool2d with respect to x: each g (N, C, OH, OW) spread over its window."""
    n, c, h, w = x_shape
    (ph, pw), (oh, ow) = padding, g.shape[2:]
    divisor = divisor_override or _pool_divisors(
        x_shape, kernel, stride, padding, (oh, ow), count_include_pad
    )
    share = g.astype(compute_dtype(g.dtype), copy=False) / divisor
    reach_h = max(h + 2 * ph, (oh - 1) * stride[0] + kernel[0])
    reach_w = max(w + 2 * pw, (ow - 1) * stride[1] + kernel[1])
    dx = np.zeros((n, c, reach_h, reach_w), share.dtype)
    for kh, kw in np.ndindex(*kernel):
        rows = slice(kh, kh + (oh - 1) * stride[0] + 1, stride[0])
        cols = slice(kw, kw + (ow - 1) * stride[1] + 1, stride[1])
        dx[:, :, rows, cols] += share
    return dx[:, :, ph : ph + h, pw : pw + w].astype(g.dtype)
