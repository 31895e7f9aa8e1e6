"""The words for reductions as numbers, and the older flags for them, as in torch.nn._reduction."""

from __future__ import annotations

from minigrad._names import namespace
from minigrad.nn._losses import legacy_reduction

_NUMBERS = {"none": 0, "mean": 1, "sum": 2}


def get_enum(reduction: str) -> int:
    """The number of "none", "mean" or "sum"; ValueError for another word."""
    if reduction not in _NUMBERS:
        raise ValueError(f"{reduction} is not a valid value for reduction")
    return _NUMBERS[reduction]


def legacy_get_string(size_average: bool | None, reduce: bool | None) -> str:
    """The word for the flags, of which None is True, with a warning."""
    return legacy_reduction(size_average is not False, reduce is not False, "mean")


__getattr__, __dir__ = namespace(__name__)
