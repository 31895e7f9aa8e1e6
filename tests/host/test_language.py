"""What CUDA C has beyond C++: indices, memory spaces, vector types, maths, printf, clocks."""

from __future__ import annotations

import math
import re
import subprocess
import sys
import time
from fractions import Fraction

import numpy as np
import pytest
from scipy import special as sp

from kernels import raw_kernel, raw_module
from kernels.host import source
from kernels.support.errors import CompileError, LaunchError


@pytest.mark.parametrize("grid, block", [((5,), (33,)), ((3, 2), (4, 8)), ((2, 3, 2), (3, 2, 5))])
def test_every_index_once(order, grid, block):
    kernel = raw_kernel(
        """
        struct Place { int block, thread; };
        __device__ int linear(uint3 i, dim3 n) { return (i.z * n.y + i.y) * n.x + i.x; }
        extern "C" __global__ void places(Place* out) {
            int b = linear(blockIdx, gridDim), t = linear(threadIdx, blockDim);
            out[b * (blockDim.x * blockDim.y * blockDim.z) + t] = Place{b, t};
        }
        """,
        "places",
    )
    blocks, threads = math.prod(grid), math.prod(block)
    out = np.full((blocks, threads, 2), -1, np.int32)
    kernel(grid, block, (out.view("i4,i4"),))
    np.testing.assert_array_equal(out[..., 0], np.arange(blocks)[:, None].repeat(threads, 1))
    np.testing.assert_array_equal(out[..., 1], np.arange(threads)[None].repeat(blocks, 0))


def test_memory_spaces():
    kernel = raw_kernel(
        """
        __constant__ float weights[3] = {0.25f, 0.5f, 0.25f};
        __device__ const int OFFSET = 100;
        __device__ int calls = 0;
        extern __shared__ __align__(16) unsigned char raw[];
        namespace user {
        __global__ void spaces(float* out, int n) {
            float* first = reinterpret_cast<float*>(raw);
            __shared__ struct { int a; float b[4]; } record;
            __shared__ volatile int flag, *pointer;
            int t = threadIdx.x;
            if (t == 0) { record.a = OFFSET; flag = 7; pointer = &flag; record.b[3] = 2; }
            first[t] = t;
            __syncthreads();
            atomicAdd(&calls, 1);
            out[t] = weights[t % 3] + record.a + *pointer + record.b[3] + first[n - 1 - t];
        }
        }
        """,
        "user::spaces",
    )
    out = np.zeros(9, np.float32)
    kernel((1,), (9,), (out, 9), shared_mem=36)
    t = np.arange(9)
    np.testing.assert_array_equal(out, np.array([0.25, 0.5, 0.25])[t % 3] + 109 + 8 - t)


def test_shared_memory_is_poisoned_not_zeroed():
    kernel = raw_kernel(
        """
        __global__ void unset(float* out) {
            __shared__ float s[4];
            extern __shared__ float d[];
            out[blockIdx.x * 2] = s[1];
            out[blockIdx.x * 2 + 1] = d[1];
            s[1] = d[1] = 0;
        }
        """,
        "unset",
    )
    out = np.zeros(6, np.float32)
    kernel((3,), (1,), (out,), shared_mem=8)
    assert np.isnan(out).all()


def test_constants_are_uploaded_and_shared_by_the_kernels_of_a_module():
    """As `cupy.RawModule.get_global` is used, with np.ndarray where CuPy's programs have cupy's."""
    module = raw_module(
        """
        __constant__ float weights[3];
        static __device__ int calls, scale[2] = {2, 3};
        namespace user { __constant__ __align__(8) double shift = 0.5; }
        __device__ int helper(int x) { return x + 1; }
        template <int N> __global__ void count() { atomicAdd(&calls, N); }
        __global__ void apply(float* out) {
            out[threadIdx.x] = weights[threadIdx.x] * scale[1] + user::shift + helper(calls);
        }
        """,
        name_expressions=("count<7>",),
    )
    np.ndarray((3,), np.float32, module.get_global("weights", "cpu"))[:] = 1, 10, 100
    np.ndarray((2,), np.int32, module.get_global("scale", "cpu"))[1] = 4
    np.ndarray((), np.float64, module.get_global("user::shift", "cpu"))[...] = 0.25
    module.get_function("count<7>")((2,), (3,), ())
    assert module.get_global("calls", "cpu").view(np.int32) == 42
    out = np.zeros(3, np.float32)
    module.get_function("apply")((1,), (3,), (out,))
    np.testing.assert_array_equal(out, np.array([4, 40, 400]) + 0.25 + 43)
    with pytest.raises(CompileError, match="no variable 'wieghts'; it has weights, calls, scale"):
        module.get_global("wieghts")
    with pytest.raises(CompileError, match="no kernel 'count<8>'.*name_expressions"):
        module.get_function("count<8>")


