"""What a convolution is, and its images as planes of memory: with padding, phases of a stride, or
zeros between."""

from __future__ import annotations

from typing import NamedTuple

from kernels.launchers.common import (
    Dialect,
    Pair,
    ceil_div,
    compute_dtype,
    empty,
    launcher,
    on_gpu,
)


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


class Planes(NamedTuple):
    """How an array lies after `conv_gemm.pad`: see there."""

    rows: int
    width: int
    lead: Pair
    sub: Pair = (1, 1)
    insert: Pair = (1, 1)

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
        grid, block = dialect.conv_gemm.pad_tiling(count, self.rows, self.width, on_gpu(like))
        kernel = dialect.conv_gemm.pad(acc_t, self.sub, self.insert, self.width > block[0])
        run = launcher(name, "pad", kernel, grid, block)
        sizes = (self.rows, self.width, *self.lead)

        def pad(x):
            planes = empty((count * self.rows * self.width,), compute_dtype(dtype), x)
            run(x.reshape(-1, *x.shape[2:]), planes, *sizes)
            return planes

        return pad


def padded(geo: Geometry) -> Planes:
    """x with its padding."""
    rows, width = (geo.x_shape[2 + i] + 2 * geo.padding[i] for i in range(2))
    return Planes(rows, width, geo.padding)
