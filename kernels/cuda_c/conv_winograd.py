"""The kernels of conv_winograd.cu."""

from __future__ import annotations

from kernels.cuda_c.common import Kernel, family

_kernel = family("conv_winograd.cu")

BLOCK = 64


def weights(acc_t, turned: bool) -> Kernel:
    """kernel(w, u) for w (O, C, 9) and u (16, rows, columns)."""
    return _kernel("weights", (), (acc_t, turned, BLOCK), lambda w, u: (w, u, *u.shape[1:]))


def inputs(acc_t) -> Kernel:
    """kernel(planes, v, plane, width, first, count) for v (16, C, tiles)."""

    def arguments(planes, v, *sizes):
        return planes, v, v.shape[2], *sizes

    return _kernel("inputs", (), (acc_t,), arguments)


def outputs(acc_t, has_bias: bool) -> Kernel:
    """kernel(m, bias, y, width, first, count) for m (16, O, tiles) and y (N, O, H, W)."""

    def arguments(m, bias, y, *sizes):
        return m, bias, y, m.shape[2], *y.shape[2:], *sizes

    return _kernel("outputs", (), (acc_t, has_bias, BLOCK), arguments)


def gradients(acc_t) -> Kernel:
    """kernel(planes, d, plane, first, count) for d (16, O, tiles)."""

    def arguments(planes, d, *sizes):
        return planes, d, d.shape[2], *sizes

    return _kernel("gradients", (), (acc_t,), arguments)


def filters(acc_t) -> Kernel:
    """kernel(m, dw) for m (16, O, C) and dw (O, C, 9)."""
    return _kernel("filters", (), (acc_t, BLOCK), lambda m, dw: (m, dw, *m.shape[1:]))
