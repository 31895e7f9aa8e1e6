"""Estimates the cost of a training step, and its time on a GPU. Nothing is measured.

`training_step` runs a network forward and backward with a dialect that only computes shapes
(`kernels.lab.counting`). It counts the operations, the minimal memory traffic and the memory held
by the graph. `Step.on` divides them by the rated arithmetic and bandwidth of a GPU. `ASSUMPTIONS`
lists the simplifications.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

import minigrad
from kernels import lab
from minigrad._names import namespace

ARITHMETIC, BANDWIDTH = 0.6, 0.75  # fractions of the rated figures that good kernels reach
LAUNCH = 5e-6  # seconds between the starts of two kernels
CONTEXT = 0.6e9  # bytes used by the driver and the code of the kernels
STATE = {"sgd": 1, "adam": 2, "adamw": 2}  # state arrays of an optimiser per parameter
PRECISIONS = ("fp32", "tf32", "fp16", "bf16")
ASSUMPTIONS = (
    f"a kernel takes the longer of its arithmetic at {ARITHMETIC:.0%} of the rated peak and its "
    f"least traffic at {BANDWIDTH:.0%} of the rated bandwidth, and {LAUNCH * 1e6:.0f} us to launch",
    "each operation reads its operands and writes its results once; nothing is fused, and small "
    "kernels are taken to fill the GPU, which they do not",
    "convolutions are direct sums: 3x3 kernels of libraries (Winograd) need less than half",
    "tf32, fp16 and bf16: only matrix products and convolutions use tensor cores; fp16 and bf16 "
    "halve activations and their traffic and keep float32 parameters beside 16-bit copies",
    f"memory: no workspaces of kernels, no fragmentation, {CONTEXT / 1e9} GB for the driver",
    "energy: the whole step at the GPU's rated power; loading of data and the rest of the computer "
    "are not in it",
)


@dataclass(frozen=True)
class Step:
    """One training step: its operations in order, and the bytes of memory it needs.

    parameters, gradients, optimizer: allocated all the time. activations: held by the graph between
    forward and backward, including the input. peak: the largest size of all results at one time,
    including the gradients. All in float32.
    """

    batch: int
    launches: tuple
    parameters: int
    optimizer: int
    activations: int
    peak: int

    @property
    def gradients(self) -> int:
        return self.parameters

    @property
    def flops(self) -> int:
        return sum(launch.flops for launch in self.launches)

    @property
    def bytes(self) -> int:
        return sum(launch.bytes for launch in self.launches)

    def memory(self, precision: str = "fp32") -> int:
        """All bytes except those of the driver."""
        fixed = self.parameters + self.optimizer
        if _halved(precision):
            gradients = self.gradients
            rest = max(self.peak - gradients, self.activations)
            return fixed + self.parameters // 2 + gradients + rest // 2
        return fixed + max(self.peak, self.activations + self.gradients)

    def on(self, gpu: str | lab.GPU, precision: str = "fp32") -> Estimate:
        """The estimate for one GPU; ValueError if it doesn't support the precision."""
        if precision not in PRECISIONS:
            raise ValueError(f"precision: expected one of {list(PRECISIONS)}, got {precision!r}")
        card = lab.gpu(gpu)
        peak = card.peak(precision)
        if peak is None:
            raise ValueError(f"{card.name} has no tensor cores for {precision}")
        costs = [self._cost(launch, card, peak, precision) for launch in self.launches]
        seconds = sum(cost.seconds for cost in costs)
        needed = self.memory(precision) + CONTEXT
        return Estimate(card, seconds, seconds * card.power, needed, self.batch / seconds, costs)

    def _cost(self, launch: Any, card: Any, peak: float, precision: str) -> Cost:
        rate = (peak if launch.matrix else card.fp32) * 1e12 * ARITHMETIC
        half = _halved(precision) and not launch.family.startswith(tuple(STATE))
        arithmetic = launch.flops / rate
        memory = launch.bytes / (2 if half else 1) / (card.bandwidth * 1e9 * BANDWIDTH)
        bound = "launch" if max(arithmetic, memory) < LAUNCH else "memory"
        if arithmetic > max(memory, LAUNCH):
            bound = "arithmetic"
        return Cost(launch, max(arithmetic, memory) + LAUNCH, bound)


