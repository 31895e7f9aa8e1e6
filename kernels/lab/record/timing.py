"""Runs a kernel for the clock: its blocks as PTX, through caches and by themselves."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from kernels.lab.gpu_model import chips, clock, operations
from kernels.lab.gpu_model.clock import Estimate
from kernels.lab.gpu_model.compiled import compiled
from kernels.lab.gpu_model.gpus import GPU
from kernels.lab.gpu_model.gpus import gpu as named
from kernels.lab.gpu_model.occupancy import occupancy
from kernels.lab.record import ptx
from kernels.ptx.lowering import Lowered
from kernels.ptx.study import Caches, Costs, Study
from kernels.support.errors import KernelError, LaunchError
from kernels.support.limits import launch_dimensions
from kernels.support.memory import owner_of

OLDEST = (7, 5)  # compute capability that today's compilers know; older chips get its code
TURN = 32  # operations of a warp until the next one runs
MOST = 12_000_000  # operations of warps through the caches: some seconds
MOST_OF_A_BLOCK = 100_000_000


def time(
    kernel: Any,
    grid: Any,
    block: Any,
    *arguments: Any,
    gpu: str | GPU,
    shared: int = 0,
    repeated: bool = False,
) -> Estimate:
    """About how long `kernel[grid, block, 0, shared](*arguments)` takes on a GPU: see
    `gpu_model.clock`.

    kernel: `@cuda.jit` or `raw_kernel(...)`; arguments: NumPy arrays (copied, so not changed) and
    numbers; gpu: a name of `lab.GPUS`, or a GPU. Both caches begin empty; repeated: the second
    level begins with what a launch of the same left there, and launches wait in a queue, as in a
    loop that measures. Needs NVIDIA's compilers (the extra `cuda13`), not a GPU. Raises
    CompileError without them, LaunchError for a block that does not fit on an SM or runs for too
    long to count.
    """
    card = named(gpu)
    name = getattr(kernel, "__name__", None) or kernel.name
    blocks, sizes = launch_dimensions(name, grid, block)
    grid_blocks, threads = math.prod(blocks), math.prod(sizes)
    cc = max(card.cc, OLDEST)
    made = compiled(kernel, *arguments, cc=cc, lines=False)
    on_sm = occupancy(made.registers, made.shared + shared, threads, card.cc)
    if not on_sm.blocks:
        raise LaunchError(
            f"{name}: a block of {threads} threads does not fit on an SM of {card.name}"
        )
    arguments = _copied(arguments)
    (entry, text), values = ptx.entry_and_values(kernel, arguments, cc)
    module = ptx.module_of(text)
    lowered = module.kernel(entry)
    costs = operations.Costs(lowered, chips.chip(card))
    parameters = ptx.packed(lowered.parameters.values(), values, entry)

    def run(study: Study) -> Study:
        try:
            module.launch(
                entry, grid, block, shared, parameters,
                allocations=ptx.allocations_of(arguments), study=study,
            )  # fmt: skip
        except KernelError as error:  # which knows the name in machine code
            raise type(error)(str(error).replace(entry, name)) from None
        return study

    used = made.shared + shared
    counts = _counted(run, lowered, costs, card, grid_blocks, on_sm.blocks, used, repeated)
    return clock.estimate(name, card, on_sm, grid_blocks, costs, counts)


def _counted(
    run: Callable[[Study], Study],
    lowered: Lowered,
    costs: operations.Costs,
    card: GPU,
    grid_blocks: int,
    resident: int,
    shared: int,
    repeated: bool,
) -> clock.Counts:
    """What a launch does: as many blocks as the GPU holds through its caches, then some alone.

    resident: blocks that an SM holds, each with `shared` bytes of shared memory.
    """
    resident = min(resident, -(-grid_blocks // card.sms))
    first = chips.first_level_bytes(card, resident * shared)
    caches = Caches(card.sms, first, int(card.l2 * 2**20))

    def through_caches(after: Study | None = None) -> Study:
        together = resident * card.sms
        return run(
            Study(lowered, together=together, turn=TURN, most=MOST, caches=caches, after=after)
        )

    cached = through_caches()
    if repeated and cached.is_whole:  # else it asks for more than caches hold
        cached = through_caches(after=cached)
    known = Costs(costs.with_levels(cached.traffic), costs.slots, costs.widths)
    some = clock.spread(grid_blocks)
    alone = run(Study(lowered, blocks=some, most=MOST_OF_A_BLOCK, costs=known))
    if not alone.is_whole:
        raise LaunchError(
            f"{lowered.name}: a block takes more than {MOST_OF_A_BLOCK} instructions of warps"
        )
    whole = alone.steps / len(some) * grid_blocks
    return clock.Counts(
        executed=alone.executed[:, 0] / len(some),
        traffic=alone.traffic / len(some),
        cycles=alone.cycles,
        hottest=cached.hottest * max(whole / max(cached.steps, 1), 1.0),
        dram_written=cached.written
        / max(float(cached.traffic[:, operations.L1_MISSES].sum()), 1.0),
        misses=clock.shares(cached),
        start=chips.QUEUED_SECONDS if repeated else chips.LAUNCH_SECONDS,
    )


def _copied(arguments: tuple) -> tuple:
    """Arguments with copies of the arrays, whose memory begins at a multiple of 256 bytes, as an
    allocator of a GPU gives it; views of one array stay views of one."""
    owners: dict[int, tuple[np.ndarray, int]] = {}

    def copied(array: np.ndarray) -> np.ndarray:
        owner = owner_of(array)
        low, high = np.lib.array_utils.byte_bounds(owner)
        if low not in owners:
            room = np.empty(high - low + 256, np.uint8)
            start = -room.ctypes.data % 256
            owners[low] = room, start
            at = start + owner.ctypes.data - low
            np.ndarray(owner.shape, owner.dtype, room, at, owner.strides)[...] = owner
        room, start = owners[low]
        at = start + array.ctypes.data - low
        return np.ndarray(array.shape, array.dtype, room, at, array.strides)

    return tuple(copied(a) if isinstance(a, np.ndarray) else a for a in arguments)
