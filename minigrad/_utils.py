"""What programs import from torch._utils: several tensors as one, for a communication each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import minigrad
from minigrad._names import namespace
from minigrad.tensor import Tensor


def _flatten_dense_tensors(tensors: Sequence[Tensor]) -> Tensor:
    """The elements of tensors of one dtype, one tensor after the other."""
    return minigrad.cat([t.reshape(-1) for t in tensors])


def _unflatten_dense_tensors(flat: Tensor, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Views of `flat`, which `_flatten_dense_tensors` made, in the shapes of the tensors."""
    parts = flat.split([t.numel() for t in tensors])
    return tuple([part.view(t.shape) for part, t in zip(parts, tensors, strict=True)])


def _take_tensors(tensors: Iterable[Tensor], size_limit: int) -> Iterator[list[Tensor]]:
    """Tensors of one dtype together, in order, up to `size_limit` bytes or one tensor."""
    groups: dict[str, tuple[list[Tensor], int]] = {}
    for t in tensors:
        size = t.numel() * t.element_size()
        group, total = groups.get(t.type(), ([], 0))
        if group and total + size > size_limit:
            yield group
            group, total = [], 0
        groups[t.type()] = [*group, t], total + size
    yield from (group for group, _ in groups.values())


__getattr__, __dir__ = namespace(__name__)
