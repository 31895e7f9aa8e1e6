"""cuRAND's device API: its numbers, and their distributions."""

from __future__ import annotations

import numpy as np
import pytest

from kernels import raw_kernel, raw_module
from kernels.support.errors import CompileError

MODULE = raw_module(
    r"""
#include <curand_kernel.h>
template <class S> __global__ void begin(unsigned* bits, float* uniform) {
    int t = threadIdx.x;
    S state;
    curand_init(1234ull, t == 3 ? 0x100000001ull : t, 5 * t, &state);
    for (int i = 0; i < 3; ++i) bits[t * 3 + i] = curand(&state);
    uniform[t] = curand_uniform(&state);
}
template <class S> __device__ void skip_sequences(int n, S* s) { skipahead_sequence(n, s); }
__device__ void skip_sequences(int n, curandStateMRG32k3a* s) { skipahead_subsequence(n, s); }
template <class S> __global__ void skips(unsigned* skipped, unsigned* drawn, int n) {
    S one, other;
    curand_init(7, threadIdx.x, 0, &one);
    curand_init(7, 0, threadIdx.x % 5, &other);
    skipahead(n, &one);
    skip_sequences(threadIdx.x, &other);
    for (int i = threadIdx.x % 5; i < n; ++i) curand(&other);
    skipped[threadIdx.x] = curand(&one);
    drawn[threadIdx.x] = curand(&other);
}
template <class S> __global__ void setup(S* states) {
    curand_init(99, threadIdx.x, 0, &states[threadIdx.x]);
}
template <class S>
__global__ void draws(S* states, float* normal, double* wide, double* large, int n) {
    S state = states[threadIdx.x];
    for (int i = 0; i < n; ++i) {
        int at = threadIdx.x * n + i;
        normal[at] = curand_normal(&state);
        wide[at] = curand_uniform_double(&state);
        large[at] = curand_log_normal_double(&state, 1.0, 0.5);
    }
    states[threadIdx.x] = state;
}
__global__ void fours(uint4* bits, unsigned* ones, float4* normal) {
    curandStatePhilox4_32_10_t four, one;
    curand_init(5, 0, threadIdx.x, &four);
    one = four;
    bits[threadIdx.x] = curand4(&four);
    for (int i = 0; i < 4; ++i) ones[4 * threadIdx.x + i] = curand(&one);
    normal[threadIdx.x] = curand_normal4(&four);
}
""",
    name_expressions=tuple(
        f"{kernel}<{state}>"
        for kernel in ("begin", "skips", "setup", "draws")
        for state in ("curandState", "curandStatePhilox4_32_10_t", "curandStateMRG32k3a_t")
    ),
)
# What NVIDIA's own header gives (10.4, run as PTX on a CPU): three numbers of four threads, and
# then a uniform one.
KNOWN = {
    "curandState": (
        [624778773, 1867875844, 3739671282, 75263415, 1929890176, 3433179576, 3133269694,
         876976425, 1978919871, 1722977012, 653245830, 657778123],
        ["0x1.d216ce0000000p-2", "0x1.17284c0000000p-3", "0x1.dfdb6c0000000p-1",
         "0x1.831a460000000p-4"],
    ),
    "curandStatePhilox4_32_10_t": (
        [546353992, 3665621163, 1140953199, 1698527859, 495137217, 2264860335, 169660287,
         3300436590, 4184216506, 1454166846, 1373721980, 1358877270],
        ["0x1.97948e0000000p-1", "0x1.601d080000000p-3", "0x1.ef90080000000p-2",
         "0x1.c8f8d60000000p-1"],
    ),
    "curandStateMRG32k3a_t": (
        [3379073520, 2521876100, 213678209, 2170368389, 1655077947, 420608390, 3679789757,
         3292843176, 400665314, 43555361, 375957342, 1261024584],
        ["0x1.7e84480000000p-2", "0x1.d489c40000000p-4", "0x1.a5ba1e0000000p-1",
         "0x1.3497860000000p-1"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("state", KNOWN)
def test_the_numbers_are_curands(order, state):
    bits, uniform = np.zeros(12, np.uint32), np.zeros(4, np.float32)
    MODULE.get_function(f"begin<{state}>")((1,), (4,), (bits, uniform))
    assert bits.tolist() == KNOWN[state][0]
    assert [float(u).hex() for u in uniform] == KNOWN[state][1]


@pytest.mark.parametrize("state", KNOWN)
@pytest.mark.parametrize("count", [5, 1000])
def test_skipping_is_drawing(state, count):
    skipped, drawn = np.zeros((2, 20), np.uint32)
    MODULE.get_function(f"skips<{state}>")((1,), (20,), (skipped, drawn, count))
    np.testing.assert_array_equal(skipped, drawn)


def test_philox_is_random123s():
    """The first counter with the key 0, from the table of known answers of Salmon et al."""
    code = MODULE.code + "__global__ void k(uint4* x) { curandStatePhilox4_32_10_t s;"
    code += " curand_init(0, 0, 0, &s); *x = curand4(&s); }"
    x = np.zeros(4, np.uint32)
    raw_kernel(code, "k")((1,), (1,), (x,))
    assert [f"{word:08x}" for word in x] == ["6627e8d5", "e169c58d", "bc57ac4c", "9b00dbd8"]


@pytest.mark.parametrize("state, size", [*zip(KNOWN, (48, 64, 48))])
@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.float64])
def test_distributions_from_states_in_memory(state, size, dtype):
    n = 2000 if dtype == np.uint8 else 20
    states = np.zeros(16 * size // np.dtype(dtype).itemsize, dtype)
    normal = np.zeros(16 * n, np.float32)
    wide, large = np.zeros((2, 16 * n))
    MODULE.get_function(f"setup<{state}>")((1,), (16,), (states,))
    MODULE.get_function(f"draws<{state}>")((1,), (16,), (states, normal, wide, large, n))
    assert len(np.unique(normal)) > 0.99 * normal.size and (0 < wide).all() and (wide <= 1).all()
    if dtype == np.uint8:
        error = 4 / np.sqrt(normal.size)
        assert abs(normal.mean()) < error and abs(normal.var() - 1) < 2 * error
        assert abs(wide.mean() - 0.5) < error / 3
        assert abs(np.log(large).mean() - 1) < error and abs(np.log(large).std() - 0.5) < error


def test_four_at_a_time(order):
    bits, ones, normal = np.zeros(32, np.uint32), np.zeros(32, np.uint32), np.zeros(32, np.float32)
    MODULE.get_function("fours")((1,), (8,), (bits, ones, normal))
    np.testing.assert_array_equal(bits, ones)
    assert np.isfinite(normal).all() and len(np.unique(normal)) > 8


def test_mrg32k3a_is_lecuyers():
    """The first numbers after 12345, ..., 12345, as published, and some far on: NVIDIA's header."""
    code = (
        MODULE.code
        + """__global__ void k(double* x, float* f, unsigned* n) {
        curandStateMRG32k3a s;
        curand_init(0, 0, 0, &s);
        for (int i = 0; i < 4; ++i) x[i] = curand_uniform_double(&s);
        curand_init(77ull << 32 | 5, 3, 9, &s);
        skipahead_sequence(7, &s);
        skipahead(1000000007ull, &s);
        *n = curand(&s);
        *f = curand_normal(&s);
        x[4] = curand_normal_double(&s);
    }"""
    )
    x, f, n = np.zeros(5), np.zeros(1, np.float32), np.zeros(1, np.uint32)
    raw_kernel(code, "k")((1,), (1,), (x, f, n))
    published = [0.1270111220, 0.3185275653, 0.3091860155, 0.8258468629]
    np.testing.assert_allclose(x[:4], published, rtol=0, atol=3e-10)  # of ten digits; scaled
    assert x[:2].tolist() == [0.12701112207614923, 0.31852756547095751] and n[0] == 1539938453
    np.testing.assert_allclose([f[0], x[4]], [0.39890408, 2.82938194], rtol=2e-6)


def test_other_generators_are_named():
    code = """
    #include <curand_kernel.h>
    __global__ void k(curandStateSobol32* s) { curand(s); }
    """
    with pytest.raises(CompileError, match="line 3: cuRAND beyond XORWOW, Philox and MRG32k3a"):
        raw_kernel(code, "k").compile()
