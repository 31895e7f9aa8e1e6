"""CUDA C under the recorder: figures worked out by hand, and those of the other dialect."""

from __future__ import annotations

import json
from dataclasses import asdict

import numpy as np
import pytest

from kernels import lab, raw_kernel, raw_module
from kernels.lab.course import ladders
from kernels.lab.report.measurement import Counts

CODE = r"""
#include <cooperative_groups.h>
#include <cuda_fp16.h>
namespace cg = cooperative_groups;
struct Point { float x, y, z; };

template <class T> __global__ void copy(const T* x, T* out, int stride) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = x[i * stride];
}
template <class T> __global__ void banks(T* out, int stride) {
    __shared__ T s[1056];
    for (int i = threadIdx.x; i < 1056; i += 32) s[i] = T{};
    __syncthreads();
    T value = s[threadIdx.x * stride];
    out[threadIdx.x] = value;
}
template <int PAD> __global__ void transpose(const float* x, float* out, int n) {
    __shared__ float tile[32][32 + PAD];
    int i = blockIdx.y * 32 + threadIdx.y, j = blockIdx.x * 32 + threadIdx.x;
    for (int k = 0; k < 32; k += 8) tile[threadIdx.y + k][threadIdx.x] = x[(i + k) * n + j];
    __syncthreads();
    i = blockIdx.x * 32 + threadIdx.y, j = blockIdx.y * 32 + threadIdx.x;
    for (int k = 0; k < 32; k += 8) out[(i + k) * n + j] = tile[threadIdx.x][threadIdx.y + k];
}
__global__ void guarded(const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = 2 * x[i] + 1;
}
__global__ void uneven(const float* x, float* out) {
    int lane = threadIdx.x % 32;
    float sum = 0;
    for (int i = 0; i < 2; ++i) {
        for (int j = 0; j < (lane % 2 ? 3 : 1); ++j) {
            if (j == 5) continue;
            sum += x[i * 96 + j * 32 + lane];
        }
    }
    out[threadIdx.x] = sum;
}
__device__ float square(const float* x, int i) {
    float value = x[i];
    return value * value;
}
__global__ void calls(const float* x, float* out) {
    int i = threadIdx.x;
    if (i < 16)
        out[i] = square(x, i) + square(x, i + 16);
    else
        out[i] = square(x, i);
}
__global__ void histogram(const int* x, int* bins) {
    __shared__ int own[4];
    if (threadIdx.x < 4) own[threadIdx.x] = 0;
    __syncthreads();
    atomicAdd(&own[x[threadIdx.x]], 1);
    __syncthreads();
    if (threadIdx.x < 4) atomicAdd(bins + threadIdx.x, own[threadIdx.x]);
}
__global__ void tiles(const float* x, float* out) {
    auto tile = cg::tiled_partition<16>(cg::this_thread_block());
    float value = x[threadIdx.x];
    for (int step = 8; step; step /= 2) value += tile.shfl_xor(value, step);
    value += __shfl_down_sync(0xffffffff, value, 1);
    out[threadIdx.x] = value;
    __syncthreads();
    out[threadIdx.x + 64] = value;
}
__global__ void move(const Point* p, Point* out) { out[threadIdx.x] = p[threadIdx.x]; }
__global__ void halves(const __half* x, __half* out) {
    __shared__ __half s[64];
    s[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = s[63 - threadIdx.x] + __half(1.0f);
}
__global__ void bytes(float* x) {
    ((unsigned char*)(x + threadIdx.x))[3] = 0;
    x[threadIdx.x] += 1;
}
__global__ void fine(const float* x, float* out, float* count) {
    __shared__ float s[64], flag;
    int t = threadIdx.x;
    flag = 1;  // all write the same
    s[t] = x[blockIdx.x * 64 + t];
    __syncthreads();
    if (t < 32) {
        s[t] += s[t + 32];
        __syncwarp();
        for (int step = 16; step; step /= 2) {
            float value = s[t];
            if (t < step) value += s[t + step];
            __syncwarp();
            s[t] = value;
            __syncwarp();
        }
    }
    if (t == 0) atomicAdd(out, s[0] * flag);
    atomicAdd(count + t % 4, 1.0f);
}
__global__ void refuses(const float* x) { assert(x[threadIdx.x] < 3); }
"""
INSTANCES = (
    *(f"copy<{kind}>" for kind in ("float", "double", "float4")),
    *("banks<float>", "banks<float4>", "transpose<0>", "transpose<1>"),
)
MODULE = raw_module("#include <assert.h>\n" + CODE, name_expressions=INSTANCES)


