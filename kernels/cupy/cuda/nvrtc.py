"""NVRTC's version: CUDA C is compiled by this machine's C++ compiler, with CUDA 13's names."""

from __future__ import annotations


def getVersion() -> tuple[int, int]:
    return 13, 0
