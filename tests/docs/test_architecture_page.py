"""docs/architecture.md: its programs print what it says, and it names every package."""

from __future__ import annotations

import importlib
import pkgutil
import re
import shutil

import numpy as np
import pytest
from numba import float32

import kernels
import kernels.lab
import kernels.simt
import minigrad
from kernels.support import processor
from tests.docs import pages
from tests.test_architecture import ORDERS

PAGE = (pages.ROOT / "docs" / "architecture.md").read_text()


def test_the_programs_print_what_the_page_says(tmp_path):
    pages.check_programs(pages.programs(pages.blocks(PAGE)), pages.ROOT, tmp_path)


def test_the_machine_code_has_the_instructions_of_the_excerpt(tmp_path):
    if not (shutil.which("objdump") and processor.vector_registers().floats >= 16):
        pytest.skip("the excerpt is of code for a processor with AVX-512, listed by objdump")
    module = importlib.import_module("kernels.numba_cuda.matmul")
    x = np.zeros((1, 64, 64), np.float32)
    kernel = module.tiled(float32, False, False, False)
    stored = kernel.specialise((32, 32, 1), (x, x, x[0, 0, :0], x)).path.with_suffix(".o")
    code = stored.read_bytes()
    (tmp_path / "kernel.o").write_bytes(code[code.index(b"\x7fELF") :])
    listing = pages.run(["objdump", "-d", "kernel.o"], pages.ROOT, tmp_path)
    excerpt = next(block.text for block in pages.blocks(PAGE) if block.language == "asm")
    for line in excerpt.splitlines():
        assert line.split()[0] in listing
    assert "%zmm" in listing


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
