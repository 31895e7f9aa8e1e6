"""The default backend: Numba's dialect for arrays on the CPU, CUDA C for arrays on a GPU."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import types

import numpy as np
import pytest

import kernels
import minigrad
import minigrad.nn.functional as F
from kernels import by_device, dispatch, launchers
from kernels.families import Family, Operation, like_first
from kernels.host import gpu_module, nvrtc
from kernels.support.errors import CompileError
from minigrad import nn
from tests.kernels.helpers import DEVICES

CUDA_C = "kernels.cuda_c.common"  # where its kernels have their class


@pytest.fixture(autouse=True)
def default():
    with minigrad.backends.use("auto"):
        yield


class Languages(dispatch.Trace):
    """The launches of a block as (family, version), by whether they are in CUDA C."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[bool, set] = {True: set(), False: set()}

    def takes(self, family, version, kernel, grid, block, args) -> bool:
        self.seen[type(kernel).__module__ == CUDA_C].add((family, version))
        return False


def launches(function, *args):
    """(those in CUDA C, those in Numba's dialect) of a call."""
    with dispatch.trace(Languages()) as trace:
        function(*args)
    return trace.seen[True], trace.seen[False]


def everything(device):
    """Operations whose arrays come first, behind an expression, in a list, and in keywords."""
    x = minigrad.ones(4, 4, device=device)
    half = x.half()
    yield "an operand", lambda: half @ half
    yield "behind an expression", lambda: x * x
    yield "in a list", lambda: minigrad.cat([x, x])
    yield "a result that is given", lambda: x.T.clone().add_(x)
    yield "like an array", lambda: minigrad.rand(3, device=device)
    yield "of the engine", lambda: kernels.exp(x._array)


@pytest.mark.parametrize("device", DEVICES)
def test_the_arrays_choose_the_dialect(device):
    device = "cuda" if device == "gpu" else device
    for name, function in everything(device):
        in_cuda_c, in_numba = launches(function)
        expected, other = (in_cuda_c, in_numba) if device == "cuda" else (in_numba, in_cuda_c)
        assert expected and not other, name


@pytest.mark.gpu
def test_products_of_float16_run_on_tensor_cores():
    a = minigrad.ones(128, 128, device="cuda", dtype=minigrad.float16)
    in_cuda_c, _ = launches(lambda: a @ a)
    assert in_cuda_c & {("matmul", "mma_sync"), ("matmul", "wgmma"), ("matmul", "tensor_core")}


@pytest.mark.gpu
@pytest.mark.parametrize("backend", ["numba", "cupy"])
def test_an_explicit_choice_holds_for_all_arrays(backend):
    for device in ("cpu", "cuda"):
        x = minigrad.ones(6, 6, device=device)

        def product(x=x):
            return x @ x

        for _ in range(3):  # the default has remembered launches of the same kind
            product()
        with minigrad.backends.use(backend):
            in_cuda_c, in_numba = launches(product)
            assert (bool(in_cuda_c), bool(in_numba)) == (backend == "cupy", backend == "numba")
            assert minigrad.backends.get() == backend
        assert minigrad.backends.get() == "auto"
        assert bool(launches(product)[0]) == (device == "cuda")
        asked, _ = launches(functools.partial(kernels.matmul, backend=backend), x._array, x._array)
        assert bool(asked) == (backend == "cupy")


class Training:
    """A few steps on a device."""

    def __init__(self, device):
        minigrad.manual_seed(3)
        layers = nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 5)
        self.model = nn.Sequential(*layers).to(device)
        self.optimizer = minigrad.optim.Adam(self.model.parameters(), lr=0.01)
        self.x = minigrad.linspace(-1, 1, 4 * 64).reshape(4, 1, 8, 8).to(device)
        self.y, self.losses = minigrad.arange(4).to(device), []

    def step(self):
        self.optimizer.zero_grad()
        loss = F.cross_entropy(F.dropout(self.model(self.x), 0.1), self.y)
        loss.backward()
        self.optimizer.step()
        return loss

    def run(self, step):
        minigrad.manual_seed(5)
        self.losses += [step().item() for _ in range(5)]


@pytest.mark.gpu
def test_networks_train_on_both_devices_of_one_process():
    here, there, compiled = Training("cpu"), Training("cuda"), Training("cuda")
    in_cuda_c, in_numba = launches(here.run, here.step)
    assert in_numba and not in_cuda_c
    in_cuda_c, in_numba = launches(there.run, there.step)
    assert in_cuda_c and not in_numba
    step = minigrad.compile(compiled.step)
    compiled.run(step)
    assert step.replayed >= 2, step.report()
    for losses in (there.losses, compiled.losses):
        np.testing.assert_allclose(losses, here.losses, rtol=1e-4)
        assert losses[-1] < losses[0]


