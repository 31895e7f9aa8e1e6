"""Collective operations that return their result, with a gradient, as libraries import them."""

from __future__ import annotations

from typing import Any

from minigrad._names import namespace
from minigrad.autograd import Function
from minigrad.distributed import collectives
from minigrad.tensor import Tensor

__all__ = ["all_to_all_single_autograd", "wait_tensor"]


def wait_tensor(tensor: Tensor) -> Tensor:
    """The tensor: what a collective operation of minigrad returns is complete. The `wait()` of a
    `Work` waits for those with `async_op`."""
    return tensor


class _Exchange(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, received: list[int], sent: list[int], group: Any) -> Tensor:
        ctx.options = sent, received, group
        result = x.new_empty((sum(received), *x.shape[1:]))
        collectives.all_to_all_single(result, x.contiguous(), received, sent, group)
        return result

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple:
        return _Exchange.apply(g, *ctx.options), None, None, None


def all_to_all_single_autograd(
    self: Tensor, output_split_sizes: list[int], input_split_sizes: list[int], group: Any
) -> Tensor:
    """The rows that the ranks of `group` have for this one, output_split_sizes[i] from rank i;
    input_split_sizes[i] rows of `self` go to rank i. Gradients go back the same way."""
    return _Exchange.apply(self, list(output_split_sizes), list(input_split_sizes), group)


__getattr__, __dir__ = namespace(__name__)
