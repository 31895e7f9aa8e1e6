"""What becomes of PTX in machine code: which unit executes an instruction, and how many there are.

The assembler makes one instruction of most, two where a number has 64 bits, since registers have
32, none where only a name changes, and a short program of a division or a root, whose lengths
(`_EXACT`, `_DIVISIONS`) are rough.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from kernels.ptx.nodes import TYPES, Address, Instruction, Register

FP32, FP64, INTEGER, SPECIAL, SHUFFLE = "fp32", "fp64", "integer", "special", "shuffle"
MEMORY, TENSOR, CONTROL, NONE = "memory", "tensor", "control", "none"

_NOTHING = {"cvta", "neg", "abs", "prefetch", "membar", "fence", "createpolicy", "nanosleep"}
_CONTROL = {"bra", "brx", "ret", "exit", "bar", "barrier", "call", "trap"}
_MEMORY = {"ld", "ldu", "st", "atom", "red", "cp", "ldmatrix", "stmatrix"}
_SPECIAL = {"rcp", "rsqrt", "ex2", "lg2", "sin", "cos", "tanh", "sqrt"}
_TWICE = {"add", "sub", "and", "or", "xor", "not", "shl", "shr", "setp", "selp", "min", "max"}
_SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)")
_EXACT = {"rcp": 8, "sqrt": 10, "div": 12}  # float32, rounded to nearest
_DIVISIONS = {"32": 20, "64": 80, "f64": 30}


class Cost(NamedTuple):
    """The unit, and how many instructions of the machine code."""

    unit: str
    slots: int


def cost(i: Instruction, fused: bool = False) -> Cost:
    """What an instruction costs. fused: it only adds what a multiplication gives it."""
    kind = i.modifiers[-1] if i.modifiers else ""
    opcode, wide = i.opcode, kind.endswith("64")
    if opcode in _MEMORY:
        no_access = "param" in i.modifiers or "commit_group" in i.form or "wait" in i.form
        return Cost(NONE, 0) if no_access else Cost(MEMORY, 1)
    if opcode in _CONTROL:
        return Cost(CONTROL, 1)
    if opcode in ("mma", "wmma"):
        return Cost(TENSOR if "mma" in (opcode, *i.modifiers[:1]) else MEMORY, 1)
    if opcode in ("shfl", "vote", "match", "redux", "activemask", "elect"):
        return Cost(SHUFFLE, 1)
    if opcode in _NOTHING or fused:
        return Cost(NONE, 0)
    if opcode == "mov":
        special = len(i.operands) > 1 and _is_special(i.operands[1])
        return Cost(INTEGER, 1) if special else Cost(NONE, 0)
    if opcode == "cvt":
        return _conversion(i)
    if opcode in ("div", "rem"):
        if kind == "f32":
            approximate = {"approx", "full"} & set(i.modifiers)
            return Cost(FP32, 3 if approximate else _EXACT["div"])
        if kind == "f64":
            return Cost(FP64, _DIVISIONS["f64"])
        return Cost(INTEGER, _DIVISIONS["64" if wide else "32"])
    if opcode in _SPECIAL:
        if kind == "f64":
            return Cost(FP64, _DIVISIONS["f64"])
        return Cost(FP32, _EXACT[opcode]) if "rn" in i.modifiers else Cost(SPECIAL, 1)
    if kind == "f64":
        return Cost(FP64, 1)
    if kind in ("f32", "f16", "f16x2", "bf16", "bf16x2"):
        return Cost(INTEGER if opcode in ("min", "max", "setp", "selp") else FP32, 1)
    if opcode in ("mul", "mad") and "wide" not in i.modifiers and wide:
        return Cost(INTEGER, 4)
    return Cost(INTEGER, 2 if wide and opcode in _TWICE else 1)


def _is_special(operand: object) -> bool:
    name = operand.name if isinstance(operand, Register) else ""
    return name.partition(".")[0] in ("%tid", "%ctaid", "%ntid", "%nctaid", "%laneid", "%clock")


def _conversion(i: Instruction) -> Cost:
    """Integers to wider ones are the same register with a zero beside it, or with signs."""
    to, of = i.modifiers[-2:]
    if to[0] in "sub" and of[0] in "sub" and to[0] != "bf":
        return Cost(INTEGER, 1) if of[0] == "s" and to[1:] == "64" else Cost(NONE, 0)
    return Cost(SPECIAL, 1)


def flops(i: Instruction) -> int:
    """Floating-point operations of a warp's product on tensor cores."""
    found = _SHAPE.search(i.form)
    return 2 * int(found[1]) * int(found[2]) * int(found[3]) if found else 0


def fused_sums(instructions: list[Instruction]) -> set[int]:
    """The positions of 64-bit sums that become one instruction with the 32-bit product before them:
    an address, base + index * size."""
    products: set[str] = set()
    found: set[int] = set()
    for position, i in enumerate(instructions):
        if i.opcode == "mul" and "wide" in i.modifiers and isinstance(i.operands[0], Register):
            products.add(i.operands[0].name)
        elif i.opcode == "add" and i.modifiers[-1:] in (("s64",), ("u64",)):
            names = {one.name for one in i.operands[1:] if isinstance(one, Register)}
            if names & products:
                found.add(position)
    return found


def access_bytes(i: Instruction) -> int:
    """Bytes for a lane of a load, store or atomic operation; 0 of other instructions."""
    if i.opcode not in _MEMORY or not i.modifiers or i.modifiers[-1] not in TYPES:
        return 16 if i.opcode in ("cp", "ldmatrix", "stmatrix") else 0
    counts = {"v2": 2, "v4": 4, "v8": 8}
    count = max((counts.get(m, 1) for m in i.modifiers), default=1)
    return TYPES[i.modifiers[-1]].bytes * count


def merged_loads(block: list[tuple[int, Instruction]]) -> dict[int, int]:
    """The loads of a basic block, (position, instruction) each, that the assembler makes wider: of
    shared memory, from neighbouring offsets of one register, aligned. By position: the bytes of the
    load that it becomes, or 0 where it is part of another.

    A store between them is in the way.
    """
    found: dict[int, int] = {}
    groups: dict[tuple[str, int], list[tuple[int, int]]] = {}

    def close() -> None:
        for (_, size), loads in groups.items():
            at = dict(loads)
            for offset in sorted(at):
                if at[offset] in found:
                    continue
                for width in (16, 8):
                    wanted = range(offset, offset + width, size)
                    parts = [at[o] for o in wanted if o in at]
                    if offset % width == 0 and size < width and len(parts) == len(wanted):
                        found.update(dict.fromkeys(parts, 0))
                        found[parts[0]] = width
                        break
        groups.clear()

    for position, i in block:
        if i.opcode in ("st", "atom", "red") and "shared" in i.modifiers:
            close()
        elif i.opcode == "ld" and "shared" in i.modifiers and i.guard is None:
            address, size = i.operands[1], access_bytes(i)
            if isinstance(address, Address) and size == 4 and "volatile" not in i.modifiers:
                name = getattr(address.base, "name", "")
                groups.setdefault((name, size), []).append((address.offset, position))
    close()
    return found


def is_load(i: Instruction) -> bool:
    """Whether its result comes from memory."""
    return i.opcode in ("ld", "ldu", "atom", "ldmatrix")
