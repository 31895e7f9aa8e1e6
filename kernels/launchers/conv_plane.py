"""The launches of `plane`: a padded plane in shared memory, for one input channel a group."""

from __future__ import annotations

from typing import NamedTuple

from kernels.launchers.common import Dialect, compute_dtype, empty, launcher, on_gpu
from kernels.launchers.conv_planes import Geometry, Pair
from kernels.support import processor

DATA, WEIGHT = "conv2d_backward_data", "conv2d_backward_weight"
MOST_BYTES = 48 * 1024  # of shared memory, for the plane and as many sums
# Taps of a kernel that is faster so on a CPU, where each tap reads all again; where the sums of a
# tile of `tiled` stay in registers; with a stride.
MOST_TAPS, MOST_BESIDE_TILES, MOST_WITH_STRIDE = 25, 16, 9
MOST_SUMS = 9  # taps whose sums stay in the registers of a CPU


class Plane(NamedTuple):
    """Rows of `width` elements; where the input begins, and how far apart its elements lie."""

    rows: int
    width: int
    lead: Pair
    apart: Pair

    @property
    def size(self) -> int:
        """A power of two that holds it: few of them are compiled."""
        return 1 << (self.rows * self.width - 1).bit_length()


def _plane(geo: Geometry, backward: bool) -> Plane:
    """That of x, or for backward-data that of g, of which each result reaches all of dx."""
    if not backward:
        rows, width = (geo.x_shape[2 + i] + 2 * geo.padding[i] for i in range(2))
        return Plane(rows, width, geo.padding, (1, 1))
    rows, width = (geo.x_shape[2 + i] + geo.reach(i) for i in range(2))
    lead = geo.reach(0) - geo.padding[0], geo.reach(1) - geo.padding[1]
    return Plane(rows, width, lead, geo.stride)


def refusal(name: str, geo: Geometry, dtype) -> str | None:
    """Why the kernels do not take a convolution or its gradient `name`; None where they do."""
    plane = _plane(geo, name == DATA)
    (per_in, per_out), forward = geo.channels, name not in (DATA, WEIGHT)
    if per_in != 1 or (per_out != 1 and not forward):
        return "takes one input channel a group, for gradients one output channel, too"
    if min(plane.lead) < 0:
        return "takes no padding that is wider than the kernel's reach in backward-data"
    if 2 * plane.size * compute_dtype(dtype).itemsize > MOST_BYTES:
        return f"takes planes that fit in {MOST_BYTES // 2048} KB, not {plane.rows} x {plane.width}"
    return None


def pays(name: str, geo: Geometry, dtype) -> bool:
    """Whether it is the fastest on a CPU. With a stride, forward computes results that are not
    asked for, and the gradients multiply zeros."""
    is_wide = processor.vector_registers().floats >= 16
    most = MOST_BESIDE_TILES if is_wide or geo.out[1] <= 8 else MOST_TAPS
    if name == WEIGHT:
        most = MOST_SUMS if geo.stride == (1, 1) else 0
    elif geo.stride != (1, 1):
        most = MOST_WITH_STRIDE if name == DATA or not is_wide else 0
    taps = geo.w_shape[2] * geo.w_shape[3]
    return taps <= most and refusal(name, geo, dtype) is None


def _convolution(dialect: Dialect, name: str, geo: Geometry, like, backward: bool, has_bias: bool):
    """The function (w, x, bias) -> y, or (w, g, bias) -> dx."""
    plane, stride = _plane(geo, backward), (1, 1) if backward else geo.stride
    shape = geo.x_shape if backward else (geo.x_shape[0], geo.w_shape[0], *geo.out)
    kernel = dialect.conv_direct.plane_forward(
        *(dialect.common.scalar_type(like.dtype), geo.w_shape[2:], plane.apart, stride),
        *(geo.dilation, backward, has_bias, plane.size),
    )
    block = (32, 8) if on_gpu(like) else (64, 1)
    run = launcher(name, "plane", kernel, shape[0] * shape[1], block)
    sizes = geo.channels[1], plane.rows * plane.width, plane.width, *plane.lead

    def convolved(w, x, bias):
        y = empty(shape, like.dtype, x)
        planes, results = x.reshape(-1, *x.shape[2:]), y.reshape(-1, *shape[2:])
        run(planes, w.reshape(len(w), -1), bias, results, *sizes)
        return y

    return convolved


def forward(dialect: Dialect, name: str, geo: Geometry, like, has_bias: bool):
    """The function (w, x, bias) -> y."""
    return _convolution(dialect, name, geo, like, False, has_bias)


def backward_data(dialect: Dialect, name: str, geo: Geometry, like):
    """The function (g, w) -> dx."""
    convolved = _convolution(dialect, name, geo, like, True, False)
    no_bias = empty((1,), like.dtype, like)
    return lambda g, w: convolved(w, g, no_bias)


def backward_weight(dialect: Dialect, name: str, geo: Geometry, like):
    """The function (g, x) -> dw."""
    plane, channels = _plane(geo, False), geo.w_shape[0]
    acc_t = dialect.common.scalar_type(like.dtype)
    constants = geo.w_shape[2:], geo.stride, geo.dilation, plane.size
    kernel = dialect.conv_direct.plane_weight(acc_t, *constants)
    run = launcher(name, "plane", kernel, channels, 32)
    sizes = plane.rows * plane.width, plane.width, *plane.lead

    def weight(g, x):
        dw = empty(geo.w_shape, like.dtype, x)
        planes, slopes = x.reshape(-1, *x.shape[2:]), g.reshape(-1, *g.shape[2:])
        run(planes, slopes, dw.reshape(channels, -1), *sizes)
        return dw

    return weight