def profile(name: str, grid, block, *args, **options) -> lab.Report:
    return lab.profile(MODULE.get_function(name), grid, block, *args, **options)


def floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize(
    ("stride", "kind", "first", "sectors", "ideal"),
    [
        (1, "float", 0, 4, 4),
        (1, "float", 1, 5, 4),  # misaligned by one element
        (2, "float", 0, 8, 4),
        (8, "float", 0, 32, 4),
        (0, "float", 0, 1, 4),  # one element for all lanes
        (1, "double", 0, 8, 8),
        (1, "float4", 0, 16, 16),
        (2, "float4", 0, 32, 16),
    ],
)
def test_sectors_of_strided_misaligned_and_wide_loads(stride, kind, first, sectors, ideal):
    width, dtype = (4 if kind == "float4" else 1), np.float64 if kind == "double" else np.float32
    x = np.arange(64 * width * max(stride, 1) + first).astype(dtype)[first:]
    out = np.zeros(64 * width, dtype)
    report = profile(f"copy<{kind}>", 1, 64, x, out, stride)
    rows = x.reshape(-1, width)[np.arange(64) * stride]
    assert np.array_equal(out, rows.ravel()) and not report.findings
    line = report.at("out[i] =")
    own = width * out.itemsize  # what the stores take: they are as they should be
    assert (line.requests, line.executions, line.active_lanes) == (4, 2, 64)
    assert line.sectors == 2 * sectors + 2 * own
    assert line.ideal_sectors == 2 * ideal + 2 * own
    assert line.bytes == 2 * 64 * own and report.global_bytes == 32 * line.sectors


@pytest.mark.parametrize(
    ("kind", "stride", "wavefronts", "ideal"),
    [
        ("float", 1, 1, 1),
        ("float", 2, 2, 1),
        ("float", 4, 4, 1),
        ("float", 32, 32, 1),
        ("float", 33, 1, 1),
        ("float", 0, 1, 1),  # a broadcast
        ("float4", 1, 4, 4),
        ("float4", 2, 8, 4),
    ],
)
def test_bank_conflicts(kind, stride, wavefronts, ideal):
    report = profile(f"banks<{kind}>", 1, 32, np.zeros(128, np.float32), stride)
    line = report.at("T value = s[")
    assert (line.shared_requests, line.wavefronts, line.ideal_wavefronts) == (1, wavefronts, ideal)
    assert line.shared_bytes == 32 * 4 * ideal and not report.findings
    assert report.arrays["s"] == ("shared", (1056,), 4 * ideal)


@pytest.mark.parametrize(("pad", "ways"), [(0, 32), (1, 1)])
def test_transposes(pad, ways):
    x, out = floats(64, 64), np.zeros((64, 64), np.float32)
    report = profile(f"transpose<{pad}>", (2, 2), (32, 8), x, out, 64)
    assert np.array_equal(out, x.T) and not report.findings
    rows, columns = report.at("tile[threadIdx.y + k]"), report.at("out[(i + k) * n + j]")
    for line in (rows, columns):
        assert (line.requests, line.sectors, line.ideal_sectors) == (128, 512, 512)
        assert line.shared_requests == line.ideal_wavefronts == 128
    assert (rows.wavefronts, columns.wavefronts) == (128, 128 * ways)
    assert columns.worst_wavefronts == ways and report.shared_bytes == 4 * 32 * (32 + pad)


