"""Launches on the CPU that run one after another without Python between them.

`Sequence` packs the arguments of each launch once, as the array of words that the machine code of a
kernel takes, and one call runs all of them. It holds addresses, so the arrays must stay alive and
keep their shapes; what they contain may change between two runs.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

_SIGNED, _UNSIGNED, _TRUTH, _DOUBLE, _FLOAT = -1, -2, -3, -4, -5  # as `entry` has them
_MASK = 2**64 - 1
_HEADER = 7  # first block, last block, grid, bytes of shared memory, report

# Runs launches until one fails; returns how many have run, and the status in the low byte
_REPLAY = """
declare i64 @launch(ptr, ptr, i64, ptr)

define i64 @replay(ptr %table, i64 %first, i64 %last) {
  br label %next
next:
  %i = phi i64 [%first, %0], [%i.next, %run]
  %more = icmp ult i64 %i, %last
  br i1 %more, label %run, label %done
run:
  %at = mul i64 %i, 4
  %code.at = getelementptr ptr, ptr %table, i64 %at
  %code = load ptr, ptr %code.at
  %words.at = getelementptr ptr, ptr %code.at, i64 1
  %words = load ptr, ptr %words.at
  %count.at = getelementptr i64, ptr %code.at, i64 2
  %count.words = load i64, ptr %count.at
  %cost.at = getelementptr i64, ptr %code.at, i64 3
  %status = call i64 @launch(ptr %code, ptr %words, i64 %count.words, ptr %cost.at)
  %i.next = add i64 %i, 1
  %failed = icmp ne i64 %status, 0
  br i1 %failed, label %stop, label %next
stop:
  %count = shl i64 %i, 8
  %result = or i64 %count, %status
  ret i64 %result
done:
  ret i64 -1
}
"""


class Launch(NamedTuple):
    """A kernel with its launch configuration and arguments."""

    kernel: Any
    grid: Any
    block: Any
    args: tuple

    def bound(self) -> Callable[[], None]:
        """A function that launches it."""
        there = any(hasattr(a, "__cuda_array_interface__") for a in self.args)
        bind = self.kernel.bind_on_gpu if there else self.kernel.bind
        run = bind(self.grid, self.block, *self.args)
        return lambda: run(*self.args)


@cache
def _replay() -> tuple[Callable[[int, int, int], int], Callable[[], None]]:
    """The machine code above, and what starts the helpers that its launches may need."""
    import llvmlite.binding as llvm

    from kernels.simt.backend import entry, helpers

    engine = entry.engine()
    machine = llvm.Target.from_triple(llvm.get_process_triple()).create_target_machine(jit=True)
    code = machine.emit_object(llvm.parse_assembly(_REPLAY))
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    address = engine.get_function_address("replay")
    kind = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
    return kind(address), helpers.start


def compiled_for(launch: Launch) -> tuple[Any, Any] | None:
    """The compiled kernel of a launch, and its launcher, if it is machine code that takes an array
    of words: a launch that can be packed."""
    if not hasattr(launch.kernel, "specialise"):
        return None
    launcher = launch.kernel.configure(launch.grid, launch.block)
    found = launch.kernel.specialise(launcher.block, launch.args)
    entry = getattr(found, "entry", None)
    packs = isinstance(getattr(entry, "__self__", None), bytes) and not found.one_thread
    return (found, launcher) if packs else None


class Sequence:
    """Launches that can be packed, in order; `run` runs all of them. compiled: `compiled_for` each
    of them, where it is known."""

    def __init__(self, launches: list[Launch], compiled: list[Any] | None = None) -> None:
        self._keep: list[Any] = []  # what the words point to
        self.specialised = compiled or list(map(compiled_for, launches))
        self._launches = launches
        self._starts: list[list[int]] = []  # per launch, the word where each argument begins
        self._kinds: list[tuple[int, ...]] = []  # per launch, what each argument is
        words: list[int] = []
        for launch, (found, launcher) in zip(launches, self.specialised):
            self._pack(launch, found, launcher, words)
        self.words = np.array([w & _MASK for w in words], np.uint64)
        base = self.words.ctypes.data
        self._codes = [_address(found) for found, _ in self.specialised]
        self._count = len(launches)
        facts = map(self.facts, range(self._count))
        table = [(code, base + 8 * start, *rest) for code, start, *rest in facts]
        self._table = np.array(table, np.uint64).reshape(-1, 4)
        self._at = self._table.ctypes.data

    def _pack(self, launch: Launch, found: Any, launcher: Any, words: list[int]) -> None:
        facts = found.entry.__self__
        layout = struct.unpack(f"={(len(facts) - 24) // 8}q", facts[24:])
        gx, gy, gz = launcher.grid
        header = (0, launcher.blocks, gx, gy, gz, launcher.shared_bytes, found.error)
        values = (*header, *found.prepared(launch.args))
        starts = []
        for value, kind, itemsize in zip(values, layout[::2], layout[1::2], strict=True):
            starts.append(len(words))
            if kind >= 0:
                self._keep.append(value)
                data = value.__array_interface__["data"][0]
                words += [0, 0, value.size, itemsize, data, *value.shape, *value.strides]
            else:
                words.append(_number(value, kind))
        self._starts.append(starts)
        self._kinds.append(layout[::2])

    def facts(self, launch: int, may_be_long: bool = True) -> tuple[int, int, int, int]:
        """Of a launch: where its machine code lies, where in `words` its arguments begin, how many
        words they are, and its cost (`kernels.simt.backend.sharing`)."""
        start = self._starts[launch][0]
        end = self._starts[launch + 1][0] if launch + 1 < self._count else len(self.words)
        return self._codes[launch], start, end - start, int(may_be_long)  # 1: not known yet

    def kind(self, launch: int, argument: int) -> int:
        """Of an argument: the number of dimensions of an array, or the kind of a number."""
        return self._kinds[launch][_HEADER + argument]

    def writer(self, launch: int, argument: int) -> Callable[[Any], None]:
        """A function that gives a launch another number as an argument, from the next run on."""
        words, place = self.words, self.word(launch, argument)
        kind = self.kind(launch, argument)

        def write(value: Any) -> None:
            words[place] = _number(value, kind) & _MASK

        return write

    def word(self, launch: int, argument: int) -> int:
        """Where in `words` an argument of a launch begins."""
        return self._starts[launch][_HEADER + argument]

    def run(self) -> None:
        """Run all launches."""
        (replay, start_helpers), first = _replay(), 0
        start_helpers()
        while True:
            result = replay(self._at, first, self._count)
            if result < 0:
                return
            failed, status = result >> 8, result & 255
            found, launcher = self.specialised[failed]
            args, blocks = self._launches[failed].args, launcher.blocks
            found.failed(status, launcher.grid, 0, blocks, launcher.shared_bytes, args)
            first = failed + 1  # the general version of the kernel has run


def _address(found: Any) -> int:
    """Where the machine code of a compiled kernel lies."""
    return struct.unpack_from("=Q", found.entry.__self__)[0]


def _number(value: Any, kind: int) -> int:
    """A number as a word, as `entry` converts it."""
    if kind == _DOUBLE:
        return struct.unpack("=Q", struct.pack("=d", float(value)))[0]
    if kind == _FLOAT:
        return struct.unpack("=I", np.float32(value).tobytes())[0]
    return int(bool(value)) if kind == _TRUTH else int(value)
