"""Branches, calls, barriers, and what lanes of a warp do together, as operations of the machine."""

from __future__ import annotations

from typing import Any

from kernels.ptx.lowering import HANDLERS, FunctionLowering, Modifiers, Unknown, handles
from kernels.ptx.nodes import TYPES, Group, Immediate, Instruction, Register
from kernels.support.errors import CompileError

U32 = TYPES["u32"]
NEGATE_C = 2  # a Flag in machine.h
ALIGNED, ARRIVES = 1, 4  # flags of barriers
_COLLECTIVES = {  # Collective in machine/warps.h
    name: number
    for number, name in enumerate(
        "up down bfly idx vote.all vote.any vote.uni vote.ballot match.any match.all redux.add.u32"
        " redux.min.s32 redux.max.s32 redux.min.u32 redux.max.u32 redux.and.b32 redux.or.b32"
        " redux.xor.b32 redux.min.f32 redux.max.f32 elect sync".split()
    )
}
_COLLECTIVES["redux.add.s32"] = _COLLECTIVES["redux.add.u32"]


@handles("bra")
def _branch(x: FunctionLowering, i: Instruction) -> None:
    m = Modifiers(i.modifiers)
    m.has("uni")
    m.done()
    number = x.emit("bra")
    x.branches.append((number, i.operands[0].name))


@handles("brx")
def _table_branch(x: FunctionLowering, i: Instruction) -> None:
    m = Modifiers(i.modifiers)
    m.has("uni")
    if not m.has("idx"):
        raise Unknown("a branch without .idx")
    m.done()
    table = i.operands[1].name
    if table not in x.body.tables:
        raise Unknown(f"table {table}")
    a = x.source(i.operands[0], U32)
    x.tables.append((x.emit("brx", a=a), table, i))


@handles("exit", "ret", "trap", "brkpt")
def _end(x: FunctionLowering, i: Instruction) -> None:
    m = Modifiers(i.modifiers)
    m.has("uni")
    m.done()
    x.emit("trap" if i.opcode == "brkpt" else i.opcode)


@handles("nanosleep")
def _sleep(x: FunctionLowering, i: Instruction) -> None:
    x.emit("sleep")


@handles("pmevent", "griddepcontrol", "setmaxnreg")
def _ignored(x: FunctionLowering, i: Instruction) -> None:
    x.emit("nothing")


_NEEDED = {"vprintf": 2, "__assertfail": 5}


@handles("call")
def _call(x: FunctionLowering, i: Instruction) -> None:
    m = Modifiers(i.modifiers)
    m.has("uni")
    m.done()
    operands = list(i.operands)
    results = operands.pop(0).items if isinstance(operands[0], Group) else ()
    name = operands.pop(0)
    arguments = operands[0].items if operands and isinstance(operands[0], Group) else ()
    if not isinstance(name, Register):
        raise Unknown(f"a call of {name}")
    if x.register(name.name):
        return _call_through(x, i, name, results, arguments)
    function = x.whole.program.functions.get(name.name)
    places = [_place(x, one) for one in (*arguments, *results)]
    given, taken = places[: len(arguments)], places[len(arguments) :]
    if function is None or function.text is None:
        return _call_host(x, name.name, given, taken)
    callee = x.whole.functions[name.name]
    formal = [callee.area[p.name] for p in function.parameters]
    returned = [callee.area[p.name] for p in function.results]
    if len(formal) != len(given) or len(returned) != len(taken):
        raise Unknown("the number of arguments")
    numbers = [0, 0, 0, 0, 0, len(given)]
    for (at, size), (to, _) in zip(given, formal):
        numbers += [at, to, size]
    numbers.append(len(taken))
    for (at, size), (to, _) in zip(returned, taken):
        numbers += [at, to, size]
    number = x.whole.list(numbers)
    x.emit("call", list=number)
    x.calls.append((number, name.name))


def _call_through(
    x: FunctionLowering, i: Instruction, address: Register, results: tuple, arguments: tuple
) -> None:
    """A call of the function whose address a register holds: a guarded call of each that fits."""
    sizes = [[_place(x, one)[1] for one in several] for several in (arguments, results)]
    x.body.registers |= dict.fromkeys(("%its", "%others"), TYPES["pred"])
    its, others = Register("%its"), Register("%others")

    def add(opcode: str, modifiers: tuple, operands: tuple, guard: Any) -> None:
        x.instruction = Instruction(opcode, modifiers, operands, guard, i.line, i.where)
        HANDLERS[opcode](x, x.instruction)

    zero = Immediate(0)
    add("setp", ("eq", "and", "u64"), (others, zero, zero, i.guard or Immediate(1)), None)
    for function in x.whole.reachable:
        formal = [[p.bytes for p in several] for several in (function.parameters, function.results)]
        if function.is_kernel or formal != sizes:
            continue
        place = Immediate(x.whole.program.address(function.name))
        add("setp", ("eq", "and", "u64"), (its, address, place, others), None)
        add("setp", ("ne", "and", "u64"), (others, address, place, others), None)
        add("call", (), (Group(results), Register(function.name), Group(arguments)), its)
    add("trap", (), (), others)
    x.instruction = i


def _place(x: FunctionLowering, operand: object) -> tuple[int, int]:
    """The offset and size of an argument of a call."""
    if isinstance(operand, Register) and operand.name in x.area:
        return x.area[operand.name]
    raise Unknown(f"argument {operand} of a call, which is no variable in .param,")


