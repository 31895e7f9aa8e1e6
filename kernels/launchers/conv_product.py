"""A convolution that is a matrix product as it is: its kernel is as large as the image, which is a
row then, or one pixel large, so that an image is a matrix of channels x pixels.

Of any other one the windows can be copied to the columns of a matrix (im2col), each element as
often as windows have it; for one image with many channels that costs less than transposing the
weights for batch_gemm."""

from __future__ import annotations

import math

import numpy as np

from kernels.launchers.common import Dialect, compute_dtype, empty
from kernels.launchers.conv_planes import Geometry, padded
from kernels.launchers.matmul import matmul
from kernels.launchers.pointwise import pointwise
from kernels.launchers.reduction import reduce
from kernels.pointwise import TABLE

MIN_PIXELS = 512  # of an image: fewer fill tiles, or batch_gemm fills more of them
TILE = 16  # pixels from which tiles are full enough where there are channels for many rows
MIN_CHANNELS = 32


def pays(geo: Geometry, like, is_convolution: bool) -> bool:
    """Whether a 1x1 convolution on a CPU is to be a product of each image, the gradient of its
    weights (not is_convolution) a sum of them. Measured: `benchmarks.convolutions`, 1x1."""
    images, pixels = geo.x_shape[0], math.prod(geo.x_shape[2:])
    if not geo.mixes_channels or compute_dtype(like.dtype) != like.dtype or not pixels:
        return False
    many = min(geo.channels) >= MIN_CHANNELS
    if is_convolution:  # batch_gemm transposes the weights first
        return images == 1 or pixels % TILE == 0 or pixels >= (TILE if many else MIN_PIXELS)
    return pixels >= MIN_PIXELS and many


def may_copy(geo: Geometry, like) -> bool:
    """Whether the windows of a convolution may become columns: of more images, a product would read
    the weights again for each, and of 16-bit numbers it would round before the bias is added."""
    return geo.x_shape[0] == geo.groups == 1 and compute_dtype(like.dtype) == like.dtype


def _shapes(geo: Geometry) -> tuple[tuple[int, ...], ...]:
    """Of x (where it is not copied), w and the output as matrices, or stacks of them."""
    (n, *image), (outs, *window) = geo.x_shape, geo.w_shape
    if geo.is_product:
        return (n, math.prod(image)), (outs, math.prod(image)), (n, outs)
    pixels = math.prod(geo.out)
    return (n, image[0], pixels), (outs, math.prod(window)), (n, outs, pixels)


def _columns(dialect: Dialect, name: str, geo: Geometry, like):
    """The function x -> its windows as columns (N, C * KH * KW, OH * OW), on a CPU."""
    n, channels = geo.x_shape[:2]
    planes = padded(geo)
    pad = planes.launch(dialect, name, like, n * channels, 0)
    shape = (n, channels, *geo.w_shape[2:], *geo.out)
    (down, across), (height, width) = geo.dilation, geo.stride
    steps = (channels * planes.channel, planes.channel, down * planes.width, across)
    steps = (*steps, height * planes.width, width)

    def columns(x):
        flat = pad(x)
        strides = [step * flat.itemsize for step in steps]
        windows = np.ndarray(shape, flat.dtype, flat, strides=strides)
        found = empty(shape, x.dtype, x)
        pointwise(dialect, TABLE["copy"], windows, out=found)
        return found.reshape(n, math.prod(shape[1:4]), math.prod(geo.out))

    return columns


def forward(dialect: Dialect, name: str, geo: Geometry, like, has_bias: bool):
    """The function (w, x, bias) -> y."""
    of_x, of_w, of_y = _shapes(geo)

    def rows(w, x, bias):
        y = matmul(dialect, x.reshape(of_x), w.reshape(of_w).T, bias if has_bias else None)
        return y.reshape(*of_y, 1, 1)

    def as_columns(x):
        return x.reshape(of_x)

    if not (geo.is_product or geo.mixes_channels):
        as_columns = _columns(dialect, name, geo, like)

    def stack(w, x, bias):
        y = matmul(dialect, w.reshape(of_w), as_columns(x))
        if has_bias:
            pointwise(dialect, TABLE["add"], y, bias.reshape(-1, 1), out=y)
        return y.reshape(*of_y[:2], *geo.out)

    return rows if geo.is_product else stack


def backward_data(dialect: Dialect, name: str, geo: Geometry, like):
    """The function (g, w) -> dx."""
    _, of_w, of_g = _shapes(geo)
    if geo.is_product:
        return lambda g, w: matmul(dialect, g.reshape(of_g), w.reshape(of_w)).reshape(geo.x_shape)
    return lambda g, w: matmul(dialect, w.reshape(of_w).T, g.reshape(of_g)).reshape(geo.x_shape)


def backward_weight(dialect: Dialect, name: str, geo: Geometry, like):
    """The function (g, x) -> dw."""
    of_x, _, of_g = _shapes(geo)
    if geo.is_product:
        return lambda g, x: matmul(dialect, g.reshape(of_g).T, x.reshape(of_x)).reshape(geo.w_shape)

    def weight(g, x):
        each = matmul(dialect, g.reshape(of_g), x.reshape(of_x).transpose(0, 2, 1))
        return reduce(dialect, "sum", each, 0).reshape(geo.w_shape)

    return weight
