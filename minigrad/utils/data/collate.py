"""Combines a list of samples into a batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import minigrad
from minigrad.backends import array_module
from minigrad.tensor import Tensor, wrap


def default_convert(data: Any) -> Any:
    """NumPy arrays (not of text) in `data` become Tensors; containers are kept."""
    if isinstance(data, Tensor):
        return data
    if isinstance(data, (np.ndarray, np.generic)):
        if data.dtype.kind in "SU":
            return data
        return minigrad.as_tensor(data)
    if isinstance(data, Mapping):
        return _like(data, {key: default_convert(value) for key, value in data.items()})
    if isinstance(data, tuple):
        converted = [default_convert(value) for value in data]
        return type(data)(*converted) if hasattr(data, "_fields") else converted
    if isinstance(data, Sequence) and not isinstance(data, (str, bytes)):
        return _like(data, [default_convert(value) for value in data])
    return data


def _like(container: Any, values: Any) -> Any:
    """`values` in the type of `container`, or unchanged if that type can't be created."""
    try:
        return type(container)(values)
    except TypeError:
        return values


def default_collate(batch: Sequence[Any]) -> Any:
    """One batch from samples of equal structure.

    Tensors and NumPy arrays are stacked, numbers become a Tensor (float: float64, int: int64),
    text stays as it is; dicts, tuples, named tuples and lists are collated field by field.

    Raises:
        RuntimeError: arrays of different shapes, or sequences of different lengths.
        TypeError: an unsupported type.
    """
    first = batch[0]
    if isinstance(first, Tensor):
        return _stack(batch)
    if isinstance(first, (np.ndarray, np.generic)):
        if first.dtype.kind in "OSU":
            raise TypeError(_unknown(first.dtype))
        if isinstance(first, np.generic):
            return minigrad.as_tensor(np.asarray(batch))
        return _stack([minigrad.as_tensor(array) for array in batch])
    if isinstance(first, bool):
        return minigrad.tensor(batch)
    if isinstance(first, float):
        return minigrad.tensor(batch, dtype=minigrad.float64)
    if isinstance(first, int):
        return minigrad.tensor(batch)
    if isinstance(first, (str, bytes)):
        return batch
    if isinstance(first, Mapping):
        fields = {key: default_collate([sample[key] for sample in batch]) for key in first}
        return _like(first, fields)
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)(*(default_collate(field) for field in _columns(batch)))
    if isinstance(first, Sequence):
        columns = [default_collate(field) for field in _columns(batch)]
        return columns if isinstance(first, tuple) else _like(first, columns)
    raise TypeError(_unknown(type(first)))


def _stack(tensors: Sequence[Tensor]) -> Tensor:
    """One tensor of all, in a new first dimension."""
    if any(tensor.requires_grad for tensor in tensors):
        return minigrad.stack(tensors, 0)
    first = tensors[0]
    if any(
        (t.shape, t.dtype, t.device) != (first.shape, first.dtype, first.device) for t in tensors
    ):
        return minigrad.stack(tensors, 0)  # which converts, or says what differs
    # Data without a graph is copied by the array library: a worker need not load kernels for it.
    return wrap(array_module(first._array).stack([tensor._array for tensor in tensors]))


def _columns(batch: list[Any]) -> list[tuple[Any, ...]]:
    if any(len(sample) != len(batch[0]) for sample in batch):
        raise RuntimeError("each element in list of batch should be of equal size")
    return list(zip(*batch, strict=True))


def _unknown(kind: Any) -> str:
    return (
        "default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; "
        f"found {kind}"
    )
