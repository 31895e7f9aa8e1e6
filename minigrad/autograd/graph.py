"""`autograd.graph`: the node type, and `increment_version`."""

from __future__ import annotations

from minigrad._names import namespace
from minigrad.autograd.node import Node
from minigrad.tensor import Tensor

__all__ = ["Node", "increment_version"]


def increment_version(tensor: Tensor | tuple[Tensor, ...]) -> None:
    """Tell autograd that the memory was changed without it (for example by a kernel on the array):
    a backward pass that needs the old values then raises instead of using the new ones."""
    for one in (tensor,) if isinstance(tensor, Tensor) else tensor:
        one._counter[0] += 1


__getattr__, __dir__ = namespace(__name__)
