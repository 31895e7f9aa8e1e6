"""What a launch can be watched for besides its results: traffic, caches, chains of latencies."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from kernels.ptx import machine
from kernels.ptx.lowering import Lowered
from kernels.ptx.nodes import Address, Group, Instruction, Negated, Operand, Pair, Register, Vector

LINE, SECTOR, WAYS = 128, 32, 16  # bytes, bytes, lines of a set: see machine/traffic.h
COLUMNS = (
    "requests", "sectors", "lines", "wavefronts", "l1_misses", "l2_misses", "from_l1", "from_l2",
    "from_memory",
)  # fmt: skip
_LINE_BYTES = 16  # of the record that the machine keeps of a line
_ADDRESSES = 1 << 16
_REGISTER = 64  # bytes: every register begins at a multiple
_SPACES = ("global", "shared")
_NO_RESULT = {"st", "red", "bar", "barrier", "bra", "brx", "exit", "ret", "trap", "membar", "fence",
              "cp", "prefetch", "nanosleep", "call"}  # fmt: skip


@dataclass(frozen=True)
class Caches:
    """The first level of each of `sms` SMs, and the second level: bytes."""

    sms: int
    first: int
    second: int


@dataclass(frozen=True)
class Costs:
    """By operation: after how many cycles its result is there, how many instructions of the machine
    code it takes, and the bytes for a lane of the access that it is part of (0: of another's)."""

    latency: np.ndarray
    slots: np.ndarray
    widths: np.ndarray


@dataclass
class Study:
    """A launch that is watched.

    blocks: their linear indices, or None for all. together: how many run at once, their warps in
    turns of `turn` operations. most: operations of warps after which the launch ends unfinished.
    caches: what memory requests go through; after: a study whose second level they begin with, as
    the launch before left it. costs: where the cycles that a block takes alone are
    asked for.

    Then: executed (operations, 2) are executions by warps and by lanes; traffic (operations,
    COLUMNS); written: sectors that the second level wrote to memory, and those it still has (which
    the next launch writes);
    hottest: most atomic operations on one address; cycles: of an average block alone; steps:
    operations of warps; ended: blocks.
    """

    lowered: Lowered
    blocks: Sequence[int] | None = None
    together: int = 0
    turn: int = 0
    most: int | None = None
    caches: Caches | None = None
    after: Study | None = None
    costs: Costs | None = None
    executed: np.ndarray = field(init=False)
    traffic: np.ndarray = field(init=False)
    steps: int = field(init=False, default=0)
    is_whole: bool = field(init=False, default=True)

    def __post_init__(self) -> None:
        operations = len(self.lowered.origins)
        self.executed = np.zeros((operations, 2), np.uint64)
        self.traffic = np.zeros((operations, len(COLUMNS)), np.uint64)
        self._addresses = np.zeros((_ADDRESSES, 2), np.uint64)
        self._traffic = machine.Traffic(
            counts=self.traffic.ctypes.data, addresses=self._addresses.ctypes.data,
            address_room=_ADDRESSES, sms=1,
        )  # fmt: skip
        if self.caches is not None:
            first, second = (
                max(size // (LINE * WAYS), 1) for size in (self.caches.first, self.caches.second)
            )
            self._first = np.zeros(self.caches.sms * first * WAYS * _LINE_BYTES, np.uint8)
            self._second = np.zeros(second * WAYS * _LINE_BYTES, np.uint8)
            self._traffic.first = self._first.ctypes.data
            self._traffic.second = self._second.ctypes.data
            self._traffic.sms, self._traffic.first_sets = self.caches.sms, first
            self._traffic.second_sets = second
            if self.after is not None:
                self._second[:] = self.after._second
                self._traffic.now = self.after._traffic.now
        if self.costs is not None:
            self._widths = np.ascontiguousarray(self.costs.widths, np.int32)
            self._traffic.widths = self._widths.ctypes.data
        self._chains = self._links() if self.costs is not None else None
        chosen = range(0) if self.blocks is None else self.blocks
        self._chosen = np.array(chosen, np.uint64)

    def _links(self) -> machine.Chains:
        assert self.costs is not None
        self._lists = links(self.lowered)
        self._latency, self._slots = (
            np.ascontiguousarray(a, np.int32) for a in (self.costs.latency, self.costs.slots)
        )
        return machine.Chains(
            links=self._lists[0].ctypes.data, registers=self._lists[1].ctypes.data,
            latency=self._latency.ctypes.data, slots=self._slots.ctypes.data,
            register_count=_register_count(self.lowered) + len(_SPACES),
        )  # fmt: skip

    # -- for Module.launch ---------------------------------------------------------------------

    def enter(self, launch: machine.Launch) -> None:
        """Say in a launch what is watched."""
        launch.counts = self.executed.ctypes.data_as(ctypes.POINTER(ctypes.c_uint64))
        launch.traffic = ctypes.pointer(self._traffic)
        if self._chains is not None:
            launch.chains = ctypes.pointer(self._chains)
        if self.blocks is not None:
            launch.chosen = self._chosen.ctypes.data
            launch.chosen_count = len(self._chosen)
        launch.room, launch.slice = self.together, self.turn

    def is_enough(self, steps: int) -> bool:
        """Whether the launch shall end after so many operations of warps."""
        self.steps = steps
        enough = self.most is not None and steps >= self.most
        self.is_whole = not enough
        return enough

    # -- what came of it -----------------------------------------------------------------------

    @property
    def written(self) -> int:
        kept = 0
        if self.caches is not None and self.after is None:
            flags = self._second.reshape(-1, _LINE_BYTES)[:, 13]
            kept = int(np.unpackbits(flags).sum())
        return int(self._traffic.written) + kept

    @property
    def hottest(self) -> int:
        return int(self._traffic.hottest)

    @property
    def cycles(self) -> float:
        assert self._chains is not None
        return self._chains.cycles / max(self._chains.blocks, 1)


def _register_count(lowered: Lowered) -> int:
    every = (max(known.values(), default=0) for known in lowered.registers.values())
    return 1 + max(every, default=0) // _REGISTER


def _memory_order(i: Instruction) -> tuple[list[int], list[int]]:
    """The memory that an instruction reads, and that it writes: positions in _SPACES. A compiler
    keeps a load behind the stores before it, which might have the same address."""
    spaces = [n for n, space in enumerate(_SPACES) if space in i.modifiers]
    loads = i.opcode == "ld" and "nc" not in i.modifiers
    return spaces if loads else [], spaces if i.opcode == "st" else []


def links(lowered: Lowered) -> tuple[np.ndarray, np.ndarray]:
    """(by operation where its list begins, or -1; the lists): the registers that an instruction
    reads, and those that it writes, each list after its length; memory as two more registers. An
    instruction's first operation stands for it."""
    begins = np.full(len(lowered.origins), -1, np.int32)
    first_of_memory = _register_count(lowered)
    lists: list[int] = []
    before = None
    for number, origin in enumerate(lowered.origins):
        if origin.instruction is None or origin is before:
            continue
        before = origin
        known = lowered.registers[origin.function]
        reads, writes = registers(origin.instruction)
        begins[number] = len(lists)
        for names, others in zip((reads, writes), _memory_order(origin.instruction)):
            offsets = [known[name] // _REGISTER for name in names if name in known]
            offsets += [first_of_memory + one for one in others]
            lists += [len(offsets), *offsets]
    return begins, np.array(lists or [0], np.int32)


def registers(instruction: Instruction) -> tuple[list[str], list[str]]:
    """The names of the registers that an instruction reads, and of those that it writes."""
    operands = instruction.operands
    results = 0 if instruction.opcode in _NO_RESULT else 1
    reads = [name for one in operands[results:] for name in _names(one)]
    writes = [name for one in operands[:results] for name in _names(one)]
    if instruction.guard is not None:
        reads.append(instruction.guard.name)
    return reads, writes


def _names(operand: Operand) -> list[str]:
    if isinstance(operand, Register | Negated):
        return [operand.name]
    if isinstance(operand, Address):
        return _names(operand.base)
    if isinstance(operand, Pair):
        return [*_names(operand.first), *_names(operand.second)]
    if isinstance(operand, Vector | Group):
        return [name for one in operand.items for name in _names(one)]
    return []
