"""Distances of rows: cdist, and the pairs of `pdist`."""

from __future__ import annotations

import math
from typing import Any

from kernels import dispatch
from kernels.launchers.common import MAX_GRID_YZ
from kernels.pointwise import Expr
from minigrad import dtypes
from minigrad.autograd.mode import autocasts, mode
from minigrad.autograd.node import Op
from minigrad.backends import array_module
from minigrad.ops.matmul import matmul
from minigrad.ops.pointwise import POINTWISE, broadcast_shape
from minigrad.tensor import Tensor, export, functions

# By p, the reductions that have kernels and gradients.
_LINES: dict[float, str] = {1: "norm1", 2: "norm2", math.inf: "norm_inf"}


def _weighted(difference: Tensor, y: Tensor, g: Tensor, line: str) -> Tensor:
    """The gradient of the differences (..., k), whose norms are y (...): none where one is 0. Of
    the largest ones, all get it whole."""
    if line == "norm_inf":
        largest = difference.detach().abs() == y.detach().unsqueeze(-1)
        return difference.sign() * largest * g.unsqueeze(-1)
    if line == "norm1":
        return POINTWISE["sign"](difference) * g.unsqueeze(-1)
    return difference * _per_distance(g, y).unsqueeze(-1)


def _per_distance(g: Tensor, y: Tensor) -> Tensor:
    """g / y, or 0 for a distance of 0."""
    none = y.detach() == 0
    return (g / y.masked_fill(none, 1)).masked_fill(none, 0)


class Distances(Op):
    """The norms of the differences of rows: a (..., m, k), b (..., n, k) -> (..., m, n)."""

    saves_outputs = (0,)
    grad_name = "CdistBackward0"

    @staticmethod
    def forward(a: Any, b: Any, line: str) -> Any:
        if a.ndim == b.ndim == 2:
            return dispatch.active.distances(a[None], b[None], line)[0]
        batch = broadcast_shape(a.shape[:-2], b.shape[:-2])
        flat = [_flat_batch(x, batch) for x in (a, b)]
        found = dispatch.active.distances(*flat, line)
        return found.reshape(*batch, *found.shape[1:])

    @staticmethod
    def vjp(ctx: Any, g: Tensor, line: str) -> tuple:
        a, b, y = ctx.tensors()
        each = _weighted(a.unsqueeze(-2) - b.unsqueeze(-3), y, g, line)
        first, second = ctx.needs
        return (
            each.sum(-2).sum_to_size(a._array.shape) if first else None,
            (-each.sum(-3)).sum_to_size(b._array.shape) if second else None,
        )


def _flat_batch(x: Any, batch: tuple[int, ...]) -> Any:
    rows = x.shape[-2:]
    if x.shape[:-2] != batch:
        x = array_module(x).broadcast_to(x, (*batch, *rows))
    return x.reshape(math.prod(batch), *rows)


class PairDistances(Op):
    """The norms of the differences of each row of a (n, k) and all after it: (n (n - 1) / 2,)."""

    saves_outputs = (0,)
    grad_name = "PdistBackward0"

    @staticmethod
    def forward(a: Any, line: str) -> Any:
        return dispatch.active.pair_distances(a, line)

    @staticmethod
    def vjp(ctx: Any, g: Tensor, line: str) -> tuple:
        a, y = ctx.tensors()
        rows, columns = functions.triu_indices(len(a), len(a), 1, device=a.device)
        each = _weighted(a[rows] - a[columns], y, g, line)
        zeros = functions.zeros_like(a)
        return (zeros.index_add(0, rows, each).index_add(0, columns, -each),)


_ROOT = Expr("root_of_distance", ("p", "u", "v"), "sqrt(where(u + v < 2 * p, 0, u + v - 2 * p))")


def _by_product(a: Any, b: Any) -> Any:
    active = dispatch.active
    u, v = (active.reduce("sum_squares", x, -1, True) for x in (a, b))
    product = active.matmul(a, b.swapaxes(-1, -2))
    return active.pointwise(_ROOT, product, u, v.swapaxes(-1, -2))


