"""The rest of libdevice: special functions, functions with two results, bit manipulation.

Special functions are Python that Numba compiles, in float64 for both widths; their float32 forms
round once. Methods: Wichura's AS 241 (1988) for the inverse of the normal distribution, the
asymptotic series of Abramowitz and Stegun 7.1.23 for erfcx; the Bessel functions are the C
library's.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import binding, ir
from numba import njit
from numba.core import cgutils, types
from numba.core.errors import TypingError

from kernels.simt.devlib import bits, half
from kernels.simt.devlib import maths as m
from kernels.simt.devlib.llvm_ir import F64, I32, I64, V
from kernels.simt.devlib.maths import named
from kernels.simt.devlib.rounding import fixed
from kernels.support.normal_quantile import FAR_TAIL, MIDDLE, TAIL

_F, _D, _I, _L = types.float32, types.float64, types.int32, types.int64
_SQRT_HALF, _SQRT_HALF_LOW = 0.7071067811865476, -4.833646656726457e-17
_INT_MIN, _INT_MAX = -(2**31), 2**31 - 1


def _compiled(name: str, result: types.Type, args: tuple, function: Callable) -> Any:
    """`function` compiled by Numba for float64 or integers, as an intrinsic of one signature."""
    wide = tuple(_D if kind == _F else kind for kind in args)
    parts = result.types if isinstance(result, types.BaseTuple) else (result,)

    def generate(context, builder, sig, values):
        given = [context.cast(builder, x, *kinds) for x, *kinds in zip(values, args, wide)]
        many = isinstance(result, types.BaseTuple)
        returned = tuple(_D if kind == _F else kind for kind in parts)
        returned = types.Tuple(returned) if many else returned[0]
        made = context.compile_internal(builder, function, returned(*wide), given)
        return context.cast(builder, made, returned, result)

    sig = result(*args)
    typed = {
        1: lambda typingctx, a: (sig, generate),
        2: lambda typingctx, a, b: (sig, generate),
    }[len(args)]
    typed.__module__ = "kernels.simt.devlib.registry"
    return named(typed, name, f"libdevice.{name}")


def _both(name: str, function: Callable, result: Callable = lambda kind: kind, *args: Any) -> None:
    """Both widths of `function`; `result` and callables in `args` give types from the float's."""
    for suffix, kind in (("", _D), ("f", _F)):
        given = tuple(arg if isinstance(arg, types.Type) else arg(kind) for arg in args or (_same,))
        globals()[f"{name}{suffix}"] = _compiled(f"{name}{suffix}", result(kind), given, function)


def _same(kind: types.Type) -> types.Type:
    return kind


# --- the normal distribution and its relatives


@njit
def _ratio(x, coefficients):
    above, below = coefficients
    a, b = 0.0, 0.0
    for i in range(8):
        a, b = a * x + above[i], b * x + below[i]
    return a / b


@njit
def _quantile(distance, tail):
    """The normal quantile of probability 1/2 + distance; `tail` is 1/2 - |distance|."""
    if abs(distance) <= 0.425:
        return distance * _ratio(0.180625 - distance * distance, MIDDLE)
    if not tail > 0.0:
        return distance * math.inf if tail == 0.0 else math.nan
    r = math.sqrt(-math.log(tail))
    z = _ratio(r - 1.6, TAIL) if r <= 5.0 else _ratio(r - 5.0, FAR_TAIL)
    return math.copysign(z, distance)


def _erfinv(x):
    return _quantile(0.5 * x, 0.5 * (1.0 - abs(x))) * _SQRT_HALF


def _erfcinv(y):
    return _quantile(0.5 * (1.0 - y), 0.5 * min(y, 2.0 - y)) * _SQRT_HALF


def _normcdfinv(p):
    return _quantile(p - 0.5, min(p, 1.0 - p))


def _normcdf(x):
    t = -x * _SQRT_HALF
    rest = bits.fma(-x, _SQRT_HALF, -t) - x * _SQRT_HALF_LOW  # of -x / sqrt(2)
    slope = -2.0 / math.sqrt(math.pi) * math.exp(-t * t)
    return 0.5 * (math.erfc(t) + (slope * rest if abs(t) < 30.0 else 0.0))


def _erfcx(x):
    if x >= 10.0:
        total, term, inverse = 1.0, 1.0, 0.5 / x / x
        for k in range(1, 13):
            term *= -(2 * k - 1) * inverse
            total += term
        return total / (x * math.sqrt(math.pi))
    square = x * x
    power = math.exp(square) * (1.0 + bits.fma(x, x, -square)) if x > -27.0 else math.inf
    return power * math.erfc(x)


# --- parts of numbers


def _ilogb(x):
    if x == 0.0 or math.isnan(x):
        return np.int32(_INT_MIN)
    return np.int32(_INT_MAX) if math.isinf(x) else np.int32(math.frexp(x)[1] - 1)


def _logb(x):
    if x == 0.0:
        return -math.inf
    return x * x if math.isinf(x) or math.isnan(x) else float(math.frexp(x)[1] - 1)


def _remquo(x, y):
    rest = m.remainder(x, y)
    if math.isnan(rest) or math.isinf(y):
        return rest, np.int32(0)
    size = abs(y)
    part = m.fmod(abs(x), 8.0 * size) if size < 1e300 else abs(x)
    quotient = np.int32(np.rint((part - m.remainder(part, size)) / size)) & 7
    return rest, np.int32(-quotient if (x < 0.0) != (y < 0.0) else quotient)


def _scalbn(x, n):
    return math.ldexp(x, n)


