"""The functions of `numba.cuda.bf16`: computed in float32, the result rounded to bfloat16.

A bfloat16 in a kernel is a float32 whose last 16 bits are zero; see `half`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable

from llvmlite import ir
from numba.core import types

from kernels.simt.devlib import vecmath as vec
from kernels.simt.devlib.bf16_names import second_name
from kernels.simt.devlib.half import bfloat16
from kernels.simt.devlib.llvm_ir import F32, I16, I32, I64, V
from kernels.simt.devlib.rounding import MODES, Rounded, fixed, from_integer, to_integer

_F = types.float32
_HIGH = 0xFFFF0000 - (1 << 32)  # the bits of a bfloat16 in a float32, as a signed number


def _function(name: str, result: types.Type, args: tuple, body: Callable[..., V]) -> None:
    for known in filter(None, (name, second_name(name))):
        fixed(f"bf16_{known}", result, args, body, f"bf16.{known}")


def _nearest(x: V) -> V:
    return bfloat16.load(bfloat16.store(x))


def _rounded(x: V, mode: str) -> V:
    """A float32 rounded to a bfloat16: to nearest, down, up, or towards zero."""
    if mode == "rn":
        return _nearest(x)
    bits = x.bits()
    kept = bits & _HIGH
    away = {"rz": None, "ru": bits >= 0, "rd": bits < 0}[mode]
    if away is not None:
        grown = kept + 0x10000
        kept = (away & ((bits & 0xFFFF) != 0)).where(grown, kept)
    quiet = (bits & _HIGH) | 0x400000
    return x.isnan().where(quiet, kept).as_float(F32)


def _to_odd(exact: Rounded) -> V:
    """Rounded to float32 with an odd last bit where that is inexact: rounding again is right."""
    below = exact.to("rz")
    return (exact.error != 0.0).where((below.bits() | 1), below.bits()).as_float(F32)


def _saturated(x: V) -> V:
    low = (x > 0.0).where(x, 0.0)  # NaN becomes 0
    return (low < 1.0).where(low, 1.0)


def _or_nan(choice: str) -> Callable[[V, V], V]:
    def body(x: V, y: V) -> V:
        return (x.isnan() | y.isnan()).where(x + y, x.call(choice, y))

    return body


_UNARY: dict[str, Callable[[V], V]] = {
    "habs": V.abs,
    "hneg": operator.neg,
    "htrunc": lambda x: x.call("trunc"),
    "hceil": lambda x: x.call("ceil"),
    "hfloor": lambda x: x.call("floor"),
    "hrint": V.rint,
    "hsqrt": lambda x: x.call("sqrt"),
    "hrsqrt": vec.rsqrt,
    "hrcp": lambda x: 1.0 / x,
    "hlog": vec.log,
    "hlog2": vec.log2,
    "hlog10": vec.log10,
    "hcos": vec.cos,
    "hsin": vec.sin,
    "hexp": vec.exp,
    "hexp2": vec.exp2,
    "hexp10": vec.exp10,
    "htanh": vec.tanh,
    "htanh_approx": vec.tanh,
}
_BINARY: dict[str, Callable[[V, V], V]] = {
    "hadd": operator.add,
    "hsub": operator.sub,
    "hmul": operator.mul,
    "hadd_rn": operator.add,
    "hsub_rn": operator.sub,
    "hmul_rn": operator.mul,
    "hdiv": operator.truediv,
    "hadd_sat": lambda x, y: _saturated(x + y),
    "hsub_sat": lambda x, y: _saturated(x - y),
    "hmul_sat": lambda x, y: _saturated(x * y),
    "hmax": lambda x, y: x.call("maxnum", y),
    "hmin": lambda x, y: x.call("minnum", y),
    "hmax_nan": _or_nan("maxnum"),
    "hmin_nan": _or_nan("minnum"),
}
_TERNARY: dict[str, Callable[[V, V, V], V]] = {
    "hfma": V.fma,
    "hfma_sat": lambda x, y, z: _saturated(x.fma(y, z)),
    "hfma_relu": lambda x, y, z: _relu(x.fma(y, z)),
}


def _relu(x: V) -> V:
    return (x < 0.0).where(x.constant(0.0), x)


for _arity, _table in enumerate((_UNARY, _BINARY, _TERNARY), 1):
    for _name, _body in _table.items():
        _function(_name, _F, (_F,) * _arity, lambda *args, f=_body: _nearest(f(*args)))

for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    _compare = getattr(operator, _name)
    _function(f"h{_name}", types.boolean, (_F, _F), _compare)
    _function(
        f"h{_name}u",
        types.boolean,
        (_F, _F),
        lambda x, y, f=_compare: x.isnan() | y.isnan() | f(x, y),
    )


def _infinity(x: V) -> V:
    """1, -1 or 0."""
    above, below = (x == float("inf")).zext(I32), (x == float("-inf")).zext(I32)
    return above - below


_function("hisinf", types.int32, (_F,), _infinity)
_function("hisnan", types.boolean, (_F,), V.isnan)

# --- conversions

_function("bfloat162float", _F, (_F,), lambda x: x)
_function("double2bfloat16", _F, (types.float64,), lambda x: _nearest(_from_double(x)))
_function("float2bfloat16", _F, (_F,), _nearest)


def _from_double(x: V) -> V:
    near = x.to_float(F32)
    error = x - near.to_float(x.type)
    finite = V(x.builder, ir.Constant(ir.IntType(1), 1)) & (x.abs() < float("inf"))
    return _to_odd(Rounded(near, finite.where(error, 0.0), finite))


def _narrow(kind: ir.IntType, signed: bool, mode: str) -> Callable[[V], V]:
    """A float32 as an integer of 8 or 16 bits, saturated."""
    whole = to_integer(I32, True, mode)
    least = -(1 << (kind.width - 1)) if signed else 0
    most = (1 << (kind.width - signed)) - 1

    def body(x: V) -> V:
        value = whole(x)
        value = (value < least).where(value.constant(least), value)
        return (value > most).where(value.constant(most), value).trunc(kind)

    return body


_I8 = ir.IntType(8)
_INTEGERS: dict[str, tuple[types.Integer, ir.IntType, bool]] = {
    "short": (types.int16, I16, True),
    "ushort": (types.uint16, I16, False),
    "int": (types.int32, I32, True),
    "uint": (types.uint32, I32, False),
    "ll": (types.int64, I64, True),
    "ull": (types.uint64, I64, False),
    "char": (types.int8, _I8, True),
    "uchar": (types.uint8, _I8, False),
}


def _from(kind: ir.IntType, signed: bool, mode: str) -> Callable[[V], V]:
    exact = from_integer(F32, signed)

    def body(x: V) -> V:
        if kind.width < 32:
            x = x.sext(I32) if signed else x.zext(I32)
        return _rounded(_to_odd(exact(x)), mode)

    return body


for _mode in MODES:
    _function(f"float2bfloat16_{_mode}", _F, (_F,), lambda x, m=_mode: _rounded(x, m))
    for _name, (_kind, _width, _signed) in _INTEGERS.items():
        _make = _narrow if _width.width < 32 else to_integer
        _function(f"bfloat162{_name}_{_mode}", _kind, (_F,), _make(_width, _signed, _mode))
        _function(f"{_name}2bfloat16_{_mode}", _F, (_kind,), _from(_width, _signed, _mode))

_function("bfloat16_as_short", types.int16, (_F,), lambda x: bfloat16.store(x))
_function("bfloat16_as_ushort", types.uint16, (_F,), lambda x: bfloat16.store(x))
_function("short_as_bfloat16", _F, (types.int16,), lambda x: bfloat16.load(x))
_function("ushort_as_bfloat16", _F, (types.uint16,), lambda x: bfloat16.load(x))
