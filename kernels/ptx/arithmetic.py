"""Arithmetic, comparisons, bits, moves and conversions as operations of the machine."""

from __future__ import annotations

from dataclasses import dataclass

from kernels.ptx.lowering import SPECIAL, FunctionLowering, Modifiers, Unknown, handles
from kernels.ptx.nodes import (
    TYPES,
    Immediate,
    Instruction,
    Register,
    Type,
    Vector,
)

U32, U64, PRED = TYPES["u32"], TYPES["u64"], TYPES["pred"]
SATURATE, NEGATE_C, NEGATE_RESULT = 1, 2, 32  # Flag in machine.h, floats.h
FLUSH = 8  # a Mode in machine.h
ROUNDINGS = {"rn": 0, "rz": 1, "rm": 2, "rp": 3}
_INTEGRAL = {"rni": 0, "rzi": 1, "rmi": 2, "rpi": 3}
_FORMATS = {"f16": 1, "bf16": 2, "tf32": 3, "f32": 4, "f64": 5, "e4m3x2": 6, "e5m2x2": 7}


def is_integer(kind: Type) -> bool:
    return kind.kind in ("s", "u", "b")


def _bits(kind: Type) -> str:
    return f"b{kind.bits}"


def _name(kind: Type) -> str:
    """A type's name where signs matter: bits are unsigned."""
    return f"u{kind.bits}" if kind.kind == "b" else kind.name


@dataclass
class _Floating:
    """How a floating-point operation is to be done, from its modifiers."""

    name: str
    kind: Type
    mode: int
    flags: int
    count: int = 0
    value: int = 0


def _floating(opcode: str, m: Modifiers, kind: Type) -> _Floating:
    mode = ROUNDINGS[m.one_of(ROUNDINGS, "rn")] | (FLUSH if m.has("ftz") else 0)
    flags = SATURATE if m.has("sat") else 0
    if kind.bits == 16 or kind.name.endswith("x2"):
        relu = m.has("relu")
        if mode & 7:
            raise Unknown("rounding of 16 bits other than .rn")
        format_, count = kind.name.removesuffix("x2"), 2 if kind.name.endswith("x2") else 1
        return _Floating(f"{opcode}.{format_}", kind, mode, flags, count, int(relu))
    return _Floating(f"{opcode}.{kind.name}", kind, mode, flags)


def _do(x: FunctionLowering, how: _Floating, i: Instruction, inputs: int) -> None:
    sources = [x.source(one, how.kind) for one in i.operands[1 : 1 + inputs]]
    operands = dict(zip("abc", sources))
    to = x.target(i.operands[0], how.kind)
    x.emit(how.name, to=to, mode=how.mode, flags=how.flags, count=how.count, value=how.value,
           **operands)  # fmt: skip


def _integers(x: FunctionLowering, name: str, i: Instruction, kinds: tuple[Type, ...], result: Type,
              **more: int) -> None:  # fmt: skip
    """An operation on integers whose operands have the given types."""
    operands = {k: x.source(o, t) for k, o, t in zip("abcd", i.operands[1:], kinds)}
    if len(operands) < len(kinds):
        raise IndexError
    x.emit(name, to=x.target(i.operands[0], result), **operands, **more)


@handles("add", "sub")
def _sum(x: FunctionLowering, i: Instruction) -> None:
    m = Modifiers(i.modifiers)
    kind = m.type()
    if not is_integer(kind):
        how = _floating(i.opcode, m, kind)
        m.done()
        return _do(x, how, i, 2)
    if m.has("cc"):
        m.done()
        return _carry(x, i, kind, gives=True, takes=False, subtracts=i.opcode == "sub")
    name = f"{i.opcode}.sat.s32" if m.has("sat") else f"{i.opcode}.{_bits(kind)}"
    m.done()
    _integers(x, name, i, (kind, kind), kind)


def _carry(x: FunctionLowering, i: Instruction, kind: Type, gives: bool, takes: bool,
           subtracts: bool) -> None:  # fmt: skip
    flags = takes | gives << 1 | subtracts << 2
    _integers(x, f"carry.{_bits(kind)}", i, (kind, kind), kind, flags=flags)


