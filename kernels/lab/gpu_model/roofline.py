"""The roofline of a GPU: what a kernel can reach at most, from its operations and its bytes.

S. Williams, A. Waterman, D. Patterson: Roofline, Communications of the ACM 52 (2009). A kernel that
does F floating-point operations on B bytes of global memory takes at least max(F / peak, B /
bandwidth) seconds: below the ridge, the intensity F / B at which the two are equal, memory limits
it, above it arithmetic does.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kernels.lab.draw.canvas import (
    BLUE,
    GRID,
    INK,
    MUTED,
    ORANGE,
    PAPER,
    PURPLE,
    Drawn,
    Picture,
    plain,
    width_of,
)
from kernels.lab.gpu_model.gpus import GPU, gpu


@dataclass(frozen=True)
class Point:
    """A kernel in the roofline: operations, bytes, and the seconds it took if that was measured."""

    name: str
    flops: float
    bytes: float
    seconds: float | None = None

    @property
    def intensity(self) -> float:
        """Floating-point operations per byte."""
        return self.flops / self.bytes if self.bytes else math.inf


@dataclass(frozen=True)
class Roofline(Drawn):
    """Kernels under the roof of one GPU in one precision."""

    gpu: GPU
    precision: str
    points: tuple[Point, ...]

    @property
    def peak(self) -> float:
        """Floating-point operations per second."""
        return self.gpu.peak(self.precision) * 1e12

    @property
    def bandwidth(self) -> float:
        """Bytes per second."""
        return self.gpu.bandwidth * 1e9

    @property
    def ridge(self) -> float:
        """The intensity from which arithmetic is the limit."""
        return self.peak / self.bandwidth

    def bound(self, point: Point) -> str:
        """What limits a kernel: "memory" or "arithmetic"."""
        return "memory" if point.intensity < self.ridge else "arithmetic"

    def attainable(self, point: Point) -> float:
        """The most operations per second that the roof allows at the kernel's intensity."""
        return min(self.peak, point.intensity * self.bandwidth)

    def seconds(self, point: Point) -> float:
        """The least time."""
        return max(point.flops / self.peak, point.bytes / self.bandwidth)

    def __str__(self) -> str:
        rows = [
            f"{self.gpu.name}, {self.precision}: {plain(self.peak / 1e12)} TFLOP/s, "
            f"{plain(self.bandwidth / 1e9)} GB/s, ridge at {plain(self.ridge)} FLOP per byte"
        ]
        for point in self.points:
            if not point.flops:
                least = f"at least {_engineering(self.seconds(point))}s"
                rows.append(f"  {point.name}: {_engineering(point.bytes)}B, no arithmetic: {least}")
                continue
            rows.append(
                f"  {point.name}: {_engineering(point.flops)}FLOP, {_engineering(point.bytes)}B, "
                f"{plain(point.intensity)} FLOP per byte: limited by {self.bound(point)}, at most "
                f"{_engineering(self.attainable(point))}FLOP/s, at least "
                f"{_engineering(self.seconds(point))}s"
            )
            if point.seconds:
                reached = self.seconds(point) / point.seconds
                rows.append(f"    took {_engineering(point.seconds)}s: {reached:.0%} of the roof")
        return "\n".join(rows)

    def picture(self) -> Picture:
        """The roof and the kernels under it, both axes logarithmic."""
        width, height, left, top = 680, 340, 70, 56
        picture = Picture(width, height, f"Roofline: {self.gpu.name}, {self.precision}", str(self))
        x0, x1 = _decades([p.intensity for p in self.points] + [self.ridge], 2)
        speeds = [self.attainable(p) for p in self.points] + [self.peak]
        speeds += [p.flops / p.seconds for p in self.points if p.seconds]
        y0, y1 = _decades(speeds, 1)
        across, down = width - left - 36, height - top - 52

        def at(intensity: float, speed: float) -> tuple[float, float]:
            x = (math.log10(max(intensity, 1e-9)) - x0) / (x1 - x0)
            y = (math.log10(max(speed, 1)) - y0) / (y1 - y0)
            return left + across * min(max(x, 0), 1), top + down * (1 - min(max(y, 0), 1))

        for exponent in range(x0, x1 + 1):
            x, _ = at(10.0**exponent, 1)
            picture.line(x, top, x, top + down, GRID)
            picture.label(x, top + down + 16, f"{10.0**exponent:g}", 11, MUTED, "middle")
        for exponent in range(y0, y1 + 1):
            _, y = at(1, 10.0**exponent)
            picture.line(left, y, left + across, y, GRID)
            picture.label(left - 6, y + 4, f"{_engineering(10.0**exponent)}", 11, MUTED, "end")
        low = max(10.0**x0, 10.0**y0 / self.bandwidth)  # where the slope enters the axes
        roof = [at(low, low * self.bandwidth), at(self.ridge, self.peak), at(10.0**x1, self.peak)]
        picture.path(roof, BLUE, 2.5)
        picture.label(left + across / 2, height - 12, "FLOP per byte", 12, INK, "middle")
        picture.label(left - 6, top - 10, "FLOP/s", 11, MUTED, "end")
        over = f"{plain(self.peak / 1e12)} TFLOP/s"
        picture.label(roof[2][0], roof[2][1] - 7, over, 11, BLUE, "end")
        picture.label(
            roof[1][0] - 14, roof[1][1] + 4, f"{plain(self.gpu.bandwidth)} GB/s", 11, BLUE, "end"
        )
        ordered = sorted(self.points, key=lambda point: point.intensity)
        ends = [
            self._mark(picture, at, point, (ORANGE, PURPLE)[i % 2])
            for i, point in enumerate(ordered)
        ]
        labels: list[tuple[float, float, float]] = []  # left, right and baseline of those drawn
        for point, (x, y) in zip(ordered, ends):
            _name(picture, point.name, x, y, left + across, top + down, labels)
        lowest = max((y for *_, y in labels), default=0.0)
        if lowest > top + down:  # more names than there is room for below the roof
            picture.crop(max(height, lowest + 12))
        return picture

    def _mark(self, picture: Picture, at: Any, point: Point, colour: str) -> tuple[float, float]:
        """A kernel: where the roof is above it, and where it was measured. Returns its place."""
        x, roof = at(point.intensity, self.attainable(point))
        _, floor = at(point.intensity, 1)
        picture.line(x, roof, x, floor, colour, 1)
        picture.rect(x - 4, roof - 4, 8, 8, fill="#ffffff", stroke=colour, line=2, radius=4)
        if not point.seconds:
            return x, roof
        _, y = at(point.intensity, point.flops / point.seconds)
        picture.rect(x - 4, y - 4, 8, 8, fill=colour, radius=4)
        return x, y


