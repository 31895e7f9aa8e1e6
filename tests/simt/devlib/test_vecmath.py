"""Float32 mathematics in compiled kernels: accuracy over the whole range, and vectorisation."""

from __future__ import annotations

import functools
import math
import re

import numba
import numpy as np
import pytest

from kernels.simt.devlib import registry, vecmath

SEED = 20261121
STRIDE = 65_537  # of the 2^32 float32 patterns: about 65 000, each exponent and sign many times

WIDE = np.longdouble
REFERENCES = {
    "exp": np.exp,
    "exp2": np.exp2,
    "exp10": lambda x: np.power(WIDE(10), x),
    "expm1": np.expm1,
    "log": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "log1p": np.log1p,
    "tanh": np.tanh,
    "erf": lambda x: np.vectorize(math.erf)(x.astype(np.float64)).astype(WIDE),
    "erfc": lambda x: np.vectorize(math.erfc)(x.astype(np.float64)).astype(WIDE),
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "cbrt": np.cbrt,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
}
ULP = 2.0
WIDE_NAMES = ["exp", "log", "tanh", "sin", "cos", "tan", "erf", "expm1", "log1p"]
ODD = ("asin", "atan", "sinh", "asinh", "atanh")


@functools.cache
def loop(name: str, fastmath: bool = False):
    function = getattr(registry, name)

    @numba.njit(fastmath=fastmath)
    def run(x, out):
        for i in range(x.size):
            out[i] = function(x[i])

    return run


def arguments() -> np.ndarray:
    rng = np.random.default_rng(SEED)
    print(f"seed {SEED}")
    patterns = np.arange(0, 2**32, STRIDE, dtype=np.uint32).view(np.float32)
    limits = [88.72283, 88.72284, -87.33654, -103.97, -103.98, 128, -126, -149, -150, 38.53, -45]
    edges = [0.0, -0.0, 1, -1, math.inf, -math.inf, math.nan, 1e-45, 0.5, 0.625, 2, math.pi / 2]
    near_one = 1 + np.arange(-3000, 3000) * 2.0**-24
    parts = [
        patterns,
        np.array(limits + edges + [1.1754942e-38, 1.1754944e-38, 3.4028235e38], np.float32),
        near_one.astype(np.float32),
        rng.uniform(-10, 10, 40_000).astype(np.float32),
        rng.uniform(-110, 110, 20_000).astype(np.float32),
    ]
    return np.concatenate(parts)