class Cost(NamedTuple):
    """The estimated seconds of a launch, and what limits it: "arithmetic", "memory" or the "launch"
    overhead."""

    launch: Any
    seconds: float
    bound: str


@dataclass(frozen=True)
class Estimate:
    """A step on a GPU: seconds, joules, bytes of memory (including the driver's), samples per
    second, and the cost of each launch."""

    gpu: Any
    seconds: float
    joules: float
    memory: float
    samples: float
    costs: list[Cost]

    @property
    def fits(self) -> bool:
        return self.memory <= self.gpu.memory * 1e9

    def table(self) -> str:
        """Where the time goes: one line per family of kernels, the most expensive first."""
        families: dict[str, list[Cost]] = {}
        for cost in self.costs:
            families.setdefault(cost.launch.family, []).append(cost)
        names = f"{'kernel':<26} {'launches':>8} {'GFLOP':>10} {'GB':>8} {'ms':>9} {'share':>6}"
        rows = []
        for name, some in families.items():
            spent = sum(cost.seconds for cost in some)
            flops = sum(cost.launch.flops for cost in some) / 1e9
            moved = sum(cost.launch.bytes for cost in some) / 1e9
            by: dict[str, float] = {}
            for cost in some:
                by[cost.bound] = by.get(cost.bound, 0) + cost.seconds
            row = (
                f"{name:<26} {len(some):>8} {flops:>10.2f} {moved:>8.3f} {spent * 1e3:>9.3f} "
                f"{spent / self.seconds:>6.1%}  {max(by, key=by.get)}"
            )
            rows.append((spent, row))
        rows.sort(reverse=True)
        return "\n".join([f"{names}  limit", *(row for _, row in rows)])


def _halved(precision: str) -> bool:
    return precision in ("fp16", "bf16")


def training_step(
    build: Callable[[], Any],
    shape: Sequence[int],
    batch: int = 64,
    optimizer: str = "adam",
    integers: bool = False,
) -> Step:
    """The cost of one step of the Module that `build()` makes, on a batch of inputs of `shape`.

    integers: the inputs are indices (of an embedding) instead of float32. The loss is the cross
    entropy of an output (N, C), else the mean square of the output. Nothing is computed: only the
    parameters need memory, and no GPU is needed.
    """
    if optimizer not in STATE:
        raise ValueError(f"optimizer: expected one of {sorted(STATE)}, got {optimizer!r}")
    with lab.counting() as count:
        model = build()
        model.train()
        parameters = [p for p in model.parameters() if p.requires_grad]
        count.launches.clear()
        count.live = count.peak = 0
        dtype = np.dtype(np.int64 if integers else np.float32)
        x = minigrad.from_numpy(count.empty((batch, *shape), dtype))
        loss = _loss(model(x))
        activations = count.live
        loss.backward()
        size = sum(p.numel() for p in parameters)
        _update(count, size, optimizer)
    total = sum(p.numel() * p.element_size() for p in model.parameters())
    return Step(
        batch, tuple(count.launches), total, 4 * size * STATE[optimizer], activations, count.peak
    )


def _loss(output: Any) -> Any:
    if output.ndim != 2:
        return (output * output).mean()
    target = minigrad.zeros(len(output), dtype=minigrad.int64)
    return minigrad.nn.functional.cross_entropy(output, target)


def _update(count: Any, size: int, optimizer: str) -> None:
    """Count the launch of the optimiser over all parameters."""
    live, peak = count.live, count.peak
    p, g, m, v = (count.empty((size,), np.dtype(np.float32)) for _ in range(4))
    if optimizer == "sgd":
        count.sgd_(p, g, m, 0.1, 0.9)
    else:
        count.adam_(p, g, m, v, None, 0.1, 0.9, 0.999, 1e-8, 0.0, 1)
    del p, g, m, v
    count.live, count.peak = live, peak


__getattr__, __dir__ = namespace(__name__)
