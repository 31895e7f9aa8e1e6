"""What the compiler decided for a kernel, and whether that does what the checked mode does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kernels.simt import cuda


def plan(kernel: Any, block: Any = None) -> str:
    """The plan of a kernel that has been launched, as `inspect_passes` shows it."""
    passes = kernel.inspect_passes(block)
    return passes.get("plan, not interleaved", passes["plan"])


def beside_checked(function: Callable, configuration: tuple, *args: Any) -> tuple[Any, Any]:
    """A kernel and its checked form, after a launch of each that leaves the same in the arrays."""
    kernels, results = [], []
    for debug in (False, True):
        given = [arg.copy() if isinstance(arg, np.ndarray) else arg for arg in args]
        kernels.append(cuda.jit(function, debug=debug, opt=not debug))
        kernels[-1][configuration](*given)
        results.append([arg for arg in given if isinstance(arg, np.ndarray)])
    for found, expected in zip(*results, strict=True):
        np.testing.assert_array_equal(found, expected)
    fast, checked = kernels
    return fast, checked