def _call_host(x: FunctionLowering, name: str, given: list[tuple[int, int]],
               taken: list[tuple[int, int]]) -> None:  # fmt: skip
    """A function that has no body: the machine has it, or it is not available."""
    if len(given) < _NEEDED.get(name, 99):
        raise CompileError(
            f"{x.function.name}: PTX line {x.instruction.line}: function {name} is not available on"
            " the CPU"
        )
    at = [place for place, _ in given]
    if name == "vprintf":
        x.emit("vprintf", a=at[0], b=at[1], to=taken[0][0] if taken else -1)
    else:
        x.emit("assertfail", a=at[0], b=at[1], c=at[2], d=at[3])


# -- barriers ----------------------------------------------------------------------------------


@handles("bar", "barrier")
def _barrier(x: FunctionLowering, i: Instruction) -> None:
    m = Modifiers(i.modifiers)
    if m.has("warp"):
        m.has("sync")
        m.done()
        return _collect(x, "sync", d=x.source(i.operands[0], U32))
    m.has("cta")
    flags = ALIGNED if m.has("aligned") or i.opcode == "bar" else 0
    operands = list(i.operands)
    if m.has("red"):
        kind = m.type()
        what = ("popc", "and", "or").index(m.one_of(("popc", "and", "or"), "popc")) + 1
        m.has("aligned")
        m.done()
        to = operands.pop(0)
        place = x.target(to, U32) if kind.name == "u32" else x.predicate(to)[0]
        c, negated = x.predicate(operands.pop())
        flags |= NEGATE_C if negated else 0
        return _emit_barrier(x, operands, flags, to=place, c=c, count=what)
    arrives = m.one_of(("sync", "arrive")) == "arrive"
    m.done()
    _emit_barrier(x, operands, flags | (ARRIVES if arrives else 0))


def _emit_barrier(x: FunctionLowering, operands: list, flags: int, **more: int) -> None:
    a = x.source(operands[0] if operands else Immediate(0), U32)
    b = x.source(operands[1], U32) if len(operands) > 1 else x.whole.constant(0, 4)
    x.emit("bar", a=a, b=b, flags=flags, **more)


# -- collectives -------------------------------------------------------------------------------


def _collect(
    x: FunctionLowering, kind: str, *, target: int = -1, size: int = 4, **more: int
) -> None:
    x.emit("collective", count=_COLLECTIVES[kind], target=target, bytes=size, **more)


def _must_be_sync(m: Modifiers) -> None:
    if not m.has("sync"):
        raise Unknown("the form without .sync, which GPUs since Volta lack,")


@handles("shfl")
def _shuffle(x: FunctionLowering, i: Instruction) -> None:
    m = Modifiers(i.modifiers)
    kind = m.type()
    _must_be_sync(m)
    mode = m.one_of(("up", "down", "bfly", "idx"))
    m.done()
    result, holds = x.two(i.operands[0])
    a = x.source(i.operands[1], kind)
    b, c, mask = (x.source(one, U32) for one in i.operands[2:5])
    target = x.predicate(holds)[0] if holds is not None else -1
    _collect(x, mode, to=x.target(result, kind), a=a, b=b, c=c, d=mask, target=target)


@handles("vote")
def _vote(x: FunctionLowering, i: Instruction) -> None:
    m = Modifiers(i.modifiers)
    kind = m.type()
    _must_be_sync(m)
    what = m.one_of(("all", "any", "uni", "ballot"))
    m.done()
    a, negated = x.predicate(i.operands[1])
    mask = x.source(i.operands[2], U32)
    to = x.target(i.operands[0], kind) if what == "ballot" else x.predicate(i.operands[0])[0]
    _collect(x, f"vote.{what}", to=to, a=a, d=mask, flags=NEGATE_C if negated else 0)


@handles("match")
def _match(x: FunctionLowering, i: Instruction) -> None:
    m = Modifiers(i.modifiers)
    kind = m.type()
    _must_be_sync(m)
    what = m.one_of(("any", "all"))
    m.done()
    result, holds = x.two(i.operands[0])
    a, mask = x.source(i.operands[1], kind), x.source(i.operands[2], U32)
    target = x.predicate(holds)[0] if holds is not None else -1
    _collect(x, f"match.{what}", to=x.target(result, U32), a=a, d=mask, target=target,
             size=kind.bytes)  # fmt: skip


@handles("redux")
def _reduce(x: FunctionLowering, i: Instruction) -> None:
    m = Modifiers(i.modifiers)
    kind = m.type()
    _must_be_sync(m)
    what = m.one_of(("add", "min", "max", "and", "or", "xor"))
    m.done()
    a, mask = x.source(i.operands[1], kind), x.source(i.operands[2], U32)
    _collect(x, f"redux.{what}.{kind.name}", to=x.target(i.operands[0], kind), a=a, d=mask)


@handles("elect")
def _elect(x: FunctionLowering, i: Instruction) -> None:
    m = Modifiers(i.modifiers)
    _must_be_sync(m)
    m.done()
    result, holds = x.two(i.operands[0])
    mask = x.source(i.operands[1], U32)
    target = x.predicate(holds)[0] if holds is not None else -1
    _collect(x, "elect", to=x.target(result, U32), d=mask, target=target)
