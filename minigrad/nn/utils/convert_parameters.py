"""Parameters as one vector, and back."""

from __future__ import annotations

from collections.abc import Iterable

import minigrad
from minigrad.tensor import Tensor


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """All parameters flattened and joined, (total numel,)."""
    return minigrad.cat([param.reshape(-1) for param in parameters])


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Give each parameter its slice of `vec` (total numel,) as its data."""
    if not isinstance(vec, Tensor):
        raise TypeError(f"expected minigrad.Tensor, but got: {type(vec).__name__}")
    start = 0
    for param in parameters:
        stop = start + param.numel()
        if stop > vec.numel():
            raise RuntimeError(
                f"vector_to_parameters: the vector has {vec.numel()} elements, "
                "fewer than the parameters need"
            )
        param.data = vec[start:stop].reshape(param.shape).data
        start = stop
