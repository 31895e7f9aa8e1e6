"""Small launches are remembered: the next one like it runs without Python around it.

A plan that is one launch into a new result (`Single`) is remembered when it has run. From then on
`dispatch.relaunch(dispatch.tracer, dispatch.active, operation, *operands)` finds it by the dtypes,
shapes and strides of the operands, allocates and launches, in machine code
(`kernels.simt.backend.relaunch`). It returns None for all that it does not know: arrays on a GPU,
other dialects, launches that are large enough for several OS threads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from kernels import dispatch
from kernels.sequence import Launch, Sequence, can_be_packed
from kernels.support.interrupts import deferred

MAX_BYTES = 1 << 16  # of operands and result: larger ones gain little, and may want several threads
LOCKED_BYTES = 1 << 12  # launches up to this size keep the GIL: they take less time than the switch
MAX_LAUNCHES = 4096
_DATA = 4  # the word of an array's address among those of its argument
_MASK = 2**64 - 1


class Single:
    """A plan that is one launch into a new result.

    launch: of `launcher`. allocate: makes the result. arguments: the kernel's arguments from the
    operands (arrays, numbers, None) and the result, of which they are views. operation: how callers
    of `dispatch.relaunch` name it; None where it cannot be remembered.
    """

    __slots__ = ("allocate", "arguments", "dialect", "generation", "launch", "operation")

    def __init__(
        self,
        launch: Any,
        allocate: Callable[[], Any],
        arguments: Callable[[tuple, Any], tuple],
        dialect: Any,
        operation: Any = None,
    ) -> None:
        self.launch, self.allocate, self.arguments = launch, allocate, arguments
        self.dialect, self.operation = dialect, operation
        self.generation = -1

    def __call__(self, operands: tuple, out: Any = None) -> Any:
        fresh = out is None
        if fresh:
            out = self.allocate()
        self.launch(*self.arguments(operands, out))
        if (
            fresh
            and self.operation is not None
            and self.generation != _table.generation
            and dispatch.tracer is None
        ):
            _remember(self, operands, out)
            self.generation = _table.generation
        return out


class _Table:
    """The remembered launches, in a hash table with open addressing; a full one starts anew."""

    def __init__(self) -> None:
        self.generation = 0
        self.lock = threading.Lock()
        self.count = 0
        self.kept: list[Any] = []
        self.before: list[Any] = []  # another thread may still run one of the former generation
        self.slots = np.zeros(0, np.uint64)
        self.state: Any = None

    def add(self, key: list[int], words: list[int], kept: Any) -> None:
        """Remember a launch by its key; `words` follow the hash and the length of the key."""
        from kernels.simt.backend import entry, relaunch

        with self.lock, deferred():
            if self.state is None:
                self.state = relaunch.state()
                self._clear()
                dispatch.relaunch = entry.function("relaunch", self.state)
            if self.count >= MAX_LAUNCHES:
                self._clear()
            place = spread(key)
            record = np.array([w & _MASK for w in (place, len(key), *words)], np.uint64)
            while self.slots[place % len(self.slots)]:
                place += 1
            self.slots[place % len(self.slots)] = record.ctypes.data
            self.kept.append((record, kept))
            self.count += 1

    def _clear(self) -> None:
        from kernels.simt.backend import relaunch

        self.before, self.kept, self.count = [self.slots, *self.kept], [], 0
        self.slots = np.zeros(2 << MAX_LAUNCHES.bit_length(), np.uint64)
        self.state[relaunch.SLOTS] = self.slots.ctypes.data
        self.state[relaunch.MASK] = len(self.slots) - 1
        self.generation += 1


_table = _Table()


def spread(key: list[int]) -> int:
    """The hash of a key, as the machine code computes it."""
    from kernels.simt.backend.relaunch import FACTOR

    found = len(key)
    for part in key:
        found = (found ^ (part & _MASK)) * FACTOR & _MASK
        found ^= found >> 32
    return found


def _remember(plan: Single, operands: tuple, out: Any) -> None:
    """Remember the launch that has just run, if it is one of machine code on small arrays."""
    from kernels.simt.backend import relaunch

    arrays = [a for a in (*operands, out) if isinstance(a, np.ndarray)]
    if (
        len(operands) > relaunch.MAX_OPERANDS
        or any(type(a) is not np.ndarray or a.ndim > relaunch.MAX_NDIM for a in arrays)
        or len(arrays) + sum(type(o) in (float, int, type(None)) for o in operands)
        != len(operands) + 1
    ):
        return
    size = sum(a.nbytes for a in arrays)
    if size > MAX_BYTES:
        return
    shown = [_stand_in(operand) for operand in operands]
    result = _stand_in(out)
    kernel, grid, block = plan.launch.of
    launch = Launch(kernel, grid, block, plan.arguments(tuple(shown), result))
    if not can_be_packed(launch):
        return
    sequence = Sequence([launch])
    fixes = _fixes(sequence, launch.args, shown, result)
    if fixes is None:
        return
    module = dispatch.dialect(plan.dialect.name)
    key = [id(module), id(plan.operation)]
    for operand in operands:
        if isinstance(operand, np.ndarray):
            key += [id(operand.dtype), operand.ndim]
            key += [n for pair in zip(operand.shape, operand.strides) for n in pair]
        else:
            key.append(id(type(operand)))
    words = [sequence.code(0), int(size > LOCKED_BYTES), id(out.dtype), out.ndim]
    words += [len(fixes) // 3, len(sequence.words), *key, *out.shape, *fixes]
    words += map(int, sequence.words)
    dtypes = [a.dtype for a in arrays]
    _table.add(key, words, (module, plan.operation, dtypes, sequence))


def _stand_in(value: Any) -> Any:
    """An operand of the same kind at an address, or with an identity, of its own."""
    if isinstance(value, np.ndarray):
        reach = [(n - 1) * step for n, step in zip(value.shape, value.strides)]
        start = -sum(r for r in reach if r < 0)
        memory = np.zeros(start + sum(r for r in reach if r > 0) + value.itemsize, np.uint8)
        return np.ndarray(value.shape, value.dtype, memory, start, value.strides)
    if type(value) is float:
        return float("0.5")
    if type(value) is int:
        return int("-123456789" if value < 0 else "123456789")
    return value


def _fixes(sequence: Sequence, args: tuple, operands: list, result: Any) -> list[int] | None:
    """(word, operand, offset or kind) of each argument that differs from launch to launch; None
    where an argument is neither in an operand nor in the result."""
    from kernels.simt.backend.relaunch import RESULT

    sources = [*enumerate(operands), (RESULT, result)]
    fixes: list[int] = []
    for i, arg in enumerate(args):
        word = sequence.word(0, i)
        if not isinstance(arg, np.ndarray):
            found = next((j for j, operand in sources if operand is arg), None)
            if found is not None:
                fixes += [word, found, sequence.kind(0, i)]
        elif arg.size:
            address = arg.ctypes.data
            for j, source in sources:
                if isinstance(source, np.ndarray) and np.may_share_memory(source, arg):
                    fixes += [word + _DATA, j, address - source.ctypes.data]
                    break
            else:
                return None
    return fixes
