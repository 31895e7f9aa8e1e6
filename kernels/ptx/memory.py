"""Loads, stores, atomics, addresses and asynchronous copies as operations of the machine."""

from __future__ import annotations

import re
import struct

from kernels.ptx.lowering import (
    AREA,
    GENERIC,
    GLOBAL,
    LOCAL,
    PARAMETERS,
    SHARED,
    FunctionLowering,
    Modifiers,
    Unknown,
    handles,
)
from kernels.ptx.nodes import TYPES, Address, Immediate, Instruction, Register, Vector

U32, U64 = TYPES["u32"], TYPES["u64"]
POLLING, HAS_RESULT = 8, 64  # Flag in machine.h, memory.h
_SPACES = {
    "global": GLOBAL, "shared": SHARED, "shared::cta": SHARED, "local": LOCAL, "const": GLOBAL,
    "param": PARAMETERS, "param::entry": PARAMETERS, "param::func": AREA,
}  # fmt: skip
_SCOPES = re.compile(r"cta|cluster|gpu|sys")
_HINTS = re.compile(
    r"weak|nc|ca|cg|cs|lu|cv|wb|wt|unified|"
    r"L1::\w+|L2::\w+|evict_\w+|no_allocate|noftz|level::\w+"
)
_ORDERS = re.compile(r"relaxed|acquire|release|acq_rel|volatile|mmio|sc")


def _space(x: FunctionLowering, m: Modifiers, operand: Address) -> int:
    name = m.one_of(_SPACES)
    if name is None:
        return GENERIC
    if name.startswith("param"):
        base = operand.base
        kernels = x.function.is_kernel
        if isinstance(base, Register) and base.name in x.area:
            return AREA
        if not kernels and not (isinstance(base, Register) and x.register(base.name)):
            raise Unknown(f"parameter {base}")
        return PARAMETERS
    return _SPACES[name]


def _polls(m: Modifiers) -> bool:
    """Whether an access is one by which threads wait for others."""
    polls = any(name in m.left for name in ("volatile", "relaxed", "acquire", "mmio"))
    m.drop(_ORDERS)
    m.drop(_SCOPES)
    m.drop(_HINTS)
    return polls


@handles("ld", "ldu")
def _load(x: FunctionLowering, i: Instruction) -> None:
    m = Modifiers(i.modifiers)
    kind = m.type()
    polls = _polls(m)
    to, at = i.operands[:2]
    where = x.address(at, _space(x, m, at))
    count = int((m.one_of(("v2", "v4", "v8")) or "v1")[1:])
    m.done()
    items = to.items if isinstance(to, Vector) else (to,)
    if len(items) != count:
        raise Unknown(f"{len(items)} registers for {count} elements")
    targets = [x.target_of(one, kind.bytes) for one in items]
    widths = {width for one, (_, width) in zip(items, targets) if one != Register("_")}
    width = max(widths, default=kind.bytes)
    if len(widths) > 1:
        raise Unknown("registers of different sizes")
    registers = [-1 if one == Register("_") else at for one, (at, _) in zip(items, targets)]
    sign = "s" if kind.kind == "s" else "u"
    where["flags"] |= POLLING if polls else 0
    x.emit(f"ld.{sign}{kind.bits}.{width}", list=x.whole.list(registers), count=count, **where)


@handles("st")
def _store(x: FunctionLowering, i: Instruction) -> None:
    m = Modifiers(i.modifiers)
    kind = m.type()
    _polls(m)
    at, value = i.operands[:2]
    where = x.address(at, _space(x, m, at))
    count = int((m.one_of(("v2", "v4", "v8")) or "v1")[1:])
    m.done()
    items = value.items if isinstance(value, Vector) else (value,)
    if len(items) != count:
        raise Unknown(f"{len(items)} registers for {count} elements")
    registers = x.whole.list([x.source(one, kind, wider=True) for one in items])
    x.emit(f"st.{kind.bytes}", list=registers, count=count, **where)


_ATOMIC_BITS = ("and", "or", "xor", "exch", "cas")


