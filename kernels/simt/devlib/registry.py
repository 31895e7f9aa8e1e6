"""What compiled kernels call: one registry over the modules beside it.

Every function is a Numba intrinsic written as LLVM IR (so it is part of the loop that calls it and
does not stop LLVM from vectorising) and importable from this module under its `__name__`. Names and
Python functions that are in none of the tables need nothing: Numba's own implementation is right.
"""

from __future__ import annotations

import importlib
import math
from types import ModuleType
from typing import Any

from kernels.simt.devlib import atomic, bits, half, maths

_MODULES = (maths, bits, half, atomic)
_RARE = ["rounding", "special"]  # of libdevice: loaded by the first kernel that asks


def _publish(module: ModuleType) -> None:
    for name, value in vars(module).items():
        if type(value).__name__ == "_Intrinsic":
            globals()[name] = value


for _module in _MODULES:
    _publish(_module)

ldexp = math.ldexp  # typed alike in Numba's CPU target

FUNCTIONS: dict[str, Any] = maths.TABLE | atomic.TABLE
"""By canonical name (`stubs.canonical`). Atomics here are atomic between OS threads."""

LOCAL_FUNCTIONS: dict[str, Any] = atomic.OWN_TABLE
"""`atomic.*` for shared and local arrays: plain, since one OS thread runs all of a block."""

REPLACEMENTS: dict[Any, Any] = maths.BY_FUNCTION
"""By Python function: what CUDA types or computes otherwise than Numba's CPU target."""


def lookup(what: Any, space: str = "global") -> Any | None:
    """The device function for a canonical name or a Python function; None if Numba's own serves.

    `space` matters to atomics: "global", or "shared" and "local" for the plain form.
    """
    if not isinstance(what, str):
        return REPLACEMENTS.get(what) if callable(what) else None
    if space != "global" and what in LOCAL_FUNCTIONS:
        return LOCAL_FUNCTIONS[what]
    if what not in FUNCTIONS and what.startswith("libdevice."):
        _load_rare()
    return FUNCTIONS.get(what)


def _load_rare() -> None:
    while _RARE:
        _publish(importlib.import_module(f"{__package__}.{_RARE.pop()}"))
        FUNCTIONS.update(maths.TABLE)


def __getattr__(name: str) -> Any:
    """A rare function, for the generated module that imports it."""
    if not name.startswith("__"):
        _load_rare()
    if name not in globals():
        raise AttributeError(f"devlib has no {name!r}")
    return globals()[name]
