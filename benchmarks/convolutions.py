"""Convolution layers of well-known networks beside torch: forward, and both gradients.

    python -m benchmarks.convolutions [--only PART,PART] [--json]
    python -m benchmarks.convolutions --versions

One thread, float32, the least processor time of many turns. Steps of whole networks
(`benchmarks.training`) hide a layer that takes five times as long as it should. The second command
compares the versions instead: the one that is chosen should be the fastest.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import measure
import numpy as np

import kernels
from kernels import launchers, simt
from kernels.support.errors import CompileError


class Layer(NamedTuple):
    """N images of C channels and size x size pixels, O filters of K x K."""

    name: str
    images: int
    channels: int
    size: int
    filters: int
    kernel: int
    stride: int = 1
    padding: int = 0
    groups: int = 1


LAYERS = [
    Layer("first of a CNN", 32, 1, 28, 16, 3, 1, 1),
    Layer("first of LeNet", 32, 1, 28, 6, 5, 1, 2),
    Layer("first of a VGG", 8, 3, 64, 64, 3, 1, 1),
    Layer("first of a ResNet", 8, 3, 64, 64, 7, 2, 3),
    Layer("first of a MobileNet", 8, 3, 112, 32, 3, 2, 1),
    Layer("patches of a Swin", 8, 3, 64, 96, 4, 4),
    Layer("of a CNN, 14x14", 32, 16, 14, 32, 3, 1, 1),
    Layer("of a ResNet, 32x32", 32, 16, 32, 16, 3, 1, 1),
    Layer("of a ResNet, 16x16", 32, 32, 16, 32, 3, 1, 1),
    Layer("of a ResNet, 8x8", 32, 64, 8, 64, 3, 1, 1),
    Layer("of a ResNet, 56x56", 2, 64, 56, 64, 3, 1, 1),
    Layer("of a ResNet, 28x28", 8, 128, 28, 128, 3, 1, 1),
    Layer("of a ResNet, 14x14", 8, 256, 14, 256, 3, 1, 1),
    Layer("of a ResNet, 7x7", 8, 512, 7, 512, 3, 1, 1),
    Layer("of a ResNet, 4x4", 4, 256, 4, 256, 3, 1, 1),
    Layer("of a ResNet, 2x2", 4, 512, 2, 512, 3, 1, 1),
    Layer("with stride, 4x4", 4, 512, 4, 512, 3, 2, 1),
    Layer("with stride, 3x3", 8, 64, 28, 128, 3, 2, 1),
    Layer("with stride, 1x1", 8, 64, 28, 128, 1, 2),
    Layer("1x1", 8, 64, 28, 128, 1),
    Layer("1x1, 2x2", 4, 512, 2, 2048, 1),
    Layer("1x1, 4x4", 4, 512, 4, 2048, 1),
    Layer("depthwise 3x3", 8, 64, 28, 64, 3, 1, 1, 64),
    Layer("depthwise 3x3, stride", 8, 64, 28, 64, 3, 2, 1, 64),
    Layer("depthwise 3x3, 14x14", 8, 256, 14, 256, 3, 1, 1, 256),
    Layer("depthwise 5x5", 8, 64, 28, 64, 5, 1, 2, 64),
    Layer("depthwise 5x5, stride", 8, 64, 28, 64, 5, 2, 2, 64),
    Layer("depthwise 7x7", 8, 64, 14, 64, 7, 1, 3, 64),
    Layer("depthwise 7x7, 7x7", 8, 192, 7, 192, 7, 1, 3, 192),
    Layer("in 4 groups", 8, 64, 28, 64, 3, 1, 1, 4),
    Layer("DCGAN, 1-32", 32, 1, 32, 32, 4, 2, 1),
    Layer("DCGAN, 32-64", 32, 32, 16, 64, 4, 2, 1),
    Layer("DCGAN, 64-128", 32, 64, 8, 128, 4, 2, 1),
    Layer("DCGAN, 128-1", 32, 128, 4, 1, 4),
    Layer("patches of a ViT", 8, 3, 64, 192, 16, 16),
]


def operands(layer: Layer) -> tuple[np.ndarray, np.ndarray, np.ndarray, tuple]:
    """x, w, a gradient of the output, and the options of a layer."""
    _, images, channels, size, filters, kernel, stride, padding, groups = layer
    rng = np.random.default_rng(0)
    out = (size + 2 * padding - kernel) // stride + 1
    x = rng.standard_normal((images, channels, size, size), np.float32)
    w = rng.standard_normal((filters, channels // groups, kernel, kernel), np.float32)
    g = rng.standard_normal((images, filters, out, out), np.float32)
    return x, w, g, ((stride, stride), (padding, padding), (1, 1), groups)


def rows_of(layer: Layer, turns: int) -> list[dict]:
    """The forward operation and both gradients of a layer, checked and timed beside torch's."""
    import torch

    x, w, g, options = operands(layer)
    groups = layer.groups
    tx, tw, tg = map(torch.from_numpy, (x, w, g))

    def gradient(*wanted: bool) -> Callable:
        backward, lists = torch.ops.aten.convolution_backward, [list(o) for o in options[:3]]
        rest = (None, *lists, False, [0, 0], groups, wanted)
        return lambda: next(d for d in backward(tg, tx, tw, *rest) if d is not None)

    pairs = {
        "forward": (
            lambda: kernels.conv2d(x, w, None, *options),
            lambda: torch.conv2d(tx, tw, None, *options),
        ),
        "data": (
            lambda: kernels.conv2d_backward_data(g, w, x.shape, *options),
            gradient(True, False, False),
        ),
        "weights": (
            lambda: kernels.conv2d_backward_weight(g, x, w.shape, *options),
            gradient(False, True, False),
        ),
    }
    return [
        {"layer": layer.name, "operation": name, **compared(*pair, turns)}
        for name, pair in pairs.items()
    ]


