"""Checks of index arrays. A step that is being recorded repeats them at every replay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minigrad.autograd.mode import mode


def check_values(check: Callable[..., None], array: Any, *args: Any) -> None:
    """Call `check(array, *args)`, which raises where numbers of an array are wrong."""
    if mode.recorder is None:
        check(array, *args)
    else:
        mode.recorder.check(check, array, args)


def check_bounds(array: Any, low: int, high: int, error: Callable[[int], Exception]) -> None:
    """Raise `error(wrong)` for a number outside of low .. high - 1."""
    check_values(_check_bounds, array, low, high, error)


def _check_bounds(array: Any, low: int, high: int, error: Callable[[int], Exception]) -> None:
    if array.size and bool((array.min() < low) | (array.max() >= high)):  # one wait for a GPU
        raise error(int(array.max()) if array.max() >= high else int(array.min()))
