"""Checks of index arrays. A step that is being recorded repeats them at every replay.

On a GPU they are one launch, and an error comes later: `kernels.support.wrong_index`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kernels import dispatch
from kernels.support import wrong_index
from kernels.support.bounds import all_below
from minigrad._meta import MetaArray
from minigrad.autograd.mode import mode
from minigrad.backends import array_module, every_element, on_gpu


def check_values(check: Callable[..., None], array: Any, *args: Any) -> None:
    """Call `check(array, *args)`, which raises where numbers of an array are wrong."""
    if mode.recorder is None:
        check(array, *args)
    else:
        mode.recorder.check(check, array, args)


def check_bounds(
    array: Any,
    low: int,
    high: int,
    error: Callable[[int], Exception],
    ignore: int | None = None,
) -> Any:
    """Raise `error(wrong)` for a number outside of low .. high - 1 that is not `ignore`.

    The array, of whose numbers those from low to -1 count from the end, high; on a GPU, where the
    error comes later, a copy with others in place of wrong ones.
    """
    if isinstance(array, MetaArray):
        return array
    if on_gpu(array):
        launch, module = dispatch.active.checked_index, array_module(array)
        return wrong_index.inside(launch, module, array, low, high, error, ignore)
    if low < 0 and mode.recorder is None and all_below(every_element(array), high):
        return array
    check_values(_check_bounds, every_element(array), low, high, error, ignore)
    return array if low >= 0 else array_module(array).where(array < 0, array + high, array)


def _check_bounds(
    array: Any, low: int, high: int, error: Callable[[int], Exception], ignore: int | None
) -> None:
    if low == 0 and (not dispatch.has_numbers() or all_below(array, high)):
        return
    if not array.size or (array.min() >= low and array.max() < high):
        return
    wrong = array[(array < low) | (array >= high)]
    wrong = wrong if ignore is None else wrong[wrong != ignore]
    if wrong.size:
        raise error(int(wrong[0]))
