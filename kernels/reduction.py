"""The table of reductions: one line each, from which every dialect makes its kernels.

A reduction over elements x_0 .. x_{n-1} is `finish(combine(... combine(identity, map(x_0)) ...))`.
`combine` must be associative and commutative up to rounding: kernels choose the order (a tree, warp
shuffles, a grid-stride loop). Arithmetic follows the rules of `kernels.pointwise`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, eq=False, slots=True)
class Reduction:
    """A reduction.

    name: unique name.
    map: expression over the element `x`.
    combine: expression over two partial results `a` and `b`.
    identity: "0", "1", or "lowest" / "highest" (of the dtype; -inf / inf for floats).
    finish: expression over the combined value `a` and the number of elements `n`.
    result: "same" (the accumulation dtype), "bool", or "index" (int64 position of the first
        element that wins; `combine` then says which value wins).
    """

    name: str
    map: str
    combine: str
    identity: str
    finish: str = "a"
    result: str = "same"


# fmt: off
TABLE: dict[str, Reduction] = {
    line.name: line
    for line in (
        Reduction("sum", "x", "a + b", "0"),
        Reduction("mean", "x", "a + b", "0", "a / n"),
        Reduction("prod", "x", "a * b", "1"),
        Reduction("max", "x", "maximum(a, b)", "lowest"),
        Reduction("min", "x", "minimum(a, b)", "highest"),
        Reduction("argmax", "x", "maximum(a, b)", "lowest", result="index"),
        Reduction("argmin", "x", "minimum(a, b)", "highest", result="index"),
        Reduction("any", "x != 0", "a | b", "0", result="bool"),
        Reduction("all", "x != 0", "a & b", "1", result="bool"),
        Reduction("sum_squares", "x * x", "a + b", "0"),
        Reduction("norm1", "abs(x)", "a + b", "0"),
        Reduction("norm2", "x * x", "a + b", "0", "sqrt(a)"),
        Reduction("norm_inf", "abs(x)", "maximum(a, b)", "0"),
    )
}
# fmt: on
