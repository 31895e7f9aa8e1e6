"""What every test shares: seeds that are printed, GPU tests that skip with a reason, threads."""

from __future__ import annotations

import functools
import gc
import importlib.util
import os
import re
import zlib

# Before NumPy's BLAS or a kernel starts threads: parallel workers share the cores already.
if "PYTEST_XDIST_WORKER" in os.environ:
    for _name in ("MINIGRAD_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(_name, "1")

import numpy as np
import pytest


@functools.cache
def _no_gpu() -> str | None:
    """Why the tests that need a GPU can't run here, or None."""
    from minigrad.commands import gpu

    for module, package in (("numba_cuda", "numba-cuda"), ("cupy", "CuPy")):
        if importlib.util.find_spec(module) is None:
            return f"{package} is not installed"
    return gpu.query().problem


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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: not LONG.match(item.path.name))
    for item in items:
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
def seed(request: pytest.FixtureRequest) -> int:
    """The test's seed, printed: MINIGRAD_TEST_SEED, else made from the test's name."""
    value = int(os.environ.get("MINIGRAD_TEST_SEED", zlib.crc32(request.node.nodeid.encode())))
    print(f"seed {value} (set MINIGRAD_TEST_SEED={value} to repeat)")
    return value


@pytest.fixture
def rng(seed: int) -> np.random.Generator:
    """NumPy's generator with the test's seed."""
    return np.random.default_rng(seed)
