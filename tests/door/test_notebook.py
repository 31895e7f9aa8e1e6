"""`kernels.install()` in the first cell of a notebook."""

from __future__ import annotations

import nbclient
import nbformat
import pytest

from kernels import door

CELLS = (
    "import kernels\nkernels.install()",
    """
import cupy as cp
from numba import cuda

@cuda.jit
def change(x):
    i = cuda.grid(1)
    if i < x.size:
        x[i] *= 2

x = cp.arange(4.0)
change[1, 32](x)
x""",
    """
@cuda.jit
def change(x):  # the cell was edited
    x[cuda.grid(1)] += 5

change[1, 4](x)
print(x)""",
    """
import subprocess, sys
print(subprocess.check_output([sys.executable, "-c", "import cupy; print(cupy.ones(2))"]))""",
)


@pytest.mark.skipif(door.no_gpu() is None, reason="there is a GPU: nothing changes")
def test_a_notebook(monkeypatch):
    monkeypatch.delenv("MINIGRAD_INSTALL", raising=False)
    cells = [nbformat.v4.new_code_cell(source) for source in CELLS]
    notebook = nbformat.v4.new_notebook(cells=cells)
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    first, second, third, fourth = (cell.outputs for cell in notebook.cells)
    (said,) = (o.text for o in first if o.output_type == "stream")
    assert "numba.cuda and cupy run on the CPU" in said
    assert second[0].data["text/plain"] == "array([0., 2., 4., 6.])"
    assert third[0].text == "[ 5.  7.  9. 11.]\n"
    assert fourth[0].text == "b'[1. 1.]\\n'\n"
