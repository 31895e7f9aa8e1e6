"""Control of NVIDIA's profilers. There is none here."""

from __future__ import annotations


def start() -> None:
    """There is no profiler to start."""


def stop() -> None:
    """There is no profiler to stop."""
