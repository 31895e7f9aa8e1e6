"""Bit operations, `fma`, `selp` and memory fences, as intrinsics with numba-cuda's typing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import types
from numba.core.errors import TypingError
from numba.extending import overload_method

from kernels.simt.devlib.llvm_ir import I32, V
from kernels.simt.devlib.maths import computed_in, named

_SELECTABLE = (
    types.float64,
    types.float32,
    types.int16,
    types.uint16,
    types.int32,
    types.uint32,
    types.int64,
    types.uint64,
)


def _integer(name: str, arg: types.Type) -> types.Integer:
    arg = types.uint8 if arg == types.boolean else types.unliteral(arg)
    if not isinstance(arg, types.Integer):
        raise TypingError(f"{name} takes an integer, not {arg}")
    return arg


def _integer_unary(name: str, keys: str, result: Any, body: Callable[[V], V]) -> Any:
    """`result`: a function from the argument's type to (argument type, result type)."""

    def typed(typingctx, x):
        accepted, returned = result(_integer(name, x))

        def generate(context, builder, sig, args):
            return body(V(builder, args[0])).value

        return returned(accepted), generate

    return named(typed, name, *keys.split())


def _same(arg: types.Integer) -> tuple[types.Integer, types.Integer]:
    return arg, arg


def _as_unsigned(arg: types.Integer) -> tuple[types.Integer, types.Integer]:
    wide = types.uint64 if arg.bitwidth == 64 else types.uint32
    return wide, wide


def _fixed(accepted: types.Integer, returned: types.Integer) -> Any:
    return lambda arg: (accepted, returned)


def _count_leading_zeros(x: V) -> V:
    return V(x.builder, x.builder.ctlz(x.value, ir.Constant(ir.IntType(1), 0)))


def _find_first_set(x: V) -> V:
    zeros = V(x.builder, x.builder.cttz(x.value, ir.Constant(ir.IntType(1), 0)))
    position = (x != 0).where(zeros + 1, 0)
    return _as_int32(position)


def _as_int32(x: V) -> V:
    if x.type.width == 32:
        return x
    return x.trunc(I32) if x.type.width > 32 else x.zext(I32)


def _popcount(x: V) -> V:
    return x.call("ctpop")


def _reverse(x: V) -> V:
    return x.call("bitreverse")


popc = _integer_unary("popc", "popc", _same, _popcount)


@overload_method(types.Integer, "bit_count")
def _bit_count(x):
    return lambda x: popc(x)


clz = _integer_unary("clz", "clz", _same, _count_leading_zeros)
brev = _integer_unary("brev", "brev", _as_unsigned, _reverse)
ffs = _integer_unary("ffs", "ffs", lambda arg: (arg, types.uint32), _find_first_set)

for _name, _body in (
    ("popc", _popcount),
    ("clz", _count_leading_zeros),
    ("ffs", _find_first_set),
):
    for _suffix, _kind in (("", types.int32), ("ll", types.int64)):
        globals()[f"{_name}{_suffix}_int"] = _integer_unary(
            f"{_name}{_suffix}_int",
            f"libdevice.{_name}{_suffix}",
            _fixed(_kind, types.int32),
            lambda x, _body=_body: _as_int32(_body(x)),
        )
brev_int = _integer_unary("brev_int", "libdevice.brev", _fixed(types.int32, types.int32), _reverse)
brevll_int = _integer_unary(
    "brevll_int", "libdevice.brevll", _fixed(types.int64, types.int64), _reverse
)


# numba-cuda types all integers of libdevice as signed; a `u` in a name says how they are taken
def _integer_binary(name: str, kind: types.Integer, body: Callable[[V, V], V]) -> Any:
    def typed(typingctx, x, y):
        for arg in (x, y):
            _integer(name, arg)

        def generate(context, builder, sig, args):
            return body(*(V(builder, arg) for arg in args)).value

        return kind(kind, kind), generate

    return named(typed, f"{name}_int", f"libdevice.{name}")


