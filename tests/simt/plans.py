"""What the compiler decided for a kernel, in words."""

from __future__ import annotations

from typing import Any


def plan(kernel: Any, block: Any = None) -> str:
    """The plan of a kernel that has been launched, as `inspect_passes` shows it."""
    passes = kernel.inspect_passes(block)
    return passes.get("plan, not interleaved", passes["plan"])