def errors_in_ulp(got: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """Distance in units of the last place of the rounded result; inf where only one is finite."""
    with np.errstate(over="ignore"):
        rounded = exact.astype(got.dtype)
    same = (got == rounded) | (np.isnan(got) & np.isnan(rounded))
    with np.errstate(invalid="ignore"):
        distance = np.abs(got.astype(WIDE) - exact) / np.abs(np.spacing(rounded)).astype(WIDE)
    comparable = np.isfinite(got) & np.isfinite(rounded)
    return np.where(comparable, distance, np.where(same, 0, np.inf)).astype(np.float64)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("fastmath", [False, True])
@pytest.mark.parametrize("name", REFERENCES)
def test_within_two_ulp(name, fastmath):
    x = arguments()
    if fastmath:
        x = x[np.isfinite(x)]
    got = np.empty_like(x)
    loop(name, fastmath)(x, got)
    exact = REFERENCES[name](x.astype(WIDE))
    if fastmath:  # which promises nothing about infinities and NaN
        finite = np.isfinite(exact.astype(np.float32))
        x, got, exact = x[finite], got[finite], exact[finite]
    ulp = errors_in_ulp(got, exact)
    worst = np.argmax(ulp)
    assert ulp[worst] <= ULP, f"{name}({x[worst]!r}) = {got[worst]!r}, off by {ulp[worst]} ulp"


def wide_arguments() -> np.ndarray:
    rng = np.random.default_rng(SEED)
    print(f"seed {SEED}")
    edges = [0.0, -0.0, 1, -1, math.inf, -math.inf, math.nan, 5e-324, 2.2e-308, 1.7e308, 709.78]
    edges += [709.79, -708.4, -745.13, -745.14, 0.625, -0.625, 20, 2**0.5, 0.5**0.5]
    parts = [
        rng.integers(0, 2**64, 60_000, dtype=np.uint64).view(np.float64),
        np.array(edges),
        1 + np.arange(-3000, 3000) * 2.0**-53,
        rng.uniform(-10, 10, 40_000),
        rng.uniform(-760, 760, 40_000),
        np.exp(rng.uniform(-20, 20, 40_000)),
    ]
    return np.concatenate(parts)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.skipif(np.finfo(WIDE).nmant < 63, reason="no longer float to compare with")
@pytest.mark.parametrize("fastmath", [False, True])
@pytest.mark.parametrize("name", WIDE_NAMES)
def test_float64_within_two_ulp(name, fastmath):
    x = wide_arguments()
    if fastmath:
        x = x[np.isfinite(x)]
    got = np.empty_like(x)
    loop(name, fastmath)(x, got)
    exact = REFERENCES[name](x.astype(WIDE))
    if fastmath:
        finite = np.isfinite(exact.astype(np.float64))
        x, got, exact = x[finite], got[finite], exact[finite]
    ulp = errors_in_ulp(got, exact)
    worst = np.argmax(ulp)
    assert ulp[worst] <= ULP, f"{name}({x[worst]!r}) = {got[worst]!r}, off by {ulp[worst]} ulp"


def test_the_float64_nearest_to_a_multiple_of_half_pi():
    """Muller et al., "Handbook of Floating-Point Arithmetic": 61 bits of the angle cancel."""
    x = np.array([6381956970095103.0 * 2.0**797])
    sine, cosine = np.empty_like(x), np.empty_like(x)
    loop("sin")(x, sine)
    loop("cos")(x, cosine)
    assert sine[0] == 1
    assert cosine[0] == pytest.approx(-4.68716592425462761112e-19, rel=1e-15)


def nearest_to_multiples_of_half_pi() -> np.ndarray:
    """For each exponent the float32 that is nearest to one: 24 bits times 2 / pi modulo 1."""
    digits, bits = vecmath.two_over_pi(vecmath.TWO_OVER_PI_BITS), vecmath.TWO_OVER_PI_BITS
    mantissas, found = np.arange(2**23, 2**24, dtype=np.uint64), []
    for exponent in range(-23, 105):
        turn = (digits << (exponent + 64) >> bits) % 2**64
        rest = np.abs((mantissas * np.uint64(turn)).view(np.int64))
        found.append(math.ldexp(int(mantissas[rest.argmin()]), exponent))
    return np.array(found, np.float32)


def test_the_float32_nearest_to_multiples_of_half_pi():
    x = nearest_to_multiples_of_half_pi()
    assert np.float32(16367173 * 2.0**72) in x  # 30 bits of it cancel
    for name in ("sin", "cos", "tan"):
        got = np.empty_like(x)
        loop(name)(x, got)
        assert errors_in_ulp(got, REFERENCES[name](x.astype(WIDE))).max() <= ULP


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", ["exp", "log", "tanh", "erf"])
def test_within_two_ulp_at_millions_of_points(name):
    for first in range(0, 2**32, 2**28):
        x = np.arange(first, first + 2**28, 257, dtype=np.uint64).astype(np.uint32).view(np.float32)
        got = np.empty_like(x)
        loop(name)(x, got)
        assert errors_in_ulp(got, REFERENCES[name](x.astype(WIDE))).max() <= ULP


def test_erfc_ends_at_zero_and_two():
    x = np.array([10.1, 30, math.inf, -10, -math.inf], np.float32)
    got = np.empty_like(x)
    loop("erfc")(x, got)
    assert got.tolist() == [0, 0, 0, 2, 2]


def test_the_measure_can_fail():
    x = np.linspace(1, 2, 100, dtype=np.float32)
    wrong = (np.exp(x.astype(WIDE)) * (1 + 2.0**-21)).astype(np.float32)
    assert errors_in_ulp(wrong, np.exp(x.astype(WIDE))).max() > ULP


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "name", ["expm1", "log1p", "tanh", "erf", "sin", "tan", "cbrt", "sqrt", *ODD]
)
def test_signed_zero_is_kept(name, dtype):
    x = np.array([-0.0, 0.0], dtype)
    out = np.empty_like(x)
    loop(name)(x, out)
    assert out.tolist() == [0, 0]
    assert np.signbit(out).tolist() == [True, False]


