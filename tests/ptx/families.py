"""Launches that run as PTX: the launchers plan as for a GPU, with NumPy arrays in its memory."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from kernels import lab
from kernels.launchers.plans import Plans

CC = (8, 0)


@contextmanager
def as_ptx() -> Iterator[list[lab.PtxRun]]:
    """While open, launchers choose as for arrays on a GPU of compute capability 8.0, and what they
    launch runs as PTX; the runs."""
    from kernels.launchers import common

    runs: list[lab.PtxRun] = []

    def launcher(family: str, version: str, kernel, grid, block) -> Callable[..., None]:
        def launch(*args) -> None:
            shared = getattr(kernel, "shared", 0)
            if hasattr(kernel, "instance"):  # CUDA C: the instance of a template
                raw, given = kernel.instance(*args), kernel.arguments(*args)
            else:
                raw, given = kernel, args
            runs.append(lab.ptx(raw, grid, block, *given, cc=CC, shared=shared))

        return launch

    instead = {
        "launcher": launcher,
        "on_gpu": lambda a: True,
        "compute_capability": lambda a: CC,
        "namespace": lambda a: np,
    }
    modules = [m for name, m in sys.modules.items() if name.startswith("kernels.launchers")]
    names = (*instead, "_plans")
    before = [(m, name, vars(m)[name]) for m in modules for name in names if name in vars(m)]
    assert (common, "launcher", common.launcher) in before
    try:
        for module, name, _ in before:
            setattr(module, name, instead.get(name) or Plans())
        yield runs
    finally:
        for module, name, value in before:
            setattr(module, name, value)
