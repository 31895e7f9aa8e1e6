"""Mathematics that LLVM can vectorise: no branches, no calls, no tables.

A loop that calls libm's `expf` runs one element at a time; these are straight lines of arithmetic
with selects for the special cases, so a loop over them becomes SIMD code. Each is within 2 ulp over
the whole of float32, subnormals, infinities and NaN included, and so are the few for float64, at
the end (`tests/simt/devlib/test_vecmath.py` measures it).

Methods: range reduction as in Cody and Waite, "Software Manual for the Elementary Functions"
(1980); Payne and Hanek, "Radian reduction for trigonometric functions" (1983), for sine and cosine.
The polynomials are weighted least-squares fits on Chebyshev nodes in 40-digit arithmetic, rounded.
"""

from __future__ import annotations

import functools
import math
from fractions import Fraction

from kernels.simt.devlib.llvm_ir import F32, F64, I32, V, polynomial

# ln 2 in two parts: the first has so few bits that its product with an exponent is exact
LN2_HIGH = 0.693359375
LN2_LOW = -2.12194440054690583e-4
LOG2_E = 1.4426950408889634
LOG2_10 = 3.321928094887362
SQRT_HALF_BITS = 0x3F3504F3  # the float32 next to sqrt(1/2)
SMALLEST_NORMAL = 2.0**-126
INFINITY, NAN = math.inf, math.nan

# (e^r - 1 - r) / r^2 on |r| <= ln(2) / 2, relative error 2^-28
_EXP = (0.5000000081293489, 0.16666515384494787, 0.04166626151753095, 0.008369223507988884,
        0.0013946561947689737)  # fmt: skip
# the same to 2^-34, for expm1
_EXPM1 = (0.5000000081293489, 0.16666666790816947, 0.04166626151753095, 0.00833328029635856,
          0.0013946561947689737, 0.00019909783394116221)  # fmt: skip
# (2^r - 1) / r on |r| <= 1/2
_EXP2 = (0.6931471805458179, 0.24022651086487087, 0.05550410941665351, 0.009618034585987793,
         0.001333345012891356, 0.00015467492940798118, 1.531019608704493e-05)  # fmt: skip
# (log(1 + f) - f + f^2 / 2) / f^3 on sqrt(1/2) - 1 <= f <= sqrt(2) - 1
_LOG = (0.3333331012499179, -0.25000000557645174, 0.20002246515289013, -0.16668512608941666,
        0.14217762576529214, -0.12396445144507269, 0.11890989465238684, -0.1172660479208794,
        0.0680091211560397)  # fmt: skip
# (tanh(x) - x) / x^3 in x^2 <= 0.4
_TANH = (-0.33333275345548335, 0.13331263521463724, -0.05372456663160102, 0.02058865298906521,
         -0.00564745929804846)  # fmt: skip
# erf(x) / x - 1 in x^2 <= 1
_ERF = (0.1283791670623609, -0.3761263847599132, 0.11283782622062184, -0.026865438310515116,
        0.005221053412537675, -0.0008484396550601893, 0.00011268253894199437,
        -9.673590811750782e-06)  # fmt: skip
# log2(erfc(t)) on 1 <= t <= 3.95
_LOG2_ERFC = (0.00027595789698035985, -1.6296582036061278, -0.9135034721227057,
              -0.15645585587294789, 0.03639259658826927, -0.00607471237395225,
              0.0006384186097015777, -3.1425834730486926e-05)  # fmt: skip
# exp(a^2) erfc(a) on 0 <= a <= 10.6, in (a - 3) / (a + 3), relative error 2^-29
_ERFCX = (0.1790011513210319, -0.32623356272100024, 0.24560379103280905, -0.15011581589611805,
          0.07166596258202973, -0.024393908474155054, 0.004268472585205777,
          0.0007144497308951729, -0.0005943633379459254, 3.070833008643851e-05,
          5.685852694094677e-05)  # fmt: skip
# (2^r - 1) / r on |r| <= 1/2, for what is subtracted from 1: relative error 2^-23
_EXP2_SHORT = (0.693146855941691, 0.24022238002741136, 0.05550892952451221, 0.00967169793839855,
               0.0013218672481610226)  # fmt: skip
