"""OpenMP, which no kernel uses: `minigrad.set_num_threads` sets the threads of kernels."""

from __future__ import annotations

from minigrad._names import namespace


def is_available() -> bool:
    """False: every kernel is minigrad's own."""
    return False


__getattr__, __dir__ = namespace(__name__)
