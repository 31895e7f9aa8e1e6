"""The mode in which torch's `vmap` takes tensors of one number as indices."""

from __future__ import annotations

from contextlib import AbstractContextManager


class TransformGetItemToIndex(AbstractContextManager):
    """Changes nothing: `x[i]` with a tensor `i` of one number works in `minigrad.vmap` anyway."""

    def __exit__(self, *error: object) -> None:
        pass
