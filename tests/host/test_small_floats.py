"""<cuda_fp16.h> and <cuda_bf16.h>: every value, CUDA's roundings, arithmetic rounded once."""

from __future__ import annotations

import re
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from kernels import raw_module
from kernels.support.errors import ArgumentError

# For both types: T, T2 and what CUDA calls them are filled in.
CODE = r"""
__global__ void widen_SHORT(const T* x, float* y, int* whole, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) { y[i] = __NAME2float(x[i]); whole[i] = x[i]; }
}
__global__ void narrow_SHORT(const double* x, T* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    y[i] = __float2NAME((float)x[i]);
    y[n + i] = x[i];
    y[2 * n + i] = __float2NAME_rz((float)x[i]);
    y[3 * n + i] = __float2NAME_ru((float)x[i]);
    y[4 * n + i] = __float2NAME_rd((float)x[i]);
    y[5 * n + i] = __ll2NAME_rn((long long)x[i]);
}
__global__ void arithmetic_SHORT(const T* a, const T* b, const T* c, T* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    T results[] = {a[i] + b[i], __hsub(a[i], b[i]), a[i] * b[i], __hdiv(a[i], b[i]),
                   hsqrt(__habs(a[i])), __hmax(a[i], b[i]), __hmin_nan(a[i], b[i]),
                   __hfma(a[i], b[i], c[i])};
    for (int r = 0; r < 8; ++r) y[r * n + i] = results[r];
}
__global__ void pairs_SHORT(const T2* a, T2* y, T2* total, float s) {
    int i = threadIdx.x, n = blockDim.x;
    T2 v = a[i], one = __float2NAME2_rn(1.0f);
    float2 f = __NAME22float2(v);
    y[i] = __hfma2(v, one, __halves2NAME2(__high2NAME(v), __low2NAME(v)));
    y[n + i] = __floats2NAME2_rn(f.x * s, f.y * s) - one * one;
    y[2 * n + i] = __shfl_xor_sync(~0u, v, 1);
    y[3 * n + i] = __hgt2(v, one);
    T mine = __low2NAME(v);
    mine += 1; mine /= T(2); ++mine;
    y[4 * n + i] = T2(__shfl_down_sync(~0u, mine, 1), __hbgeu2(v, one) ? -mine : mine);
    y[5 * n + i] = __NAME2NAME2(__ushort_as_NAME(__NAME_as_ushort(v.y)));
    atomicAdd(total, one);
    atomicAdd(&total[1].y, T(0.5f));
}
__global__ void value_SHORT(T x, T* y) { __shared__ T s[2]; y[0] = x; y[1] = s[1]; }
"""


def text(short: str, name: str, kind: str) -> str:
    """The kernels for one of the types."""
    code = CODE.replace("SHORT", short).replace("NAME", name)
    return re.sub(r"\bT(2?)\b", rf"{kind}\1", code)


MODULE = raw_module(
    "#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n"
    + text("h", "half", "__half")
    + text("b", "bfloat16", "__nv_bfloat16")
)


def kernel(name: str):
    return MODULE.get_function(name)


pytestmark = pytest.mark.filterwarnings("ignore:(invalid|overflow).*in cast:RuntimeWarning")
TYPES = pytest.mark.parametrize(
    "short, dtype", [("h", np.dtype(np.float16)), ("b", np.dtype(ml_dtypes.bfloat16))]
)


def same(a: np.ndarray, b: np.ndarray) -> None:
    """Equal bits, but any NaN equals any other."""
    a, b = np.asarray(a), np.asarray(b)
    assert a.dtype == b.dtype
    both_nan = np.isnan(a.astype(float)) & np.isnan(b.astype(float))
    bits = f"u{a.dtype.itemsize}"
    np.testing.assert_array_equal(a.view(bits)[~both_nan], b.view(bits)[~both_nan])


@TYPES
def test_every_value_widens(short, dtype):
    x = np.arange(65536, dtype=np.uint16).view(dtype)
    y, whole = np.empty(65536, np.float32), np.empty(65536, np.int32)
    kernel(f"widen_{short}")((256,), (256,), (x, y, whole, x.size))
    same(y, x.astype(np.float32))
    exact = np.nan_to_num(x.astype(float), nan=0)  # conversions to integers saturate
    np.testing.assert_array_equal(whole, np.trunc(exact).clip(-(2**31), 2**31 - 1).astype(int))


def hard_values(dtype: np.dtype, rng: np.random.Generator) -> np.ndarray:
    """Values, ties between them, what is a little to either side, and what overflows."""
    x = rng.integers(0, 0x7C00 if dtype == np.float16 else 0x7F7F, 3000, dtype=np.uint16)
    near, far = x.view(dtype).astype(float), (x + 1).astype(np.uint16).view(dtype).astype(float)
    tie = (near + np.where(np.isfinite(far), far, near)) / 2
    values = np.concatenate([near, tie, tie * (1 + 2.0**-40), tie * (1 - 2.0**-40)])
    values = np.concatenate([values, rng.standard_normal(2000) * 1e-7, [0, 65520, 65519.99, 1e9]])
    return np.concatenate([values, -values])


