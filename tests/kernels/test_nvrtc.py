"""What NVRTC makes of the CUDA C kernels, with no GPU: every source for every target, no spills.

The launchers choose the kernels as for arrays on a GPU, in the calls that families declare; each
instance is compiled for sm_80, or what its source says it needs, and one of each template for sm_75
and sm_90.
"""

from __future__ import annotations

import numpy as np
import pytest

import kernels
from kernels.lab.gpu_model import nvrtc, resources
from kernels.pointwise import TABLE
from kernels.support.errors import CompileError

pytestmark = pytest.mark.needs("cuda.bindings")

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


DIVIDES = """__global__ void divides(const long long* x, long long* y, long long n, int m) {
    const long long first = x[0] / n;
    for (int i = 0; i < m; ++i) y[i] = first + x[i] / %s;
}"""


@pytest.mark.parametrize("by, found", [("n", True), ("7", False)])
def test_divisions_of_64_bits_in_loops_are_seen(by, found):
    assert (nvrtc.build(DIVIDES % by, ["divides"], "80")["divides"].divisions > 0) == found


@pytest.mark.parametrize("options, seen", [((), False), (("-ftz=true",), True)])
def test_instructions_that_flush_are_seen(options, seen):
    code = """__global__ void k(float* x, float y) {
        x[0] = x[0] * y + expf(x[1]) / x[2] + sqrtf(x[3]) + tanhf(x[4]);
    }"""
    assert (nvrtc.build(code, ["k"], "80", options)["k"].flushes > 0) == seen


def test_marked_sources_are_compiled_for_what_they_need():
    marked = """// needs sm_90a
    __global__ void k() {
    #if defined(__CUDA_ARCH_FEAT_SM90_ALL)
        asm volatile("wgmma.fence.sync.aligned;");
    #endif
    }"""
    assert nvrtc.targets(marked) == ("90a",)
    assert nvrtc.targets("// needs sm_80: cp.async") == ("80", "90")
    assert nvrtc.targets(SMALL) == nvrtc.TARGETS
    nvrtc.build(marked, ["k"], "90a")
    with pytest.raises(CompileError, match="wgmma"):
        nvrtc.build(marked.replace("#if", "#if 1 //"), ["k"], "90")


@pytest.mark.parametrize("target", nvrtc.TARGETS)
def test_every_kernel_compiles_and_stays_in_registers(target):
    lines = resources.table(target)
    bad = [
        f"{line.family} {line.version}: {line.kernel}: {line.facts}"
        for line in lines
        if line.facts.spill_stores
        or line.facts.spill_loads
        or line.facts.stack
        or line.facts.divisions
        or line.facts.flushes
    ]
    assert bad == []
    rows = {(f, v) for f, dialect, v, _ in kernels.catalog() if dialect == "cupy"}
    compiled = {(line.family, line.version) for line in lines}
    # one instance of a template may serve several rows
    if target == resources.MAIN_TARGET:
        missing = rows - compiled
        assert missing == set(), f"`compiled` of a family does not launch {sorted(missing)}"
        assert {line.version for line in lines if line.target != target} == {"wgmma"}


def claiming_wide_loads() -> list[tuple[str, str]]:
    ideas = {(f, v): idea for f, dialect, v, idea in kernels.catalog() if dialect == "cupy"}
    return [row for row, idea in ideas.items() if "16-byte" in idea or "128-bit" in idea]


def test_versions_that_claim_16_byte_loads_have_them():
    facts, claims = resources.most(resources.table()), claiming_wide_loads()
    assert claims
    claims.append(("reduce", "block"))  # whose idea is told in words of both dialects
    assert {row: facts[row].wide_loads for row in claims if not facts[row].wide_loads} == {}


# What a version is for: instructions in the machine code of its kernels, by how they begin.
MACHINE_CODE = {
    "double_buffer": ("LDGSTS.E", "LDS.128", "FFMA"),
    "sliced": ("LDGSTS.E", "LDS.128", "FFMA"),
    "tensor_core": ("LDG.E.128", "HMMA.16816.F32"),
    "tensor_core_tf32": ("LDG.E.128", "HMMA.1684.F32.TF32"),
    "mma_sync": ("LDGSTS.E.BYPASS.128", "LDSM.16.M88.4", "LDSM.16.MT88.4", "HMMA.16816.F32"),
    "wgmma": (
        *("UTMALDG.3D", "USETMAXREG", "SYNCS"),
        *(f"HGMMA.64x{columns}x16.F32" for columns in (64, 128, 256)),
    ),
}