# (sin(r) - r) / r^3 and (cos(r) - 1 + r^2 / 2) / r^4 in r^2 <= (pi / 4)^2
_SIN = (-0.1666666664093631, 0.008333329327156696, -0.00019839319768576792, 2.718191240401333e-06)
_COS = (
    0.04166666662102281,
    -0.0013888883624907148,
    2.4799490998328296e-05,
    -2.7208136219698456e-07,
)
_SIN64 = (-0.1666666666666663, 0.008333333333322207, -0.00019841269829672963,
          2.755731365199531e-06, -2.5050752620575e-08, 1.5896509862299053e-10)  # fmt: skip
_COS64 = (0.041666666666666595, -0.0013888888888873604, 2.4801587289196677e-05,
          -2.755731427820758e-07, 2.0875714077411227e-09, -1.135920817617049e-11)  # fmt: skip
# log2((1 + s) / (1 - s)) / s in s^2, m = (1 + s) / (1 - s) between sqrt(1/2) and sqrt(2)
_LOG2_S = (2.885390081777927, 0.9617966939243164, 0.5770780172540739, 0.41219840084283427,
           0.3206164725193597, 0.26144153805817777, 0.2429486309532267)  # fmt: skip
_EXP2_64 = (0.6931471805599501, 0.24022650695710657, 0.055504108664444676, 0.009618129184039134,
            0.0013333558230674682, 0.0001540343890628734, 1.5252656950259072e-05,
            1.3258750472169748e-06, 1.0208752159969631e-07)  # fmt: skip
# (atan(t) - t) / t^3 in t^2 <= 1, relative error 2^-31
_ATAN = (-0.3333332649243937, 0.19999656913325162, -0.1427965319326188, 0.11057077424498177,
         -0.08806893572136053, 0.06732218633747715, -0.0445599760399814, 0.022430816959189373,
         -0.007267214690737307, 0.0011037403302341167)  # fmt: skip
# (asin(t) - t) / t^3 in t^2 <= 1 / 4, relative error 2^-35
_ASIN = (0.16666667182270167, 0.0749994901305644, 0.04465990342330176, 0.03011363754261998,
         0.024596793361166592, 0.007535580663808439, 0.034613745495543906)  # fmt: skip
# (sinh(t) - t) / t^3 in t^2 <= 1, relative error 2^-43
_SINH = (
    0.16666666667080526,
    0.008333333275427209,
    0.00019841296289078162,
    2.7552037507802365e-06,
    2.5530840346255936e-08,
)


def _clamp(x: V, low: float, high: float) -> V:
    """`x` within bounds; NaN becomes a bound, since converting NaN to an integer is undefined."""
    x = (x < high).where(x, high)
    return (x > low).where(x, low)


def _power_of_two(n: V) -> V:
    """2^n as float32, for an int32 n from -126 to 127."""
    return ((n + 127) << 23).as_float(F32)


def _scale(x: V, n: V) -> V:
    """x * 2^n with one rounding, where 2^n itself may not be a float32."""
    half = n >> 1
    return x * _power_of_two(half) * _power_of_two(n - half)


def _or_nan(x: V, result: V) -> V:
    return x.isnan().where(x, result)


def _reduce_exp(x: V) -> tuple[V, V]:
    """(n, r) with x = n ln 2 + r, |r| <= ln(2) / 2."""
    n = (x * LOG2_E).rint()
    return n, (x - n * LN2_HIGH) - n * LN2_LOW


def _exp_bounded(x: V) -> V:
    n, r = _reduce_exp(x)
    return _scale((polynomial(r, _EXP) * r * r + r) + 1.0, n.to_int(I32))


def exp(x: V) -> V:
    """Softmax takes it of many -inf: products that round to 0 take three times as long here."""
    above = x > -104.0
    bounded = above.where(x, 0.0)
    result = _exp_bounded((bounded < 89.0).where(bounded, 89.0))
    return _or_nan(x, above.where(result, 0.0))


