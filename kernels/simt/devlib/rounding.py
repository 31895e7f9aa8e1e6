"""libdevice's functions with a rounding mode in their name: `fadd_rd`, `double2int_rz`, ...

LLVM's optimiser does not model a CPU's rounding mode. So a result is rounded to nearest first, and
moved to the next number where the exact error, which is a floating-point number
for every operation here, has the wrong sign (Boldo and Muller 2011 for the error of an FMA).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from llvmlite import ir
from numba.core import types

from kernels.simt.devlib.llvm_ir import F32, F64, I32, I64, V
from kernels.simt.devlib.maths import named

MODES = {"rn": "rint", "rd": "floor", "ru": "ceil", "rz": "trunc"}
_F, _D, _I, _L = types.float32, types.float64, types.int32, types.int64
_LARGEST = {F32: (2 - 2.0**-23) * 2.0**127, F64: (2 - 2.0**-52) * 2.0**1023}
_SCALE, _SMALL = 2.0**200, 2.0**-900


def fixed(name: str, result: types.Type, args: tuple, body: Callable, *keys: str) -> Any:
    """An intrinsic of one signature; `body` takes and returns V's, a list of them for a tuple."""

    def generate(context, builder, sig, values):
        made = body(*(V(builder, value) for value in values))
        if isinstance(made, list):
            return context.make_tuple(builder, result, [part.value for part in made])
        return made.value

    sig = result(*args)
    typed = {
        1: lambda typingctx, a: (sig, generate),
        2: lambda typingctx, a, b: (sig, generate),
        3: lambda typingctx, a, b, c: (sig, generate),
    }[len(args)]
    typed.__module__ = "kernels.simt.devlib.registry"
    return named(typed, name, *(keys or (f"libdevice.{name}",)))


@dataclass
class Rounded:
    """A result rounded to nearest, its error, and whether the exact result is finite."""

    nearest: V
    error: V
    finite: V

    def to(self, mode: str) -> V:
        """The result in one of `MODES`."""
        result, error = self.nearest, self.error
        up, down = error > 0.0, error < 0.0
        if mode == "rn":
            return result
        if mode == "rz":
            up, down = up & (result < 0.0), down & (result > 0.0)
        if mode != "rd":
            result = up.where(_next_up(result), result)
        if mode != "ru":
            result = down.where(-_next_up(-result), result)
        largest = result.constant(_LARGEST[result.type])
        if mode != "ru":  # to nearest is an infinity already
            result = (self.finite & (result == math.inf)).where(largest, result)
        if mode != "rd":
            result = (self.finite & (result == -math.inf)).where(-largest, result)
        return result


def _next_up(x: V) -> V:
    bits = x.bits()
    moved = (bits < 0).where(bits - 1, bits + 1).as_float(x.type)
    return (x == 0.0).where(bits.constant(1).as_float(x.type), moved)


def _exactly(x: V, y: V, operation: str = "fadd") -> V:
    """A sum, difference or product that the compiler neither contracts nor reassociates.

    Numba adds no fastmath flags to an instruction that has one, and `arcp` only affects division.
    """
    return V(x.builder, getattr(x.builder, operation)(x.value, y.value, flags=("arcp",)))


def _two_sum(x: V, y: V) -> tuple[V, V]:
    """x + y as a rounded sum and its exact error (Knuth)."""
    total = _exactly(x, y)
    of_y = _exactly(total, x, "fsub")
    of_x = _exactly(total, of_y, "fsub")
    return total, _exactly(_exactly(x, of_x, "fsub"), _exactly(y, of_y, "fsub"))


def _finite(*values: V) -> V:
    tests = [x.abs() < math.inf for x in values]
    result = tests[0]
    for test in tests[1:]:
        result = result & test
    return result


def _add(x: V, y: V) -> Rounded:
    return Rounded(*_two_sum(x, y), _finite(x, y))


