"""Intel's library of linear algebra, which no kernel calls."""

from __future__ import annotations

from minigrad._names import namespace


def is_available() -> bool:
    """False: every kernel is minigrad's own."""
    return False


__getattr__, __dir__ = namespace(__name__)
