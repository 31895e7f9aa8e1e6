"""The error of CUDA's driver functions."""

from __future__ import annotations


class CUDADriverError(RuntimeError):
    """A call that CUDA's driver refuses, such as a launch of too many threads."""

    status = 1


def get_build_version() -> int:
    return 13000
