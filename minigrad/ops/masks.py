"""What a mask chooses on a GPU, where the host waits for nothing but how much that is."""

from __future__ import annotations

from typing import Any

from kernels import dispatch
from kernels.pointwise import TABLE
from minigrad.autograd.mode import mode
from minigrad.backends import array_module, on_gpu
from minigrad.devices import read


def runs_on_gpu(array: Any) -> bool:
    """Whether launches on an array on a GPU run now, and take its dtype."""
    return mode.recorder is None and on_gpu(array) and bool(array.size) and array.dtype.kind != "c"


def true_places(mask: Any) -> Any:
    """The places (found, ndim), int64, where a mask of 1 to 4 dimensions on a GPU is True."""
    ends = dispatch.active.mask_ends(mask)
    return dispatch.active.mask_places(mask, ends, read(ends[-1], "item"))


def elements_at_true(x: Any, mask: Any) -> Any:
    """The elements of an array on a GPU where a mask of its shape is True, as one dimension."""
    ends = dispatch.active.mask_ends(mask)
    return dispatch.active.masked_select(x, mask, ends, read(ends[-1], "item"))


def without_repeats(x: Any) -> Any:
    """The elements of a vector on a GPU that differ from the one before."""
    first = array_module(x).empty(x.size, bool)
    first[:1] = True
    dispatch.active.pointwise(TABLE["ne"], x[1:], x[:-1], out=first[1:])
    return elements_at_true(x, first)
