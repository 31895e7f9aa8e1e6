"""Solutions of the exercises: `solutions.saxpy` in Numba's dialect (in CUDA C, where Numba's cannot
do it), `solutions.cuda_c("saxpy")` in CUDA C. Try yours first."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kernels.host import RawKernel, source
from kernels.lab.course.solutions import basics, bug_hunts, hardware

_FILE = Path(__file__).with_name("solutions.cu")


def names_in_cuda_c() -> list[str]:
    """The exercises that have a solution in CUDA C."""
    return list(source.kernels(_FILE.read_text(encoding="utf-8")))


def cuda_c(name: str) -> RawKernel:
    """The solution in CUDA C. Raises KeyError if there is none."""
    from kernels import raw_kernel

    code = _FILE.read_text(encoding="utf-8")
    if name not in source.kernels(code):
        raise KeyError(name)
    return raw_kernel(code, name, enable_cooperative_groups=source.waits_for_grid(code, name))


def __getattr__(name: str) -> Any:
    if not name.startswith("_"):
        for module in (basics, hardware, bug_hunts):
            if name in vars(module):
                return vars(module)[name]
        try:
            return cuda_c(name)
        except KeyError:
            pass
    raise AttributeError(f"there is no solution of an exercise {name!r}")
