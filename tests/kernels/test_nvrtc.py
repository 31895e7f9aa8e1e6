"""What NVRTC makes of the CUDA C kernels, with no GPU: every source for every target, no spills.

The launchers choose the kernels as for arrays on a GPU (`kernels.lab.resources`); each instance is
compiled for sm_80, and one of each template for sm_75, sm_90 and, where marked, sm_90a.
"""

from __future__ import annotations

import pytest

import kernels
from kernels import dispatch
from kernels.lab import nvrtc, resources
from kernels.simt.errors import CompileError

pytestmark = [
    pytest.mark.skipif(not nvrtc.available(), reason="needs the extra cuda13 (NVRTC)"),
]
catalogued = pytest.mark.skipif(
    not dispatch.installed("cupy"), reason="this version has no kernels.cuda_c"
)

SMALL = """
template <class T, int N> __global__ void spread(const T* x, T* y) {
    __shared__ T s[N];
    s[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    y[threadIdx.x] = s[N - 1 - threadIdx.x];
}
__global__ void __launch_bounds__(1024, 2) hoards(const float4* x, float* y, int n) {
    float4 v[24];
    #pragma unroll
    for (int i = 0; i < 24; ++i) v[i] = x[i * n + threadIdx.x];
    __syncthreads();
    #pragma unroll
    for (int i = 0; i < 24; ++i) y[(n - i) * threadIdx.x] = v[23 - i].x * v[i].y + v[i].z * v[i].w;
}
"""


def test_facts_of_a_small_source():
    """The gate below can fail: it sees spills, and double registers for double."""
    found = nvrtc.build(SMALL, ["spread<double, 64>", "spread<float, 64>", "hoards"], "80")
    assert list(found) == ["spread<double, 64>", "spread<float, 64>", "hoards"]
    assert found["spread<double, 64>"].shared == 512
    assert found["spread<float, 64>"].shared == 256
    assert found["spread<float, 64>"].spill_stores == found["spread<float, 64>"].wide_loads == 0
    assert found["hoards"].registers == 32
    assert found["hoards"].spill_stores > 0 and found["hoards"].stack > 0
    assert found["hoards"].wide_loads == 24
    with pytest.raises(CompileError, match=r"sm_80, k: kernel.cu\(1\).*undefined"):
        nvrtc.build("__global__ void k(float* x) { *x = y; }", ["k"], "80")


def test_marked_sources_are_compiled_for_hopper_too():
    marked = """// needs sm_90a
    __global__ void k() {
    #if defined(__CUDA_ARCH_FEAT_SM90_ALL)
        asm volatile("wgmma.fence.sync.aligned;");
    #endif
    }"""
    assert nvrtc.targets(marked) == (*nvrtc.TARGETS, "90a")
    assert nvrtc.targets(SMALL) == nvrtc.TARGETS
    nvrtc.build(marked, ["k"], "90a")
    with pytest.raises(CompileError, match="wgmma"):
        nvrtc.build(marked.replace("#if", "#if 1 //"), ["k"], "90")


@catalogued
@pytest.mark.parametrize("target", (*nvrtc.TARGETS, "90a"))
def test_every_kernel_compiles_and_stays_in_registers(target):
    lines = resources.table(target)
    bad = [
        f"{line.family} {line.version}: {line.kernel}: {line.facts}"
        for line in lines
        if line.facts.spill_stores or line.facts.spill_loads or line.facts.stack
    ]
    assert bad == []
    if target == "90a":
        return
    rows = {(f, v) for f, dialect, v, _ in kernels.catalog() if dialect == "cupy"}
    compiled = {(line.family, line.version) for line in lines}
    # one instance of a template may serve several rows
    missing = rows - compiled if target == resources.MAIN_TARGET else set()
    assert missing == set(), f"kernels.lab.resources.examples lacks {sorted(missing)}"


@catalogued
def test_versions_that_claim_16_byte_loads_have_them():
    facts = resources.most(resources.table())
    ideas = {(f, v): idea for f, dialect, v, idea in kernels.catalog() if dialect == "cupy"}
    claims = [row for row, idea in ideas.items() if "16-byte" in idea or "128-bit" in idea]
    assert claims
    assert {row: facts[row].wide_loads for row in claims if not facts[row].wide_loads} == {}
