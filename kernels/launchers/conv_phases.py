"""Backward-data as a convolution of the gradient, with stride 1.

With a stride s, the positions phase, phase + s, ... of dx are reached by some weights only: a
convolution of its own, whose result is a channel for each phase. All phases together are one, with
zeros for the weights that do not reach a phase. An infinite element of the gradient times such a
zero is NaN: around the elements of dx that it reaches lie some that are NaN, not numbers.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from kernels.launchers.common import Dialect, ceil_div, empty, launcher, namespace
from kernels.launchers.conv_planes import Geometry, Reach, Windows, gradient_planes
from kernels.launchers.transpose import copy, interleave


class _Axis(NamedTuple):
    """Along one axis: the tap that reaches a phase at each shift, int (phases, shifts), -1 for
    none; the first shift (`Reach`), how far the others are apart, and the positions of a phase."""

    taps: np.ndarray
    first: int
    step: int
    positions: int


def _axis(reaches: list[Reach]) -> _Axis:
    shifts = sorted({shift for one in reaches for shift in one.shifts}) or [0]
    step = math.gcd(*(shift - shifts[0] for shift in shifts)) or 1
    taps = np.full((len(reaches), (shifts[-1] - shifts[0]) // step + 1), -1)
    for one in reaches:
        taps[one.phase, [(shift - shifts[0]) // step for shift in one.shifts]] = one.taps
    return _Axis(taps, shifts[0], step, reaches[0].count)


class Transposed:
    """The convolution of the gradient that is backward-data of `geo`."""

    def __init__(self, geo: Geometry) -> None:
        reaches, self.planes = gradient_planes(geo)
        self.geo, self.axes = geo, [_axis(phases) for phases in reaches]
        self.phases = [len(axis.taps) for axis in self.axes]
        (per_in, per_out), (down, across) = geo.channels, self.axes
        self.windows = Windows(
            channels=(per_out, per_in * math.prod(self.phases)),
            kernel=(down.taps.shape[1], across.taps.shape[1]),
            stride=(1, 1),
            padding=(-down.first, -across.first),
            dilation=(down.step, across.step),
            groups=geo.groups,
            out=(down.positions, across.positions),
        )

    def weights(self, dialect: Dialect, name: str, like):
        """The function w -> weights, (groups * channels written, channels read, *kernel)."""
        geo, windows, (down, across) = self.geo, self.windows, self.axes
        per_in, outs = geo.channels[0], geo.w_shape[0]
        i, j = down.taps[:, None, :, None], across.taps[:, None, :]
        table = np.where((i < 0) | (j < 0), -1, i * geo.w_shape[3] + j).astype(np.int32)
        taps = namespace(like).asarray(table.reshape(math.prod(self.phases), -1))
        kernel = dialect.conv_gemm.swap_channels(dialect.common.scalar_type(like.dtype))
        grid = (ceil_div(per_in, 32), ceil_div(outs, 8))
        swap = launcher(name, "swap_channels", kernel, grid, (32, 8))
        shape = (geo.groups * per_in, taps.shape[0], windows.channels[0], taps.shape[1])

        def swapped(w):
            made = empty(shape, like.dtype, w)
            swap(w.reshape(outs, per_in, -1), taps, made)
            return made.reshape(-1, windows.channels[0], *windows.kernel)

        return swapped

    def interleaved(self, dialect: Dialect, y):
        """dx of the results for all phases, of which some may end after dx does."""
        shape, phases, out = self.geo.x_shape, self.phases, self.windows.out
        if phases == [1, 1]:
            return y.reshape(shape)
        dx = interleave(dialect, y.reshape(-1, *phases, *out))
        dx = dx.reshape(*shape[:2], phases[0] * out[0], phases[1] * out[1])
        return dx if dx.shape == shape else copy(dialect, dx[..., : shape[2], : shape[3]])