@handles("addc", "subc")
def _sum_with_carry(x: FunctionLowering, i: Instruction) -> None:
    m = Modifiers(i.modifiers)
    kind, gives = m.type(), m.has("cc")
    m.done()
    _carry(x, i, kind, gives, True, i.opcode == "subc")


@handles("mul", "mad")
def _product(x: FunctionLowering, i: Instruction) -> None:
    m = Modifiers(i.modifiers)
    kind = m.type()
    inputs = 2 if i.opcode == "mul" else 3
    if not is_integer(kind):
        how = _floating("mul" if inputs == 2 else "fma", m, kind)
        m.done()
        return _do(x, how, i, inputs)
    part = m.one_of(("lo", "hi", "wide"))
    if m.has("cc") or part is None:
        if part is None:
            raise Unknown("a product without .lo, .hi or .wide")
        m.done()
        return _product_with_carry(x, i, kind, part, takes=False, gives=True)
    saturates = m.has("sat")
    m.done()
    if saturates:
        return _integers(x, f"{i.opcode}.hi.sat.s32", i, (kind,) * 3, kind)
    if part == "wide":
        wide = TYPES[f"{kind.kind if kind.kind != 'b' else 'u'}{2 * kind.bits}"]
        name = f"{i.opcode}.wide.{_name(kind)}"
        return _integers(x, name, i, (kind, kind, wide)[:inputs], wide)
    name = f"{i.opcode}.{part}.{_bits(kind) if part == 'lo' else _name(kind)}"
    _integers(x, name, i, (kind,) * inputs, kind)


def _product_with_carry(x: FunctionLowering, i: Instruction, kind: Type, part: str, takes: bool,
                        gives: bool) -> None:  # fmt: skip
    a, b, c = (x.source(one, kind) for one in i.operands[1:4])
    room = x.room(kind.bytes)
    x.emit(f"mul.{part}.{_bits(kind) if part == 'lo' else _name(kind)}", to=room, a=a, b=b)
    flags = takes | gives << 1
    x.emit(f"carry.{_bits(kind)}", to=x.target(i.operands[0], kind), a=room, b=c, flags=flags)


@handles("madc")
def _product_after_carry(x: FunctionLowering, i: Instruction) -> None:
    m = Modifiers(i.modifiers)
    kind, part, gives = m.type(), m.one_of(("lo", "hi")), m.has("cc")
    m.done()
    _product_with_carry(x, i, kind, part or "lo", True, gives)


@handles("mul24", "mad24")
def _product24(x: FunctionLowering, i: Instruction) -> None:
    m = Modifiers(i.modifiers)
    kind, part = m.type(), m.one_of(("lo", "hi"), "lo")
    m.done()
    a, b = (x.source(one, kind) for one in i.operands[1:3])
    to = x.target(i.operands[0], kind)
    if i.opcode == "mul24":
        x.emit(f"mul24.{part}.{kind.name}", to=to, a=a, b=b)
        return
    room = x.room(4)
    x.emit(f"mul24.{part}.{kind.name}", to=room, a=a, b=b)
    x.emit("add.b32", to=to, a=room, b=x.source(i.operands[3], kind))


@handles("fma")
def _fused(x: FunctionLowering, i: Instruction) -> None:
    m = Modifiers(i.modifiers)
    how = _floating("fma", m, m.type())
    m.done()
    _do(x, how, i, 3)


@handles("div")
def _quotient(x: FunctionLowering, i: Instruction) -> None:
    m = Modifiers(i.modifiers)
    kind = m.type()
    if is_integer(kind):
        m.done()
        return _integers(x, f"div.{_name(kind)}", i, (kind, kind), kind)
    m.has("approx", "full")
    how = _floating("div", m, kind)
    m.done()
    _do(x, how, i, 2)


@handles("rem", "sad")
def _whole(x: FunctionLowering, i: Instruction) -> None:
    m = Modifiers(i.modifiers)
    kind = m.type()
    m.done()
    inputs = 3 if i.opcode == "sad" else 2
    _integers(x, f"{i.opcode}.{_name(kind)}", i, (kind,) * inputs, kind)