@TYPES
def test_conversions_round_as_cuda_says(rng, short, dtype):
    x = hard_values(dtype, rng)
    n = x.size
    y = np.empty((6, n), dtype)
    kernel(f"narrow_{short}")((n // 256 + 1,), (256,), (x, y, n))
    single = x.astype(np.float32)
    same(y[0], single.astype(dtype))
    if dtype == np.float16:  # NumPy's is rounded once; ml_dtypes goes through float32
        same(y[1], x.astype(dtype))
    else:
        expected = [nearest(v, dtype) for v in x[::50]]
        same(y[1][::50], np.array(expected, dtype))
    toward_zero, up, down = y[2:5].astype(float)
    finite = np.isfinite(toward_zero)
    assert finite.all()
    assert (np.abs(toward_zero) <= np.abs(single)).all()
    assert (down <= single).all() and (up >= single).all()
    exact = y[0].astype(float) == single
    for row in (toward_zero, up, down):
        assert (row[exact] == single[exact]).all()
    magnitude = y[2].view(np.uint16) & 0x7FFF
    step = np.maximum(y[3].view(np.uint16) & 0x7FFF, y[4].view(np.uint16) & 0x7FFF) - magnitude
    assert (step == ~exact).all()  # the other of up and down is the next value outwards
    few = np.flatnonzero(np.abs(x) < 2.0**62)[::20]
    whole = [nearest(int(v), dtype) for v in x[few]]
    same(y[5][few], np.array(whole, dtype))


def nearest(value: float | Fraction, dtype: np.dtype) -> float:
    """The value of `dtype` nearest to an exact number; ties to the even one."""
    guess = int(np.array(float(value), np.float32).astype(dtype).view(np.uint16))
    candidates = [b for b in (guess - 1, guess, guess + 1) if 0 <= b <= 0xFFFF]
    values = {b: float(np.uint16(b).view(dtype)) for b in candidates}
    finite = {b: v for b, v in values.items() if np.isfinite(v)}
    if not np.isfinite(values[guess]):
        return values[guess]
    best = min(finite, key=lambda b: (abs(Fraction(finite[b]) - Fraction(value)), b & 1))
    return finite[best]


@TYPES
def test_arithmetic_is_rounded_once(rng, short, dtype):
    n = 2048
    a, b, c = (rng.standard_normal(n).astype(dtype) for _ in range(3))
    a[:8] = [0, -0.0, np.inf, np.nan, 1, 2, -np.inf, 3]
    b[:8] = [-0.0, 0, np.inf, 2, 0, np.nan, 1, 3]
    tiny = float(ml_dtypes.finfo(dtype).smallest_subnormal)
    if dtype == np.float16:  # halfway between two values, and something tiny to one side
        a[8:11], b[8:11], c[8:11] = 1 + 2.0**-5, 1 + 2.0**-6, [tiny, -tiny, 0]
    else:
        a[8:11], b[8:11], c[8:11] = 1 + 2.0**-3, 1 + 2.0**-5, [tiny, -tiny, 0]
    y = np.empty((8, n), dtype)
    kernel(f"arithmetic_{short}")((8,), (256,), (a, b, c, y, n))
    x, z = a.astype(np.float64), b.astype(np.float64)
    with np.errstate(all="ignore"):
        exact = [x + z, x - z, x * z, x / z, np.sqrt(np.abs(x))]
    for row, expected in zip(y, exact):  # float32 holds what decides: see small_float.h
        same(row, expected.astype(np.float32).astype(dtype))
    largest = np.fmax(x, z).astype(dtype)
    largest[:2] = 0  # +0 of two zeros
    same(y[5], largest)
    smallest = np.minimum(x, z).astype(dtype)
    smallest[:2] = -0.0
    same(y[6], smallest)
    fused = [Fraction(float(p)) * Fraction(float(q)) + Fraction(float(r)) for p, q, r in
             zip(a[8:400], b[8:400], c[8:400])]  # fmt: skip
    same(y[7][8:400], np.array([nearest(v, dtype) for v in fused], dtype))
    assert y[7][8] != y[7][9]


@TYPES
def test_pairs_shuffles_and_atomics(order, rng, short, dtype):
    a = rng.integers(-20, 20, (32, 2)).astype(dtype)
    y, total = np.empty((6, 32, 2), dtype), np.zeros((2, 2), dtype)
    kernel(f"pairs_{short}")((2,), (32,), (a, y, total, 0.5))
    x = a.astype(float)
    mine = (x[:, 0] + 1) / 2 + 1
    shifted = np.append(mine[1:], mine[-1])
    expected = [
        x + x[:, ::-1],
        x / 2 - 1,
        x[np.arange(32) ^ 1],
        x > 1,
        np.stack([shifted, np.where((x >= 1).all(1), -mine, mine)], 1),
        x[:, [1, 1]],
    ]
    for row, values in zip(y, expected):
        np.testing.assert_array_equal(row.astype(float), values)
    np.testing.assert_array_equal(total.astype(float), [[64, 64], [0, 32]])


@TYPES
def test_arguments(short, dtype):
    value = kernel(f"value_{short}")
    y = np.zeros(2, dtype)
    for given in (2.5, np.float32(2.5), dtype.type(2.5)):
        value((1,), (1,), (given, y))
        assert y[0] == 2.5 and np.isnan(y[1])  # shared memory is poisoned: NaN here too
    value((1,), (1,), (1e39, y))
    assert np.isinf(y[0])
    value((1,), (1,), (-3, y))
    assert y[0] == -3
    wrong = np.zeros(2, ml_dtypes.bfloat16 if dtype == np.float16 else np.float16)
    with pytest.raises(ArgumentError, match=f"argument 2 .y. points to {dtype}, but the array"):
        value((1,), (1,), (1.0, wrong))
    if short == "b":  # CuPy's programs keep bfloat16 in uint16
        value((1,), (1,), (1.0, y.view(np.uint16)))
        assert y[0] == 1
