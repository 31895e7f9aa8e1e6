"""Runs a kernel for the clock: its blocks as PTX, through caches and by themselves."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kernels.lab.gpu_model import chips, clock
from kernels.lab.gpu_model.clock import Estimate
from kernels.lab.gpu_model.compiled import compiled
from kernels.lab.gpu_model.gpus import GPU
from kernels.lab.gpu_model.gpus import gpu as named
from kernels.lab.gpu_model.occupancy import occupancy
from kernels.lab.record import ptx
from kernels.lab.record.run import owner_of
from kernels.ptx.study import Caches, Costs, Study
from kernels.support.errors import LaunchError
from kernels.support.limits import launch_dimensions

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
) -> Estimate:
    """About how long `kernel[grid, block, 0, shared](*arguments)` takes on a GPU: see
    `gpu_model.clock`.

    kernel: `@cuda.jit` or `raw_kernel(...)`; arguments: NumPy arrays (copied, so not changed) and
    numbers; gpu: a name of `lab.GPUS`, or a GPU. Both caches begin empty. Needs NVIDIA's compilers
    (the extra `cuda13`), not a GPU. Raises CompileError without them, LaunchError for a block that
    does not fit on an SM or runs for too long to count.
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
    arguments = tuple(_copied(a) if isinstance(a, np.ndarray) else a for a in arguments)
    (entry, text), values = ptx._compiled(kernel, arguments, cc)
    module = ptx._module(text)
    lowered = module.kernel(entry)
    costs = clock.Costs(lowered, chips.chip(card))
    packed = ptx._packed(lowered.parameters.values(), values, entry)

    def run(study: Study) -> Study:
        module.launch(
            entry, grid, block, shared, packed,
            allocations=ptx._allocations(arguments), study=study,
        )  # fmt: skip
        return study

    resident = min(on_sm.blocks, -(-grid_blocks // card.sms))
    caches = Caches(
        card.sms,
        chips.first_level_bytes(card, resident * (made.shared + shared)),
        int(card.l2 * 2**20),
    )
    cached = run(Study(lowered, together=resident * card.sms, turn=TURN, most=MOST, caches=caches))
    misses = clock.shares(cached)
    known = Costs(costs.with_levels(cached.traffic), costs.slots, costs.widths)
    some = clock.spread(grid_blocks)
    alone = run(Study(lowered, blocks=some, most=MOST_OF_A_BLOCK, costs=known))
    if not alone.is_whole:
        raise LaunchError(
            f"{name}: a block takes more than {MOST_OF_A_BLOCK} instructions of warps"
        )
    sampled = len(some)
    given = max(float(cached.traffic[:, clock.L1_MISSES].sum()), 1.0)
    whole = alone.steps / sampled * grid_blocks
    counts = clock.Counts(
        executed=alone.executed[:, 0] / sampled,
        traffic=alone.traffic / sampled,
        cycles=alone.cycles,
        hottest=cached.hottest * max(whole / max(cached.steps, 1), 1.0),
        dram_written=cached.written / given,
        misses=misses,
    )
    return clock.estimate(name, card, on_sm, grid_blocks, costs, counts)


def _copied(array: np.ndarray) -> np.ndarray:
    """A copy with its memory at a multiple of 256 bytes, as a GPU's allocator gives it; a view
    keeps its offset in the array that it is part of."""
    owner = owner_of(array)
    low, high = np.lib.array_utils.byte_bounds(owner)
    room = np.empty(high - low + 256, np.uint8)
    start = -room.ctypes.data % 256
    made = np.ndarray(
        array.shape, array.dtype, room, start + array.ctypes.data - low, array.strides
    )
    np.ndarray(owner.shape, owner.dtype, room, start + owner.ctypes.data - low, owner.strides)[
        ...
    ] = owner
    return made