@handles("min", "max")
def _extreme(x: FunctionLowering, i: Instruction) -> None:
    m = Modifiers(i.modifiers)
    kind = m.type()
    if is_integer(kind):
        m.done()
        return _integers(x, f"{i.opcode}.{_name(kind)}", i, (kind, kind), kind)
    how = _floating(f"{i.opcode}.nan" if m.has("NaN") else i.opcode, m, kind)
    m.done()
    inputs = len(i.operands) - 1
    if inputs == 2:
        return _do(x, how, i, 2)
    room = x.room(kind.bytes)  # of three
    a, b, c = (x.source(one, kind) for one in i.operands[1:4])
    x.emit(how.name, to=room, a=a, b=b, mode=how.mode)
    x.emit(how.name, to=x.target(i.operands[0], kind), a=room, b=c, mode=how.mode)


@handles("neg", "abs")
def _sign(x: FunctionLowering, i: Instruction) -> None:
    m = Modifiers(i.modifiers)
    kind = m.type()
    if is_integer(kind):
        m.done()
        name = f"neg.{_bits(kind)}" if i.opcode == "neg" else f"abs.{kind.name}"
        return _integers(x, name, i, (kind,), kind)
    how = _floating(i.opcode, m, kind)
    m.done()
    _do(x, how, i, 1)


@handles("rcp", "sqrt", "rsqrt", "ex2", "lg2", "sin", "cos", "tanh")
def _function(x: FunctionLowering, i: Instruction) -> None:
    m = Modifiers(i.modifiers)
    kind, approximate = m.type(), m.has("approx")
    name = i.opcode
    if approximate and kind.name == "f64":  # only with .ftz: a first guess for a division
        if not m.has("ftz"):
            raise Unknown("an approximation of f64 without .ftz")
        name = "rcp.ftz" if name == "rcp" else name
    how = _floating(name, m, kind)
    m.done()
    _do(x, how, i, 1)


@handles("copysign")
def _copysign(x: FunctionLowering, i: Instruction) -> None:
    m = Modifiers(i.modifiers)
    how = _floating("copysign", m, m.type())
    m.done()
    _do(x, how, i, 2)


# -- comparisons -------------------------------------------------------------------------------

_JOINED = {"and": 1, "or": 2, "xor": 3}
_UNSIGNED = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
_OPPOSITE = {
    "equ": "ne", "neu": "eq", "ltu": "ge", "leu": "gt", "gtu": "le", "geu": "lt", "nan": "num",
}  # fmt: skip
_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge", *_UNSIGNED, *_OPPOSITE, "num")


def _compare(x: FunctionLowering, i: Instruction, m: Modifiers, kind: Type, first: int,
             second: int | None) -> None:  # fmt: skip
    """The comparison of operands 1 and 2 to the predicates at `first` and `second`, joined with
    operand 3 if a modifier says so."""
    how = m.one_of(_COMPARISONS)
    if how is None:
        raise Unknown("the comparison")
    joined = m.one_of(_JOINED)
    mode = FLUSH if m.has("ftz") else 0
    m.done()
    flags = 0
    c = 0
    if joined:
        c, negated = x.predicate(i.operands[3])
        flags |= NEGATE_C if negated else 0
    size = 0
    if is_integer(kind):
        base = f"u{kind.bits}" if how in _UNSIGNED else _name(kind)
        how = _UNSIGNED.get(how, how)
        name = f"setp.{how}.{_bits(kind) if how in ('eq', 'ne') else base}"
    else:
        if how in _OPPOSITE:
            how, flags = _OPPOSITE[how], flags | NEGATE_RESULT
        if kind.bits == 16 or kind.name.endswith("x2"):
            size = 2 if kind.name.endswith("x2") else 1
        name = f"setp.{how}.{kind.name.removesuffix('x2')}"
    a, b = x.source(i.operands[1], kind), x.source(i.operands[2], kind)
    if size == 2 and second is None:
        second = x.room(0)
    x.emit(
        name, to=first, a=a, b=b, c=c, d=second or 0, count=second is not None, bytes=size,
        flags=flags, mode=mode, value=_JOINED.get(joined, 0),
    )  # fmt: skip


@handles("setp")
def _set_predicate(x: FunctionLowering, i: Instruction) -> None:
    m = Modifiers(i.modifiers)
    kind = m.type()
    first, second = x.two(i.operands[0])
    _compare(
        x, i, m, kind, x.predicate(first)[0], None if second is None else x.predicate(second)[0]
    )


