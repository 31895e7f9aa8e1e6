"""A clock for a GPU that is not there: how long a kernel takes, estimated from counts.

The kernel runs as PTX on the CPU twice. Once with as many blocks as the GPU would hold, in turns,
through a model of both cache levels: which share of each load's sectors comes from where. Then
some blocks for themselves: how many instructions each unit executes, and how many cycles a block
would take alone, its loads waiting as long as those shares say. Each unit's work over its rate is
a bound; the time is at least the largest, and as nothing overlaps fully, a part of the second is
added.

    issue      instructions over four schedulers
    fp32, ...  instructions over the lanes of their unit
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
from typing import Any

import numpy as np

from kernels.lab.gpu_model import chips
from kernels.lab.gpu_model import instructions as code
from kernels.lab.gpu_model.gpus import GPU
from kernels.lab.gpu_model.occupancy import Occupancy
from kernels.ptx.lowering import Lowered
from kernels.ptx.study import COLUMNS, SECTOR, Study

WARP = 32
#: of the second largest bound, on top of the largest: a guess, not fitted to any measurement
#: (`python -m benchmarks.clock` compares the clock with published tables)
OVERLAP_LOSS = 0.25
REQUESTS, SECTORS, LINES, WAVEFRONTS, L1_MISSES, L2_MISSES, FROM_L1, FROM_L2, FROM_MEMORY = range(
    len(COLUMNS)
)


@dataclass(frozen=True)
class Estimate:
    """How long a launch would take.

    bounds: seconds by what sets them, largest first; occupancy: of an SM; waves: how often the GPU
    fills; dram_bytes, l2_bytes: that go through; hits: the share of the sectors of loads that each
    cache level answers.
    """

    kernel: str
    gpu: GPU
    bounds: dict[str, float]
    occupancy: Occupancy
    waves: float
    dram_bytes: float
    l2_bytes: float
    hits: tuple[float, float]

    @property
    def low(self) -> float:
        """Seconds: the largest bound alone."""
        return self.bounds[self.bound] + chips.LAUNCH_SECONDS

    @property
    def high(self) -> float:
        """Seconds where the two largest bounds did not overlap at all."""
        return sum([*self.bounds.values()][:2]) + chips.LAUNCH_SECONDS

    @property
    def seconds(self) -> float:
        first, second = [*self.bounds.values()][:2]
        return first + OVERLAP_LOSS * second + chips.LAUNCH_SECONDS

    @property
    def bound(self) -> str:
        """What decides."""
        return next(iter(self.bounds))

    def __str__(self) -> str:
        rows = [
            f"{self.kernel} on {self.gpu.name}: about {_time(self.seconds)}, between"
            f" {_time(self.low)} and {_time(self.high)} (an estimate from counts, not a"
            " measurement)",
            f"{self.occupancy.warps} warps of {self.occupancy.blocks} block(s) on an SM, the GPU"
            f" fills {self.waves:.1f} times; L1 answers {self.hits[0]:.0%} of the sectors of loads,"
            f" L2 {self.hits[1]:.0%} of the rest; {self.dram_bytes / 1e6:.4g} MB from and to DRAM",
            "",
            f"{'at least':>12}  set by",
        ]
        rows += [f"{_time(seconds):>12}  {name}" for name, seconds in self.bounds.items()]
        return "\n".join(rows)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        return {"text/plain": str(self)}


def _time(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e6:.3g} us"


class Costs:
    """What is known of each operation before it runs: unit, instructions, latency."""

    def __init__(self, lowered: Lowered, chip: chips.Chip) -> None:
        self.chip = chip
        count = len(lowered.origins)
        self.units = np.full(count, code.NONE, object)
        self.slots = np.zeros(count, np.int32)
        self.latency = np.zeros(count, np.int32)
        self.flops = np.zeros(count, np.int64)
        self.loads = np.zeros(count, bool)
        self.shared = np.zeros(count, bool)
        self.widths = np.zeros(count, np.int32)
        firsts = [
            n for n, origin in enumerate(lowered.origins)
            if origin.instruction is not None and (n == 0 or origin is not lowered.origins[n - 1])
        ]  # fmt: skip
        known = [one for n in firsts if (one := lowered.origins[n].instruction) is not None]
        fused = code.fused_sums(known)
        for position, (number, instruction) in enumerate(zip(firsts, known)):
            unit, slots = code.cost(instruction, position in fused)
            self.units[number], self.slots[number] = unit, slots
            self.loads[number] = code.is_load(instruction)
            self.shared[number] = any("shared" in name for name in instruction.modifiers)
            self.latency[number] = self._latency(unit, slots)
            if unit == code.TENSOR:
                self.flops[number] = code.flops(instruction)
        self._merge(lowered, firsts, known)

    def _merge(self, lowered: Lowered, firsts: list[int], known: list) -> None:
        """Loads of neighbours in shared memory become one, in each basic block."""
        starts = set(lowered.labels)
        block: list[tuple[int, Any]] = []
        for number, instruction in [*zip(firsts, known), (-1, None)]:
            if number in starts or instruction is None:
                for position, width in code.merged_loads(block).items():
                    self.widths[position : self._end(lowered, position)] = width
                    self.slots[position] *= width > 0
                block = []
            if instruction is None:
                break
            block.append((number, instruction))
            if self.units[number] == code.MEMORY:
                self.widths[number : self._end(lowered, number)] = code.access_bytes(instruction)
            if instruction.opcode in ("bra", "brx", "bar", "barrier", "call"):
                starts.add(number + 1)

    @staticmethod
    def _end(lowered: Lowered, number: int) -> int:
        """Behind the last operation of the instruction that begins at `number`."""
        end = number + 1
        while end < len(lowered.origins) and lowered.origins[end] is lowered.origins[number]:
            end += 1
        return end

    def _latency(self, unit: str, slots: int) -> int:
        if unit == code.NONE:
            return 0
        if unit == code.FP64 and self.chip.fp64 < 16:
            return slots * WARP // self.chip.fp64
        known = {
            code.SPECIAL: chips.SPECIAL_LATENCY,
            code.SHUFFLE: chips.SHUFFLE_LATENCY,
            code.MEMORY: self.chip.shared_latency,
            code.TENSOR: self.chip.shared_latency,
        }
        return known.get(unit, chips.ALU_LATENCY) + slots - 1

    def with_levels(self, traffic: np.ndarray) -> np.ndarray:
        """Latencies where loads of global memory wait as the shares of `traffic` (operations,
        COLUMNS) say, and as long as one request keeps the first level."""
        chip, latency, traffic = self.chip, self.latency.copy(), traffic.astype(float)
        levels = traffic[:, FROM_L1 : FROM_MEMORY + 1]
        requests = levels.sum(1)
        busy = first_level_cycles(traffic, chip) / np.maximum(traffic[:, REQUESTS], 1)
        waits = np.array([chip.l1_latency, chip.l2_latency, chip.memory_latency], float)
        every = levels.sum(0) @ waits / max(levels.sum(), 1)
        own = np.divide(
            levels @ waits, requests, out=np.full(len(requests), every), where=requests > 0
        )
        far = self.loads & ~self.shared & (self.units == code.MEMORY)
        latency[far] = (own + busy)[far]
        return latency


@dataclass(frozen=True)
class Counts:
    """What a launch does, for an average block; misses: shares of sectors, by operation."""

    executed: np.ndarray
    traffic: np.ndarray
    cycles: float
    hottest: float  # atomic operations on one address, of the whole grid
    dram_written: float  # sectors, for a sector that the second level was given
    misses: tuple[np.ndarray, np.ndarray]


def estimate(
    name: str, gpu: GPU, occupancy: Occupancy, grid_blocks: int, costs: Costs, counts: Counts
) -> Estimate:
    """The bounds of a launch of `grid_blocks` blocks."""
    chip, hertz = costs.chip, gpu.boost * 1e6
    resident = occupancy.blocks
    busiest = -(-grid_blocks // gpu.sms)  # blocks of the SM that has most
    executed = counts.executed.astype(float)

    def work(unit: str) -> float:
        return float(executed[costs.units == unit] @ costs.slots[costs.units == unit])

    lanes = {
        code.FP32: chip.fp32, code.FP64: chip.fp64, code.INTEGER: chip.integer,
        code.SPECIAL: chip.special, code.SHUFFLE: WARP,
    }  # fmt: skip
    cycles = {"issue": float(executed @ costs.slots) / chips.SCHEDULERS}
    cycles |= {unit: work(unit) * WARP / rate for unit, rate in lanes.items()}
    traffic = counts.traffic.astype(float)
    cycles["memory requests"] = float(traffic[:, REQUESTS].sum()) * WARP / chip.load_store
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
        bounds["atomics on one address"] = counts.hottest / hertz
    loads = costs.loads & (traffic[:, SECTORS] > 0)
    asked = traffic[loads, SECTORS].sum()
    missed = float(traffic[loads, SECTORS] @ counts.misses[0][loads])
    hits = (1 - missed / asked if asked else 0.0, 1 - read / to_second if to_second else 0.0)
    ordered = dict(sorted(bounds.items(), key=lambda item: -item[1]))
    waves = grid_blocks / (gpu.sms * max(resident, 1))
    return Estimate(name, gpu, ordered, occupancy, waves, dram * SECTOR, to_second * SECTOR, hits)


def first_level_cycles(traffic: np.ndarray, chip: chips.Chip) -> np.ndarray:
    """By operation: wavefronts of shared memory; lines (one a cycle) or bytes of global memory."""
    each = 128 / chip.l1_bytes
    of_bytes = traffic[:, SECTORS] * SECTOR / chip.l1_bytes
    return traffic[:, WAVEFRONTS] * each + np.maximum(traffic[:, LINES], of_bytes)


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