def test_shared_variables_outside_of_functions():
    module = raw_module("""
        __shared__ float tile[4], *pointer;
        namespace user { __shared__ int big[12000]; }
        __global__ void unset(float* out) {
            if (threadIdx.x == 0) out[blockIdx.x] = tile[3] + user::big[5];
            tile[3] = user::big[5] = 0;
        }
        """)
    out = np.zeros(3, np.float32)
    module.get_function("unset")((3,), (2,), (out,))
    assert np.isnan(out).all()
    code = "__shared__ char a[49100], b[53]; __global__ void big() { a[0] = b[0]; }"
    with pytest.raises(LaunchError, match="49153 bytes .*static shared memory"):
        raw_kernel(code, "big")((1,), (1,), ())


def test_vector_types():
    kernel = raw_kernel(
        """
        __device__ float4 operator+(float4 a, float4 b) {
            return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
        }
        __global__ void vectors(const float4* a, float* b, float3 shift, int2* sizes) {
            float4 v = a[threadIdx.x] + make_float4(shift.x, shift.y, shift.z, 1);
            reinterpret_cast<float4*>(b)[threadIdx.x] = v;
            sizes[threadIdx.x] = make_int2(sizeof(float3), alignof(double2));
        }
        """,
        "vectors",
    )
    a = np.arange(16, dtype=np.float32).reshape(4, 4)
    b, sizes = np.zeros_like(a), np.zeros((4, 2), np.int32)
    kernel((1,), (4,), (a, b, np.array([10, 20, 30], np.float32), sizes))
    np.testing.assert_array_equal(b, a + np.array([10, 20, 30, 1]))
    np.testing.assert_array_equal(sizes, [[12, 16]] * 4)


