"""Device code and how to run it: arrays, grids and blocks, and nothing of gradients.

`kernels.matmul(a, b)` and the other operations take and return NumPy arrays (on a GPU machine also
CuPy arrays); so do the lines of the tables, `kernels.exp(x)` and `kernels.sum(x, axis=0)`.
`backend=` picks a dialect and `version=` a version of its ladder; `kernels.catalog()` lists them.

`from kernels import cuda` is `numba.cuda` where there is a GPU, and the SIMT compiler behind the
same names where there is none. `kernels.raw_kernel(code, name)` runs CUDA C in the same two ways.
`kernels.install()` does more: where there is no GPU, `import numba.cuda` and `import cupy` find
what runs on the CPU.
"""

from __future__ import annotations

import importlib
import warnings
from pathlib import Path
from typing import Any

from kernels.support import interrupts as _interrupts  # noqa: F401 - protects NumPy's import

if any(Path(__file__).parents[1].glob("kernels-*.dist-info")):
    warnings.warn(
        "Hugging Face's package `kernels` is installed in the same folder as minigrad's package of"
        " that name, and each overwrites files of the other: make an environment for minigrad"
        " (python3 -m venv), or remove the other (pip uninstall kernels) and then install minigrad"
        " again",
        stacklevel=2,
    )

__all__ = ["catalog", "dispatch", "launchers", "pointwise", "reduction", "trace"]

# Imported at their first use: a program of numba.cuda or CuPy starts without the rest.
_MODULES = (
    "cuda", "cupy", "cupyx", "dispatch", "door", "families", "host", "lab", "launchers",
    "operations", "pointwise", "ptx", "reduction", "reference", "simt",
)  # fmt: skip
_LAZY = {
    "install": "kernels.door",
    "raw_kernel": "kernels.host",
    "raw_module": "kernels.host",
    "trace": "kernels.dispatch",
}


def __dir__() -> list[str]:
    operations = importlib.import_module("kernels.operations")
    return sorted({*globals(), *_MODULES, *_LAZY, *operations.names()})


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"kernels.{name}")
    if name in _LAZY:
        value = getattr(importlib.import_module(_LAZY[name]), name)
    elif name.startswith("__"):
        raise AttributeError(f"module 'kernels' has no attribute {name!r}")
    else:
        value = importlib.import_module("kernels.operations").find(name)
    globals()[name] = value
    return value
