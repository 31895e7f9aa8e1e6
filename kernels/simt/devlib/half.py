"""float16 and bfloat16: storage formats, 16 bits in memory, float32 in arithmetic.

Conversions round to nearest, ties to even, as CUDA's `__float2half_rn` and `__float2bfloat16_rn`;
float64 values round once. They are branch-free, so loops over them vectorise; where the CPU has
half-precision conversion instructions (F16C, ARM), float16 uses those.
"""

from __future__ import annotations

import operator
import platform
from typing import Any

import ml_dtypes
import numpy as np
from llvmlite import binding, ir
from numba import config
from numba.core import types
from numba.core.errors import TypingError
from numba.core.typeconv import Conversion
from numba.extending import lower_builtin, lower_cast, models, register_model, type_callable

from kernels.simt.devlib import vecmath as vec
from kernels.simt.devlib.llvm_ir import F32, F64, I16, I32, V
from kernels.simt.devlib.maths import named


def has_half_instructions() -> bool:
    """Whether Numba compiles for a CPU that converts float16 itself."""
    if config.CPU_FEATURES is not None:
        return "+f16c" in config.CPU_FEATURES
    if config.CPU_NAME == "generic":
        return False
    if platform.machine().lower() in ("arm64", "aarch64"):
        return True
    return bool(binding.get_host_cpu_features().get("f16c"))


def _half_to_float_bits(stored: V) -> V:
    """Exact. Multiplying by 2^112 rebiases the exponent, of subnormals too."""
    h = stored.zext(I32)
    size = (h & 0x7FFF) << 13
    value = (size.as_float(F32) * 2.0**112).bits()
    special = size | 0x7F800000
    special = (size > 0x0F800000).where(special | 0x400000, special)
    return ((size >= 0x0F800000).where(special, value) | ((h & 0x8000) << 16)).as_float(F32)


def _float_to_half_bits(x: V) -> V:
    bits = x.bits()
    size = bits & 0x7FFFFFFF
    # a subnormal half is the last bits of size + 0.5, which the addition has rounded
    small = (size.as_float(F32) + 0.5).bits() - 0x3F000000
    normal = (size + (((size >> 13) & 1) + (0xFFF - (112 << 23)))) >> 13
    result = (size < (113 << 23)).where(small, normal)
    result = (size >= (143 << 23)).where(result.constant(0x7C00), result)
    nan = (size >> 13) & 0x3FF | 0x7E00
    result = (size > 0x7F800000).where(nan, result)
    return (result | (bits.logical_shift(16) & 0x8000)).trunc(I16)


def _half_to_float_native(stored: V) -> V:
    builder = stored.builder
    return V(builder, builder.fpext(builder.bitcast(stored.value, ir.HalfType()), F32))


def _float_to_half_native(x: V) -> V:
    return V(x.builder, x.builder.bitcast(x.builder.fptrunc(x.value, ir.HalfType()), I16))


def _bfloat_to_float(stored: V) -> V:
    return (stored.zext(I32) << 16).as_float(F32)


def _float_to_bfloat(x: V) -> V:
    bits = x.bits()
    rounded = (bits + ((bits.logical_shift(16) & 1) + 0x7FFF)).logical_shift(16)
    return x.isnan().where(bits.logical_shift(16) | 0x40, rounded).trunc(I16)


def _to_odd(x: V) -> V:
    """float64 to float32, an inexact result ending in an odd bit: rounding it again is right."""
    near = x.to_float(F32)
    back = near.to_float(F64)
    bits = near.bits()
    toward_zero = (back.abs() > x.abs()).where(bits - 1, bits) | 1
    exact = (back == x) | x.isnan()
    return exact.where(near, toward_zero.as_float(F32))


class Storage(types.Float):
    """A 16-bit float in memory. A load converts it to float32; any number converts to it."""

    def __init__(self, name: str, load: Any, store: Any) -> None:
        types.Number.__init__(self, name=name)
        self.bitwidth = 16
        self.load, self.store = load, store

    def __str__(self) -> str:
        # Numba looks up NumPy's rules for scalars by this string; it cannot look up bfloat16, and
        # both formats convert to the same types.
        return "float16"

    def unify(self, typingctx: Any, other: types.Type) -> types.Type | None:
        return types.float32 if isinstance(other, Storage) else super().unify(typingctx, other)

    def can_convert_to(self, typingctx: Any, other: types.Type) -> Conversion | None:
        if other == types.float32:
            return Conversion.promote
        if isinstance(other, types.Float | types.Complex):
            return Conversion.safe
        return Conversion.unsafe if isinstance(other, types.Number | types.Boolean) else None

    def can_convert_from(self, typingctx: Any, other: types.Type) -> Conversion | None:
        real = isinstance(other, types.Integer | types.Float | types.Boolean)
        return Conversion.unsafe if real else None


@register_model(Storage)
class StorageModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Storage) -> None:
        super().__init__(manager, kind, I16)


_NATIVE = has_half_instructions()
_to_half = _float_to_half_native if _NATIVE else _float_to_half_bits
_from_half = _half_to_float_native if _NATIVE else _half_to_float_bits

float16 = Storage("float16", _from_half, _to_half)
bfloat16 = Storage("bfloat16", _bfloat_to_float, _float_to_bfloat)


@lower_cast(Storage, types.Float)
@lower_cast(Storage, types.Complex)
@lower_cast(Storage, types.Integer)
@lower_cast(Storage, types.Boolean)
def _widen(context, builder, kind, target, value):
    loaded = kind.load(V(builder, value)).value
    return context.cast(builder, loaded, types.float32, target)


