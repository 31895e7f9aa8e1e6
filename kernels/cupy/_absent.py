"""What a CPU does not have: libraries of GPUs, whose use says what to do instead; unknown names."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from types import ModuleType
from typing import Any

#: libraries of a GPU, and what to use instead
LIBRARIES = {
    "cublas": "cuBLAS is not on the CPU; use cupy.linalg, cupy.einsum and the operator @",
    "cudnn": "cuDNN is not on the CPU; use cupyx.scipy.ndimage or cupyx.scipy.signal",
    "cufft": "cuFFT is not on the CPU; use cupy.fft",
    "curand": "cuRAND is not on the CPU; use cupy.random",
    "cusolver": "cuSOLVER is not on the CPU; use cupy.linalg",
    "cusparse": "cuSPARSE is not on the CPU; use cupyx.scipy.sparse",
    "cusparselt": "cuSPARSELt is not on the CPU; use cupyx.scipy.sparse",
    "cutensor": "cuTENSOR is not on the CPU; use cupy.einsum or cupy.tensordot",
    "cub": "CUB is not on the CPU; use the array functions (sum, argmax, cumsum)",
    "thrust": "Thrust is not on the CPU; use the array functions (sort, argsort, unique)",
    "jitify": "Jitify is not on the CPU; headers of CUDA are found without it",
    "lapack": "cuSOLVER is not on the CPU; use cupy.linalg",
    "nccl": "there is one device, so NCCL has nobody to talk to",
    "distributed": "there is one device, so nothing is distributed; compute on it alone",
    "texture": "there are no textures on the CPU; index the array in the kernel",
    "graph": "graphs cannot be captured on the CPU; run the work itself",
    "memory_hook": "allocations are not reported; ask the pool: used_bytes(), total_bytes()",
    "memory_hooks": "allocations are not reported; ask the pool: used_bytes(), total_bytes()",
}


class Library(ModuleType):
    """A library of a GPU: it can be imported, and says that it is not there when it is used."""

    available = False

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        short = self.__name__.rpartition(".")[2]
        # ImportError, so that `from cupy.cuda.cublas import sgemm` shows the text as well
        raise ImportError(f"{self.__name__}.{name}: {LIBRARIES[short]}", name=self.__name__)


_made: dict[str, Library] = {}


def library(module: str, name: str) -> Library | None:
    """The library `name` as a module of `module`, or None where it is none."""
    if name not in LIBRARIES:
        return None
    full = f"{module}.{name}"
    return _made.setdefault(full, Library(full, LIBRARIES[name]))


def unknown(module: str, name: str, known: Iterable[str]) -> AttributeError:
    """The error for a name that a module does not have, with the nearest that it has."""
    text = f"module {module!r} has no attribute {name!r}"
    public = [one for one in known if not one.startswith("_")]
    near = difflib.get_close_matches(name, public, 1) if not name.startswith("_") else []
    return AttributeError(f"{text}; did you mean {near[0]!r}?" if near else text)
