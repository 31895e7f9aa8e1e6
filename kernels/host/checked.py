"""Checked mode: arrays are copied to slots of their own, and errors name what was accessed.

While a checked kernel runs, its arrays are copies in slots far apart (runtime/checks.h); what the
kernel wrote is copied back.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernels.support import forks
from kernels.support.errors import KernelError, KernelIndexError, LaunchError, SimtError

from . import compiler
from .arguments import Packer

_SLOTS = 64  # for a launch; those of runtime/checks.h are twice as many
_free = list(range(_SLOTS, 2 * _SLOTS))  # numbers of slots that no launch uses
_recording = forks.lock()  # one recorded launch at a time: slot 0 has its first array
OUT_OF_BOUNDS = 4  # a Status in runtime/report.h
_AT_NULL, _IN_SHARED, _IN_VARIABLE, _IN_LOCAL = -1, -2, -4, -5  # Where in runtime/report.h


@dataclass
class Slot:
    """Memory of one or several arrays that overlap: [begin, end) where the caller has it."""

    begin: int
    end: int
    arrays: list[tuple[str, np.ndarray]]
    number: int = -1
    placed: int = 0


@contextmanager
def placed(pack: Packer, args: tuple, recorded: bool = False) -> Iterator[tuple[bytes, list[Slot]]]:
    """The packed arguments of a launch, whose pointers point into slots, and the slots; around
    `recorded` ones there is room that a kernel may touch by mistake."""
    values = pack.values(args)
    with _recording if recorded else nullcontext():
        slots = _slots(pack.names, args)
        try:
            for number, slot in enumerate(slots):
                _place(slot, pack.kernel, number if recorded else None)
                for index, arg in enumerate(args):
                    if isinstance(arg, np.ndarray) and values[index] == arg.ctypes.data:
                        at = values[index]
                        if slot.begin <= at < slot.end or at == slot.begin == slot.end:
                            values[index] = slot.placed + at - slot.begin
            yield pack.layout.pack(*values), slots
        finally:
            for slot in slots:
                _take_back(slot)


def _place(slot: Slot, kernel: str, number: int | None) -> None:
    """Copy the memory of a slot to where the kernel accesses it: `number`, or any that is free."""
    size = slot.end - slot.begin
    if number is None and not _free:
        raise LaunchError(f"{kernel}: more than {_SLOTS} arrays in checked mode")
    slot.number = _free.pop() if number is None else number
    slot.placed = compiler.runtime().mgh_place(slot.number, size, number is not None) or 0
    if not slot.placed:
        raise LaunchError(f"{kernel}: no room for {slot.arrays[0][0]} in checked mode")
    ctypes.memmove(slot.placed, slot.begin, size)


def _take_back(slot: Slot) -> None:
    """Copy what the kernel left in a slot to the caller's memory, and give the slot back."""
    if slot.placed:
        if any(array.flags.writeable for _, array in slot.arrays):
            ctypes.memmove(slot.begin, slot.placed, slot.end - slot.begin)
        compiler.runtime().mgh_unplace(slot.number)
    if slot.number >= _SLOTS:
        _free.append(slot.number)


def _slots(names: list[str], args: tuple) -> list[Slot]:
    """The arrays among the arguments; those that overlap share a slot."""
    slots: list[Slot] = []
    for index, arg in enumerate(args):
        if not isinstance(arg, np.ndarray) or arg.ndim == 0:
            continue
        begin = arg.ctypes.data
        mine = Slot(begin, begin + arg.nbytes, [(f"argument {index + 1} ({names[index]})", arg)])
        apart = []
        for slot in slots:
            if slot.begin < mine.end and mine.begin < slot.end:
                arrays = slot.arrays + mine.arrays
                mine = Slot(min(slot.begin, mine.begin), max(slot.end, mine.end), arrays)
            else:
                apart.append(slot)
        slots = [*apart, mine]
    return slots


def explain(name: str, report: Any, slots: list[Slot], library: str, code: str) -> SimtError:
    """The exception for what a checked launch reports."""
    who = report.message.decode(errors="replace")
    line = report.line or _line(report, library)
    where = f", at {_quote(line, code)}" if line else ""
    if report.line:  # an index of an array type
        return KernelIndexError(f"{name}: {who}{where}")
    if report.status != OUT_OF_BOUNDS:  # a fault, not an access that was checked
        return KernelError(f"{name}: {who}{where}")
    action = "write" if report.writes else "read"
    if report.size:
        action += f" of {report.size} bytes"
    if report.slot == _AT_NULL:
        return KernelIndexError(
            f"{name}: {action} through a null pointer (an argument None?), {who}{where}"
        )
    if report.slot in (_IN_SHARED, _IN_VARIABLE):
        kind = "shared memory" if report.slot == _IN_SHARED else "a variable"
        variable, byte = (report.name or b"").decode(), report.address - report.begin
        size = report.end - report.begin
        what = f"{action} at byte {byte} of {variable!r}, {kind} of {size} bytes"
    elif report.slot == _IN_LOCAL:
        what = f"{action} beside a local variable of the thread"
    else:
        what = _element(report, slots, action)
    return KernelIndexError(f"{name}: {what}: out of bounds, {who}{where}")


def _element(report: Any, slots: list[Slot], action: str) -> str:
    """An access outside of an array, as an index if it is at a whole element."""
    slot = next((slot for slot in slots if slot.number == report.slot), None)
    if slot is None:  # a pointer that was kept from an earlier launch
        return f"{action} through a pointer to an array of another launch"
    label, array = slot.arrays[0]
    offset = report.address - slot.placed - (array.ctypes.data - slot.begin)
    index, rest = divmod(offset, array.itemsize)
    at = f"index {index}" if rest == 0 else f"byte {offset}"
    others = "".join(f" or {other}" for other, _ in slot.arrays[1:])
    return f"{action} at {at} of {label}{others}, {array.size} elements of {array.dtype}"


def _line(report: Any, library: str) -> int:
    """The line of the kernel's source where it happened: the innermost that is no header's."""
    frames = report.frame[: report.frames]
    addresses = [frame - report.base - 1 for frame in frames if frame > report.base]
    lines = compiler.source_lines(library, addresses)
    return next((line for file, line in lines if file.endswith(".cu")), 0)


def _quote(line: int, code: str) -> str:
    text = code.splitlines()
    return f"line {line}: {text[line - 1].strip()}" if 0 < line <= len(text) else f"line {line}"
