"""Mathematics inside kernels, typed as on CUDA: float32 stays float32, integers become float64.

(`math.floor(float32)` is a float32 on CUDA and an int64 in Numba's CPU target; `math.exp` of a
float32 is vectorised code here and a call into libm there.) Each name below is a Numba intrinsic,
callable from any `numba.njit` function; `registry.lookup` finds it by the function that a kernel
names.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.core.errors import TypingError
from numba.extending import intrinsic

from kernels.simt.devlib import vecmath as vec
from kernels.simt.devlib import vecmath64 as vec64
from kernels.simt.devlib.llvm_ir import F64, I64, IRFunction, V

INTRINSICS: dict[str, Any] = {}
"""All that `named` has made, by name."""
TABLE: dict[str, Any] = {}
"""Intrinsics by the dotted name of what they implement: "math.exp", "libdevice.expf", "popc"."""


def named(function: Callable, name: str, *keys: str) -> Any:
    """The intrinsic of a typing function, under an importable name and registered keys."""
    function.__name__ = function.__qualname__ = name
    made = INTRINSICS[name] = intrinsic(function)
    for key in keys:
        TABLE[key] = made
    return made


def computed_in(name: str, *args: types.Type) -> types.Type:
    """float32 when every argument is, float64 otherwise; complex and others are refused."""
    plain = [types.unliteral(arg) for arg in args]
    for arg in plain:
        if not isinstance(arg, types.Number | types.Boolean) or isinstance(arg, types.Complex):
            raise TypingError(f"{name} takes integers and floats, not {arg}")
    # the half-precision storage types (devlib.half) compute in float32
    wide = any(
        arg == types.float64 or isinstance(arg, types.Integer | types.Boolean) for arg in plain
    )
    return types.float64 if wide else types.float32


def _through(context: Any, builder: Any, function: Any, kind: types.Type, args: list) -> Any:
    """Numba's own CPU implementation of `function` at `kind`."""
    sig = context.typing_context.resolve_function_type(function, (kind,) * len(args), {})
    return context.get_function(function, sig)(builder, args)


def _generate(
    context: Any, builder: Any, kind: types.Type, args: list, wide: Any, narrow: IRFunction | None
) -> Any:
    if kind == types.float32 and narrow is not None:
        return narrow(*(V(builder, arg) for arg in args)).value
    if isinstance(wide, str):
        first, *rest = (V(builder, arg) for arg in args)
        return first.call(wide, *rest).value
    if isinstance(wide, IRBody):
        return wide.body(*(V(builder, arg) for arg in args)).value
    return _through(context, builder, wide, kind, args)


class IRBody:
    """Marks a float64 implementation that is written as IR rather than a Python function."""

    def __init__(self, body: IRFunction) -> None:
        self.body = body


def unary(name: str, keys: str, wide: Any, narrow: IRFunction | None = None) -> Any:
    """One argument. `wide`: an LLVM intrinsic's name, an IRBody, or a function that Numba has."""

    def typed(typingctx, x):
        kind = computed_in(name, x)

        def generate(context, builder, sig, args):
            return _generate(context, builder, kind, args, wide, narrow)

        return kind(kind), generate

    return named(typed, name, *keys.split())


def unary_ir(name: str, keys: str, body: IRFunction) -> Any:
    """One argument and the same IR for both widths."""
    return unary(name, keys, IRBody(body), body)


def binary(name: str, keys: str, wide: Any, narrow: IRFunction | None = None) -> Any:
    def typed(typingctx, x, y):
        kind = computed_in(name, x, y)

        def generate(context, builder, sig, args):
            return _generate(context, builder, kind, args, wide, narrow)

        return kind(kind, kind), generate

    return named(typed, name, *keys.split())


def _keys(name: str, *more: str) -> str:
    return " ".join([f"math.{name}", f"libdevice.{name}", f"libdevice.{name}f", *more])


