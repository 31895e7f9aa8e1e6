"""Convolution as a matrix product whose right operand is never built (implicit GEMM).

For image n and group g the result is y[oc, q] = sum_k w[oc, k] * col[k, q], where k = (ic, kh, kw)
and q is an output pixel. Two observations make `col` cheap:

- In a plane that is padded already, with rows of `width` elements, let q = oh * width + ow run over
  padded positions. Then col[k, q] = planes[offset[k] + q]: neighbours q read neighbours in memory,
  and a table `offset` of K integers encodes kernel element, dilation and channel.
  The few q with ow >= OW are computed and not stored.
- A stride s splits the plane into s * s phases, each of which is a plane with stride 1. In
  backward-data the phases of dx are so many output channels, with zeros for the weights that do
  not reach them.

Kernels here:
    pad             x -> planes: padding, phases of a stride
    implicit_gemm   the product, a 2-D register tile as in matmul.py; forward, and backward-data
                    (a convolution of the padded gradient)
    swap_channels   w (groups * O, C, taps) -> (groups * C, phases, O, shifts), for backward-data
    weight_gradient dw[oc, k] = sum_(n, q) g[oc, q] * planes[offset[k] + q]: the lanes of a block
                    run along q, each keeps an RM x RN tile of sums, which are added last
"""

from __future__ import annotations

import functools

from kernels.launchers.common import Pair, ceil_div
from kernels.launchers.conv_gemm import GemmTile, GradTile, gpu_tile
from kernels.simt import cuda
from kernels.support import processor


