"""A convolution whose kernel is as large as the image: an image is a row of a matrix product."""

from __future__ import annotations

import math

from kernels.launchers.common import Dialect
from kernels.launchers.conv_planes import Geometry
from kernels.launchers.matmul import matmul


def _shapes(geo: Geometry) -> tuple[tuple[int, int], ...]:
    """Of x, w and the output as matrices."""
    (n, *image), outs = geo.x_shape, geo.w_shape[0]
    return (n, math.prod(image)), (outs, math.prod(image)), (n, outs)


def forward(dialect: Dialect, name: str, geo: Geometry, like, has_bias: bool):
    """The function (w, x, bias) -> y."""
    of_x, of_w, of_y = _shapes(geo)

    def product(w, x, bias):
        y = matmul(dialect, x.reshape(of_x), w.reshape(of_w).T, bias if has_bias else None)
        return y.reshape(*of_y, 1, 1)

    return product


def backward_data(dialect: Dialect, name: str, geo: Geometry, like):
    """The function (g, w) -> dx."""
    _, of_w, of_g = _shapes(geo)
    return lambda g, w: matmul(dialect, g.reshape(of_g), w.reshape(of_w)).reshape(geo.x_shape)


def backward_weight(dialect: Dialect, name: str, geo: Geometry, like):
    """The function (g, x) -> dw."""
    of_x, _, of_g = _shapes(geo)
    return lambda g, x: matmul(dialect, g.reshape(of_g).T, x.reshape(of_x)).reshape(geo.w_shape)
