"""Numerical differences along dimensions."""

from __future__ import annotations

from typing import Any

from minigrad import dtypes
from minigrad.tensor import Tensor, export, functions, normalize_dim


@export(method=False)
def gradient(
    input: Tensor, *, spacing: Any = 1, dim: Any = None, edge_order: int = 1
) -> tuple[Tensor, ...]:
    """The derivative along each dimension, by central differences of second order.

    spacing: of the points: one number, one per dimension, or a vector of coordinates for each.
    edge_order: of the differences at both ends, 1 or 2.
    """
    dims = _gradient_dims(input, dim)
    if input._array.dtype.kind in "bu":
        raise RuntimeError(f"torch.gradient does not support {input.dtype.name} input.")
    spacing = 1 if spacing is None else spacing
    if edge_order not in (1, 2):
        raise RuntimeError("torch.gradient only supports edge_order=1 and edge_order=2.")
    several = isinstance(spacing, list | tuple)
    if several and len(spacing) != len(dims):
        raise RuntimeError(
            "torch.gradient expected spacing to be unspecified, a scalar, or a list of length "
            f"{len(dims)}, but got a list of length {len(spacing)}"
        )
    if isinstance(spacing, Tensor):
        raise TypeError("gradient(): expected spacing to be numbers or a sequence of tensors")
    steps = spacing if several else [spacing] * len(dims)
    for d in dims:
        if input._array.shape[d] < edge_order + 1:
            raise RuntimeError(
                "torch.gradient expected each dimension size to be at least edge_order+1"
            )
    return tuple(_slopes(input, d, h, edge_order) for d, h in zip(dims, steps, strict=True))


def _gradient_dims(x: Tensor, dim: Any) -> list[int]:
    if dim is None:
        return list(range(x._array.ndim))
    given = [dim] if isinstance(dim, int) else list(dim)
    dims = [normalize_dim(d, x._array.ndim) for d in given]
    if len(set(dims)) < len(dims):
        raise RuntimeError(f"dim {given} appears multiple times in the list of dims")
    return dims


def _slopes(x: Tensor, dim: int, spacing: Any, edge_order: int) -> Tensor:
    """The derivative along one dimension: by differences of neighbours, weighted by how near the
    points are."""
    n = x._array.shape[dim]
    if not (x.is_floating_point() or x.is_complex()):
        x = x.to(dtypes.get_default_dtype())
    steps: Any = spacing
    if isinstance(spacing, Tensor):
        if spacing._array.shape != (n,):
            raise RuntimeError(
                f"torch.gradient expected each element of spacing to have {n} coordinates, got "
                f"{list(spacing.shape)}"
            )
        steps = spacing.diff().reshape([-1 if d == dim else 1 for d in range(x._array.ndim)])
    slopes = x.diff(dim=dim) / steps  # between neighbours
    first, last = slopes.narrow(dim, 0, 1), slopes.narrow(dim, n - 2, 1)
    if n == 2:
        return functions.cat([first, last], dim)
    left, right = slopes.narrow(dim, 0, n - 2), slopes.narrow(dim, 1, n - 2)
    if isinstance(spacing, Tensor):
        a, b = steps.narrow(dim, 0, n - 2), steps.narrow(dim, 1, n - 2)
        share = b / (a + b)
    else:
        share = 0.5
    inner = left * share + right * (1 - share)
    if edge_order == 2:
        before, after = inner.narrow(dim, 0, 1), inner.narrow(dim, n - 3, 1)
        first, last = 2 * first - before, 2 * last - after
    return functions.cat([first, inner, last], dim)
