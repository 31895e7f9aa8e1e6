"""What the pointwise operations mean whose formula is a function of the same name."""

from __future__ import annotations

from kernels.pointwise import Expr

# name: (meaning, an argument, the result; both as they print)
MEANINGS = {
    "abs": ("The absolute value", "[-1.5, 2.0]", "[1.5000, 2.0000]"),
    "acos": ("The angle from 0 to pi whose cosine is x", "[0.5]", "[1.0472]"),
    "acosh": ("The y >= 0 whose hyperbolic cosine is x", "[2.0]", "[1.3170]"),
    "asin": ("The angle from -pi/2 to pi/2 whose sine is x", "[0.5]", "[0.5236]"),
    "asinh": ("The number whose hyperbolic sine is x", "[2.0]", "[1.4436]"),
    "atan": ("The angle from -pi/2 to pi/2 whose tangent is x", "[1.0]", "[0.7854]"),
    "atan2": (
        "The angle from -pi to pi of the point with first coordinate b and second coordinate a",
        "[1.0], [-1.0]",
        "[2.3562]",
    ),
    "atanh": ("The number whose hyperbolic tangent is x", "[0.5]", "[0.5493]"),
    "ceil": ("The smallest integer that is not less than x", "[-1.5, 1.5]", "[-1.,  2.]"),
    "cos": ("The cosine of an angle in radians", "[1.0]", "[0.5403]"),
    "cosh": ("The hyperbolic cosine, (e^x + e^-x) / 2", "[1.0]", "[1.5431]"),
    "digamma": ("The derivative of `lgamma`", "[1.0]", "[-0.5772]"),
    "erf": ("2 / sqrt(pi) times the integral of e^(-t^2) from 0 to x", "[1.0]", "[0.8427]"),
    "erfc": ("1 - erf(x), precise for large x", "[1.0]", "[0.1573]"),
    "erfinv": ("The number whose erf is x", "[0.8427]", "[1.0000]"),
    "exp": ("e to the power x", "[1.0]", "[2.7183]"),
    "exp2": ("2 to the power x", "[3.0]", "[8.]"),
    "expm1": ("e^x - 1, precise for small x", "[1.0]", "[1.7183]"),
    "floor": ("The largest integer that is not greater than x", "[-1.5, 1.5]", "[-2.,  1.]"),
    "isinf": ("Whether an element is infinite, of either sign", "[1.0, -inf]", "[False,  True]"),
    "isnan": ("Whether an element is not a number", "[1.0, nan]", "[False,  True]"),
    "lgamma": ("The logarithm of the absolute value of the gamma function", "[4.0]", "[1.7918]"),
    "log": ("The natural logarithm", "[10.0]", "[2.3026]"),
    "log10": ("The logarithm to base 10", "[100.0]", "[2.]"),
    "log1p": ("log(1 + x), precise for small x", "[1.0]", "[0.6931]"),
    "log2": ("The logarithm to base 2", "[8.0]", "[3.]"),
    "maximum": ("The larger element of two; NaN if one is NaN", "[1.0], [2.0]", "[2.]"),
    "minimum": ("The smaller element of two; NaN if one is NaN", "[1.0], [2.0]", "[1.]"),
    "rsqrt": ("1 / sqrt(x)", "[4.0]", "[0.5000]"),
    "sign": (
        "-1, 0 (also for NaN) or 1, the sign of x",
        "[-2.5, 0.0]",
        "[-1.,  0.]",
    ),
    "sin": ("The sine of an angle in radians", "[1.0]", "[0.8415]"),
    "sinh": ("The hyperbolic sine, (e^x - e^-x) / 2", "[1.0]", "[1.1752]"),
    "sqrt": ("The square root; NaN for a negative element", "[2.0]", "[1.4142]"),
    "tan": ("The tangent of an angle in radians", "[1.0]", "[1.5574]"),
    "tanh": ("The hyperbolic tangent, sinh(x) / cosh(x)", "[1.0]", "[0.7616]"),
    "trunc": ("The integer part, towards zero", "[-1.5, 1.5]", "[-1.,  1.]"),
}


def described(expr: Expr) -> str:
    """The docstring of a line of the table: meaning (or formula), shape, dtype, an example."""
    name, example = expr.name, ""
    meaning = f"{name}({', '.join(expr.args)}) = {expr.text}"
    if name in MEANINGS:
        meaning, given, result = MEANINGS[name]
        tensors = (f"minigrad.tensor([{part.strip('[]')}])" for part in given.split("], ["))
        example = (
            f"\n\nExample::\n\n    minigrad.{name}({', '.join(tensors)})  # tensor({result})\n"
        )
    shape = "The shape is input's" if len(expr.args) == 1 else "Shapes broadcast"
    dtype = "; integers become floating" if expr.domain == "float" else ""
    dtype = "; the result is bool" if expr.result == "bool" else dtype
    return f"{meaning}, per element. {shape}{dtype}.{example}"