def test_maths(rng):
    expressions = {
        "sqrtf(x)": np.sqrt,
        "rsqrtf(x)": lambda x: 1 / np.sqrt(x),
        "rsqrt(x)": lambda x: 1 / np.sqrt(x),
        "expf(-x)": lambda x: np.exp(-x),
        "__expf(x)": np.exp,
        "exp(x)": np.exp,
        "__logf(x)": np.log,
        "__powf(x, 1.5f)": lambda x: x**1.5,
        "powf(x, 2)": lambda x: x**2,
        "fmaf(x, x, 1)": lambda x: x * x + 1,
        "__fdividef(1, x)": lambda x: 1 / x,
        "max(x, 1.0f) - min(x, 0.5f)": lambda x: np.maximum(x, 1) - np.minimum(x, 0.5),
        "fminf(x, INFINITY)": lambda x: x,
        "tanhf(x) + erff(x)": lambda x: np.tanh(x) + np.vectorize(math.erf)(x),
        "sinpif(x) - cospif(x)": lambda x: np.sin(np.pi * x) - np.cos(np.pi * x),
        "__saturatef(x)": lambda x: np.clip(x, 0, 1),
        "abs(-x) + fabsf(-x)": lambda x: 2 * x,
        "__ldg(in + i)": lambda x: x,
        "floorf(x) + ceil(x) + truncf(x)": lambda x: np.floor(x) + np.ceil(x) + np.trunc(x),
        "exp10f(x)": lambda x: 10**x,
        "normcdff(x)": lambda x: np.vectorize(lambda v: 0.5 * math.erfc(-v / 2**0.5))(x),
        "__frcp_rn(x) * __fsqrt_rn(x)": lambda x: 1 / np.sqrt(x),
        "erfinv(x * 0.33) + erfinvf(x / 4)": lambda x: sp.erfinv(x * 0.33) + sp.erfinv(x / 4),
        "erfcinvf(x / 2)": lambda x: sp.erfcinv(x / 2),
        "erfcinv(exp(-100.0 * x))": lambda x: sp.erfcinv(np.exp(-100 * x)),
        "normcdfinvf(x / 3.5f)": lambda x: sp.ndtri(x / 3.5),
        "erfcxf(x) + erfcx(20 * x)": lambda x: sp.erfcx(x) + sp.erfcx(20 * x),
        "cyl_bessel_i0f(x) - cyl_bessel_i1(-2 * x)": lambda x: sp.i0(x) + sp.i1(2 * x),
        "norm3df(x, 2, 3) + rnorm3df(x, 2, 3)": lambda x: (
            np.sqrt(x * x + 13) + 1 / np.sqrt(x * x + 13)
        ),
        "norm4d(1e200 * x, 0, 0, 1e200) / 1e200": lambda x: np.sqrt(x * x + 1),
        "normf(1, &x) * rnormf(1, &x)": np.ones_like,
    }
    lines = "\n".join(f"out[{r} * n + i] = {e};" for r, e in enumerate(expressions))
    code = "__global__ void maths(const float* in, float* out, int n) { int i = threadIdx.x;"
    code += f"float x = in[i];\n{lines}\n}}"
    x = rng.uniform(0.01, 3, 64).astype(np.float32)
    out = np.zeros((len(expressions), 64), np.float32)
    raw_kernel(code, "maths")((1,), (64,), (x, out, 64))
    for (text, function), row in zip(expressions.items(), out):
        expected = function(x.astype(float))
        np.testing.assert_allclose(row, expected, rtol=2e-6, atol=2e-6, err_msg=text)


def test_bits():
    cases = {
        "__popc(x)": lambda x: x.bit_count(),
        "__clz(x)": lambda x: 32 - x.bit_length(),
        "__ffs(x)": lambda x: (x & -x).bit_length(),
        "__brev(x)": lambda x: int(f"{x:032b}"[::-1], 2),
        "__popcll(((unsigned long long)x << 32) | x)": lambda x: 2 * x.bit_count(),
        "__clzll(x)": lambda x: 64 - x.bit_length(),
        "__umulhi(x, 0x9E3779B9u)": lambda x: x * 0x9E3779B9 >> 32,
        "__byte_perm(x, 0, 0x0123)": lambda x: int.from_bytes(x.to_bytes(4, "little"), "big"),
        "__funnelshift_l(x, x, 7)": lambda x: (x << 7 | x >> 25) & 0xFFFFFFFF,
        "__float_as_uint(__uint_as_float(x))": lambda x: x,
        "__float2int_rn(x * 0.5f) * 0 + __float2uint_rz(-3.5f)": lambda x: 0,
        "min(x, 5u) + max(3, 2)": lambda x: min(x, 5) + 3,
        "__dp4a(x, 0x01020304u, 1u)": lambda x: (
            1 + sum(b * f for b, f in zip(x.to_bytes(4, "little"), (4, 3, 2, 1)))
        ),
        "__byte_perm(x, 0, 0x89AB)": lambda x: int.from_bytes(x.to_bytes(4, "little"), "big"),
        "__funnelshift_rc(1, x, 40)": lambda x: x,
        "__fns(x, 31, -2)": lambda x: (
            x.bit_length() - 1 if x.bit_count() > 1 and (x := x - (1 << x.bit_length() - 1)) else M
        ),
        "__uhadd(x, 3)": lambda x: (x + 3) // 2,
        "__dp4a((int)x, 0x01010101, 0)": lambda x: (
            sum(b - 256 * (b > 127) for b in x.to_bytes(4, "little")) & 0xFFFFFFFF
        ),
    }
    M = 0xFFFFFFFF
    lines = "\n".join(f"out[{r} * 6 + threadIdx.x] = {e};" for r, e in enumerate(cases))
    code = "__global__ void bits(const unsigned* in, unsigned* out) {"
    code += f"unsigned x = in[threadIdx.x];\n{lines}\n}}"
    x = np.array([0, 1, 0x80000000, 0xFFFFFFFF, 0x12345678, 40], np.uint32)
    out = np.zeros((len(cases), 6), np.uint32)
    raw_kernel(code, "bits")((1,), (6,), (x, out))
    for (text, function), row in zip(cases.items(), out):
        assert row.tolist() == [function(int(v)) for v in x], text