def test_part_of_a_warp_and_floating_point_operations():
    report = profile("guarded", 2, 64, floats(52), np.zeros(52, np.float32), 52)
    assert report.at("if (i < n)").active_lanes == 128
    line = report.at("out[i] =")
    assert (line.executions, line.active_lanes, line.requests) == (2, 52, 4)
    assert line.sectors == line.ideal_sectors == 2 * (4 + 3)  # 20 lanes: 80 bytes
    assert line.flops == report.flops == 2 * 52 and line.lane_share == 52 / 64


def test_lanes_that_loop_differently_meet_again():
    x, out = floats(192), np.zeros(64, np.float32)
    report = profile("uneven", 1, 64, x, out)
    line = report.at("sum += x[")
    assert (line.executions, line.active_lanes) == (12, 2 * 2 * (32 + 16 + 16))
    assert line.requests == 12  # of each warp, in both rounds: all lanes, then twice the odd ones
    assert report.at("out[threadIdx.x] =").requests == 2


def test_device_functions_by_their_callers():
    x, out = floats(32), np.zeros(32, np.float32)
    report = profile("calls", 1, 32, x, out)
    assert np.allclose(out[:16], x[:16] ** 2 + x[16:] ** 2)
    line = report.at("float value = x[i]")
    assert (line.requests, line.executions, line.active_lanes) == (3, 3, 48)
    assert report.flops == 48 + 16 and line.sectors == 3 * 2


SCOPE_OF_TWO_BRANCHES = """
__global__ void kernel(float* x) {
#if __CUDA_ARCH__ >= 900
    for (int i = threadIdx.x; i < 64; i += 64) {
#elif defined(ALL)
    {
#else
# if 1
#  endif
    for (int i = threadIdx.x; i < 64; i += 32) {
#endif
        x[i] = 2 * x[i];
    }
}
"""
BY_A_MACRO = """
#define KERNEL(name) __global__ void name(float* x)
KERNEL(kernel) {
    for (int i = threadIdx.x; i < 64; i += 32)
        x[i] = 2 * x[i];
}
"""


@pytest.mark.parametrize("code", [SCOPE_OF_TWO_BRANCHES, BY_A_MACRO])
@pytest.mark.parametrize("end", ["", "__global__ void other() {}\n"])
def test_where_a_kernel_ends(code, end):
    x = floats(64)
    twice = x.copy()
    report = lab.profile(raw_kernel(code + end, "kernel"), 1, 32, twice)
    assert np.array_equal(twice, 2 * x) and not report.findings
    assert report.at("x[i] =").active_lanes == 64
    assert ("other" in str(report)) == ("#define" in code and end != "")


def test_atomics_and_their_contention():
    x, bins = np.arange(64, dtype=np.int32) % 4, np.zeros(4, np.int32)
    report = profile("histogram", 1, 64, x, bins)
    assert bins.tolist() == [16] * 4 and not report.findings
    own, total = report.at("atomicAdd(&own"), report.at("atomicAdd(bins")
    assert (own.atomics, own.contention, own.shared_requests) == (64, 2 * 7, 2)
    assert (own.requests, own.sectors) == (2, 8)  # of x
    assert (total.atomics, total.contention, total.requests, total.sectors) == (4, 0, 1, 1)


def test_lanes_stay_together_through_shuffles_and_barriers():
    x, out = floats(64), np.zeros(128, np.float32)
    report = profile("tiles", 1, 64, x, out)
    for text in ("float value = x", "out[threadIdx.x] = value", "out[threadIdx.x + 64]"):
        assert (report.at(text).requests, report.at(text).sectors) == (2, 8)
    assert report.at("for (int step").flops == 4 * 64


def test_structures_are_moved_by_their_parts():
    points, out = floats(32, 3), np.zeros((32, 3), np.float32)
    report = profile("move", 1, 32, points.view("V12"), out.view("V12"))
    assert np.array_equal(out, points)
    assert (report.totals.requests, report.totals.sectors) == (6, 6 * 12)


