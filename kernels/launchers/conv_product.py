"""A convolution that is a matrix product as it is: its kernel is as large as the image, which is a
row then, or one pixel large, so that an image is a matrix of channels x pixels.

Of any other one the windows can be copied to the columns of a matrix (im2col), each element as
often as windows have it, and the gradients of windows added up (col2im); for few images with many
channels that costs less than transposing the weights for batch_gemm."""

from __future__ import annotations

import math

import numpy as np

from kernels.launchers.common import Dialect, ceil_div, compute_dtype, empty, launcher
from kernels.launchers.conv_planes import Geometry, padded
from kernels.launchers.matmul import matmul
from kernels.launchers.pointwise import pointwise
from kernels.launchers.reduction import reduce
from kernels.launchers.transpose import transpose
from kernels.pointwise import TABLE

MIN_PIXELS = 512  # of an image: fewer fill tiles, or batch_gemm fills more of them
TILE = 16  # pixels from which tiles are full enough where there are channels for many rows
MIN_CHANNELS = 32
SECOND_LEVEL = 1 << 18  # elements that this cache holds
MOST_COPIED = 1 << 21  # elements of all windows
LANES, ROWS = 64, 4  # of blocks that take windows apart, or add them up


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
    """Whether the windows of a convolution may become columns, or their gradients be added up: of
    16-bit numbers, a product would be rounded before the bias is added, or the sum taken."""
    copied = math.prod(geo.w_shape[1:]) * geo.x_shape[0] * math.prod(geo.out)
    fits = geo.groups == 1 and copied <= MOST_COPIED
    return fits and compute_dtype(like.dtype) == like.dtype


def _shapes(geo: Geometry) -> tuple[tuple[int, ...], ...]:
    """Of x, w and the output as matrices, or stacks of them."""
    (n, *image), outs = geo.x_shape, geo.w_shape[0]
    if geo.is_product:
        return (n, math.prod(image)), (outs, math.prod(image)), (n, outs)
    pixels = math.prod(image[1:])
    return (n, image[0], pixels), (outs, image[0]), (n, outs, pixels)


def _offsets(shape: tuple[int, ...], steps: tuple[int, ...]) -> np.ndarray:
    """How far each index of an array of `shape` is from the first, int64."""
    found = np.zeros(shape, np.int64)
    for index, step in zip(np.ogrid[tuple(map(slice, shape))], steps, strict=True):
        found += index * step
    return found.reshape(-1)


def _by_columns(dialect: Dialect, name: str, geo: Geometry, like, has_bias: bool):
    """The function (w, x, bias) -> y by one product, with the windows of all images as columns; on
    a CPU."""
    (n, channels, *_), (outs, *window) = geo.x_shape, geo.w_shape
    planes = padded(geo)
    lay_out = planes.launch(dialect, name, like, n * channels, 0)
    if geo.padding == (0, 0):
        lay_out = lambda x: x.reshape(-1)  # noqa: E731
    (down, across), (height, width) = geo.dilation, geo.stride
    steps = planes.channel, down * planes.width, across
    terms = _offsets(tuple(window), steps)
    between = channels * planes.channel, height * planes.width, width
    places = _offsets((n, *geo.out), between)
    shape = terms.size, places.size
    block = min(LANES, shape[1]), ROWS
    grid = ceil_div(shape[0], block[1]), ceil_div(shape[1], block[0])
    unfold = launcher(name, "unfold", dialect.conv_direct.unfold(), grid, block)

    def product(w, x, bias):
        columns = empty(shape, x.dtype, x)
        unfold(lay_out(x), terms, places, columns)
        y = matmul(dialect, w.reshape(outs, -1), columns)
        y = y.reshape(outs, n, -1).swapaxes(0, 1)
        if has_bias:  # of one image in place, of more while they are brought apart
            y = pointwise(dialect, TABLE["add"], y, bias.reshape(-1, 1), out=y if n == 1 else None)
        elif n > 1:
            y = pointwise(dialect, TABLE["copy"], y)
        return y.reshape(n, outs, *geo.out)

    return product


def _by_pixels(dialect: Dialect, geo: Geometry, has_bias: bool):
    """The function (w, x, bias) -> y of a 1x1 convolution by one product, with the pixels of all
    images as rows."""
    (n, channels), outs = geo.x_shape[:2], geo.w_shape[0]

    def product(w, x, bias):
        pixels = transpose(dialect, x.reshape(n, channels, -1), (0, 2, 1)).reshape(-1, channels)
        y = matmul(dialect, pixels, w.reshape(outs, channels).T, bias if has_bias else None)
        return transpose(dialect, y.reshape(n, -1, outs), (0, 2, 1)).reshape(n, outs, *geo.out)

    return product


def _by_windows(dialect: Dialect, name: str, geo: Geometry, like):
    """The function (g, w) -> dx by one product, the gradients of all windows."""
    n, outs = geo.x_shape[0], geo.w_shape[0]
    added = _transposed(dialect, geo) if geo.mixes_channels else _folded(dialect, name, geo, like)

    def data(g, w):
        pixels = transpose(dialect, g.reshape(n, outs, -1), (0, 2, 1)).reshape(-1, outs)
        return added(matmul(dialect, pixels, w.reshape(outs, -1)))

    return data


def _transposed(dialect: Dialect, geo: Geometry):
    """The function (pixels of all images, channels) -> dx."""
    n, channels = geo.x_shape[:2]

    def transposed(pixels):
        return transpose(dialect, pixels.reshape(n, -1, channels), (0, 2, 1)).reshape(geo.x_shape)

    return transposed


def _folded(dialect: Dialect, name: str, geo: Geometry, like):
    """The function (windows of all images, elements of one) -> dx, their sums."""
    (n, channels, *size), dtype = geo.x_shape, like.dtype
    constants = dialect.common.scalar_type(dtype), geo.w_shape[2:], geo.stride, geo.dilation
    block = min(LANES, channels)
    grid = n * math.prod(size), ceil_div(channels, block)
    fold = launcher(name, "fold", dialect.conv_direct.fold(*constants), grid, block)

    def folded(windows):
        dx = empty(geo.x_shape, dtype, windows)
        fold(windows.reshape(n, *geo.out, *geo.w_shape[1:]), dx, *geo.padding)
        return dx

    return folded


def _few_pixels(geo: Geometry) -> bool:
    """Whether the images of a 1x1 convolution are too small for a product each. That is one pixel
    more where each product would read the weights from further away than the second level."""
    pixels, far = math.prod(geo.out), math.prod(geo.w_shape) > SECOND_LEVEL
    return geo.x_shape[0] > 1 and (pixels <= TILE if far else pixels < TILE)


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

    if geo.is_product:
        return rows
    if not geo.mixes_channels:
        return _by_columns(dialect, name, geo, like, has_bias)
    return _by_pixels(dialect, geo, has_bias) if _few_pixels(geo) else stack


def backward_data(dialect: Dialect, name: str, geo: Geometry, like):
    """The function (g, w) -> dx."""
    _, of_w, of_g = _shapes(geo)
    if geo.is_product:
        return lambda g, w: matmul(dialect, g.reshape(of_g), w.reshape(of_w)).reshape(geo.x_shape)
    if not geo.mixes_channels or _few_pixels(geo):
        return _by_windows(dialect, name, geo, like)
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
