"""Mathematics of float64 that LLVM can vectorise, where one float64 is too short for what is
between: sine, cosine, tangent, powers, and the error function. Each is within 2 ulp.

A number in two parts, the second below the last bit of the first, is a pair `(high, low)` (Dekker,
"A floating-point technique for extending the available precision", 1971).
"""

from __future__ import annotations

import functools
import math
from fractions import Fraction

from kernels.simt.devlib.llvm_ir import F64, V, lookup, polynomial
from kernels.simt.devlib.vecmath import (
    _COS64,
    _EXP64,
    _SIN64,
    INFINITY,
    LN2_HIGH_64,
    LN2_LOW_64,
    LOG2_E,
    NAN,
    TWO_OVER_PI_BITS,
    _clamp,
    _or_nan,
    _power_of_two_64,
    _split_wide,
    power_cases,
    two_over_pi,
)

# erf(x) / x - 1 in x^2 <= 1
_ERF = (0.12837916709551256, -0.37612638903183543, 0.1128379167094513, -0.026866170643256995,
        0.005223977607269946, -0.0008548325982543225, 0.00012055295112667001,
        -1.4924740785377576e-05, 1.6447471190594618e-06, -1.6208829856810202e-07,
        1.3721520406351094e-08, -7.798543850549947e-10)  # fmt: skip
# log(erfc(t)) on 1 <= t <= 5.95
_LOG_ERFC = (-5.261453332652878e-07, -1.1283738693276493, -0.6366445939558601, -0.10270082731323175,
             0.018985302453704358, 0.00041729454429588703, -0.0019228536313217277,
             0.0007761894365338622, -0.0001385392893961883, -1.853688889924284e-05,
             2.2146671865708157e-05, -8.460282341453911e-06, 2.0866700784907264e-06,
             -3.6450806039523767e-07, 4.526822780368445e-08, -3.829757686812588e-09,
             1.9867497009800478e-10, -4.7783399773176744e-12)  # fmt: skip
# (log((1 + s) / (1 - s)) / s - 2 - 2 / 3 s^2) / s^4 in s^2, 1 + s over 1 - s up to sqrt(2)
_LOG_TAIL = (0.4000000000000237, 0.28571428570052093, 0.22222222527291494, 0.18181783794026143,
             0.15386781173104835, 0.13256310313071415, 0.13200673775260133)  # fmt: skip
TWO_THIRDS = 2 / 3, 3.700743415417188e-17
HALF_PI = math.pi / 2, 6.123233995736766e-17


def _sum(a: V, b: V) -> tuple[V, V]:
    """a + b as a pair."""
    total = a + b
    other = total - a
    return total, (a - (total - other)) + (b - other)


def _sum_ordered(a: V, b: V) -> tuple[V, V]:
    """a + b as a pair, where a is 0 or |a| >= |b|."""
    total = a + b
    return total, b - (total - a)


def _product(a: V, b: V) -> tuple[V, V]:
    """a * b as a pair. The product has no flag by which it could be part of a later FMA."""
    high = V(a.builder, a.builder.fmul(a.value, b.value, flags=("arcp",)))
    return high, a.fma(b, -high)


def _exp_of_pair(high: V, low: V) -> V:
    """e^(high + low) for |high| < 1000, 0.6 ulp: a result that is a float64 is found."""
    n = (high * LOG2_E).rint()
    r, low = _sum_ordered(high - n * LN2_HIGH_64, low - n * LN2_LOW_64)
    half = (n * 0.5).rint()
    first, rest = _sum_ordered(r.constant(1.0), r)
    result = first + (rest + (polynomial(r, _EXP64) * r * r + low))
    return result * _power_of_two_64(half) * _power_of_two_64(n - half)


def erf(x: V) -> V:
    size = x.abs()
    small = polynomial(x * x, _ERF) * x + x
    log = polynomial(_clamp(size, 0.0, 5.95), _LOG_ERFC)
    n = (log * LOG2_E).rint()
    r = (log - n * LN2_HIGH_64) - n * LN2_LOW_64
    large = 1.0 - ((polynomial(r, _EXP64) * r * r + r) + 1.0) * _power_of_two_64(n)
    return _or_nan(x, (size < 1.0).where(small, large.with_sign_of(x)))


# --- angles

_ROW = 8  # exponents that share a row of the table
_FIRST = 54  # of the first row, which has all bits of 2 / pi
_SHRUNK = _FIRST + 56 * _ROW  # from this exponent on, angles are scaled down and the table up
_SCALE = 400


@functools.cache
def _table() -> list[float]:
    """By exponent, 2 / pi without the bits whose product with an angle is a multiple of 4, in four
    float64."""
    bits = two_over_pi(TWO_OVER_PI_BITS)
    table: list[float] = []
    for least in range(_FIRST, 1024, _ROW):
        kept = TWO_OVER_PI_BITS + 54 - least  # the bits from 2^(54 - least) on are left out
        rest = Fraction(bits % (1 << kept), 1 << TWO_OVER_PI_BITS)
        rest *= 1 << (_SCALE if least >= _SHRUNK else 0)
        for _ in range(4):
            part = float(rest)
            rest -= Fraction(part)
            table.append(part)
    return table