@handles("set")
def _set(x: FunctionLowering, i: Instruction) -> None:
    m = Modifiers(i.modifiers)
    kind = m.type()
    result = m.type()
    first, second = x.room(0), x.room(0) if kind.name.endswith("x2") else None
    _compare(x, i, m, kind, first, second)
    to = x.target(i.operands[0], result)
    ones = {"f32": 0x3F800000, "f16": 0x3C00, "bf16": 0x3F80, "f16x2": 0x3C00, "bf16x2": 0x3F80}
    if second is None:
        x.emit(f"set.{_bits(result)}", to=to, a=first, value=ones.get(result.name, -1))
        return
    halves = [x.room(2), x.room(2)]
    for half, truth in zip(halves, (first, second)):
        x.emit("set.b16", to=half, a=truth, value=ones.get(result.name, -1))
    x.emit("pack", to=to, list=x.whole.list(halves), count=2, bytes=2)


@handles("testp")
def _test(x: FunctionLowering, i: Instruction) -> None:
    m = Modifiers(i.modifiers)
    kind, what = m.type(), m.one_of(("finite", "infinite", "number", "notanumber", "normal",
                                     "subnormal"))  # fmt: skip
    m.done()
    a = x.source(i.operands[1], kind)
    x.emit(f"testp.{what}.{kind.name}", to=x.predicate(i.operands[0])[0], a=a, b=a)


@handles("selp")
def _select(x: FunctionLowering, i: Instruction) -> None:
    m = Modifiers(i.modifiers)
    kind = m.type()
    m.done()
    a, b = (x.source(one, kind) for one in i.operands[1:3])
    c, negated = x.predicate(i.operands[3])
    flags = NEGATE_C if negated else 0
    x.emit(f"selp.{_bits(kind)}", to=x.target(i.operands[0], kind), a=a, b=b, c=c, flags=flags)


@handles("slct")
def _select_by_sign(x: FunctionLowering, i: Instruction) -> None:
    m = Modifiers(i.modifiers)
    by = m.type()
    kind = m.type()
    mode = FLUSH if m.has("ftz") else 0
    m.done()
    name = f"slct.{'wide.' if kind.bits == 64 else ''}{by.name}"
    _integers(x, name, i, (kind, kind, by), kind, mode=mode)


# -- bits --------------------------------------------------------------------------------------


@handles("and", "or", "xor", "not", "cnot")
def _logic(x: FunctionLowering, i: Instruction) -> None:
    m = Modifiers(i.modifiers)
    kind = m.type()
    m.done()
    inputs = 1 if i.opcode in ("not", "cnot") else 2
    if kind.kind != "pred":
        return _integers(x, f"{i.opcode}.{_bits(kind)}", i, (kind,) * inputs, kind)
    sources = []
    for one in i.operands[1 : 1 + inputs]:
        at, negated = x.predicate(one)
        if negated:
            room = x.room(0)
            x.emit("not.pred", to=room, a=at, b=at)
            at = room
        sources.append(at)
    x.emit(f"{i.opcode}.pred", to=x.predicate(i.operands[0])[0], a=sources[0], b=sources[-1])


@handles("shl", "shr")
def _shift(x: FunctionLowering, i: Instruction) -> None:
    m = Modifiers(i.modifiers)
    kind = m.type()
    m.done()
    name = f"{i.opcode}.{_bits(kind) if i.opcode == 'shl' else _name(kind)}"
    _integers(x, name, i, (kind, U32), kind)


@handles("popc", "clz", "brev")
def _count(x: FunctionLowering, i: Instruction) -> None:
    m = Modifiers(i.modifiers)
    kind = m.type()
    m.done()
    result = kind if i.opcode == "brev" else U32
    _integers(x, f"{i.opcode}.{_bits(kind)}", i, (kind,), result)


@handles("bfind")
def _find(x: FunctionLowering, i: Instruction) -> None:
    m = Modifiers(i.modifiers)
    kind, amount = m.type(), m.has("shiftamt")
    m.done()
    _integers(x, f"bfind.{_name(kind)}", i, (kind,), U32, flags=amount)