def versions_of(layer: Layer, turns: int) -> list[str]:
    """For each operation of a layer the time of the shipped version over that of the fastest one,
    and the milliseconds of all but `direct`."""
    x, w, g, options = operands(layer)
    calls = {
        "conv2d": (x, w, None, *options),
        "conv2d_backward_data": (g, w, x.shape, *options),
        "conv2d_backward_weight": (g, x, w.shape, *options),
    }
    lines = []
    for name, args in calls.items():
        operation = getattr(kernels, name)
        timed: dict[str | None, Callable] = {None: functools.partial(operation, *args)}
        for version in launchers.versions("numba", name):
            call = functools.partial(operation, *args, version=version)
            with contextlib.suppress(CompileError, ValueError):  # large tiles, and not this layer
                if version != "direct":
                    call()
                    timed[version] = call
        found = measure.least_processor_time(timed, turns)
        shipped = found.pop(None)
        each = ", ".join(f"{version} {seconds * 1e3:.3f}" for version, seconds in found.items())
        line = f"{shipped / min(found.values()):5.2f}   shipped {shipped * 1e3:.3f}, {each}"
        lines.append(f"{layer.name:<22} {name:<22} {line}")
    return lines


def compared(ours: Callable, theirs: Callable, turns: int) -> dict:
    """Seconds of both; AssertionError if their results differ."""
    a, b = ours(), theirs().numpy()
    np.testing.assert_allclose(a, b, rtol=0, atol=1e-5 * math.sqrt(b.size) * abs(b).max())
    found = measure.least_processor_time({"minigrad": ours, "torch": theirs}, turns)
    return {**found, "ratio": found["minigrad"] / found["torch"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="parts of names, with commas between")
    parser.add_argument("--turns", type=int, default=9, help="turns of each; default: %(default)s")
    parser.add_argument("--versions", action="store_true", help="all of minigrad's, in ms")
    parser.add_argument("--json", action="store_true", help="write benchmarks/results/...")
    options = parser.parse_args()
    simt.set_num_threads(1)
    layers = [one for one in LAYERS if any(part in one.name for part in options.only.split(","))]
    if options.versions:
        for layer in layers:
            print(*versions_of(layer, options.turns), sep="\n", flush=True)
        return
    import torch

    torch.set_num_threads(1)
    rows = []
    for layer in layers:
        found = rows_of(layer, options.turns)
        rows += found
        times = (
            f"{r['operation']} {r['minigrad'] * 1e3:7.3f} ms x{r['ratio']:5.2f}" for r in found
        )
        print(f"{layer.name:<22}", *times, sep="   ", flush=True)
    if options.json:
        measure.write_json(measure.results_path("convolutions"), 1, rows)


if __name__ == "__main__":
    main()
