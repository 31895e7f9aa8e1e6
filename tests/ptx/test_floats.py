"""Each form of the instructions on floating-point numbers, and of conversions, against NumPy."""

from __future__ import annotations

import fractions
import math

import ml_dtypes
import numpy as np
import pytest

from tests.ptx.helpers import DTYPES, entry, evaluate, run, special_values

FLOATS = ("f32", "f64")
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


@pytest.fixture(autouse=True)
def quiet():
    with np.errstate(all="ignore"):
        yield


def operands(kind: str, count: int) -> list[np.ndarray]:
    return [np.roll(special_values(kind, seed), 7 * seed) for seed in range(count)]


def same(got: np.ndarray, want: np.ndarray) -> None:
    """Bit for bit, but for the bits of NaN."""
    want = np.asarray(want).astype(got.dtype)
    nan = np.isnan(want)
    assert np.array_equal(np.isnan(got), nan)
    bits = f"u{got.dtype.itemsize}"
    assert np.array_equal(got.view(bits)[~nan], want.view(bits)[~nan])


def check(form: str, kind: str, inputs: int, expected) -> None:
    given = operands(kind, inputs)
    got = evaluate(form, kind, *((kind, values) for values in given))
    same(got, expected(*given))


def flushed(x: np.ndarray) -> np.ndarray:
    return np.where(np.abs(x) < np.finfo(x.dtype).tiny, np.copysign(0, x), x).astype(x.dtype)


def minimum(a, b):
    """Of a number and NaN the number; -0 is less than 0."""
    low = np.where(np.signbit(a) & (a == b), a, np.fmin(a, b))
    return np.where(np.signbit(b) & (a == b), b, low)


def maximum(a, b):
    return -minimum(-a, -b)


ARITHMETIC = {"add": np.add, "sub": np.subtract, "mul": np.multiply}


@pytest.mark.parametrize("kind", FLOATS)
def test_arithmetic(kind):
    for opcode, expected in ARITHMETIC.items():
        check(f"{opcode}.rn.{kind}", kind, 2, expected)
    check(f"div.rn.{kind}", kind, 2, np.divide)
    check(f"sqrt.rn.{kind}", kind, 1, np.sqrt)
    check(f"rcp.rn.{kind}", kind, 1, lambda a: 1 / a)
    check(f"neg.{kind}", kind, 1, np.negative)
    check(f"abs.{kind}", kind, 1, np.abs)
    check(f"min.{kind}", kind, 2, minimum)
    check(f"max.{kind}", kind, 2, maximum)
    check(f"copysign.{kind}", kind, 2, lambda a, b: np.copysign(b, a))


def exact(x: float) -> fractions.Fraction:
    return fractions.Fraction(float(x))


def rounded(value: fractions.Fraction, dtype: np.dtype, mode: str):
    """A number rounded as .rn, .rz, .rm or .rp, by looking at its neighbours."""
    if value == 0:
        return dtype.type(0)
    exponent = abs(value.numerator).bit_length() - value.denominator.bit_length()
    exponent += abs(value) >= fractions.Fraction(2) ** exponent
    digits, least = np.finfo(dtype).nmant + 1, int(np.finfo(dtype).minexp)
    unit = fractions.Fraction(2) ** (max(exponent, least + 1) - digits)
    low = value / unit // 1
    rest = value / unit - low
    up = {
        "rz": value < 0 and rest > 0,
        "rm": False,
        "rp": rest > 0,
        "rn": rest > fractions.Fraction(1, 2) or (rest == fractions.Fraction(1, 2) and low % 2),
    }
    return dtype.type(float((low + bool(up[mode])) * unit))


