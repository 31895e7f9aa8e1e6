"""Tensor cores as operations of the machine: mma.sync, wmma, ldmatrix, stmatrix, movmatrix."""

from __future__ import annotations

import re

from kernels.ptx.lowering import (
    GENERIC,
    GLOBAL,
    SHARED,
    FunctionLowering,
    Modifiers,
    Unknown,
    handles,
)
from kernels.ptx.nodes import TYPES, Immediate, Instruction, Operand, Register, Vector

U32 = TYPES["u32"]
SATFINITE, TRANSPOSED = 1, 1  # flags in machine/tensors.h
# Formats of elements (floats.h, tensors.h), and the bytes of a register that holds them.
_FORMATS = {"f16": 1, "bf16": 2, "tf32": 3, "f32": 4, "f64": 5, "s8": 8, "u8": 9, "s32": 10}
_SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)")
_SPACES = {"global": GLOBAL, "shared": SHARED, "shared::cta": SHARED}
# Shapes of mma whose lanes hold matrices as machine/tensors.h has them, by the type of A.
_MMA = {
    "f16": ("m16n8k8", "m16n8k16"), "bf16": ("m16n8k8", "m16n8k16"),
    "tf32": ("m16n8k4", "m16n8k8"), "f64": ("m8n8k4",),
    "s8": ("m16n8k16", "m16n8k32"), "u8": ("m16n8k16", "m16n8k32"),
}  # fmt: skip
_WMMA = {
    "f16": ("m16n16k16", "m32n8k16", "m8n32k16"), "bf16": ("m16n16k16", "m32n8k16", "m8n32k16"),
    "s8": ("m16n16k16", "m32n8k16", "m8n32k16"), "u8": ("m16n16k16", "m32n8k16", "m8n32k16"),
    "tf32": ("m16n16k8",), "f64": ("m8n8k4",),
}  # fmt: skip


def _bytes(element: str) -> int:
    return 8 if element == "f64" else 4


def _items(operand: Operand) -> tuple[Operand, ...]:
    return operand.items if isinstance(operand, Vector) else (operand,)


