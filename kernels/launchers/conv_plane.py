"""The launches of `plane`: a padded plane in shared memory, for one input channel a group."""

from __future__ import annotations

import math
from typing import NamedTuple

from kernels.launchers.common import Dialect, compute_dtype, empty, launcher, on_gpu
from kernels.launchers.conv_phases import Transposed
from kernels.launchers.conv_planes import Geometry, Pair, Windows
from kernels.support import processor

DATA, WEIGHT = "conv2d_backward_data", "conv2d_backward_weight"
MOST_BYTES = 48 * 1024  # of shared memory, for the plane and as many sums
# Taps of a kernel that is faster so on a CPU, where each tap reads all again; where the sums of a
# tile of `tiled` stay in registers; forward, with a stride; of all phases of backward-data, which
# unroll.
MOST_TAPS, MOST_BESIDE_TILES, MOST_WITH_STRIDE, MOST_OF_PHASES = 25, 16, 9, 36
MOST_SUMS = 9  # taps whose sums stay in the registers of a CPU


class Plane(NamedTuple):
    """Rows of `width` elements; where the input begins; the windows of the results, and how many
    phases these have."""

    rows: int
    width: int
    lead: Pair
    windows: Windows
    phases: Pair

    @property
    def size(self) -> int:
        """A power of two that holds it: few of them are compiled."""
        return 1 << (self.rows * self.width - 1).bit_length()


def _plane(geo: Geometry, backward: bool) -> Plane:
    """That of x, or for backward-data that of g."""
    if not backward:
        rows, width = (geo.x_shape[2 + i] + 2 * geo.padding[i] for i in range(2))
        return Plane(rows, width, geo.padding, geo.windows, (1, 1))
    whole = Transposed(geo)
    rows, width, _, _ = whole.planes
    down, across = whole.phases
    return Plane(rows, width, whole.windows.padding, whole.windows, (down, across))


def refusal(name: str, geo: Geometry, dtype) -> str | None:
    """Why the kernels do not take a convolution or its gradient `name`; None where they do."""
    plane = _plane(geo, name == DATA)
    (per_in, per_out), forward = geo.channels, name not in (DATA, WEIGHT)
    if per_in != 1 or (per_out != 1 and not forward):
        return "takes one input channel a group, for gradients one output channel, too"
    if min(plane.lead) < 0:
        return "takes no padding that is wider than the kernel's reach in backward-data"
    arrays = 1 + math.prod(plane.phases)
    if arrays * plane.size * compute_dtype(dtype).itemsize > MOST_BYTES:
        most = MOST_BYTES // 1024 // arrays
        return f"takes planes that fit in {most} KB, not {plane.rows} x {plane.width}"
    return None


def pays(name: str, geo: Geometry, dtype) -> bool:
    """Whether it is the fastest on a CPU. With a stride, forward computes results that are not
    asked for, and the gradient of the weights multiplies zeros."""
    is_wide = processor.vector_registers().floats >= 16
    most = MOST_BESIDE_TILES if is_wide or geo.out[1] <= 8 else MOST_TAPS
    taps = math.prod(geo.w_shape[2:])
    if name == WEIGHT:
        most = MOST_SUMS if geo.stride == (1, 1) else 0
    elif name == DATA and geo.stride != (1, 1):
        plane = _plane(geo, True)
        most, taps = MOST_OF_PHASES, math.prod(plane.phases) * math.prod(plane.windows.kernel)
    elif geo.stride != (1, 1):
        most = 0 if is_wide else MOST_WITH_STRIDE
    return taps <= most and refusal(name, geo, dtype) is None


def _convolution(dialect: Dialect, name: str, geo: Geometry, like, backward: bool, has_bias: bool):
    """The function (w, x, bias) -> y, or (w, g, bias) -> dx."""
    plane = _plane(geo, backward)
    windows = plane.windows
    shape = geo.x_shape if backward else (geo.x_shape[0], geo.w_shape[0], *geo.out)
    kernel = dialect.conv_direct.plane_forward(
        *(dialect.common.scalar_type(like.dtype), windows.kernel, plane.phases, windows.stride),
        *(windows.dilation, has_bias, plane.size),
    )
    block = (32, 8) if on_gpu(like) else (64, 1)
    run = launcher(name, "plane", kernel, shape[0] * shape[1], block)
    sizes = geo.channels[1], plane.rows * plane.width, plane.width, *plane.lead

    def convolved(w, x, bias):
        y = empty(shape, like.dtype, x)
        planes, results = x.reshape(-1, *x.shape[2:]), y.reshape(-1, *shape[2:])
        run(planes, w.reshape(-1, math.prod(windows.kernel)), bias, results, *sizes)
        return y

    return convolved


def forward(dialect: Dialect, name: str, geo: Geometry, like, has_bias: bool):
    """The function (w, x, bias) -> y."""
    return _convolution(dialect, name, geo, like, False, has_bias)


def backward_data(dialect: Dialect, name: str, geo: Geometry, like):
    """The function (g, w) -> dx."""
    weights = Transposed(geo).weights(dialect, name, like)
    convolved = _convolution(dialect, name, geo, like, True, False)
    no_bias = empty((1,), like.dtype, like)
    return lambda g, w: convolved(weights(w), g, no_bias)


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
