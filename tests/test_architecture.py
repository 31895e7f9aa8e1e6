"""The rooms of the project and the arrows between them, read from the sources."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FRAMEWORKS = {"torch", "tensorflow", "jax", "jaxlib", "keras", "flax", "mxnet", "paddle", "theano"}
FRAMEWORKS |= {"sklearn", "tinygrad", "chainer", "autograd", "mindspore", "lightning"}
VENDOR_KERNELS = {"cublas", "cudnn", "cutlass", "cupy_backends", "cupyx"}
# What the marker `needs` is for (PACKAGES in tests/conftest.py).
OPTIONAL = {"torch", "cupy", "cuda", "numba_cuda", "nvidia"}
MAX_LINES = 700
IMPORT_SECONDS = 0.9  # three times the budget of 0.3 s: a busy machine must not fail this


def sources(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def imported(path: Path) -> set[str]:
    """The full names of all modules that a file imports, wherever in the file it does."""
    names = set()
    package = path.relative_to(ROOT).with_suffix("").parts[:-1]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*base, *([node.module] if node.module else [])])
            names |= {module} | {f"{module}.{alias.name}" for alias in node.names}
        elif (
            isinstance(node, ast.Call)
            and getattr(node.func, "attr", getattr(node.func, "id", "")) == "import_module"
            and node.args
            and isinstance(node.args[0], ast.Constant)
        ):
            names.add(node.args[0].value)
    return names


def offenders(folders: tuple[str, ...], forbidden: set[str]) -> list[str]:
    """The imports below `folders` that have a forbidden name as a component."""
    return [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in sources(*folders)
        for name in sorted(imported(path))
        if forbidden & set(name.split("."))
    ]


def tops(folders: tuple[str, ...], forbidden: set[str]) -> list[str]:
    """The imports below `folders` whose first component is forbidden."""
    return [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in sources(*folders)
        for name in sorted(imported(path))
        if name.split(".")[0] in forbidden
    ]


def test_kernels_know_nothing_of_the_framework():
    assert tops(("kernels",), {"minigrad", "tests", "benchmarks"}) == []


def test_the_framework_knows_nothing_of_its_tests():
    assert tops(("minigrad",), {"tests", "benchmarks", "notebooks"}) == []


def test_no_deep_learning_framework_underneath():
    assert tops(("minigrad", "kernels"), FRAMEWORKS) == []


def test_no_vendor_kernels_underneath():
    assert offenders(("minigrad", "kernels"), VENDOR_KERNELS) == []


def test_the_framework_launches_through_the_kernels_room_only():
    """Threads and blocks are the other room's affair: no numba under minigrad/."""
    assert tops(("minigrad",), {"numba", "numba_cuda", "llvmlite"}) == []


def test_the_framework_reaches_dialects_through_the_dispatcher():
    dialects = {"kernels.numba_cuda", "kernels.cuda_c", "kernels.reference"}
    wrong = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in sources("minigrad")
        for name in sorted(imported(path))
        if any(name == dialect or name.startswith(f"{dialect}.") for dialect in dialects)
    ]
    assert wrong == []


def test_launchers_know_no_dialect():
    """What is done around a kernel is the same in every language; the dialects import it."""
    assert offenders(("kernels/launchers",), dialects := {"numba", "numba_cuda", "cuda_c"}) == []
    assert offenders(("kernels/cuda_c",), dialects - {"cuda_c"}) == []


def test_the_checks_above_see_a_planted_import(tmp_path, monkeypatch):
    """Each form of import is seen, so that the tests above can fail."""
    (tmp_path / "kernels").mkdir()
    planted = tmp_path / "kernels" / "bad.py"
    for line, name in (
        ("import minigrad.nn", "minigrad.nn"),
        ("from minigrad import nn", "minigrad.nn"),
        ("def f():\n    import torch", "torch"),
        ("import importlib\nimportlib.import_module('jax.numpy')", "jax.numpy"),
        ("from . import dispatch", "kernels.dispatch"),
        ("from .cublas import gemm", "kernels.cublas.gemm"),
    ):
        planted.write_text(line)
        monkeypatch.setattr(f"{__name__}.ROOT", tmp_path)
        assert name in imported(planted)
    assert tops(("kernels",), {"kernels"})
    assert offenders(("kernels",), {"cublas"})


def asks_itself(path: Path) -> list[str]:
    """Where a test file imports an optional package as it is collected, or looks for it itself."""
    tree, found = ast.parse(path.read_text()), []
    for node in tree.body:
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        found += [node for name in names if name.split(".")[0] in OPTIONAL]
        found += [node for name in names if name.startswith("numba.cuda")]
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(
            ("importorskip", "find_spec")
        ):
            package = getattr(node.args[0], "value", None) if node.args else None
            if str(package).startswith("numba.cuda") or str(package).split(".")[0] in OPTIONAL:
                found.append(node)
    return [f"{path.name}:{node.lineno}" for node in found]


def test_tests_say_by_a_marker_what_they_need():
    """`-m needs` runs all tests that need an optional package: no test skips in another way."""
    files = [path for path in sources("tests") if path.name != "conftest.py"]
    assert [place for path in files for place in asks_itself(path)] == []


@pytest.mark.parametrize(
    "line",
    [
        "import torch",
        "from numba.cuda import libdevice",
        "from cuda.bindings import driver",
        "def test_it():\n    pytest.importorskip('torch')",
        "@pytest.mark.skipif(importlib.util.find_spec('cupy') is None)\ndef test_it(): ...",
    ],
)
def test_the_check_of_markers_can_fail(tmp_path, line):
    planted = tmp_path / "test_planted.py"
    planted.write_text(line)
    assert asks_itself(planted)


@pytest.mark.parametrize("folder", ["minigrad", "kernels", "tests", "benchmarks"])
def test_no_file_is_scrolled_for_minutes(folder):
    lengths = {path: len(path.read_text().splitlines()) for path in sources(folder)}
    assert lengths
    assert {str(p.relative_to(ROOT)): n for p, n in lengths.items() if n > MAX_LINES} == {}


def run_python(code: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_importing_minigrad_is_fast():
    """In seconds of the processor's time: other work beside the tests must not count."""
    code = "import time; t = time.process_time(); import minigrad; print(time.process_time() - t)"
    seconds = min(float(run_python(code)) for _ in range(3))
    assert seconds < IMPORT_SECONDS, f"import minigrad took {seconds:.2f} s at best"


def test_importing_minigrad_loads_no_compiler_no_framework_no_gpu_library():
    """What a first import must not pay for; kernels bring numba in when one is launched."""
    heavy = {"numba", "llvmlite", "scipy", "matplotlib", "cupy", "torch", "pytest"}
    loaded = run_python("import minigrad, sys; print(*sys.modules)").split()
    assert heavy & set(loaded) == set()
