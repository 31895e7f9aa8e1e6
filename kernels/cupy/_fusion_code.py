"""The operations of fused functions in CUDA C.

An expression is written in `a`, `b`, `c`, which are of the types that CuPy's table gives the
operands (`A`, `B`), and of `R`, the type of the result. float16 is computed in float.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ._expressions import c_type

_FLOAT, _INT, _UNSIGNED, _BOOL, _COMPLEX = "f", "i", "u", "b", "c"
_NUMBER = "fiub"
_CLIPPED = "(a < b ? b : a) > c ? c : (a < b ? b : a)"
_NEXT = "sizeof(A) == 4 ? (A)nextafterf(a, b) : (A)nextafter((double)a, (double)b)"
_ALL = _NUMBER + _COMPLEX

PREAMBLE = r"""
template <class T> __device__ inline T mg_floor_divide(T a, T b) {
    if (b == 0) return 0;
    if (T(-1) < T(0) && b == T(-1)) return T(0) - a;
    const T q = a / b;
    return (a % b != 0 && ((a < 0) != (b < 0))) ? q - 1 : q;
}
template <class T> __device__ inline T mg_remainder(T a, T b) {
    if (b == 0 || (T(-1) < T(0) && b == T(-1))) return 0;
    const T r = a % b;
    return (r != 0 && ((r < 0) != (b < 0))) ? r + b : r;
}
template <class T> __device__ inline T mg_remainder_f(T a, T b) {
    const T r = fmod(a, b);
    if (r == 0) return copysign(T(0), b);
    return (r < 0) != (b < 0) ? r + b : r;
}
template <class T> __device__ inline T mg_floor_divide_f(T a, T b) {
    if (b == 0) return a / b;
    T r = fmod(a, b), q = (a - r) / b;
    if (r != 0 && (r < 0) != (b < 0)) q -= 1;
    if (q == 0) return copysign(T(0), a / b);
    const T down = floor(q);
    return q - down > T(0.5) ? down + 1 : down;
}
template <class T> __device__ inline T mg_power(T a, T b) {
    if (T(-1) < T(0) && b < 0) return a == 1 ? 1 : a == T(-1) ? (b % 2 ? T(-1) : T(1)) : 0;
    T result = 1;
    for (; b; b /= 2) { if (b % 2) result *= a; a *= a; }
    return result;
}
template <class T> __device__ inline T mg_fmod(T a, T b) {
    return b == 0 || (T(-1) < T(0) && b == T(-1)) ? 0 : a % b;
}
template <class T> __device__ inline T mg_abs(T a) { return a < 0 ? T(0) - a : a; }
template <class T> __device__ inline T mg_gcd(T a, T b) {
    a = mg_abs(a), b = mg_abs(b);
    while (b != 0) { const T r = a % b; a = b; b = r; }
    return a;
}
"""

#: expressions by ufunc: (kinds of the first operand, expression), the first that fits
_TABLE: dict[str, list[tuple[str, str]]] = {
    "add": [(_BOOL, "a || b"), (_ALL, "a + b")],
    "subtract": [(_BOOL, "a != b"), (_ALL, "a - b")],
    "multiply": [(_BOOL, "a && b"), (_ALL, "a * b")],
    "true_divide": [("iub", "(R)a / (R)b"), (_ALL, "a / b")],
    "floor_divide": [(_FLOAT, "mg_floor_divide_f(a, b)"), ("iu", "mg_floor_divide<A>(a, b)")],
    "remainder": [(_FLOAT, "mg_remainder_f(a, b)"), ("iu", "mg_remainder<A>(a, b)")],
    "fmod": [(_FLOAT, "fmod(a, b)"), ("iu", "mg_fmod<A>(a, b)")],
    "power": [("fc", "pow(a, b)"), ("iu", "mg_power<A>(a, b)")],
    "float_power": [("fc", "pow((R)a, (R)b)")],
    "negative": [(_BOOL, "!a"), (_ALL, "-a")],
    "positive": [(_ALL, "a")],
    "absolute": [("ub", "a"), (_INT, "a < 0 ? -a : a"), (_FLOAT, "fabs(a)"), (_COMPLEX, "abs(a)")],
    "fabs": [(_FLOAT, "fabs(a)")],
    "sign": [(_FLOAT, "a != a ? a : (A)((a > 0) - (a < 0))"), ("iu", "(a > 0) - (a < 0)")],
    "square": [(_BOOL, "a"), (_ALL, "a * a")],
    "reciprocal": [("iu", "a == 0 ? 0 : 1 / a"), ("fc", "(A)1 / a")],
    "conjugate": [(_NUMBER, "a"), (_COMPLEX, "conj(a)")],
    "real": [(_NUMBER, "a"), (_COMPLEX, "a.real()")],
    "imag": [(_NUMBER, "0"), (_COMPLEX, "a.imag()")],
    "angle": [(_FLOAT, "a != a ? a : signbit(a) ? (R)3.14159265358979323846 : (R)0"),
              (_COMPLEX, "arg(a)")],
    "rint": [("fc", "rint(a)")],
    "copysign": [(_FLOAT, "copysign(a, b)")],
    "nextafter": [(_FLOAT, _NEXT)],
    "signbit": [(_FLOAT, "signbit(a)")],
    "isnan": [("fc", "isnan(a)"), ("iub", "false")],
    "isinf": [("fc", "isinf(a)"), ("iub", "false")],
    "isfinite": [("fc", "isfinite(a)"), ("iub", "true")],
    "maximum": [(_FLOAT, "a >= b || a != a ? a : b"), ("iub", "a >= b ? a : b")],
    "minimum": [(_FLOAT, "a <= b || a != a ? a : b"), ("iub", "a <= b ? a : b")],
    "fmax": [(_FLOAT, "a >= b || b != b ? a : b"), ("iub", "a >= b ? a : b")],
    "fmin": [(_FLOAT, "a <= b || b != b ? a : b"), ("iub", "a <= b ? a : b")],
    "heaviside": [(_FLOAT, "a != a ? a : a < 0 ? (A)0 : a > 0 ? (A)1 : b")],
    "logical_and": [(_NUMBER, "a && b"), (_COMPLEX, "a != A(0) && b != A(0)")],
    "logical_or": [(_NUMBER, "a || b"), (_COMPLEX, "a != A(0) || b != A(0)")],
    "logical_xor": [(_NUMBER, "!a != !b"), (_COMPLEX, "(a != A(0)) != (b != A(0))")],
    "logical_not": [(_NUMBER, "!a"), (_COMPLEX, "a == A(0)")],
    "invert": [(_BOOL, "!a"), ("iu", "~a")],
    "left_shift": [("iu", "(unsigned long long)b < 8 * sizeof(A) ? a << b : 0")],
    "right_shift": [("iu", "(unsigned long long)b < 8 * sizeof(A) ? a >> b : a < 0 ? -1 : 0")],
    "gcd": [(_BOOL, "a || b"), ("iu", "mg_gcd<A>(a, b)")],
    "lcm": [(_BOOL, "a && b"), ("iu", "a == 0 || b == 0 ? 0 : mg_abs<A>(a / mg_gcd<A>(a, b) * b)")],
    "where": [(_ALL, "a ? b : c")],
    "clip": [(_FLOAT, f"a != a ? a : b != b ? b : c != c ? c : {_CLIPPED}"), ("iub", _CLIPPED)],
    "logaddexp": [(_FLOAT, "a == b ? a + (A)0.69314718055994530942 :"
                           " a > b ? a + log1p(exp(b - a)) : b + log1p(exp(a - b))")],
    "deg2rad": [(_FLOAT, "a * (A)0.01745329251994329577")],
    "rad2deg": [(_FLOAT, "a * (A)57.2957795130823208768")],
    "expit": [(_FLOAT, "(A)1 / ((A)1 + exp(-a))")],
    "logit": [(_FLOAT, "log(a / ((A)1 - a))")],
    "xlogy": [(_FLOAT, "a == 0 && b == b ? (A)0 : a * log(b)")],
    "ndtr": [(_FLOAT, "(A)0.5 * erfc(-a * (A)0.70710678118654752440)")],
    "gammaln": [(_FLOAT, "lgamma(a)")],
    "gamma": [(_FLOAT, "tgamma(a)")],
    "rsqrt": [(_FLOAT, "(A)1 / sqrt(a)")],
}  # fmt: skip
for _name in ("exp", "log", "sqrt", "sin", "cos", "tan", "sinh", "cosh", "tanh"):
    _TABLE[_name] = [("fc", f"{_name}(a)")]
for _name in ("asin", "acos", "atan", "asinh", "acosh", "atanh"):
    _TABLE[_name.replace("a", "arc", 1)] = [("fc", f"{_name}(a)")]
for _name in "exp2 expm1 log2 log10 log1p cbrt floor ceil trunc erf erfc".split():
    _TABLE[_name] = [(_FLOAT, f"{_name}(a)")]
for _name in ("floor", "ceil", "trunc"):
    _TABLE[_name].append(("iub", "a"))
for _name in ("expm1", "log2", "log10", "log1p"):
    _TABLE[_name].append((_COMPLEX, f"{_name}(a)"))
_TABLE["exp2"].append((_COMPLEX, "pow(A(2), a)"))
for _name, _symbol in zip("greater greater_equal less less_equal".split(), "> >= < <=".split()):
    _TABLE[_name] = [(_NUMBER, f"a {_symbol} b")]
for _name, _symbol in (("equal", "=="), ("not_equal", "!=")):
    _TABLE[_name] = [(_ALL, f"a {_symbol} b")]
for _name, _symbol in (("bitwise_and", "&"), ("bitwise_or", "|"), ("bitwise_xor", "^")):
    _TABLE[_name] = [("iub", f"a {_symbol} b")]
_TABLE["arctan2"] = [(_FLOAT, "atan2(a, b)")]
_TABLE["hypot"] = [(_FLOAT, "hypot(a, b)")]
_TABLE["fix"] = _TABLE["trunc"]
_ALIASES = {
    "divide": "true_divide", "mod": "remainder", "abs": "absolute", "pow": "power",
    "conj": "conjugate", "radians": "deg2rad", "degrees": "rad2deg", "radian": "deg2rad",
    "acos": "arccos", "asin": "arcsin", "atan": "arctan", "acosh": "arccosh", "asinh": "arcsinh",
    "atanh": "arctanh", "atan2": "arctan2", "bitwise_not": "invert", "bitwise_invert": "invert",
    "bitwise_left_shift": "left_shift", "bitwise_right_shift": "right_shift",
}  # fmt: skip

#: what reduces: (identity, combination of a and b); None: the first element
REDUCTIONS = {
    "sum": ("0", "a + b"),
    "prod": ("1", "a * b"),
    "nansum": ("0", "a + b"),
    "nanprod": ("1", "a * b"),
    "all": ("true", "a && b"),
    "any": ("false", "a || b"),
    "max": (None, "a >= b || a != a ? a : b"),
    "min": (None, "a <= b || a != a ? a : b"),
}


def expression(name: str, types: list[np.dtype], result: np.dtype) -> str | None:
    """The expression of an operation on operands of `types`, or None where there is none."""
    first = types[1] if name == "where" else types[0]
    if any(t.name not in _KNOWN for t in (*types, result)):
        return None
    if name == "nextafter" and first.char == "e":
        return None
    for kinds, text in _TABLE.get(_ALIASES.get(name, name), ()):
        if first.kind in kinds:
            return text
    return None


_KNOWN = frozenset(
    "bool int8 uint8 int16 uint16 int32 uint32 int64 uint64 float16 float32 float64 complex64"
    " complex128".split()
)


def computed_type(dtype: np.dtype) -> str:
    """The type in which values of a dtype are computed."""
    return "float" if dtype.char == "e" else c_type(dtype)


def literal(value: Any, dtype: np.dtype) -> str:
    """A number in CUDA C."""
    if dtype.kind == "c":
        parts = (literal(part, np.dtype(float)) for part in (value.real, value.imag))
        return f"{c_type(dtype)}({', '.join(parts)})"
    if dtype.kind == "b":
        return "true" if value else "false"
    if dtype.kind in "iu":
        whole = int(value)
        if whole == -(2**63):
            return "(-9223372036854775807LL - 1)"
        return f"({whole}{'ULL' if whole >= 2**63 else 'LL'})"
    number = float(value)
    if math.isnan(number):
        return "(0.0 / 0.0)"
    if math.isinf(number):
        return f"({'-' if number < 0 else ''}1.0 / 0.0)"
    return f"({number!r})"