@pytest.mark.gpu
def test_kernels_of_a_compiled_step_are_in_cuda_c():
    x = minigrad.ones(40, device="cuda")
    step = minigrad.compile(lambda: (x * 2 + 1).sum())
    for _ in range(3):
        assert step().item() == 120
    assert step.replayed >= 1 and len(step.kernels()) > 0
    assert all(type(kernel).__module__ == CUDA_C for kernel in step.kernels())


@pytest.fixture
def before_a_gpu_is_found():
    """As in a program that has only seen arrays on the CPU."""
    by_device._bind(by_device._straight)
    by_device.look.cache_clear()
    yield
    by_device.look()


@pytest.mark.gpu
def test_a_compiled_step_may_be_the_first_that_sees_a_gpu(before_a_gpu_is_found):
    x = minigrad.ones(5)

    def doubled():
        y = x + x  # in Numba's dialect
        dispatch.gpu_found()  # as when CuPy finds the first GPU
        z = y.to("cuda")
        return z + z

    in_cuda_c, _ = launches(minigrad.compile(doubled))
    assert ("pointwise.add", "contiguous") in in_cuda_c


@pytest.mark.gpu
def test_a_program_of_kernels_alone_brings_its_own_arrays(before_a_gpu_is_found):
    import cupy

    x = np.ones((4, 4), np.float32)
    assert launches(kernels.matmul, x, x)[1]
    there = cupy.asarray(x)
    in_cuda_c, in_numba = launches(kernels.matmul, there, there)
    assert in_cuda_c and not in_numba


def test_a_program_on_the_cpu_does_not_pay_for_the_choice():
    program = """
import sys
import minigrad
assert not {"cupy", "kernels.by_device", "kernels.numba_cuda"} & set(sys.modules)
x = minigrad.ones(3, 3, requires_grad=True)
(x @ x).sum().backward()
from kernels import dispatch
print(minigrad.backends.get(), type(dispatch.active.matmul).__name__, dispatch.active.__name__)
print({"cupy", "kernels.cuda_c"} & set(sys.modules))
"""
    environment = {k: v for k, v in os.environ.items() if k != "MINIGRAD_BACKEND"}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment
    )
    assert done.stdout == "auto partial kernels.by_device\nset()\n", done.stderr


def test_one_dialect_lacks_an_operation(monkeypatch):
    def twice(dialect, x):
        return dialect.name

    operation = Operation(twice, like_first(1))
    family = Family("doubling", (operation,), iter, iter)
    there = types.new_class("ndarray")
    there.__module__ = "cupy"
    for having, expected in (
        (["numba", "cupy"], ["numba", "cupy"]),
        (["numba"], ["numba", "numba"]),
        (["cupy"], ["cupy", "cupy"]),
    ):
        monkeypatch.setattr(launchers, "has", lambda name, *_, having=having: name in having)
        run = by_device._chosen(family, operation)
        assert [run(np.ones(2)), run(there())] == expected
        assert by_device._straight(family, operation)(np.ones(2)) == expected[0]


@pytest.mark.gpu
def test_nothing_falls_back_after_a_failure(monkeypatch):
    """Without NVRTC: what to install, and how to do without."""
    x = minigrad.ones(3, 7, device="cuda")
    monkeypatch.setattr(gpu_module.nvrtc, "available", lambda: False)
    monkeypatch.setattr("kernels.cuda_c.common.compiled", uncached())
    with pytest.raises(
        CompileError, match=r"NVRTC.*'minigrad\[cuda1[23]\]'.*MINIGRAD_BACKEND=numba"
    ):
        F.softmax(x * 1.5 - x.exp(), 1).cumsum(0)
    with minigrad.backends.use("numba"):
        assert x.cumsum(0)[-1].tolist() == [3] * 7


def uncached():
    from kernels.cuda_c import common

    return functools.cache(common.compiled.__wrapped__)


@pytest.mark.needs("cuda.bindings")
def test_cuda_s_headers_are_missing(monkeypatch):
    code = "#include <cuda_fp16.h>\n__global__ void k(__half* x) {}"
    monkeypatch.setattr(nvrtc, "_include_folders", list)
    with pytest.raises(CompileError, match=r"(?s)cuda_fp16.h.*'minigrad\[cuda1.\]'.*BACKEND=numba"):
        nvrtc.translate(code, ["k"], "sm_80")
    monkeypatch.undo()
    with pytest.raises(CompileError) as error:  # a mistake of the source
        nvrtc.translate('#include "mine.h"\n__global__ void k(int* x) {}', ["k"], "sm_80")
    assert "minigrad[" not in str(error.value)


def test_without_nvrtc_its_translation_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    with pytest.raises(CompileError, match="pip install 'minigrad"):
        nvrtc.translate("", [], "sm_80")
