"""What every test shares: seeds that are printed, what tests need and skip without, threads."""

from __future__ import annotations

import functools
import gc
import importlib.util
import os
import re
import zlib
from collections.abc import Callable
from types import ModuleType

# Before NumPy's BLAS or a kernel starts threads: parallel workers share the cores already.
if "PYTEST_XDIST_WORKER" in os.environ:
    for _name in ("MINIGRAD_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(_name, "1")

import numpy as np
import pytest

# What `@pytest.mark.needs(...)` may name, and which extra brings it. No test asks for these modules
# in another way (tests/test_architecture.py), so `-m needs` runs all tests that skip without them.
# "numba.cuda" is any module of that name: Numba's deprecated one, or numba-cuda's if installed.
PACKAGES = {
    "torch": "parity",
    "numba.cuda": "cuda13",
    "numba_cuda": "cuda13",
    "cupy": "cuda13",
    "cuda.bindings": "cuda13",
    "nvidia": "cuda13",  # headers of CUDA's wheels
    "mkdocs": "docs",
    "yaml": "docs",
}


@functools.cache
def missing(package: str) -> str | None:
    """Why tests that need the package can't run here, or None."""
    extra = PACKAGES[package]
    parents = [package[:i] for i, c in enumerate(package) if c == "."]
    if all(importlib.util.find_spec(name) for name in (*parents, package)):
        return None
    return f"needs {package}: pip install 'minigrad[{extra}]'"


@functools.cache
def _no_gpu() -> str | None:
    """Why the tests that need a GPU can't run here, or None."""
    from minigrad.commands import gpu

    return missing("numba_cuda") or missing("cupy") or gpu.query().problem


@functools.cache
def _no_compiler() -> str | None:
    """Why kernels in CUDA C can't run on this machine's CPU, or None."""
    from kernels.host import compiler
    from kernels.support.errors import CompileError

    try:
        compiler.find_compiler()
    except CompileError as error:
        return str(error)
    return None


# Of tests that take up to a minute. They start first: parallel workers then end together.
LONG = re.compile("test_(cli|notebooks|readme|backends|fuzz|nvrtc|ptx)")


@pytest.hookimpl(tryfirst=True)  # before -m selects by marker
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: not LONG.match(item.path.name))
    for item in items:
        if "torch" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.needs("torch"))
        for reason in (missing(p) for mark in item.iter_markers("needs") for p in mark.args):
            if reason:
                item.add_marker(pytest.mark.skip(reason=reason))
        if item.get_closest_marker("gpu") and (reason := _no_gpu()):
            item.add_marker(pytest.mark.skip(reason=f"needs an NVIDIA GPU: {reason}"))
        if re.search("cupy|cuda.c", item.name) and (reason := _no_compiler()):
            item.add_marker(pytest.mark.skip(reason=reason))


def pytest_collection_finish(session: pytest.Session) -> None:
    """The modules and tests loaded by now stay: garbage collections need not look at them again,
    nor as often at the rest."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(1_000_000, 20, 20)


@pytest.fixture
def torch() -> ModuleType:
    """torch, to compare with. A test that takes this fixture has the marker needs("torch")."""
    import torch

    return torch


@pytest.fixture
def same_error(torch: ModuleType) -> Callable[[Callable], None]:
    """same_error(program): program(minigrad) fails as program(torch) does."""
    from tests.nn import helpers

    return functools.partial(helpers.same_error, torch)


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """The test's seed, printed: MINIGRAD_TEST_SEED, else made from the test's name."""
    value = int(os.environ.get("MINIGRAD_TEST_SEED", zlib.crc32(request.node.nodeid.encode())))
    print(f"seed {value} (set MINIGRAD_TEST_SEED={value} to repeat)")
    return value


@pytest.fixture
def rng(seed: int) -> np.random.Generator:
    """NumPy's generator with the test's seed."""
    return np.random.default_rng(seed)
