"""Operations on tensors of the device "meta": shapes and dtypes of results, without data.

An operation runs as on a CPU, with zeros as its inputs and without its launches. Zeros take no
memory until they are written or read one by one; more than the machine could have is a MemoryError.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kernels import dispatch
from minigrad._meta import MetaArray


class _NoLaunches(dispatch.Trace):
    def takes(self, family: str, version: str, kernel: Any, grid: Any, block: Any, args: tuple):
        return True

    def contiguous(self, a: Any) -> Any:
        return np.zeros(a.shape, a.dtype)


def results(forward: Callable, arrays: Sequence) -> Any:
    """What `forward` makes of arrays, some of them without data: arrays without data."""
    given = [np.zeros(a.shape, a.dtype) if isinstance(a, MetaArray) else a for a in arrays]
    with dispatch.tracing(_NoLaunches()):
        found = forward(*given)
    return tuple(map(_without_data, found)) if type(found) is tuple else _without_data(found)


def _without_data(value: Any) -> Any:
    return MetaArray(value.shape, value.dtype) if isinstance(value, np.ndarray) else value
