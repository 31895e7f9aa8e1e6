"""The course: every notebook runs top to bottom, and its stored outputs are those of a run."""

from __future__ import annotations

import ast
import multiprocessing
import os
import re
from pathlib import Path

import jupyter_client
import nbclient
import nbformat
import pytest

from tests.notebooks import METADATA, badges, install_cell, with_first_cells

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
NAMES = [path.stem for path in NOTEBOOKS]
CELL_SECONDS = 240  # a machine may be busy, and its cache of kernels empty
# What a notebook needs beside the extra `test`.
NEEDS = {
    "24-reading-a-profiler": pytest.mark.needs("cuda.bindings", "numba_cuda"),  # PTX by NVRTC
    "26-past-one-machine": pytest.mark.needs("mpi4py"),
}
RUNNING = [pytest.param(path, id=path.stem, marks=NEEDS.get(path.stem, ())) for path in NOTEBOOKS]
# What every notebook imports of others takes two seconds: it is imported once, in a process that
# then forks for each notebook.
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(
    [__name__, "ipykernel.kernelapp", "matplotlib.pyplot", "PIL.Image", "numba.np.arraymath"]
)


class ForkedKernel(jupyter_client.AsyncKernelManager):
    """Has its kernel in a fork, where Jupyter's own starts a program."""

    process: multiprocessing.Process | None = None

    @property
    def has_kernel(self) -> bool:
        return self.process is not None

    async def start_kernel(self, *, extra_arguments: list[str], cwd: str) -> None:
        self.write_connection_file()
        arguments = [f"--f={self.connection_file}", *extra_arguments]
        self.process = FORKS.Process(target=serve, args=(arguments, cwd))
        self.process.start()

    async def is_alive(self) -> bool:
        return self.process.is_alive()

    _async_is_alive = is_alive  # which a client asks that has waited for a second

    async def shutdown_kernel(self, now: bool = False) -> None:
        self.process.kill()
        self.process.join()


def serve(arguments: list[str], folder: str) -> None:
    """Be the kernel, until it is killed or its parent ends."""
    from ipykernel.kernelapp import IPKernelApp

    os.chdir(folder)
    IPKernelApp.launch_instance(argv=arguments, parent_handle=os.getppid())


def read(path: Path):
    return nbformat.read(path, as_version=4)


def shown(notebook) -> list[str]:
    """What each code cell printed and returned, with numbers left out: timings differ.

    Of a picture, its title: which version of a kernel a timeline shows depends on the processor.
    """
    texts = []
    for cell in notebook.cells:
        parts = []
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            text = output.get("text") or data.get("text/plain", "")
            parts.append(text.partition("\n")[0] if "image/png" in data else text)
        text = re.sub(r"not measured|-?\d[\d.]*(e[+-]?\d+)?", "#", "".join(parts))
        texts.append(" ".join(text.split()))
    return texts


@pytest.mark.parametrize("path", RUNNING)
def test_runs_top_to_bottom(path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("MPLBACKEND", "module://matplotlib_inline.backend_inline")  # as ipykernel
    stored, fresh = read(path), read(path)
    for cell in fresh.cells:
        if cell.cell_type == "code":
            cell.outputs = []
    where = {"metadata": {"path": str(path.parent)}}
    nbclient.NotebookClient(
        fresh, timeout=CELL_SECONDS, resources=where, kernel_manager_class=ForkedKernel
    ).execute()
    assert shown(fresh) == shown(stored)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=NAMES)
def test_is_stored_to_be_read(path):
    """Outputs are there, without errors, machine paths or more metadata than viewers need."""
    notebook = read(path)
    nbformat.validate(notebook)
    assert notebook.metadata == METADATA
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell.outputs]
    assert not [o for o in outputs if o.output_type == "error" or o.get("name") == "stderr"]
    pictures = [o.data for o in outputs if "image/png" in o.get("data", {})]
    assert pictures
    assert all("text/plain" in picture for picture in pictures)
    assert "except ImportError" in code[0].source
    assert not code[0].outputs
    text = path.read_text()
    assert not re.search(r"/(home|tmp|root|Users|opt|usr)/", text)
    assert "ipykernel_" not in text
    assert len(text) < 1_000_000
    assert any("## Exercises" in cell.source for cell in notebook.cells)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=NAMES)
def test_shapes_of_arrays_in_kernels_are_constants(path):
    """Both compilers refuse `cuda.shared.array(N + 1, ...)`; no cell must launch it to tell."""
    code = [cell.source for cell in read(path).cells if cell.cell_type == "code"]
    for node in (node for text in code[1:] for node in ast.walk(ast.parse(text))):
        if isinstance(node, ast.Call) and re.fullmatch(
            r"cuda\.(shared|local)\.array", ast.unparse(node.func)
        ):
            shape = node.args[0]
            sizes = shape.elts if isinstance(shape, ast.Tuple) else [shape]
            assert all(isinstance(size, ast.Name | ast.Constant) for size in sizes)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=NAMES)
def test_begins_as_the_address_says(path):
    """The remedy: python tests/notebooks.py."""
    stored = read(path)
    assert with_first_cells(read(path), path.stem) == stored


@pytest.mark.parametrize("path", NOTEBOOKS, ids=NAMES)
def test_questions_have_answers_that_unfold(path):
    """As many hints as answers, and at least one for each exercise in prose."""
    text = "\n".join(cell.source for cell in read(path).cells if cell.cell_type == "markdown")
    hints = text.count("<details><summary>Hint</summary>")
    answers = text.count("<details><summary>Answer</summary>")
    exercises = re.findall(r"(?m)^\d+\. ", text.partition("## Exercises")[2])
    assert hints == answers == text.count("</details>") / 2
    assert answers >= len(exercises) >= 2


def test_an_address_makes_badges_and_an_install_cell():
    notebook = with_first_cells(read(NOTEBOOKS[0]), NAMES[0], "")
    before = notebook.cells[0].source
    with_first_cells(notebook, NAMES[0], "somebody/some-project")
    for site in ("colab.research.google.com/github", "kaggle.com/kernels", "mybinder.org/v2/gh"):
        assert notebook.cells[0].source.count(f"https://{site}") == 1
    assert notebook.cells[0].source.count(f"{NAMES[0]}.ipynb") == 3
    assert "git+https://github.com/somebody/some-project" in install_cell("somebody/some-project")
    compile(install_cell("somebody/some-project").replace("%pip", "pass #"), "cell", "exec")
    assert badges(NAMES[0], "") == ""
    assert with_first_cells(notebook, NAMES[0], "").cells[0].source == before


def test_every_notebook_has_its_own_number():
    numbers = [re.match(r"(\d\d)-[a-z0-9-]+$", name).group(1) for name in NAMES]
    assert numbers
    assert len(set(numbers)) == len(numbers)
    readme = (ROOT / "README.md").read_text()
    assert [name for name in NAMES if f"notebooks/{name}.ipynb" not in readme] == []


def test_a_changed_output_is_noticed():
    cell = nbformat.v4.new_code_cell("print('3 ms')")
    cell.outputs = [nbformat.v4.new_output("stream", name="stdout", text="3.5 ms\n")]
    other = nbformat.v4.new_code_cell("print('3 s')")
    other.outputs = [nbformat.v4.new_output("stream", name="stdout", text="12 s\n")]
    one, two = (nbformat.v4.new_notebook(cells=[c]) for c in (cell, other))
    assert shown(one) == ["# ms"]
    assert shown(one) != shown(two)
