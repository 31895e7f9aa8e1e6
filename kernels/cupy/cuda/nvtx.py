"""Marks for NVIDIA's profilers. There is none here to show them."""

from __future__ import annotations

available = False


def Mark(message: str, id_color: int = -1) -> None:
    """Mark an instant."""


def MarkC(message: str, color: int = 0) -> None:
    """Mark an instant in a colour."""


def RangePush(message: str, id_color: int = -1) -> None:
    """Begin a range."""


def RangePushC(message: str, color: int = 0) -> None:
    """Begin a range in a colour."""


def RangePop() -> None:
    """End the last range."""


def RangeStart(message: str, id_color: int = -1) -> int:
    """Begin a range that `RangeEnd` ends."""
    return 0


def RangeEnd(range_id: int) -> None:
    """End a range."""
