"""Enough blocks for a large GPU: what the launchers plan for few results of long sums."""

from __future__ import annotations

import importlib
import sys

import numpy as np
import pytest

import kernels
from kernels import dispatch
from kernels.lab.gpu_model import resources
from kernels.launchers.plans import Plans
from tests.kernels.helpers import BFLOAT16, DEVICES, assert_close, normal, put, wide

MULTIPROCESSORS = 132
BACKENDS = ("numba", "cupy")
F16 = np.dtype(np.float16)
matmul = importlib.import_module("kernels.launchers.matmul")


def array(*shape: int, dtype=np.float32) -> np.ndarray:
    return np.empty(shape, dtype)  # never read: nothing is launched


@pytest.fixture
def blocks(monkeypatch):
    """A function from a call to the blocks of each of its launches, as planned for a GPU."""

    def planned(backend: str, name: str, *args) -> list[int]:
        found: list[int] = []

        def launcher(family: str, version: str, kernel, grid, block):
            return lambda *args: found.append(int(np.prod(grid)))

        with resources.noting():
            for module_name, module in list(sys.modules.items()):
                if module_name.startswith("kernels.launchers") and hasattr(module, "launcher"):
                    monkeypatch.setattr(module, "launcher", launcher)
            getattr(dispatch.dialect(backend), name)(*args)
            monkeypatch.undo()
        return found

    return planned


x, w = array(32, 64, 56, 56), array(64, 64, 3, 3)
LONG_SUMS = {
    "product": ("matmul", array(64, 65536), array(65536, 64)),
    "product_of_transposed": ("matmul", array(65536, 128).T, array(65536, 32)),
    "product_of_halves": ("matmul", array(64, 65536, dtype=F16), array(65536, 64, dtype=F16)),
    "product_for_hopper": ("matmul", array(256, 8192, dtype=F16), array(8192, 256, dtype=F16)),
    "sum": ("reduce", "sum", array(10**7)),
    "sum_of_rows": ("reduce", "sum", array(8, 10**6), 1),
    "sum_of_columns": ("reduce", "sum", array(10**6, 32), 0),
    "sum_of_channels": ("reduce", "sum", x, (0, 2, 3)),
    "weight_gradient": ("conv2d_backward_weight", x, x, w.shape, (1, 1), (1, 1)),
    "cumulative_sum": ("cumsum", array(8, 10**6), 1),
}
ON_TENSOR_CORES = {
    "weight_gradient": ("conv2d_backward_weight", x.astype(F16), x.astype(F16), w.shape, (1, 1),
                        (1, 1)),
    "small_images": ("conv2d", array(1, 512, 7, 7, dtype=F16), array(512, 512, 3, 3, dtype=F16),
                     None, (1, 1), (1, 1)),
    "few_queries": ("attention", *(array(1, 8, n, 64, dtype=F16) for n in (1, 8192, 8192))),
}  # fmt: skip


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("call", LONG_SUMS.values(), ids=LONG_SUMS)
def test_long_sums_are_shared_by_many_blocks(call, backend, blocks):
    assert max(blocks(backend, *call)) >= MULTIPROCESSORS - 4


@pytest.mark.parametrize("call", ON_TENSOR_CORES.values(), ids=ON_TENSOR_CORES)
def test_long_sums_on_tensor_cores(call, blocks):
    assert max(blocks("cupy", *call)) >= MULTIPROCESSORS


@pytest.mark.parametrize("backend", BACKENDS)
def test_products_with_many_blocks_are_not_split(backend, blocks):
    assert len(blocks(backend, "matmul", array(1024, 1024), array(1024, 1024))) == 1
    assert len(blocks(backend, "matmul", array(64, 200), array(200, 64))) == 1
    assert len(blocks(backend, "matmul", array(64, 2053), array(2053, 64))) == 1  # a prime


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("backend", BACKENDS)
def test_products_in_parts(device, backend, rng, monkeypatch):
    """Operands along and across k, a bias, leading dimensions; on the CPU planned as on a GPU."""
    if device == "cpu":
        monkeypatch.setattr(matmul, "on_gpu", lambda a: True)
        monkeypatch.setattr(matmul, "compute_capability", lambda a: (8, 0))
    monkeypatch.setattr(matmul, "_plans", Plans())
    monkeypatch.setattr(matmul, "LEAST_TERMS", 32)
    for dtype in (np.float32, F16, BFLOAT16):
        for m, k, n, layout in ((40, 96, 33, "nn"), (40, 96, 33, "tt"), (33, 128, 64, "tn")):
            a = normal(rng, (k, m) if layout[0] == "t" else (m, k), dtype)
            b = normal(rng, (n, k) if layout[1] == "t" else (k, n), dtype)
            a, b = (v.T if t == "t" else v for v, t in zip((a, b), layout))
            bias = normal(rng, n, dtype) if layout == "nn" else None
            given = [None if v is None else put(v, device) for v in (a, b, bias)]
            with kernels.trace() as trace:
                c = kernels.matmul(*given, backend=backend)
            assert any(operation == "reduce.sum" for operation, _ in trace.rows)
            exact = wide(a) @ wide(b) + (0 if bias is None else wide(bias))
            assert c.dtype == dtype
            assert_close(c, exact, np.abs(wide(a)) @ np.abs(wide(b)) + 3, terms=k)
    a, b = normal(rng, (2, 3, 64)), normal(rng, (64, 33))
    c = kernels.matmul(put(a, device), put(b, device), backend=backend)
    assert c.shape == (2, 3, 33)
    assert_close(c, wide(a) @ wide(b), np.abs(wide(a)) @ np.abs(wide(b)), terms=64)
