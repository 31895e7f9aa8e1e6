"""The parts of a batch for several devices, and their results together again."""

from __future__ import annotations

from typing import Any

import minigrad
from minigrad._names import namespace
from minigrad.tensor import Tensor

__all__ = ["gather", "scatter", "scatter_kwargs"]


def scatter(inputs: Any, target_gpus: Any, dim: int = 0) -> list[Any]:
    """`inputs` once for each device: tensors in them are divided along dim, other values shared.

    target_gpus: devices, or numbers of GPUs. Lists, tuples and dicts of tensors keep their form;
    where a tensor has fewer parts than there are devices, the last ones get nothing.
    """
    if isinstance(inputs, Tensor):
        parts = inputs.chunk(len(target_gpus), dim)
        return [part.to(target) for part, target in zip(parts, target_gpus)]
    if isinstance(inputs, tuple | list) and inputs:
        rows = zip(*(scatter(value, target_gpus, dim) for value in inputs))
        if hasattr(inputs, "_fields"):
            return [type(inputs)(*row) for row in rows]
        return [type(inputs)(row) for row in rows]
    if isinstance(inputs, dict) and inputs:
        rows = zip(*(scatter(value, target_gpus, dim) for value in inputs.values()))
        return [type(inputs)(zip(inputs, row)) for row in rows]
    return [inputs for _ in target_gpus]


def scatter_kwargs(
    inputs: tuple, kwargs: dict[str, Any] | None, target_gpus: Any, dim: int = 0
) -> tuple[tuple, tuple]:
    """`scatter` of a call's arguments: a tuple and a dict for each device, as many of either."""
    rows = scatter(inputs, target_gpus, dim) if inputs else []
    named = scatter(kwargs, target_gpus, dim) if kwargs else []
    count = max(len(rows), len(named))
    rows += [()] * (count - len(rows))
    named += [{} for _ in range(count - len(named))]
    return tuple(rows), tuple(named)


def gather(outputs: Any, target_device: Any, dim: int = 0) -> Any:
    """What devices have returned, on one device: tensors joined along dim, those of no dimension
    as a vector. Lists, tuples and dicts of tensors keep their form. ValueError if the dicts differ
    in length."""
    first = outputs[0]
    if isinstance(first, Tensor):
        if not all(isinstance(x, Tensor) for x in outputs):
            raise TypeError("gather: expected tensors of all devices, or of none")
        parts = [(x if x.ndim else x.reshape(1)).to(target_device) for x in outputs]
        return minigrad.cat(parts, 0 if not first.ndim else dim)
    if first is None:
        return None
    if isinstance(first, dict):
        if any(len(x) != len(first) for x in outputs):
            raise ValueError("All dicts must have the same number of keys")
        named = {key: gather([x[key] for x in outputs], target_device, dim) for key in first}
        return type(first)(named)
    row = [gather(values, target_device, dim) for values in zip(*outputs)]
    return type(first)(*row) if hasattr(first, "_fields") else type(first)(row)


__getattr__, __dir__ = namespace(__name__)
