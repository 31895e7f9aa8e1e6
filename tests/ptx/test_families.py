"""Every family's cases, planned as for a GPU and run as the PTX of NVIDIA's compilers, against the
reference; every shipped kernel's PTX is known."""

from __future__ import annotations

import functools
import re

import numpy as np
import pytest
from numba import typeof

from kernels import dispatch, lab, launchers, ptx, reference
from kernels.lab.gpu_model import nvrtc, resources
from kernels.simt.api import to_numba_cuda
from kernels.support.errors import CompileError
from tests.kernels.helpers import as_wide, assert_close, wide
from tests.kernels.test_parity import LIKE, cases, placed, results
from tests.ptx.families import as_ptx

pytestmark = [pytest.mark.needs("numba_cuda"), pytest.mark.needs("cuda.bindings")]
QUICK = {("numba", "transpose"), ("numba", "scan"), ("cupy", "matmul"), ("cupy", "softmax")}


def families() -> list:
    found = []
    for backend in ("numba", "cupy"):
        for name, family in launchers.declared().items():
            if launchers.lacks(backend, family):
                continue
            marks = () if (backend, name) in QUICK else pytest.mark.slow
            found.append(pytest.param(backend, family, marks=marks, id=f"{backend}-{name}"))
    return found


@pytest.mark.parametrize("backend, family", families())
def test_family(backend, family, rng):
    dialect = dispatch.dialect(backend)
    with as_ptx() as runs:
        for name, args, kwargs, scale in cases(family, backend, rng):
            wanted = {k: v for k, v in kwargs.items() if k != "version"}
            with np.errstate(all="ignore"):
                exact = args if name in LIKE else [as_wide(placed(a, "cpu")) for a in args]
                expected = results(getattr(reference, name), exact, wanted)
            extra = {"like": np.zeros(1)} if name in LIKE else {}
            given = [placed(a, "cpu") for a in args]
            got = results(getattr(dialect, name), given, {**kwargs, **extra})
            assert len(got) == len(expected)
            for a, b in zip(got, expected):
                assert_close(a, wide(np.asarray(b)), scale, terms=9)
    assert runs and all(run.executed.warps for run in runs)


# -- translation -------------------------------------------------------------------------------


def unknown(text: str) -> list[str]:
    """What is not known of the kernels of a PTX text."""
    found = []
    module = ptx.load(text)
    assert module.kernels
    for name in module.kernels:
        try:
            module.kernel(name)
        except CompileError as error:
            found.append(str(error))
    return found


@functools.cache
def cuda_c() -> dict[str, set[str]]:
    """The kernels of every source that the launchers launch on a GPU."""
    found: dict[str, set[str]] = {}
    for launches in resources.launched("cupy").values():
        for kernel, args in launches:
            raw = kernel.instance(*args)
            found.setdefault(raw.code, set()).add(raw.name)
    return found


def translated(architecture: str, step: int) -> list[str]:
    problems = []
    for code, names in [*cuda_c().items()][::step]:
        needed = nvrtc.targets(code)[0]
        if needed.endswith("a") or int(architecture) < int(needed):
            continue
        text = nvrtc.translate(code, sorted(names), f"compute_{architecture}", ("-lineinfo",))[2]
        problems += unknown(text)
    return problems


@pytest.mark.parametrize("architecture, step", [
    ("80", 9), *(pytest.param(a, 1, marks=pytest.mark.slow) for a in ("75", "80", "90", "120")),
])  # fmt: skip
def test_cuda_c_is_known(architecture, step):
    assert translated(architecture, step) == []


def test_wgmma_is_refused_by_name():
    """Hopper's copies and products of warpgroups stay with their model (tests/kernels)."""
    code, names = next((c, n) for c, n in cuda_c().items() if nvrtc.targets(c) == ("90a",))
    text = nvrtc.translate(code, sorted(names), "compute_90a")[2]
    problems = unknown(text)
    assert len(problems) == len(names)
    assert all(re.search(r"PTX line \d+: cp\.async\.bulk", problem) for problem in problems)


@pytest.mark.slow
@pytest.mark.parametrize("cc", [(8, 0), (9, 0)])
def test_numba_kernels_are_known(cc):
    kernels = {}
    for launches in resources.launched("numba").values():
        for kernel, args in launches:
            types = kernel.signature or tuple(map(typeof, args))
            kernels[id(kernel), types] = kernel
    texts = (to_numba_cuda.ptx(kernel, types, cc) for (_, types), kernel in kernels.items())
    assert [problem for text in texts for problem in unknown(text)] == []
    assert len(kernels) > 200


# -- the lab -----------------------------------------------------------------------------------

SCALE = """extern "C" __global__ void scale(const float* x, float* y, float by, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        y[i] = by * x[i];
}"""


def test_the_lab_counts_instructions_and_lines():
    from kernels import raw_kernel

    x, y = np.arange(100, dtype=np.float32), np.zeros(100, np.float32)
    run = lab.ptx(raw_kernel(SCALE, "scale"), 4, 32, x, y, 3, 100)
    assert np.array_equal(y, 3 * x)
    assert run.instructions["mul.f32"] == lab.PtxExecuted(4, 100)
    assert run.instructions["mov.u32"].lanes == 3 * 128
    assert run.lines[nvrtc.FILE, 4].lanes % 100 == 0
    assert run.executed.lanes == sum(e.lanes for e in run.instructions.values())
    assert "warps executed" in str(run) and "kernel.cu:4" in str(run)


def test_an_error_names_the_line_of_the_source():
    from kernels import raw_kernel
    from kernels.support.errors import KernelIndexError

    x, y = np.zeros(100, np.float32), np.zeros(90, np.float32)
    with pytest.raises(KernelIndexError) as caught:
        lab.ptx(raw_kernel(SCALE, "scale"), 4, 32, x, y, 3, 100)
    assert re.search(
        r"write of 4 bytes at address 0x\w+, outside of all arrays.*, thread \(26, 0, 0\) of block"
        r" \(2, 0, 0\): st.global.f32 on PTX line \d+, line 4 of kernel.cu", str(caught.value)
    )  # fmt: skip