@lower_cast(types.IntegerLiteral, Storage)  # else as near as Numba's own, to any Float
@lower_cast(types.Integer, Storage)
@lower_cast(types.Float, Storage)
@lower_cast(types.Boolean, Storage)
def _narrow(context, builder, kind, target, value):
    if kind == types.float32:
        return target.store(V(builder, value)).value
    # integers go through float64, which holds every one that these formats can
    wide = context.cast(builder, value, kind, types.float64)
    return target.store(_to_odd(V(builder, wide))).value


@lower_cast(Storage, Storage)
def _exchange(context, builder, kind, target, value):
    return value if kind == target else target.store(kind.load(V(builder, value))).value


@lower_builtin(bool, Storage)
def _truth(context, builder, sig, args):
    return (sig.args[0].load(V(builder, args[0])) != 0.0).value


@type_callable(float)
def _type_of_float(context):
    return lambda x: types.float32 if isinstance(x, Storage) else None


@type_callable(complex)
def _type_of_complex(context):
    return lambda x: types.complex64 if isinstance(x, Storage) else None


@lower_builtin(float, Storage)
@lower_builtin(complex, Storage)
def _widened(context, builder, sig, args):
    return context.cast(builder, args[0], sig.args[0], sig.return_type)


def _viewed_as(name: str, kind: Storage) -> Any:
    """A uint16 array seen as one of `kind`: what launchers pass, since NumPy has no bfloat16."""

    def typed(typingctx, array):
        if not isinstance(array, types.Array) or array.dtype != types.uint16:
            raise TypingError(f"{name} reinterprets a uint16 array, not {array}")
        viewed = array.copy(dtype=kind)

        def generate(context, builder, sig, args):
            if context.enable_nrt:  # the view holds a reference of its own
                context.nrt.incref(builder, viewed, args[0])
            return args[0]

        return viewed(array), generate

    return named(typed, name)


as_half = _viewed_as("as_half", float16)
as_bfloat16 = _viewed_as("as_bfloat16", bfloat16)

STORAGE: dict[np.dtype, tuple[Storage, Any]] = {
    np.dtype(np.float16): (float16, as_half),
    np.dtype(ml_dtypes.bfloat16): (bfloat16, as_bfloat16),
}
"""Numba's storage type and the view intrinsic by NumPy dtype."""


def _rounded(name: str, kind: Storage, *keys: str) -> Any:
    """A float32 rounded to the narrow format and back, for arithmetic as CUDA does it."""

    def typed(typingctx, value):
        def generate(context, builder, sig, args):
            return kind.load(kind.store(V(builder, args[0]))).value

        return types.float32(types.float32), generate

    return named(typed, name, *keys)


half_round = _rounded("half_round", float16, "float16.round")
bfloat16_round = _rounded("bfloat16_round", bfloat16, "bfloat16.round")


def _conversion(name: str, source: types.Type, target: types.Type, body: Any) -> Any:
    def typed(typingctx, value):
        def generate(context, builder, sig, args):
            return body(V(builder, args[0])).value

        return target(source), generate

    return named(typed, name)


# what CPUs without the instructions use, callable on every CPU so that tests can compare
half_load_portable = _conversion(
    "half_load_portable", types.uint16, types.float32, _half_to_float_bits
)
half_store_portable = _conversion(
    "half_store_portable", types.float32, types.uint16, _float_to_half_bits
)


def _half_function(name: str, arity: int, body: Any, result: types.Type = types.float32) -> Any:
    """`cuda.fp16.<name>`: computed in float32, the result rounded to float16."""

    def generate(context, builder, sig, args):
        value = body(*(V(builder, arg) for arg in args))
        if result == types.float32:
            value = float16.load(float16.store(value))
        return value.value

    args = (types.float32,) * arity
    typed = {
        1: lambda typingctx, a: (result(*args), generate),
        2: lambda typingctx, a, b: (result(*args), generate),
        3: lambda typingctx, a, b, c: (result(*args), generate),
    }[arity]
    return named(typed, f"fp16_{name}", f"fp16.{name}")


_HALF_UNARY = {
    "hneg": operator.neg,
    "habs": V.abs,
    "hsin": vec.sin,
    "hcos": vec.cos,
    "htanh": vec.tanh,
    "hexp": vec.exp,
    "hexp2": vec.exp2,
    "hexp10": vec.exp10,
    "hlog": vec.log,
    "hlog2": vec.log2,
    "hlog10": vec.log10,
    "hsqrt": lambda x: x.call("sqrt"),
    "hrsqrt": vec.rsqrt,
    "hrcp": lambda x: 1.0 / x,
    "hfloor": lambda x: x.call("floor"),
    "hceil": lambda x: x.call("ceil"),
    "htrunc": lambda x: x.call("trunc"),
    "hrint": V.rint,
}
_HALF_BINARY = {
    "hadd": operator.add,
    "hsub": operator.sub,
    "hmul": operator.mul,
    "hdiv": operator.truediv,
    "hmax": lambda x, y: x.call("maxnum", y),
    "hmin": lambda x, y: x.call("minnum", y),
}
for _name, _body in _HALF_UNARY.items():
    globals()[f"fp16_{_name}"] = _half_function(_name, 1, _body)
for _name, _body in _HALF_BINARY.items():
    globals()[f"fp16_{_name}"] = _half_function(_name, 2, _body)
for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    _body = getattr(operator, _name)
    globals()[f"fp16_h{_name}"] = _half_function(f"h{_name}", 2, _body, types.boolean)
fp16_hfma = _half_function("hfma", 3, V.fma)
