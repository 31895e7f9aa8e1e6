"""What a launch found, as an exception that names the kernel, the lines and the thread."""

from __future__ import annotations

import re
from pathlib import PurePath

from kernels.ptx.lowering import Lowered, Origin
from kernels.ptx.machine import Finding
from kernels.support.errors import KernelError, KernelIndexError, SimtError

# Status in machine/machine.h
(
    FINISHED, RUNNING, OUT_OF_BOUNDS, MISALIGNED, NULL_POINTER, DIVERGENT, DEADLOCK, NOT_IN_MASK,
    NOT_ALL_LANES, TRAP, ASSERTION, SPINNING, NO_MEMORY, BAD_BARRIER, BAD_TARGET,
) = range(15)  # fmt: skip
_SPACES = ("memory", "global memory", "shared memory", "local memory", "parameters", "parameters")


def place(origin: Origin) -> str:
    """The instruction, its line in the PTX, and the source's line where it is known."""
    text = f"{origin.text} on PTX line {origin.line}"
    if origin.location is not None:
        file = PurePath(origin.location.file).name or "the source"
        text += f", line {origin.location.line} of {file}"
    return text


def error(kernel: Lowered, found: Finding, allocations: list[tuple[int, int]] | None) -> SimtError:
    """The exception for how a launch ended."""
    thread, block = tuple(found.thread), tuple(found.block)
    text = found.text.decode(errors="replace")
    at, name = kernel.origins[found.pc], own_name(kernel.name)
    who = f"thread {thread} of block {block}"
    kinds = {
        DIVERGENT: f"divergent barrier: {who} waits for lanes of its warp that do not come",
        DEADLOCK: f"deadlock: {who} waits for threads that do not come",
        NOT_IN_MASK: f"{who} is not in the mask {text} that it gives",
        NOT_ALL_LANES: f"not all 32 lanes of the warp of {who} are there",
        TRAP: f"{who} came to a trap",
        ASSERTION: f"assertion failed: {text}, {who}",
        SPINNING: f"{who} and others wait for something that nothing changes",
        NO_MEMORY: text or "no memory for running the kernel",
        BAD_BARRIER: f"{text}, {who}",
        BAD_TARGET: f"an index beyond the table of a branch, {who}",
    }
    if found.status in kinds:
        return KernelError(f"{name}: {kinds[found.status]}: {place(at)}")
    action = f"{'write' if found.writes else 'read'} of {found.bytes} bytes"
    if found.status == MISALIGNED:
        return KernelError(
            f"{name}: misaligned {action} at address 0x{found.address:x}, {who}: {place(at)}"
        )
    if found.status == NULL_POINTER:
        what = f"{action} through a null pointer (address 0x{found.address:x})"
    elif found.space in (0, 1):
        what = f"{action} at address 0x{found.address:x}, outside of all arrays"
        what += _nearest(found.address, allocations or [])
    else:
        what = f"{action} at byte {_signed(found.address)} of {_SPACES[found.space]}"
        what += f", which has {found.end} bytes: out of bounds"
    return KernelIndexError(f"{name}: {what}, {who}: {place(at)}")


def own_name(name: str) -> str:
    """The last part of a name that C++ or Numba has mangled: "fill" of "_ZN8__main__4fillB2v1"."""
    at, found = 3 if name.startswith("_ZN") else 2 if name.startswith("_Z") else 0, name
    while at and (digits := re.compile(r"\d+").match(name, at)):
        at = digits.end() + int(digits[0])
        found = name[digits.end() : at]
    return found


def _signed(address: int) -> int:
    """Small negative offsets, which wrapped around."""
    for bits in (32, 64):
        if (1 << bits) - (1 << 24) <= address < 1 << bits:
            return address - (1 << bits)
    return address


def _nearest(address: int, allocations: list[tuple[int, int]]) -> str:
    """How far the address is from the nearest allocation."""
    if not allocations:
        return ""
    distances = [(max(base - address, address - base - size), base, size)
                 for base, size in allocations if size]  # fmt: skip
    if not distances:
        return ""
    distance, base, size = min(distances)
    side = "before" if address < base else "after"
    return f": {distance} bytes {side} the one of {size} bytes at 0x{base:x}"