def test_structures_passed_by_value_are_read_by_the_caller():
    code = r"""
__device__ float sum(float4 v) { return v.x + v.y + v.z + v.w; }
__global__ void rows(const float4* x, float* out) { out[threadIdx.x] = sum(x[threadIdx.x]); }
"""
    x, out = floats(32, 4), np.zeros(32, np.float32)
    report = lab.profile(raw_kernel(code, "rows"), 1, 32, x, out)
    assert np.allclose(out, x.sum(1), atol=1e-6) and not report.notes
    assert (report.totals.requests, report.totals.sectors) == (2, 16 + 4)
    union = "union Both { float4 v; float f[4]; };"
    code = union + code.replace("sum(x[threadIdx.x])", "Both{x[threadIdx.x]}.f[2]")
    report = lab.profile(raw_kernel(code, "rows"), 1, 32, x, out)
    assert np.array_equal(out, x[:, 2]) and "passed by value" in report.notes[0]


def test_what_is_accessed_more_finely_than_arrays_say():
    x, out = floats(64).astype(np.float16), np.zeros(64, np.float16)
    report = profile("halves", 1, 64, x, out)
    assert np.array_equal(out, x[::-1] + np.float16(1)) and not report.findings
    assert (report.totals.requests, report.totals.sectors, report.totals.wavefronts) == (4, 8, 4)
    assert report.flops == 64
    y = np.full(32, 2.0, np.float32)
    report = profile("bytes", 1, 32, y)  # is run once more, on what there was
    assert np.array_equal(y, np.full(32, np.uint32(2**30 & 0xFFFFFF).view(np.float32)) + 1)
    assert not report.findings


def test_what_is_allowed_is_not_reported():
    x, out = floats(256), np.zeros(1, np.float32)
    report = profile("fine", 4, 64, x, out, np.zeros(4, np.float32))
    assert [f.kind for f in report.findings] == ["harmless"] and report.findings == report.warnings
    assert "store the same value" in str(report)
    assert abs(out[0] - x.astype(float).sum()) < 1e-4


def test_a_wide_access_that_begins_inside_and_ends_outside_is_an_error():
    code = """__global__ void twice(const float* x, float* out, int n) {
        int i = threadIdx.x;
        if (4 * i < n) ((float4*)out)[i] = ((const float4*)x)[i];
    }"""
    x, out = np.ones(103, np.float32), np.zeros(104, np.float32)
    report = lab.profile(raw_kernel(code, "twice"), 1, 32, x, out, np.int32(103))
    (error,) = report.errors
    assert "index 103 of x, which has 103 elements" in error.message
    assert error.accesses[0].thread == (25, 0, 0)


def test_some_blocks_and_records():
    x, out = floats(640), np.zeros(640, np.float32)
    report = profile("copy<float>", 10, 64, x, out, 1, blocks=[0, 3], records=1000)
    assert (report.blocks, report.grid_blocks, report.accesses) == (2, 10, 256)
    assert "sampled: 2 of 10" in report.notes[0] and out[64:192].any() == 0
    first = report.records[0]
    assert (first["op"], first["array"], first["thread"], first["size"]) == ("load", "x", 0, 4)
    assert set(report.records["block"]) == {0, 3} and len(report.records) == 256


def test_every_form_of_the_report():
    report = profile("banks<float>", 1, 32, np.zeros(128, np.float32), 4)
    data = json.loads(report.json())
    assert data["totals"] == asdict(report.totals) and data["name"] == "banks<float>"
    html, svg, text = report._repr_html_(), report.picture().svg(), str(report)
    for form in (html, svg, text):
        assert "T value = s[" in form and "x4" in form
    assert [line.lineno for line in report.lines] == sorted(line.lineno for line in report.lines)


