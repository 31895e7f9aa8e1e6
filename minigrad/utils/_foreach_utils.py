"""How optimisers of libraries sort tensors that they update together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from minigrad._names import namespace
from minigrad.tensor import Tensor

Groups = dict[tuple[Any, Any], tuple[list[list[Tensor | None]], list[int]]]


def _group_tensors_by_device_and_dtype(
    tensorlistlist: Sequence[Sequence[Tensor | None]], with_indices: bool = False
) -> Groups:
    """Per device and dtype of the first list, the parts of all lists at those places, and with
    `with_indices` the places. An empty list stays empty. RuntimeError for lists of other lengths.
    """
    first = tensorlistlist[0]
    if wrong := [len(part) for part in tensorlistlist if part and len(part) != len(first)]:
        raise RuntimeError(
            f"_group_tensors_by_device_and_dtype: expected lists of {len(first)} tensors, got one "
            f"of {wrong[0]}"
        )
    groups: Groups = {}
    for i, tensor in enumerate(first):
        if tensor is None:
            raise RuntimeError(
                "_group_tensors_by_device_and_dtype: expected tensors in the first list, got None"
            )
        key = (tensor.device, tensor.dtype)
        lists, places = groups.setdefault(key, ([[] for _ in tensorlistlist], []))
        for found, part in zip(lists, tensorlistlist, strict=True):
            if part:
                found.append(part[i])
        if with_indices:
            places.append(i)
    return groups


__getattr__, __dir__ = namespace(__name__)
