"""Tensors that a Module registers: `Parameter` (trained) and `Buffer` (state, not trained)."""

from __future__ import annotations

from typing import Any

import minigrad
from minigrad.tensor import Tensor


class Parameter(Tensor):
    """A Tensor that registers itself as a parameter when assigned to a Module attribute.

    Args:
        data: any tensor; the parameter shares its storage. None gives an empty parameter.
        requires_grad: whether the parameter is trained.
    """

    def __new__(cls, data: Tensor | None = None, requires_grad: bool = True) -> Parameter:
        if data is None:
            data = minigrad.empty(0)
        if not isinstance(data, Tensor):
            raise TypeError(
                f"Parameter(): expected a Tensor, got {type(data).__name__}; wrap it in tensor(...)"
            )
        return Tensor._make_subclass(cls, data, requires_grad)

    def __init__(self, data: Tensor | None = None, requires_grad: bool = True) -> None:
        """Nothing to do: `__new__` shares the storage."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Parameter:
        if id(self) in memo:
            return memo[id(self)]
        memo[id(self)] = copied = type(self)(self.data.clone(), self.requires_grad)
        return copied

    def __reduce_ex__(self, protocol: int) -> tuple[Any, ...]:
        return type(self), (self.data, self.requires_grad)


class Buffer(Tensor):
    """A Tensor that registers itself as a buffer when assigned to a Module attribute.

    Args:
        data: any tensor; the buffer shares its storage. None gives an empty buffer.
        persistent: whether the buffer is part of the module's `state_dict`.
    """

    def __new__(cls, data: Tensor | None = None, *, persistent: bool = True) -> Buffer:
        if data is None:
            data = minigrad.empty(0)
        buffer = Tensor._make_subclass(cls, data, data.requires_grad)
        buffer.persistent = persistent
        return buffer

    def __init__(self, data: Tensor | None = None, *, persistent: bool = True) -> None:
        """Nothing to do, see `__new__`."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Buffer:
        if id(self) in memo:
            return memo[id(self)]
        memo[id(self)] = copied = type(self)(self.data.clone(), persistent=self.persistent)
        return copied

    def __reduce_ex__(self, protocol: int) -> tuple[Any, ...]:
        return _rebuild_buffer, (type(self), self.data, self.persistent)


def _rebuild_buffer(cls: type[Buffer], data: Tensor, persistent: bool) -> Buffer:
    return cls(data, persistent=persistent)