def test_grid_barriers_order_blocks():
    code = r"""
#include <cooperative_groups.h>
__global__ void shift(float* x, float* out, int sync) {
    __shared__ float keep[32];
    int i = blockIdx.x * 32 + threadIdx.x;
    keep[threadIdx.x] = i;
    x[i] = i;
    if (sync) cooperative_groups::this_grid().sync();
    out[i] = x[(i + 40) % 128] - keep[threadIdx.x];
}"""
    kernel = raw_kernel(code, "shift", enable_cooperative_groups=True)
    x, out = floats(128), np.zeros(128, np.float32)
    report = lab.profile(kernel, 4, 32, x, out, 1)
    assert not report.findings and out.tolist() == [(i + 40) % 128 - i for i in range(128)]
    report = lab.profile(kernel, 4, 32, floats(128), out, 0)
    assert report.races and not report.errors
    with pytest.raises(lab.LabError, match="needs all blocks"):
        lab.profile(kernel, 4, 32, x, out, 1, blocks=2)


def test_tensor_cores_are_said_not_to_be_counted():
    code = r"""
#include <mma.h>
using namespace nvcuda::wmma;
__global__ void square(const __half* x, float* out) {
    __shared__ float s[256];
    fragment<matrix_a, 16, 16, 16, __half, row_major> a;
    fragment<matrix_b, 16, 16, 16, __half, row_major> b;
    fragment<accumulator, 16, 16, 16, float> sum;
    fill_fragment(sum, 0.0f);
    load_matrix_sync(a, x, 16);
    load_matrix_sync(b, x, 16);
    mma_sync(sum, a, b, sum);
    store_matrix_sync(s, sum, 16, mem_row_major);
    __syncthreads();
    for (int i = threadIdx.x; i < 256; i += 32) out[i] = s[i];
}"""
    x, out = floats(16, 16).astype(np.float16), np.zeros((16, 16), np.float32)
    report = lab.profile(raw_kernel(code, "square"), 1, 32, x, out)
    assert np.allclose(out, x.astype(np.float32) @ x.astype(np.float32), atol=1e-3)
    assert not report.findings and len(report.notes) == 2
    assert "WMMA" in str(report) and "tensor cores" in str(report)
    assert report.at("load_matrix_sync(a").requests == 0
    assert report.at("out[i] = s[i]").requests == 8


def test_accesses_of_one_array_in_a_line_are_told_apart():
    code = """
__global__ void two(const float* x, float* y, int n) {
    int i = threadIdx.x;
    y[i] = x[i] * x[(i * 8) % n] + x[i / 2];
    y[i] = fmaf(x[i], x[8 * i], 1.0f);
}"""
    x = floats(256)
    report = lab.profile(raw_kernel(code, "two"), 1, 32, x, floats(32), np.int32(256))
    parts = {part.text: part.sectors for part in report.at("x[i] * x").parts if part.op == "load"}
    assert parts == {"x[i]": 4, "x[(i * 8) % n]": 32, "x[i / 2]": 2}
    parts = {part.text: part.sectors for part in report.at("fmaf").parts if part.op == "load"}
    assert parts == {"x": 36}, "g++ names the call"


PAST_THE_END = "extern __shared__ float s[]; __global__ void k(float* x) { s[threadIdx.x] = 1; }"
WITHOUT_END = """
__device__ int f(int n) { return n * f(n + 1); }
__global__ void k(float* x) { *x = f(1); }
"""


@pytest.mark.parametrize(
    ("code", "fix"),
    [
        (PAST_THE_END, "launch with more dynamic shared memory"),
        (WITHOUT_END, "does a function call itself without end?"),
    ],
)
def test_memory_that_a_launch_lacks(code, fix):
    (error,) = lab.profile(raw_kernel(code, "k"), 1, 1024, floats(4)).errors
    assert error.kind == "bounds" and error.hint.startswith(fix)


