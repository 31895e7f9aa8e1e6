"""How a view is computed from its base, and what it learns of the base's gradient."""

from __future__ import annotations

from typing import Any

from minigrad.autograd.mode import mode

Tensor = Any  # the class is above this module

SEVERAL = "several"


class View:
    """How a tensor that shares memory with `base` is computed from it.

    chain: the (operation, attributes) pairs from the base to the view.
    version: the version counter for which the node of the view is valid.
    untracked: "no_grad" or "inference_mode" if made in such a block from a tensor that requires a
        gradient, SEVERAL if made beside others by `split` or `unbind`, else "".
    """

    __slots__ = ("base", "chain", "untracked", "version")

    def __init__(self, base: Tensor, chain: tuple, version: int, untracked: str) -> None:
        self.base, self.chain, self.version, self.untracked = base, chain, version, untracked

    def replay(self, base: Tensor) -> Tensor:
        for op, attrs in self.chain:
            base = op.apply(base, **attrs)
        return base

    def refresh(self, tensor: Tensor) -> None:
        """A view requires a gradient where its base does. After an in-place change the base has
        another node: update that of the view."""
        base = self.base
        if not base._requires_grad:
            return
        tensor._requires_grad = True
        current = base._node is None or self.version == tensor._counter[0]
        if current or self.untracked not in ("", SEVERAL):
            return
        self.version = tensor._counter[0]
        enabled, mode.enabled = mode.enabled, True
        try:
            result = self.replay(base)
        finally:
            mode.enabled = enabled
        node, index = tensor._node, tensor._index
        tensor._node, tensor._index = result._node, result._index
        if node is not None and node.retained:
            node.move_retained(index, tensor)
