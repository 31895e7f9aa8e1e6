"""`autograd.Variable`, the legacy wrapper of tensors."""

from __future__ import annotations

from typing import Any

from minigrad.tensor import Tensor


class _AnyTensor(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, Tensor)


class Variable(metaclass=_AnyTensor):
    """`Variable(x)` detaches x; `isinstance(x, Variable)` is true for every tensor."""

    def __new__(cls, data: Tensor, requires_grad: bool = False, volatile: bool = False) -> Tensor:
        """A leaf tensor of the same memory."""
        result = data.detach()
        result.requires_grad = requires_grad
        return result
