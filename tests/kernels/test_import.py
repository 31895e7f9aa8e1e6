"""Another package on PyPI is imported as `kernels` too: people are told what to do."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ADVICE = "pip uninstall kernels"


def run(code: str, *folders: Path) -> subprocess.CompletedProcess:
    path = os.pathsep.join(map(str, folders))
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
        cwd=folders[0],
    )


@pytest.mark.parametrize(
    "text",
    ["def get_kernel(): ...", "import a_module_that_is_missing", None],
    ids=["another package", "one that lacks what it needs", "its empty folder"],
)
def test_another_package_of_that_name(tmp_path, text):
    (tmp_path / "kernels").mkdir()
    if text is None:  # what an uninstallation leaves behind; minigrad alone is found elsewhere
        (tmp_path / "minigrad").symlink_to(ROOT / "minigrad")
        done = run("import minigrad", tmp_path)
    else:
        (tmp_path / "kernels" / "__init__.py").write_text(text)
        done = run("import minigrad", tmp_path, ROOT)
    assert done.returncode
    last = done.stderr.splitlines()[-1]
    assert last.startswith("ImportError: minigrad needs") and ADVICE in last


def test_another_package_installed_over_ours(tmp_path):
    """Of two packages in one folder, the later installation overwrites `__init__.py`."""
    ours = shutil.ignore_patterns("__pycache__", "lab", "cuda_c", "host")
    shutil.copytree(ROOT / "kernels", tmp_path / "kernels", ignore=ours)
    (tmp_path / "minigrad").symlink_to(ROOT / "minigrad")
    (tmp_path / "kernels-0.17.0.dist-info").mkdir()
    done = run("import kernels", tmp_path)
    assert done.returncode == 0 and ADVICE in done.stderr
    (tmp_path / "kernels" / "__init__.py").write_text("def get_kernel(): ...")
    done = run("import minigrad", tmp_path)
    assert ADVICE in done.stderr.splitlines()[-1]


def test_what_is_missing_is_named_otherwise(tmp_path):
    """A missing dependency of ours is not taken for the other package."""
    (tmp_path / "ml_dtypes.py").write_text("import a_module_that_is_missing")
    (tmp_path / "numpy.py").write_text("import a_module_that_is_missing")
    done = run("import minigrad", tmp_path, ROOT)
    assert "a_module_that_is_missing" in done.stderr.splitlines()[-1]


def test_nothing_is_said_where_all_is_well():
    done = run("import minigrad", ROOT)
    assert (done.returncode, done.stderr) == (0, "")
