"""`round(x, digits)`."""

from __future__ import annotations

import math

from numba.core import types
from numba.core.errors import TypingError

from kernels.simt.devlib.maths import named


def _round_to(x, digits):
    if math.isinf(x) or math.isnan(x):
        return x
    if digits >= 0:
        first = 10.0 ** (digits - 22) if digits > 22 else 10.0**digits
        second = 1e22 if digits > 22 else 1.0  # first * second might overflow
        scaled = (x * first) * second
        if math.isinf(scaled):
            return x
        return (_to_even(scaled) / second) / first
    power = 10.0**-digits
    return _to_even(x / power) * power


def _round_types(typingctx, x, digits):
    """`round(x, digits)` by CPython's method without strings, in float64, as numba-cuda has it."""
    kind = types.unliteral(x)
    if not isinstance(kind, types.Float) or not isinstance(types.unliteral(digits), types.Integer):
        raise TypingError(f"round(x, digits) takes a float and an integer, not {x} and {digits}")

    def generate(context, builder, sig, args):
        wide = types.float64(types.float64, types.int64)
        given = [context.cast(builder, a, k, w) for a, k, w in zip(args, sig.args, wide.args)]
        value = context.compile_internal(builder, _round_to, wide, given)
        return context.cast(builder, value, types.float64, sig.return_type)

    result = types.float32 if kind.bitwidth < 64 else types.float64
    return result(kind, types.unliteral(digits)), generate


def _to_even_types(typingctx, x):
    def generate(context, builder, sig, args):
        return builder.call(builder.module.declare_intrinsic("llvm.rint", [args[0].type]), args)

    return types.float64(types.float64), generate


_to_even = named(_to_even_types, "_to_even")
round_to = named(_round_types, "round_to", "round.to")
