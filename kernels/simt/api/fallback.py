"""Kernels that cannot be compiled run in the interpreter, after one warning."""

from __future__ import annotations

import warnings
from typing import Any

from kernels.simt.interpreter import interpreter
from kernels.support.errors import Unstructured


class InterpretedKernelWarning(UserWarning):
    """A kernel runs thread by thread in Python: correct, and thousands of times slower."""


class Interpreted:
    """In place of a specialisation: interprets the kernel's Python function."""

    one_thread = True
    cost = 0.0

    def __init__(self, kernel: Any, block: tuple[int, int, int], reason: Unstructured) -> None:
        self.kernel, self.block = kernel, block
        self.text = f"# {kernel.__name__} is interpreted: {reason}"
        warnings.warn(
            f"kernel {kernel.__name__!r} is interpreted, thread by thread, since it cannot be"
            f" compiled for the CPU: {reason}",
            InterpretedKernelWarning,
            stacklevel=4,
        )

    def run(self, grid, first: int, last: int, shared_bytes: int, args: tuple) -> None:
        """Run the whole grid."""
        interpreter.run(self.kernel.py_func, grid, self.block, args, shared_bytes)
