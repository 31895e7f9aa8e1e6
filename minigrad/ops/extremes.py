"""The largest and the smallest elements, and their positions."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels import dispatch
from kernels.launchers.common import on_gpu
from minigrad import dtypes
from minigrad._names import return_type
from minigrad.autograd.mode import mode
from minigrad.autograd.node import Op
from minigrad.ops.index import ScatterAdd, zeros
from minigrad.ops.pointwise import POINTWISE
from minigrad.ops.reduce import (
    REDUCTIONS,
    Dims,
    axes_of,
    check_one_dim,
    one_dim,
    reduce,
    values_and_indices,
    with_reduced,
)
from minigrad.tensor import Tensor, check_flag, export, normalize_dim, wrap

_Max, _Min = map(values_and_indices, ("max", "min"))
_AMinMax = return_type("aminmax", "min", "max")


def _check_not_empty(name: str, x: Tensor, dim: int | None) -> None:
    if x._array.size:
        return
    if dim is None:
        raise (IndexError if name.startswith("arg") else RuntimeError)(
            f"{name}(): Expected reduction dim to be specified for input.numel() == 0. Specify the "
            "reduction dim with the 'dim' argument."
        )
    if x._array.shape[dim] == 0:
        raise IndexError(f"{name}(): Expected reduction dim {dim} to have non-zero size.")


def _positions(name: str, x: Tensor, dim: int | None, keepdim: bool) -> Tensor:
    check_one_dim(name, dim)
    dtypes.refuse_complex(f"{name}(): does not support complex input", x._array.dtype)
    axes = None if dim is None else axes_of(dim, x._array.ndim)
    if x._array.dtype.kind == "b":
        raise RuntimeError(f"{name}(): does not support bool input")
    _check_not_empty(name, x, None if axes is None else axes[0])
    return reduce(name, x, axes, keepdim)


def _extremum(name: str, pair: type, x: Tensor, args: tuple, keepdim: bool, kwargs: dict) -> Any:
    if not args and not kwargs and isinstance(x, Tensor):
        _check_not_empty(name, x, None)
        return REDUCTIONS[name].apply(x, axes=None, keepdim=False, dtype=None)
    dim = kwargs.pop("dim", kwargs.pop("axis", args[0] if args else None))
    other = kwargs.pop("other", None)
    if len(args) > 1:
        keepdim = args[1]
    if not isinstance(x, Tensor):
        raise TypeError(f"{name}(): argument 'input' must be Tensor, not {type(x).__name__}")
    if isinstance(dim, Tensor) or other is not None:
        return POINTWISE[f"{name}imum"](x, dim if other is None else other)
    if kwargs:
        raise TypeError(f"{name}() got an unexpected keyword argument '{next(iter(kwargs))}'")
    if dim is None:
        _check_not_empty(name, x, None)
        return reduce(name, x, None, False)
    check_flag(name, "keepdim", keepdim)
    dtypes.refuse_complex(f"{name}(): does not support complex input", x._array.dtype)
    place = normalize_dim(dim, x._array.ndim)
    if not x._array.ndim:
        return pair(x.clone(), wrap(np.zeros((), np.int64)))
    _check_not_empty(name, x, place)
    in_place = on_gpu(x._array) and x._array.flags.c_contiguous
    if not in_place and not (mode.enabled and x.requires_grad):
        return pair(*[reduce(each, x, place, keepdim) for each in (name, f"arg{name}")])
    return pair(*Extreme.apply(x, line=f"arg{name}", dim=place, keepdim=keepdim))


class Extreme(Op):
    """The largest or smallest elements along a dimension, and their positions; the line of the
    table that finds these."""

    saves, saves_outputs = (), (1,)
    repeats = True

    @staticmethod
    def forward(x: Any, line: str, dim: int, keepdim: bool) -> tuple:
        at = dispatch.active.reduce(line, x, (dim,), True)
        values = dispatch.active.gather(x, dim, at)
        if keepdim:
            return values, at
        shape = (*x.shape[:dim], *x.shape[dim + 1 :])
        return values.reshape(shape), at.reshape(shape)

    @staticmethod
    def vjp(ctx: Any, g: Tensor, line: str, dim: int, keepdim: bool) -> tuple:
        (at,), shape = ctx.tensors(), ctx.shapes[0]
        g, at = (with_reduced(t, shape, (dim,)) for t in (g, at))
        return (ScatterAdd.apply(wrap(zeros(shape, g._array)), at, g, dim=dim),)


@export()
def max(input: Tensor, *args: Any, keepdim: bool = False, **kwargs: Any) -> Any:
    """max(input): the largest element. max(input, dim, keepdim): (values, indices).
    max(input, other): per element."""
    return _extremum("max", _Max, input, args, keepdim, kwargs)


@export()
def min(input: Tensor, *args: Any, keepdim: bool = False, **kwargs: Any) -> Any:
    """min(input): the smallest element. min(input, dim, keepdim): (values, indices).
    min(input, other): per element."""
    return _extremum("min", _Min, input, args, keepdim, kwargs)


def _over_axes(name: str, x: Tensor, dim: Dims, keepdim: bool) -> Tensor:
    axes = axes_of(dim, x._array.ndim)
    if not x._array.size:
        for axis in (None,) if axes is None else axes:
            _check_not_empty(f"a{name}", x, axis)
    return reduce(name, x, axes, keepdim)


@export()
def amax(input: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """Maximum over several dimensions; equal elements share the gradient."""
    return _over_axes("max", input, dim, keepdim)


@export()
def amin(input: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """Minimum over several dimensions; equal elements share the gradient."""
    return _over_axes("min", input, dim, keepdim)


@export()
def argmax(
    input: Tensor,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    axis: int | None = None,
) -> Tensor:
    """Position of the largest element (in the flattened tensor if `dim` is None)."""
    return _positions("argmax", input, one_dim(dim, axis), keepdim)


@export()
def argmin(
    input: Tensor,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    axis: int | None = None,
) -> Tensor:
    """Position of the smallest element (in the flattened tensor if `dim` is None)."""
    return _positions("argmin", input, one_dim(dim, axis), keepdim)


@export()
def aminmax(input: Tensor, *, dim: int | None = None, keepdim: bool = False) -> Any:
    """(min, max) over one dimension, or all."""
    if dim is not None and input._array.ndim:
        _check_not_empty("aminmax", input, normalize_dim(dim, input._array.ndim))
    elif not input._array.size:
        raise RuntimeError("aminmax(): cannot compute aminmax over an empty dimension")
    return _AMinMax(amin(input, dim, keepdim), amax(input, dim, keepdim))
