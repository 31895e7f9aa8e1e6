"""Apple's GPUs, which minigrad has no kernels for."""

from __future__ import annotations


def is_available() -> bool:
    """False: kernels run on NVIDIA GPUs and on the CPU."""
    return False


is_built = is_available
