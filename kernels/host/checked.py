"""Checked mode: arrays where every access can be told from its neighbours', and what was wrong.

While a checked kernel runs, its arrays are copies in slots far apart (runtime/checks.h); what the
kernel wrote is copied back. One such launch at a time.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernels.support.errors import KernelError, KernelIndexError, LaunchError, SimtError

from . import compiler
from .arguments import Packer

_lock = threading.Lock()
_AT_NULL, _IN_SHARED = -1, -2


@dataclass
class Slot:
    """Memory of one or several arrays that overlap: [begin, end) where the caller has it."""

    begin: int
    end: int
    arrays: list[tuple[str, np.ndarray]]
    placed: int = 0


@contextmanager
def placed(pack: Packer, args: tuple, recorded: bool = False) -> Iterator[tuple[bytes, list[Slot]]]:
    """The packed arguments of a launch, whose pointers point into slots, and the slots; around
    `recorded` ones there is room that a kernel may touch by mistake."""
    values = pack.values(args)
    with _lock:
        slots = _slots(pack.names, args)
        runtime = compiler.runtime()
        try:
            for number, slot in enumerate(slots):
                slot.placed = runtime.mgh_place(number, slot.end - slot.begin, recorded) or 0
                if not slot.placed:
                    raise LaunchError(
                        f"{pack.kernel}: no room for {slot.arrays[0][0]} in checked mode"
                    )
                ctypes.memmove(slot.placed, slot.begin, slot.end - slot.begin)
                for index, arg in enumerate(args):
                    if isinstance(arg, np.ndarray) and values[index] == arg.ctypes.data:
                        at = values[index]
                        if slot.begin <= at < slot.end or at == slot.begin == slot.end:
                            values[index] = slot.placed + at - slot.begin
            yield pack.layout.pack(*values), slots
        finally:
            for number, slot in enumerate(slots):
                if slot.placed and any(array.flags.writeable for _, array in slot.arrays):
                    ctypes.memmove(slot.begin, slot.placed, slot.end - slot.begin)
                if slot.placed:
                    runtime.mgh_unplace(number)


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
    if not report.size:  # a fault, not an access that was checked
        return KernelError(f"{name}: {who}{where}")
    action = f"{'write' if report.writes else 'read'} of {report.size} bytes"
    if report.slot == _AT_NULL:
        return KernelIndexError(
            f"{name}: {action} through a null pointer (an argument None?), {who}{where}"
        )
    if report.slot == _IN_SHARED:
        size = report.end - report.begin
        what = f"byte {report.address - report.begin} of {(report.name or b'').decode()!r}"
        what = f"{action} at {what}, shared memory of {size} bytes"
    else:
        what = _place(report, slots[report.slot], action)
    return KernelIndexError(f"{name}: {what}: out of bounds, {who}{where}")


def _place(report: Any, slot: Slot, action: str) -> str:
    """An access outside of an array, as an index if it is at a whole element."""
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