def exp2(x: V) -> V:
    bounded = _clamp(x, -151.0, 129.0)
    n = bounded.rint()
    r = bounded - n
    return _or_nan(x, _scale(polynomial(r, _EXP2) * r + 1.0, n.to_int(I32)))


def exp10(x: V) -> V:
    wide = _clamp(x, -46.0, 39.0).to_float(F64) * LOG2_10
    return _or_nan(x, _exp2_wide(wide).to_float(F32))


def expm1(x: V) -> V:
    n, r = _reduce_exp(_clamp(x, -18.0, 89.0))
    p = polynomial(r, _EXPM1) * r * r + r
    half = _power_of_two(n.to_int(I32) - 1)  # half of 2^n: 2^128 would overflow
    result = (half * p + (half - 0.5)) * 2.0
    result = (x.abs() < 2.0**-25).where(x, result)  # halving would cost a subnormal its last bit
    return _or_nan(x, result)


def _split(x: V) -> tuple[V, V]:
    """(e, f) with x = 2^e (1 + f), sqrt(1/2) <= 1 + f < sqrt(2), for a positive normal x."""
    bits = x.bits() - SQRT_HALF_BITS
    mantissa = ((bits & 0x7FFFFF) + SQRT_HALF_BITS).as_float(F32)
    return (bits >> 23).to_float(F32), mantissa - 1.0


def _normalised(x: V) -> tuple[V, V, V]:
    """(exponent, f) of a non-negative x as in `_split`, with subnormals scaled up first."""
    subnormal = x < SMALLEST_NORMAL
    exponent, f = _split(subnormal.where(x * 2.0**23, x))
    return exponent - subnormal.where(x.constant(23.0), 0.0), f


def _log_domain(x: V, result: V) -> V:
    """Logarithms' special cases: -inf at 0, NaN below, inf and NaN as they came."""
    result = (x == 0.0).where(x.constant(-INFINITY), result)
    result = (x < 0.0).where(x.constant(NAN), result)
    return (x.bits().below(0x7F800000) | (x <= 0.0)).where(result, x)


def _log1p_small(f: V) -> V:
    """log(1 + f) - f for f as `_split` gives it."""
    return polynomial(f, _LOG) * f * f * f - f * f * 0.5


def log(x: V) -> V:
    exponent, f = _normalised(x)
    result = ((exponent * LN2_LOW + _log1p_small(f)) + f) + exponent * LN2_HIGH
    return _log_domain(x, result)


def _log_scaled(x: V, high: float, low: float, exponent_high: float, exponent_low: float) -> V:
    """log(x) / log(base): `high + low` is 1 / log(base), the others the same for one exponent."""
    exponent, f = _normalised(x)
    small = _log1p_small(f)
    # f = head + rest with a head of 12 bits, so that head * high is exact
    head = (f.bits() & ~0xFFF).as_float(F32)
    rest = (f - head) + small
    tail = rest * (high + low) + head * low
    result = (exponent * exponent_low + tail) + head * high
    return _log_domain(x, result + exponent * exponent_high)


def log2(x: V) -> V:
    return _log_scaled(x, 1.4423828125, 3.122283889634e-4, 1.0, 0.0)


def log10(x: V) -> V:
    return _log_scaled(x, 0.43408203125, 2.1245065325183e-4, 0.301025390625, 4.605038981195e-6)


def log1p(x: V) -> V:
    u = x + 1.0
    # what rounding 1 + x lost, added back to first order
    lost = ((u > 1.0).where(x - (u - 1.0), (1.0 - u) + x)) / u
    exponent, f = _split(u)
    correction = (x < 2.0**30).where(lost, 0.0)
    rest = (exponent * LN2_LOW + correction) + _log1p_small(f)
    result = (rest + f) + exponent * LN2_HIGH
    result = (x.abs() < 2.0**-25).where(x, result)
    result = (x == -1.0).where(x.constant(-INFINITY), result)
    result = (x < -1.0).where(x.constant(NAN), result)
    return (x.bits() == 0x7F800000).where(x, _or_nan(x, result))


