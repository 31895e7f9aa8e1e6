"""Lines of the pointwise table as ONNX nodes: the text of a line is evaluated on `Symbol`s, whose
operators add nodes. A line for which ONNX has an operator of its own is in `OWN`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from minigrad.onnx.trace import Call, OnnxExporterError, Value
from minigrad.onnx.writer import Writer


class Symbol:
    """A value in an expression: operators with numbers and other symbols give symbols."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, writer: Writer, name: str, dtype: Any) -> None:
        self.writer, self.name, self.dtype = writer, name, np.dtype(dtype)

    def apply(self, kind: str, *others: Any, dtype: Any = None, **attrs: Any) -> Symbol:
        """The result of a node on this and other operands."""
        names = [self.of(x).name for x in others]
        made = self.writer.node(kind, self.name, *names, **attrs)
        return Symbol(self.writer, made, self.dtype if dtype is None else dtype)

    def of(self, x: Any) -> Symbol:
        """A number as a constant of this dtype."""
        if isinstance(x, Symbol):
            return x
        return Symbol(self.writer, self.writer.constant(np.asarray(x, self.dtype)), self.dtype)

    def __add__(self, x: Any) -> Symbol:
        return self.apply("Or" if self.dtype == bool else "Add", x)

    def __mul__(self, x: Any) -> Symbol:
        return self.apply("And" if self.dtype == bool else "Mul", x)

    def __sub__(self, x: Any) -> Symbol:
        return self.apply("Sub", x)

    def __truediv__(self, x: Any) -> Symbol:
        return self.apply("Div", x)

    def __floordiv__(self, x: Any) -> Symbol:
        if self.dtype.kind in "iu":  # ONNX divides integers towards zero
            return (self - self % x) / x
        return (self / x).apply("Floor")

    def __mod__(self, x: Any) -> Symbol:
        if self.dtype.kind in "iu":
            return self.apply("Mod", x)
        return self - (self // x) * x

    def __radd__(self, x: Any) -> Symbol:
        return self.of(x) + self

    def __rmul__(self, x: Any) -> Symbol:
        return self.of(x) * self

    def __rsub__(self, x: Any) -> Symbol:
        return self.of(x) - self

    def __rtruediv__(self, x: Any) -> Symbol:
        return self.of(x) / self

    def __rfloordiv__(self, x: Any) -> Symbol:
        return self.of(x) // self

    def __rmod__(self, x: Any) -> Symbol:
        return self.of(x) % self

    def __neg__(self) -> Symbol:
        return self.apply("Neg")

    def __invert__(self) -> Symbol:
        return self.apply("Not" if self.dtype == bool else "BitwiseNot")

    def __and__(self, x: Any) -> Symbol:
        return self.apply("And" if self.dtype == bool else "BitwiseAnd", x)

    def __or__(self, x: Any) -> Symbol:
        return self.apply("Or" if self.dtype == bool else "BitwiseOr", x)

    def __xor__(self, x: Any) -> Symbol:
        return self.apply("Xor" if self.dtype == bool else "BitwiseXor", x)

    def __eq__(self, x: Any) -> Symbol:  # type: ignore[override]
        return self.apply("Equal", x, dtype=bool)

    def __ne__(self, x: Any) -> Symbol:  # type: ignore[override]
        return ~(self.apply("Equal", x, dtype=bool)) if self.dtype != bool else self ^ x

    def __lt__(self, x: Any) -> Symbol:
        return self.apply("Less", x, dtype=bool)

    def __le__(self, x: Any) -> Symbol:
        return self.apply("LessOrEqual", x, dtype=bool)

    def __gt__(self, x: Any) -> Symbol:
        return self.apply("Greater", x, dtype=bool)

    def __ge__(self, x: Any) -> Symbol:
        return self.apply("GreaterOrEqual", x, dtype=bool)


def _unary(kind: str) -> Callable:
    return lambda x: x.apply(kind)


def _binary(kind: str) -> Callable:
    def function(a: Any, b: Any) -> Symbol:
        if not isinstance(a, Symbol):
            a = b.of(a)
        return a.apply(kind, b)

    return function


def _where(c: Symbol, a: Any, b: Any) -> Symbol:
    like = a if isinstance(a, Symbol) else b
    a, b = like.of(a), like.of(b)
    return Symbol(like.writer, like.writer.node("Where", c.name, a.name, b.name), like.dtype)


def _trunc(x: Symbol) -> Symbol:
    return x.apply("Sign") * x.apply("Abs").apply("Floor")


# The functions of the texts; those that ONNX lacks (lgamma) are refused.
_UNARY = "abs acos acosh asin asinh atan atanh ceil cos cosh erf exp floor log sign sin sinh sqrt"
FUNCTIONS: dict[str, Callable] = {n: _unary(n.capitalize()) for n in f"{_UNARY} tan tanh".split()}
FUNCTIONS |= {
    "isnan": lambda x: x.apply("IsNaN", dtype=bool),
    "isinf": lambda x: x.apply("IsInf", dtype=bool),
    "rint": _unary("Round"),
    "rsqrt": lambda x: 1 / x.apply("Sqrt"),
    "erfc": lambda x: 1 - x.apply("Erf"),
    "exp2": lambda x: (x * math.log(2)).apply("Exp"),
    "expm1": lambda x: x.apply("Exp") - 1,
    "log1p": lambda x: (x + 1).apply("Log"),
    "log2": lambda x: x.apply("Log") / math.log(2),
    "log10": lambda x: x.apply("Log") / math.log(10),
    "fmod": lambda a, b: a.apply("Mod", b, fmod=1),
    "maximum": _binary("Max"),
    "minimum": _binary("Min"),
    "pow": _binary("Pow"),
    "trunc": _trunc,
    "where": _where,
}


def _clip(x: Symbol, low: Any, high: Any) -> Symbol:
    bounds = [x.of(b).name if b is not None else "" for b in (low, high)]
    return Symbol(x.writer, x.writer.node("Clip", x.name, *bounds), x.dtype)


def _elu(x: Symbol, alpha: float, scale: float) -> Symbol:
    y = x.apply("Elu", alpha=float(alpha / scale))
    return y if scale == 1 else y * scale


# Lines for which ONNX has an operator: from the inputs and the parameters.
OWN: dict[str, Callable] = {
    "relu": _unary("Relu"),
    "sigmoid": _unary("Sigmoid"),
    "softsign": _unary("Softsign"),
    "silu": lambda x: x * x.apply("Sigmoid"),
    "glu": lambda a, b: a * b.apply("Sigmoid"),
    "reciprocal": _unary("Reciprocal"),
    "leaky_relu": lambda x, slope: x.apply("LeakyRelu", alpha=float(slope)),
    "elu": _elu,
    "clamp": _clip,
    "hardtanh": _clip,
    "clamp_min": lambda x, low: _clip(x, low, None),
    "clamp_max": lambda x, high: _clip(x, None, high),
    "logical_not": lambda x: ~x if x.dtype == bool else x == 0,
    "copy": lambda x: x,
}


def pointwise(writer: Writer, call: Call) -> str:
    """Add the nodes of a line of the table; the name of the result."""
    line, dtype = call.op, call.attrs["dtype"]
    symbols: list[Any] = []
    for i, x in enumerate(call.inputs):
        kind = np.dtype(bool) if i in line.masks else dtype
        if isinstance(x, Value):
            name = writer.cast(writer.name(x), writer.dtype(x), kind)
        else:
            name = writer.constant(np.asarray(x).astype(kind))
        symbols.append(Symbol(writer, name, kind))
    params = call.attrs["params"]
    own = OWN.get(line.name)
    try:
        if own is not None:
            result = own(*symbols, *params)
        else:
            names = ", ".join((*line.expr.args, *line.expr.params))
            space = {**FUNCTIONS, "__builtins__": {}}
            result = eval(f"lambda {names}: {line.expr.text}", space)(*symbols, *params)
    except NameError as error:
        raise OnnxExporterError(
            f"onnx.export: no ONNX operator computes {call} (its function {error.name})"
        ) from None
    return result.name
