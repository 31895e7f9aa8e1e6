"""`autograd.Variable`, from the time before tensors recorded themselves."""

from __future__ import annotations

from typing import Any

from minigrad.tensor import Tensor


class _AnyTensor(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, Tensor)


class Variable(metaclass=_AnyTensor):
    """`Variable(x)` is x outside the graph; `isinstance(x, Variable)` holds for every tensor."""

    def __new__(cls, data: Tensor, requires_grad: bool = False, volatile: bool = False) -> Tensor:
        """The same memory as a leaf."""
        twin = data.detach()
        twin.requires_grad = requires_grad
        return twin
