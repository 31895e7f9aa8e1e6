"""A clock for a GPU that is not there: how long a kernel takes, estimated from counts.

The kernel runs as PTX on the CPU twice. Once with as many blocks as the GPU would hold, in turns,
through a model of both cache levels: which share of each load's sectors comes from where. Then
some blocks for themselves: how many instructions each unit executes, and how many cycles a block
would take alone, its loads waiting as long as those shares say. Each unit's work over its rate is
a bound; the time is at least the largest, and as nothing overlaps fully, a part of the second is
added.

    issue      instructions over four schedulers, also those that a condition switches off
    fp32, ...  instructions over the lanes of their unit
    barriers   warps that come to one
    memory     requests over the lanes of the load/store units
    L1         wavefronts of shared memory, and lines or bytes of global memory, whichever is more
    L2, DRAM   sectors that miss the level before, over its bandwidth
    latency    the cycles of a block alone, over the blocks that an SM holds at once
    atomics    those to one address, one after the other

Sources of the rates: `chips`. S. Hong and H. Kim, "An analytical model for a GPU architecture"
(ISCA 2009) count requests in flight against latency in the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kernels.lab.draw.canvas import Drawn, Picture
from kernels.lab.gpu_model import chips
from kernels.lab.gpu_model import instructions as code
from kernels.lab.gpu_model.gpus import GPU
from kernels.lab.gpu_model.memory_chart import memory_chart
from kernels.lab.gpu_model.occupancy import Occupancy
from kernels.lab.gpu_model.operations import (
    L1_MISSES,
    L2_MISSES,
    LINES,
    REQUESTS,
    SECTORS,
    WARP,
    WAVEFRONTS,
    Costs,
    first_level_cycles,
)
from kernels.ptx.study import SECTOR, Study
from kernels.support.names import counted

#: of the second largest bound, on top of the largest: a guess, not fitted to any measurement
#: (`python -m benchmarks.clock` compares the clock with published tables)
OVERLAP_LOSS = 0.25


@dataclass(frozen=True)
class Estimate(Drawn):
    """How long a launch would take.

    bounds: seconds by what sets them, largest first; occupancy: of an SM; waves: how often the GPU
    fills; dram_bytes, l2_bytes, asked_bytes: that go to memory, to the second level and to the
    first, in whole sectors; hits: the share of the sectors of loads that each cache level answers;
    requests, shared_requests: of warps, to global and to shared memory, which takes `wavefronts`;
    start: seconds until a launch begins; read: the shares of asked_bytes, l2_bytes and dram_bytes
    that are read, the others are written.
    """

    kernel: str
    gpu: GPU
    bounds: dict[str, float]
    occupancy: Occupancy
    waves: float
    dram_bytes: float
    l2_bytes: float
    hits: tuple[float, float]
    asked_bytes: float
    requests: float
    shared_requests: float
    wavefronts: float
    start: float
    read: tuple[float, float, float]

    def picture(self) -> Picture:
        """The way of the bytes: `memory_chart`."""
        return memory_chart(self)

    @property
    def low(self) -> float:
        """Seconds: the largest bound alone."""
        return self.bounds[self.bound] + self.start

    @property
    def high(self) -> float:
        """Seconds where the two largest bounds did not overlap at all."""
        return sum([*self.bounds.values()][:2]) + self.start

    @property
    def seconds(self) -> float:
        first, second = [*self.bounds.values()][:2]
        return first + OVERLAP_LOSS * second + self.start

    @property
    def bound(self) -> str:
        """What decides."""
        return next(iter(self.bounds))

    def __str__(self) -> str:
        rows = [
            f"{self.kernel} on {self.gpu.name}: about {_time(self.seconds)}, between"
            f" {_time(self.low)} and {_time(self.high)} (an estimate from counts, not a"
            " measurement)",
            f"{self.occupancy.warps} warps of {counted(self.occupancy.blocks, 'block')} on an SM,"
            f" the GPU fills {self.waves:.1f} times; L1 answers {self.hits[0]:.0%} of the sectors"
            f" of loads, L2 {self.hits[1]:.0%} of the rest; {self.dram_bytes / 1e6:.4g} MB from"
            " and to DRAM",
            "",
            f"{'at least':>12}  set by",
        ]
        rows += [f"{_time(seconds):>12}  {name}" for name, seconds in self.bounds.items()]
        return "\n".join(rows)


def _time(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e6:.3g} us"


@dataclass(frozen=True)
class Counts:
    """What a launch does, for an average block; misses: shares of sectors, by operation."""

    executed: np.ndarray
    traffic: np.ndarray
    cycles: float
    hottest: float  # atomic operations on one address, of the whole grid
    dram_written: float  # sectors, for a sector that the second level was given
    misses: tuple[np.ndarray, np.ndarray]
    start: float  # seconds until a launch begins


def estimate(
    name: str, gpu: GPU, occupancy: Occupancy, grid_blocks: int, costs: Costs, counts: Counts
) -> Estimate:
    """The bounds of a launch of `grid_blocks` blocks."""
    chip, hertz = costs.chip, gpu.boost * 1e6
    resident = occupancy.blocks
    busiest = -(-grid_blocks // gpu.sms)  # blocks of the SM that has most
    executed = costs.issued(counts.executed.astype(float))
    work = {unit: float(executed @ each) for unit, each in costs.work.items()}
    products = work.get(code.MULTIPLY, 0.0)
    work[code.FP32] = work.get(code.FP32, 0.0) + products  # the same unit makes them
    lanes = {
        code.FP32: chip.fp32, code.FP64: chip.fp64, code.INTEGER: chip.integer,
        code.MULTIPLY: chip.integer, code.SPECIAL: chip.special, code.SHUFFLE: WARP,
        code.BARRIER: WARP / chips.BARRIER_CYCLES, code.MEMORY: chip.load_store,
    }  # fmt: skip
    cycles = {"issue": (sum(work.values()) - products) / chips.SCHEDULERS}
    cycles |= {unit: work[unit] * WARP / rate for unit, rate in lanes.items() if unit in work}
    cycles["memory requests"] = cycles.pop(code.MEMORY, 0.0)
    traffic = counts.traffic.astype(float)
    cycles["L1 and shared memory"] = float(first_level_cycles(traffic, chip).sum())
    if tensor := float(executed @ costs.flops):
        rate = (gpu.fp16 or gpu.fp32) * 1e12 / gpu.sms / hertz
        cycles["tensor cores"] = tensor / rate
    bounds = {name: each * busiest / hertz for name, each in cycles.items() if each}
    alone = counts.cycles * -(-busiest // max(resident, 1)) / hertz
    bounds["latency"] = alone
    to_second = float(traffic[:, SECTORS] @ counts.misses[0]) * grid_blocks
    read = float(traffic[:, SECTORS] @ (counts.misses[0] * counts.misses[1])) * grid_blocks
    dram = read + counts.dram_written * to_second
    second = chips.SECOND_LEVEL_BYTES * min(gpu.sms, grid_blocks) * hertz
    bounds["L2"] = to_second * SECTOR / second
    bounds["DRAM"] = dram * SECTOR / (gpu.bandwidth * 1e9 * chips.COPY_SHARE)
    if counts.hottest > 1:
        bounds["atomics on one address"] = counts.hottest * chips.SAME_ADDRESS_SECONDS
    loads = costs.loads & (traffic[:, SECTORS] > 0)
    asked = traffic[loads, SECTORS].sum()
    missed = float(traffic[loads, SECTORS] @ counts.misses[0][loads])
    hits = (1 - missed / asked if asked else 0.0, 1 - read / to_second if to_second else 0.0)
    ordered = dict(sorted(bounds.items(), key=lambda item: -item[1]))
    waves = grid_blocks / (gpu.sms * max(resident, 1))
    every = traffic.sum(0) * grid_blocks
    near, far = traffic[:, WAVEFRONTS] > 0, traffic[:, LINES] > 0
    # an asynchronous copy is a request to each
    shared = float((traffic[:, REQUESTS] * near / np.where(near & far, 2, 1)).sum()) * grid_blocks
    return Estimate(
        name, gpu, ordered, occupancy, waves, dram * SECTOR, to_second * SECTOR, hits,
        asked_bytes=float(every[SECTORS]) * SECTOR, requests=float(every[REQUESTS]) - shared,
        shared_requests=shared, wavefronts=float(every[WAVEFRONTS]),
        start=counts.start,
        read=(
            float(asked / max(traffic[:, SECTORS].sum(), 1)),
            missed * grid_blocks / max(to_second, 1), read / max(dram, 1),
        ),
    )  # fmt: skip


def shares(study: Study) -> tuple[np.ndarray, np.ndarray]:
    """By operation: sectors that miss the first level over those asked for, and that miss the
    second over those. Operations that were not executed get the average."""
    traffic = study.traffic.astype(float)

    def share(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
        average = part.sum() / max(whole.sum(), 1)
        return np.divide(part, whole, out=np.full(len(part), average), where=whole > 0)

    first = share(traffic[:, L1_MISSES], traffic[:, SECTORS])
    return first, share(traffic[:, L2_MISSES], traffic[:, L1_MISSES])


def spread(blocks: int, most: int = 3) -> Sequence[int]:
    """Some blocks of a grid: the first, the last, and between."""
    return sorted({round(i * (blocks - 1) / max(most - 1, 1)) for i in range(most)})