@handles("atom", "red")
def _atomic(x: FunctionLowering, i: Instruction) -> None:
    m = Modifiers(i.modifiers)
    kind = m.type()
    has_result = i.opcode == "atom"
    m.drop(_ORDERS)
    m.drop(_SCOPES)
    m.drop(_HINTS)
    what = m.one_of(("add", "min", "max", "inc", "dec", *_ATOMIC_BITS))
    if what is None:
        raise Unknown("what is done")
    count = int((m.one_of(("v2", "v4", "v8")) or "v1")[1:])
    at = i.operands[1 if has_result else 0]
    where = x.address(at, _space(x, m, at))
    m.done()
    if kind.kind in ("f", "bf") or what in ("min", "max", "inc", "dec"):
        name = f"atom.{what}.{kind.name}"
    else:
        name = f"atom.{what}.b{kind.bits}"
    rest = i.operands[2 if has_result else 1 :]
    where["flags"] |= HAS_RESULT if has_result else 0
    if count == 1:
        b = x.source(rest[0], kind)
        c = x.source(rest[1], kind) if what == "cas" else b
        to = x.target(i.operands[0], kind) if has_result else 0
        x.emit(name, to=to, b=b, c=c, **where)
        return
    items = rest[0].items  # each element for itself
    results = i.operands[0].items if has_result else items
    for k, (item, result) in enumerate(zip(items, results)):
        b = x.source(item, kind)
        to = x.target(result, kind) if has_result else 0
        x.emit(name, to=to, b=b, c=b, **{**where, "value": where["value"] + k * kind.bytes})


@handles("cvta")
def _convert_address(x: FunctionLowering, i: Instruction) -> None:
    m = Modifiers(i.modifiers)
    kind = m.type()
    back = m.has("to")
    space = m.one_of((*_SPACES,))
    m.done()
    to = x.target(i.operands[0], kind)
    a = i.operands[1]
    if space in ("global", "const"):
        x.emit(f"mov.b{kind.bits}", to=to, a=x.source(a, kind))
        return
    if kind.bits != 64 or space is None:
        raise Unknown("addresses of 32 bits")
    x.emit(f"cvta.{space.partition('::')[0]}", to=to, a=x.source(a, kind), flags=back)


@handles("isspacep")
def _is_in_space(x: FunctionLowering, i: Instruction) -> None:
    m = Modifiers(i.modifiers)
    space = m.one_of(("global", "shared", "shared::cta", "local", "const", "param"))
    m.done()
    if space in ("const", "param", None):
        raise Unknown(f"space {space}")
    a = x.source(i.operands[1], U64)
    x.emit("isspacep", to=x.predicate(i.operands[0])[0], a=a, space=_SPACES[space])


@handles("prefetch", "prefetchu", "applypriority", "discard", "createpolicy")
def _hint(x: FunctionLowering, i: Instruction) -> None:
    """What says something of caches only. A policy is a number that nothing looks at."""
    if i.opcode == "createpolicy":
        x.emit("mov.b64", to=x.target(i.operands[0], U64), a=x.whole.constant(0, 8))


@handles("membar", "fence")
def _fence(x: FunctionLowering, i: Instruction) -> None:
    """Memory is the same for all threads at any time: there is nothing to wait for."""
    m = Modifiers(i.modifiers)
    m.drop(re.compile(r"gl|cta|sys|gpu|cluster|sc|acq_rel|acquire|release|proxy|alias|async|"
                      r"async::\w+|global|shared::\w+|mbarrier_init"))  # fmt: skip
    m.done()
    x.emit("nothing")


@handles("cp")
def _copy(x: FunctionLowering, i: Instruction) -> None:
    m = Modifiers(i.modifiers)
    if not m.has("async") or m.has("bulk", "mbarrier"):
        raise Unknown("this copy, which needs a GPU,")
    if m.has("commit_group"):
        m.done()
        x.emit("cp.commit")
        return
    if m.has("wait_all"):
        m.done()
        x.emit("cp.wait", flags=1)
        return
    if m.has("wait_group"):
        m.done()
        x.emit("cp.wait", value=int(i.operands[0].value))
        return
    m.has("ca", "cg")
    m.drop(_HINTS)
    if not (m.has("shared", "shared::cta") and m.has("global")):
        raise Unknown("the spaces of the copy")
    m.done()
    to, source, size, *rest = i.operands
    if not isinstance(size, Immediate) or size.value not in (4, 8, 16):
        raise Unknown(f"a copy of {size} bytes")
    present = x.whole.constant(int(size.value), 4)
    if rest and isinstance(rest[0], Register) and (known := x.register(rest[0].name)):
        if known[1].kind == "pred":  # ignore-src
            room = x.room(4)
            x.emit("selp.b32", to=room, a=x.whole.constant(0, 4), b=present, c=known[0])
            present = room
        elif known[1].bytes == 4:
            present = known[0]
    elif rest and isinstance(rest[0], Immediate):
        present = x.source(rest[0], U32)
    where, origin = x.address(to, SHARED), x.address(source, GLOBAL)
    offset = x.whole.list(struct.unpack("<2i", struct.pack("<q", origin["value"])))
    x.emit("cp.async", b=origin["a"], c=present, bytes=int(size.value), list=offset, **where)
