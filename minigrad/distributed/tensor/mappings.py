"""Between whole tensors and parts of them, forward and backward.

Each has the other direction as its gradient: what is added up over the ranks in one is copied in
the other (the functions f and g of Shoeybi et al., "Megatron-LM: Training Multi-Billion Parameter
Language Models Using Model Parallelism", 2019), what is gathered in one is divided in the other
(Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models", 2022).

All ranks compute the same loss: the gradient of a tensor that is the same on all ranks is the same
on all ranks, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from minigrad.autograd.node import Op
from minigrad.backends import array_module
from minigrad.tensor import Tensor


class Placement:
    """Where the elements of a tensor lie: the base of `Shard` and `Replicate`."""


@dataclass(frozen=True)
class Shard(Placement):
    """Each rank has an equal part along `dim`."""

    dim: int


@dataclass(frozen=True)
class Replicate(Placement):
    """Each rank has the whole tensor."""


@dataclass(frozen=True)
class Partial(Placement):
    """Each rank has a term, of which the tensor is the sum; `parallel` takes no such layout."""

    reduce_op: str = "sum"


Layout = Shard | Replicate


def _axis(array: Any, dim: int, name: str) -> int:
    if not -array.ndim <= dim < array.ndim:
        raise IndexError(f"{name}: Shard({dim}) of a tensor of {array.ndim} dimensions")
    return dim % array.ndim


def _parts(array: Any, dim: int, size: int, name: str) -> Any:
    """array (..., n, ...) as (size, ..., n / size, ...), contiguous."""
    axis = _axis(array, dim, name)
    length = array.shape[axis]
    if length % size:
        raise ValueError(
            f"{name}: dimension {dim} of shape {array.shape} is not divisible by the {size} ranks"
        )
    xp = array_module(array)
    shape = (*array.shape[:axis], size, length // size, *array.shape[axis + 1 :])
    return xp.ascontiguousarray(xp.moveaxis(array.reshape(shape), axis, 0))


def _joined(parts: Any, dim: int) -> Any:
    """The opposite of `_parts`."""
    axis = dim % (parts.ndim - 1)
    shape = parts.shape[1:]
    whole = (*shape[:axis], len(parts) * shape[axis], *shape[axis + 1 :])
    return array_module(parts).moveaxis(parts, 0, axis).reshape(whole)


class Copy(Op):
    """The same tensor; the gradients of all ranks are added up."""

    saves: ClassVar[tuple] = ()
    grad_name = "CopyToRanksBackward0"

    @staticmethod
    def forward(array: Any, group: Any) -> Any:
        return array

    @staticmethod
    def vjp(ctx: Any, g: Tensor, group: Any) -> tuple:
        return (Sum.apply(g, group=group),)

    @classmethod
    def of(cls, x: Tensor, group: Any) -> Tensor:
        out = cls.apply(x, group=group)
        out._counter = x._counter  # one memory: a change of either is noticed by both
        return out


class Sum(Op):
    """The sum of all ranks' tensors; the gradient is that of the sum."""

    saves: ClassVar[tuple] = ()
    grad_name = "SumOfRanksBackward0"

    @staticmethod
    def forward(array: Any, group: Any) -> Any:
        out = array_module(array).array(array, order="C")
        group.all_reduce(out, "SUM").wait()
        return out

    @staticmethod
    def vjp(ctx: Any, g: Tensor, group: Any) -> tuple:
        return (Copy.of(g, group),)


class Gather(Op):
    """All ranks' parts along `dim`. partial: the gradients of the ranks differ, and are added up;
    otherwise all are the same, and each rank takes its part."""

    saves: ClassVar[tuple] = ()
    grad_name = "GatherFromRanksBackward0"

    @staticmethod
    def forward(array: Any, group: Any, dim: int, partial: bool) -> Any:
        _axis(array, dim, "all_gather")
        xp = array_module(array)
        parts = xp.empty((group.size, *array.shape), array.dtype)
        group.all_gather(parts, xp.ascontiguousarray(array)).wait()
        return _joined(parts, dim)

    @staticmethod
    def vjp(ctx: Any, g: Tensor, group: Any, dim: int, partial: bool) -> tuple:
        back = SumAndDivide if partial else Divide
        return (back.apply(g, group=group, dim=dim),)


class Divide(Op):
    """This rank's part along `dim`."""

    saves: ClassVar[tuple] = ()
    grad_name = "DivideAmongRanksBackward0"

    @staticmethod
    def forward(array: Any, group: Any, dim: int) -> Any:
        return _parts(array, dim, group.size, "Shard")[group.rank]

    @staticmethod
    def vjp(ctx: Any, g: Tensor, group: Any, dim: int) -> tuple:
        return (Gather.apply(g, group=group, dim=dim, partial=False),)


class SumAndDivide(Op):
    """This rank's part along `dim` of the sum of all ranks' tensors."""

    saves: ClassVar[tuple] = ()
    grad_name = "SumAndDivideBackward0"

    @staticmethod
    def forward(array: Any, group: Any, dim: int) -> Any:
        parts = _parts(array, dim, group.size, "reduce_scatter")
        out = array_module(array).empty(parts.shape[1:], array.dtype)
        group.reduce_scatter(out, parts, "SUM").wait()
        return out

    @staticmethod
    def vjp(ctx: Any, g: Tensor, group: Any, dim: int) -> tuple:
        return (Gather.apply(g, group=group, dim=dim, partial=True),)


def to_whole(x: Tensor, layout: Layout, group: Any) -> Tensor:
    """The input of a divided layer: whole, from what `layout` says. Its gradients are partial."""
    if group.size == 1:
        return x
    if isinstance(layout, Replicate):
        return Copy.of(x, group)
    return Gather.apply(x, group=group, dim=layout.dim, partial=True)


def from_partial(x: Tensor, layout: Layout, group: Any) -> Tensor:
    """The output of a divided layer, whose summands the ranks have, as `layout` says."""
    if group.size == 1:
        return x
    if isinstance(layout, Replicate):
        return Sum.apply(x, group=group)
    return SumAndDivide.apply(x, group=group, dim=layout.dim)


def to_parts(x: Tensor, layout: Layout, dim: int, group: Any) -> Tensor:
    """The parts along `dim`, from what `layout` says."""
    if group.size == 1 or layout == Shard(dim % x.ndim) or layout == Shard(dim):
        return x
    if isinstance(layout, Shard):
        raise NotImplementedError(f"from {layout} to Shard({dim}): gather the tensor first")
    return Divide.apply(x, group=group, dim=dim)


def from_parts(x: Tensor, dim: int, layout: Layout, group: Any) -> Tensor:
    """What `layout` says, from the parts along `dim`."""
    if group.size == 1 or layout == Shard(dim) or layout == Shard(dim % x.ndim):
        return x
    if isinstance(layout, Shard):
        raise NotImplementedError(f"from Shard({dim}) to {layout}: gather the tensor first")
    return Gather.apply(x, group=group, dim=dim, partial=False)
