"""What the SIMT compiler raises."""

from __future__ import annotations


class SimtError(Exception):
    """Base of every error of the SIMT compiler and of the kernels it runs."""


class CompileError(SimtError):
    """A kernel uses something that CUDA, or this compiler, does not have."""


class Unstructured(CompileError):
    """CUDA allows it, but this compiler cannot express it; the interpreter can."""


class LaunchError(SimtError, ValueError):
    """A launch that the hardware would refuse: grid, block, shared memory or arguments."""


class ArgumentError(LaunchError, TypeError):
    """Arguments that do not fit the kernel's parameters or signature."""


class KernelError(SimtError, RuntimeError):
    """An error of a kernel at run time: a divergent barrier, an endless loop."""


class KernelIndexError(KernelError, IndexError):
    """Checked mode found an index outside its array."""


class UninitialisedError(KernelError):
    """Checked mode found a read of shared memory that no thread had written."""