@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
@pytest.mark.parametrize("kind", FLOATS)
def test_rounding(kind, mode):
    rng, dtype = np.random.default_rng(5), DTYPES[kind]
    a, b, c = (rng.standard_normal((3, 64)) * 2.0 ** rng.integers(-9, 9, (3, 64))).astype(dtype)
    forms = {
        "add": (2, lambda x, y, z: x + y), "sub": (2, lambda x, y, z: x - y),
        "mul": (2, lambda x, y, z: x * y), "fma": (3, lambda x, y, z: x * y + z),
        "div": (2, lambda x, y, z: x / y), "rcp": (1, lambda x, y, z: 1 / x),
    }  # fmt: skip
    for opcode, (inputs, expected) in forms.items():
        got = evaluate(f"{opcode}.{mode}.{kind}", kind, *((kind, v) for v in (a, b, c)[:inputs]))
        want = [rounded(expected(*map(exact, row)), dtype, mode) for row in zip(a, b, c)]
        same(got, np.array(want, dtype))


def test_fused_sums_round_once():
    a = np.full(64, 1 + 2.0**-12, np.float32)
    c = -(a * a)
    got = evaluate("fma.rn.f32", "f32", ("f32", a), ("f32", a), ("f32", c))
    assert got[0] == 2.0**-24  # which a product rounded for itself loses
    apart = evaluate("mul.rn.f32", "f32", ("f32", a), ("f32", a)) + c
    assert apart[0] == 0
    check("fma.rn.f64", "f64", 3, lambda a, b, c: [math_fma(*x) for x in zip(a, b, c)])


def math_fma(a: float, b: float, c: float) -> float:
    if not all(map(math.isfinite, (a, b, c))) or abs(a * b) == math.inf:
        return a * b + c if math.isfinite(c) or not math.isinf(a * b) else c + a * b
    value = exact(a) * exact(b) + exact(c)
    return float(value) if value else a * b + c


def test_subnormals_are_flushed_where_the_form_says_so():
    tiny = np.float32(1e-39)
    a = np.tile(np.array([tiny, -tiny, 1e-38, 3.0], np.float32), 16)
    b = np.tile(np.array([2.0, 0.25, 0.5, tiny], np.float32), 16)
    for opcode, expected in ARITHMETIC.items():
        got = evaluate(f"{opcode}.ftz.f32", "f32", ("f32", a), ("f32", b))
        same(got, flushed(expected(flushed(a), flushed(b)).astype(np.float32)))
        same(evaluate(f"{opcode}.f32", "f32", ("f32", a), ("f32", b)), expected(a, b))
    assert not evaluate("setp.ne.ftz.f32", "pred", ("f32", a[:1]), ("f32", 0 * a[:1]))[0]
    assert evaluate("setp.ne.f32", "pred", ("f32", a[:1]), ("f32", 0 * a[:1]))[0]


def test_saturation():
    check("add.sat.f32", "f32", 2, lambda a, b: np.where(a + b > 0, np.minimum(a + b, 1), 0))
    check("mul.sat.f32", "f32", 2, lambda a, b: np.where(a * b > 0, np.minimum(a * b, 1), 0))


def test_minimum_that_keeps_nan():
    check("min.NaN.f32", "f32", 2, lambda a, b: np.where(np.isnan(a + b) & ~np.isfinite(a + b) &
          (np.isnan(a) | np.isnan(b)), np.nan, minimum(a, b)))  # fmt: skip
    check("max.f32", "f32", 2, maximum)


@pytest.mark.parametrize("opcode, expected", [
    ("ex2", np.exp2), ("lg2", np.log2), ("sin", np.sin), ("cos", np.cos), ("tanh", np.tanh),
    ("rcp", lambda a: 1 / a), ("rsqrt", lambda a: 1 / np.sqrt(a)), ("sqrt", np.sqrt),
])  # fmt: skip
def test_approximations(opcode, expected):
    """To two units in the last place: far better than hardware promises."""
    a = special_values("f32")
    got = evaluate(f"{opcode}.approx.f32", "f32", ("f32", a))
    want = expected(a.astype(np.float64))
    close = np.abs(got - want) <= 2 * np.spacing(np.abs(want).astype(np.float32))
    equal = (got == want.astype(np.float32)) | (np.isnan(got) & np.isnan(want))
    assert (close | equal).all()
    ftz = evaluate(f"{opcode}.approx.ftz.f32", "f32", ("f32", a))
    normal = np.abs(a) >= np.finfo(np.float32).tiny
    kept = normal & (np.abs(got) >= np.finfo(np.float32).tiny)
    same(ftz[kept], got[kept])


