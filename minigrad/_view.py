"""How a view is computed from its base, and what it learns of the base's gradient."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minigrad.autograd.mode import mode

Tensor = Any  # the class is above this module

SEVERAL = "several"
BY_STORAGE: list[Callable] = []  # the link of a chain from a base to a view; `minigrad.ops.storage`


def replay(chain: tuple, base: Tensor) -> Tensor:
    """The view of `base` that a chain leads to."""
    for op, attrs in chain:
        base = op.apply(base, **attrs)
    return base


class View:
    """How a tensor that shares memory with `base` is computed from it.

    before, op, attrs: the (operation, attributes) pairs from the base to the last view but this
        one, and the pair from there to this one.
    version: the version counter for which the node of the view is valid.
    untracked: "no_grad" or "inference_mode" if made in such a block from a tensor that requires a
        gradient, SEVERAL if made beside others by `split` or `unbind`, else "".
    """

    __slots__ = ("attrs", "base", "before", "op", "untracked", "version")

    def __init__(self, base: Tensor, chain: tuple, version: int, untracked: str) -> None:
        self.base, self.chain, self.version, self.untracked = base, chain, version, untracked

    @property
    def chain(self) -> tuple:
        """The (operation, attributes) pairs from the base to the view."""
        return (*self.before, (self.op, self.attrs))

    @chain.setter
    def chain(self, pairs: tuple) -> None:
        *before, (self.op, self.attrs) = pairs
        self.before = tuple(before)

    def settle(self, tensor: Tensor) -> None:
        """Where the base has got another shape in place since, its storage alone tells where the
        elements of the view are."""
        if 0 <= self.version < self.base._reshaped:
            self.chain = (BY_STORAGE[0](tensor),)

    def refresh(self, tensor: Tensor) -> None:
        """A view requires a gradient where its base does. After an in-place change the base has
        another node: update that of the view."""
        base = self.base
        if not base._requires_grad:
            return
        tensor._requires_grad = True
        if self.version == tensor._counter[0] or self.untracked not in ("", SEVERAL):
            return
        self.settle(tensor)
        self.version = tensor._counter[0]
        enabled, mode.enabled = mode.enabled, True
        try:
            result = replay(self.chain, base)
        finally:
            mode.enabled = enabled
        node, index = tensor._node, tensor._index
        tensor._node, tensor._index = result._node, result._index
        if node is not None and node.retained:
            node.move_retained(index, tensor)
