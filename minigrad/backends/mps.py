"""Apple's GPUs, which minigrad has no kernels for."""

from __future__ import annotations

from minigrad._names import namespace


def is_available() -> bool:
    """False: kernels run on NVIDIA GPUs and on the CPU."""
    return False


is_built = is_available


__getattr__, __dir__ = namespace(__name__)