def _multiply(x: V, y: V) -> Rounded:
    nearest = _exactly(x, y, "fmul")
    if x.type == F32:
        wide = x.to_float(F64) * y.to_float(F64)
        return Rounded(nearest, wide - nearest.to_float(F64), _finite(x, y))
    scale, low, high = _scaled(x, y)
    error = low.fma(high, -(nearest * scale))
    vanished = (nearest == 0.0) & (x != 0.0) & (y != 0.0)
    return Rounded(nearest, vanished.where(_sign(x) * _sign(y), error), _finite(x, y))


def _scaled(x: V, y: V) -> tuple[V, V, V]:
    """(scale, factors of x * y * scale): the error of a small product would underflow."""
    small = _exactly(x, y, "fmul").abs() < _SMALL
    scale = small.where(x.constant(_SCALE), x.constant(1.0))
    first = x.abs() < y.abs()
    return scale, first.where(x, y) * scale, first.where(y, x)


def _sign(x: V) -> V:
    return x.constant(1.0).with_sign_of(x)


def _divide(x: V, y: V) -> Rounded:
    nearest = V(x.builder, x.builder.fdiv(x.value, y.value, flags=("nsz",)))
    a, b, q = (v.to_float(F64) for v in (x, y, nearest))
    if x.type == F64:  # the remainder of a small dividend likewise
        scale = (a.abs() < _SMALL).where(a.constant(_SCALE), a.constant(1.0))
        low = b.abs() < 1.0
        a, b, q = a * scale, low.where(b * scale, b), low.where(q, q * scale)
    error = (-q).fma(b, a) * _sign(b)
    finite = _finite(x, y) & (y != 0.0)
    return Rounded(nearest, error, finite)


def _square_root(x: V) -> Rounded:
    nearest = x.call("sqrt")
    a, root = x.to_float(F64), nearest.to_float(F64)
    if x.type == F64:
        small = a.abs() < _SMALL
        a = small.where(a * _SCALE, a)
        root = small.where(root * math.sqrt(_SCALE), root)
    return Rounded(nearest, (-root).fma(root, a), _finite(x))


def _fma(x: V, y: V, z: V) -> Rounded:
    nearest = x.fma(y, z)
    finite = _finite(x, y, z)
    if x.type == F32:  # the product is exact in float64
        total, rest = _two_sum(x.to_float(F64) * y.to_float(F64), z.to_float(F64))
        return Rounded(nearest, _exactly(total - nearest.to_float(F64), rest), finite)
    scale, low, high = _scaled(x, y)
    product = _exactly(low, high, "fmul")
    below = low.fma(high, -product)
    # of what underflows only the sign matters
    nothing = (product.abs() < _SMALL) & (scale != 1.0) & (x != 0.0) & (y != 0.0)
    sign = _sign(x) * _sign(y)
    product, below = nothing.where(sign * _SMALL, product), nothing.where(below * 0.0, below)
    a, a_rest = _two_sum(z * scale, below)
    b, b_rest = _two_sum(product, a)
    gamma = _exactly(_exactly(b, nearest * scale, "fsub"), b_rest)
    beside = (z.abs() > 1.0) & (scale != 1.0)
    error = beside.where((product == 0.0).where(product, sign), _exactly(gamma, a_rest))
    return Rounded(nearest, error, finite)


def _narrowed(x: V) -> Rounded:
    nearest = x.to_float(F32)
    return Rounded(nearest, x - nearest.to_float(F64), _finite(x))


def _downwards(sum_: Rounded, *terms: V) -> V:
    """A sum rounded down: an exact 0 is -0 then, unless both terms are +0."""
    signs = terms[0].bits() | terms[1].bits()
    negative = (signs & (1 << (signs.type.width - 1))).as_float(sum_.nearest.type)
    zero = (sum_.nearest == 0.0) & (sum_.error == 0.0)
    return zero.where(negative, sum_.to("rd"))


