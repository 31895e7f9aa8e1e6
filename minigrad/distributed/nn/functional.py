"""Collectives with gradients: each rank has a loss of its own, and what is differentiated is their
sum. All ranks must run backward, too."""

from __future__ import annotations

from typing import Any

import minigrad
from minigrad._names import namespace
from minigrad.distributed.collectives import ReduceOp
from minigrad.distributed.groups import get_rank, resolve
from minigrad.distributed.tensor.mappings import Copy, Gather, Sum, SumAndDivide
from minigrad.tensor import Tensor

__all__ = ["all_gather", "all_reduce", "broadcast", "reduce_scatter"]


def _check(name: str, op: Any) -> None:
    if op not in (ReduceOp.SUM, ReduceOp.AVG):
        raise NotImplementedError(f"{name}: gradients are there for SUM and AVG, got {op}")


def all_reduce(tensor: Tensor, op: Any = ReduceOp.SUM, group: Any = None) -> Tensor:
    """The sum (or mean) of all ranks' tensors, on every rank; the gradients are added up likewise.

    NotImplementedError for other operators.
    """
    _check("all_reduce", op)
    group = resolve(group)
    total = Copy.of(Sum.apply(tensor, group=group), group)
    return total / group.size if op is ReduceOp.AVG else total


def all_gather(tensor: Tensor, group: Any = None) -> tuple[Tensor, ...]:
    """All ranks' tensors, which have one shape; a rank's gradient is the sum of all ranks'."""
    whole = Gather.apply(tensor.unsqueeze(0), group=resolve(group), dim=0, partial=True)
    return whole.unbind(0)


def reduce_scatter(
    output: Tensor, input_list: list[Tensor], op: Any = ReduceOp.SUM, group: Any = None
) -> Tensor:
    """The sum (or mean) over the ranks of their tensors for this rank: `input_list` has one for
    each. It is also written to `output`."""
    _check("reduce_scatter", op)
    group = resolve(group)
    part = SumAndDivide.apply(minigrad.stack(list(input_list)), group=group, dim=0).squeeze(0)
    part = part / group.size if op is ReduceOp.AVG else part
    output.detach().copy_(part.detach())
    return part


def broadcast(tensor: Tensor, src: int, group: Any = None) -> Tensor:
    """The tensor of rank `src`, on every rank; its gradient is the sum of all ranks'."""
    if get_rank() != src:  # zeros that are made of the tensor: this rank takes part in backward
        tensor = tensor.masked_fill(minigrad.tensor(True, device=tensor.device), 0)
    return all_reduce(tensor, group=group)


__getattr__, __dir__ = namespace(__name__)