@numba.njit
def atan2_loop(y, x, out):
    for i in range(x.size):
        out[i] = registry.atan2(y[i], x[i])


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_atan2_within_two_ulp_and_its_special_cases():
    rng = np.random.default_rng(SEED)
    sizes = np.exp(rng.uniform(-80, 80, (2, 100_000))) * rng.choice([-1, 1], (2, 100_000))
    special = [0.0, -0.0, 1, -1, 1e-45, -1e-45, 3e38, -3e38, math.inf, -math.inf, math.nan]
    pairs = np.stack([g.ravel() for g in np.meshgrid(*[np.array(special)] * 2)])
    near = np.stack([np.ones(2000), 1 + np.arange(-1000, 1000) * 2.0**-24])
    y, x = np.concatenate([sizes, pairs, near], 1).astype(np.float32)
    got = np.empty_like(x)
    atan2_loop(y, x, got)
    exact = np.arctan2(y.astype(WIDE), x.astype(WIDE))
    ulp = errors_in_ulp(got, exact)
    worst = np.argmax(ulp)
    assert ulp[worst] <= ULP, f"atan2({y[worst]!r}, {x[worst]!r}) = {got[worst]!r}"
    known = ~np.isnan(exact)
    assert (np.signbit(got) == np.signbit(exact))[known].all()


