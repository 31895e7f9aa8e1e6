"""What is known of each operation of a kernel before it runs: units, instructions, latencies."""

from __future__ import annotations

import numpy as np

from kernels.lab.gpu_model import chips
from kernels.lab.gpu_model import instructions as code
from kernels.ptx.lowering import Lowered
from kernels.ptx.nodes import Instruction
from kernels.ptx.study import COLUMNS, SECTOR

WARP = 32
REQUESTS, SECTORS, LINES, WAVEFRONTS, L1_MISSES, L2_MISSES, FROM_L1, FROM_L2, FROM_MEMORY = range(
    len(COLUMNS)
)


class Costs:
    """By operation: instructions of the machine code by unit (`work`) and together (`slots`); the
    unit whose result is waited for, and how long; bytes for a lane of an access to memory.

    `branches`: the branch that the assembler makes a condition of this operation, or -1: such an
    operation is issued for each warp that comes to the branch, also where no lane takes part.
    """

    def __init__(self, lowered: Lowered, chip: chips.Chip) -> None:
        self.chip = chip
        count = len(lowered.origins)
        self.units = np.full(count, code.NONE, object)
        self.work: dict[str, np.ndarray] = {}
        self.latency = np.zeros(count, np.int32)
        self.flops = np.zeros(count, np.int64)
        self.loads = np.zeros(count, bool)
        self.shared = np.zeros(count, bool)
        self.widths = np.zeros(count, np.int32)
        self.branches = np.full(count, -1)
        known = [
            (n, origin.instruction) for n, origin in enumerate(lowered.origins)
            if origin.instruction is not None and (n == 0 or origin is not lowered.origins[n - 1])
        ]  # fmt: skip
        every = [instruction for _, instruction in known]
        fused = code.fused_sums(every) | code.folded_addresses(every)
        for position, (number, instruction) in enumerate(known):
            units = code.cost(instruction, position in fused)
            for unit, each in units.items():
                self.work.setdefault(unit, np.zeros(count))[number] = each
            self.units[number] = next(iter(units), code.NONE)
            self.loads[number] = code.is_load(instruction)
            self.shared[number] = any("shared" in name for name in instruction.modifiers)
            self.latency[number] = 1 if instruction.opcode == "st" else self._latency(units)
            if code.TENSOR in units:
                self.flops[number] = code.flops(instruction)
            self.widths[number : self._end(lowered, number)] = code.access_bytes(instruction)
        for block in _basic_blocks(lowered, known):
            self._merge(lowered, block)
        self._predicate(lowered, known)

    @property
    def slots(self) -> np.ndarray:
        return sum(self.work.values(), np.zeros(len(self.units)))

    def _merge(self, lowered: Lowered, block: list[tuple[int, Instruction]]) -> None:
        """Loads of neighbours in shared memory become one. A loop over such loads that counts to a
        constant is unrolled until they have 16 bytes."""
        steps = code.loop_steps(block, lowered.targets)
        for position, (width, base) in code.merged_loads(block).items():
            self.widths[position : self._end(lowered, position)] = width
            wider = width if width and steps.get(base) == width else 16
            self.work[code.MEMORY][position] = wider / 16 if width else 0

    def _predicate(self, lowered: Lowered, known: list[tuple[int, Instruction]]) -> None:
        """Find the branches past few instructions."""
        slots = self.slots
        for n, (number, branch) in enumerate(known):
            target = lowered.targets.get(number, -1)
            if branch.guard is None or target < number:
                continue
            body = [at for at, _ in known[n + 1 :] if at < target]
            stays = {self.units[at] for at in body}.isdisjoint((code.CONTROL, code.BARRIER))
            inside = lowered.labels & set(range(number + 1, target))
            if stays and not inside and sum(slots[body]) <= code.MOST_PREDICATED:
                self.work[code.CONTROL][number] = 0
                self.branches[number + 1 : target] = number

    @staticmethod
    def _end(lowered: Lowered, number: int) -> int:
        """Behind the last operation of the instruction that begins at `number`."""
        end = number + 1
        while end < len(lowered.origins) and lowered.origins[end] is lowered.origins[number]:
            end += 1
        return end

    def _latency(self, units: dict[str, int]) -> int:
        if not units:
            return 0
        unit, slots = next(iter(units)), sum(units.values())
        if unit == code.FP64 and self.chip.fp64 < 16:
            return slots * WARP // self.chip.fp64
        known = {
            code.SPECIAL: chips.SPECIAL_LATENCY,
            code.SHUFFLE: chips.SHUFFLE_LATENCY,
            code.BARRIER: chips.BARRIER_LATENCY,
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

    def issued(self, executed: np.ndarray) -> np.ndarray:
        """How often each operation is issued, from how often warps came to it with a lane."""
        return np.where(self.branches >= 0, executed[self.branches], executed)


def _basic_blocks(
    lowered: Lowered, known: list[tuple[int, Instruction]]
) -> list[list[tuple[int, Instruction]]]:
    """Instructions in order, divided where branches go to and behind branches and barriers."""
    blocks: list[list[tuple[int, Instruction]]] = [[]]
    for number, instruction in known:
        if number in lowered.labels and blocks[-1]:
            blocks.append([])
        blocks[-1].append((number, instruction))
        if instruction.opcode in ("bra", "brx", "bar", "barrier", "call"):
            blocks.append([])
    return blocks


def first_level_cycles(traffic: np.ndarray, chip: chips.Chip) -> np.ndarray:
    """By operation: wavefronts of shared memory; lines (one a cycle) or bytes of global memory."""
    each = 128 / chip.l1_bytes
    of_bytes = traffic[:, SECTORS] * SECTOR / chip.l1_bytes
    return traffic[:, WAVEFRONTS] * each + np.maximum(traffic[:, LINES], of_bytes)