def _name(
    picture: Picture, text: str, x: float, y: float, right: float, floor: float,
    labels: list[tuple[float, float, float]],
) -> None:  # fmt: skip
    """A name beside a mark at (x, y), below all names of `labels` that it would touch; on the other
    side of the roof where the axis is close below."""
    wide = width_of(text, 11)
    start = min(x + 8, right - wide)
    if y + 18 > floor and not labels:
        start, y = x - 8 - wide, y - 20
    y += 16 if start != right - wide else 28
    while any(abs(y - other) < 14 and start < b and a < start + wide for a, b, other in labels):
        y += 14
    labels.append((start - 6, start + wide + 6, y))
    picture.rect(start - 2, y - 10, wide, 13, fill=PAPER)
    picture.label(start, y, text, 11, INK)


def roofline(work: Any, gpu_name: str | GPU, precision: str = "fp32") -> Roofline:
    """Where kernels stand under the roof of a GPU.

    work: a report of the lab, (operations, bytes), (operations, bytes, measured seconds), or a
    dictionary from names to such. gpu_name: see `lab.gpu`. precision: "fp32" for the CUDA cores,
    or one of the tensor cores' ("tf32", "fp16", "bf16", "int8"). Raises ValueError where the GPU
    has no such unit.
    """
    card = gpu(gpu_name)
    if card.peak(precision) is None:
        raise ValueError(f"roofline: {card.name} has no tensor cores for {precision}")
    named = work if isinstance(work, Mapping) else {_name_of(work): work}
    return Roofline(card, precision, tuple(_point(name, one) for name, one in named.items()))


def _name_of(work: Any) -> str:
    return str(getattr(work, "name", "kernel"))


def _point(name: str, work: Any) -> Point:
    if hasattr(work, "global_bytes"):
        scale = getattr(work, "scale", 1)  # of the blocks that were run to the whole grid
        work = (work.flops * scale, work.global_bytes * scale)
    if not isinstance(work, tuple | list) or len(work) not in (2, 3):
        raise TypeError(f"roofline: expected (operations, bytes[, seconds]) or a report: {work!r}")
    return Point(name, *map(float, work))


def _decades(values: list[float], least: int) -> tuple[int, int]:
    """Whole powers of ten around positive values, at least `least` below the largest."""
    logs = [math.log10(v) for v in values if 0 < v < math.inf]
    high = math.ceil(max(logs) + 0.05)
    return min(math.floor(min(logs) - 0.05), high - least), high


def _engineering(value: float) -> str:
    """1.2e9 as "1.2 G"."""
    if value in (0, math.inf):
        return f"{value:g} "
    group = min(max(math.floor(math.log10(abs(value)) / 3), -4), 5)
    return f"{plain(value / 1000.0**group)} {'pnµm kMGTP'[group + 4].strip()}"