class DistancesByProduct(Op):
    """Euclidean distances of rows: |a|^2 + |b|^2 - 2 a b, no gradient where one is 0."""

    saves_outputs = (0,)
    grad_name = "EuclideanDistBackward0"

    @staticmethod
    def forward(a: Any, b: Any) -> Any:
        return dispatch.together(_by_product, a, b)

    @staticmethod
    def vjp(ctx: Any, g: Tensor) -> tuple:
        a, b, y = ctx.tensors()
        weight = _per_distance(g, y)
        first, second = ctx.needs
        ga = gb = None
        if first:
            ga = a * weight.sum(-1, keepdim=True) - matmul(weight, b)
            ga = ga.sum_to_size(a._array.shape)
        if second:
            weight = weight.transpose(-1, -2)
            gb = b * weight.sum(-1, keepdim=True) - matmul(weight, a)
            gb = gb.sum_to_size(b._array.shape)
        return ga, gb


@export(method=False)
@autocasts
def cdist(
    x1: Tensor,
    x2: Tensor,
    p: float = 2.0,
    compute_mode: str = "use_mm_for_euclid_dist_if_necessary",
) -> Tensor:
    """The p-norms of all differences of rows of x1 (..., m, k) and x2 (..., n, k): (..., m, n).

    compute_mode, for p = 2: "use_mm_for_euclid_dist_if_necessary" takes a product where there are
    more than 25 rows on a side, "use_mm_for_euclid_dist" always and
    "donot_use_mm_for_euclid_dist" never. |a|^2 + |b|^2 - 2 a b is much faster than the differences,
    which are exact to rounding: its error is about that of |a|^2, whose root the distance of equal
    rows may be instead of 0.
    """
    for name, x in (("X1", x1), ("X2", x2)):
        if not x.is_floating_point():
            raise RuntimeError(f"cdist only supports floating-point dtypes, {name} got: {x.dtype}")
        if x._array.ndim < 2:
            raise RuntimeError(
                f"cdist only supports at least 2D tensors, {name} got: {x._array.ndim}D"
            )
    if x1._array.dtype != x2._array.dtype:
        wanted, given = (x.dtype.legacy_name.removesuffix("Tensor") for x in (x1, x2))
        raise RuntimeError(f"expected scalar type {wanted} but found {given}")
    if x1.size(-1) != x2.size(-1):
        raise RuntimeError(
            f"X1 and X2 must have the same number of columns. X1: {x1.size(-1)} X2: {x2.size(-1)}"
        )
    if p < 0:
        raise RuntimeError("cdist only supports non-negative p values")
    by_product = p == 2 and (
        compute_mode == "use_mm_for_euclid_dist"
        or (compute_mode != "donot_use_mm_for_euclid_dist" and max(x1.size(-2), x2.size(-2)) > 25)
    )
    narrow = x1.dtype.name in ("float16", "bfloat16")
    if narrow and not by_product and x1._array.size and x2._array.size:
        raise dtypes.refused("cdist", x1._array.dtype)
    if by_product and x1._array.size and x2._array.size and mode.observer is None:
        found = DistancesByProduct.apply(*((x1.float(), x2.float()) if narrow else (x1, x2)))
        return found.to(x1.dtype)
    line, same = _LINES.get(p), x1._array.dtype == x2._array.dtype
    many = math.prod(broadcast_shape(x1._array.shape[:-2], x2._array.shape[:-2])) > MAX_GRID_YZ
    if line is None or not same or many or mode.observer is not None:
        return POINTWISE["sub"](x1.unsqueeze(-2), x2.unsqueeze(-3)).norm(p, -1)
    return Distances.apply(x1, x2, line=line)


def pair_distances(x: Tensor, p: float) -> Tensor:
    """The p-norms of the differences of each row of x (n, k) and all after it."""
    line = _LINES.get(p)
    if line is None or mode.observer is not None:
        rows, columns = functions.triu_indices(len(x), len(x), 1, device=x.device)
        return (x[rows] - x[columns]).norm(p, -1)
    return PairDistances.apply(x, line=line)