def _reduce_angle(size: V) -> tuple[V, V, V]:
    """(quadrant, high, low): size = quadrant * pi / 2 + high + low modulo 2 pi, |high| <= pi / 4.

    Payne and Hanek: the product with 2 / pi in four parts, each with what rounding it loses.
    """
    exponent = size.bits().logical_shift(52) - (1023 + _FIRST)
    row = (exponent > 0).where(exponent, 0).logical_shift(3)
    row = (row < 121).where(row, 121) << 2
    parts = [lookup(size.builder, "minigrad.two_over_pi_64", _table(), row + i) for i in range(4)]
    scaled = (size < 2.0**_SHRUNK).where(size, size * 2.0**-_SCALE)
    (h0, l0), (h1, l1), (h2, l2) = (_product(scaled, part) for part in parts[:3])
    n0 = h0.rint()
    s1, c1 = _sum(l0, h1)
    s2, c2 = _sum(h0 - n0, s1)
    n1 = s2.rint()
    s3, c3 = _sum(l1, h2)
    s4, c4 = _sum(c1, c2)
    s5, c5 = _sum(s3, s4)
    turns, rest = _sum(s2 - n1, s5)
    rest = rest + (((c3 + c4) + c5) + (l2 + scaled * parts[3]))
    high = turns * HALF_PI[0]
    low = turns.fma(HALF_PI[0], -high) + (turns * HALF_PI[1] + rest * HALF_PI[0])
    quadrant = ((n0 - (n0 * 0.25).rint() * 4.0) + n1) + 6755399441055744.0  # its low bits
    near = size < math.pi / 4
    return (
        near.where(quadrant.constant(0.0), quadrant).bits(),
        near.where(size, high),
        near.where(low.constant(0.0), low),
    )


def _sine(high: V, low: V) -> tuple[V, V]:
    square = high * high
    return high, polynomial(square, _SIN64) * square * high + low


def _cosine(high: V, low: V) -> tuple[V, V]:
    square = high * high
    half = square * 0.5
    first = 1.0 - half
    rest = polynomial(square, _COS64) * square * square - high * low
    return first, ((1.0 - first) - half) + rest


def _sine_of(x: V, quarter: int) -> V:
    quadrant, high, low = _reduce_angle(x.abs())
    quadrant = quadrant + quarter
    odd, sine, cosine = (quadrant & 1) != 0, _sine(high, low), _cosine(high, low)
    chosen = odd.where(cosine[0], sine[0]) + odd.where(cosine[1], sine[1])
    result = (chosen.bits() ^ ((quadrant & 2) << 62)).as_float(F64)
    return (x.abs() < INFINITY).where(result, NAN)


def sin(x: V) -> V:
    sign = x.bits() & -0x8000000000000000
    return (_sine_of(x, 0).bits() ^ sign).as_float(F64)


def cos(x: V) -> V:
    return _sine_of(x, 1)


def tan(x: V) -> V:
    quadrant, high, low = _reduce_angle(x.abs())
    sine, cosine = _sum_ordered(*_sine(high, low)), _sum_ordered(*_cosine(high, low))
    odd = (quadrant & 1) != 0
    up, up_low = (odd.where(-c, s) for s, c in zip(sine, cosine, strict=True))
    down, down_low = (odd.where(s, c) for s, c in zip(sine, cosine, strict=True))
    inverse = 1.0 / down
    result = up * inverse
    result = result + ((-result).fma(down, up) + (up_low - result * down_low)) * inverse
    sign = x.bits() & -0x8000000000000000
    result = (result.bits() ^ sign).as_float(F64)
    return (x.abs() < INFINITY).where(result, NAN)


# --- powers


def _log_pair(x: V) -> tuple[V, V]:
    """log of a positive finite float64, as a pair with an error below 2^-64 of it."""
    subnormal = x < 2.0**-1022
    exponent, m = _split_wide(subnormal.where(x * 2.0**54, x))
    exponent = exponent - subnormal.where(x.constant(54.0), 0.0)
    f, d = m - 1.0, m + 1.0
    inverse = 1.0 / d
    s = f * inverse
    s_low = ((-s).fma(d, f) - s * (m - (d - 1.0))) * inverse
    square, square_low = _product(s, s)
    square_low = square_low + 2.0 * s * s_low
    cube, cube_low = _product(square, s)
    cube_low = cube_low + (square * s_low + square_low * s)
    factor, factor_low = _sum_ordered(
        x.constant(TWO_THIRDS[0]), polynomial(square, _LOG_TAIL) * square
    )
    factor_low = factor_low + TWO_THIRDS[1]
    third, third_low = _product(cube, factor)
    third_low = third_low + (cube * factor_low + cube_low * factor)
    small, small_low = _sum_ordered(s + s, third)
    small_low = small_low + ((s_low + s_low) + third_low)
    high, low = _sum_ordered(exponent * LN2_HIGH_64, small)
    return _sum_ordered(high, low + (small_low + exponent * LN2_LOW_64))


def pow(x: V, y: V) -> V:
    size = x.abs()
    high, low = _log_pair(size)
    high = (size == 0.0).where(high.constant(-INFINITY), high)
    high = (size == INFINITY).where(high.constant(INFINITY), high)
    product, rest = _product(high, y)
    rest = rest + low * y
    rest = (product.abs() < 800.0).where(rest, 0.0)
    return power_cases(x, y, _exp_of_pair(_clamp(product, -800.0, 800.0), rest))
