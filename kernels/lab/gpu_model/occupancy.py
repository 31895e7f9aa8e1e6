"""How many blocks an SM holds at once, and what keeps it from holding more.

The rules are those of `cuda_occupancy.h`, which ships with the CUDA runtime; the tests compile
that header and compare. The limits are the table "Technical Specifications per Compute Capability"
of NVIDIA's CUDA Programming Guide. An SM gives registers to whole warps, from four equal files,
and shared memory to whole blocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from kernels.lab.draw.canvas import BLUE, GRID, INK, MUTED, ORANGE, Drawn, Picture, plain
from kernels.lab.draw.explained import sm_picture
from kernels.support.names import counted

WARP = 32
MAX_THREADS = 1024  # a block
REGISTERS = 65536  # an SM, and the most of a block
MAX_REGISTERS = 255  # a thread
REGISTER_UNIT = 256  # registers are given to a warp in multiples of this
REGISTER_FILES = 4  # an SM has four, and a warp's registers lie in one of them


class Limits(NamedTuple):
    """What an SM of one compute capability holds: blocks, warps, KiB of shared memory."""

    blocks: int
    warps: int
    shared_kib: int


LIMITS = {
    (7, 0): Limits(32, 64, 96),
    (7, 5): Limits(16, 32, 64),
    (8, 0): Limits(32, 64, 164),
    (8, 6): Limits(16, 48, 100),
    (8, 7): Limits(16, 48, 164),
    (8, 9): Limits(24, 48, 100),
    (9, 0): Limits(32, 64, 228),
    (10, 0): Limits(32, 64, 228),
    (10, 3): Limits(32, 64, 228),
    (11, 0): Limits(24, 48, 228),
    (12, 0): Limits(24, 48, 100),
    (12, 1): Limits(24, 48, 100),
}

ADVICE = {
    "warps": "smaller blocks would use the warps that are left",
    "blocks": "larger blocks would fill the SM",
    "registers": "fewer registers per thread (max_registers, a smaller tile) would let more in",
    "shared memory": "less shared memory per block would let more in",
}


@dataclass(frozen=True)
class Occupancy(Drawn):
    """Blocks an SM holds of a kernel, and the limit that each resource sets.

    block is in threads, shared in bytes (static and dynamic together), registers per thread.
    limits maps "warps", "registers", "shared memory" and "blocks" to the blocks that it would let
    in; `limited_by` are those that let in the fewest. `share` is resident over possible warps.
    """

    cc: tuple[int, int]
    block: int
    registers: int
    shared: int
    limits: dict[str, int]

    @property
    def blocks(self) -> int:
        return min(self.limits.values())

    @property
    def limited_by(self) -> tuple[str, ...]:
        return tuple(name for name, limit in self.limits.items() if limit == self.blocks)

    @property
    def warps(self) -> int:
        return self.blocks * -(-self.block // WARP)

    @property
    def share(self) -> float:
        return self.warps / LIMITS[self.cc].warps

    def __str__(self) -> str:
        most = LIMITS[self.cc].warps
        rows = [
            f"compute capability {self.cc[0]}.{self.cc[1]}: blocks of {self.block} threads, "
            f"{self.registers} registers per thread, {self.shared} bytes of shared memory per"
            " block",
            f"occupancy {self.share:.0%}: {counted(self.blocks, 'block')}, {self.warps} of {most}"
            " warps",
        ]
        for name, limit in self.limits.items():
            mark = "   <- limits" if name in self.limited_by else ""
            rows.append(f"  {name:<13} allow {counted(limit, 'block'):>9}{mark}")
        if self.blocks == 0:
            rows.append("this launch would fail: one block alone is too large")
        elif self.share < 1:
            rows.append(f"({ADVICE[self.limited_by[0]]})")
        return "\n".join(rows)

    def picture(self) -> Picture:
        """Occupancy over all block sizes, this one marked."""
        return occupancy_picture(self.registers, self.shared, self.cc, self.block)

    def sm_picture(self) -> Picture:
        """The blocks that fill an SM: its warp slots, registers and shared memory."""
        limits, warps = LIMITS[self.cc], -(-self.block // WARP)
        each = {
            "warps": (warps, limits.warps),
            "registers": (
                _round_up(WARP * self.registers, REGISTER_UNIT) * warps, REGISTERS,
            ),
            "shared memory": (_shared_of_block(self.shared, self.cc), limits.shared_kib * 1024),
            "blocks": (1, limits.blocks),
        }  # fmt: skip
        used = {
            name: (self.blocks * one / most, one / most, f"{self.blocks * one:,} of {most:,}")
            for name, (one, most) in each.items()
        }
        held = counted(self.blocks, "block")
        title = f"An SM of compute capability {self.cc[0]}.{self.cc[1]}: {held}"
        note = (
            f"blocks of {self.block} threads, {self.registers} registers per thread, {self.shared}"
            f" bytes of shared memory: occupancy {self.share:.0%}, limited by"
            f" {', '.join(self.limited_by)}"
        )
        return sm_picture(self.blocks, warps, limits.warps, used, title, note)


def capability(cc: tuple[int, int] | float | str) -> tuple[int, int]:
    """(8, 6), "8.6" and 8.6 as a pair; ValueError for one that is not in `LIMITS`."""
    try:
        parts = cc if isinstance(cc, tuple | list) else str(float(cc)).split(".")
        major, minor = map(int, parts)
    except (TypeError, ValueError):
        raise ValueError(f"compute capability: expected 8.6, '8.6' or (8, 6), got {cc!r}") from None
    if (major, minor) not in LIMITS:
        known = ", ".join(f"{a}.{b}" for a, b in LIMITS)
        raise ValueError(f"compute capability {major}.{minor}: expected one of {known}")
    return major, minor


def occupancy(
    registers: int, shared: int, block: int, cc: tuple[int, int] | float | str
) -> Occupancy:
    """The occupancy of a kernel with `registers` a thread and `shared` bytes per block (static and
    dynamic), launched in blocks of `block` threads on compute capability `cc`.

    A limit of 0 is a launch that fails. Raises ValueError for numbers that no launch can have.
    """
    cc = capability(cc)
    if block < 1 or registers < 0 or shared < 0:
        raise ValueError(
            f"occupancy: expected a block of at least 1 thread and no negative resources, got "
            f"block={block}, registers={registers}, shared={shared}"
        )
    limit = LIMITS[cc]
    warps = -(-block // WARP)
    limits = {
        "warps": limit.warps // warps if block <= MAX_THREADS else 0,
        "registers": _by_registers(registers, warps),
        "shared memory": _by_shared_memory(shared, cc),
        "blocks": limit.blocks,
    }
    return Occupancy(cc, block, registers, shared, limits)


def _by_registers(registers: int, warps: int) -> int:
    """Blocks that the register files hold."""
    a_warp = _round_up(max(registers, 1) * WARP, REGISTER_UNIT)
    whole_files = _round_up(warps, REGISTER_FILES)  # how the hardware checks one block
    if registers > MAX_REGISTERS or a_warp * whole_files > REGISTERS:
        return 0
    return REGISTER_FILES * (REGISTERS // REGISTER_FILES // a_warp) // warps


def _by_shared_memory(shared: int, cc: tuple[int, int]) -> int:
    """Blocks that shared memory holds; from 8.0 the driver reserves 1 KiB of each."""
    return LIMITS[cc].shared_kib * 1024 // _shared_of_block(shared, cc)


def _shared_of_block(shared: int, cc: tuple[int, int]) -> int:
    """What a block of `shared` bytes takes of an SM's."""
    unit, reserved = (256, 0) if cc < (8, 0) else (128, 1024)
    return max(_round_up(shared + reserved, unit), unit)


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


