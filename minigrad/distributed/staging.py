"""Arrays on a GPU in the hands of an MPI: through the host, unless the MPI knows GPUs.

An MPI that does not would read a GPU's address as one of the host, and crash.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

from minigrad.backends import array_module, on_gpu

# A variable that says that MPI takes arrays on a GPU: minigrad's, MPICH's, MVAPICH's.
AWARE = ("MINIGRAD_CUDA_AWARE_MPI", "MPICH_GPU_SUPPORT_ENABLED", "MV2_USE_CUDA")


def is_cuda_aware() -> bool:
    return any(os.environ.get(name) == "1" for name in AWARE)


def staged(method: Callable) -> Callable:
    """A collective of `mpi.Group` for arrays on either device. Its first array is the result."""

    @functools.wraps(method)
    def call(group: Any, first: Any, *rest: Any) -> Any:
        given = (first, *rest)
        if not any(map(on_gpu, given)):
            return method(group, first, *rest)
        if is_cuda_aware():
            import cupy

            cupy.cuda.get_current_stream().synchronize()  # MPI knows nothing of streams
            return method(group, first, *rest)
        host = [x.get() if on_gpu(x) else x for x in given]
        made = method(group, *host)
        if on_gpu(first) and method.__name__ != "send":
            work = made[0] if isinstance(made, tuple) else made
            work.then(lambda: _write(first, host[0]))
        return made

    return call


def _write(array: Any, host: Any) -> None:
    array[...] = array_module(array).asarray(host.reshape(array.shape))
