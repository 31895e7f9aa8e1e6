"""The clock: what is known by hand of small kernels, and the order of a ladder."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from kernels import cuda, lab, raw_kernel
from kernels.lab.gpu_model import chips, instructions
from kernels.ptx import parser
from kernels.ptx.nodes import Instruction
from kernels.support.errors import CompileError, KernelIndexError, LaunchError
from tests.ptx.helpers import entry

needs_wheels = pytest.mark.needs("cuda.bindings", "numba_cuda")
CODE = r"""
extern "C" __global__ void copy(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i];
}
extern "C" __global__ void strided(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i % 512 * (n / 512) + i / 512] = x[i];
}
extern "C" __global__ void guarded(const float* x, float* y, int n) {
    __shared__ float s[256];
    int t = threadIdx.x;
    s[t] = x[t];
    for (int d = n / (SIZE / 32); d > 0; d /= 2) {  // 32 to 1
        __syncthreads();
        if (t < d) s[t] += s[t + d];
    }
    y[t] = s[t] - s[t];
}
extern "C" __global__ void row(const float* x, float* y, int n) {
    for (int i = threadIdx.x; i < 8192; i += 32) y[i] = x[i] - x[i];
}
extern "C" __global__ void row_apart(const float* __restrict__ x, float* __restrict__ y, int n) {
    for (int i = threadIdx.x; i < 8192; i += 32) y[i] = x[i] - x[i];
}
extern "C" __global__ void counted(const float* x, float* y, int n) { atomicAdd(y, x[0]); }
"""
SIZE = 1 << 18
CODE = CODE.replace("SIZE", str(SIZE))


def estimate(
    name: str, gpu: str = "A100 80GB", grid: int = SIZE // 256, threads: int = 256, **options: bool
) -> lab.Estimate:
    x = np.ones(SIZE, np.float32)
    y = np.zeros_like(x)
    kernel = raw_kernel(CODE, name)
    made = lab.time(kernel, grid, threads, x, y, np.int32(SIZE), gpu=gpu, **options)
    assert not y.any(), "arguments are copied"
    return made


@needs_wheels
def test_a_copy_moves_its_bytes():
    e = estimate("copy")
    assert e.dram_bytes == pytest.approx(2 * 4 * SIZE, rel=0.01)
    assert e.hits == (0, pytest.approx(0.5, abs=0.01))  # what is written needs no memory at once
    assert e.low < e.seconds < e.high
    assert "an estimate from counts, not a measurement" in str(e)


@needs_wheels
def test_a_memory_chart_says_what_goes_where():
    e = estimate("copy")
    picture = e.picture()
    assert (e.requests, e.shared_requests) == (2 * SIZE / 32, 0)
    assert "16,384 requests ask L1 for 2.1 MB, L1 asks L2 for 2.1 MB" in picture.text
    assert "of these bytes: 50% read, 50% read, 50% read; the others are written" in picture.text
    assert f"DRAM: 2039 GB/s at most, busy {e.bounds['DRAM'] / e.seconds:.0%}" in picture.text
    guarded = estimate("guarded", grid=1)
    assert guarded.shared_requests == 8 * 2 + 3 * 6 and guarded.requests == 8 * 2
    assert e._repr_mimebundle_()["image/svg+xml"] == picture.svg()


ASYNCHRONOUS = r"""
#include <cuda_pipeline.h>
extern "C" __global__ void copies(const float* x, float* y) {
    __shared__ float s[256];
    int t = threadIdx.x, i = blockIdx.x * 256 + t;
    __pipeline_memcpy_async(&s[t], &x[i], 4);
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncthreads();
    y[i] = s[255 - t];
}"""
FRAGMENTS = r"""
#include <mma.h>
using namespace nvcuda::wmma;
__global__ void square(const half* x, float* y) {
    fragment<matrix_a, 16, 16, 16, half, row_major> a;
    fragment<matrix_b, 16, 16, 16, half, col_major> b;
    fragment<accumulator, 16, 16, 16, float> sum;
    fill_fragment(sum, 0.0f);
    load_matrix_sync(a, x, 16);
    load_matrix_sync(b, x, 16);
    mma_sync(sum, a, b, sum);
    store_matrix_sync(y, sum, 16, mem_row_major);
}"""


@needs_wheels
def test_asynchronous_copies_are_requests_to_both_memories():
    x = np.ones(1 << 14, np.float32)
    e = lab.time(raw_kernel(ASYNCHRONOUS, "copies"), 64, 256, x, x.copy(), gpu="A100 80GB")
    assert (e.requests, e.shared_requests, e.wavefronts) == (1024, 1024, 1024)
    assert e.asked_bytes == e.dram_bytes == 2 * 4 * x.size


@needs_wheels
def test_fragments_of_tensor_cores_move_their_tiles():
    x, y = np.ones((16, 16), np.float16), np.zeros((16, 16), np.float32)
    e = lab.time(raw_kernel(FRAGMENTS, "square"), 1, 32, x, y, gpu="A100 80GB")
    assert e.requests == 3 and e.asked_bytes == 2 * 512 + 1024
    assert e.hits[0] == 0.5 and e.bounds["tensor cores"] > 0


@needs_wheels
def test_an_array_that_is_given_twice_is_one():
    x = np.ones(SIZE, np.float32)
    kernel = raw_kernel(CODE, "copy")
    e = lab.time(kernel, SIZE // 256, 256, x, x, np.int32(SIZE), gpu="A100 80GB")
    assert e.hits[1] == pytest.approx(0.5, abs=0.01)
    assert e.dram_bytes == pytest.approx(2 * 4 * SIZE, rel=0.01)
    half = lab.time(kernel, SIZE // 512, 256, x[: SIZE // 2], x, np.int32(SIZE // 2), gpu="A10")
    assert half.dram_bytes == pytest.approx(4 * SIZE, rel=0.01)


@needs_wheels
def test_slower_kernels_and_slower_cards_take_longer():
    copy, strided = estimate("copy"), estimate("strided")
    assert strided.bounds["L1 and shared memory"] > 10 * copy.bounds["L1 and shared memory"]
    assert strided.seconds > copy.seconds
    assert estimate("copy", "RTX 3060").bounds["DRAM"] > 5 * copy.bounds["DRAM"]


@needs_wheels
def test_atomics_on_one_address_bound_the_time():
    e = estimate("counted")
    assert e.bound == "atomics on one address"
    assert e.bounds[e.bound] == pytest.approx(SIZE * chips.SAME_ADDRESS_SECONDS)


@needs_wheels
def test_warps_without_a_lane_in_a_short_branch_issue_it_too():
    """8 warps: a load and a store, 6 times two loads and a store, a load and a store."""
    e = estimate("guarded", grid=108)
    requests = e.bounds["memory requests"] * e.gpu.boost * 1e6
    assert requests == pytest.approx(8 * (2 + 6 * 3 + 2), rel=0.05)
    assert e.bounds["barriers"] * e.gpu.boost * 1e6 == pytest.approx(8 * 6 * chips.BARRIER_CYCLES)


@needs_wheels
def test_a_load_waits_behind_stores_that_could_be_to_its_address():
    together, apart = (estimate(name, grid=1, threads=32) for name in ("row", "row_apart"))
    assert together.bounds["latency"] > 1.5 * apart.bounds["latency"]


@needs_wheels
def test_a_launch_that_is_repeated_finds_its_data_in_the_second_level():
    first, again = estimate("copy"), estimate("copy", repeated=True)
    assert again.dram_bytes == 0 and first.dram_bytes > 0
    assert again.hits[1] == 1
    small = estimate("copy", "T4"), estimate("copy", "T4", repeated=True)
    assert small[1].dram_bytes < small[0].dram_bytes


@needs_wheels
def test_what_cannot_be_counted_is_refused():
    x = np.ones(9, np.float32)
    with pytest.raises(LaunchError, match=r"counted: .* does not fit on an SM of T4"):
        lab.time(raw_kernel(CODE, "counted"), 1, 256, x, x, np.int32(9), gpu="T4", shared=70_000)
    with pytest.raises(ValueError, match="expected a name of the table, got 5"):
        lab.time(raw_kernel(CODE, "counted"), 1, 256, x, x, np.int32(9), gpu=5)

    @cuda.jit
    def astray(x):
        x[cuda.grid(1) + 1_000_000_000] = 1

    @cuda.jit
    def together(x):
        cuda.cg.this_grid().sync()
        x[cuda.grid(1)] = 1

    with pytest.raises(CompileError, match=r"a barrier of the grid needs .* here$"):
        lab.time(together, 1, 32, x, gpu="T4")
    with pytest.raises(KernelIndexError, match=r"^astray: write of 4 bytes"):
        lab.time(astray, 1, 32, x, gpu="T4")


def test_what_instructions_become():
    body = """mul.wide.s32 %d1, %r1, 4; add.s64 %d2, %d1, %d3; add.s64 %d4, %d5, %d6;
        fma.rn.f32 %f1, %f2, %f3, %f4; mov.u32 %r1, %r2; mov.u32 %r3, %tid.x;
        rsqrt.approx.f32 %f5, %f1; div.rn.f32 %f6, %f5, %f1; cvt.u64.u32 %d7, %r1;
        ld.param.u64 %p0, [p0]; bar.sync 0; ret;"""
    program = parser.parse(entry(body, 0))
    statements = parser.body(program.functions["k"], program.files).statements
    fused = instructions.fused_sums(statements)
    costs = [instructions.cost(i, n in fused) for n, i in enumerate(statements)]
    assert [sum(c.values()) for c in costs] == [1, 0, 2, 1, 0, 1, 1, 12, 0, 0, 1, 1]
    assert [*costs[3], *costs[6], *costs[0]] == ["fp32", "special", "integer products"]


def test_addresses_of_shared_memory_cost_nothing():
    body = """mov.u32 %r1, room; shl.b32 %r2, %r3, 2; add.s32 %r4, %r1, %r2;
        ld.shared.f32 %f1, [%r4]; shl.b32 %r5, %r3, 2; add.s32 %r6, %r1, %r5;
        st.shared.f32 [%r6], %f1; add.s32 %r7, %r6, 1;
        shl.b32 %r8, %r3, 5; add.s32 %r9, %r1, %r8; ld.shared.f32 %f1, [%r9]; ret;"""
    program = parser.parse(entry(body, 0))
    statements = parser.body(program.functions["k"], program.files).statements
    assert instructions.folded_addresses(statements) == {1, 2}


def test_a_loop_that_counts_to_a_constant_knows_its_steps():
    body = """$L: ld.shared.f32 %f1, [%r1]; ld.shared.f32 %f2, [%r1+4]; add.s32 %r1, %r1, 8;
        add.s32 %r2, %r2, 1; setp.ne.s32 %p1, %r2, LAST; @%p1 bra $L; ret;"""

    def steps(last: str) -> dict[str, int]:
        program = parser.parse(entry(body.replace("LAST", last), 0))
        found = parser.body(program.functions["k"], program.files).statements
        block = list(enumerate(one for one in found if isinstance(one, Instruction)))[:-1]
        return instructions.loop_steps(block, {5: 0})

    assert steps("64") == {"%r1": 8, "%r2": 1}
    assert steps("%r3") == {}


def test_neighbouring_loads_become_one():
    def load(offset: int) -> str:
        return f"ld.shared.f32 %f{offset % 19}, [%r1+{offset}];"

    body = "".join(map(load, (0, 4, 8, 12, 20, 24, 28, 40))) + "ret;"
    program = parser.parse(entry(body, 0))
    block = list(enumerate(parser.body(program.functions["k"], program.files).statements))
    merged = instructions.merged_loads(block)
    assert {at: width for at, (width, _) in merged.items()} == {0: 16, 1: 0, 2: 0, 3: 0, 5: 8, 6: 0}


@needs_wheels
def test_a_report_knows_its_launch():
    from kernels import cuda

    @cuda.jit
    def double(x, y):
        i = cuda.grid(1)
        if i < x.size:
            y[i] = 2 * x[i]

    x = np.ones(5000, np.float32)
    report = lab.profile(double, 40, 128, x, np.zeros_like(x))
    e = report.time("L4")
    assert e.kernel == "double" and e.gpu.name == "L4" and 0 < e.seconds < 1e-4
    report.clock = None
    with pytest.raises(ValueError, match="kernels.lab.time"):
        report.time("L4")


def test_the_comparison_with_published_tables_is_drawn():
    """The committed figures as the committed picture says them."""
    from benchmarks import clock

    root = Path(clock.__file__).parent
    newest = max((root / "results").glob("clock-*.json"))
    rows = json.loads(newest.read_text())["rows"]
    drawn = clock.picture(rows)
    within = sum(1 / 1.5 <= row["ratio"] <= 1.5 for row in rows)
    assert f"{within} of {len(rows)} within a factor of 1.5" in drawn.text
    assert (root.parent / "docs" / "clock.svg").read_text() == drawn.svg()
    boxes = [shape for kind, shape in drawn.shapes if kind == "rect"]
    assert max(shape["y"] + shape["height"] for shape in boxes) <= drawn.height