def test_approximate_quotients():
    for form in ("div.approx.f32", "div.full.f32"):
        check(form, "f32", 2, np.divide)
    check("rcp.approx.ftz.f64", "f64", 1, lambda a: 1 / flushed(a))
    check("rsqrt.approx.ftz.f64", "f64", 1, lambda a: 1 / np.sqrt(a))


ORDERED = {"eq": np.equal, "lt": np.less, "le": np.less_equal, "gt": np.greater,
           "ge": np.greater_equal, "ne": lambda a, b: (a < b) | (a > b)}  # fmt: skip


@pytest.mark.parametrize("kind", [*FLOATS, "f16"])
def test_comparisons(kind):
    a, b = operands(kind, 2)
    b[::3] = a[::3]
    nan = np.isnan(a) | np.isnan(b)
    for name, expected in ORDERED.items():
        got = evaluate(f"setp.{name}.{kind}", "pred", (kind, a), (kind, b))
        assert np.array_equal(got != 0, expected(a, b) & ~nan), name
        got = evaluate(f"setp.{name}u.{kind}", "pred", (kind, a), (kind, b))
        assert np.array_equal(got != 0, expected(a, b) | nan), f"{name}u"
    assert np.array_equal(evaluate(f"setp.nan.{kind}", "pred", (kind, a), (kind, b)) != 0, nan)
    assert np.array_equal(evaluate(f"setp.num.{kind}", "pred", (kind, a), (kind, b)) == 0, nan)


@pytest.mark.parametrize("kind", FLOATS)
def test_what_numbers_are(kind):
    (a,) = operands(kind, 1)
    tiny = np.abs(a) < np.finfo(a.dtype).tiny
    wanted = {
        "finite": np.isfinite(a), "infinite": np.isinf(a), "number": ~np.isnan(a),
        "notanumber": np.isnan(a), "subnormal": tiny & (a != 0),
        "normal": np.isfinite(a) & ~tiny,
    }  # fmt: skip
    for name, want in wanted.items():
        got = evaluate(f"testp.{name}.{kind}", "pred", (kind, a))
        assert np.array_equal(got != 0, want), name


def test_set():
    a, b = operands("f32", 2)
    got = evaluate("set.lt.f32.f32", "f32", ("f32", a), ("f32", b))
    assert np.array_equal(got, (a < b).astype(np.float32))
    got = evaluate("slct.f32.f32", "f32", ("f32", a), ("f32", b), ("f32", b))
    same(got, np.where(b >= 0, a, b))


# -- 16 bits -----------------------------------------------------------------------------------


def small(kind: str, bits: np.ndarray) -> np.ndarray:
    return bits.view(np.float16 if kind.startswith("f16") else BFLOAT16)


@pytest.mark.parametrize("kind", ["f16", "bf16", "f16x2", "bf16x2"])
def test_small_floats(kind):
    """One number in a register of 16 bits, or two in 32: as in float32, rounded once."""
    rng = np.random.default_rng(7)
    format_ = np.float16 if kind.startswith("f16") else BFLOAT16
    count = 128 if kind.endswith("x2") else 64
    store = np.dtype("u4") if kind.endswith("x2") else np.dtype("u2")
    a, b, c = ((rng.standard_normal((3, count)) * 8).astype(format_)[k] for k in range(3))
    a[:4] = [0, -0.0, np.inf, np.nan]
    held = DTYPES[kind]

    def on(form, *values):
        given = [(kind, v.view(store).view(held)) for v in values]
        return evaluate(form, kind, *given).view(np.uint16).view(format_)

    def equal(got, want):
        want = np.asarray(want).astype(format_)
        both_nan = np.isnan(got.astype("f4")) & np.isnan(want.astype("f4"))
        assert ((got.view("u2") == want.view("u2")) | both_nan).all()

    x, y, z = (v.astype(np.float32) for v in (a, b, c))
    suffix = kind
    equal(on(f"add.rn.{suffix}", a, b), x + y)
    equal(on(f"sub.rn.{suffix}", a, b), x - y)
    equal(on(f"mul.rn.{suffix}", a, b), x * y)
    wide = x.astype(np.float64) * y + z
    equal(on(f"fma.rn.{suffix}", a, b, c), wide)
    relu = np.where(wide < 0, 0, wide)
    equal(on(f"fma.rn.relu.{suffix}", a, b, c), relu)
    equal(on(f"min.{suffix}", a, b), minimum(x, y))
    equal(on(f"max.{suffix}", a, b), maximum(x, y))
    equal(on(f"neg.{suffix}", a), -x)
    equal(on(f"abs.{suffix}", a), np.abs(x))
    equal(on(f"ex2.approx.ftz.{suffix}" if "b" in kind else f"ex2.approx.{suffix}", a), np.exp2(x))
    equal(on(f"tanh.approx.{suffix}", a), np.tanh(x))


