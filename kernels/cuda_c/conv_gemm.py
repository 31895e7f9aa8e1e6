"""The kernels of conv_gemm.cu, and their tiles."""

from __future__ import annotations

from kernels.cuda_c.common import Kernel, family
from kernels.launchers.common import Pair, ceil_div
from kernels.launchers.conv_gemm import GemmTile, GradTile

_kernel = family("conv_gemm.cu")


def gemm_tile(channels: int, terms: int, positions: int, gpu: bool) -> GemmTile:
    """The tile of implicit_gemm for the output channels of a group, the terms of a sum and the
    positions of a plane."""
    if gpu:  # 8 x 8 results a thread; fewer rows than that for few channels
        by, rm = 16 if channels > 64 else 8, 8 if channels > 32 else 4
        return GemmTile(16, by, rm, 8 if positions > 64 else 4, 16)
    rm = 8 if channels <= 8 else 16 if channels <= 16 else 32
    rn = 64 if positions > 32 else 32
    return GemmTile(1, min(2, ceil_div(channels, rm)), rm, rn, 16 if terms <= 16 else 32)


def grad_tile(channels: int, terms: int, positions: int, gpu: bool) -> GradTile:
    """The tile of weight_gradient."""
    if gpu:
        return GradTile(32, min(8, ceil_div(terms, 3)), 8, 3, 256)
    return GradTile(1, min(16, ceil_div(terms, 4)), 1 if channels == 1 else 32, 4, 128)


def pad_tiling(planes: int, rows: int, width: int, sub: Pair, gpu: bool) -> tuple[Pair, Pair]:
    """Grid and block of pad for planes of rows x width; on a CPU a thread walks along a row."""
    rows *= planes
    if not gpu:
        return (ceil_div(rows, 32), 1), (1, 32)
    bx = 16 if width <= 16 else 32
    return (ceil_div(rows, 256 // bx), ceil_div(width, bx)), (bx, 256 // bx)


def pad(acc_t, sub: Pair) -> Kernel:
    """kernel(x, planes, rows, width, lead_h, lead_w) for x (channels, H, W)."""

    def arguments(x, planes, rows, width, *lead):
        return x, planes, planes.size // width, *x.shape, rows, width, *lead

    return _kernel("pad", (0,), (acc_t, *sub), arguments)


def implicit_gemm(acc_t, tile: GemmTile, has_bias: bool, split: bool) -> Kernel:
    """kernel(w, planes, offset, bias, y, groups, image, positions, width, out_w, span)."""

    def arguments(w, planes, offset, bias, y, groups, *sizes):
        channels, terms = w.shape[0] // groups, w.shape[1]
        return w, planes, offset, bias, y, channels, terms, groups, *sizes, y.shape[1]

    return _kernel("implicit_gemm", (0, 1, 4), (acc_t, *tile, has_bias, split), arguments)


def swap_channels(acc_t) -> Kernel:
    """kernel(w, taps, swapped) for w (groups * O, C, taps), taps (phases, shifts) and swapped
    (groups * C, phases, O, shifts)."""

    def arguments(w, taps, swapped):
        return w, taps, swapped, *w.shape, swapped.shape[2], *taps.shape

    return _kernel("swap_channels", (0,), (), arguments)


def weight_gradient(acc_t, tile: GradTile) -> Kernel:
    """kernel(g, planes, offset, dw, images, groups, image, positions)."""

    def arguments(g, planes, offset, dw, images, groups, *sizes):
        splits, channels, terms = dw.shape[0], dw.shape[1] // groups, dw.shape[2]
        return g, planes, offset, dw, splits, channels, terms, images, groups, *sizes

    return _kernel("weight_gradient", (), (acc_t, *tile), arguments)