@functools.cache
def pad(acc_t, sub: Pair):
    """planes[(image, channel), phase, t, u] from x (images * channels, H, W).

    Padded coordinate i = t * sub + phase; it holds x[i - lead] where that is an index. Planes after
    the last channel are zeros: room to read past the end. blockIdx = (channel and phase of rows,
    tile of rows): the block fills the tile of all phases of the columns with zeros, which stay in a
    cache, then copies the rows of x over them. Columns that all phases have go to these at once.
    """
    sub_h, sub_w = sub

    @cuda.jit
    def conv2d_pad(x, planes, rows, width, lead_h, lead_w):
        tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
        tile = (rows + cuda.gridDim.y - 1) // cuda.gridDim.y
        top, bottom = cuda.blockIdx.y * tile, min((cuda.blockIdx.y + 1) * tile, rows)
        step, plane, base = cuda.blockDim.x * cuda.blockDim.y, rows * width, cuda.blockIdx.x * sub_w
        for b in range(sub_w):
            first = (base + b) * plane + top * width
            for u in range(ty * cuda.blockDim.x + tx, (bottom - top) * width, step):
                planes[first + u] = acc_t(0)
        cuda.syncthreads()
        channel, h = cuda.blockIdx.x // sub_h, cuda.blockIdx.x % sub_h - lead_h
        if channel >= x.shape[0]:
            return
        row = max(top, -(h // sub_h))
        height = min(bottom, -((h - x.shape[1]) // sub_h)) - row
        low = max(0, -(-lead_w // sub_w))  # where phase 0 begins; before that phase sub_w - 1 ends
        high = min(width, -((sub_w - 1 - lead_w - x.shape[2]) // sub_w))
        h0, w0 = max(0, row * sub_h + h), max(0, low * sub_w - lead_w)
        start = base * plane + row * width + low
        for t in range(ty, height, cuda.blockDim.y):
            for u in range(tx, high - low, cuda.blockDim.x):
                for b in range(sub_w):
                    value = x[channel, h0 + t * sub_h, w0 + u * sub_w + b]
                    planes[start + b * plane + t * width + u] = acc_t(value)
        if sub_w > 1:  # a column on each side that some phases have
            for t in range(ty * cuda.blockDim.x + tx, height, step):
                for b in range(sub_w):
                    w = b - lead_w
                    begin, end = max(0, -(w // sub_w)), min(width, -((w - x.shape[2]) // sub_w))
                    line = (base + b) * plane + (row + t) * width
                    if begin < min(low, end):
                        value = x[channel, h0 + t * sub_h, max(0, begin * sub_w + w)]
                        planes[line + begin] = acc_t(value)
                    if max(high, low, begin) < end:
                        value = x[channel, h0 + t * sub_h, max(0, (end - 1) * sub_w + w)]
                        planes[line + end - 1] = acc_t(value)

    return conv2d_pad


@functools.cache
def implicit_gemm(acc_t, tile: GemmTile, has_bias: bool, split: bool):
    """One block: by * rm output channels x bx * rn positions of one group of one image.

    w (groups * channels, K); planes flat, `image` elements apart per (image, group); y
    (images * groups * channels, OH * OW). blockIdx.x = (image, group, position tile). `offset` is
    padded to a multiple of tk. split: blockIdx.z takes `span` terms, a multiple of tk, and y has
    its rows for each.
    """
    bx, by, rm, rn, tk = tile
    tm, tn = by * rm, bx * rn
    k_by_x, k_by_y = tk // bx, tk // by

    @cuda.jit
    def conv2d_implicit_gemm(
        w, planes, offset, bias, y, groups, image, positions, width, out_w, span
    ):
        w_tile = cuda.shared.array((tm, tk), acc_t)
        p_tile = cuda.shared.array((tk, tn), acc_t)
        acc = cuda.local.array((rm, rn), acc_t)
        tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
        tiles = (positions + (tn - 1)) // tn
        z = cuda.blockIdx.x // tiles
        q0 = cuda.blockIdx.x % tiles * tn
        channels = w.shape[0] // groups
        c0 = cuda.blockIdx.y * tm
        w0 = (z % groups) * channels + c0
        base = z * image + q0
        terms = w.shape[1]
        for i in range(rm):
            for j in range(rn):
                acc[i, j] = acc_t(0)
        first = cuda.blockIdx.z * span if split else 0
        last = min(first + span, terms) if split else terms
        for k0 in range(first, last, tk):
            for i in range(rm):
                for j in range(k_by_x):
                    r = i * by + ty
                    kk = j * bx + tx
                    inside = c0 + r < channels and k0 + kk < terms
                    w_tile[r, kk] = acc_t(w[w0 + r, k0 + kk]) if inside else acc_t(0)
            for i in range(k_by_y):
                kk = i * by + ty
                start = base + offset[k0 + kk]
                for j in range(rn):
                    q = j * bx + tx
                    inside = k0 + kk < terms and q0 + q < positions
                    p_tile[kk, q] = acc_t(planes[start + q]) if inside else acc_t(0)
            cuda.syncthreads()
            for kk in range(tk):
                for i in range(rm):
                    wv = w_tile[i * by + ty, kk]
                    for j in range(rn):
                        acc[i, j] += wv * p_tile[kk, j * bx + tx]
            cuda.syncthreads()
        zo = cuda.blockIdx.z * (cuda.gridDim.x // tiles) + z if split else z
        for j in range(rn):
            q = q0 + j * bx + tx
            oh = q // width
            ow = q % width
            if q < positions and ow < out_w:
                for i in range(rm):
                    c = c0 + i * by + ty
                    if c < channels:
                        v = acc[i, j]
                        if has_bias:
                            if split:
                                own = acc_t(bias[w0 + i * by + ty])
                                v += own if cuda.blockIdx.z == 0 else acc_t(0)
                            else:
                                v += acc_t(bias[w0 + i * by + ty])
                        y[zo * channels + c, oh * out_w + ow] = v

    return conv2d_implicit_gemm


@functools.cache
def swap_channels(acc_t):
    """A thread per pair of channels; w (groups * O, C, taps), swapped (groups * C, phases, O,
    shifts). taps (phases, shifts) is the tap of each phase and shift; -1 where there is none."""

    @cuda.jit
    def conv2d_swap_channels(w, taps, swapped):
        c, o = cuda.grid(2)
        group = o // swapped.shape[2]
        if o < w.shape[0] and c < w.shape[1]:
            for phase in range(taps.shape[0]):
                for shift in range(taps.shape[1]):
                    tap = taps[phase, shift]
                    value = acc_t(w[o, c, tap]) if tap >= 0 else acc_t(0)
                    swapped[group * w.shape[1] + c, phase, o % swapped.shape[2], shift] = value

    return conv2d_swap_channels


@functools.cache
def weight_gradient(acc_t, tile: GradTile):
    """One block: rm output channels x by * rn taps of one group, over some of the images.

    g flat, (images * groups * channels, positions); planes flat, `image` elements apart per
    (image, group); dw (splits, groups * channels, K). blockIdx.z = (split, group). `offset` is
    padded to a multiple of by * rn.
    """
    bx, by, rm, rn, span = tile
    steps, rows_by_y = span // bx, -(-rm // by)

    @cuda.jit
    def conv2d_weight_gradient(g, planes, offset, dw, images, groups, image, positions):
        g_tile = cuda.shared.array((rm, span), acc_t)
        lanes = cuda.shared.array((by, rn, bx), acc_t)
        acc = cuda.local.array((rm, rn), acc_t)
        tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
        splits, channels, terms = dw.shape[0], dw.shape[1] // groups, dw.shape[2]
        split = cuda.blockIdx.z // groups
        group = cuda.blockIdx.z % groups
        c0 = cuda.blockIdx.y * rm
        k0 = (cuda.blockIdx.x * by + ty) * rn
        for i in range(rm):
            for j in range(rn):
                acc[i, j] = acc_t(0)
        for n in range(split, images, splits):
            z = n * groups + group
            for q0 in range(0, positions, span):
                for r in range(rows_by_y):
                    i = r * by + ty
                    if i < rm:
                        live = c0 + i < channels
                        row = (z * channels + c0 + i) * positions + q0
                        for s in range(steps):
                            q = s * bx + tx
                            inside = live and q0 + q < positions
                            g_tile[i, q] = g[row + q] if inside else acc_t(0)
                cuda.syncthreads()
                base = z * image + q0
                for s in range(steps):
                    q = s * bx + tx
                    for j in range(rn):
                        pv = planes[base + offset[k0 + j] + q]
                        for i in range(rm):
                            acc[i, j] += g_tile[i, q] * pv
                cuda.syncthreads()
        for i in range(rm):
            for j in range(rn):
                lanes[ty, j, tx] = acc[i, j]
            cuda.syncthreads()
            if tx < rn and k0 + tx < terms and c0 + i < channels:
                total = acc_t(0)
                for lane in range(bx):
                    total += lanes[ty, tx, lane]
                dw[split, group * channels + c0 + i, k0 + tx] = total
            cuda.syncthreads()

    return conv2d_weight_gradient


def pad_tiling(planes: int, rows: int, width: int, sub: Pair, gpu: bool) -> tuple[Pair, Pair]:
    """Grid and block of pad for planes of rows x width."""
    block = (32, 8) if gpu else (32, 1)
    tile = 8 if gpu else max(1, 2048 // max(1, width))  # rows: 8 KB stay in a cache
    return (planes // sub[1], ceil_div(rows, tile)), block


def gemm_tile(channels: int, terms: int, positions: int, gpu: bool) -> GemmTile:
    if gpu:
        return gpu_tile(channels, positions)
    bx, rm, rn = (8, 4, 3) if processor.vector_registers().floats < 16 else (16, 8, 2)
    by = min(8, 1 << (ceil_div(channels, rm) - 1).bit_length())  # no rows of threads without one
    return GemmTile(bx, by, rm, rn, 16 if terms <= 16 else 32)


def grad_tile(channels: int, terms: int, positions: int, gpu: bool) -> GradTile:
    span = ceil_div(ceil_div(positions, ceil_div(positions, 256)), 32) * 32
    wide = processor.vector_registers().floats >= 16
    if gpu:
        bx, by, rm, rn = 32, 8, 8, 3
    elif channels == 1:
        bx, by, rm, rn = (16, 16, 1, 5) if wide else (8, 16, 1, 5)
    else:
        bx, by, rm, rn = (16, 16, 8, 3) if wide else (8, 16, 4, 3)
    return GradTile(bx, min(by, ceil_div(terms, rn)), rm, rn, span)
