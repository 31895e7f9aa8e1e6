"""Communication hooks that send less: `ddp.register_comm_hook(state, hook)`.

`bf16_compress_hook` sends gradients as bfloat16, half the bytes. `topk_hook` sends only the largest
ones; what it leaves out is added to the next step's gradients (error feedback: Karimireddy et al.,
"Error Feedback Fixes SignSGD and other Gradient Compression Schemes", ICML 2019).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from minigrad._names import namespace
from minigrad.backends import array_module
from minigrad.distributed.groups import resolve
from minigrad.tensor import Tensor, wrap


class _Later:
    """A result that is made when it is waited for."""

    def __init__(self, make: Callable[[], Tensor]) -> None:
        self._make = make

    def wait(self) -> Tensor:
        return self._make()


def bf16_compress_hook(process_group: Any, bucket: Any) -> _Later:
    """The mean of the ranks' gradients, each sent as bfloat16 and added in float32.

    Each rank adds up one part of the bucket and sends the rounded mean to all: two roundings.
    """
    group, flat = resolve(process_group), bucket.buffer()._array
    xp = array_module(flat)
    parts = xp.zeros((group.size, -(-flat.size // group.size)), ml_dtypes.bfloat16)
    parts.reshape(-1)[: flat.size] = flat
    got = xp.empty_like(parts)
    each = [parts[0].nbytes] * group.size
    first = group.all_to_all(got, parts, each, each)

    def finish() -> Tensor:
        first.wait()
        mean = got.astype(np.float32).mean(axis=0).astype(ml_dtypes.bfloat16)
        group.all_gather(parts, mean).wait()
        flat[...] = parts.reshape(-1)[: flat.size].astype(flat.dtype)
        return bucket.buffer()

    return _Later(finish)


class TopKState:
    """For `topk_hook`. ratio: which share of a bucket's gradients is sent, in (0, 1]."""

    def __init__(self, process_group: Any = None, ratio: float = 0.01) -> None:
        if not 0 < ratio <= 1:
            raise ValueError(f"TopKState: expected a ratio in (0, 1], got {ratio}")
        self.process_group, self.ratio = process_group, ratio
        self.errors: dict[int, Any] = {}  # what was left out so far, by bucket


def topk_hook(state: TopKState, bucket: Any) -> _Later:
    """The mean of the largest gradients of each rank, as (index, value) pairs."""
    group, flat = resolve(state.process_group), bucket.buffer()._array
    xp = array_module(flat)
    total = flat + state.errors.get(bucket.index(), 0)
    count = max(1, int(state.ratio * flat.size))
    index = xp.argpartition(xp.abs(total), flat.size - count)[flat.size - count :]
    number = np.int32 if flat.size < 2**31 else np.int64
    chosen, index = xp.ascontiguousarray(total[index]), xp.ascontiguousarray(index, number)
    total[index] = 0
    state.errors[bucket.index()] = total
    values = xp.empty((group.size, count), flat.dtype)
    places = xp.empty((group.size, count), number)
    works = [group.all_gather(values, chosen), group.all_gather(places, index)]

    def finish() -> Tensor:
        for work in works:
            work.wait()
        mean = xp.zeros_like(flat)
        xp.add.at(mean, places.reshape(-1), values.reshape(-1))
        return wrap(mean / group.size)

    return _Later(finish)


__getattr__, __dir__ = namespace(__name__)
