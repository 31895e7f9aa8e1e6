"""A thin expression layer over llvmlite's builder, for device functions written as LLVM IR.

Device functions are intrinsics rather than compiled Python because they must disappear into the
loops that call them: no error paths, no type inference at every use, nothing that keeps LLVM from
vectorising. `V` wraps a value so that the code reads as arithmetic:

    n = (x * LOG2E).rint();  r = x - n * LN2

Every floating-point instruction carries the `contract` flag (a multiply feeding an add may become
one FMA, as on CUDA) and, having a flag, is left alone by Numba's fastmath rewriting: reassociation
would undo the compensated steps below.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from llvmlite.ir.instructions import FastMathFlags
from numba.core import types

F32, F64 = ir.FloatType(), ir.DoubleType()
I8, I16, I32, I64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))
_FLAGS = ("contract",)
_INT_OF = {F32: I32, F64: I64}


class _Exact(FastMathFlags):
    """Flags that stay as they are when Numba's fastmath rewriting adds its own to every call: LLVM
    would compute a square root from an estimate, 3 ulp off and 0 for subnormal numbers, where the
    processor's instruction is slow (AVX2)."""

    def add(self, name: str) -> None:
        if name in _FLAGS:
            super().add(name)


Operand = Any  # a V, or a Python number that becomes a constant of the other operand's type


