"""The compiled function that implements a CUDA name, or replaces a host function, on the CPU."""

from __future__ import annotations

from functools import cache
from typing import Any


@cache
def function(name: str, space: str = "global") -> Any:
    """The device function behind the CUDA name `name`; None if there is none."""
    from kernels.simt.devlib import registry  # slow: it builds all device functions

    try:
        return registry.lookup(name, space)
    except KeyError:
        return None


def replacement(value: Any) -> Any:
    """What to call on the CPU for a function of Python, `math` or NumPy."""
    from kernels.simt.devlib import registry

    found = None if isinstance(value, str) else registry.lookup(value)
    return value if found is None else found
