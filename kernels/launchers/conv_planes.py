"""What a convolution is, and its images as planes of memory: padded, or by phases of a stride."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

from kernels.launchers.common import (
    Dialect,
    Pair,
    ceil_div,
    compute_dtype,
    empty,
    launcher,
    on_gpu,
)

PART = 3 << 18  # floats of planes and results that are worked on together: 3 MB


class Windows(NamedTuple):
    """What each result of a convolution is a sum of: channels that a group reads and writes, and
    windows of its input; `out` results down and across."""

    channels: Pair
    kernel: Pair
    stride: Pair
    padding: Pair
    dilation: Pair
    groups: int
    out: Pair

    def reach(self, i: int) -> int:
        """Distance between the first and the last element of a window."""
        return self.dilation[i] * (self.kernel[i] - 1)


class Geometry(NamedTuple):
    """What a convolution is, apart from its data."""

    x_shape: tuple[int, int, int, int]
    w_shape: tuple[int, int, int, int]
    stride: Pair
    padding: Pair
    dilation: Pair
    groups: int

    @property
    def out(self) -> Pair:
        """Height and width of the output."""
        return tuple(
            (self.x_shape[2 + i] + 2 * self.padding[i] - self.reach(i) - 1) // self.stride[i] + 1
            for i in range(2)
        )

    def reach(self, i: int) -> int:
        """Distance between the first and the last element that a kernel touches."""
        return self.dilation[i] * (self.w_shape[2 + i] - 1)

    @property
    def channels(self) -> Pair:
        """Input and output channels of one group."""
        return self.w_shape[1], self.w_shape[0] // self.groups

    @property
    def windows(self) -> Windows:
        """Of the forward operation."""
        options = self.stride, self.padding, self.dilation, self.groups
        return Windows(self.channels, self.w_shape[2:], *options, self.out)

    @property
    def is_product(self) -> bool:
        """Whether the kernel is as large as the image, so that an image is a row of a product."""
        covers = self.x_shape[1:] == self.w_shape[1:] and self.out == (1, 1)
        return covers and self.groups == 1 and self.padding == (0, 0)

    @property
    def mixes_channels(self) -> bool:
        """Whether each result is a sum over the channels of one pixel, so that an image is a
        factor of a product."""
        plain = self.stride == (1, 1) and self.padding == (0, 0) and self.groups == 1
        return plain and self.w_shape[2:] == (1, 1)


class Planes(NamedTuple):
    """How an array lies after `conv_gemm.pad`: see there."""

    rows: int
    width: int
    lead: Pair
    sub: Pair = (1, 1)

    @property
    def channel(self) -> int:
        """Elements of one channel, all phases."""
        return self.rows * self.width * self.sub[0] * self.sub[1]

    def launch(self, dialect: Dialect, name: str, like, channels: int, slack: int):
        """A function x (N, C, H, W), as `like` -> flat planes, with `slack` zeros after them."""
        dtype = like.dtype
        phases = self.sub[0] * self.sub[1]
        count = (channels + ceil_div(slack, self.channel)) * phases
        acc_t = dialect.common.scalar_type(dtype)
        sizes = count, self.rows, self.width
        grid, block = dialect.conv_gemm.pad_tiling(*sizes, self.sub, on_gpu(like))
        kernel = dialect.conv_gemm.pad(acc_t, self.sub)
        run = launcher(name, "pad", kernel, grid, block)

        def pad(x):
            planes = empty((count * self.rows * self.width,), compute_dtype(dtype), x)
            run(x.reshape(-1, *x.shape[2:]), planes, *sizes[1:], *self.lead)
            return planes

        return pad


def padded(geo: Geometry) -> Planes:
    """x with its padding."""
    rows, width = (geo.x_shape[2 + i] + 2 * geo.padding[i] for i in range(2))
    return Planes(rows, width, geo.padding)


class Reach(NamedTuple):
    """Along one axis, for positions phase, phase + stride, ... of x: the taps that reach them, and
    which outputs those are, counted from that of the position."""

    phase: int
    taps: list[int]
    shifts: list[int]
    count: int


def _reach(geo: Geometry, axis: int) -> list[Reach]:
    stride, dilation, padding = (o[axis] for o in (geo.stride, geo.dilation, geo.padding))
    found = []
    for phase in range(min(stride, geo.x_shape[2 + axis])):
        ends = [(tap, phase + padding - tap * dilation) for tap in range(geo.w_shape[2 + axis])]
        taps = [tap for tap, end in ends if end % stride == 0]
        shifts = [end // stride for _, end in ends if end % stride == 0]
        found.append(Reach(phase, taps, shifts, ceil_div(geo.x_shape[2 + axis] - phase, stride)))
    return found


def gradient_planes(geo: Geometry) -> tuple[list[list[Reach]], Planes]:
    """By axis what reaches the phases of the stride, and the gradient with room for all of it."""
    reaches = [_reach(geo, axis) for axis in range(2)]
    lead, sizes = [], []
    for axis, phases in enumerate(reaches):
        before = max([0, *(-shift for one in phases for shift in one.shifts)])
        last = phases[0].count + max([0, *(shift for one in phases for shift in one.shifts)])
        lead.append(before)
        sizes.append(before + max(geo.out[axis], last))
    return reaches, Planes(sizes[0], sizes[1], (lead[0], lead[1]))


def images_in_parts(geo: Geometry, floats: int, gpu: bool, make: Callable[[Geometry], Any]) -> list:
    """The images in parts: for each the slice of its images, and what `make` makes of its geometry.

    The planes and results of a part, `floats` for an image, stay in the cache of a CPU from one
    launch to the next.
    """
    n = geo.x_shape[0]
    count = 1 if gpu else min(n, ceil_div(n * floats, PART))
    unit = 2 if n % 2 == 0 and 2 * count <= n else 1  # two OS threads take as many images each
    bounds = [n // unit * i // count * unit for i in range(count + 1)] if count else []
    made: dict[int, Any] = {}
    parts = []
    for start, end in itertools.pairwise(bounds):
        size = end - start
        if size not in made:
            made[size] = make(geo._replace(x_shape=(size, *geo.x_shape[1:])))
        parts.append((slice(start, end), made[size]))
    return parts
