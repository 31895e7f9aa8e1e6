"""The class of compiled modules, by the name that torch's has."""

from __future__ import annotations

from minigrad.compiler import CompiledModule as OptimizedModule

__all__ = ["OptimizedModule"]