class V:
    """An LLVM value with arithmetic. Integers are signed unless the method's name says not."""

    __slots__ = ("builder", "value")
    __hash__ = None  # comparisons build instructions

    def __init__(self, builder: ir.IRBuilder, value: ir.Value) -> None:
        self.builder, self.value = builder, value

    @property
    def type(self) -> ir.Type:
        return self.value.type

    def constant(self, number: float) -> V:
        """`number` as a constant of this value's type."""
        return V(self.builder, ir.Constant(self.type, number))

    def _raw(self, other: Operand) -> ir.Value:
        return other.value if isinstance(other, V) else ir.Constant(self.type, other)

    def _arithmetic(self, other: Operand, of_float: str, of_int: str, swap: bool = False) -> V:
        pair = (self.value, self._raw(other))
        a, b = pair[::-1] if swap else pair
        if isinstance(self.type, ir.IntType):
            return V(self.builder, getattr(self.builder, of_int)(a, b))
        return V(self.builder, getattr(self.builder, of_float)(a, b, flags=_FLAGS))

    def __add__(self, other: Operand) -> V:
        return self._arithmetic(other, "fadd", "add")

    def __radd__(self, other: Operand) -> V:
        return self._arithmetic(other, "fadd", "add", swap=True)

    def __sub__(self, other: Operand) -> V:
        return self._arithmetic(other, "fsub", "sub")

    def __rsub__(self, other: Operand) -> V:
        return self._arithmetic(other, "fsub", "sub", swap=True)

    def __mul__(self, other: Operand) -> V:
        return self._arithmetic(other, "fmul", "mul")

    def __rmul__(self, other: Operand) -> V:
        return self._arithmetic(other, "fmul", "mul", swap=True)

    def __truediv__(self, other: Operand) -> V:
        return self._arithmetic(other, "fdiv", "sdiv")

    def __rtruediv__(self, other: Operand) -> V:
        return self._arithmetic(other, "fdiv", "sdiv", swap=True)

    def __neg__(self) -> V:
        if isinstance(self.type, ir.IntType):
            return V(self.builder, self.builder.neg(self.value))
        return V(self.builder, self.builder.fneg(self.value))

    def __and__(self, other: Operand) -> V:
        return V(self.builder, self.builder.and_(self.value, self._raw(other)))

    def __or__(self, other: Operand) -> V:
        return V(self.builder, self.builder.or_(self.value, self._raw(other)))

    def __xor__(self, other: Operand) -> V:
        return V(self.builder, self.builder.xor(self.value, self._raw(other)))

    def __invert__(self) -> V:
        return V(self.builder, self.builder.not_(self.value))

    def __lshift__(self, other: Operand) -> V:
        return V(self.builder, self.builder.shl(self.value, self._raw(other)))

    def __rshift__(self, other: Operand) -> V:
        """Arithmetic shift."""
        return V(self.builder, self.builder.ashr(self.value, self._raw(other)))

    def logical_shift(self, other: Operand) -> V:
        return V(self.builder, self.builder.lshr(self.value, self._raw(other)))

    def _compare(self, operator: str, other: Operand) -> V:
        """Ordered for floats: false where either is NaN, except `!=`."""
        b = self._raw(other)
        if isinstance(self.type, ir.IntType):
            return V(self.builder, self.builder.icmp_signed(operator, self.value, b))
        if operator == "!=":
            return V(self.builder, self.builder.fcmp_unordered("!=", self.value, b, flags=_FLAGS))
        return V(self.builder, self.builder.fcmp_ordered(operator, self.value, b, flags=_FLAGS))

    def __lt__(self, other: Operand) -> V:
        return self._compare("<", other)

    def __le__(self, other: Operand) -> V:
        return self._compare("<=", other)

    def __gt__(self, other: Operand) -> V:
        return self._compare(">", other)

    def __ge__(self, other: Operand) -> V:
        return self._compare(">=", other)

    def __eq__(self, other: Operand) -> V:  # type: ignore[override]
        return self._compare("==", other)

    def __ne__(self, other: Operand) -> V:  # type: ignore[override]
        return self._compare("!=", other)

    def below(self, other: Operand) -> V:
        """Unsigned `<`."""
        return V(self.builder, self.builder.icmp_unsigned("<", self.value, self._raw(other)))

    def isnan(self) -> V:
        # asked of the bits: a float comparison would be folded away under fastmath's nnan
        magnitude = self.bits() & _MAGNITUDE[self.type]
        return magnitude > _INFINITY[self.type]

    def where(self, then: V, other: Operand) -> V:
        """`then if self else other`, without a branch."""
        return V(self.builder, self.builder.select(self.value, then.value, then._raw(other)))

    # --- functions and conversions

    def call(self, name: str, *others: Operand) -> V:
        """The LLVM intrinsic `llvm.<name>` of this type."""
        args = [self.value, *(self._raw(other) for other in others)]
        fnty = ir.FunctionType(self.type, [self.type] * len(args))
        function = self.builder.module.declare_intrinsic(f"llvm.{name}", [self.type], fnty)
        result = self.builder.call(function, args)
        if name == "sqrt":
            result.fastmath = _Exact()
        return V(self.builder, result)

    def rint(self) -> V:
        return self.call("rint")

    def abs(self) -> V:
        return self.call("fabs")

    def fma(self, b: Operand, c: Operand) -> V:
        """`self * b + c` with one rounding, on any machine."""
        return self.call("fma", b, c)

    def fmod(self, other: Operand) -> V:
        """C's `fmod`, a call into its library."""
        return V(self.builder, self.builder.frem(self.value, self._raw(other), flags=_FLAGS))

    def bits(self) -> V:
        return V(self.builder, self.builder.bitcast(self.value, _INT_OF[self.type]))

    def as_float(self, kind: ir.Type) -> V:
        """The bits of this integer read as a float."""
        return V(self.builder, self.builder.bitcast(self.value, kind))

    def to_int(self, kind: ir.IntType) -> V:
        return V(self.builder, self.builder.fptosi(self.value, kind))

    def to_float(self, kind: ir.Type) -> V:
        """Convert a signed integer or a float."""
        if isinstance(self.type, ir.IntType):
            return V(self.builder, self.builder.sitofp(self.value, kind))
        if self.type == kind:
            return self
        widen = kind == F64
        convert = self.builder.fpext if widen else self.builder.fptrunc
        return V(self.builder, convert(self.value, kind))

    def zext(self, kind: ir.IntType) -> V:
        return V(self.builder, self.builder.zext(self.value, kind))

    def sext(self, kind: ir.IntType) -> V:
        return V(self.builder, self.builder.sext(self.value, kind))

    def trunc(self, kind: ir.IntType) -> V:
        return V(self.builder, self.builder.trunc(self.value, kind))

    def with_sign_of(self, other: V) -> V:
        return self.call("copysign", other)


_MAGNITUDE = {F32: 0x7FFFFFFF, F64: 0x7FFFFFFFFFFFFFFF}
_INFINITY = {F32: 0x7F800000, F64: 0x7FF0000000000000}


def polynomial(x: V, coefficients: Sequence[float]) -> V:
    """Horner's rule; the lowest power's coefficient comes first."""
    total = x.constant(coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        total = total * x + coefficient
    return total


def lookup(builder: ir.IRBuilder, name: str, table: Sequence[float], index: V) -> V:
    """Element `index` of a constant table of float64."""
    module = builder.module
    if name not in module.globals:
        kind = ir.ArrayType(F64, len(table))
        constant = ir.GlobalVariable(module, kind, name)
        constant.linkage = "internal"
        constant.global_constant = True
        constant.initializer = ir.Constant(kind, list(table))
    pointer = builder.gep(module.globals[name], [ir.Constant(I64, 0), index.value], inbounds=True)
    return V(builder, builder.load(pointer))


IRFunction = Callable[..., V]
LLVM_TYPE = {types.float32: F32, types.float64: F64}