@numba.njit
def power_loop(x, y, out):
    for i in range(x.size):
        out[i] = registry.pow(x[i], y[i])


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_power_within_two_ulp_and_its_special_cases(dtype):
    rng = np.random.default_rng(SEED)
    base = np.exp(rng.uniform(-80, 80, 100_000)).astype(dtype)
    power = rng.uniform(-3, 3, base.size).astype(dtype)
    near_one = 1 + rng.uniform(-0.4, 0.4, base.size)
    base = np.concatenate([base, near_one]).astype(dtype)
    power = np.concatenate([power, rng.uniform(-0.9, 0.9, base.size // 2) * 60]).astype(dtype)
    special = [0.0, -0.0, 1, -1, 2, -2, 0.5, -0.5, 3, -3, 1e-45, 1e30]
    special += [math.inf, -math.inf, math.nan]
    if dtype == np.float64:
        special += [5e-324, 2e-310, 1e300, 1e155, -1e155, 2.0**53 + 2, 2.0**60, 1e-300]
    x, y = (grid.ravel() for grid in np.meshgrid(*[np.array(special, dtype)] * 2))
    x, y = np.concatenate([base, x]), np.concatenate([power, y])
    got = np.empty_like(x)
    power_loop(x, y, got)
    ulp = errors_in_ulp(got, np.power(x.astype(WIDE), y.astype(WIDE)))
    worst = np.argmax(ulp)
    assert ulp[worst] <= ULP, f"pow({x[worst]!r}, {y[worst]!r}) = {got[worst]!r}"
    zero = got == 0
    assert (np.signbit(got[zero]) == np.signbit(np.power(x[zero], y[zero]))).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_remainders_are_exact(dtype):
    rng = np.random.default_rng(SEED)
    x = np.concatenate([rng.normal(0, 100, 200), [5, -5, 3, 7, 0.0, -0.0, 1e30, 4.5, -7.5]])
    y = np.concatenate([rng.normal(0, 3, 200), [2, 2, -2, 2, 3, 3, 7, 3, 3]])
    for name in ("fmod", "remainder"):
        function = getattr(registry, name)
        run = numba.njit(lambda a, b, function=function: function(a, b))
        for a, b in zip(x.astype(dtype), y.astype(dtype)):
            result, exact = run(a, b), getattr(math, name)(float(a), float(b))
            assert result == exact, (name, a, b)
            assert math.copysign(1, result) == math.copysign(1, exact)
    assert math.isnan(run(dtype(1), dtype(0)))
    assert run(dtype(1), dtype(math.inf)) == 1


@numba.njit
def fmod_loop(x, y, out):
    for i in range(x.size):
        out[i] = registry.fmod(x[i], y[i])


def test_fmod_is_exact_for_all_exponents():
    rng = np.random.default_rng(SEED)
    x, y = rng.integers(0, 2**32, (2, 200_000), dtype=np.uint64).astype(np.uint32)
    y[:50_000] &= 0x807FFFFF  # subnormal divisors: quotients of up to 277 bits
    special = [0, -0.0, 1, -1, 1.5, 1e-45, -3e38, math.inf, -math.inf, math.nan]
    pairs = np.stack([g.ravel() for g in np.meshgrid(*[np.array(special, np.float32)] * 2)])
    x, y = np.concatenate([np.stack([x, y]).view(np.float32), pairs], 1)
    got = np.empty_like(x)
    fmod_loop(x, y, got)
    with np.errstate(invalid="ignore"):
        exact = np.fmod(x, y)
    np.testing.assert_array_equal(got, exact)
    known = ~np.isnan(exact)
    assert (np.signbit(got) == np.signbit(exact))[known].all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sine_and_cosine_of_pi_x(dtype):
    rng = np.random.default_rng(SEED)
    run = numba.njit(lambda x: (registry.sinpi(x), registry.cospi(x)))
    bound = 4 * np.finfo(dtype).eps
    for x in rng.uniform(-1000, 1000, 500).astype(dtype):
        turns = math.remainder(float(x), 2)
        sine, cosine = run(x)
        assert abs(sine - math.sin(math.pi * turns)) <= bound
        assert abs(cosine - math.cos(math.pi * turns)) <= bound
    for whole in (0, 1, 7, 2**23 + 1, 2**30, -3):
        sine, cosine = run(dtype(whole))
        assert (sine, cosine) == (0, 1 - 2 * (whole % 2))
        half = run(dtype(whole + 0.5)) if abs(whole) < 100 else (1, 0)
        assert (abs(half[0]), half[1]) == (1, 0)
    assert all(map(math.isnan, run(dtype(math.inf))))


def test_integer_powers():
    run = numba.njit(lambda x, n: registry.pow(x, n))
    for n in (-3, 0, 1, 7, 31):
        assert run(np.float32(-1.5), n) == np.float32((-1.5) ** n)


VECTORISED = ["exp", "log", "tanh", "erf", "expm1", "log1p", "exp2", "log2", "log10", "rsqrt"]


def vector_instructions(name: str, kind: str = "float") -> bool:
    run = loop(name)
    x = np.ones(8, np.float32 if kind == "float" else np.float64)
    run(x, np.empty_like(x))
    text = run.inspect_llvm((numba.typeof(x), numba.typeof(x)))
    scalar_calls = re.search(rf"call [^@]*{kind} @(?!llvm\.)", text)
    return scalar_calls is None and any(f"<{lanes} x {kind}>" in text for lanes in (2, 4, 8, 16))


@pytest.mark.parametrize("name", [*VECTORISED, *ODD, "sin", "cos", "tan", "cosh", "cbrt"])
def test_a_loop_vectorises(name):
    assert vector_instructions(name), "something in the function stops the vectoriser"


@pytest.mark.parametrize("name", WIDE_NAMES)
def test_a_loop_of_float64_vectorises(name):
    assert vector_instructions(name, "double")


def test_a_library_call_does_not_vectorise():
    assert not vector_instructions("lgamma")


def test_types_follow_cuda():
    floor, exp = registry.floor, registry.exp

    @numba.njit
    def kinds(f, d, i):
        return floor(f), exp(f), exp(d), exp(i), registry.atan2(f, d)

    kinds.compile("(float32, float64, int32)")
    signature = kinds.overloads[kinds.signatures[0]].signature.return_type
    assert [str(kind) for kind in signature] == ["float32", "float32"] + ["float64"] * 3


@pytest.mark.parametrize(
    "name", ["asin", "acos", "atan", "sinh", "cosh", "asinh", "erfc", "gamma", "lgamma", "fabs"]
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_functions_from_the_c_library(name, dtype):
    x = np.array([0.25, 0.75], dtype)
    out = np.empty_like(x)
    loop(name)(x, out)
    exact = [getattr(math, name)(value) for value in x]
    np.testing.assert_allclose(out, exact, rtol=16 * np.finfo(dtype).eps)


def test_saturate_and_directed_rounding():
    @numba.njit
    def run(x):
        f = registry
        part = f.fdim(x, f.floor(x))
        return f.saturate(x), f.rint(x), f.round_away(x), f.trunc(x), f.ceil(x), part

    assert run(np.float32(2.5)) == (1, 2, 3, 2, 3, 0.5)
    assert run(np.float32(-2.5)) == (0, -2, -3, -2, -2, 0.5)
    assert run(np.float32(math.nan))[0] == 0
