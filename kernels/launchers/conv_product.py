"""A convolution that is a matrix product as it is: its kernel is as large as the image, which is a
row then, or one pixel large, so that an image is a matrix of channels x pixels."""

from __future__ import annotations

import math

from kernels.launchers.common import Dialect, compute_dtype
from kernels.launchers.conv_planes import Geometry
from kernels.launchers.matmul import matmul
from kernels.launchers.pointwise import pointwise
from kernels.launchers.reduction import reduce
from kernels.pointwise import TABLE

MIN_PIXELS, TILE = 512, 32  # of an image: fewer fill tiles, or batch_gemm fills more of them
MIN_CHANNELS = 32  # for the gradient of the weights, which is added up over the images


def pays(geo: Geometry, like, is_convolution: bool) -> bool:
    """Whether a 1x1 convolution on a CPU is to be a product of each image, the gradient of its
    weights (not is_convolution) a sum of them. Measured: `benchmarks.convolutions`, 1x1."""
    pixels = math.prod(geo.x_shape[2:])
    if not geo.mixes_channels or compute_dtype(like.dtype) != like.dtype or not pixels:
        return False
    if is_convolution:
        return pixels % TILE == 0 or pixels >= MIN_PIXELS
    return pixels >= MIN_PIXELS and min(geo.channels) >= MIN_CHANNELS


def _shapes(geo: Geometry) -> tuple[tuple[int, ...], ...]:
    """Of x, w and the output as matrices, or stacks of them."""
    (n, *image), outs = geo.x_shape, geo.w_shape[0]
    if geo.is_product:
        return (n, math.prod(image)), (outs, math.prod(image)), (n, outs)
    pixels = math.prod(image[1:])
    return (n, image[0], pixels), (outs, image[0]), (n, outs, pixels)


def forward(dialect: Dialect, name: str, geo: Geometry, like, has_bias: bool):
    """The function (w, x, bias) -> y."""
    of_x, of_w, of_y = _shapes(geo)

    def rows(w, x, bias):
        y = matmul(dialect, x.reshape(of_x), w.reshape(of_w).T, bias if has_bias else None)
        return y.reshape(*of_y, 1, 1)

    def stack(w, x, bias):
        y = matmul(dialect, w.reshape(of_w), x.reshape(of_x))
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
