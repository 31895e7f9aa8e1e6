"""oneDNN, which no kernel calls: programs ask for it, and set its flag `enabled`."""

from __future__ import annotations

from minigrad._names import namespace

enabled = False


def is_available() -> bool:
    """False: every kernel is minigrad's own."""
    return False


__getattr__, __dir__ = namespace(__name__)