def _multiply_high(signed: bool, width: int) -> Callable[[V, V], V]:
    double = ir.IntType(2 * width)

    def body(x: V, y: V) -> V:
        x, y = (x.sext(double), y.sext(double)) if signed else (x.zext(double), y.zext(double))
        return (x * y).logical_shift(width).trunc(ir.IntType(width))

    return body


def _low24(x: V) -> V:
    return x & 0xFFFFFF


def _signed24(x: V) -> V:
    return (x << 8) >> 8


mulhi_int = _integer_binary("mulhi", types.int32, _multiply_high(True, 32))
umulhi_int = _integer_binary("umulhi", types.int32, _multiply_high(False, 32))
mul64hi_int = _integer_binary("mul64hi", types.int64, _multiply_high(True, 64))
umul64hi_int = _integer_binary("umul64hi", types.int64, _multiply_high(False, 64))
mul24_int = _integer_binary("mul24", types.int32, lambda x, y: _signed24(x) * _signed24(y))
umul24_int = _integer_binary("umul24", types.int32, lambda x, y: _low24(x) * _low24(y))


for _prefix, _kind, _signed in (
    ("", types.int32, True),
    ("ll", types.int64, True),
    ("u", types.int32, False),
    ("ull", types.int64, False),
):
    for _name in ("max", "min"):

        def _extreme(x: V, y: V, _signed=_signed, _name=_name) -> V:
            return x.call(f"{'s' if _signed else 'u'}{_name}", y)

        globals()[f"{_prefix}{_name}_int"] = _integer_binary(f"{_prefix}{_name}", _kind, _extreme)


def _absolute(x: V) -> V:
    return (x < 0).where(-x, x)


abs_int = _integer_unary("abs_int", "libdevice.abs", _fixed(types.int32, types.int32), _absolute)
llabs_int = _integer_unary(
    "llabs_int", "libdevice.llabs", _fixed(types.int64, types.int64), _absolute
)


def _reinterpret(name: str, source: types.Type, target: types.Type) -> Any:
    def typed(typingctx, x):
        def generate(context, builder, sig, args):
            return builder.bitcast(args[0], context.get_value_type(target))

        return target(source), generate

    return named(typed, name, f"libdevice.{name}")


float_as_int = _reinterpret("float_as_int", types.float32, types.int32)
int_as_float = _reinterpret("int_as_float", types.int32, types.float32)
double_as_longlong = _reinterpret("double_as_longlong", types.float64, types.int64)
longlong_as_double = _reinterpret("longlong_as_double", types.int64, types.float64)


def _fma_types(typingctx, a, b, c):
    kind = computed_in("fma", a, b, c)

    def generate(context, builder, sig, args):
        first, second, third = (V(builder, arg) for arg in args)
        return first.fma(second, third).value

    return kind(kind, kind, kind), generate


fma = named(_fma_types, "fma", "fma", "libdevice.fma", "libdevice.fmaf")


def _selp_types(typingctx, test, a, b):
    a, b = types.unliteral(a), types.unliteral(b)
    if a != b or a not in _SELECTABLE:
        raise TypingError(
            f"selp(test, a, b) needs a and b of one type, a float or a 16 to 64-bit integer;"
            f" got {a} and {b}"
        )

    def generate(context, builder, sig, args):
        return builder.select(*args)

    return a(types.boolean, a, a), generate


selp = named(_selp_types, "selp", "selp")


def _fence(name: str, key: str, emit: bool) -> Any:
    def typed(typingctx):
        def generate(context, builder, sig, args):
            if emit:
                builder.fence("seq_cst")
            return context.get_dummy_value()

        return types.none(), generate

    return named(typed, name, key)


threadfence = _fence("threadfence", "threadfence", emit=True)
threadfence_system = _fence("threadfence_system", "threadfence_system", emit=True)
# one OS thread runs a whole block, and sees its own writes in order
threadfence_block = _fence("threadfence_block", "threadfence_block", emit=False)


def _nanosleep_types(typingctx, nanoseconds):
    def generate(context, builder, sig, args):
        return context.get_dummy_value()

    return types.none(types.uint32), generate


nanosleep = named(_nanosleep_types, "nanosleep", "nanosleep")