@handles("bfe")
def _extract(x: FunctionLowering, i: Instruction) -> None:
    m = Modifiers(i.modifiers)
    kind = m.type()
    m.done()
    _integers(x, f"bfe.{_name(kind)}", i, (kind, U32, U32), kind)


@handles("bfi")
def _insert(x: FunctionLowering, i: Instruction) -> None:
    m = Modifiers(i.modifiers)
    kind = m.type()
    m.done()
    _integers(x, f"bfi.{_bits(kind)}", i, (kind, kind, U32, U32), kind)


@handles("szext", "bmsk")
def _mask(x: FunctionLowering, i: Instruction) -> None:
    m = Modifiers(i.modifiers)
    kind, how = m.type(), m.one_of(("clamp", "wrap"))
    m.done()
    name = f"{i.opcode}.{how}" + (f".{kind.name}" if i.opcode == "szext" else "")
    _integers(x, name, i, (kind, U32), kind)


@handles("shf")
def _funnel(x: FunctionLowering, i: Instruction) -> None:
    m = Modifiers(i.modifiers)
    kind, side, how = m.type(), m.one_of("lr"), m.one_of(("wrap", "clamp"))
    m.done()
    _integers(x, f"shf.{side}.{how}", i, (kind, kind, U32), kind)


@handles("prmt")
def _permute(x: FunctionLowering, i: Instruction) -> None:
    m = Modifiers(i.modifiers)
    modes = ("f4e", "b4e", "rc8", "ecl", "ecr", "rc16")
    mode = m.one_of(modes)
    kind = m.type()
    m.done()
    name = "prmt.mode" if mode else "prmt"
    _integers(x, name, i, (kind,) * 3, kind, flags=modes.index(mode) if mode else 0)


@handles("lop3")
def _logic3(x: FunctionLowering, i: Instruction) -> None:
    m = Modifiers(i.modifiers)
    kind = m.type()
    m.done()
    if not isinstance(i.operands[4], Immediate):
        raise Unknown("a table that is no number")
    sources = [x.source(one, kind) for one in i.operands[1:4]]
    x.emit("lop3", to=x.target(i.operands[0], kind), a=sources[0], b=sources[1], c=sources[2],
           value=int(i.operands[4].value))  # fmt: skip


@handles("fns")
def _nth_set(x: FunctionLowering, i: Instruction) -> None:
    m = Modifiers(i.modifiers)
    kind = m.type()
    m.done()
    _integers(x, "fns", i, (kind, U32, U32), kind)


@handles("dp4a", "dp2a")
def _dot(x: FunctionLowering, i: Instruction) -> None:
    m = Modifiers(i.modifiers)
    b, a = m.type(), m.type()
    upper = m.one_of(("lo", "hi")) == "hi"
    m.done()
    _integers(x, f"{i.opcode}.{a.name}.{b.name}", i, (U32,) * 3, U32, flags=upper)


# -- moves and conversions ---------------------------------------------------------------------


@handles("mov")
def _move(x: FunctionLowering, i: Instruction) -> None:
    m = Modifiers(i.modifiers)
    kind = m.type()
    m.done()
    to, a = i.operands
    if kind.kind == "pred":
        at, negated = x.predicate(a)
        x.emit("not.pred" if negated else "mov.pred", to=x.predicate(to)[0], a=at, b=at)
    elif isinstance(a, Vector):
        part = TYPES[f"b{kind.bits // len(a.items)}"]
        parts = x.whole.list([x.source(one, part) for one in a.items])
        x.emit("pack", to=x.target(to, kind), list=parts, count=len(a.items), bytes=part.bytes)
    elif isinstance(to, Vector):
        part = TYPES[f"b{kind.bits // len(to.items)}"]
        at = x.source(a, kind)
        sink = Register("_")
        parts = x.whole.list([-1 if one == sink else x.target(one, part) for one in to.items])
        x.emit("unpack", a=at, list=parts, count=len(to.items), bytes=part.bytes)
    elif isinstance(a, Register) and a.name in SPECIAL:
        x.emit("special", to=x.target(to, kind), bytes=kind.bytes, value=SPECIAL[a.name])
    else:
        x.emit(f"mov.{_bits(kind)}", to=x.target(to, kind), a=x.source(a, kind))


