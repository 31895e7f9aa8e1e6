"""docs/architecture.md: its programs print what it says, and it names every package."""

from __future__ import annotations

import pkgutil
import re

import pytest

import kernels
import kernels.lab
import kernels.simt
import minigrad
from kernels.simt.api.launch import Kernel
from tests.docs import pages
from tests.test_architecture import ORDERS

PAGE = (pages.ROOT / "docs" / "architecture.md").read_text()


def test_the_programs_print_what_the_page_says(tmp_path):
    if not hasattr(Kernel, "inspect_passes"):
        pytest.skip("kernels have no inspect_passes() yet")
    pages.check_programs(pages.programs(pages.blocks(PAGE)), pages.ROOT, tmp_path)


@pytest.mark.parametrize("package", [kernels, kernels.simt, kernels.lab, minigrad])
def test_the_map_names_every_package(package):
    folder = package.__name__.replace(".", "/")
    listed = names(folder)
    for name in listed:
        assert (pages.ROOT / folder / name).exists(), f"{folder}/{name}"
    packages = {f"{found.name}/" for found in pkgutil.iter_modules(package.__path__) if found.ispkg}
    assert packages <= set(listed)


@pytest.mark.parametrize("package", ["kernels.simt", "kernels.lab"])
def test_the_map_is_in_the_order_of_the_imports(package):
    listed = [name.removesuffix("/") for name in names(package.replace(".", "/"))]
    assert [name.removesuffix(".py") for name in listed] == ORDERS[package].split()


def names(folder: str) -> list[str]:
    """What the page lists in a folder, in its order."""
    listing = re.search(rf"^{folder}/.*\n((?:    .*\n)+)", PAGE, re.MULTILINE)[1]
    return re.findall(r"^    ([\w.]+/?)", listing, re.MULTILINE)
