"""`cupyx.scipy.sparse.csgraph`: SciPy's functions on device arrays."""

from __future__ import annotations

from kernels.cupyx._proxy import of_scipy

__getattr__, __dir__ = of_scipy("cupyx.scipy.sparse.csgraph", globals())