def tanh(x: V) -> V:
    size = x.abs()
    square = x * x
    small = polynomial(square, _TANH) * square * x + x
    bounded = _clamp(size, 0.0, 10.0)
    large = 1.0 - 2.0 / (_exp_bounded(bounded * 2.0) + 1.0)
    return _or_nan(x, (size < 0.625).where(small, large).with_sign_of(x))


def erf(x: V) -> V:
    size = x.abs()
    small = polynomial(x * x, _ERF) * x + x
    bounded = _clamp(size, 0.0, 3.95)
    exponent = polynomial(bounded, _LOG2_ERFC)
    n = exponent.rint()
    r = exponent - n
    large = 1.0 - (polynomial(r, _EXP2_SHORT) * r + 1.0) * _power_of_two(n.to_int(I32))
    return _or_nan(x, (size < 1.0).where(small, large.with_sign_of(x)))


def erfc(x: V) -> V:
    """In float64: in float32 the errors of the factors would add up to more than 2 ulp. After M. M.
    Shepherd and J. G. Laframboise, "Chebyshev approximation of (1 + 2x) exp(x^2) erfc x" (1981)."""
    size = _clamp(x.abs(), 0.0, 10.6).to_float(F64)  # erfc(10.6) rounds to 0
    scaled = polynomial((size - 3.0) / (size + 3.0), _ERFCX)
    tail = scaled * _exp2_wide(size * size * -LOG2_E)
    return _or_nan(x, (x < 0.0).where(2.0 - tail, tail).to_float(F32))


TWO_OVER_PI_BITS = 1300  # more than the largest float64 takes


