"""The registry of the device functions that compiled kernels call.

Every function is a Numba intrinsic written as LLVM IR (so it is part of the loop that calls it and
does not stop LLVM from vectorising) and importable from this module under its `__name__`. For names
and Python functions in none of the tables, Numba's own implementation is right.
"""

from __future__ import annotations

import importlib
import math
from typing import Any

from kernels.simt.devlib import (  # noqa: F401 - they fill the tables
    atomic,
    bits,
    cache_hints,
    decimals,
    half,
    maths,
    printing,
)

_RARE = ["bfloat16", "rounding", "special"]  # loaded by the first kernel that asks

globals().update(maths.INTRINSICS)
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
    if what not in FUNCTIONS and what.startswith(("libdevice.", "bf16.")):
        _load_rare()
    return FUNCTIONS.get(what)


def _load_rare() -> None:
    while _RARE:
        importlib.import_module(f"{__package__}.{_RARE.pop()}")
    globals().update(maths.INTRINSICS)
    FUNCTIONS.update(maths.TABLE)


def __getattr__(name: str) -> Any:
    """A rare function, for the generated module that imports it."""
    if not name.startswith("__"):
        _load_rare()
    if name not in globals():
        raise AttributeError(f"devlib has no {name!r}")
    return globals()[name]