exp = unary("exp", _keys("exp", "libdevice.fast_expf"), IRBody(vec.exp64), vec.exp)
exp2 = unary("exp2", _keys("exp2"), "exp2", vec.exp2)
exp10 = unary(
    "exp10",
    _keys("exp10", "libdevice.fast_exp10f"),
    IRBody(lambda x: vec64.pow(x.constant(10.0), x)),
    vec.exp10,
)
expm1 = unary("expm1", _keys("expm1"), IRBody(vec.expm1_64), vec.expm1)
log = unary("log", _keys("log", "libdevice.fast_logf"), IRBody(vec.log64), vec.log)
log2 = unary("log2", _keys("log2", "libdevice.fast_log2f"), math.log2, vec.log2)
log10 = unary("log10", _keys("log10", "libdevice.fast_log10f"), math.log10, vec.log10)
log1p = unary("log1p", _keys("log1p"), IRBody(vec.log1p64), vec.log1p)
tanh = unary("tanh", _keys("tanh"), IRBody(vec.tanh64), vec.tanh)
erf = unary("erf", _keys("erf"), IRBody(vec64.erf), vec.erf)
erfc = unary("erfc", _keys("erfc"), math.erfc, vec.erfc)
sin = unary("sin", _keys("sin", "libdevice.fast_sinf"), IRBody(vec64.sin), vec.sin)
cos = unary("cos", _keys("cos", "libdevice.fast_cosf"), IRBody(vec64.cos), vec.cos)
tan = unary("tan", _keys("tan", "libdevice.fast_tanf"), IRBody(vec64.tan), vec.tan)
sinpi = unary_ir("sinpi", "libdevice.sinpi libdevice.sinpif", vec.sinpi)
cospi = unary_ir("cospi", "libdevice.cospi libdevice.cospif", vec.cospi)
asin = unary("asin", _keys("asin"), math.asin, vec.asin)
acos = unary("acos", _keys("acos"), math.acos, vec.acos)
atan = unary("atan", _keys("atan"), math.atan, vec.atan)
sinh = unary("sinh", _keys("sinh"), math.sinh, vec.sinh)
cosh = unary("cosh", _keys("cosh"), math.cosh, vec.cosh)
asinh = unary("asinh", _keys("asinh"), math.asinh, vec.asinh)
acosh = unary("acosh", _keys("acosh"), math.acosh, vec.acosh)
atanh = unary("atanh", _keys("atanh"), math.atanh, vec.atanh)
gamma = unary("gamma", "math.gamma libdevice.tgamma libdevice.tgammaf", math.gamma)
lgamma = unary("lgamma", _keys("lgamma"), math.lgamma)
sqrt = unary_ir("sqrt", _keys("sqrt"), lambda x: x.call("sqrt"))
rsqrt = unary_ir("rsqrt", "libdevice.rsqrt libdevice.rsqrtf", vec.rsqrt)
cbrt = unary("cbrt", "cbrt libdevice.cbrt libdevice.cbrtf", IRBody(vec.cbrt64), vec.cbrt)
rcbrt = unary(
    "rcbrt",
    "libdevice.rcbrt libdevice.rcbrtf",
    IRBody(lambda x: 1.0 / vec.cbrt64(x)),
    lambda x: 1.0 / vec.cbrt(x),
)
fabs = unary_ir("fabs", _keys("fabs"), lambda x: x.call("fabs"))
floor = unary_ir("floor", _keys("floor"), lambda x: x.call("floor"))
ceil = unary_ir("ceil", _keys("ceil"), lambda x: x.call("ceil"))
trunc = unary_ir("trunc", _keys("trunc"), lambda x: x.call("trunc"))
rint = unary_ir("rint", _keys("rint", "libdevice.nearbyint", "libdevice.nearbyintf"), V.rint)
round_away = unary_ir("round_away", "libdevice.round libdevice.roundf", lambda x: x.call("round"))
saturate = unary_ir("saturate", "libdevice.saturatef", vec.saturate)
degrees = unary_ir("degrees", "math.degrees", lambda x: x * (180.0 / math.pi))
radians = unary_ir("radians", "math.radians", lambda x: x * (math.pi / 180.0))

atan2 = binary("atan2", _keys("atan2"), math.atan2, vec.atan2)
hypot = binary("hypot", _keys("hypot"), math.hypot)
copysign = binary("copysign", _keys("copysign"), "copysign", V.with_sign_of)
fmod = binary("fmod", _keys("fmod"), IRBody(V.fmod), vec.fmod)
divide = binary("divide", "libdevice.fast_fdividef", IRBody(operator.truediv), operator.truediv)
fmax = binary("fmax", _keys("fmax"), "maxnum", lambda x, y: x.call("maxnum", y))
fmin = binary("fmin", _keys("fmin"), "minnum", lambda x, y: x.call("minnum", y))


def _difference(x: V, y: V) -> V:
    return (x <= y).where(x.constant(0.0), x - y)


fdim = binary("fdim", "libdevice.fdim libdevice.fdimf", IRBody(_difference), _difference)
remainder = binary("remainder", _keys("remainder"), IRBody(vec.remainder), vec.remainder)
nextafter = binary("nextafter", _keys("nextafter"), math.nextafter)


