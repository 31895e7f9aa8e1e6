"""The table of reductions: one line each, from which every dialect makes its kernels.

A reduction over elements x_0 .. x_{n-1} is `finish(combine(... combine(identity, map(x_0)) ...))`.
`combine` must be associative and commutative up to rounding: kernels choose the order (a tree, warp
shuffles, a grid-stride loop). Arithmetic follows the rules of `kernels.pointwise`.

`gradient` is the gradient of every element x, an expression over

    g       the gradient of the result
    x, y    the element and the result
    n       the number of elements
    others  the product of the other elements
    ties    the number of elements whose mapped value equals the result (or is NaN, as it)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kernels.pointwise import quotient_or_zero


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
    gradient: expression of the gradient, or None where there is none.
    """

    name: str
    map: str
    combine: str
    identity: str
    finish: str = "a"
    result: str = "same"
    gradient: str | None = None


_AT_EXTREMUM = "where((x == y) | (x != x), g, 0) / ties"  # the result is NaN where an x is

# fmt: off
TABLE: dict[str, Reduction] = {
    line.name: line
    for line in (
        Reduction("sum", "x", "a + b", "0", gradient="g"),
        Reduction("nansum", "where(x == x, x, 0)", "a + b", "0", gradient="g * (x == x)"),
        Reduction("mean", "x", "a + b", "0", "a / n", gradient="g / n"),
        Reduction("prod", "x", "a * b", "1", gradient="g * others"),
        Reduction("max", "x", "maximum(a, b)", "lowest", gradient=_AT_EXTREMUM),
        Reduction("min", "x", "minimum(a, b)", "highest", gradient=_AT_EXTREMUM),
        Reduction("argmax", "x", "maximum(a, b)", "lowest", result="index"),
        Reduction("argmin", "x", "minimum(a, b)", "highest", result="index"),
        Reduction("any", "x != 0", "a | b", "0", result="bool"),
        Reduction("all", "x != 0", "a & b", "1", result="bool"),
        Reduction("logsumexp", "x", "where(a == b, a + 0.6931471805599453,"
                  " maximum(a, b) + log1p(exp(-abs(a - b))))", "lowest", gradient="g * exp(x - y)"),
        Reduction("sum_squares", "x * x", "a + b", "0", gradient="2 * g * x"),
        Reduction("norm1", "abs(x)", "a + b", "0", gradient="g * sign(x)"),
        Reduction("norm2", "x * x", "a + b", "0", "sqrt(a)",
                  gradient=f"{quotient_or_zero('g', 'y')} * x"),
        Reduction("norm_inf", "abs(x)", "maximum(a, b)", "0",
                  gradient="where((abs(x) == y) | (x != x), g * sign(x), 0) / ties"),
    )
}
# fmt: on

DEVIATIONS = Reduction("deviations", "squared distance of x from the mean", "a + b", "0")
"""No line of the table: its partial results are a count, a mean and a sum, which take kernels of
their own or two passes."""


def normalize_axes(name: str, axis: int | Sequence[int] | None, ndim: int) -> tuple[int, ...]:
    """The axes as sorted, non-negative, distinct integers; all of them for None."""
    if axis is None:
        return tuple(range(ndim))
    axes = (axis,) if isinstance(axis, (int, np.integer)) else tuple(axis)
    for a in axes:
        if not -max(ndim, 1) <= a < max(ndim, 1):
            raise IndexError(f"{name}: axis {a} is out of range for {ndim} dimensions")
    found = tuple(sorted(a % ndim for a in axes)) if ndim else ()
    if len(set(found)) != len(found):
        raise ValueError(f"{name}: axis {axis} names one dimension twice")
    return found