def test_comparisons_of_pairs():
    rng = np.random.default_rng(1)
    a, b = (rng.integers(0, 4, (2, 128)).astype(np.float16)[k] for k in range(2))
    given = [("f16x2", v.view("u4")) for v in (a, b)]
    got = evaluate("set.lt.f16x2.f16x2", "f16x2", *given).view(np.float16)
    assert np.array_equal(got, (a < b).astype(np.float16))
    got = evaluate("set.lt.u32.f16x2", "b32", *given).view("u2")
    assert np.array_equal(got, np.where(a < b, 0xFFFF, 0))


# -- conversions -------------------------------------------------------------------------------

INTEGERS = [f"{sign}{bits}" for sign in "su" for bits in (8, 16, 32, 64)]


def registers(kind: str, values: np.ndarray) -> tuple[str, np.ndarray]:
    """Integers of 8 bits lie in registers of 16."""
    if kind[1:] == "8":
        return f"{kind[0]}16", values.astype(f"{values.dtype.kind}2")
    return kind, values


def convert(to: str, source: str, values: np.ndarray, modifiers: str = "") -> np.ndarray:
    held = f"{to[0]}16" if to[1:] == "8" else to
    got = evaluate(f"cvt{modifiers}.{to}.{source}", held, registers(source, values))
    return got.astype(DTYPES[to]) if to in INTEGERS else got


@pytest.mark.parametrize("source", INTEGERS)
def test_integers_to_integers(source):
    values = special_values(source)
    for to in INTEGERS:
        assert np.array_equal(convert(to, source, values), values.astype(DTYPES[to])), to
        info = np.iinfo(DTYPES[to])
        limited = [min(max(int(v), info.min), info.max) for v in values]
        assert convert(to, source, values, ".sat").tolist() == limited, to


@pytest.mark.parametrize("source", INTEGERS)
def test_integers_to_floats(source):
    values = special_values(source)
    for to in ("f32", "f64"):
        same(convert(to, source, values, ".rn"), values.astype(DTYPES[to]))
    exactly = [rounded(fractions.Fraction(int(v)), np.dtype("f4"), "rz") for v in values]
    same(convert("f32", source, values, ".rz"), np.array(exactly))
    same(convert("f16", source, values, ".rn"), values.astype(np.float64).astype(np.float16))


ROUND = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}


@pytest.mark.parametrize("source", ["f16", "f32", "f64"])
def test_floats_to_integers(source):
    values = special_values(source)
    for to in INTEGERS[1:4] + INTEGERS[5:]:
        info = np.iinfo(DTYPES[to])
        wide = source == "f64" or to[1:] == "64"
        of_nan = 1 << (info.bits - 1) if wide else 0
        for mode, function in ROUND.items():
            want = []
            for v in values.astype(np.float64):
                r = function(v)
                if np.isnan(r):
                    want.append(of_nan - (1 << info.bits) if wide and info.min else of_nan)
                else:
                    want.append(int(min(max(r, -1e300), 1e300)))
            limited = [min(max(v, info.min), info.max) for v in want]
            assert convert(to, source, values, f".{mode}").tolist() == limited, (to, mode)


