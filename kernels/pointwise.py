"""The table of pointwise operations: one line each, from which every dialect makes its kernel.

A line gives the forward expression and one derivative expression per array argument, written in the
arithmetic and calls that Python and C share: `+ - * / // % & | ^ ~ << >>`, comparisons, and the
functions of `FUNCTIONS`. From that line come

- the NumPy reference (`kernels.reference` evaluates the text on arrays),
- the Numba CUDA kernel (`kernels.numba_cuda.pointwise` pastes the text into a kernel),
- the CUDA C kernel (`kernels.cuda_c.pointwise`),
- the gradient: `expr.vjp(i)` is again such a line, run as one fused kernel, or evaluated on
  Tensors when the gradient itself must be differentiable.

In a derivative text `g` is the incoming gradient and `y` the result of the forward expression.
Literals take the compute dtype (`0.5` is a float32 in a float32 kernel, never a double).
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cache

from kernels.support.normal_quantile import FAR_TAIL, MIDDLE, TAIL

# Every function a text may call. `where`, `maximum`, `minimum` follow NumPy (NaN wins in max/min);
# `rint` rounds half to even; `sign` of 0 and of NaN is 0; `%` and `//` follow Python's sign rule.
FUNCTIONS = frozenset(
    "abs acos acosh asin asinh atan atan2 atanh ceil cos cosh erf erfc exp exp2 expm1 floor fmod"
    " isinf isnan lgamma log log10 log1p log2 maximum minimum pow rint rsqrt sign sin sinh sqrt tan"
    " tanh trunc where".split()
)


@cache
def flops(text: str) -> int:
    """The floating-point operations of an expression: operators, comparisons and calls."""
    counted = (ast.BinOp, ast.UnaryOp, ast.Compare, ast.Call)
    nodes = list(ast.walk(ast.parse(text, mode="eval")))
    signs = sum(isinstance(n, ast.UnaryOp) and isinstance(n.operand, ast.Constant) for n in nodes)
    return sum(isinstance(node, counted) for node in nodes) - signs  # -1 is a number


@dataclass(frozen=True, eq=False, slots=True)
class Expr:
    """A pointwise operation.

    name: unique name; a derivative is called `mul.vjp0`.
    args: names of the array arguments, in order.
    text: the expression over args and params.
    params: names of scalar parameters, passed by value in the compute dtype.
    grads: per argument the derivative text, or None where it is zero or undefined.
    result: "same" (the compute dtype) or "bool".
    domain: "any"; "float" where it computes in floats; "int" where only integers and bools make
        sense.
    refuses: the kinds of NumPy dtypes that torch does not take: "b" bool, "iu" integers, "f".
    masks: arguments that stay bool instead of being converted to the compute dtype.
    activation: whether networks apply it as an activation function of this name.
    """

    name: str
    args: tuple[str, ...]
    text: str
    params: tuple[str, ...] = ()
    grads: tuple[str | None, ...] = ()
    result: str = "same"
    domain: str = "any"
    masks: frozenset[str] = frozenset()
    activation: bool = False
    refuses: str = ""

    def vjp(self, index: int) -> Expr | None:
        """The line that computes the gradient with respect to argument `index`.

        Its args are those of `g`, the forward args and `y` that the text uses, so they also say
        what must be saved for backward. None where there is no gradient.
        """
        return _vjp(self, index)

    def __repr__(self) -> str:
        return f"Expr({self.name}: {self.text})"


def names_in(text: str) -> set[str]:
    """The variable names that an expression text uses (functions it calls are not variables)."""
    return set(compile(text, text, "eval").co_names) - FUNCTIONS


@cache
def _vjp(expr: Expr, index: int) -> Expr | None:
    text = expr.grads[index] if expr.grads else None
    if text is None:
        return None
    used = names_in(text)
    return Expr(
        name=f"{expr.name}.vjp{index}",
        args=tuple(a for a in ("g", *expr.args, "y") if a in used),
        text=text,
        params=tuple(p for p in expr.params if p in used),
        domain=expr.domain,
        refuses=expr.refuses,
        masks=expr.masks & used,
    )


TABLE: dict[str, Expr] = {}


def define(
    name: str,
    args: str,
    text: str,
    *grads: str | None,
    params: str = "",
    result: str = "same",
    domain: str = "any",
    masks: str = "",
    activation: bool = False,
    refuses: str = "",
) -> Expr:
    """Add a line to the table: `define("mul", "a b", "a * b", "g * b", "g * a")`."""
    expr = Expr(
        name,
        tuple(args.split()),
        text,
        tuple(params.split()),
        grads,
        result,
        domain,
        frozenset(masks.split()),
        activation,
        refuses,
    )
    unknown = names_in(text) - set(expr.args) - set(expr.params)
    if unknown:
        raise ValueError(f"pointwise {name}: unknown names {sorted(unknown)} in {text!r}")
    if grads and len(grads) != len(expr.args):
        raise ValueError(f"pointwise {name}: {len(grads)} gradients for {len(expr.args)} arguments")
    if name in TABLE:
        raise ValueError(f"pointwise {name} is defined twice")
    TABLE[name] = expr
    return expr


def quotient_or_zero(top: str, bottom: str) -> str:
    """top / bottom, and 0 where bottom is. No derivative of it divides by zero, which would make a
    term NaN that does not count."""
    return f"where({bottom} == 0, 0, {top} / where({bottom} == 0, 1, {bottom}))"


def _polygamma_texts() -> tuple[str, str]:
    """digamma(x) and its derivative: the asymptotic series (Abramowitz and Stegun 6.3.18, 6.4.12)
    at z = t + 6, and back to t by recurrence; t is x, or 1 - x by reflection (6.3.7, 6.4.7)."""
    t = "where(x < 0.5, 1 - x, x)"
    z, series, series1 = f"({t} + 6)", "0", "0"
    bernoulli = ["1 / 6", "-1 / 30", "1 / 42", "-1 / 30", "5 / 66", "-691 / 2730", "7 / 6"]
    for k, b in reversed(list(enumerate(bernoulli, start=1))):
        series = f"({b} / {2 * k} + {series}) / ({z} * {z})"
        series1 = f"({b} + {series1}) / ({z} * {z})"
    steps = " + ".join(f"1 / ({t} + {k})" for k in range(6))
    steps1 = " + ".join(f"1 / (({t} + {k}) * ({t} + {k}))" for k in range(6))
    digamma = f"(log{z} - 0.5 / {z} - {series} - ({steps}))"
    trigamma = f"((1 + 0.5 / {z} + {series1}) / {z} + ({steps1}))"
    pi = "3.141592653589793"
    # The distance from a pole is exact; past 0.5, where it does not count, it is no pole: a
    # derivative of infinity would be NaN, also times 0.
    rest = f"({pi} * where(x < 0.5, x - rint(x), 0.5))"
    turn = f"({pi} / sin{rest})"
    return (
        f"where(x == 0, -1 / x, where((x < 0) & (x == floor(x)), log(x), {digamma}"  # NaN at poles
        f" - where(x < 0.5, {pi} * cos{rest} / sin{rest}, 0)))",
        f"where(x < 0.5, {turn} * {turn} - {trigamma}, {trigamma})",
    )


_DIGAMMA, _TRIGAMMA = _polygamma_texts()


def _erfinv_text() -> str:
    """erfinv(x): the normal quantile of probability 1/2 + x / 2, over sqrt(2). The tail beyond it
    is (1 - abs(x)) / 2, which is exact where it is small."""

    def quotient(z: str, coefficients: tuple[tuple[float, ...], ...]) -> str:
        texts = []
        for first, *others in coefficients:
            text = repr(first)
            for c in others:
                text = f"({text} * {z} + {c!r})"
            texts.append(text)
        return f"{texts[0]} / {texts[1]}"

    middle = quotient("(0.180625 - 0.25 * x * x)", MIDDLE)
    r = "sqrt(-log(0.5 - 0.5 * abs(x)))"
    tail = f"where({r} > 5, {quotient(f'({r} - 5)', FAR_TAIL)}, {quotient(f'({r} - 1.6)', TAIL)})"
    half = 0.5**0.5
    return (
        f"where(abs(x) <= 0.85, {half / 2!r} * x * ({middle}), where(abs(x) == 1, x / (1 - abs(x)),"
        f" {half!r} * sign(x) * {tail}))"
    )


# fmt: off
# Arithmetic
define("add", "a b", "a + b", "g", "g")
define("sub", "a b", "a - b", "g", "-g")
define("axpy", "a b", "a + alpha * b", "g", "alpha * g", params="alpha")  # torch.add(a, b, alpha=)
define("mul", "a b", "a * b", "g * b", "g * a")
define("div", "a b", "a / b", "g / b", "-g * (a / b / b)", domain="float")
define("floor_divide", "a b", "a // b", None, None, refuses="b")
define("div_floor", "a b", "a // b", "g * 0", "g * 0", refuses="b")
define("div_trunc", "a b", "trunc(a / b)", "g * 0", "g * 0", domain="float")
define("div_trunc_int", "a b", "(a - fmod(a, b)) // b", domain="int",
       refuses="bf")  # exact, unlike a / b
define("remainder", "a b", "a % b", "g", "-g * (a // b)", refuses="b")
define("fmod", "a b", "fmod(a, b)", "g", "-g * trunc(a / b)", refuses="b")
define("pow", "a b", "pow(a, b)", "where(b == 0, 0, g * b * pow(a, where(b == 0, 1, b - 1)))",
       "where((a == 0) & (b >= 0), 0, g * y * log(where((a == 0) & (b >= 0), 1, a)))", refuses="b")
define("neg", "x", "-x", "-g")
define("abs", "x", "abs(x)", "g * sign(x)", refuses="b")
define("sign", "x", "sign(x)", "g * 0")
define("reciprocal", "x", "1 / x", "-g * y * y", domain="float")
define("square", "x", "x * x", "2 * g * x")
define("abs_pow", "x", "where(x == 0, 0, pow(abs(x), p))",
       "where(x == 0, 0, g * p * pow(where(x == 0, 1, abs(x)), p - 1) * sign(x))", params="p",
       domain="float", refuses="biu")
define("cube", "x", "x * x * x", "g * (3 * (x * x))", domain="float", refuses="biu")
define("addcmul", "x a b", "x + value * a * b", "g", "g * value * b", "g * value * a",
       params="value", refuses="b")
define("addcdiv", "x a b", "x + value * a / b", "g", "g * value / b", "-g * value * a / (b * b)",
       params="value", domain="float")
# From the nearer end: a weight of 1 gives b itself, and infinite ends what torch has.
define("lerp", "a b w", "where(abs(w) < 0.5, a + w * (b - a), b - (1 - w) * (b - a))",
       "g * (1 - w)", "g * w", "g * (b - a)", domain="float", refuses="biu")

# Exponentials, logarithms, powers
define("exp", "x", "exp(x)", "g * y", domain="float")
define("exp2", "x", "exp2(x)", "g * y * 0.6931471805599453", domain="float")
define("expm1", "x", "expm1(x)", "g * (y + 1)", domain="float")
define("log", "x", "log(x)", "g / x", domain="float")
define("log2", "x", "log2(x)", "g / (x * 0.6931471805599453)", domain="float")
define("log10", "x", "log10(x)", "g / (x * 2.302585092994046)", domain="float")
define("logit", "x", "log(x / (1 - x))", "where(isnan(y), y, g / (x * (1 - x)))", domain="float")
define("log1p", "x", "log1p(x)", "g / (x + 1)", domain="float")
define("sqrt", "x", "sqrt(x)", "g / (2 * y)", domain="float")
define("rsqrt", "x", "rsqrt(x)", "-0.5 * g * y * y * y", domain="float")
define("logaddexp", "a b", "where(a == b, a + 0.6931471805599453,"  # also of equal infinities
       " maximum(a, b) + log1p(exp(-abs(a - b))))",
       "g / (1 + exp(b - a))", "g / (1 + exp(a - b))", domain="float", refuses="biu")
# A step of ctc_loss: from the same label, the one before, or past that for a toll. -1e30 for
# log(0), but a sum may be -inf
define("ctc_step", "a b c toll e", "log(exp(a - @) + exp(b - @) + exp(c + toll - @)) + (@ + e)"
       .replace("@", "maximum(maximum(a, b), maximum(c + toll, -1e30))"),
       "where(y > -1e29, g * exp(a - (y - e)), g)", "where(y > -1e29, g * exp(b - (y - e)), g)",
       "where(y > -1e29, g * exp(c + toll - (y - e)), g)",
       "where(y > -1e29, g * exp(c + toll - (y - e)), g)", "g", domain="float", refuses="biu")

# Trigonometry and its relatives
define("sin", "x", "sin(x)", "g * cos(x)", domain="float")
define("cos", "x", "cos(x)", "-g * sin(x)", domain="float")
define("tan", "x", "tan(x)", "g * (1 + y * y)", domain="float")
define("asin", "x", "asin(x)", "g * rsqrt(1 - x * x)", domain="float")
define("acos", "x", "acos(x)", "-g * rsqrt(1 - x * x)", domain="float")
define("atan", "x", "atan(x)", "g / (1 + x * x)", domain="float")
define("atan2", "a b", "atan2(a, b)",
       quotient_or_zero("g * b", "a * a + b * b"), quotient_or_zero("-g * a", "a * a + b * b"),
       domain="float")
define("sinh", "x", "sinh(x)", "g * cosh(x)", domain="float")
define("cosh", "x", "cosh(x)", "g * sinh(x)", domain="float")
define("tanh", "x", "tanh(x)", "g * (1 - y * y)", domain="float")
define("asinh", "x", "asinh(x)", "g * rsqrt(x * x + 1)", domain="float")
define("acosh", "x", "acosh(x)", "g * rsqrt(x - 1) * rsqrt(x + 1)", domain="float")
define("atanh", "x", "atanh(x)", "g / (1 - x * x)", domain="float")
define("erf", "x", "erf(x)", "g * 1.1283791670955126 * exp(-x * x)", domain="float")
define("erfc", "x", "erfc(x)", "-g * 1.1283791670955126 * exp(-x * x)", domain="float")
define("erfinv", "x", _erfinv_text(), "g * 0.886226925452758 * exp(y * y)", domain="float")
define("lgamma", "x", "lgamma(x)", f"g * {_DIGAMMA}", domain="float")
define("digamma", "x", _DIGAMMA, f"g * {_TRIGAMMA}", domain="float")
TRIGAMMA = Expr("trigamma", ("x",), _TRIGAMMA, domain="float")  # whose derivative is no line
define("hypot", "a b", "where(isinf(a) | isinf(b), maximum(where(isinf(a), abs(a), 0),"
       " where(isinf(b), abs(b), 0)),"
       " where(abs(a) > abs(b), abs(a) * sqrt(1 + (b / a) * (b / a)),"
       " where(b == 0, abs(a), abs(b) * sqrt(1 + (a / b) * (a / b)))))",
       quotient_or_zero("g * a", "y"), quotient_or_zero("g * b", "y"),
       domain="float", refuses="biu")
define("xlogy", "a b", "where(isnan(b), b, where(a == 0, 0, a * log(b)))",
       "g * where((a == 0) & (b <= 0), 0, log(b))", "g * a / b", domain="float")
define("sinc", "x", "where(x == 0, 1, sin(3.141592653589793 * x) / (3.141592653589793 * x))",
       "where(x == 0, -3.289868133696453 * g * x,"
       " g * (cos(3.141592653589793 * x) - y) / where(x == 0, 1, x))", domain="float")

# Rounding, limits and choices
define("copysign", "a b", "where((b < 0) | ((b == 0) & (1 / b < 0)), -abs(a), abs(a))",
       "g * (y / where(a == 0, 1, a))", "g * 0", domain="float")
define("signbit", "x", "(x < 0) | ((x == 0) & (1 / x < 0))", result="bool")
define("floor", "x", "floor(x)", "g * 0", refuses="b")
define("ceil", "x", "ceil(x)", "g * 0", refuses="b")
define("trunc", "x", "trunc(x)", "g * 0", refuses="b")
define("round", "x", "rint(x)", "g * 0", refuses="b")
define("frac", "x", "x - trunc(x)", "g", domain="float", refuses="biu")
define("maximum", "a b", "maximum(a, b)",
       "where(a < b, 0, where(a == b, g / 2, g))", "where(a > b, 0, where(a == b, g / 2, g))")
define("minimum", "a b", "minimum(a, b)",
       "where(a > b, 0, where(a == b, g / 2, g))", "where(a < b, 0, where(a == b, g / 2, g))")
define("fmax", "a b", "where((a >= b) | (b != b), a, b)",  # a NaN counts as missing
       "where((a >= b) | (b != b), g, 0)", "where((a >= b) | (b != b), 0, g)")
define("fmin", "a b", "where((a <= b) | (b != b), a, b)",
       "where((a <= b) | (b != b), g, 0)", "where((a <= b) | (b != b), 0, g)")
define("clamp", "x", "minimum(maximum(x, low), high)", "where((x >= low) & (x <= high), g, 0)",
       params="low high")
define("clamp_min", "x", "maximum(x, low)", "where(x >= low, g, 0)", params="low")
define("clamp_max", "x", "minimum(x, high)", "where(x <= high, g, 0)", params="high")
define("clamp_between", "x a b", "minimum(maximum(x, a), b)", "where((x >= a) & (x <= b), g, 0)",
       "where((x < a) & (a < b), g, 0)", "where((x > b) | (b < a), g, 0)")
define("clamp_above", "x a", "maximum(x, a)", "where(x >= a, g, 0)", "where(x < a, g, 0)")
define("clamp_below", "x b", "minimum(x, b)", "where(x <= b, g, 0)", "where(x > b, g, 0)")
define("nan_to_num", "x", "where(isnan(x), nan, where(isinf(x), where(x > 0, high, low), x))",
       "where(isnan(x) | isinf(x), 0, g)", params="nan high low", domain="float", refuses="biu")
define("where", "c a b", "where(c, a, b)", None, "where(c, g, 0)", "where(c, 0, g)", masks="c")
define("masked_fill", "x c", "where(c, value, x)", "where(c, 0, g)", None, params="value",
       masks="c")

# Activations
# A comparison with NaN is false: the last branch of `where` is NaN's, in values and gradients.
define("relu", "x", "where(x <= 0, 0, x)", "where(y <= 0, 0, g)",
       refuses="b", activation=True)
define("sigmoid", "x", "1 / (1 + exp(-x))", "g * y * (1 - y)", domain="float", activation=True)
define("logsigmoid", "x", "minimum(x, 0) - log1p(exp(-abs(x)))", "g / (1 + exp(x))",
       domain="float", refuses="biu", activation=True)
define("leaky_relu", "x", "where(x > 0, x, slope * x)", "where(x > 0, g, slope * g)",
       params="slope", domain="float", refuses="biu")
define("elu", "x", "where(x > 0, scale * x, alpha * expm1(x))",
       "where(x <= 0, g * alpha * exp(where(x < 0, x, 0)), scale * g)", params="alpha scale",
       domain="float", refuses="biu")
define("celu", "x", "where(x > 0, x, alpha * expm1(x / alpha))",
       "where(x <= 0, g * exp(where(x < 0, x / alpha, 0)), g)", params="alpha", domain="float",
       refuses="biu")
define("silu", "x", "x / (1 + exp(-x))",
       "g * (1 + x * (1 - 1 / (1 + exp(-x)))) / (1 + exp(-x))",
       domain="float", refuses="biu", activation=True)
define("glu", "a b", "a / (1 + exp(-b))", "g / (1 + exp(-b))",
       "g * a / (1 + exp(-b)) / (1 + exp(b))", domain="float", refuses="biu")
define("gelu", "x", "0.5 * x * (1 + erf(x * 0.7071067811865476))",
       "g * (0.5 * (1 + erf(x * 0.7071067811865476)) + x * exp(-0.5 * x * x) * 0.3989422804014327)",
       domain="float", refuses="biu")
define("gelu_tanh", "x", "0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))",
       "0.5 * g * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))"
       " + 0.5 * g * x * (1 - pow(tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)), 2))"
       " * 0.7978845608028654 * (1 + 0.134145 * x * x)", domain="float", refuses="biu")
define("softplus", "x",
       "where(x * beta > threshold, x, (maximum(x * beta, 0) + log1p(exp(-abs(x * beta)))) / beta)",
       "where(x * beta > threshold, g, g / (1 + exp(-x * beta)))", params="beta threshold",
       domain="float", refuses="biu")
define("softsign", "x", "x / (1 + abs(x))", "g / ((1 + abs(x)) * (1 + abs(x)))", domain="float",
       activation=True, refuses="b")
define("hardtanh", "x", "minimum(maximum(x, low), high)", "where((x <= low) | (x >= high), 0, g)",
       params="low high")
define("softshrink", "x", "x - minimum(maximum(x, -lambd), lambd)",
       "where((x >= -lambd) & (x <= lambd), 0, g)", params="lambd", domain="float", refuses="biu")
define("hardshrink", "x", "where(abs(x) <= lambd, 0, x)", "where(abs(x) <= lambd, 0, g)",
       params="lambd", domain="float", refuses="biu")
define("hardsigmoid", "x", "minimum(maximum(x / 6 + 0.5, 0), 1)",
       "where((x > -3) & (x < 3), g / 6, 0)", domain="float", refuses="biu", activation=True)
define("hardswish", "x", "x * minimum(maximum(x + 3, 0), 6) / 6",
       "where(x <= -3, 0, where(x < 3, g * (x / 3 + 0.5), g))",
       domain="float", refuses="biu", activation=True)
define("threshold", "x", "where(x <= limit, value, x)", "where(x <= limit, 0, g)",
       params="limit value", refuses="b")
define("prelu", "x w", "where(x > 0, x, w * x)", "where(x > 0, g, w * g)", "where(x > 0, 0, g * x)",
       domain="float", refuses="biu")

# Losses, element by element (x: prediction, t: target)
define("mse", "x t", "(x - t) * (x - t)", "2 * g * (x - t)", "2 * g * (t - x)",
       domain="float", refuses="biu")
define("smooth_l1", "x t",
       "where(abs(x - t) < beta, 0.5 * (x - t) * (x - t) / beta, abs(x - t) - 0.5 * beta)",
       "where(abs(x - t) >= beta, g * sign(x - t), g * (x - t) / beta)",
       "where(abs(x - t) >= beta, g * sign(t - x), g * (t - x) / beta)",
       params="beta", domain="float", refuses="biu")
define("huber", "x t",
       "where(abs(x - t) <= delta, 0.5 * (x - t) * (x - t), delta * (abs(x - t) - 0.5 * delta))",
       "where(abs(x - t) >= delta, g * delta * sign(x - t), g * (x - t))",
       "where(abs(x - t) >= delta, g * delta * sign(t - x), g * (t - x))",
       params="delta", domain="float", refuses="biu")
define("kl_div", "x t", "t * (log(where(t == 0, 1, t)) - x)", "-g * t",
       "g * (log(where(t == 0, 1, t)) - x + where(t == 0, 0, 1))", domain="float")
define("bce", "x t", "-(t * maximum(log(x), -100) + (1 - t) * maximum(log1p(-x), -100))",
       "g * (x - t) / maximum(x * (1 - x), 1e-12)",
       "g * (maximum(log1p(-x), -100) - maximum(log(x), -100))", domain="float")
define("bce_logits", "x t", "maximum(x, 0) - x * t + log1p(exp(-abs(x)))",
       "g * (1 / (1 + exp(-x)) - t)", "-g * x", domain="float", refuses="biu")

# Comparisons and tests (no gradient)
define("eq", "a b", "a == b", result="bool")
define("ne", "a b", "a != b", result="bool")
define("lt", "a b", "a < b", result="bool")
define("le", "a b", "a <= b", result="bool")
define("gt", "a b", "a > b", result="bool")
define("ge", "a b", "a >= b", result="bool")
define("isnan", "x", "isnan(x)", result="bool")
define("isinf", "x", "isinf(x)", result="bool")
define("isfinite", "x", "x * 0 == 0", result="bool")  # inf * 0 and nan * 0 are nan
define("logical_not", "x", "x == 0", result="bool")
define("logical_and", "a b", "(a != 0) & (b != 0)", result="bool")
define("logical_or", "a b", "(a != 0) | (b != 0)", result="bool")
define("logical_xor", "a b", "(a != 0) != (b != 0)", result="bool")
define("bitwise_not", "x", "~x", domain="int", refuses="f")
define("bitwise_and", "a b", "a & b", domain="int", refuses="f")
define("bitwise_or", "a b", "a | b", domain="int", refuses="f")
define("bitwise_xor", "a b", "a ^ b", domain="int", refuses="f")
# A processor shifts by part of the count only, so no count here is above 31 at once.
define("bitwise_left_shift", "a b", "where((b >= 0) & (b < 32), a << (b & 31),"
       " where((b >= 32) & (b < 64), a << 31 << 1 << (b & 31), a * 0))", domain="int", refuses="bf")
define("bitwise_right_shift", "a b", "where((b >= 0) & (b < 32), a >> (b & 31),"
       " where((b >= 32) & (b < 64), a >> 31 >> 1 >> (b & 31), a >> 31 >> 31 >> 1))",
       domain="int", refuses="bf")

# Copies
define("copy", "x", "x", "g")  # the kernel behind clone, contiguous and casts
# fmt: on
