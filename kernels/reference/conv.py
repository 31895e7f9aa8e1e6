"""2-D convolution, forward and both backwards, as products with sliding windows."""

from __future__ import annotations

import numpy as np

from kernels.reference.common import Pair, compute_dtype, traced, windows


def conv_output_size(n: int, k: int, stride: int, padding: int, dilation: int) -> int:
    """Length of one output dimension of a convolution."""
    return (n + 2 * padding - dilation * (k - 1) - 1) // stride + 1


def _conv_windows(x, kernel: Pair, stride: Pair, padding: Pair, dilation: Pair) -> np.ndarray:
    (ph, pw) = padding
    padded = np.pad(x, ((0, 0), (0, 0), (ph, ph), (pw, pw)))
    out = tuple(
        conv_output_size(x.shape[2 + i], kernel[i], stride[i], padding[i], dilation[i])
        for i in range(2)
    )
    return windows(padded, kernel, stride, dilation, out)


@traced
def conv2d(
    x: np.ndarray,
    w: np.ndarray,
    bias: np.ndarray | None = None,
    stride: Pair = (1, 1),
    padding: Pair = (0, 0),
    dilation: Pair = (1, 1),
    groups: int = 1,
) -> np.ndarray:
    """Cross-correlation of x (N, C, H, W) with w (O, C / groups, KH, KW), plus bias (O,)."""
    compute = compute_dtype(x.dtype)
    win = _conv_windows(x.astype(compute, copy=False), w.shape[2:], stride, padding, dilation)
    per_in, per_out = w.shape[1], w.shape[0] // groups
    parts = [
        np.tensordot(
            win[:, i * per_in : (i + 1) * per_in],
            w[i * per_out : (i + 1) * per_out].astype(compute, copy=False),
            ((1, 4, 5), (1, 2, 3)),
        )
        for i in range(groups)
    ]
    y = np.concatenate(parts, axis=-1)
    if bias is not None:
        y = y + bias
    return np.ascontiguousarray(np.moveaxis(y, -1, 1)).astype(x.dtype, copy=False)


@traced
def conv2d_backward_data(
    g: np.ndarray,
    w: np.ndarray,
    x_shape: tuple[int, int, int, int],
    stride: Pair = (1, 1),
    padding: Pair = (0, 0),
    dilation: Pair = (1, 1),
    groups: int = 1,
    bias: np.ndarray | None = None,
) -> np.ndarray:
    """Gradient of conv2d with respect to x, of shape `x_shape`, for g (N, O, OH, OW); plus bias
    (C,), which makes it a transposed convolution."""
    n, c, h, width = x_shape
    (ph, pw), (oh, ow) = padding, g.shape[2:]
    per_in, per_out = w.shape[1], w.shape[0] // groups
    compute = compute_dtype(g.dtype)
    dx = np.zeros((n, c, h + 2 * ph, width + 2 * pw), compute)
    for i in range(groups):
        channels = slice(i * per_in, (i + 1) * per_in)
        g_i = g[:, i * per_out : (i + 1) * per_out].astype(compute, copy=False)
        w_i = w[i * per_out : (i + 1) * per_out].astype(compute, copy=False)
        for kh, kw in np.ndindex(w.shape[2:]):
            rows = slice(kh * dilation[0], kh * dilation[0] + (oh - 1) * stride[0] + 1, stride[0])
            cols = slice(kw * dilation[1], kw * dilation[1] + (ow - 1) * stride[1] + 1, stride[1])
            part = np.tensordot(g_i, w_i[:, :, kh, kw], ((1,), (0,)))
            dx[:, channels, rows, cols] += np.moveaxis(part, -1, 1)
    if bias is not None:
        dx += bias[:, None, None]
    return np.ascontiguousarray(dx[:, :, ph : ph + h, pw : pw + width]).astype(g.dtype, copy=False)


@traced
def conv2d_backward_weight(
    g: np.ndarray,
    x: np.ndarray,
    w_shape: tuple[int, int, int, int],
    stride: Pair = (1, 1),
    padding: Pair = (0, 0),
    dilation: Pair = (1, 1),
    groups: int = 1,
) -> np.ndarray:
    """Gradient of conv2d with respect to w, of shape `w_shape`, for g (N, O, OH, OW)."""
    compute = compute_dtype(x.dtype)
    win = _conv_windows(x.astype(compute, copy=False), w_shape[2:], stride, padding, dilation)
    per_in, per_out = w_shape[1], w_shape[0] // groups
    parts = [
        np.tensordot(
            g[:, i * per_out : (i + 1) * per_out].astype(compute, copy=False),
            win[:, i * per_in : (i + 1) * per_in],
            ((0, 2, 3), (0, 2, 3)),
        )
        for i in range(groups)
    ]
    return np.concatenate(parts).astype(x.dtype, copy=False)