def test_what_ends_a_kernel_is_in_the_report():
    report = profile("refuses", 1, 32, np.arange(32, dtype=np.float32))
    (error,) = report.errors
    assert error.kind == "exception" and "x[threadIdx.x] < 3" in str(error)
    assert error.accesses[0].thread == (3, 0, 0)
    code = r"""
__global__ void wild(float* x) {
    __shared__ float s[4][4];
    int t = threadIdx.x;
    s[t / 4][t % 4 + 1] = 2;
    if (t == 3)
        *(float*)0x123456789000 = x[t];
}"""
    report = lab.profile(raw_kernel(code, "wild"), 1, 15, floats(16))
    assert sorted((error.kind, *error.lines) for error in report.errors) == [
        ("bounds", 5),
        ("bounds", 7),
    ]
    assert "index 4 in a dimension of 4" in str(report) and "outside of all arrays" in str(report)
    assert all(error.accesses[0].thread == (3, 0, 0) for error in report.errors)
    report = profile("guarded", 1, 32, floats(32), None, 32)
    (error,) = report.errors
    assert error.kind == "bounds" and "null pointer" in str(error) and "2 * x[i]" in str(error)


@pytest.mark.parametrize(
    ("family", "version"),
    [("matmul", "naive"), ("transpose", "tile"), ("transpose", "padded"), ("reduce", "sequential")],
)
def test_both_dialects_have_the_same_figures(family, version):
    totals = []
    for dialect in ("numba", "cupy"):
        total = Counts()
        (found,) = ladders.profile_versions(family, version, dialect)
        for launch in found.launches:
            assert not launch.report.findings
            total.add(launch.report.totals)
        total.executions = total.active_lanes = 0  # a statement is a line or two, or three
        totals.append(total)
    assert totals[0] == totals[1] and totals[0].requests


def test_a_launcher_s_dynamic_shared_memory():
    from kernels.cuda_c.common import Kernel, as_passed
    from kernels.launchers.common import launcher

    code = """__global__ void turn(float* x) {
    extern __shared__ float s[];
    s[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = s[31 - threadIdx.x];
}"""
    x = np.arange(32, dtype=np.float32)
    with lab.profiled() as launches:
        launcher("turn", "only", Kernel(code, "turn", (), (), as_passed, shared=128), 1, 32)(x)
    assert np.array_equal(x, np.arange(32)[::-1])
    assert not launches[0].report.errors and not launches[0].report.races


def test_a_barrier_of_the_library_orders_what_is_around_it():
    code = """
    #include <cooperative_groups.h>
    #include <cuda/barrier>
    __global__ void copy(const int* in, int* out, int waits) {
        __shared__ cuda::barrier<cuda::thread_scope_block> bar;
        __shared__ int s[64];
        auto block = cooperative_groups::this_thread_block();
        if (block.thread_rank() == 0) init(&bar, block.size());
        block.sync();
        s[threadIdx.x] = in[threadIdx.x];
        if (waits) bar.arrive_and_wait();
        out[threadIdx.x] = s[63 - threadIdx.x];
    }"""
    kernel = raw_kernel(code, "copy", ("--std=c++17",))
    values, out = np.arange(64, dtype=np.int32), np.zeros(64, np.int32)
    report = lab.profile(kernel, 1, 64, values, out, 1)
    assert not report.findings and (out == values[::-1]).all()
    assert lab.profile(kernel, 1, 64, values, out, 0).races


def test_objects_with_virtual_functions():
    code = """
    struct Shape { __device__ virtual float area() const = 0; };
    struct Square : Shape {
        float side;
        __device__ Square(float side) : side(side) {}
        __device__ float area() const override { return side * side; }
    };
    __global__ void areas(float* x) {
        Square square(x[threadIdx.x]);
        const Shape* shape = &square;
        x[threadIdx.x] = shape->area();
    }"""
    x = np.arange(32, dtype=np.float32)
    report = lab.profile(raw_kernel(code, "areas"), 1, 32, x)
    assert not report.findings and (x == np.arange(32) ** 2).all()
