"""The plans that a GPU would get (its tiles, blocks, versions, atomic additions), on the CPU: the
values of each family's cases, and the races that the lab's recorder finds."""

from __future__ import annotations

import importlib

import numpy as np
import pytest

from kernels import dispatch, lab, launchers, reference
from kernels.launchers.plans import Plans
from kernels.simt import cuda
from tests.kernels.helpers import as_wide, assert_close, wide
from tests.kernels.test_parity import LIKE, cases, placed, results

QUICK = {  # the others take more than seconds
    "numba": ("embedding", "scan", "transpose"),
    "cupy": ("embedding", "scan", "transpose"),
}
CAPABILITY = (8, 0)


@pytest.fixture
def planning_for_a_gpu(monkeypatch):
    """The launchers plan as for arrays on a GPU, and launch where the arrays are: on the CPU."""
    for family in launchers.declared().values():
        module = importlib.import_module(f"kernels.launchers.{family.name}")
        for name, value in {
            "on_gpu": lambda a: True,
            "compute_capability": lambda a: CAPABILITY,
            "_plans": Plans(),
        }.items():
            if hasattr(module, name):
                monkeypatch.setattr(module, name, value)


def _families():
    for backend in ("numba", "cupy"):
        for name, family in launchers.declared().items():
            if not launchers.lacks(backend, family):
                marks = () if name in QUICK[backend] else (pytest.mark.slow,)
                yield pytest.param(family, backend, id=f"{backend}-{name}", marks=marks)


@pytest.mark.parametrize("family, backend", list(_families()))
def test_plans_of_a_gpu_have_no_race_and_right_values(family, backend, planning_for_a_gpu, rng):
    dialect, seen = dispatch.dialect(backend), 0
    for name, args, kwargs, scale in cases(family, backend, rng):
        wanted = {k: v for k, v in kwargs.items() if k != "version"}
        with np.errstate(all="ignore"):
            exact = args if name in LIKE else [as_wide(placed(a, "cpu")) for a in args]
            expected = results(getattr(reference, name), exact, wanted)
            got = results(getattr(dialect, name), [placed(a, "cpu") for a in args], kwargs)
            with lab.profiled() as launched:
                getattr(dialect, name)(*[placed(a, "cpu") for a in args], **kwargs)
        for a, b in zip(got, expected, strict=True):
            assert_close(a, wide(np.asarray(b)), scale, terms=9)
        for *_, report in launched:
            assert not report.races and not report.errors, f"{name} {kwargs}:\n{report}"
        seen += len(launched)
    assert seen


@cuda.jit
def not_atomic(g, index, dw, width, tiles):
    row = cuda.blockIdx.x // tiles * cuda.blockDim.y + cuda.threadIdx.y
    j = cuda.blockIdx.x % tiles * cuda.blockDim.x + cuda.threadIdx.x
    if row < index.size and j < width:
        dw[index[row] * width + j] += g[row * width + j]


@pytest.mark.parametrize("backend", ["numba", "cupy"])
def test_a_race_in_a_plan_is_found(backend, planning_for_a_gpu, monkeypatch):
    module = importlib.import_module(f"{dispatch.DIALECTS[backend]}.embedding")
    factory = {"numba": "embedding_backward_kernel", "cupy": "rows_kernel"}[backend]
    real = getattr(module, factory)

    def planted(*constants):
        if backend == "numba":
            return not_atomic
        kernel = real(*constants)
        kernel.text = kernel.text.replace("atomicAdd(address, value)", "*address += value")
        return kernel

    monkeypatch.setattr(module, factory, planted)
    with lab.profiled() as launched:
        g, index = np.ones((40, 5), np.float32), np.zeros(40, np.int64)
        dispatch.dialect(backend).embedding_backward(g, index, 3)
    assert any(report.races for *_, report in launched)