def _sincos(x):
    return m.sin(x), m.cos(x)


def _sincospi(x):
    return m.sinpi(x), m.cospi(x)


def _frexp(x):
    fraction, exponent = math.frexp(x)
    return fraction, np.int32(exponent)


def _pair(kind: types.Type) -> types.Type:
    return types.UniTuple(kind, 2)


def _with_int(kind: types.Type) -> types.Type:
    return types.Tuple((kind, _I))


for _name, _function in (
    ("erfinv", _erfinv),
    ("erfcinv", _erfcinv),
    ("normcdf", _normcdf),
    ("normcdfinv", _normcdfinv),
    ("erfcx", _erfcx),
    ("logb", _logb),
):
    _both(_name, _function)
_both("ilogb", _ilogb, lambda kind: _I)
_both("scalbn", _scalbn, _same, _same, _I)
_both("remquo", _remquo, _with_int, _same, _same)
_both("frexp", _frexp, _with_int)
_both("sincospi", _sincospi, _pair)
for _name, _kind in (("sincos", _D), ("sincosf", _F), ("fast_sincosf", _F)):
    globals()[_name] = _compiled(_name, _pair(_kind), (_kind,), _sincos)


def _bessel(name: str, arity: int) -> None:
    """A Bessel function of the C library's, for both widths."""

    def body(*args: V) -> V:
        if binding.address_of_symbol(name) is None:
            raise TypingError(f"cuda.libdevice.{name}: this system's C library has no {name}()")
        *order, x = args
        builder = x.builder
        fnty = ir.FunctionType(F64, [*(I32 for _ in order), F64])
        function = cgutils.get_or_insert_function(builder.module, fnty, name)
        result = builder.call(function, [*(n.value for n in order), x.to_float(F64).value])
        return V(builder, result).to_float(x.type)

    for suffix, kind in (("", _D), ("f", _F)):
        full = f"{name}{suffix}"
        globals()[full] = fixed(full, kind, (*(_I,) * (arity - 1), kind), body)


for _name in ("j0", "j1", "y0", "y1"):
    _bessel(_name, 1)
for _name in ("jn", "yn"):
    _bessel(_name, 2)


# --- integers, and the bits of floats


def _whole(operation: str) -> Callable[[V], V]:
    return lambda x: x.call(operation).to_int(I64)


for _suffix, _kind in (("", _D), ("f", _F)):
    for _name, _operation in (("llrint", "rint"), ("llround", "round")):
        _full = f"{_name}{_suffix}"
        globals()[_full] = fixed(_full, _L, (_kind,), _whole(_operation))


def _widened(x: V, signed: bool) -> V:
    return x.sext(I64) if signed else x.zext(I64)


def _mean(signed: bool, more: int) -> Callable[[V, V], V]:
    def body(x: V, y: V) -> V:
        return ((_widened(x, signed) + _widened(y, signed) + more) >> 1).trunc(I32)

    return body


def _distance(signed: bool) -> Callable[[V, V, V], V]:
    def body(x: V, y: V, z: V) -> V:
        gap = _widened(x, signed) - _widened(y, signed)
        return (gap < 0).where(-gap, gap).trunc(I32) + z

    return body


for _prefix, _signed in (("", True), ("u", False)):
    for _name, _more in (("hadd", 0), ("rhadd", 1)):
        _full = f"{_prefix}{_name}"
        globals()[_full] = fixed(_full, _I, (_I, _I), _mean(_signed, _more))
    globals()[f"{_prefix}sad"] = fixed(f"{_prefix}sad", _I, (_I,) * 3, _distance(_signed))


def _byte_permute(x: V, y: V, selector: V) -> V:
    """Each nibble of the selector names one of 8 bytes; its top bit asks for the byte's sign."""
    both = x.zext(I64) | (y.zext(I64) << 32)
    result = selector.constant(0)
    for position in range(4):
        nibble = selector.logical_shift(4 * position)
        byte = both.logical_shift(((nibble & 7) << 3).zext(I64)).trunc(I32) & 0xFF
        sign = -(byte.logical_shift(7)) & 0xFF
        result = result | (((nibble & 8) != 0).where(sign, byte) << (8 * position))
    return result


byte_perm = fixed("byte_perm", _I, (_I,) * 3, _byte_permute)
double2hiint = fixed("double2hiint", _I, (_D,), lambda x: x.bits().logical_shift(32).trunc(I32))
double2loint = fixed("double2loint", _I, (_D,), lambda x: x.bits().trunc(I32))
hiloint2double = fixed(
    "hiloint2double",
    *(_D, (_I, _I)),
    lambda high, low: ((high.zext(I64) << 32) | low.zext(I64)).as_float(F64),
)
for _names, _test in (
    ("isnanf isnand", V.isnan),
    ("isinff isinfd", lambda x: x.abs() == math.inf),
    ("finitef isfinited", lambda x: x.abs() < math.inf),
):
    for _name, _kind in zip(_names.split(), (_F, _D)):
        globals()[_name] = fixed(_name, _I, (_kind,), lambda x, test=_test: test(x).zext(I32))
signbitd = fixed("signbitd", _I, (_D,), lambda x: x.bits().logical_shift(63).trunc(I32))
signbitf = fixed("signbitf", _I, (_F,), lambda x: x.bits().logical_shift(31))
half2float = fixed("half2float", _F, (types.int16,), lambda x: half.float16.load(x))
float2half_rn = fixed("float2half_rn", types.int16, (_F,), lambda x: half.float16.store(x))