def _fragment(x: FunctionLowering, operand: Operand, element: str, rows: int, columns: int,
              result: bool = False) -> list[int]:  # fmt: skip
    """The registers of a matrix as the machine's lists have them."""
    size = _bytes(element)
    kind = TYPES[f"b{8 * size}"]
    items = _items(operand)
    width = {"f64": 64, "f16": 16, "bf16": 16, "s8": 8, "u8": 8}.get(element, 32)
    held = 32 * len(items) * (8 * size // width)
    if held < rows * columns or held % (rows * columns):
        raise Unknown(f"{len(items)} registers for {rows} x {columns} elements of {element}")
    places = [x.target(one, kind) if result else x.source(one, kind) for one in items]
    return [len(items), size, _FORMATS[element], *places]


def _shape(m: Modifiers) -> tuple[str, int, int, int]:
    for name in m.left:
        if match := _SHAPE.fullmatch(name):
            m.left.remove(name)
            return name, int(match[1]), int(match[2]), int(match[3])
    raise Unknown("an instruction without a shape")


def _product(x: FunctionLowering, i: Instruction, m: Modifiers, name: str, known: dict,
             elements: list[str]) -> None:  # fmt: skip
    """D = A B + C; elements: the types of D, A, B and C."""
    shape, rows, columns, depth = _shape(m)
    m.has("rn")  # of f64
    flags = SATFINITE if m.has("satfinite") else 0
    m.done()
    d, a, b, c = elements
    if (
        shape not in known.get(a, ())
        or {d, c} - set(_FORMATS)
        or (a != b and {a, b} != {"s8", "u8"})
    ):
        raise Unknown(f"a product of {a} and {b} of shape {shape}")
    numbers = [rows, columns, depth]
    numbers += _fragment(x, i.operands[0], d, rows, columns, result=True)
    numbers += _fragment(x, i.operands[1], a, rows, depth)
    numbers += _fragment(x, i.operands[2], b, depth, columns)
    numbers += _fragment(x, i.operands[3], c, rows, columns)
    x.emit(name, list=x.whole.list(numbers), flags=flags)


def _elements(m: Modifiers, count: int) -> list[str]:
    found = [name for name in m.left if name in _FORMATS]
    for name in found:
        m.left.remove(name)
    if len(found) != count:
        raise Unknown(f"{len(found)} types")
    return found


@handles("mma")
def _mma(x: FunctionLowering, i: Instruction) -> None:
    m = Modifiers(i.modifiers)
    if not (m.has("sync") and m.has("aligned") and m.has("row") and m.has("col")):
        raise Unknown("a product that is not .sync.aligned, .row by .col")
    _product(x, i, m, "mma", _MMA, _elements(m, 4))


@handles("wmma")
def _wmma(x: FunctionLowering, i: Instruction) -> None:
    m = Modifiers(i.modifiers)
    if not (m.has("sync") and m.has("aligned")):
        raise Unknown("a form without .sync.aligned")
    if m.has("mma"):
        m.one_of(("row", "col"))  # of A and of B: fragments are the same for both
        m.one_of(("row", "col"))
        names = [name for name in m.left if name in _FORMATS]
        if len(names) == 2:  # D and C, of f16
            elements = [names[0], "f16", "f16", names[1]]
            m.left = [name for name in m.left if name not in _FORMATS]
        else:
            elements = _elements(m, 4)
        return _product(x, i, m, "wmma.mma", _WMMA, elements)
    loads = m.has("load")
    if not loads and not m.has("store"):
        raise Unknown("what is done")
    matrix = m.one_of("abcd")
    by_rows = m.one_of(("row", "col")) == "row"
    space = _SPACES[m.one_of(_SPACES) or ""] if set(m.left) & set(_SPACES) else GENERIC
    (element,) = _elements(m, 1)
    shape, rows, columns, depth = _shape(m)
    m.done()
    if not any(shape in shapes for shapes in _WMMA.values()):
        raise Unknown(f"shape {shape}")
    rows, columns = {"a": (rows, depth), "b": (depth, columns)}.get(matrix, (rows, columns))
    operand, at = i.operands[:2] if loads else i.operands[1::-1]
    stride = i.operands[2] if len(i.operands) > 2 else Immediate(columns if by_rows else rows)
    numbers = [rows, columns, int(by_rows)]
    numbers += _fragment(x, operand, element, rows, columns, result=loads)
    where = x.address(at, space)
    if where["value"]:  # the machine adds nothing
        room = x.room(8)
        wide = where["flags"]
        base = where["a"] if wide else x.resize(where["a"], 4, 8)
        x.emit("add.b64", to=room, a=base, b=x.whole.constant(where["value"], 8))
        where |= dict(a=room, value=0, flags=16)
    name = "wmma.load" if loads else "wmma.store"
    x.emit(name, b=x.source(stride, U32), list=x.whole.list(numbers), **where)


@handles("ldmatrix", "stmatrix")
def _matrices(x: FunctionLowering, i: Instruction) -> None:
    m = Modifiers(i.modifiers)
    trans = m.has("trans")
    count = int((m.one_of(("x1", "x2", "x4")) or "x1")[1:])
    known = m.has("sync") and m.has("aligned") and m.has("m8n8") and m.has("b16")
    if not known or not m.has("shared", "shared::cta"):
        raise Unknown("a form that is not .sync.aligned.m8n8.shared.b16")
    m.done()
    loads = i.opcode == "ldmatrix"
    operand, at = i.operands if loads else i.operands[::-1]
    items = _items(operand)
    if len(items) != count or not all(isinstance(one, Register) for one in items):
        raise Unknown(f"{len(items)} registers for {count} matrices")
    places = [x.target(one, U32) if loads else x.source(one, U32) for one in items]
    where = x.address(at, SHARED)
    where["flags"] |= TRANSPOSED if trans else 0
    x.emit(i.opcode, list=x.whole.list(places), count=count, **where)


@handles("movmatrix")
def _transpose(x: FunctionLowering, i: Instruction) -> None:
    m = Modifiers(i.modifiers)
    known = m.has("sync") and m.has("aligned") and m.has("m8n8") and m.has("trans") and m.has("b16")
    m.done()
    if not known:
        raise Unknown("this form")
    x.emit("movmatrix", to=x.target(i.operands[0], U32), a=x.source(i.operands[1], U32))