def test_floats_to_floats():
    single, double = special_values("f32"), special_values("f64")
    same(convert("f64", "f32", single), single.astype(np.float64))
    same(convert("f32", "f64", double, ".rn"), double.astype(np.float32))
    same(convert("f16", "f32", single, ".rn"), single.astype(np.float16))
    half = special_values("f16")
    same(convert("f32", "f16", half), half.astype(np.float32))
    for mode, function in ROUND.items():
        same(convert("f32", "f32", single, f".{mode}"), function(single))
        same(convert("f64", "f64", double, f".{mode}"), function(double))
    same(convert("f32", "f32", single, ".sat"), np.where(single > 0, np.minimum(single, 1), 0))
    toward_zero = convert("f16", "f32", single, ".rz").astype(np.float32)
    finite = np.isfinite(single) & (np.abs(single) < 65504)
    assert (np.abs(toward_zero[finite]) <= np.abs(single[finite])).all()
    got = evaluate("cvt.rn.bf16.f32", "bf16", ("f32", single)).view(BFLOAT16)
    want = single.astype(BFLOAT16)
    nan = np.isnan(single)
    assert np.array_equal(got.view("u2")[~nan], want.view("u2")[~nan])
    back = evaluate("cvt.f32.bf16", "f32", ("bf16", want.view("u2")))
    same(back, want.astype(np.float32))


def test_pairs_from_two_floats():
    a, b = operands("f32", 2)
    got = evaluate("cvt.rn.f16x2.f32", "f16x2", ("f32", a), ("f32", b)).view(np.float16)
    same(got[1::2], a.astype(np.float16))
    same(got[::2], b.astype(np.float16))
    got = evaluate("cvt.rn.relu.bf16x2.f32", "bf16x2", ("f32", a), ("f32", b)).view(BFLOAT16)
    want = np.where(a < 0, np.float32(0), a).astype(BFLOAT16)
    kept = ~np.isnan(a) & (a != 0)
    assert np.array_equal(got[1::2].view("u2")[kept], want.view("u2")[kept])


@pytest.mark.parametrize("name", ["e4m3", "e5m2"])
def test_floats_of_eight_bits(name):
    dtype = np.dtype(ml_dtypes.float8_e4m3fn if name == "e4m3" else ml_dtypes.float8_e5m2)
    every = np.arange(0, 128, dtype=np.uint16)
    pairs = (every | every << 8).astype(np.uint16)[:64]
    got = evaluate(f"cvt.rn.f16x2.{name}x2", "f16x2", ("b16", pairs)).view(np.float16)
    want = pairs.view(np.uint8).view(dtype).astype(np.float16)
    same(got, want)
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((2, 64)) * 20).astype(np.float32)
    packed = evaluate(f"cvt.rn.satfinite.{name}x2.f32", "b16", ("f32", a), ("f32", b))
    assert np.array_equal((packed >> 8).astype("u1"), a.astype(dtype).view("u1"))
    assert np.array_equal((packed & 255).astype("u1"), b.astype(dtype).view("u1"))


def test_tf32():
    a = np.random.default_rng(0).standard_normal(64).astype(np.float32)
    got = evaluate("cvt.rna.tf32.f32", "b32", ("f32", a))
    assert (got & 0x1FFF == 0).all()
    assert (np.abs(got.view("f4") - a) <= np.spacing(np.abs(a)) * 2**12).all()


def test_moves_between_registers_of_different_sizes():
    out = np.zeros(64, np.uint64)
    body = """
        mov.u32 %r1, %tid.x; mul.wide.u32 %d1, %r1, 16; add.u64 %p0, %p0, %d1;
        mov.b64 %d2, {%r1, 0x11223344};
        mov.b64 {%r2, %r3}, %d2;
        mov.b32 {%h1, %h2}, %r3;
        mov.b32 %r4, {%h2, %h1};
        mov.b64 {_, %r5}, %d2;
        add.u32 %r4, %r4, %r5;
        cvt.u64.u32 %d3, %r4;
        st.global.v2.u64 [%p0], {%d2, %d3};
        ret;"""
    run(entry(body), [out])
    want = [(k | 0x11223344 << 32, (0x33441122 + 0x11223344)) for k in range(32)]
    assert out.reshape(32, 2).tolist() == [list(pair) for pair in want]
