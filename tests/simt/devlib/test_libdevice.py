"""All of libdevice: its names and types are numba-cuda's, its results those of exact arithmetic."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numba
import numpy as np
import pytest
from numba.core.registry import cpu_target
from scipy import special

from kernels.simt import cuda
from kernels.simt.devlib import registry
from kernels.simt.ir import stubs
from kernels.support import cache

MODES = ("rd", "ru", "rz")


@pytest.mark.needs("numba.cuda")
def test_names_and_types_are_those_of_numba_cuda():
    from numba.cuda import libdevicefuncs as funcs

    typing = cpu_target.typing_context
    typing.refresh()
    differ = []
    for name, described in funcs.functions.items():
        name = name.removeprefix("__nv_")
        theirs = funcs.create_signature(*described)
        args = tuple(getattr(numba.types, str(kind)) for kind in theirs.args)
        function = registry.lookup(getattr(stubs.libdevice, name).name)
        ours = typing.resolve_function_type(typing.resolve_value_type(function), args, {})
        if str(ours.return_type) != str(theirs.return_type):
            differ.append((name, ours.return_type, theirs.return_type))
    assert differ == []


def directed(exact: Fraction, kind: type, mode: str) -> np.floating:
    """An exact number in float32 or float64, rounded down, up or towards 0."""
    largest = float(np.finfo(kind).max)
    if abs(exact) > Fraction(largest):
        below, above = kind(largest), kind(math.inf)
        if exact < 0:
            below, above = -above, -below
    else:
        near = kind(np.clip(float(exact), -largest, largest))
        if Fraction(float(near)) == exact:
            return near
        past = Fraction(float(near)) < exact
        other = np.nextafter(near, kind(math.inf if past else -math.inf))
        below, above = (near, other) if past else (other, near)
    down = mode == "rd" or (mode == "rz" and exact > 0)
    return below if down else above


def awkward(rng, kind: type, count: int) -> np.ndarray:
    """Numbers of every size, with the largest, the smallest, and zeros."""
    bits = np.dtype(kind).itemsize * 8
    random = rng.integers(0, 2**bits, count, dtype=f"u{bits // 8}").view(kind)
    limits = np.finfo(kind)
    special = [0, 1, 1 / 3, limits.max, limits.tiny, limits.smallest_subnormal, 1.5, 3]
    plain = rng.standard_normal(count)
    return np.concatenate(
        [random[np.isfinite(random)], plain, special, np.negative(special)]
    ).astype(kind)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_arithmetic_in_every_rounding_mode(rng, kind):
    letter, fma = ("f", "fmaf") if kind is np.float32 else ("d", "fma")
    names = [f"{letter}add", f"{letter}mul", f"{letter}div", f"{letter}rcp", fma]
    calls = [registry.lookup(f"libdevice.{name}_{mode}") for name in names for mode in MODES]
    roots = [registry.lookup(f"libdevice.{letter}sqrt_{mode}") for mode in MODES]
    a0, a1, a2, m0, m1, m2, d0, d1, d2, r0, r1, r2, f0, f1, f2 = calls
    s0, s1, s2 = roots

    @numba.njit(fastmath={"contract"}, error_model="numpy")
    def run(a, b, c, out):
        for i in range(a.size):
            x, y, z = a[i], b[i], c[i]
            row = out[i]
            row[0], row[1], row[2] = a0(x, y), a1(x, y), a2(x, y)
            row[3], row[4], row[5] = m0(x, y), m1(x, y), m2(x, y)
            row[6], row[7], row[8] = d0(x, y), d1(x, y), d2(x, y)
            row[9], row[10], row[11] = r0(y), r1(y), r2(y)
            row[12], row[13], row[14] = f0(x, y, z), f1(x, y, z), f2(x, y, z)
            row[15], row[16], row[17] = s0(abs(x)), s1(abs(x)), s2(abs(x))

    pool = awkward(rng, kind, 100)
    a, b, c = (rng.choice(pool, 500) for _ in range(3))
    with np.errstate(all="ignore"):
        c[::5] = np.where(np.isfinite(a * b), -a * b, c)[::5]  # nothing but the error is left
    out = np.zeros((500, 18), kind)
    run(a, b, c, out)
    for x, y, z, row in zip(a, b, c, out):
        p, q, r = (Fraction(float(v)) for v in (x, y, z))
        exact = [p + q, p * q, p / q if q else None, 1 / q if q else None, p * q + r]
        for name, value, got in zip(names, exact, row[:15].reshape(5, 3)):
            if value is not None:
                wanted = [directed(value, kind, mode) for mode in MODES]
                assert got.tolist() == wanted, (name, x, y, z)
        down, up, cut = row[15:]
        assert down == cut
        assert Fraction(float(down)) ** 2 <= abs(p) <= Fraction(float(up)) ** 2
        assert up in (down, np.nextafter(down, kind(math.inf)))


def test_an_exact_zero_rounded_down_is_negative():
    add, fma = registry.lookup("libdevice.fadd_rd"), registry.lookup("libdevice.fma_rd")
    run = numba.njit(lambda x: (add(x, -x), add(x - x, x - x), fma(x, x, -x * x)))
    assert [math.copysign(1, zero) for zero in run(np.float32(3))] == [-1, 1, -1]


INTEGERS = {"int": (32, True), "uint": (32, False), "ll": (64, True), "ull": (64, False)}


@pytest.mark.parametrize("mode", ["rn", *MODES])
def test_conversions_in_every_rounding_mode(rng, mode):
    """A float is limited to the range; NaN is 0, or the smallest where an operand has 64 bits."""
    to = {n: registry.lookup(f"libdevice.float2{n}_{mode}") for n in INTEGERS}
    back = {n: registry.lookup(f"libdevice.{n}2float_{mode}") for n in INTEGERS}
    t0, t1, t2, t3 = to.values()
    b0, b1, b2, b3 = back.values()

    @numba.njit
    def run(x, n):
        return (t0(x), t1(x), t2(x), t3(x)), (b0(np.int32(n)), b1(np.int32(n)), b2(n), b3(n))

    rounding = {"rd": math.floor, "ru": math.ceil, "rz": math.trunc, "rn": round}[mode]
    numbers = [0, 1, -1, 2**31 - 1, 2**63 - 1, -(2**63), *rng.integers(-(2**63), 2**63 - 1, 40)]
    floats = [0.5, 2.5, -2.5, -0.5, math.inf, -math.inf, *rng.standard_normal(40) * 1e10]
    for x, n in zip(np.float32(floats), numbers):
        whole, real = run(x, n)
        for (bits, signed), got, float_ in zip(INTEGERS.values(), whole, real):
            low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
            limited = x if math.isfinite(x) else math.copysign(2.0**70, x)
            assert got % 2**bits == max(low, min(high, rounding(float(limited)))) % 2**bits
            value = int(n) % 2**bits
            value -= (value > high) * 2**bits
            if mode != "rn":
                assert float_ == directed(Fraction(value), np.float32, mode)
            else:
                assert abs(value - Fraction(float_)) * 2**24 <= abs(value)
    assert run(np.float32(math.nan), 0)[0] == (0, 0, -(2**63), -(2**63))


def test_special_functions(rng):
    names = "erfinv erfcinv normcdfinv normcdf erfcx j0 y1 logb".split()
    f0, f1, f2, f3, f4, f5, f6, f7 = (registry.lookup(f"libdevice.{name}") for name in names)

    @numba.njit
    def run(u, x, out):
        for i in range(u.size):
            row = out[i]
            row[0], row[1], row[2], row[3] = f0(2 * u[i] - 1), f1(2 * u[i]), f2(u[i]), f3(x[i])
            row[4], row[5], row[6], row[7] = f4(x[i]), f5(x[i]), f6(abs(x[i])), f7(x[i])

    u = np.concatenate([rng.random(300), 10.0 ** -rng.integers(1, 300, 50), [0, 1, 0.5, -1, 2]])
    x = np.concatenate([rng.standard_normal(300) * 5, rng.random(52) * 25, [1e300, 0, -30]])
    out = np.zeros((u.size, 8))
    run(u, x, out)
    with np.errstate(all="ignore"):
        expected = [special.erfinv(2 * u - 1), special.erfcinv(2 * u), special.ndtri(u)]
        expected += [special.ndtr(x), special.erfcx(x), special.j0(x), special.y1(abs(x))]
        expected += [np.floor(np.log2(abs(x)))]
    for name, got, wanted in zip(names, out.T, expected):
        np.testing.assert_allclose(got, wanted, rtol=2e-14, atol=1e-14, err_msg=name)


def test_the_tails_of_special_functions():
    """Where the error of x * x counts, which SciPy leaves in: compared in 60 digits."""
    normcdf, erfcx = (registry.lookup(f"libdevice.{name}") for name in ("normcdf", "erfcx"))
    run = numba.njit(lambda x: (normcdf(x), erfcx(x)))
    for x in (-35.856174486007774, -24.44111158188874):
        with localcontext(prec=60):
            square = Decimal(x) ** 2
            tail = float((-square / 2).exp() * Decimal(special.erfcx(-x / math.sqrt(2))) / 2)
            large = float(2 * square.exp())
        np.testing.assert_allclose(run(x)[0], tail, rtol=5e-16)
        if large < 1e300:
            np.testing.assert_allclose(run(x)[1], large, rtol=5e-16)


def test_two_results_and_bits_in_a_kernel():
    from kernels.simt.cuda import libdevice

    @cuda.jit
    def kernel(x, out):
        i = cuda.grid(1)
        sine, cosine = libdevice.sincosf(x[i])
        out[0, i], out[1, i] = sine, cosine
        fraction, exponent = libdevice.frexpf(x[i])
        out[2, i] = libdevice.scalbnf(fraction, exponent)
        rest, quotient = libdevice.remquo(x[i], 1.5)
        out[3, i] = rest + 1.5 * quotient
        out[4, i] = libdevice.hiloint2double(
            libdevice.double2hiint(x[i]), libdevice.double2loint(x[i])
        )
        out[5, i] = libdevice.half2float(libdevice.float2half_rn(x[i]))
        out[6, i] = libdevice.byte_perm(0x03020100, 0x07060584, 0x7C42 + i)
        out[7, i] = libdevice.usad(-1, 1, i) + libdevice.uhadd(-1, -3) + libdevice.rhadd(-3, 2)
        out[8, i] = libdevice.llround(x[i]) + libdevice.jn(2, float(x[i]))

    x, out = np.float32([2.5, -3.75, 0.25]), np.zeros((9, 3))
    kernel[1, 3](x, out)
    assert cache.is_intact(kernel.specialise((3, 1, 1), (x, out)).path), "other processes find it"
    np.testing.assert_allclose(out[0], np.sin(x), rtol=1e-6)
    np.testing.assert_allclose(out[1], np.cos(x), rtol=1e-6)
    for row in (2, 3, 4, 5):
        assert out[row].tolist() == x.tolist()
    assert out[6].tolist() == [0x07FF8402, 0x07FF8403, 0x07FF8484]
    assert out[7].tolist() == [-4, -3, -2]
    np.testing.assert_allclose(out[8] - special.jn(2, x.astype(float)), [3, -4, 0], atol=1e-14)