@handles("activemask")
def _active(x: FunctionLowering, i: Instruction) -> None:
    x.emit("special", to=x.target(i.operands[0], U32), bytes=4, value=SPECIAL["activemask"])


_FAST = {
    ("s64", "s32"): "cvt.s64.s32",
    ("s64", "u32"): "cvt.u64.u32",
    ("u64", "u32"): "cvt.u64.u32",
    ("u32", "u64"): "cvt.u32.u64",
    ("s32", "s64"): "cvt.u32.u64",
    ("u32", "s64"): "cvt.u32.u64",
    ("s32", "u64"): "cvt.u32.u64",
    ("f32", "s32"): "cvt.f32.s32",
    ("f64", "f32"): "cvt.f64.f32",
    ("f32", "f64"): "cvt.f32.f64",
    ("f32", "f16"): "cvt.f32.f16",
    ("f16", "f32"): "cvt.f16.f32",
}
_FROM_SIGNED, _TO_SIGNED, _TO_INTEGRAL, _RELU = 2, 4, 8, 16


@handles("cvt")
def _convert(x: FunctionLowering, i: Instruction) -> None:
    m = Modifiers(i.modifiers)
    source = m.type()
    result = m.type()
    integral = m.one_of(_INTEGRAL)
    rounding = m.one_of((*ROUNDINGS, "rna"))
    mode = ROUNDINGS.get(rounding, 4) if rounding else 0
    mode |= FLUSH if m.has("ftz") else 0
    flags = (SATURATE if m.has("sat") else 0) | (_RELU if m.has("relu") else 0)
    satfinite = m.has("satfinite")
    m.done()
    if satfinite and not result.name.startswith("e"):
        raise Unknown("modifier .satfinite")
    if result.name.endswith("x2") or source.name.endswith("x2"):
        return _convert_two(x, i, result, source, mode, flags)
    plain = not mode & ~FLUSH and not flags and integral is None
    wide = _width(x, i.operands[1], source)
    to, width = x.target_of(i.operands[0], result.bytes)
    fast = _FAST.get((result.name, source.name))
    if fast and plain and not mode and (wide, width) == (source.bytes, result.bytes):
        x.emit(fast, to=to, a=x.source(i.operands[1], source))
        return
    a = x.source(i.operands[1], TYPES[f"b{8 * wide}"] if is_integer(source) else source)
    ints = is_integer(result), is_integer(source)
    flags |= (_FROM_SIGNED if source.kind == "s" else 0) | (_TO_SIGNED if result.kind == "s" else 0)
    c = source.bytes if ints[1] else _FORMATS[source.name]
    value = result.bytes if ints[0] else _FORMATS[result.name]
    name = {(True, True): "cvt.integers", (False, True): "cvt.to.float",
            (True, False): "cvt.to.integer", (False, False): "cvt.floats"}[ints]  # fmt: skip
    if integral is not None:
        mode = mode & FLUSH | _INTEGRAL[integral]
        flags |= _TO_INTEGRAL
    x.emit(name, to=to, a=a, b=wide, c=c, d=width, mode=mode, flags=flags, value=value)


def _width(x: FunctionLowering, operand: object, kind: Type) -> int:
    """The bytes of the register that an operand of a conversion is in: more than the type's, or
    as many."""
    if isinstance(operand, Register) and (known := x.register(operand.name)):
        return known[1].bytes
    return kind.bytes


def _convert_two(x: FunctionLowering, i: Instruction, result: Type, source: Type, mode: int,
                 flags: int) -> None:  # fmt: skip
    if source.name in ("e4m3x2", "e5m2x2") and result.name == "f16x2":
        a = x.source(i.operands[1], TYPES["b16"])
        to = x.target(i.operands[0], result)
        x.emit("cvt.fp8", to=to, a=a, b=2, d=4, value=_FORMATS[source.name])
        return
    if source.name != "f32":
        raise Unknown(f"conversion from {source.name}")
    a, b = (x.source(one, source) for one in i.operands[1:3])
    to = x.target(i.operands[0], TYPES[f"b{result.bits}"])
    format_ = _FORMATS[result.name.removesuffix("x2") if result.kind != "e" else result.name]
    x.emit("cvt.pack", to=to, a=a, b=b, d=result.bytes, mode=mode, flags=flags, value=format_)
