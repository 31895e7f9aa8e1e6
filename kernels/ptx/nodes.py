"""PTX as typed nodes: what the parser makes of a text, and the lowering reads."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache

_NAMES = re.compile(r"[%$_a-zA-Z][\w$]*")


@dataclass(frozen=True)
class Type:
    """A type such as s32, f16x2 or pred: its kind ("s", "u", "b", "f", "bf", "pred") and size."""

    name: str
    kind: str
    bits: int

    @property
    def bytes(self) -> int:
        return self.bits // 8


_KINDS = {"s": (8, 16, 32, 64), "u": (8, 16, 32, 64), "b": (8, 16, 32, 64, 128), "f": (32, 64)}
TYPES: dict[str, Type] = {
    f"{kind}{bits}": Type(f"{kind}{bits}", kind, bits)
    for kind, sizes in _KINDS.items()
    for bits in sizes
}
TYPES |= {
    "pred": Type("pred", "pred", 32),  # a mask of lanes in the machine
    "f16": Type("f16", "f", 16),
    "f16x2": Type("f16x2", "f", 32),
    "bf16": Type("bf16", "bf", 16),
    "bf16x2": Type("bf16x2", "bf", 32),
    "tf32": Type("tf32", "tf", 32),
    "e4m3x2": Type("e4m3x2", "e", 16),
    "e5m2x2": Type("e5m2x2", "e", 16),
}


@dataclass(frozen=True)
class Register:
    name: str


@dataclass(frozen=True)
class Negated:
    """`!p`"""

    name: str


@dataclass(frozen=True)
class Immediate:
    """A number: an int, or a float with its bits where PTX writes them (0f3F800000)."""

    value: int | float
    bits: int | None = None
    width: int = 0


@dataclass(frozen=True)
class Symbol:
    """A variable, function or label, and bytes from its beginning."""

    name: str
    offset: int = 0


@dataclass(frozen=True)
class Address:
    """`[base + offset]`"""

    base: Register | Symbol | Immediate
    offset: int = 0


@dataclass(frozen=True)
class Vector:
    """`{a, b}`"""

    items: tuple[Operand, ...]


@dataclass(frozen=True)
class Pair:
    """`p|q`: two results"""

    first: Operand
    second: Operand


@dataclass(frozen=True)
class Group:
    """`(a, b)`: the arguments or results of a call"""

    items: tuple[Operand, ...]


Operand = Register | Negated | Immediate | Symbol | Address | Vector | Pair | Group


@dataclass(frozen=True, slots=True)
class Instruction:
    """`@guard opcode.modifiers operands`; where: the number of its .loc in the function, or -1."""

    opcode: str
    modifiers: tuple[str, ...]
    operands: tuple[Operand, ...]
    guard: Register | Negated | None
    line: int
    where: int = -1

    @property
    def form(self) -> str:
        return ".".join((self.opcode, *self.modifiers))


@dataclass(frozen=True, slots=True)
class Label:
    name: str


@dataclass(frozen=True)
class Variable:
    """A variable: its state space, element type, name, bytes, alignment and initial values.

    values: numbers, or Symbols whose addresses are meant.
    """

    space: str
    type: Type
    name: str
    bytes: int
    align: int
    values: tuple[Immediate | Symbol, ...] = ()
    external: bool = False
    line: int = 0


@dataclass(frozen=True)
class Location:
    """A line of the source: `.loc`"""

    file: str
    line: int


@dataclass
class Function:
    """A kernel (.entry) or a function; `body` is parsed at its first use."""

    name: str
    is_kernel: bool
    parameters: tuple[Variable, ...]
    results: tuple[Variable, ...]
    text: str | None = field(repr=False)
    line: int
    directives: str = ""


@dataclass
class Body:
    """What stands between a function's braces: registers by name, variables, statements."""

    registers: dict[str, Type]
    families: dict[str, Type]  # `.reg .b32 %r<9>` declares those that begin with %r
    variables: list[Variable]
    statements: list[Instruction | Label]
    tables: dict[str, tuple[str, ...]]  # .branchtargets
    locations: list[Location]

    def register(self, name: str) -> Type | None:
        """The type of a register, None where it is not declared."""
        return self.registers.get(name) or self.families.get(name.rstrip("0123456789"))


@dataclass
class Program:
    """A module of PTX."""

    target: str
    functions: dict[str, Function]
    variables: dict[str, Variable]
    files: dict[int, str]
    text: str = field(repr=False)

    def address(self, function: str) -> int:
        """The number that stands for a function in tables and registers: not 0."""
        return 16 * (1 + list(self.functions).index(function))

    def named(self, text: str) -> set[str]:
        """The functions that a text names, itself or through the tables that it names."""
        found, todo = set(), set(_NAMES.findall(text))
        while todo:
            found |= todo
            tables = [self.variables[name] for name in todo if name in self.variables]
            values = {getattr(v, "name", "") for table in tables for v in table.values}
            todo = values - found
        return found & self.functions.keys()


@lru_cache(maxsize=256)
def type_named(name: str) -> Type | None:
    return TYPES.get(name)
