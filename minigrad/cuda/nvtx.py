"""Ranges and marks that NVIDIA's profilers show beside the kernels of a program."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from minigrad._names import namespace
from minigrad.backends import device_module

__all__ = ["mark", "range", "range_pop", "range_push"]


class _Open(threading.local):
    """How many ranges of this thread are open."""

    count = 0


_open = _Open()


def _nvtx() -> Any:
    """CuPy's functions; RuntimeError without a GPU."""
    return device_module("cuda").cuda.nvtx


def range_push(msg: str) -> int:
    """Begin a range; the number of ranges around it."""
    _nvtx().RangePush(msg)
    _open.count += 1
    return _open.count - 1


def range_pop() -> int:
    """End the last range; the number of ranges around it, or -2 if none was open."""
    _nvtx().RangePop()
    if not _open.count:
        return -2
    _open.count -= 1
    return _open.count


@contextmanager
def range(msg: str, *args: Any, **kwargs: Any) -> Iterator[None]:
    """A range around a block, or a function; its name is `msg.format(*args, **kwargs)`."""
    range_push(msg.format(*args, **kwargs))
    try:
        yield
    finally:
        range_pop()


def mark(msg: str) -> None:
    """Mark an instant."""
    _nvtx().Mark(msg)


__getattr__, __dir__ = namespace(__name__)
