"""`cuda.bf16` against ml_dtypes, and against exact arithmetic."""

from __future__ import annotations

import importlib
import linecache
import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from kernels.simt import cuda
from kernels.simt.cuda import bf16
from kernels.simt.devlib.bf16_names import second_name
from kernels.simt.ir import stubs

SEED = 20261122
BF16 = ml_dtypes.bfloat16


def computed(function, *arrays, dtype=np.float32):
    """`function` of each element (or row of elements), in a kernel."""

    @cuda.jit
    def unary(out, x):
        i = cuda.grid(1)
        if i < out.size:
            out[i] = function(x[i])

    @cuda.jit
    def binary(out, x, y):
        i = cuda.grid(1)
        if i < out.size:
            out[i] = function(x[i], y[i])

    @cuda.jit
    def ternary(out, x, y, z):
        i = cuda.grid(1)
        if i < out.size:
            out[i] = function(x[i], y[i], z[i])

    out = np.zeros(len(arrays[0]), dtype)
    (unary, binary, ternary)[len(arrays) - 1][-(-out.size // 128), 128](out, *arrays)
    return out


def all_at_once(names, *arrays, dtypes):
    """Each function of `names` of its own array, all in one kernel: one compilation."""
    parameters = ", ".join(f"out{i}, x{i}" for i in range(len(names)))
    lines = [
        f"    if i < x{k}.size: out{k}[i] = bf16.{name}(x{k}[i])" for k, name in enumerate(names)
    ]
    text = "\n".join([f"def kernel({parameters}):", "    i = cuda.grid(1)", *lines, ""])
    filename = f"<all at once {names[0]}>"
    linecache.cache[filename] = (len(text), None, text.splitlines(True), filename)
    scope = {"cuda": cuda, "bf16": bf16}
    exec(compile(text, filename, "exec"), scope)
    results = [np.zeros(len(x), dtype) for x, dtype in zip(arrays, dtypes)]
    pairs = [part for pair in zip(results, arrays) for part in pair]
    cuda.jit(scope["kernel"])[4, 128](*pairs)
    return results


@pytest.fixture
def values(rng):
    special = [0.0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 3.4e38, 1e-40]
    return np.array([*special, *rng.normal(size=200), *rng.normal(0, 1e4, 50)], BF16)


def test_arithmetic_rounds_once(values):
    x, y, z = values, values[::-1].copy(), np.roll(values, 7)
    a, b, c = (v.astype(np.float32) for v in (x, y, z))
    with np.errstate(all="ignore"):
        expected = {
            bf16.hadd: a + b,
            bf16.hsub: a - b,
            bf16.hmul: a * b,
            bf16.hdiv: a / b,
            bf16.hmul_sat: np.nan_to_num(np.clip(a * b, 0, 1), nan=0),
            bf16.hmax: np.fmax(a, b),
            bf16.hmin_nan: np.minimum(a, b),
        }
        for function, exact in expected.items():
            np.testing.assert_array_equal(
                computed(function, x, y), exact.astype(BF16).astype(np.float32)
            )
        fused = (a.astype(np.float64) * b + c).astype(BF16).astype(np.float32)
        np.testing.assert_array_equal(computed(bf16.hfma, x, y, z), fused)
        relu = computed(bf16.hfma_relu, x, y, z)
        np.testing.assert_array_equal(relu, np.where(fused < 0, np.float32(0), fused))


def test_functions_are_within_one_unit_in_the_last_place(values):
    x = np.abs(values[np.isfinite(values)])[9:]
    a = x.astype(np.float64)
    names = "sqrt log log2 cos sin exp exp2 tanh floor ceil trunc rint".split()
    small = x[a < 80]
    results = all_at_once(
        [f"h{name}" for name in names], *[small] * len(names), dtypes=[np.float32] * len(names)
    )
    for name, result in zip(names, results):
        expected = getattr(np, name)(small.astype(np.float64))
        np.testing.assert_allclose(result, expected, rtol=2**-7, atol=1e-3)
    np.testing.assert_allclose(computed(bf16.hrcp, x), 1 / a, rtol=2**-8)
    np.testing.assert_allclose(computed(bf16.hrsqrt, x), a**-0.5, rtol=2**-8)


def test_comparisons(values):
    x, y = values, np.roll(values, 3)
    a, b = x.astype(np.float32), y.astype(np.float32)
    unordered = np.isnan(a) | np.isnan(b)
    for name in ("eq", "ne", "lt", "le", "gt", "ge"):
        ordered = getattr(np, {"eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal",
                               "gt": "greater", "ge": "greater_equal"}[name])(a, b)  # fmt: skip
        found = computed(getattr(bf16, f"h{name}u"), x, y, dtype=np.bool_)
        np.testing.assert_array_equal(found, ordered | unordered)
        if name != "ne":
            found = computed(getattr(bf16, f"h{name}"), x, y, dtype=np.bool_)
            np.testing.assert_array_equal(found, ordered)
    np.testing.assert_array_equal(computed(bf16.hisnan, x, dtype=np.bool_), np.isnan(a))
    assert computed(bf16.hisinf, x, dtype=np.int32)[4:7].tolist() == [1, -1, 0]


def rounded(number: int | float, mode: str) -> float:
    """The bfloat16 beside a number, by exact arithmetic."""
    if not number or not math.isfinite(number):
        return number
    exact = Fraction(number)
    unit = Fraction(2) ** (math.floor(math.log2(abs(exact))) - 7)
    low = exact / unit
    whole = {
        "rn": round,
        "rz": math.trunc,
        "rd": math.floor,
        "ru": math.ceil,
    }[mode](low)
    return float(whole * unit)


@pytest.mark.parametrize("mode", ["rn", "rz", "rd", "ru"])
def test_conversions_round_as_their_names_say(mode, rng):
    kinds = {"short": np.int16, "ushort": np.uint16, "int": np.int32, "uint": np.uint32}
    kinds |= {"ll": np.int64, "ull": np.uint64}
    numbers = {}
    for kind, dtype in kinds.items():
        edges = np.iinfo(dtype)
        drawn = rng.integers(edges.min, edges.max, 60, dtype, endpoint=True)
        small = np.array([0, 1, 255, 257], dtype)
        numbers[kind] = np.concatenate([drawn, drawn[:40] >> 7, small])
    names = [f"{kind}2bfloat16_{mode}" for kind in kinds]
    results = all_at_once(names, *numbers.values(), dtypes=[np.float32] * len(kinds))
    for given, found in zip(numbers.values(), results):
        assert found.tolist() == [rounded(int(n), mode) for n in given]
    x = np.array([2.5, -2.5, 3.5, 0.1, -0.1, 100], BF16)
    halves = [x if np.iinfo(dtype).min else x[x >= 0] for dtype in kinds.values()]
    whole = {"rn": np.rint, "rz": np.trunc, "rd": np.floor, "ru": np.ceil}[mode]
    names = [f"bfloat162{kind}_{mode}" for kind in kinds]
    for given, found in zip(halves, all_at_once(names, *halves, dtypes=kinds.values())):
        assert found.tolist() == whole(given.astype(np.float64)).tolist()
    x = rng.normal(size=100).astype(np.float32)
    found = computed(getattr(bf16, f"float2bfloat16_{mode}"), x)
    assert found.tolist() == [rounded(float(v), mode) for v in x]


def test_small_integers_saturate():
    x = np.array([1e9, -1e9, 3.7, -3.7], BF16)
    assert computed(bf16.bfloat162short_rz, x, dtype=np.int16).tolist() == [32767, -32768, 3, -3]
    assert computed(bf16.bfloat162uchar_rz, x, dtype=np.uint8).tolist() == [255, 0, 3, 0]


def test_bits_are_reinterpreted(values):
    bits = values.view(np.uint16)
    finite = ~np.isnan(values)
    found = computed(bf16.bfloat16_as_ushort, values, dtype=np.uint16)
    np.testing.assert_array_equal(found[finite], bits[finite])
    back = computed(bf16.short_as_bfloat16, values.view(np.int16))
    np.testing.assert_array_equal(back, values.astype(np.float32))


@pytest.mark.needs("numba_cuda")
def test_the_names_are_numba_cudas():
    from numba.cuda import bf16 as real

    theirs = {name for name in vars(real) if not name.startswith("_")} - {"bfloat16"}
    assert {name for name in vars(stubs.bf16) if name != "name"} <= theirs


@pytest.mark.needs("numba_cuda")
def test_numba_cuda_compiles_them():
    hadd = bf16.hadd

    @cuda.jit
    def kernel(x):
        a = bf16.float2bfloat16_rz(x[0])
        x[1] = bf16.bfloat162float(hadd(a, bf16.hexp(a)))

    assert "bf16" in kernel.ptx("void(float32[::1])", (8, 0))


def test_the_newer_names_of_conversions(values):
    x = values[np.isfinite(values) & (np.abs(values.astype(np.float32)) < 30000)]
    found = all_at_once(
        ["bfloat16_to_int16_rz", "bfloat16_as_uint16", "bfloat16_to_float32"],
        x, x, x, dtypes=[np.int16, np.uint16, np.float32],
    )  # fmt: skip
    np.testing.assert_array_equal(found[0], x.astype(np.float32).astype(np.int16))
    np.testing.assert_array_equal(found[1], x.view(np.uint16))
    np.testing.assert_array_equal(found[2], x.astype(np.float32))
    whole = np.arange(-1000, 1000, 7, dtype=np.int32)
    up = computed(bf16.int32_to_bfloat16_ru, whole)
    assert up.tolist() == [rounded(int(number), "ru") for number in whole]
    assert (second_name("habs"), second_name("hexp2")) == (None, None)


@pytest.mark.needs("numba_cuda")
def test_all_names_of_numba_cuda_are_there():
    real = importlib.import_module("numba.cuda.bf16")
    registries = {"typing_registry", "target_registry"}
    assert not [name for name in real.__all__ if name not in registries and not hasattr(bf16, name)]
