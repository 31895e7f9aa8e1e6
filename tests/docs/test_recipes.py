"""The recipes of docs/recipes.md, followed to the letter on a copy of the project."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs import pages

RECIPES = pages.sections((pages.ROOT / "docs" / "recipes.md").read_text())
NAMES = [pytest.param(name, id=name.split()[-1]) for name in RECIPES]
GENERATED = shutil.ignore_patterns("__pycache__")


@pytest.fixture
def copy(tmp_path) -> Path:
    for folder in ("kernels", "minigrad", "tests"):
        shutil.copytree(pages.ROOT / folder, tmp_path / "copy" / folder, ignore=GENERATED)
    shutil.copy(pages.ROOT / "pyproject.toml", tmp_path / "copy")
    return tmp_path / "copy"


@pytest.mark.parametrize("name", NAMES)
def test_recipe(name, copy, tmp_path):
    if "cupy" in RECIPES[name] and not (shutil.which("g++") or shutil.which("clang++")):
        pytest.skip("CUDA C on the CPU needs a C++ compiler")
    found = pages.blocks(RECIPES[name])
    for block in found:
        if block.file is not None:
            pages.apply(block, copy)
    pages.check_programs(pages.programs(found), copy, tmp_path)
    for block in found:
        if block.language == "sh":
            command = [sys.executable if w == "python" else w for w in shlex.split(block.text)]
            assert " passed" in pages.run(command, copy, copy)
    sources = sorted({block.file for block in found if (block.file or "").endswith(".py")})
    lint = [sys.executable, "-m", "ruff", "check", "--no-cache", *sources]
    done = subprocess.run(lint, cwd=copy, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", NAMES)
def test_the_number_of_files_is_as_stated(name):
    touched = {block.file for block in pages.blocks(RECIPES[name]) if block.file}
    tests = {file for file in touched if file.startswith("tests/")}
    stated = re.search(r"^Files: (\d)(?:, and (\d) of the tests)?\.$", RECIPES[name], re.MULTILINE)
    assert (int(stated[1]), int(stated[2] or 0)) == (len(touched - tests), len(tests))


def test_a_stale_recipe_is_noticed(tmp_path):
    (tmp_path / "a.py").write_text("one\ntwo\ntwo\n")
    pages.apply(pages.Block("diff", "+++ a.py\n one\n+more\n two\n"), tmp_path)
    assert (tmp_path / "a.py").read_text() == "one\nmore\ntwo\ntwo\n"
    for context in ("gone", "two"):
        with pytest.raises(ValueError, match="times, not once"):
            pages.apply(pages.Block("diff", f"+++ a.py\n {context}\n+x\n"), tmp_path)
    with pytest.raises(ValueError, match="exists already"):
        pages.apply(pages.Block("python", "# a.py\nx = 1\n"), tmp_path)
    with pytest.raises(AssertionError, match="and the page says"):
        pages.check_programs([("print(1)", "2\n")], tmp_path, tmp_path)
