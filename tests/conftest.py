"""What every test shares: seeds that are printed, what tests need and skip without, threads."""

from __future__ import annotations

import functools
import gc
import importlib.util
import os
import re
import shutil
import signal
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

# Before NumPy's BLAS or a kernel starts threads: parallel workers share the cores already.
if "PYTEST_XDIST_WORKER" in os.environ:
    for _name in ("MINIGRAD_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(_name, "1")

import numpy as np
import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("minigrad")
    group.addoption(
        "--gpu",
        choices=("software",),
        help="run the tests marked `gpu` on a GPU in software (tests/software_gpu), with -m gpu",
    )
    group.addoption(
        "--gpu-capability",
        default="8.0",
        help="the software GPU's compute capability; several, as in 7.5,9.0, make a GPU of each",
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--gpu") == "software":  # before anything looks for a driver
        from tests import software_gpu

        software_gpu.install(*config.getoption("--gpu-capability").split(","))


# What stands in a file that has tests with a marker: the marker, or what brings it (the devices of
# kernels/helpers.py, the fixtures below).
MARKED = {"gpu": rb"mark\.gpu|DEVICES", "needs": rb"mark\.needs|torch|same_error"}


@functools.cache
def _may_have(path: Path, marker: str) -> bool:
    return re.search(MARKED[marker], path.read_bytes()) is not None


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """The software GPU is for tests marked `gpu`, and `-m needs` selects others: reading the files
    without any would take each worker longer than a hundred tests."""
    wanted = re.match(r"(gpu|needs)( and |$)", config.option.markexpr)
    if wanted is None or not collection_path.match("test_*.py"):
        return None
    return None if _may_have(collection_path, wanted[1]) else True


# A shell starts a background job with SIGINT ignored, and its children inherit that: then Ctrl-C,
# which some tests send, would do nothing.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Programs that tests start import this tree, wherever pytest was started.
_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [_ROOT, os.environ.get("PYTHONPATH")]))
# Kernels in CUDA C compile in half the time so; those of tests/host compile as users get them.
os.environ.setdefault("MINIGRAD_CXXFLAGS", "-O1")
# What tests solve is not what the person who runs them has solved.
_solved = tempfile.TemporaryDirectory(prefix="minigrad-tests-")
os.environ["MINIGRAD_DATA_DIR"] = _solved.name

# What `@pytest.mark.needs(...)` may name, and which extra brings it. No test asks for these modules
# in another way (tests/test_architecture.py), so `-m needs` runs all tests that skip without them.
# "numba.cuda" is any module of that name: Numba's deprecated one, or numba-cuda's if installed.
PACKAGES = {
    "torch": "parity",
    "expecttest": "parity",  # torch's table of samples imports it
    "numba.cuda": "cuda13",
    "numba_cuda": "cuda13",
    "cupy": "cuda13",
    "cuda.bindings": "cuda13",
    "nvidia": "cuda13",  # headers of CUDA's wheels
    "mypy": "types",
    "mkdocs": "docs",
    "yaml": "docs",
    "selenium": "browser",
    "mpi4py": "distributed",
    "onnx": "onnx",
}


@functools.cache
def missing(package: str) -> str | None:
    """Why tests that need the package can't run here, or None."""
    extra = PACKAGES[package]
    parents = [package[:i] for i, c in enumerate(package) if c == "."]
    if all(importlib.util.find_spec(name) for name in (*parents, package)):
        programs = ("chromium", "chromedriver") if package == "selenium" else ()
        if not all(map(shutil.which, programs)):
            return "needs Chromium and its driver: apt-get install chromium chromium-driver"
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
        for marker in MARKED:
            if item.get_closest_marker(marker) and not _may_have(item.path, marker):
                raise pytest.UsageError(f"-m {marker} would not read {item.path}: see MARKED")
        if item.get_closest_marker("gpu"):
            for mark in item.iter_markers("few_on_gpu"):
                name, *values = mark.args
                if item.callspec.params[name] not in values:
                    item.add_marker(pytest.mark.slow)
            if reason := _no_gpu():
                item.add_marker(pytest.mark.skip(reason=f"needs an NVIDIA GPU: {reason}"))
        if re.search("cupy|cuda.c", item.name) and (reason := _no_compiler()):
            item.add_marker(pytest.mark.skip(reason=reason))


NEW_OBJECTS = 30_000  # that a test leaves behind: it has imported modules, or compiled kernels


def _freeze() -> None:
    """What there is now stays: neither garbage collections nor minigrad's search for the tensors of
    a recorded step look at it again."""
    gc.collect()
    gc.freeze()


def pytest_collection_finish(session: pytest.Session) -> None:
    """The modules and tests loaded by now stay. Collections come less often."""
    _freeze()
    gc.set_threshold(1_000_000, 20, 20)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[object]:
    """So do Numba, and what tests have compiled: a recorded step looks for its tensors often."""
    result = yield
    if nextitem is not None and (nextitem.path != item.path or gc.get_count()[0] > NEW_OBJECTS):
        _freeze()
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Notes the processor time of the test and of programs that it waited for (tests/times.py). A
    kernel's fault on the software GPU fails the test that launched it, and no other."""
    before = os.times()
    try:
        return (yield)
    finally:
        spent = sum(os.times()[:4]) - sum(before[:4])
        item.user_properties.append(("processor", f"{spent:.2f}"))
        software_gpu = sys.modules.get("tests.software_gpu")
        if software_gpu is not None and software_gpu.installed():
            software_gpu.finish()
            if fault := software_gpu.take_fault():
                pytest.fail(f"on the software GPU: {fault}")
        elif item.get_closest_marker("gpu") and (fault := _fault_of_gpu()):
            pytest.fail(f"on the GPU, where all later calls of this process fail: {fault}")


_gpu_is_lost = False


def _fault_of_gpu() -> str | None:
    """What a kernel has done on a real GPU, once all that was launched has ended."""
    global _gpu_is_lost
    cupy = sys.modules.get("cupy")
    try:
        if cupy is not None and hasattr(cupy.cuda, "runtime") and not _no_gpu():
            cupy.cuda.runtime.deviceSynchronize()
    except Exception as error:
        _gpu_is_lost = True
        return str(error)
    return None


@pytest.hookimpl(trylast=True)
def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """A worker that has lost its GPU ends once its last test is reported; xdist starts another."""
    if _gpu_is_lost and report.when == "teardown" and "PYTEST_XDIST_WORKER" in os.environ:
        time.sleep(1)  # the report is sent by another thread
        os._exit(1)


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
def reference_backend() -> Iterator[None]:
    """The test runs on NumPy: for what lies above the operations, and compiles nothing of its own.
    tests/kernels has the kernels, tests/engine/test_operations each operation on all backends."""
    from minigrad import backends

    with backends.use("numpy"):
        yield


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
