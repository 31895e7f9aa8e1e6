"""The rooms of the project and the arrows between them, read from the sources."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

import minigrad

ROOT = Path(__file__).resolve().parents[1]
FRAMEWORKS = {"torch", "tensorflow", "jax", "jaxlib", "keras", "flax", "mxnet", "paddle", "theano"}
FRAMEWORKS |= {"sklearn", "tinygrad", "chainer", "autograd", "mindspore", "lightning"}
VENDOR_KERNELS = {"cublas", "cudnn", "cutlass", "cupy_backends", "cupyx"}  # but not kernels.cupyx
# What the marker `needs` is for (PACKAGES in tests/conftest.py).
OPTIONAL = {"torch", "cupy", "cuda", "numba_cuda", "nvidia", "mkdocs", "mypy", "yaml", "onnx"}
MAX_LINES = 700
MOST_IMPORT = 1.6  # times that of NumPy: its own share is 0.9, where NumPy takes 0.1 s or 0.27

# Packages and modules from the lowest to the highest: each may import what stands before it.
ORDERS = {
    "kernels": (
        "support simt cuda sequence graph host cupy cupyx door ptx pointwise reduction dispatch"
        " families launchers by_device reference numba_cuda cuda_c operations lab pytest_plugin"
    ),
    "kernels.simt": (
        "devlib ir device frontend store backend analysis transforms plan emit interpreter driver"
        " api cuda"
    ),
    "kernels.lab": "draw gpu_model report record course",
}
# What creates, prints and differentiates tensors stands above their class, whose methods import it
# late: so the class is read, and type-checked, in one place. No other module may import upwards.
METHODS_IMPORT_LATE = "minigrad.tensor"
# Modules that are slow to import; a late import of one of ours may put them off, and nothing else.
SLOW = {"numba", "llvmlite", "ml_dtypes"}

FENCE = "kernels/simt/backend"  # the one package that may use private parts of Numba and llvmlite
# What Numba and llvmlite document; a name stands for all that is in it.
DOCUMENTED = {
    "llvmlite.binding",
    "llvmlite.ir",
    "numba.config",
    "numba.core.cgutils",
    "numba.core.errors",
    "numba.core.typeconv.Conversion",
    "numba.core.types",
    "numba.cuda",
    "numba.extending",
    "numba.np.numpy_support.as_dtype",
    "numba.np.numpy_support.from_dtype",
    "numba.types",
}
# Names with an underscore that are documented all the same: by Numba, `ast`, `sys`, `ctypes`.
DOCUMENTED_UNDERSCORES = {"_getvalue", "_attributes", "_fields", "_fields_", "_getframe"}


def called(call: ast.Call) -> str:
    """The last part of the name of what is called."""
    return getattr(call.func, "attr", getattr(call.func, "id", ""))


def sources(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def imported(path: Path) -> set[str]:
    """The full names of all that a file imports, wherever in the file it does."""
    return {name for name, _ in imports(path)}


def offenders(folders: tuple[str, ...], forbidden: set[str]) -> list[str]:
    """The imports below `folders` that have a forbidden name as a component."""
    return [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in sources(*folders)
        for name in sorted(imported(path))
        if forbidden & set(name.removeprefix("kernels.cupyx").split("."))
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
        if isinstance(node, ast.Call) and called(node) in ("importorskip", "find_spec"):
            package = getattr(node.args[0], "value", None) if node.args else None
            if str(package).startswith("numba.cuda") or str(package).split(".")[0] in OPTIONAL:
                found.append(node)
    return [f"{path.name}:{node.lineno}" for node in found]


def test_tests_say_by_a_marker_what_they_need():
    """`-m needs` runs all tests that need an optional package: no test skips in another way."""
    files = [path for path in sources("tests") if path.name != "conftest.py"]
    files = [path for path in files if path.parent.name != "gpu_programs"]  # these are no tests
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


# -- packages ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Arrow:
    """A module imports another; late: in a function, or for type checkers only."""

    source: str
    target: str
    late: bool = False


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def imports(path: Path) -> list[tuple[str, bool]]:
    """(the full name of what is imported, whether that is late) for every import of a file."""
    return imports_of(path.relative_to(ROOT).parts[:-1], path.read_text())


@cache
def imports_of(package: tuple[str, ...], text: str) -> list[tuple[str, bool]]:
    def visit(node: ast.AST, late: bool) -> Iterator[tuple[str, bool]]:
        late = late or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        late = late or (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
        if isinstance(node, ast.Import):
            yield from ((alias.name, late) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield from ((f"{module}.{alias.name}", late) for alias in node.names)
        elif isinstance(node, ast.Call) and called(node) == "import_module":
            yield from ((arg.value, late) for arg in node.args[:1] if isinstance(arg, ast.Constant))
        for child in ast.iter_child_nodes(node):
            yield from visit(child, late)

    return list(visit(ast.parse(text), False))


def arrows(*folders: str) -> list[Arrow]:
    """The imports between the modules below `folders`, in any form."""
    modules = {module_name(path): path for path in sources(*folders)}

    def owner(name: str) -> str | None:
        while name and name not in modules:
            name = name.rpartition(".")[0]
        return name or None

    found = {
        Arrow(source, target, late)
        for source, path in modules.items()
        for name, late in imports(path)
        if (target := owner(name)) is not None and target != source
    }
    return sorted(found, key=lambda arrow: (arrow.source, arrow.target, arrow.late))


def against_the_order(parent: str) -> list[str]:
    """Imports between the packages of `parent` that do not point to an earlier one."""
    order = ORDERS[parent].split()

    def place(module: str) -> int | None:
        part = module.removeprefix(f"{parent}.").split(".")[0]
        return order.index(part) if module.startswith(f"{parent}.") and part in order else None

    return [
        f"{arrow.source} imports {arrow.target}"
        for arrow in arrows(parent.replace(".", "/"))
        if None not in (here := place(arrow.source), there := place(arrow.target)) and here < there
    ]


def circles(found: list[Arrow]) -> list[set[str]]:
    """Sets of modules of which each imports each other one, directly or through others."""
    following: dict[str, set[str]] = {}
    for arrow in found:
        following.setdefault(arrow.source, set()).add(arrow.target)

    def reached(start: str) -> set[str]:
        seen, todo = set(), [start]
        while todo:
            for target in following.get(todo.pop(), ()):
                if target not in seen:
                    seen.add(target)
                    todo.append(target)
        return seen

    reach = {module: reached(module) for module in following}
    inside = {module for module, seen in reach.items() if module in seen}
    sets = [frozenset(m for m in inside if m in reach[one] and one in reach[m]) for one in inside]
    return sorted(map(set, set(sets)), key=sorted)


def loaded_by(module: str, found: list[Arrow], path_of: dict[str, Path]) -> set[str]:
    """The slow modules that importing `module` loads."""
    seen, todo, slow = {module}, [module], set()
    while todo:
        one = todo.pop()
        names = {name.split(".")[0] for name, late in imports(path_of[one]) if not late}
        slow |= names & SLOW
        for arrow in found:
            if arrow.source == one and not arrow.late and arrow.target not in seen:
                seen.add(arrow.target)
                todo.append(arrow.target)
    return slow


def needless_late_imports(*folders: str) -> list[str]:
    """Imports inside functions that put off no slow module: they belong at the top of the file."""
    found = arrows(*folders)
    path_of = {module_name(path): path for path in sources(*folders)}
    return [
        f"{arrow.source} imports {arrow.target} late"
        for arrow in found
        if arrow.late
        and not loaded_by(arrow.target, found, path_of) - loaded_by(arrow.source, found, path_of)
    ]


@pytest.mark.parametrize("parent", ORDERS)
def test_packages_import_earlier_ones_only(parent):
    assert against_the_order(parent) == []


@pytest.mark.parametrize("parent", ORDERS)
def test_every_package_has_its_place(parent):
    folder = ROOT / parent.replace(".", "/")
    there = {path.stem for path in folder.iterdir() if path.suffix == ".py"}
    there |= {path.name for path in folder.iterdir() if (path / "__init__.py").exists()}
    assert there - {"__init__"} == set(ORDERS[parent].split())


def test_no_modules_import_each_other():
    """Imports inside functions and for type checkers count: they hide a circle, and end none.

    Except in `minigrad/__init__.py`, which tells type checkers what it imports at its first use.
    """
    lazy = {f"minigrad.{name}" for name in minigrad._LAZY} | set(minigrad._LAZY_NAMES.values())
    found = [
        a
        for a in arrows("minigrad", "kernels")
        if not (a.late and a.source == METHODS_IMPORT_LATE)
        and not (a.source == "minigrad" and a.target in lazy)
    ]
    assert circles(found) == []


def test_imports_inside_functions_put_off_slow_modules_only():
    assert needless_late_imports("kernels/simt", "kernels/support") == []


# -- Numba ---------------------------------------------------------------------------------


def is_documented(name: str) -> bool:
    """Whether a name of Numba or llvmlite, with its module, is one that they document."""
    parts = name.split(".")
    if any(part.startswith("_") for part in parts):
        return False
    if len(parts) <= 2 and parts != ["numba", "core"]:  # numba.njit, numba.float32, llvmlite
        return True
    return any(".".join(parts[:n]) in DOCUMENTED for n in range(2, len(parts) + 1))


def own_underscores() -> set[str]:
    """Names with an underscore that our own code defines."""
    found = set()
    for path in sources("kernels"):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.Name(id=name):
                    found.add(name)
                case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                    found.add(name)
                case ast.Assign(targets=[ast.Name(id="__slots__")], value=ast.Tuple(elts=elts)):
                    found |= {slot.value for slot in elts}
    return found


def private_uses(*folders: str) -> list[str]:
    """Uses of Numba's and llvmlite's private parts outside of the fence."""
    own, found = own_underscores() | DOCUMENTED_UNDERSCORES, []
    for path in sources(*folders):
        where = str(path.relative_to(ROOT))
        names = [n for n, _ in imports(path) if n.split(".")[0] in ("numba", "llvmlite")]
        if where.startswith(f"{FENCE}/"):
            continue
        found += [f"{where} imports {name}" for name in names if not is_documented(name)]
        if names:
            found += [
                f"{where}:{node.lineno} uses .{node.attr}"
                for node in ast.walk(ast.parse(path.read_text()))
                if isinstance(node, ast.Attribute)
                and node.attr.startswith("_")
                and not node.attr.endswith("__")
                and node.attr not in own
            ]
    return sorted(set(found))


def test_private_parts_of_numba_are_used_in_one_package_only():
    assert private_uses("kernels") == []


def plant(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        for parent in path.relative_to(folder).parents:
            (folder / parent / "__init__.py").touch()


def test_the_checks_of_packages_see_planted_imports(tmp_path, monkeypatch):
    monkeypatch.setattr(f"{__name__}.ROOT", tmp_path)
    plant(
        tmp_path,
        {
            "kernels/simt/ir/low.py": "def f():\n    from kernels.simt.emit import high",
            "kernels/simt/emit/high.py": "if TYPE_CHECKING:\n    from kernels.simt.ir import low",
            "kernels/simt/ir/one.py": "importlib.import_module('kernels.simt.ir.two')",
            "kernels/simt/ir/two.py": "from kernels.simt.ir import one",
        },
    )
    low = "kernels.simt.ir.low imports kernels.simt.emit.high"
    assert against_the_order("kernels.simt") == [low]
    assert circles(arrows("kernels")) == [
        {"kernels.simt.emit.high", "kernels.simt.ir.low"},
        {"kernels.simt.ir.one", "kernels.simt.ir.two"},
    ]
    high = "kernels.simt.emit.high imports kernels.simt.ir.low"
    assert needless_late_imports("kernels") == [f"{high} late", f"{low} late"]
    plant(tmp_path, {"kernels/simt/emit/high.py": "import numba"})
    assert needless_late_imports("kernels") == []


@pytest.mark.parametrize(
    "line",
    [
        "from numba.core.lowering import Lower",
        "def f():\n    from numba.core import registry",
        "import numba.core.typing.templates",
        "from numba.extending import _Intrinsic",
        "from numba import njit\nf = njit(g)._compiler",
        "from llvmlite.ir.values import _private",
        "from numba.np.arrayobj import make_array",
    ],
)
def test_the_check_of_numba_sees_a_planted_use(line, tmp_path, monkeypatch):
    monkeypatch.setattr(f"{__name__}.ROOT", tmp_path)
    plant(tmp_path, {f"{FENCE}/here.py": line, "kernels/simt/ir/there.py": line})
    (use,) = private_uses("kernels")
    assert use.startswith("kernels/simt/ir/there.py")


# -- imports -------------------------------------------------------------------------------


def run_python(code: str, **variables: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


IMPORTS = """
import time
start = time.process_time()
import numpy
middle = time.process_time()
import {module}
print((time.process_time() - middle) / (middle - start))
"""


def import_time(module: str, folder: Path) -> float:
    """Beside that of NumPy, in the processor's time: neither a slow machine nor other work on it
    counts. From bytecode in `folder`, as of any but the first import."""
    places = {"PYTHONPYCACHEPREFIX": str(folder), "PYTHONDONTWRITEBYTECODE": ""}
    found = [float(run_python(IMPORTS.format(module=module), **places)) for _ in range(5)]
    return min(found[1:])


def test_importing_minigrad_is_fast(tmp_path):
    share = import_time("minigrad", tmp_path)
    assert share < MOST_IMPORT, f"import minigrad took {share:.2f} times as long as NumPy's import"
    assert import_time("minigrad, numba", tmp_path) > MOST_IMPORT  # a slow import is seen


def test_importing_minigrad_loads_no_compiler_no_framework_no_gpu_library():
    """What a first import must not pay for; kernels bring numba in when one is launched."""
    heavy = {"numba", "llvmlite", "scipy", "matplotlib", "cupy", "torch", "pytest", "kernels.host"}
    loaded = run_python("import minigrad, sys; print(*sys.modules)").split()
    assert heavy & set(loaded) == set()


STEP = """
import sys
import minigrad
from minigrad import nn
model = nn.Sequential(nn.Linear(6, 5), nn.Dropout(0.1), nn.ReLU(), nn.Linear(5, 4))
optimizer = minigrad.optim.Adam(model.parameters())
loss = nn.functional.cross_entropy(model(minigrad.rand(8, 6)), minigrad.randint(0, 4, (8,)))
loss.backward()
optimizer.step()
print("numba" in sys.modules)
"""


def test_a_step_from_a_full_cache_does_not_import_numba():
    """That alone takes longer than the step."""
    run_python(STEP)
    assert run_python(STEP).split() == ["False"]
