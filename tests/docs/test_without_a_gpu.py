"""docs/without-a-gpu.md prints what it says; docs/cupy-names.md is what its generator writes."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re

import pytest

from kernels import door
from tests.docs import pages

DOCS = pages.ROOT / "docs"


def generator():
    spec = importlib.util.spec_from_file_location("cupy_index", DOCS / "site" / "cupy_index.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _numbers(version: str) -> list[int]:
    return [int(number) for number in version.split(".")[:2]]


@pytest.mark.skipif(door.no_gpu() is None, reason="there is a GPU: nothing changes")
def test_the_page_of_cupy_prints_what_it_says(tmp_path):
    page = (DOCS / "without-a-gpu.md").read_text()
    pages.check_programs(pages.programs(pages.blocks(page)), pages.ROOT, tmp_path)


def test_the_list_of_names_is_up_to_date_and_long_enough():
    written = generator()
    made = written.page()
    needed = {"numpy": written.NUMPY, "scipy": written.SCIPY}
    if all(_numbers(importlib.metadata.version(n)) >= _numbers(v) for n, v in needed.items()):
        assert (DOCS / "cupy-names.md").read_text() == made, "run python docs/site/cupy_index.py"
    rows = re.findall(r"^\| `([\w.]+)` \| (\d+) of (\d+) \|", made, re.MULTILINE)
    for package, share in (("cupy", 0.9), ("cupyx.scipy", 0.7)):
        counts = [row[1:] for row in rows if re.match(rf"{package}(\.|$)", row[0])]
        there, names = (sum(int(count[i]) for count in counts) for i in (0, 1))
        assert names > 500 and there / names >= share


def test_names_have_the_signatures_of_an_installed_cupy():
    """The generator writes CuPy's signatures as they are (checked on a function of our own)."""

    def sample(a, /, b=float, *c, d=None, **e):
        return a

    assert generator().signature(sample) == "(a, /, b=float, *c, d=None, **e)"
