"""Finding the line of the program whose gradient is NaN: `detect_anomaly`."""

from __future__ import annotations

import traceback
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from minigrad.autograd.mode import mode
from minigrad.backends import every_element

_PACKAGE = str(Path(__file__).parents[1])
_made: weakref.WeakKeyDictionary[Any, traceback.StackSummary] = weakref.WeakKeyDictionary()


class _Switch:
    """Sets the mode; as a context manager, resets it at the end of the block."""

    def __init__(self, enabled: bool, check_nan: bool) -> None:
        self._previous = mode.anomaly, mode.check_nan
        mode.anomaly, mode.check_nan = enabled, check_nan

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: Any) -> None:
        mode.anomaly, mode.check_nan = self._previous


class set_detect_anomaly(_Switch):
    """Turn the detection on or off, for good or for a `with` block; see `detect_anomaly`."""

    def __init__(self, mode: bool, check_nan: bool = True) -> None:
        super().__init__(bool(mode), check_nan)


class detect_anomaly(_Switch):
    """In the block, operations remember where the program called them: when a backward pass fails
    or (with `check_nan`) computes a NaN, the error names that line. Slow: for debugging."""

    def __init__(self, check_nan: bool = True) -> None:
        super().__init__(True, check_nan)


def is_anomaly_enabled() -> bool:
    """Whether operations remember where they were called."""
    return mode.anomaly


def is_anomaly_check_nan_enabled() -> bool:
    """Whether gradients are searched for NaN."""
    return mode.check_nan


def remember(node: Any) -> None:
    """Keep the lines of the program that led to a node."""
    frames = traceback.extract_stack()
    own = [f for f in frames if not f.filename.startswith(_PACKAGE)]
    _made[node] = traceback.StackSummary.from_list(own or frames)


def watched(node: Any, backward: Callable, grads: list) -> Sequence:
    """backward(grads), which is that of a node or of a part of it; an error or a NaN names the line
    of the node's forward pass."""
    try:
        results = backward(grads)
    except Exception as error:
        error.add_note(_where(node))
        raise
    if mode.check_nan:
        for i, grad in enumerate(results):
            floating = grad is not None and grad._array.dtype.kind in "fcV"
            if floating and every_element(grad.isnan()._array).any():
                raise RuntimeError(
                    f"Function '{node.name()}' returned nan values in its {i}th output.\n"
                    f"{_where(node)}"
                )
    return results


def _where(node: Any) -> str:
    frames = _made.get(node)
    if not frames:
        return (
            f"{node.name()} was recorded outside of detect_anomaly: run the forward pass in the "
            "block as well"
        )
    last = frames[-1]
    head = f"{node.name()} was recorded by {last.filename}, line {last.lineno}: {last.line}"
    return f"{head}\nThe forward call, most recent last:\n{''.join(frames.format())}".rstrip()
