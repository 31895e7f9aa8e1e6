"""What becomes of PTX in machine code: which unit executes an instruction, and how many there are.

The assembler makes one instruction of most, two where a number has 64 bits, since registers have
32, none where only a name changes, and a short program of a division or a root, whose lengths
(`_EXACT`, `_DIVISIONS`) are rough. Integers are multiplied by the unit of float32 sums, with half
of its lanes on 8.6 and later ("FMA" and "FMAHeavy" in Nsight Compute's list of pipelines); other
integer operations have a unit of their own.
"""

from __future__ import annotations

import re

from kernels.ptx.nodes import TYPES, Address, Immediate, Instruction, Register, Vector

FP32, FP64, INTEGER, SPECIAL, SHUFFLE = "fp32", "fp64", "integer", "special", "shuffle"
MULTIPLY, BARRIER = "integer products", "barriers"
MEMORY, TENSOR, CONTROL, NONE = "memory", "tensor", "control", "none"

_NOTHING = {"cvta", "neg", "abs", "prefetch", "membar", "fence", "createpolicy", "nanosleep"}
_CONTROL = {"bra", "brx", "ret", "exit", "call", "trap"}
_MEMORY = {"ld", "ldu", "st", "atom", "red", "cp", "ldmatrix", "stmatrix"}
_SPECIAL = {"rcp", "rsqrt", "ex2", "lg2", "sin", "cos", "tanh", "sqrt"}
_TWICE = {"add", "sub", "and", "or", "xor", "not", "shl", "shr", "setp", "selp", "min", "max"}
_SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)")
_EXACT = {"rcp": 8, "sqrt": 10, "div": 12}  # float32, rounded to nearest
# as the assembler writes them for 8.6 (a remainder of int: 24), rounded
_DIVISIONS = {
    "32": {SPECIAL: 3, INTEGER: 11, MULTIPLY: 8},
    "64": {SPECIAL: 3, INTEGER: 40, MULTIPLY: 37},
    "f64": {FP64: 30},
}
#: a branch past so many instructions of the machine code becomes a condition of each of them: what
#: NVRTC's assembler does for 8.6, tried with sums, loads and stores of 1 to 13 instructions
MOST_PREDICATED = 8


def cost(i: Instruction, fused: bool = False) -> dict[str, int]:
    """How many instructions of the machine code an instruction becomes, by unit; the first unit is
    the one whose result is waited for. fused: another instruction does it as well."""
    kind = i.modifiers[-1] if i.modifiers else ""
    opcode, wide = i.opcode, kind.endswith("64")
    if opcode in _MEMORY:
        no_access = "param" in i.modifiers or "commit_group" in i.form or "wait" in i.form
        return {} if no_access else {MEMORY: 1}
    if opcode in ("bar", "barrier"):
        return {BARRIER: 1}
    if opcode in _CONTROL:
        return {CONTROL: 1}
    if opcode in ("mma", "wmma"):
        return {TENSOR if "mma" in (opcode, *i.modifiers[:1]) else MEMORY: 1}
    if opcode in ("shfl", "vote", "match", "redux", "activemask", "elect"):
        return {SHUFFLE: 1}
    if opcode in _NOTHING or fused:
        return {}
    if opcode == "mov":
        special = len(i.operands) > 1 and _is_special(i.operands[1])
        return {INTEGER: 1} if special else {}
    if opcode == "cvt":
        return _conversion(i)
    if opcode in ("div", "rem"):
        if kind == "f32":
            approximate = {"approx", "full"} & set(i.modifiers)
            return {FP32: 2, SPECIAL: 1} if approximate else {FP32: _EXACT["div"]}
        return _DIVISIONS["f64" if kind == "f64" else "64" if wide else "32"]
    if opcode in _SPECIAL:
        if kind == "f64":
            return _DIVISIONS["f64"]
        return {FP32: _EXACT[opcode]} if "rn" in i.modifiers else {SPECIAL: 1}
    if kind == "f64":
        return {FP64: 1}
    if kind in ("f32", "f16", "f16x2", "bf16", "bf16x2"):
        return {INTEGER if opcode in ("min", "max", "setp", "selp") else FP32: 1}
    if opcode in ("mul", "mad"):
        return {MULTIPLY: 4 if wide and "wide" not in i.modifiers else 1}
    return {INTEGER: 2 if wide and opcode in _TWICE else 1}


def _is_special(operand: object) -> bool:
    name = operand.name if isinstance(operand, Register) else ""
    return name.partition(".")[0] in ("%tid", "%ctaid", "%ntid", "%nctaid", "%laneid", "%clock")


def _conversion(i: Instruction) -> dict[str, int]:
    """Integers to wider ones are the same register with a zero beside it, or with signs."""
    to, of = i.modifiers[-2:]
    if to[0] in "sub" and of[0] in "sub" and to[0] != "bf":
        return {INTEGER: 1} if of[0] == "s" and to[1:] == "64" else {}
    return {SPECIAL: 1}


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