@pytest.mark.parametrize("bits", [8, 16])
def test_simd(rng, bits):
    """Each expression on lanes, as NumPy computes it in wider integers."""
    n = 32 // bits
    signed, unsigned = np.dtype(f"int{bits}"), np.dtype(f"uint{bits}")
    low, high, top = np.iinfo(signed).min, np.iinfo(signed).max, np.iinfo(unsigned).max
    cases = {
        "__vabs": (signed, lambda x, y: abs(x)),
        "__vabsss": (signed, lambda x, y: np.minimum(abs(x), high)),
        "__vnegss": (signed, lambda x, y: np.minimum(-x, high)),
        "__vadd": (signed, lambda x, y: x + y),
        "__vaddss": (signed, lambda x, y: np.clip(x + y, low, high)),
        "__vaddus": (unsigned, lambda x, y: np.minimum(x + y, top)),
        "__vsubss": (signed, lambda x, y: np.clip(x - y, low, high)),
        "__vsubus": (unsigned, lambda x, y: np.maximum(x - y, 0)),
        "__vavgu": (unsigned, lambda x, y: (x + y + 1) // 2),
        "__vavgs": (signed, lambda x, y: np.sign(x + y) * ((abs(x + y) + 1) // 2)),
        "__vhaddu": (unsigned, lambda x, y: (x + y) // 2),
        "__vabsdiffs": (signed, lambda x, y: abs(x - y)),
        "__vabsdiffu": (unsigned, lambda x, y: abs(x - y)),
        "__vmaxs": (signed, np.maximum),
        "__vminu": (unsigned, np.minimum),
        "__vcmpgts": (signed, lambda x, y: -(x > y).astype(int)),
        "__vsetleu": (unsigned, lambda x, y: x <= y),
        "__vcmpeq": (unsigned, lambda x, y: -(x == y).astype(int)),
    }
    a, b = rng.integers(0, 2**32, (2, 64), np.uint32)
    a[:3], b[:3] = [0x80808080, 0x80008000, 7], [0x80808080, 0x7FFFFFFF, 7]
    one = ("__vabs", "__vabsss", "__vnegss")
    calls = [f"{name}{n}(x{'' if name in one else ', y'})" for name in cases]
    calls += [f"__vsads{n}(x, y)", f"__vimax3_{'s16x2' if bits == 16 else 's32'}(x, y, 5)"]
    lines = "\n".join(f"out[{r} * 64 + threadIdx.x] = {call};" for r, call in enumerate(calls))
    code = "__global__ void simd(const unsigned* a, const unsigned* b, unsigned* out) {"
    code += f"unsigned x = a[threadIdx.x], y = b[threadIdx.x];\n{lines}\n}}"
    out = np.zeros((len(calls), 64), np.uint32)
    raw_kernel(code, "simd")((1,), (64,), (a, b, out))
    for call, (dtype, function), row in zip(calls, cases.values(), out):
        x, y = (v.view(dtype).astype(int) for v in (a, b))
        expected = np.asarray(function(x, y)).astype(int) & top
        np.testing.assert_array_equal(row.view(unsigned), expected, err_msg=call)
    x, y = (v.view(signed).reshape(64, n).astype(int) for v in (a, b))
    np.testing.assert_array_equal(out[-2], abs(x - y).sum(axis=1))
    wide = "<i2" if bits == 16 else "<i4"
    five = np.array([5, 0] if bits == 16 else [5])
    x, y = (v.view(wide).reshape(64, -1) for v in (a, b))
    expected = np.maximum(np.maximum(x, y), five)
    np.testing.assert_array_equal(out[-1].view(wide).reshape(64, -1), expected)


@pytest.mark.parametrize(("kind", "prefix"), [("float", "f"), ("double", "d")])
def test_rounding_modes(rng, kind, prefix):
    """The neighbours of the exact result, which fractions give."""
    dtype = np.dtype(kind if kind == "double" else np.float32)
    operations = {
        "add": lambda a, b: a + b,
        "sub": lambda a, b: a - b,
        "mul": lambda a, b: a * b,
        "div": lambda a, b: a / b,
    }
    calls = [(f"__{prefix}{name}_{m}", name, m) for name in operations for m in ("rz", "ru", "rd")]
    lines = "\n".join(
        f"out[{r} * 64 + i] = {call}(a[i], b[i]);" for r, (call, *_) in enumerate(calls)
    )
    code = f"__global__ void rounded(const {kind}* a, const {kind}* b, {kind}* out) {{"
    code += f"int i = threadIdx.x;\n{lines}\n}}"
    a, b = (rng.standard_normal((2, 64)) * 10.0 ** rng.integers(-4, 4, (2, 64))).astype(dtype)
    out = np.zeros((len(calls), 64), dtype)
    raw_kernel(code, "rounded")((1,), (64,), (a, b, out))
    for (call, name, mode), row in zip(calls, out):
        for x, y, got in zip(a, b, row):
            exact = operations[name](Fraction(float(x)), Fraction(float(y)))
            up = mode == "ru" or (mode == "rz" and exact < 0)
            beyond = np.nextafter(got, dtype.type(-np.inf if up else np.inf))
            near, far = Fraction(float(got)), Fraction(float(beyond))
            assert far < exact <= near if up else near <= exact < far, (call, x, y, got)


def test_conversions_in_a_rounding_mode():
    code = """
    __global__ void convert(const long long* x, float* out) {
        out[0] = __ll2float_rd(x[0]);
        out[1] = __ll2float_ru(x[0]);
        out[2] = __double2float_rz(-0.1);
        out[3] = __fmaf_ru(1.0f, 1.0f, 1e-30f);
        out[4] = __fsqrt_rd(2.0f);
    }
    """
    out = np.zeros(5, np.float32)
    raw_kernel(code, "convert")((1,), (1,), (np.array([2**24 + 1]), out))
    tenth, one = np.float32(0.1), np.float32(1)
    assert out[:2].tolist() == [2**24, 2**24 + 2]
    assert out[2] == -np.nextafter(tenth, np.float32(0))
    assert out[3] == np.nextafter(one, np.float32(2))
    assert out[4] == np.float32(1.4142135)


def test_scalar_instructions_of_inline_ptx(rng):
    signed = np.int32
    cases = {
        "bfe.u32 %0, %1, 4, 8;": lambda a, b: a >> 4 & 255,
        "bfe.s32 %0, %1, 28, 8;": lambda a, b: a.view(signed) >> 28,
        "bfi.b32 %0, %1, %2, 8, 4;": lambda a, b: b & ~np.uint32(0xF00) | (a & 15) << 8,
        "lop3.b32 %0, %1, %2, 0xff00ff00, 0xca;": lambda a, b: a & b | ~a & np.uint32(0xFF00FF00),
        "prmt.b32 %0, %1, %2, 0x0123;": lambda a, b: a.byteswap(),
        "shl.b32 %0, %1, 40;": lambda a, b: 0 * a,
        "shr.s32 %0, %1, 40;": lambda a, b: a.view(signed) >> 31,
        "mul.hi.u32 %0, %1, %2;": lambda a, b: a.astype(np.uint64) * b >> 32,
        "mad.lo.s32 %0, %1, %2, 7;": lambda a, b: a * b + 7,
        "max.s32 %0, %1, %2;": lambda a, b: np.maximum(a.view(signed), b.view(signed)),
        "min.u32 %0, %1, %2;": np.minimum,
        "popc.b32 %0, %1;": lambda a, b: np.bitwise_count(a),
        "not.b32 %0, %1;": lambda a, b: ~a,
        "rem.u32 %0, %1, %2;": lambda a, b: a % b,
        "{.reg .u32 l; add.cc.u32 l, %1, %2; addc.u32 %0, 0, 5;}": lambda a, b: (
            (a.astype(np.uint64) + b >> 32) + 5
        ),
        "{.reg .b64 w; mov.b64 w, {%1, %2}; mov.b64 {_, %0}, w;}".replace("_", "%0"): (
            lambda a, b: b
        ),
        "mov.u32 %0, %%nwarpid;": lambda a, b: np.full(64, 2),
        "mov.u32 %0, WARP_SZ;": lambda a, b: np.full(64, 32),
        "{st.release.gpu.global.u32 [%3], %1; fence.acq_rel.sys; ld.acquire.gpu.global.u32 %0,"
        " [%3]; st.volatile.global.u32 [%3], 0;}": lambda a, b: a,
        "mov.u32 %0, %%lanemask_le;": lambda a, b: (2 << np.arange(64) % 32) - 1,
        "activemask.b32 %0;": lambda a, b: np.full(64, -1),
        "{.reg .pred p; setp.gt.u32 p, %1, %2; vote.sync.ballot.b32 %0, p, -1;}": lambda a, b: (
            np.packbits((a > b).reshape(2, 32), axis=1, bitorder="little")
            .view(np.uint32)
            .repeat(32)
        ),
        "atom.global.add.u32 %0, [%3], 1;": lambda a, b: np.zeros(64),
        "{red.global.max.u32 [%3], 9; mov.u32 %0, 1;}": lambda a, b: np.ones(64),
    }
    lines = "\n".join(
        f'asm volatile("{text}" : "=r"(r) : "r"(x), "r"(y), "l"(count + {r} * 64 + i));'
        f" out[{r} * 64 + i] = r;"
        for r, text in enumerate(cases)
    )
    code = (
        "__global__ void ptx(const unsigned* a, const unsigned* b, unsigned* out, unsigned* count)"
    )
    code += f"{{ unsigned i = threadIdx.x, x = a[i], y = b[i], r;\n{lines}\n}}"
    a, b = rng.integers(1, 2**32, (2, 64), np.uint32)
    out, count = np.zeros((2, len(cases), 64), np.uint32)
    raw_kernel(code, "ptx")((1,), (64,), (a, b, out, count))
    for (text, function), row in zip(cases.items(), out):
        expected = np.asarray(function(a, b)).astype(np.int64) & 0xFFFFFFFF
        np.testing.assert_array_equal(row, expected, err_msg=text)
    assert (count[:-2] == 0).all() and (count[-2] == 1).all() and (count[-1] == 9).all()


def test_a_kernel_may_have_the_name_of_a_special_function():
    code = "__global__ void norm(float* x) { x[0] = norm3df(x[0], 2, 3) + erfinvf(0); }"
    x = np.full(1, 6, np.float32)
    raw_kernel(code, "norm")((1,), (1,), (x,))
    assert x[0] == 7


@pytest.mark.parametrize("text", ["add.sat.s32", "add.rz.f32", "sub.rm.f32"])
def test_a_modifier_of_inline_ptx_is_not_ignored(text):
    kind, letter = ("float", "f") if text.endswith("f32") else ("int", "r")
    code = f"""__global__ void k({kind}* x) {{
        asm("{text} %0, %0, %0;" : "+{letter}"(*x));
    }}"""
    with pytest.raises(CompileError, match=f"line 2: inline PTX: {text} is not available"):
        raw_kernel(code, "k").compile()


def test_printf_and_clock(capsys):
    kernel = raw_kernel(
        r"""
        #include <stdio.h>
        __global__ void hello(long long* ticks) {
            long long before = clock64();
            printf("block %d thread %u: %5.2f %s\n", blockIdx.x, threadIdx.x, 1.5f, "ok");
            ticks[threadIdx.x] = clock64() - before;
        }
        """,
        "hello",
    )
    ticks = np.zeros(2, np.int64)
    kernel((1,), (2,), (ticks,))
    assert capsys.readouterr().out == "block 0 thread 0:  1.50 ok\nblock 0 thread 1:  1.50 ok\n"
    assert (ticks > 0).all()


def test_options_and_templates():
    code = """
    template <typename T, int N> __device__ __forceinline__ inline T power(T x) {
        T result = 1;
        #pragma unroll N
        for (int i = 0; i < N; ++i) result *= x;
        return result;
    }
    template <int N, typename T> __global__ void powers(T* x, bool negate = false) {
        x[threadIdx.x] = (negate ? -SCALE : SCALE) * power<T, N>(x[threadIdx.x]);
    }
    """
    x = np.arange(4, dtype=np.int64)
    raw_kernel(code, "powers<3, long long>", ("-DSCALE=2", "--use_fast_math"))(1, 4, (x, True))
    assert x.tolist() == [0, -2, -16, -54]


def test_a_structure_by_value():
    code = """
    struct Line { double slope; int shift; };
    __global__ void along(Line line, double* x) {
        x[threadIdx.x] = x[threadIdx.x] * line.slope + line.shift;
    }
    """
    line = np.array([(2.5, -1)], np.dtype([("slope", "f8"), ("shift", "i4")], align=True))[0]
    x = np.arange(3.0)
    raw_kernel(code, "along")((1,), (3,), (line, x))
    assert x.tolist() == [-1, 1.5, 4]


def test_many_os_threads_give_the_same(monkeypatch):
    """Each OS thread has its own block state; global atomics are safe between them."""
    from kernels.support import thread_pool

    kernel = raw_kernel(
        """
        __global__ void count(unsigned long long* total, double* sum, int* blocks) {
            __shared__ int mine;
            if (threadIdx.x == 0) mine = 0;
            __syncthreads();
            atomicAdd(&mine, 1);
            __syncthreads();
            atomicAdd(total, 1ull);
            atomicAdd(sum, 0.5);
            if (threadIdx.x == 0) blocks[blockIdx.x] = mine;
        }
        """,
        "count",
    )
    before = thread_pool.get_num_threads()
    total, sums, blocks = np.zeros(1, np.uint64), np.zeros(1), np.zeros(3000, np.int32)
    try:
        thread_pool.set_num_threads(4)
        for _ in range(3):  # the first launch only shows that the second is worth several threads
            kernel((3000,), (64,), (total, sums, blocks))
    finally:
        thread_pool.set_num_threads(before)
    assert total[0] == 3 * 3000 * 64
    assert sums[0] == 1.5 * 3000 * 64
    assert (blocks == 64).all()


def test_the_portable_switch():
    """The runtime on `ucontext`, as on a processor without a switch in assembly of its own.

    With little patience too: a thread that spins for ever is an error.
    """
    code = """
import numpy as np
from kernels import raw_kernel, raw_module
from kernels.host import compiler
compiler.RUNTIME_FLAGS += ["-DMGH_UCONTEXT", "-DMGH_SPIN_LIMIT=1000"]
k = raw_kernel('''__global__ void flip(int* x) {
    __shared__ int s[64]; s[threadIdx.x] = x[threadIdx.x]; __syncthreads();
    x[threadIdx.x] = s[63 - threadIdx.x] + __shfl_xor_sync(~0u, s[threadIdx.x], 1); }''', "flip")
x = np.arange(64, dtype=np.int32)
k((1,), (64,), (x,))
assert x.tolist() == [63 - i + (i ^ 1) for i in range(64)], x
k = raw_kernel('''__global__ void spin(int* x) {
    while (atomicCAS(x, 1, 1) != 1) { if (threadIdx.x == 3) *x = 0; } }''', "spin")
try:
    k((1,), (64,), (x,))
except Exception as error:
    print(error)
k = raw_kernel("__global__ void wait(volatile int* x) { while (*x == 0) {} }", "wait")
try:
    k((1,), (64,), (np.zeros(1, np.int32),))
except Exception as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    message = r"(\w+): thread .* spins on a value that nothing changes .*enable_cooperative_groups"
    assert re.findall(message, done.stdout) == ["spin", "wait"], done.stderr


def test_rewriting_keeps_lines_and_finds_names():
    code = """
/* __global__ void no(int); */ // __shared__ int no;
__global__ void __launch_bounds__(256, 2)
first(const float* __restrict__ a,
      int n = 3) {
    __shared__ float s[4][4], t[2]; // "comment"
    extern __shared__
        double d[];
    #pragma unroll
    for (int i = 0; i < n; ++i) s[0][0] = a[i];
}
static __global__ void second() {}
"""
    assert source.kernels(code) == {
        "first": ["const float* __restrict__ a", "int n = 3"],
        "second": [],
    }
    text, _ = source.rewrite(code, gnu=True)
    assert text.count("\n") == code.count("\n")
    assert "float mgh_d_s[4][4], mgh_d_t[2]; MGH_SHARED(s) MGH_SHARED(t)" in text
    assert "double* const d = (double*)mgh::dynamic_shared()" in text
    assert "#pragma GCC unroll 32" in text
    nest = """
    #pragma unroll
    for (int k = 0; k < 8; ++k) {
        #pragma unroll
        for (int i = 0; i < 8; ++i) x += i;
    }
    #pragma unroll 4
    for (int i = 0; i < 8; ++i)
        #pragma unroll
        for (int j = 0; j < 8; ++j) x += j;
    """
    pragmas = [line.strip() for line in source.rewrite(nest, gnu=True)[0].splitlines()]
    pragmas = [line for line in pragmas if line.startswith("#")]
    assert pragmas == ["#pragma GCC unroll 32"]
    assert source.rewrite(nest, gnu=False) == (nest, [])
    assert source.parameter_name("const float* __restrict__ a", 0) == "a"


KERNEL_OF_MANY = """
#define SIZE 32
namespace n% { __device__ int v%; }
__global__ void k%(const float* x, float* y, int n) {
    __shared__ float s[SIZE];
    #pragma unroll
    for (int i = 0; i < 4; i++) { if (i < n) { s[threadIdx.x] = x[i]; } }
    while (n > 3) { n--; }
    y[blockIdx.x] = s[threadIdx.x];
}
"""


def test_a_source_of_many_kernels_takes_linear_time():
    def seconds(count: int) -> float:
        code = "".join(KERNEL_OF_MANY.replace("%", str(i)) for i in range(count))
        started = time.thread_time()
        names = [f"k{i}" for i in range(count)]
        assert source.plain_kernels(code) == list(source.kernels(code)) == names
        assert source.variables(code) == [f"n{i}::v{i}" for i in range(count)]
        assert source.rewrite(code, gnu=True)[0].count("mgh_d_s") == count
        return time.thread_time() - started

    few = min(seconds(50 + i) for i in range(3))
    assert seconds(400) < 20 * few  # 8 times as much text; it took over 100 times as long


PUBLIC = r"""
#include <cuda_runtime.h>
#define CHECK_SYNC do { __syncthreads(); } while (0)
// don't stop here
template <typename T>
struct SharedMemory {
    __device__ inline operator T*() { extern __shared__ int __smem[]; return (T*)__smem; }
};
__device__ __noinline__ static float rsqrt_of(float rsqrt) { return rsqrtf(rsqrt); }
__global__ static void mix(float *out, const int n, float2 p, double (*unused)[3])
{
    float *smem = SharedMemory<float>();
    for (int r = 0; r < 2; ++r) {
        __shared__ volatile float v[32];
        v[threadIdx.x] = r;
        CHECK_SYNC;
        smem[threadIdx.x] = v[31 - threadIdx.x] + max(1.0f, p.x) + min(blockDim.x, n);
        CHECK_SYNC;
    }
    uint3 t = threadIdx;
    __builtin_assume(n > 0);
    dim3 g(2, 3);
    float s, c;
    sincosf(0.f, &s, &c);
    out[t.x] = smem[t.x] + g.y + c + rsqrt_of(4.0f) + pow(2.0f, 2) + abs(-1)
        + __popc(__ballot_sync(~0u, 1)) + exp10f(0) + fabs(p.y);
}
"""


def test_habits_of_public_code(order):
    """The shared-memory template of NVIDIA's samples, macros around barriers, `static` kernels."""
    out = np.zeros(32, np.float32)
    args = (out, 8, np.array([0.5, -2], np.float32), None)
    raw_kernel(PUBLIC, "mix")((1,), (32,), args, shared_mem=128)
    assert (out == 54.5).all()
