"""What the SIMT compiler raises."""

from __future__ import annotations


class SimtError(Exception):
    """Base of every error of the SIMT compiler and of the kernels it runs."""


class CompileError(SimtError):
    """A kernel uses something that CUDA, or this compiler, does not have."""


class LaunchError(SimtError, ValueError):
    """A launch that the hardware would refuse: grid, block, shared memory or arguments."""


class KernelError(SimtError, RuntimeError):
    """A kernel did at run time what it must not do: a divergent barrier, an endless spin."""


class BoundsError(SimtError, IndexError):
    """Checked mode found an index outside its array."""


class UninitialisedError(SimtError, RuntimeError):
    """Checked mode found a read of shared memory that no thread had written."""