def _power_types(typingctx, x, y):
    kind = computed_in("pow", x) if isinstance(y, types.Integer) else computed_in("pow", x, y)
    exponent = types.float64 if isinstance(y, types.Integer) else kind

    def generate(context, builder, sig, args):
        base, power = (V(builder, arg) for arg in args)
        if kind == types.float32:
            return vec.pow_wide(base, power.to_float(F64)).value
        return vec64.pow(base, power).value

    return kind(kind, exponent), generate


pow = named(
    _power_types,
    "pow",
    *_keys("pow", "libdevice.powi", "libdevice.powif", "libdevice.fast_powf").split(),
)
# typed alike in Numba's CPU target, so its own serve
TABLE |= dict.fromkeys(("libdevice.ldexp", "libdevice.ldexpf"), math.ldexp)


def _extreme(name: str, ordered: str) -> Any:
    """`max` and `min`; where an operand is a float, as C's fmax and fmin, which ignore a NaN."""

    def typed(typingctx, x, y):
        x, y = types.unliteral(x), types.unliteral(y)
        for arg in (x, y):
            computed_in(name, arg)  # refuses what is no real number
        kind = typingctx.unify_types(x, y)
        if isinstance(kind, types.Float) and kind != types.float64:
            kind = types.float32  # of half-precision numbers too

        def generate(context, builder, sig, args):
            if isinstance(kind, types.Float):
                first, second = (V(builder, arg) for arg in args)
                return first.call(f"{name}num", second).value
            signed = isinstance(kind, types.Integer) and kind.signed
            compare = builder.icmp_signed if signed else builder.icmp_unsigned
            return builder.select(compare(ordered, *args), *args)

        return kind(kind, kind), generate

    return named(typed, f"{name}imum", f"builtins.{name}")


maximum = _extreme("max", ">")
minimum = _extreme("min", "<")


def _classify(name: str, keys: str, test: Callable[[V, int], V]) -> Any:
    def typed(typingctx, x):
        kind = computed_in(name, x)

        def generate(context, builder, sig, args):
            x = V(builder, args[0])
            infinity = x.constant(math.inf).bits()
            return test(x.abs().bits(), infinity).value

        return types.boolean(kind), generate

    return named(typed, name, *keys.split())


isnan = _classify("isnan", "math.isnan", lambda size, inf: size > inf)
isinf = _classify("isinf", "math.isinf", lambda size, inf: size == inf)
isfinite = _classify("isfinite", "math.isfinite", lambda size, inf: size < inf)


def _round_types(typingctx, x):
    kind = computed_in("round", x)

    def generate(context, builder, sig, args):
        return builder.fptosi(V(builder, args[0]).rint().value, I64)

    return types.int64(kind), generate


round_even = named(_round_types, "round_even", "builtins.round")


def _modf(typing_context: Any, x: types.Type) -> Any:
    """math.modf: the fraction, with the sign of x, and the whole part."""
    kind = computed_in("math.modf", x)

    def generate(context: Any, builder: Any, sig: Any, args: list) -> Any:
        value = context.cast(builder, args[0], sig.args[0], kind)
        trunc = builder.module.declare_intrinsic("llvm.trunc", [value.type])
        two = ir.FunctionType(value.type, [value.type] * 2)
        copysign = builder.module.declare_intrinsic("llvm.copysign", [value.type], two)
        whole = builder.call(trunc, [value])
        no_fraction = builder.fcmp_ordered("==", value, whole)  # infinities too
        rest = builder.select(no_fraction, value.type(0.0), builder.fsub(value, whole))
        fraction = builder.call(copysign, [rest, value])
        return context.make_tuple(builder, sig.return_type, [fraction, whole])

    return types.UniTuple(kind, 2)(x), generate


modf = named(_modf, "modf", *_keys("modf").split())

# NumPy's ufuncs on scalars are the same functions under other names
_NUMPY = (
    "exp exp2 expm1 log log2 log10 log1p tanh sin cos tan sinh cosh sqrt cbrt fabs floor ceil trunc"
    " rint hypot copysign fmod fmax fmin degrees radians"
    " arctan2 arcsin arccos arctan arcsinh arccosh arctanh"
)
BY_FUNCTION: dict[Any, Any] = {
    getattr(np, name): globals()[name.replace("arc", "a")] for name in _NUMPY.split()
}
BY_FUNCTION |= {
    getattr(math, key.removeprefix("math.")): made
    for key, made in TABLE.items()
    if key.startswith("math.") and hasattr(math, key.removeprefix("math."))
}
BY_FUNCTION |= {max: maximum, min: minimum, round: round_even}