def folded_addresses(instructions: list[Instruction]) -> set[int]:
    """The positions of what computes addresses of shared memory from an index: a shift by the size
    of an element, and the sum with a variable's address. The access itself can do both."""
    made: dict[str, int] = {}  # by register, -1 where several instructions give it
    uses: dict[str, list[tuple[int, bool]]] = {}  # by register: where, and whether as the address
    for position, i in enumerate(instructions):
        first = i.operands[0].name if i.operands and isinstance(i.operands[0], Register) else ""
        stores = i.opcode in ("st", "red")
        if first and not stores:
            made[first] = -1 if first in made else position
        for one in i.operands[0 if stores else 1 :]:
            base = one.base if isinstance(one, Address) else one
            if isinstance(base, Register):
                as_address = isinstance(one, Address) and "shared" in i.modifiers
                uses.setdefault(base.name, []).append((position, as_address))

    def origin(name: str) -> Instruction | None:
        return instructions[made[name]] if made.get(name, -1) >= 0 else None

    found: set[int] = set()
    for position, i in enumerate(instructions):
        if i.opcode != "add" or not all(isinstance(one, Register) for one in i.operands):
            continue
        total, *parts = (part.name for part in i.operands if isinstance(part, Register))
        if made[total] != position or not all(only for _, only in uses.get(total, [])):
            continue
        before = [made_by for name in parts if (made_by := origin(name)) is not None]
        is_base = [each.opcode == "mov" and _is_variable(each.operands[1]) for each in before]
        shifts = [each for each in before if each.opcode == "shl" and _is_scale(each.operands[2])]
        if any(is_base) and shifts:
            found.add(position)
    for position, i in enumerate(instructions):
        if i.opcode == "shl" and _is_scale(i.operands[2]) and isinstance(i.operands[0], Register):
            used = uses.get(i.operands[0].name, [])
            if used and all(where in found for where, _ in used):
                found.add(position)
    return found


def _is_variable(operand: object) -> bool:
    return isinstance(operand, Register) and not operand.name.startswith("%")


def _is_scale(operand: object) -> bool:
    return isinstance(operand, Immediate) and operand.value in (2, 3, 4)


def access_bytes(i: Instruction) -> int:
    """Bytes for a lane of a load, store or atomic operation; 0 of other instructions."""
    if i.opcode not in _MEMORY or not i.modifiers or i.modifiers[-1] not in TYPES:
        if i.opcode == "wmma" and MEMORY in cost(i):
            registers = next(one for one in i.operands if isinstance(one, Vector)).items
            return len(registers) * (8 if "f64" in i.modifiers else 4)
        if i.opcode == "cp" and len(i.operands) > 2 and isinstance(i.operands[2], Immediate):
            return int(i.operands[2].value)
        return 16 if i.opcode in ("cp", "ldmatrix", "stmatrix") else 0
    counts = {"v2": 2, "v4": 4, "v8": 8}
    count = max((counts.get(m, 1) for m in i.modifiers), default=1)
    return TYPES[i.modifiers[-1]].bytes * count


def merged_loads(block: list[tuple[int, Instruction]]) -> dict[int, tuple[int, str]]:
    """The loads of a basic block, (position, instruction) each, that the assembler makes wider: of
    shared memory, from neighbouring offsets of one register, aligned. By position: the bytes of the
    load that it becomes, or 0 where it is part of another; and the register.

    A store between them is in the way.
    """
    found: dict[int, tuple[int, str]] = {}
    groups: dict[tuple[str, int], list[tuple[int, int]]] = {}

    def close() -> None:
        for (base, size), loads in groups.items():
            at = dict(loads)
            for offset in sorted(at):
                if at[offset] in found:
                    continue
                for width in (16, 8):
                    wanted = range(offset, offset + width, size)
                    parts = [at[o] for o in wanted if o in at]
                    if offset % width == 0 and size < width and len(parts) == len(wanted):
                        found.update(dict.fromkeys(parts, (0, base)))
                        found[parts[0]] = width, base
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


def loop_steps(block: list[tuple[int, Instruction]], targets: dict[int, int]) -> dict[str, int]:
    """What each register grows by in a basic block that repeats itself until a register has a
    constant value; nothing of other blocks."""
    if not block or targets.get(block[-1][0]) != block[0][0] or block[-1][1].guard is None:
        return {}
    guard, steps, constant = block[-1][1].guard.name, {}, False
    for _, i in block:
        names = [getattr(one, "name", "") for one in i.operands]
        last = i.operands[-1] if i.operands else None
        if i.opcode == "setp" and names[0] == guard:
            constant = isinstance(last, Immediate)
        elif i.opcode == "add" and names[0] == names[1] and isinstance(last, Immediate):
            steps[names[0]] = int(last.value)
    return steps if constant else {}


def is_load(i: Instruction) -> bool:
    """Whether its result comes from memory."""
    return i.opcode in ("ld", "ldu", "atom", "ldmatrix") or (
        i.opcode == "wmma" and "load" in i.modifiers
    )
