"""What torch refuses to write into: memory where elements of a result would meet each other, or
those of an operand."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np

from minigrad.autograd.mode import mode
from minigrad.tensor import Tensor


def check_no_overlap(array: Any) -> None:
    """RuntimeError for an expanded array, where one element in memory would get several values."""
    if is_expanded(array):
        raise RuntimeError(
            "unsupported operation: more than one element of the written-to tensor refers to a "
            "single memory location. Please clone() the tensor before performing the operation."
        )


def is_expanded(array: Any) -> bool:
    """Whether elements of an array share memory because a dimension was expanded."""
    if type(array) is np.ndarray and array.flags.c_contiguous:
        return False
    steps = zip(array.shape, array.strides, strict=True)
    return bool(array.size) and any(s == 0 and n > 1 for n, s in steps)


def warn_of_overlap(name: str, array: Any) -> None:
    """torch's warning, in place of its error, for values that are written by index."""
    if is_expanded(array):
        warnings.warn(
            f"Use of {name} on expanded tensors is deprecated. Please clone() the tensor before "
            "performing this operation.",
            UserWarning,
            stacklevel=4,
        )


def check_apart(target: Tensor, operands: Iterable[Any]) -> None:
    """RuntimeError if an operand shares a part of its memory with `target`: the same elements in
    the same order are no harm. As in torch, only where both fill a range of memory."""
    for operand in operands:
        if (
            isinstance(operand, Tensor)
            and operand._counter is target._counter  # views of one memory share it
            and operand is not target
            and mode.recorder is None
            and _meet(target, operand)
        ):
            raise RuntimeError(
                "unsupported operation: some elements of the input tensor and the written-to "
                "tensor refer to a single memory location. Please clone() the tensor before "
                "performing the operation."
            )


def _meet(a: Tensor, b: Tensor) -> bool:
    if a.is_meta:
        return False
    first, second = a.data_ptr(), b.data_ptr()
    if first >= second + b.nbytes or second >= first + a.nbytes:
        return False
    if not (a._array.size and b._array.size):
        return False
    mine, other = _steps(a._array), _steps(b._array)
    if not (_fills(mine, a.itemsize) and _fills(other, b.itemsize)):
        return False
    return first != second or mine != other


def _steps(array: Any) -> list[tuple[int, int]]:
    """(stride, length) of each dimension that has more than one element."""
    return [(s, n) for s, n in zip(array.strides, array.shape, strict=True) if n > 1]


def _fills(steps: list[tuple[int, int]], size: int) -> bool:
    """Whether an array has each element of a range of memory once, in some order."""
    for step, length in sorted(steps):
        if step != size:
            return False
        size *= length
    return True
