"""The memory that the recorder's functions (`recorder.py`) work on."""

from __future__ import annotations

import numpy as np

from kernels.lab.record import recorder as rec


class State:
    """The recorder's memory for one run of a kernel."""

    def __init__(self, sites: int, memories: np.ndarray, clocks: int, trace: int) -> None:
        self.head = np.zeros(rec.HEAD_SIZE, np.int64)
        self.slots = np.zeros((rec.CAPACITY_OF_A_WARP, rec.SLOT), np.int64)
        self.table = np.zeros(4 * rec.CAPACITY_OF_A_WARP, np.int64)
        self.stats = np.zeros((max(sites, 1), rec.STAT), np.int64)
        self.memories = memories
        self.clocks = np.zeros((clocks, rec.CLOCK), np.int64)
        self.findings = np.zeros((rec.MAX_FINDINGS, rec.FINDING), np.int64)
        self.trace = np.zeros((trace, rec.TRACE_COLUMNS), np.int64)
        self.atomics = np.zeros((rec.MAX_ATOMICS, rec.ATOMIC_COLUMNS), np.int64)
        self.marks = np.zeros((rec.MARKS, rec.MARK_COLUMNS), np.int64)
        self.scratch = np.zeros(32 + 32 * 256, np.int64)
        self.shadows: list[np.ndarray] = []
        head = self.head
        head[rec.WHO], head[rec.GENERATION], head[rec.TRACE_CAPACITY] = -1, 1, trace
        head[rec.CAPACITY], head[rec.TABLE_BITS] = len(self.slots), len(self.table).bit_length() - 1
        head[rec.MEMORIES] = len(memories)
        # a thread's row of the clocks: `who` itself, or without the block where one runs at a time
        head[rec.THREADS] = -1 if clocks > 1024 else 1023
        for entry, array in (
            (rec.SLOTS, self.slots),
            (rec.TABLE, self.table),
            (rec.STATS, self.stats),
            (rec.MEMORY, self.memories),
            (rec.CLOCKS, self.clocks),
            (rec.FINDINGS, self.findings),
            (rec.TRACE, self.trace),
            (rec.SCRATCH, self.scratch),
            (rec.ATOMICS, self.atomics),
            (rec.MARKED, self.marks),
        ):
            head[entry] = array.ctypes.data
        self.address = head.ctypes.data

    def watch(self, memory: int, granules: int) -> None:
        """Keep a shadow of a piece of memory, to find races there."""
        shadow = np.zeros((granules, rec.SHADOW_COLUMNS), np.int64)
        self.shadows.append(shadow)
        self.memories[memory, rec.SHADOW] = shadow.ctypes.data

    def begin(self) -> None:
        """All threads begin the kernel: those of a block, or of all blocks of the grid."""
        self.clocks[:] = 0
        self.clocks[:, rec.LAST_BARRIER] = -1
        self.head[rec.WHO] = -1

    def finish(self) -> None:
        """Analyse what the last warp left."""
        rec.linked()["finish"].ctypes(self.address)
