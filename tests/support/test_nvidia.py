"""numba-cuda with a NumPy that removed a name of it."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import numpy as np

import numba.np.arrayobj  # Numba itself asks which NumPy there is

if vars(np).pop("row_stack", None):  # as in NumPy 2.5
    np.__all__.remove("row_stack")
from numba import float32, void

from kernels.simt import cuda


@cuda.jit
def k(x):
    x[cuda.grid(1)] *= 2


print(".entry" in k.ptx(void(float32[:])), hasattr(np, "row_stack"))
"""


@pytest.mark.needs("numba_cuda")
def test_numba_cuda_compiles_with_numpy_without_row_stack():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert done.stdout == "True False\n", done.stderr