def occupancy_picture(
    registers: int, shared: int, cc: tuple[int, int] | float | str, block: int | None = None
) -> Picture:
    """Occupancy by block size (32 to 1024 threads), the block size in use marked."""
    cc = capability(cc)
    sizes = range(WARP, MAX_THREADS + 1, WARP)
    found = {size: occupancy(registers, shared, size, cc) for size in sizes}
    title = f"Occupancy by block size on compute capability {cc[0]}.{cc[1]}"
    about = f"{registers} registers per thread, {shared} bytes of shared memory per block"
    best = max(o.share for o in found.values())
    sizes_of_best = [size for size, o in found.items() if o.share == best]
    some = ", ".join(map(str, sizes_of_best[:6])) + (", ..." if len(sizes_of_best) > 6 else "")
    about += f"; best: {plain(best * 100)}% with blocks of {some}"
    text = [title, about, f"{'block':>6} {'blocks':>7} {'occupancy':>10}  limited by"]
    picture = Picture(680, 310, title)
    picture.label(16, 40, about, 11, MUTED)
    left, top, width, height = 56, 68, 600, 190
    for percent in (0, 25, 50, 75, 100):
        y = top + height * (1 - percent / 100)
        picture.line(left, y, left + width, y, GRID)
        picture.label(left - 8, y + 4, f"{percent}%", 11, MUTED, "end")
    bar = width / len(sizes)
    for i, (size, found_here) in enumerate(found.items()):
        mine = block is not None and size == _round_up(block, WARP)
        x, tall = left + i * bar, height * found_here.share
        picture.rect(x + 1.5, top + height - tall, bar - 3, tall, fill=ORANGE if mine else BLUE)
        if size % 128 == 0:
            picture.label(x + bar / 2, top + height + 16, str(size), 11, MUTED, "middle")
        if mine:
            above = top + height - tall - 4
            picture.label(x + bar / 2, above, f"{found_here.share:.0%}", 11, INK, "middle", True)
        limit = ", ".join(found_here.limited_by)
        mark = " <- this launch" if mine else ""
        text.append(f"{size:>6} {found_here.blocks:>7} {found_here.share:>10.0%}  {limit}{mark}")
    picture.label(left + width / 2, top + height + 36, "threads per block", 12, INK, "middle")
    picture.text = "\n".join(text)
    return picture