_COPIES = ("LDGSTS.E.BYPASS.128", "HMMA.16816.F32")
ON_TENSOR_CORES = {
    ("conv2d", "mma_sync"): (*_COPIES, "LDSM.16.M88.4"),
    ("conv2d_backward_data", "mma_sync"): (*_COPIES, "LDSM.16.M88.4", "LDSM.16.MT88.4"),
    ("conv2d_backward_weight", "mma_sync"): (*_COPIES, "LDSM.16.MT88.4"),
    ("attention", "mma_sync"): (*_COPIES, "LDSM.16.M88.4", "LDSM.16.MT88.4"),
    ("attention_backward", "mma_sync"): (*_COPIES, "LDSM.16.M88.4", "LDSM.16.MT88.4"),
}


def test_machine_code_has_what_versions_claim():
    facts = resources.most(resources.table())
    if not any(f.opcodes for f in facts.values()):
        pytest.skip("needs nvdisasm, which the extra cuda13 has")
    claims = {("matmul", version): wanted for version, wanted in MACHINE_CODE.items()}
    claims |= dict.fromkeys(claiming_wide_loads(), ("LDG.E.128",))
    claims["matmul", "vectorised"] += ("LDS.128",)
    claims |= ON_TENSOR_CORES
    for op in ("conv2d", "conv2d_backward_data", "conv2d_backward_weight"):
        claims[op, "double_buffer"] = ("LDGSTS.E.BYPASS.128", "LDS.128", "FFMA")
    lacking = {
        row: [w for w in wanted if not any(o.startswith(w) for o in facts[row].opcodes)]
        for row, wanted in claims.items()
    }
    assert {row: wanted for row, wanted in lacking.items() if wanted} == {}
    for version in ("tensor_core", "tensor_core_tf32", "mma_sync", "wgmma"):
        assert "FFMA" not in facts["matmul", version].opcodes
    assert not any("FFMA" in facts[row].opcodes for row in ON_TENSOR_CORES if "conv" in row[0])
    local = [row for row, f in facts.items() if {"LDL", "STL"} & {o[:3] for o in f.opcodes}]
    assert local == []


# sinf and its like (digamma reflects at 0 by tan) reduce large arguments with a table in local
# memory, off the usual path.
WITH_TABLES = ("sin", "cos", "tan", "sinc", "lgamma", "digamma")


@pytest.mark.parametrize("target, step", [("75", 9), ("80", 1), ("90", 9)])
def test_generated_kernels_of_every_line(target, step):
    """The table's lines and all of their derivatives, generated as contiguous float32 kernels: all
    to PTX, some of them on to machine code."""
    from kernels.cuda_c.common import source
    from kernels.cuda_c.pointwise import text
    from kernels.launchers.pointwise import Form, Operand

    f32, code, names = np.dtype(np.float32), [source("pointwise.cuh")], {}
    for line in [line for line in TABLE.values() if line.domain != "int"][::step]:
        for expr in filter(None, (line, *(line.vjp(i) for i in range(len(line.args))))):
            masks = [np.dtype(bool) if a in expr.masks else f32 for a in expr.args]
            result = np.dtype(bool) if expr.result == "bool" else f32
            form = Form(tuple(map(Operand, masks)), f32, result)
            code.append(f"namespace n{len(names)} {{\n{text(expr, form)}}}\n")
            names[f"n{len(names)}::pointwise_{expr.name.replace('.', '_')}"] = line.name
    if step == 1:
        entries, *_ = nvrtc.translate("".join(code), list(names), f"compute_{target}")
        assert len(entries) > 100
        return
    found = nvrtc.build("".join(code), names, target)
    bad = {
        name: facts
        for name, facts in found.items()
        if facts.spill_stores or (facts.stack and names[name] not in WITH_TABLES)
    }
    assert bad == {}
