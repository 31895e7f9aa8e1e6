"""A kernel, and the functions that it calls, as operations of the machine."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from kernels.ptx import machine, parser
from kernels.ptx.nodes import (
    TYPES,
    Address,
    Body,
    Function,
    Immediate,
    Instruction,
    Label,
    Location,
    Negated,
    Operand,
    Pair,
    Program,
    Register,
    Symbol,
    Type,
    Variable,
)
from kernels.support.errors import CompileError

LANES = 32
GENERIC, GLOBAL, SHARED, LOCAL, PARAMETERS, AREA = range(6)  # Space in machine.h
WIDE_ADDRESS = 16  # a Flag in machine.h
_NAMES = re.compile(r"[%$_a-zA-Z][\w$]*")
_PACK = {1: "<B", 2: "<H", 4: "<I", 8: "<Q"}

# Special registers: what the machine calls them (Special in run.cpp), and their size.
_SPECIAL_NAMES = (
    "%tid.x %tid.y %tid.z %ntid.x %ntid.y %ntid.z %ctaid.x %ctaid.y %ctaid.z %nctaid.x %nctaid.y"
    " %nctaid.z %laneid %warpid %nwarpid %smid %nsmid %gridid %lanemask_eq %lanemask_le"
    " %lanemask_lt %lanemask_ge %lanemask_gt %clock %clock_hi %clock64 %globaltimer"
    " %dynamic_smem_size %total_smem_size activemask"
).split()
SPECIAL = {name: number for number, name in enumerate(_SPECIAL_NAMES)}


class Unknown(Exception):
    """An instruction, or a form of one, that the machine does not have."""


Handler = Callable[["FunctionLowering", Instruction], None]
HANDLERS: dict[str, Handler] = {}  # by opcode


def handles(*opcodes: str) -> Callable[[Handler], Handler]:
    """The decorated function lowers instructions with these opcodes."""

    def register(handler: Handler) -> Handler:
        HANDLERS.update(dict.fromkeys(opcodes, handler))
        return handler

    return register


class Modifiers:
    """What stands behind an opcode; each must be asked for, what is left is not known."""

    def __init__(self, names: Iterable[str]) -> None:
        self.left = list(names)

    def has(self, *names: str) -> bool:
        """Whether one of them is there."""
        return self.one_of(names) is not None

    def one_of(self, names: Iterable[str], default: str | None = None) -> str | None:
        for name in names:
            if name in self.left:
                self.left.remove(name)
                return name
        return default

    def drop(self, pattern: re.Pattern) -> None:
        """Forget what does not matter here."""
        self.left = [name for name in self.left if not pattern.fullmatch(name)]

    def type(self) -> Type:
        """The last of them, which is a type."""
        if not self.left or self.left[-1] not in TYPES:
            raise Unknown("an instruction without a type that is known")
        return TYPES[self.left.pop()]

    def done(self) -> None:
        if self.left:
            raise Unknown(f"modifier .{self.left[0]}")


@dataclass(frozen=True)
class Origin:
    """Where an operation comes from."""

    function: str
    line: int
    text: str
    location: Location | None
    instruction: Instruction | None = None


@dataclass
class Lowered:
    """A kernel as the machine takes it."""

    name: str
    ops: bytes
    lists: bytes
    constants: bytes
    origins: list[Origin]
    parameters: dict[str, tuple[int, int]]  # offset and bytes
    parameter_bytes: int
    register_bytes: int
    area_bytes: int
    local_bytes: int
    local_room: int
    static_shared: int
    alignment: int  # of dynamic shared memory, which follows
    most_threads: tuple[int, ...]  # .maxntid
    forms: list[str] = field(repr=False, default_factory=list)
    registers: dict[str, dict[str, int]] = field(repr=False, default_factory=dict)  # by function
    labels: frozenset[int] = frozenset()  # operations that branches go to
    targets: dict[int, int] = field(repr=False, default_factory=dict)  # of branches: where to


def lower(program: Program, name: str, globals_: dict[str, tuple[int, int]]) -> Lowered:
    """The kernel `name`, whose module's variables lie at the addresses of `globals_`.

    Raises CompileError that names the first instruction that is not known, and its line.
    """
    return _Lowering(program, program.functions[name], globals_).lowered()


class _Lowering:
    """What the functions of a kernel share: operations, constants, shared memory."""

    def __init__(
        self, program: Program, kernel: Function, globals_: dict[str, tuple[int, int]]
    ) -> None:
        self.program, self.kernel, self.globals = program, kernel, globals_
        self.codes = machine.codes()
        self.ops: list[list] = []
        self.origins: list[Origin] = []
        self.forms: list[str] = []
        self.lists: list[int] = []
        self.constants = bytearray()
        self.constant_at: dict[tuple[int, int], int] = {}
        self.reachable = self._reachable(kernel)
        self.shared, self.static_shared, self.alignment = self._shared()
        self.functions: dict[str, FunctionLowering] = {}

    def _reachable(self, kernel: Function) -> list[Function]:
        """The kernel and all functions with a body that it may call."""
        found, todo = {kernel.name: kernel}, [kernel]
        others = {name for name, f in self.program.functions.items() if not f.is_kernel}
        while todo:
            for name in self.program.named(todo.pop().text or "") & others - set(found):
                function = self.program.functions[name]
                if function.text is not None:
                    found[name] = function
                    todo.append(function)
        return list(found.values())

    def _shared(self) -> tuple[dict[str, int], int, int]:
        """Offsets of the shared variables that are named; the bytes of the static ones, and the
        alignment of the dynamic ones, which follow."""
        names: set[str] = set()
        for function in self.reachable:
            names |= set(_NAMES.findall(function.text or ""))
        offsets, at, dynamic, alignment = {}, 0, [], 16
        for name, variable in self.program.variables.items():
            if variable.space != "shared" or name not in names:
                continue
            if variable.external or variable.bytes == 0:
                dynamic.append(name)
                alignment = max(alignment, variable.align)
                continue
            at = _aligned(at, variable.align)
            offsets[name] = at
            at += variable.bytes
        self.bodies = {f.name: parser.body(f, self.program.files) for f in self.reachable}
        for function in self.reachable:
            for variable in self.bodies[function.name].variables:
                if variable.space == "shared":
                    at = _aligned(at, variable.align)
                    offsets[f"{function.name}:{variable.name}"] = at
                    at += variable.bytes
        for name in dynamic:
            offsets[name] = _aligned(at, alignment)
        return offsets, at, alignment

    def lowered(self) -> Lowered:
        for function in self.reachable:
            self.functions[function.name] = FunctionLowering(
                self, function, self.bodies[function.name]
            )
        for function in self.functions.values():
            function.run()
        for function in self.functions.values():
            function.finish()
        kernel = self.functions[self.kernel.name]
        recursive = sum(f.local_bytes for f in self.functions.values())
        room = _aligned(min(16 * recursive, 1 << 18) if len(self.functions) > 1 else recursive, 16)
        most = re.search(r"\.maxntid\s+([\d,\s]+)", self.kernel.directives)
        return Lowered(
            self.kernel.name,
            b"".join(machine.OPERATION.pack(*op) for op in self.ops),
            struct.pack(f"<{len(self.lists)}i", *self.lists),
            bytes(self.constants),
            self.origins,
            kernel.parameters,
            kernel.parameter_bytes,
            kernel.register_bytes,
            kernel.area_bytes,
            kernel.local_bytes,
            room,
            self.static_shared,
            self.alignment,
            tuple(int(n) for n in most[1].split(",")) if most else (),
            self.forms,
            {name: function.offsets for name, function in self.functions.items()},
            frozenset(at for f in self.functions.values() for at in (f.first, *f.labels.values())),
            {n: f.labels[label] for f in self.functions.values() for n, label in f.branches},
        )

    def constant(self, value: int, size: int) -> int:
        """The offset of a register of all lanes with this value: negative."""
        value &= (1 << 8 * size) - 1
        key = (value, size)
        if key not in self.constant_at:
            self.constants += bytes(-len(self.constants) % 64)
            self.constant_at[key] = ~len(self.constants)
            self.constants += struct.pack(_PACK[size], value) * LANES
        return self.constant_at[key]

    def list(self, values: Iterable[int]) -> int:
        """The index of numbers in the lists."""
        at = len(self.lists)
        self.lists += values
        return at


def _aligned(at: int, align: int) -> int:
    return (at + align - 1) // align * align


class FunctionLowering:
    """One function. Handlers of opcodes (arithmetic, memory, control, warps, tensors) read operands
    with `source`, `target` and `predicate`, and give operations to `emit`."""

    def __init__(self, whole: _Lowering, function: Function, body: Body) -> None:
        self.whole, self.function, self.body = whole, function, body
        self.first = 0
        self.register_bytes = 0
        self.area_bytes = 0
        self.local_bytes = 0
        self.parameter_bytes = 0
        self.offsets: dict[str, int] = {}
        self.parameters: dict[str, tuple[int, int]] = {}  # of a kernel
        self.area: dict[str, tuple[int, int]] = {}  # parameters of calls, by lane
        self.locals: dict[str, int] = {}
        self.labels: dict[str, int] = {}
        self.branches: list[tuple[int, str]] = []
        self.tables: list[tuple[int, str, Instruction]] = []
        self.calls: list[tuple[int, str]] = []
        self.instruction: Instruction | None = None
        self._declare()

    def _declare(self) -> None:
        for variable in self.function.results:
            self._in_area(variable)
        for variable in self.function.parameters:
            if self.function.is_kernel:
                at = _aligned(self.parameter_bytes, variable.align)
                self.parameters[variable.name] = (at, variable.bytes)
                self.parameter_bytes = at + variable.bytes
            else:
                self._in_area(variable)
        for variable in self.body.variables:
            if variable.space == "param":
                self._in_area(variable)
            elif variable.space == "local":
                at = _aligned(self.local_bytes, max(variable.align, 1))
                self.locals[variable.name] = at
                self.local_bytes = at + variable.bytes
        self.area_bytes = _aligned(self.area_bytes, 16)
        self.local_bytes = _aligned(self.local_bytes, 16)

    def _in_area(self, variable: Variable) -> None:
        if variable.space == "reg":
            raise CompileError(
                f"PTX line {self.function.line}: function {self.function.name} passes registers;"
                " only parameters in .param are known"
            )
        at = _aligned(self.area_bytes, variable.align)
        self.area[variable.name] = (at, variable.bytes)
        self.area_bytes = at + variable.bytes

    # -- registers and operands --

    def room(self, size: int) -> int:
        """A new register of `size` bytes per lane (0: a predicate)."""
        at = self.register_bytes
        self.register_bytes += max(LANES * size, 64)
        return at

    def register(self, name: str) -> tuple[int, Type] | None:
        """The offset and type of a register, None where it is not declared."""
        kind = self.body.register(name)
        if kind is None:
            return None
        if name not in self.offsets:
            self.offsets[name] = self.room(0 if kind.kind == "pred" else kind.bytes)
        return self.offsets[name], kind

    def source(self, operand: Operand, kind: Type, wider: bool = False) -> int:
        """The offset of a register that holds an operand of a type.

        wider: a register may be wider than the type, whose lower bits are meant.
        """
        size = kind.bytes
        if isinstance(operand, Immediate):
            return self.whole.constant(bits_of(operand, kind), size)
        if isinstance(operand, Symbol):
            return self._symbol(operand.name, operand.offset, size)
        if not isinstance(operand, Register):
            raise Unknown(f"operand {operand}")
        known = self.register(operand.name)
        if known is None:
            if operand.name in SPECIAL:
                return self._special(operand.name, size)
            return self._symbol(operand.name, 0, size)
        offset, own = known
        if own.kind == "pred":
            raise Unknown(f"predicate {operand.name} as a number")
        if own.bytes == size:
            return offset
        if own.bytes < size or not wider:
            raise Unknown(f"register {operand.name} of type {own.name} for .{kind.name}")
        return self.resize(offset, own.bytes, size)

    def resize(self, offset: int, size: int, to: int, has_sign: bool = False) -> int:
        """A register of `to` bytes with what one of `size` bytes holds."""
        room = self.room(to)
        self.emit("resize", to=room, a=offset, bytes=size, count=to, flags=has_sign)
        return room

    def _special(self, name: str, size: int) -> int:
        room = self.room(size)
        self.emit("special", to=room, bytes=size, value=SPECIAL[name])
        return room

    def _symbol(self, name: str, offset: int, size: int) -> int:
        """A register with the address of a variable in its state space."""
        if name in self.locals:
            room = self.room(size)
            self.emit("local", to=room, bytes=size, value=self.locals[name] + offset)
            return room
        return self.whole.constant(self.address_of(name) + offset, size)

    def address_of(self, name: str) -> int:
        """The address of a variable in its state space. Raises Unknown where there is none."""
        own = f"{self.function.name}:{name}"
        for at in (own, name):
            if at in self.whole.shared:
                return self.whole.shared[at]
        if name in self.parameters:
            return self.parameters[name][0]
        if name in self.whole.globals:
            return self.whole.globals[name][0]
        if name in self.whole.program.functions:
            return self.whole.program.address(name)
        if name.startswith("%"):
            raise Unknown(f"register {name}, which is not declared")
        raise Unknown(f"name {name}, which is no variable")

    def target(self, operand: Operand, kind: Type) -> int:
        """The offset of the register that gets a result of a type."""
        return self.target_of(operand, kind.bytes)[0]

    def target_of(self, operand: Operand, size: int) -> tuple[int, int]:
        """The offset and size of the register that gets a result; it may be larger."""
        if not isinstance(operand, Register):
            raise Unknown(f"result {operand}")
        if operand.name == "_":
            return self.room(size), size
        known = self.register(operand.name)
        if known is None or known[1].kind == "pred":
            raise Unknown(f"result {operand.name}, which is no register of a number")
        if known[1].bytes < size:
            raise Unknown(f"result {operand.name} of type {known[1].name} for {size} bytes")
        return known[0], known[1].bytes

    def predicate(self, operand: Operand) -> tuple[int, bool]:
        """The offset of a predicate, and whether its opposite is meant."""
        if isinstance(operand, Immediate):
            return self.whole.constant(-1 if operand.value else 0, 4), False
        if not isinstance(operand, Register | Negated):
            raise Unknown(f"predicate {operand}")
        if operand.name == "_":
            return self.room(0), False
        if operand.name in ("%pt", "%pf"):
            return self.whole.constant(-1 if operand.name == "%pt" else 0, 4), False
        known = self.register(operand.name)
        if known is None or known[1].kind != "pred":
            raise Unknown(f"{operand.name}, which is no predicate")
        return known[0], isinstance(operand, Negated)

    def two(self, operand: Operand) -> tuple[Operand, Operand | None]:
        """`p|q` as two, else one and None."""
        return (operand.first, operand.second) if isinstance(operand, Pair) else (operand, None)

    def address(self, operand: Operand, space: int) -> dict[str, int]:
        """What an operation needs to know of `[a + 16]`: space, a, value, flags."""
        if not isinstance(operand, Address):
            raise Unknown(f"address {operand}")
        base, offset = operand.base, operand.offset
        if isinstance(base, Immediate):
            zero = self.whole.constant(0, 8)
            return dict(space=space, a=zero, value=int(base.value) + offset, flags=WIDE_ADDRESS)
        known = self.register(base.name)
        if known:
            wide = known[1].bytes == 8
            if known[1].bytes not in (4, 8):
                raise Unknown(f"address in a register of type {known[1].name}")
            return dict(space=space, a=known[0], value=offset, flags=WIDE_ADDRESS if wide else 0)
        if base.name in self.area:
            zero = self.whole.constant(0, 8)
            at = self.area[base.name][0] + offset
            return dict(space=AREA, a=zero, value=at, flags=WIDE_ADDRESS)
        if base.name in self.locals:
            room = self._symbol(base.name, 0, 8)
            return dict(space=LOCAL, a=room, value=offset, flags=WIDE_ADDRESS)
        zero, at = self.whole.constant(0, 8), self.address_of(base.name) + offset
        return dict(space=space, a=zero, value=at, flags=WIDE_ADDRESS)

    # -- operations --

    def emit(
        self, name: str, *, to: int = 0, a: int = 0, b: int = 0, c: int = 0, d: int = 0,
        bytes: int = 0, count: int = 0, flags: int = 0, mode: int = 0, space: int = 0,
        value: int = 0, list: int = 0, target: int = 0,
    ) -> int:  # fmt: skip
        """Add an operation with the guard of the instruction at hand; its number."""
        code = self.whole.codes.get(name)
        if code is None:
            raise Unknown(f"operation {name}")
        guard, predicate = 0, 0
        if self.instruction is not None and self.instruction.guard is not None:
            predicate, negated = self.predicate(self.instruction.guard)
            guard = 2 if negated else 1
        self.whole.ops.append(
            [code, guard, mode, space, bytes, count, flags, predicate, to, a, b, c, d, target,
             list, value]
        )  # fmt: skip
        self.whole.origins.append(self.origin)
        self.whole.forms.append(self.form)
        return len(self.whole.ops) - 1

    def run(self) -> None:
        """Lower all statements."""
        self.first = len(self.whole.ops)
        for statement in self.body.statements:
            if isinstance(statement, Label):
                self.labels[statement.name] = len(self.whole.ops)
                continue
            self.instruction = statement
            self.form = statement.form
            where = statement.where
            location = self.body.locations[where] if where >= 0 else None
            self.origin = Origin(
                self.function.name, statement.line, statement.form, location, statement
            )
            handler = HANDLERS.get(statement.opcode)
            try:
                if handler is None:
                    raise Unknown("this opcode")
                handler(self, statement)
            except (Unknown, IndexError) as problem:
                reason = "its number of operands" if isinstance(problem, IndexError) else problem
                raise CompileError(
                    f"{self.function.name}: PTX line {statement.line}: {statement.form} is not"
                    f" available on the CPU: {reason} is not known"
                ) from None
        self.instruction = None
        self.form = "ret"
        self.origin = Origin(self.function.name, self.function.line, "the end", None)
        self.emit("ret")

    def finish(self) -> None:
        """Fill in where branches and calls go to."""
        ops, lists = self.whole.ops, self.whole.lists
        for number, label in self.branches:
            ops[number][13] = self._label(label, number)
        for number, table, _ in self.tables:
            targets = [self._label(label, number) for label in self.body.tables[table]]
            ops[number][14] = self.whole.list(targets)
            ops[number][15] = len(targets)
        for at, name in self.calls:
            callee = self.whole.functions[name]
            lists[at : at + 5] = [
                callee.first, callee.register_bytes, callee.area_bytes, callee.local_bytes,
                self.local_bytes,
            ]  # fmt: skip

    def _label(self, name: str, number: int) -> int:
        if name not in self.labels:
            line = self.whole.origins[number].line
            raise CompileError(f"{self.function.name}: PTX line {line}: no label {name}")
        return self.labels[name]


def bits_of(immediate: Immediate, kind: Type) -> int:
    """The bits of a number as a value of a type."""
    value = immediate.value
    if kind.kind not in ("f", "bf", "tf") or kind.name in ("f16x2", "bf16x2"):
        if isinstance(value, float):
            if immediate.bits is not None and immediate.width == kind.bits:
                return immediate.bits  # mov.b32 %r, 0f3F800000
            raise Unknown(f"the float {value} for .{kind.name}")
        return value
    if immediate.bits is not None and immediate.width == kind.bits:
        return immediate.bits
    if kind.bits == 16:
        if isinstance(value, int):
            return value
        if kind.kind == "bf":
            return struct.unpack("<I", struct.pack("<f", value))[0] >> 16
        return struct.unpack("<H", struct.pack("<e", value))[0]
    return int.from_bytes(struct.pack("<f" if kind.bits == 32 else "<d", value), "little")
