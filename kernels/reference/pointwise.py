"""Pointwise operations: the text of a table line evaluated on arrays."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

import numpy as np

from kernels.pointwise import Expr
from kernels.reference.common import compute_dtype, traced


def _sign(x: np.ndarray) -> np.ndarray:
    """1, -1 or 0, which NaN gives too."""
    return x if x.dtype == bool else (x > 0).astype(x.dtype) - (x < 0).astype(x.dtype)


def _of_floats(rounding: np.ufunc) -> Callable:
    """A rounding function that returns integers as they are; NumPy would make floats of them."""
    return lambda x: rounding(x) if np.asarray(x).dtype.kind not in "biu" else x


def _power(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a ** b; of integers with a negative exponent the truncated result."""
    if np.result_type(a, b).kind != "i":
        return np.power(a, b)
    whole = np.power(a, np.maximum(b, 0))
    odd = np.where(np.asarray(b) % 2, a, 1)
    return np.where(b >= 0, whole, np.where(np.abs(a) == 1, odd, 0)).astype(whole.dtype)


def _operand(value: np.ndarray | float, dtype: np.dtype) -> np.ndarray:
    """An array or number in the compute dtype; integers that it cannot hold wrap around."""
    return np.asarray(value).astype(dtype, copy=False)


def _by_element(function: Callable[[float], float]) -> Callable:
    """A function of the standard library, in double: exact to rounding, and needs no SciPy."""

    def apply(x: np.ndarray) -> np.ndarray:
        flat = [function(v) for v in np.asarray(x, np.float64).ravel().tolist()]
        return np.asarray(flat, x.dtype).reshape(np.shape(x))

    return apply


def _lgamma(x: float) -> float:
    try:
        return math.lgamma(x)
    except ValueError:  # a pole
        return math.inf


_NAMESPACE = {
    "abs": np.abs,
    "acos": np.arccos,
    "acosh": np.arccosh,
    "asin": np.arcsin,
    "asinh": np.arcsinh,
    "atan": np.arctan,
    "atan2": np.arctan2,
    "atanh": np.arctanh,
    "ceil": _of_floats(np.ceil),
    "cos": np.cos,
    "cosh": np.cosh,
    "erf": _by_element(math.erf),
    "erfc": _by_element(math.erfc),
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "floor": _of_floats(np.floor),
    "fmod": np.fmod,
    "isinf": np.isinf,
    "isnan": np.isnan,
    "lgamma": _by_element(_lgamma),
    "log": np.log,
    "log10": np.log10,
    "log1p": np.log1p,
    "log2": np.log2,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "pow": _power,
    "rint": _of_floats(np.rint),
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sign": _sign,
    "sin": np.sin,
    "sinh": np.sinh,
    "sqrt": np.sqrt,
    "tan": np.tan,
    "tanh": np.tanh,
    "trunc": _of_floats(np.trunc),
    "where": np.where,
}


@functools.cache
def _compiled(text: str) -> object:
    return compile(text, f"<pointwise {text}>", "eval")


def default_dtype(expr: Expr, arrays: Sequence[np.ndarray | float]) -> np.dtype:
    """The compute dtype where the caller names none: NumPy's promotion of the unmasked inputs,
    and float32 instead of an integer where the operation needs a float."""
    pairs = zip(expr.args, arrays, strict=True)
    dtype = np.result_type(*(a for name, a in pairs if name not in expr.masks))
    return np.dtype(np.float32) if expr.domain == "float" and dtype.kind in "biu" else dtype


@traced
def pointwise(
    expr: Expr,
    *arrays: np.ndarray | float | int | bool,
    params: Sequence[float] = (),
    dtype: np.dtype | None = None,
    out: np.ndarray | None = None,
    out_dtype: np.dtype | None = None,
) -> np.ndarray:
    """Evaluate one line of `kernels.pointwise` on arrays that broadcast together.

    arrays: one per `expr.args`; a Python scalar counts as a 0-dim array.
    params: one per `expr.params`.
    dtype: the compute dtype every input is converted to (default: NumPy's promotion).
    out: written and returned where given; else a new array of `out_dtype` (default: bool for
        tests, else `dtype`) and of the broadcast shape.
    """
    if len(arrays) != len(expr.args) or len(params) != len(expr.params):
        raise TypeError(
            f"{expr.name}: takes arrays {expr.args} and params {expr.params}, "
            f"got {len(arrays)} and {len(params)}"
        )
    if dtype is None:
        dtype = default_dtype(expr, arrays)
    dtype = np.dtype(dtype)
    compute = compute_dtype(dtype)
    names = dict(_NAMESPACE)
    for name, array in zip(expr.args, arrays, strict=True):
        names[name] = _operand(array, np.dtype(bool) if name in expr.masks else compute)
    for name, value in zip(expr.params, params, strict=True):
        names[name] = _operand(value, compute)[()]
    with np.errstate(all="ignore"):
        result = np.asarray(eval(_compiled(expr.text), {"__builtins__": {}}, names))
    if out is None:
        out_dtype = out_dtype or (np.dtype(bool) if expr.result == "bool" else dtype)
        shape = np.broadcast_shapes(*(np.shape(a) for a in arrays))
        out = np.empty(shape, out_dtype)
    with np.errstate(all="ignore"):
        out[...] = result
    return out