def _arithmetic(name: str, kind: types.Type, arity: int, operation: Callable) -> None:
    for mode in MODES:

        def body(*args: V, mode=mode) -> V:
            result = operation(*args)
            if mode == "rd" and operation is _add:
                return _downwards(result, *args)
            if mode == "rd" and operation is _subtract:
                return _downwards(result, args[0], -args[1])
            if mode == "rd" and operation is _fma:
                return _downwards(result, _sign(args[0]) * _sign(args[1]) * 0.0, args[2])
            return result.to(mode)

        _made(f"{name}_{mode}", fixed(f"{name}_{mode}", kind, (kind,) * arity, body))


def _made(name: str, value: Any) -> None:
    globals()[name] = value


def _subtract(x: V, y: V) -> Rounded:
    return _add(x, -y)


for _letter, _kind in (("d", _D), ("f", _F)):
    _arithmetic(f"{_letter}add", _kind, 2, _add)
    _arithmetic(f"{_letter}mul", _kind, 2, _multiply)
    _arithmetic(f"{_letter}div", _kind, 2, _divide)
    _arithmetic(f"{_letter}rcp", _kind, 1, lambda x: _divide(x.constant(1.0), x))
    _arithmetic(f"{_letter}sqrt", _kind, 1, _square_root)
_arithmetic("fsub", _F, 2, _subtract)
_arithmetic("fma", _D, 3, _fma)
_arithmetic("fmaf", _F, 3, _fma)
frsqrt_rn = fixed(
    "frsqrt_rn", _F, (_F,), lambda x: (1.0 / x.to_float(F64).call("sqrt")).to_float(F32)
)


# --- conversions. numba-cuda types all integers of libdevice as signed.


def to_integer(kind: ir.IntType, signed: bool, mode: str) -> Callable[[V], V]:
    def body(x: V) -> V:
        name = f"llvm.fpto{'s' if signed else 'u'}i.sat"
        whole = x.call(MODES[mode])
        fnty = ir.FunctionType(kind, [x.type])
        function = x.builder.module.declare_intrinsic(name, [kind, x.type], fnty)
        result = V(x.builder, x.builder.call(function, [whole.value]))
        if x.type == F32 and kind == I32:
            return result  # NaN becomes 0
        return x.isnan().where(result.constant(-1 << (kind.width - 1)), result)

    return body


def from_integer(kind: ir.Type, signed: bool) -> Callable[[V], Rounded]:
    def body(x: V) -> Rounded:
        convert = x.builder.sitofp if signed else x.builder.uitofp
        nearest = V(x.builder, convert(x.value, kind))
        finite = V(x.builder, ir.Constant(ir.IntType(1), 1))
        if x.type == I32:
            exact = V(x.builder, convert(x.value, F64))
            return Rounded(nearest, exact - nearest.to_float(F64), finite)
        high = x >> 32 if signed else x.logical_shift(32)
        total, rest = _two_sum(high.to_float(F64) * 2.0**32, (x & 0xFFFFFFFF).to_float(F64))
        return Rounded(nearest, _exactly(total - nearest.to_float(F64), rest), finite)

    return body


for _source, _float in (("double", _D), ("float", _F)):
    for _target, _integer, _signed in (
        ("int", _I, True),
        ("uint", _I, False),
        ("ll", _L, True),
        ("ull", _L, False),
    ):
        for _mode in MODES:
            _name = f"{_source}2{_target}_{_mode}"
            _width = I32 if _integer == _I else I64
            _body = to_integer(_width, _signed, _mode)
            _made(_name, fixed(_name, _integer, (_float,), _body))
            _name = f"{_target}2{_source}_{_mode}"
            _rounds = from_integer(F64 if _float == _D else F32, _signed)
            _made(
                _name,
                fixed(_name, _float, (_integer,), lambda x, f=_rounds, m=_mode: f(x).to(m)),
            )
for _mode in MODES:
    _made(
        f"double2float_{_mode}",
        fixed(f"double2float_{_mode}", _F, (_D,), lambda x, m=_mode: _narrowed(x).to(m)),
    )