def two_over_pi(bits: int) -> int:
    """2 / pi times 2^bits."""
    one = 1 << (bits + 32)

    def arctan_inverse(n: int) -> int:
        total, term, k = 0, one // n, 0
        while term:
            total += (-1) ** k * (term // (2 * k + 1))
            term //= n * n
            k += 1
        return total

    pi = 4 * (4 * arctan_inverse(5) - arctan_inverse(239))  # Machin
    return (2 * one << bits) // pi


# Angles below 2^60, below 2^94, and all others have each their parts of 1 / (2 pi).
_ANGLE_LIMITS = (60, 94)


@functools.cache
def _turn_parts() -> list[tuple[float, ...]]:
    """For each range of angles 1 / (2 pi), without the bits whose product with such an angle is
    whole, in three float64. Two have 29 bits: their products with an angle, of 24, are exact."""
    inverse = Fraction(two_over_pi(TWO_OVER_PI_BITS), 4 << TWO_OVER_PI_BITS)
    rows: list[tuple[float, ...]] = []
    for last in (2, *(limit - 23 for limit in _ANGLE_LIMITS)):  # bits of 2^-last do not count
        whole = round(inverse * 2**last) if rows else 0
        rest = inverse - whole / Fraction(2**last)
        parts = []
        for bits in (last + 29, last + 58):
            parts.append(round(rest * 2**bits) / Fraction(2**bits))
            rest -= parts[-1]
        rows.append((*map(float, parts), float(rest)))
    return rows


def _reduce_angle(size: V) -> tuple[V, V]:
    """(quadrant, r): size = quadrant * pi / 2 + r modulo 2 pi, |r| <= pi / 4, r in float64.

    Payne and Hanek: the product with 1 / (2 pi) in three parts, each without its whole turns.
    """
    wide = size.to_float(F64)
    near, far = (wide < 2.0**limit for limit in _ANGLE_LIMITS)
    first, second, third = (
        near.where(wide.constant(a), far.where(wide.constant(b), c))
        for a, b, c in zip(*_turn_parts(), strict=True)
    )
    first, second = wide * first, wide * second
    first, second = first - first.rint(), second - second.rint()
    quadrant = (((first + second) + wide * third) * 4.0).rint()
    turns = ((first - quadrant * 0.25) + second) + wide * third
    return quadrant.to_int(I32), turns * (2 * math.pi)


def _sine_of(quadrant: V, r: V) -> V:
    """sin(quadrant * pi / 2 + r) in float32."""
    square = r * r
    sine = polynomial(square, _SIN) * square * r + r
    cosine = 1.0 - (square * 0.5 - polynomial(square, _COS) * square * square)
    chosen = ((quadrant & 1) != 0).where(cosine, sine)
    return (chosen.bits() ^ ((quadrant & 2) << 30)).as_float(F32)


def _finite_angle(x: V, result: V) -> V:
    finite = (x.bits() & 0x7FFFFFFF) < 0x7F800000
    return finite.where(result, NAN)


def sin(x: V) -> V:
    quadrant, r = _reduce_angle(x.abs())
    result = _sine_of(quadrant, r.to_float(F32))
    return _finite_angle(x, (result.bits() ^ (x.bits() & -0x80000000)).as_float(F32))


def cos(x: V) -> V:
    quadrant, r = _reduce_angle(x.abs())
    return _finite_angle(x, _sine_of(quadrant + 1, r.to_float(F32)))


def _reduce_half_turns(size: V) -> tuple[V, V]:
    """(quadrant, r): pi |x| = quadrant * pi / 2 + r modulo 2 pi. x itself is reduced, exactly."""
    size = _clamp(size, 0.0, 2.0**54)  # beyond, every float is even
    turns = size - (size * 0.5).call("trunc") * 2.0
    quadrant = (turns * 2.0).rint()
    return quadrant.to_int(I32), (turns - quadrant * 0.5).to_float(F64) * math.pi


def _sine_pi(size: V, quarter: int) -> V:
    quadrant, r = _reduce_half_turns(size)
    if size.type == F32:
        return _sine_of(quadrant + quarter, r.to_float(F32))
    chosen = (((quadrant + quarter) & 1) != 0).where(r.call("cos"), r.call("sin"))
    return (((quadrant + quarter) & 2) != 0).where(-chosen, chosen)


def sinpi(x: V) -> V:
    """sin(pi x), in either width."""
    result = _sine_pi(x.abs(), 0)
    return (x.abs() < INFINITY).where((x < 0.0).where(-result, result), NAN)


def cospi(x: V) -> V:
    """cos(pi x), in either width."""
    return (x.abs() < INFINITY).where(_sine_pi(x.abs(), 1), NAN)


def remainder(x: V, y: V) -> V:
    """IEEE 754's remainder, in either width: x minus the multiple of y nearest to it."""
    size, step = x.abs(), y.abs()
    rest = size.fmod(step + step)
    less = rest - step  # exact where it is used
    nearest = (less + less < step).where(less, less - step)
    result = (rest + rest <= step).where(rest, nearest)
    return (x.bits() < 0).where(-result, result)


def fmod(x: V, y: V) -> V:
    """C's `fmod`. Each step takes a multiple of y off the rest, exactly: with a quotient of 53 bits
    what is left has 24 bits again, and is 2^51 times smaller. Quotients have up to 277 bits."""
    rest, step = x.abs().to_float(F64), y.abs().to_float(F64)
    inverse = 1.0 / step
    for _ in range(6):
        rest = (-(rest * inverse).rint()).fma(step, rest)
    rest = (rest < 0.0).where(rest + step, rest).to_float(F32)
    whole = (y.abs() == INFINITY) & (x.abs() < INFINITY)
    return whole.where(x, rest).with_sign_of(x)


def tan(x: V) -> V:
    quadrant, r = _reduce_angle(x.abs())
    square = r * r
    sine = polynomial(square, _SIN64) * square * r + r
    cosine = 1.0 - (square * 0.5 - polynomial(square, _COS64) * square * square)
    odd = (quadrant & 1) != 0
    result = odd.where(-cosine, sine) / odd.where(sine, cosine)
    # the sign goes on last so that tan(-0) is -0
    result = result.to_float(F32)
    return _finite_angle(x, (result.bits() ^ (x.bits() & -0x80000000)).as_float(F32))


def _split_wide(x: V) -> tuple[V, V]:
    """(e, m) with x = 2^e m, sqrt(1/2) <= m < sqrt(2), for a positive normal float64.

    Neither a shift that keeps the sign nor a conversion from int64: AVX2 has no instruction for
    them. 2^52's bits with an exponent in the low ones are 2^52 plus that exponent.
    """
    offset = 0x3FE6A09E667F3BCD  # sqrt(1/2)
    bits = x.bits() - offset
    mantissa = ((bits & 0xFFFFFFFFFFFFF) + offset).as_float(F64)
    biased = (bits + (1023 << 52)).logical_shift(52) | 0x4330000000000000
    return biased.as_float(F64) - (2.0**52 + 1023), mantissa


def _log2_wide(x: V) -> V:
    """log2 of a positive normal float64, relative error about 2^-50."""
    exponent, mantissa = _split_wide(x)
    s = (mantissa - 1.0) / (mantissa + 1.0)
    return exponent + polynomial(s * s, _LOG2_S) * s


def _exp2_wide(x: V) -> V:
    """2^x in float64 for |x| < 1000, relative error about 2^-45."""
    n = x.rint()
    r = x - n
    # 1.5 * 2^52 puts n into the low bits: cheaper than a conversion to int64 where there is no
    # instruction for it; the shift drops everything above
    exponent = ((n + 6755399441055744.0).bits() << 52) + (1023 << 52)
    return (polynomial(r, _EXP2_64) * r + 1.0) * exponent.as_float(F64)


def pow_wide(x: V, y: V) -> V:
    """x (float32) to the power y (float64), as float32, with C's `pow` special cases."""
    size = x.abs()
    log = _log2_wide(size.to_float(F64))
    log = (size == 0.0).where(log.constant(-INFINITY), log)
    log = ((x.bits() & 0x7FFFFFFF) == 0x7F800000).where(log.constant(INFINITY), log)
    return power_cases(x, y, _exp2_wide(_clamp(log * y, -200.0, 200.0)).to_float(F32))


def power_cases(x: V, y: V, result: V) -> V:
    """C's special cases of `pow`, for |x| to the power y as `result`, which has x's type."""
    size = x.abs()
    whole = y.rint() == y
    half = y * 0.5
    odd = whole & (half.rint() != half)
    negative = x.bits() < 0
    result = (negative & odd).where(-result, result)
    bad = negative & ~whole & (size < INFINITY) & (size > 0.0)
    result = bad.where(x.constant(NAN), result)
    unit = (size == 1.0) & (y.abs() == INFINITY)
    result = unit.where(x.constant(1.0), result)
    result = (x.isnan() | y.isnan()).where(x.constant(NAN), result)
    return ((x == 1.0) | (y == 0.0)).where(x.constant(1.0), result)


def power(x: V, y: V) -> V:
    return pow_wide(x, y.to_float(F64))


def _atan_wide(t: V) -> V:
    """atan of a float64 in [0, 1]."""
    square = t * t
    return polynomial(square, _ATAN) * square * t + t


def atan(x: V) -> V:
    size = x.abs().to_float(F64)
    large = size > 1.0
    result = _atan_wide(large.where(1.0 / size, size))
    result = large.where(math.pi / 2 - result, result)
    return _or_nan(x, result.to_float(F32).with_sign_of(x))


def atan2(y: V, x: V) -> V:
    across, up = x.abs().to_float(F64), y.abs().to_float(F64)
    steep = up > across
    least, most = steep.where(across, up), steep.where(up, across)
    t = (least == most).where(least.constant(1.0), least / most)  # of infinities too
    result = _atan_wide((least == 0.0).where(least, t))
    result = steep.where(math.pi / 2 - result, result)
    result = (x.bits() < 0).where(math.pi - result, result)
    return _or_nan(x, _or_nan(y, result.to_float(F32).with_sign_of(y)))


def _asin_wide(size: V) -> tuple[V, V]:
    """(whether size > 1 / 2, p): asin(size) is p, or pi / 2 - 2 p, for a float64 size."""
    large = size > 0.5
    square = large.where((1.0 - size) * 0.5, size * size)
    root = large.where(square.call("sqrt"), size)
    return large, polynomial(square, _ASIN) * square * root + root


def asin(x: V) -> V:
    large, p = _asin_wide(x.abs().to_float(F64))
    return large.where(math.pi / 2 - (p + p), p).to_float(F32).with_sign_of(x)


def acos(x: V) -> V:
    large, p = _asin_wide(x.abs().to_float(F64))
    negative = x < 0.0
    far = negative.where(math.pi - (p + p), p + p)
    return large.where(far, math.pi / 2 - negative.where(-p, p)).to_float(F32)


def _exp_both(x: V) -> tuple[V, V]:
    """e^|x| and e^-|x| in float64."""
    e = _exp2_wide(_clamp(x.abs(), 0.0, 90.0).to_float(F64) * LOG2_E)
    return e, 1.0 / e


def sinh(x: V) -> V:
    up, down = _exp_both(x)
    wide = x.abs().to_float(F64)
    square = wide * wide
    small = polynomial(square, _SINH) * square * wide + wide
    result = (wide < 1.0).where(small, (up - down) * 0.5)
    return _or_nan(x, result.to_float(F32).with_sign_of(x))


def cosh(x: V) -> V:
    up, down = _exp_both(x)
    return _or_nan(x, ((up + down) * 0.5).to_float(F32))


def asinh(x: V) -> V:
    wide = x.abs().to_float(F64)
    small = wide - wide * wide * wide * (1 / 6)
    large = log64(wide + (wide * wide + 1.0).call("sqrt"))
    return (wide < 2.0**-8).where(small, large).to_float(F32).with_sign_of(x)


def acosh(x: V) -> V:
    wide = x.to_float(F64)
    result = log64(wide + (wide * wide - 1.0).call("sqrt")).to_float(F32)
    return (x < 1.0).where(x.constant(NAN), result)


def atanh(x: V) -> V:
    wide = x.abs().to_float(F64)
    small = wide + wide * wide * wide * (1 / 3)
    large = log64((1.0 + wide) / (1.0 - wide)) * 0.5
    return (wide < 2.0**-8).where(small, large).to_float(F32).with_sign_of(x)


def _cbrt_wide(x: V, steps: int) -> V:
    """The cube root of a positive normal float64 by Halley's iteration from an exponent guess."""
    # dividing the bits by 3 divides the exponent by 3; the multiply-high is that division
    third = (x.bits().logical_shift(32) * 0x55555556).logical_shift(32)
    t = ((third + 0x2A9F7893) << 32).as_float(F64)
    for _ in range(steps):
        cube = t * t * t
        t = t * ((cube + (x + x)) / ((cube + cube) + x))
    return t


def cbrt(x: V) -> V:
    size = x.abs()
    root = _cbrt_wide(size.to_float(F64), 2).to_float(F32)
    proper = (size > 0.0) & ((x.bits() & 0x7FFFFFFF) < 0x7F800000)
    return proper.where(root.with_sign_of(x), x)


def cbrt64(x: V) -> V:
    size = x.abs()
    tiny = size < 2.0**-1000
    root = _cbrt_wide(tiny.where(size * 2.0**300, size), 4)
    root = tiny.where(root * 2.0**-100, root)
    proper = (size > 0.0) & (size < INFINITY)
    return proper.where(root.with_sign_of(x), x)


# --- float64

LN2_HIGH_64, LN2_LOW_64 = 6.93147180369123816490e-01, 1.90821492927058770002e-10
# (e^r - 1 - r) / r^2 on |r| <= ln(2) / 2, relative error 2^-61
_EXP64 = (0.5, 0.16666666666666685, 0.04166666666666671, 0.00833333333331633, 0.0013888888888863664,
          0.0001984126989789204, 2.4801587363804043e-05, 2.755723352968756e-06,
          2.7557241540153237e-07, 2.5112454311242147e-08, 2.092450042420037e-09)  # fmt: skip
# (log((1 + s) / (1 - s)) / s - 2) / s^2 in s^2, 1 + f = (1 + s) / (1 - s), sqrt(1/2) to sqrt(2)
_LOG64 = (0.6666666666666666, 0.4000000000000635, 0.28571428569061325, 0.222222226496804,
          0.18181775478785936, 0.15387097543300812, 0.13249988387427802,
          0.13252345203053828)  # fmt: skip
# (tanh(x) - x) / x^3 in x^2 <= 0.4
_TANH64 = (
    -0.3333333333333333,
    0.13333333333333103,
    -0.053968253968094154,
    0.021869488530569116,
    -0.008863235414348693,
    0.003592126495386041,
    -0.0014558204459933356,
    0.0005899393562309091,
    -0.00023873474076088738,
    9.566230201904072e-05,
    -3.648501586195868e-05,
    1.1665395274345586e-05,
    -2.219333430454344e-06,
)


def _power_of_two_64(n: V) -> V:
    """2^n for a whole float64 n from -1022 to 1023, by 1.5 * 2^52 as in `_exp2_wide`."""
    return (((n + 6755399441055744.0).bits() << 52) + (1023 << 52)).as_float(F64)


def _exp64_bounded(x: V) -> V:
    n = (x * LOG2_E).rint()
    r = (x - n * LN2_HIGH_64) - n * LN2_LOW_64
    half = (n * 0.5).rint()
    result = (polynomial(r, _EXP64) * r * r + r) + 1.0
    return result * _power_of_two_64(half) * _power_of_two_64(n - half)


def exp64(x: V) -> V:
    return _or_nan(x, _exp64_bounded(_clamp(x, -750.0, 712.0)))


def log64(x: V) -> V:
    subnormal = x < 2.0**-1022
    exponent, mantissa = _split_wide(subnormal.where(x * 2.0**54, x))
    exponent, f = exponent - subnormal.where(x.constant(54.0), 0.0), mantissa - 1.0
    s = f / (f + 2.0)
    square, half = s * s, f * f * 0.5
    rest = s * (half + polynomial(square, _LOG64) * square) + exponent * LN2_LOW_64
    result = exponent * LN2_HIGH_64 - ((half - rest) - f)
    result = (x == 0.0).where(x.constant(-INFINITY), result)
    result = (x < 0.0).where(x.constant(NAN), result)
    return (x.bits().below(0x7FF0000000000000) | (x <= 0.0)).where(result, x)


def log1p64(x: V) -> V:
    u = x + 1.0
    # what rounding 1 + x lost, added back to first order
    lost = ((u > 1.0).where(x - (u - 1.0), (1.0 - u) + x)) / u
    exponent, mantissa = _split_wide(u)
    f = mantissa - 1.0
    s = f / (f + 2.0)
    square, half = s * s, f * f * 0.5
    rest = s * (half + polynomial(square, _LOG64) * square) + exponent * LN2_LOW_64
    rest = rest + (x < 2.0**60).where(lost, 0.0)
    result = exponent * LN2_HIGH_64 - ((half - rest) - f)
    result = (x.abs() < 2.0**-54).where(x, result)
    result = (x == -1.0).where(x.constant(-INFINITY), result)
    result = (x < -1.0).where(x.constant(NAN), result)
    return (x.bits() == 0x7FF0000000000000).where(x, _or_nan(x, result))


def expm1_64(x: V) -> V:
    bounded = _clamp(x, -45.0, 710.0)
    n = (bounded * LOG2_E).rint()
    r = (bounded - n * LN2_HIGH_64) - n * LN2_LOW_64
    p = polynomial(r, _EXP64) * r * r + r
    half = _power_of_two_64(n - 1.0)  # half of 2^n: 2^1024 would overflow
    result = (half * p + (half - 0.5)) * 2.0
    result = (x.abs() < 2.0**-54).where(x, result)  # halving would cost a subnormal its last bit
    return _or_nan(x, result)


def tanh64(x: V) -> V:
    size, square = x.abs(), x * x
    small = polynomial(square, _TANH64) * square * x + x
    large = 1.0 - 2.0 / (_exp64_bounded(_clamp(size, 0.0, 20.0) * 2.0) + 1.0)
    return _or_nan(x, (size < 0.625).where(small, large).with_sign_of(x))


def rsqrt(x: V) -> V:
    return 1.0 / x.call("sqrt")


def saturate(x: V) -> V:
    """`x` clamped to [0, 1]; NaN becomes 0."""
    x = (x > 0.0).where(x, 0.0)
    return (x < 1.0).where(x, 1.0)
