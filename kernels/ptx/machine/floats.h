// Operations on floating-point numbers, and conversions.
//
// Nothing is fused that the PTX does not fuse. What the manual calls approximate is computed as
// exactly as the type allows. Sums in 16 bits are computed in float and rounded once (small_float.h).
#pragma once

#include <fenv.h>

#include "integers.h"
#include "minigrad/ptx.h"

namespace mgp {

using f32 = float;
using f64 = double;
using mgh::Bfloat16;
using mgh::Half;

inline f32 flushed(f32 x) {
    u32 bits = mgh::bit_cast<u32>(x);
    return mgh::bit_cast<f32>(bits & 0x7f800000 ? bits : bits & 0x80000000);
}
inline f64 flushed(f64 x) { return x; }

template <class T>
T saturated(T x) {  // NaN becomes 0
    return x > 0 ? (x < 1 ? x : (T)1) : (T)0;
}

// Rounding that is not to the nearest, while this lives. What is computed from memory stays between
// the two: with -frounding-math the compiler would know, and make no vector code.
struct Rounding {
    int before = -1;
    template <class... T>
    explicit Rounding(u8 mode, T*... changed) {
        static const int modes[] = {FE_TONEAREST, FE_TOWARDZERO, FE_DOWNWARD, FE_UPWARD};
        mode &= ROUNDING;
        if (mode == NEAREST || mode > UP) return;
        before = fegetround();
        fesetround(modes[mode]);
        (void)std::initializer_list<int>{(hold(changed), 0)...};
    }
    ~Rounding() {
        if (before < 0) return;
        hold(this);
        fesetround(before);
    }
    static void hold(void* changed) { asm volatile("" : : "r"(changed) : "memory"); }
};

// An operation with the modifiers .ftz, .sat and of rounding, which other instructions lack.
template <class T, class F>
__attribute__((noinline)) void with_modifiers(Warp& w, const Op& o, Mask m, int inputs, F f) {
    Rounding rounding(o.mode);
    T* to = w.at<T>(o.to);
    const T *a = w.in<T>(o.a), *b = inputs > 1 ? w.in<T>(o.b) : a, *c = inputs > 2 ? w.in<T>(o.c) : a;
    bool flush = o.mode & FLUSH, saturate = o.flags & SATURATE;
    each(m, [&](int i) {
        T r = flush ? flushed(f(flushed(a[i]), flushed(b[i]), flushed(c[i]))) : f(a[i], b[i], c[i]);
        to[i] = saturate ? saturated(r) : r;
    });
}

template <class T, class F>
inline void floating(Warp& w, const Op& o, Mask m, int inputs, F f) {
    if (__builtin_expect(o.mode | o.flags, 0)) return with_modifiers<T>(w, o, m, inputs, f);
    T* to = w.at<T>(o.to);
    const T *a = w.in<T>(o.a), *b = inputs > 1 ? w.in<T>(o.b) : a, *c = inputs > 2 ? w.in<T>(o.c) : a;
    each(m, [=](int i) { to[i] = f(a[i], b[i], c[i]); });
}

#define MGP_FLOATING(name, T, inputs, ...)                                            \
    {name, [](Warp& w, const Op& o, Mask m) {                                         \
        floating<T>(w, o, m, inputs, [](T a, T b, T c) -> T {                         \
            (void)b, (void)c;                                                         \
            return __VA_ARGS__;                                                       \
        });                                                                           \
    }, PLAIN},

template <class T>
T with_sign(T sign, T of) {
    return sizeof(T) == 4 ? (T)__builtin_copysignf((f32)of, (f32)sign)
                          : (T)__builtin_copysign((f64)of, (f64)sign);
}

// Of a number and NaN the number; of two zeros -0 is the smaller.
template <class T>
T smaller(T a, T b) {
    if (a == b) return __builtin_signbit(a) ? a : b;
    return a < b || b != b ? a : b;
}
template <class T>
T larger(T a, T b) {
    if (a == b) return __builtin_signbit(a) ? b : a;
    return a > b || b != b ? a : b;
}
template <class T>
T not_a_number(T a, T b) {  // NaN, the canonical one, if one of them is
    return a != a || b != b ? (sizeof(T) == 4 ? (T)mgh::bit_cast<f32>(0x7fffffff) : (T)__builtin_nan("")) : (T)0;
}

#define MGP_FLOATS(t, s)                                                              \
    MGP_FLOATING("add." #t, t, 2, a + b)                                              \
    MGP_FLOATING("sub." #t, t, 2, a - b)                                              \
    MGP_FLOATING("mul." #t, t, 2, a * b)                                              \
    MGP_FLOATING("div." #t, t, 2, a / b)                                              \
    MGP_FLOATING("fma." #t, t, 3, __builtin_fma##s(a, b, c))                          \
    MGP_FLOATING("min." #t, t, 2, smaller(a, b))                                      \
    MGP_FLOATING("max." #t, t, 2, larger(a, b))                                       \
    MGP_FLOATING("min.nan." #t, t, 2, a != a || b != b ? not_a_number(a, b) : smaller(a, b)) \
    MGP_FLOATING("max.nan." #t, t, 2, a != a || b != b ? not_a_number(a, b) : larger(a, b))  \
    MGP_FLOATING("neg." #t, t, 1, -a)                                                 \
    MGP_FLOATING("abs." #t, t, 1, __builtin_fabs##s(a))                               \
    MGP_FLOATING("sqrt." #t, t, 1, __builtin_sqrt##s(a))                              \
    MGP_FLOATING("rcp." #t, t, 1, (t)1 / a)                                           \
    MGP_FLOATING("rsqrt." #t, t, 1, (t)(1 / __builtin_sqrt((f64)a)))                  \
    MGP_FLOATING("copysign." #t, t, 2, with_sign(a, b))                               \
    MGP_FLOATING("rint." #t, t, 1, __builtin_rint##s(a))                              \
    MGP_FLOATING("trunc." #t, t, 1, __builtin_trunc##s(a))                            \
    MGP_FLOATING("floor." #t, t, 1, __builtin_floor##s(a))                            \
    MGP_FLOATING("ceil." #t, t, 1, __builtin_ceil##s(a))                              \
    MGP_FCOMPARE("eq", t, a == b) MGP_FCOMPARE("ne", t, a < b || a > b)               \
    MGP_FCOMPARE("lt", t, a < b) MGP_FCOMPARE("le", t, a <= b)                        \
    MGP_FCOMPARE("gt", t, a > b) MGP_FCOMPARE("ge", t, a >= b)                        \
    MGP_FCOMPARE("num", t, a == a && b == b)                                          \
    MGP_TESTP("finite", t, a - a == 0) MGP_TESTP("infinite", t, a == a && a - a != 0) \
    MGP_TESTP("number", t, a == a) MGP_TESTP("notanumber", t, a != a)                 \
    MGP_TESTP("normal", t, __builtin_isnormal(a))                                     \
    MGP_TESTP("subnormal", t, a != 0 && a - a == 0 && !__builtin_isnormal(a))

// Comparisons; flags negate the result, which gives those that are true of NaN.
constexpr u8 NEGATE_RESULT = 32;
template <class T, class F>
inline void compare_floats(Warp& w, const Op& o, Mask m, F f) {
    const T *a = w.in<T>(o.a), *b = w.in<T>(o.b);
    u8 truth[LANES];
    if (o.mode & FLUSH) {
        for (int i = 0; i < LANES; ++i) truth[i] = f(flushed(a[i]), flushed(b[i]));
    } else {
#pragma GCC ivdep
        for (int i = 0; i < LANES; ++i) truth[i] = f(a[i], b[i]);
    }
    const Mask bits = bits_of(truth);
    combine(w, o, m, o.flags & NEGATE_RESULT ? ~bits : bits);
}
#define MGP_FCOMPARE(name, t, ...)                                                    \
    {"setp." name "." #t, [](Warp& w, const Op& o, Mask m) {                          \
        compare_floats<t>(w, o, m, [](t a, t b) -> bool { return __VA_ARGS__; });     \
    }, PLAIN},
#define MGP_TESTP(name, t, ...)                                                       \
    {"testp." name "." #t, [](Warp& w, const Op& o, Mask m) {                         \
        compare<t>(w, o, m, [](t a, t) -> bool { return __VA_ARGS__; });              \
    }, PLAIN},

// -- 16 bits -----------------------------------------------------------------------------------

// `count` numbers per lane (1, or 2 in a register of 32 bits), by their bits.
template <class Format, class F>
__attribute__((noinline)) void small(Warp& w, const Op& o, Mask m, int inputs, F f) {
    u16* to = w.at<u16>(o.to);
    const u16 *a = w.in<u16>(o.a), *b = inputs > 1 ? w.in<u16>(o.b) : a,
              *c = inputs > 2 ? w.in<u16>(o.c) : a;
    auto wide = [&](u16 bits) {
        f32 x = Format::widen(bits);
        bool tiny = (bits & Format::infinity) == 0;
        return (o.mode & FLUSH) && tiny ? __builtin_copysignf(0, x) : x;
    };
    each(m, [&](int lane) {
        for (int i = lane * o.count; i < (lane + 1) * o.count; ++i) {
            u16 r = f(wide(a[i]), wide(b[i]), wide(c[i]));
            if ((o.mode & FLUSH) && (r & Format::infinity) == 0) r &= 0x8000;
            f32 x = Format::widen(r);
            if (o.flags & SATURATE) r = Format::narrow(saturated(x));
            if (o.value == 1 && (x < 0 || r == 0x8000)) r = 0;  // relu
            to[i] = r;
        }
    });
}
#define MGP_SMALL1(name, F, inputs, ...)                                              \
    {name, [](Warp& w, const Op& o, Mask m) {                                         \
        small<F>(w, o, m, inputs, [](f32 a, f32 b, f32 c) -> u16 {                    \
            (void)b, (void)c;                                                         \
            return F::narrow(__VA_ARGS__);                                            \
        });                                                                           \
    }, PLAIN},
template <class Format>
u16 bits_with(u16 keep, u16 flip, f32 a) {
    return (u16)((Format::narrow(a) & keep) ^ flip);
}
template <class Format, class F>
void compare_small(Warp& w, const Op& o, Mask m, F f) {
    const u16 *a = w.in<u16>(o.a), *b = w.in<u16>(o.b);
    Mask bits[2] = {0, 0};
    for (int i = 0; i < LANES * o.bytes; ++i) {  // bytes: how many numbers a lane has
        bits[i % o.bytes] |= (Mask)f(Format::widen(a[i]), Format::widen(b[i])) << i / o.bytes;
    }
    bool negate = o.flags & NEGATE_RESULT;
    if (o.bytes == 1) return combine(w, o, m, negate ? ~bits[0] : bits[0]);
    Op half = o;  // the first predicate is of the lower halves, the second of the upper ones
    half.count = 0;
    combine(w, half, m, negate ? ~bits[0] : bits[0]);
    half.to = o.d;
    combine(w, half, m, negate ? ~bits[1] : bits[1]);
}
#define MGP_SMALL_COMPARE(name, F, suffix, ...)                                       \
    {"setp." name "." suffix, [](Warp& w, const Op& o, Mask m) {                      \
        compare_small<F>(w, o, m, [](f32 a, f32 b) -> bool { return __VA_ARGS__; });  \
    }, PLAIN},
#define MGP_SMALLS(F, s)                                                              \
    MGP_SMALL1("add." s, F, 2, a + b) MGP_SMALL1("sub." s, F, 2, a - b)               \
    MGP_SMALL1("mul." s, F, 2, a * b)                                                 \
    MGP_SMALL1("fma." s, F, 3, mgh::fma_to_odd(a, b, c))                              \
    MGP_SMALL1("min." s, F, 2, smaller(a, b)) MGP_SMALL1("max." s, F, 2, larger(a, b)) \
    MGP_SMALL1("min.nan." s, F, 2, a != a || b != b ? not_a_number(a, b) : smaller(a, b)) \
    MGP_SMALL1("max.nan." s, F, 2, a != a || b != b ? not_a_number(a, b) : larger(a, b))  \
    MGP_SMALL1("neg." s, F, 1, -a) MGP_SMALL1("abs." s, F, 1, __builtin_fabsf(a))     \
    MGP_SMALL1("ex2." s, F, 1, __builtin_exp2f(a))                                    \
    MGP_SMALL1("tanh." s, F, 1, __builtin_tanhf(a))                                   \
    MGP_SMALL_COMPARE("eq", F, s, a == b) MGP_SMALL_COMPARE("ne", F, s, a < b || a > b) \
    MGP_SMALL_COMPARE("lt", F, s, a < b) MGP_SMALL_COMPARE("le", F, s, a <= b)        \
    MGP_SMALL_COMPARE("gt", F, s, a > b) MGP_SMALL_COMPARE("ge", F, s, a >= b)        \
    MGP_SMALL_COMPARE("num", F, s, a == a && b == b)

// -- conversions -------------------------------------------------------------------------------

template <class T>
inline void copy_lanes(const T* from, u64* to) {
#pragma GCC ivdep
    for (int i = 0; i < LANES; ++i) to[i] = from[i];
}

// The lower bytes, with zeros or signs above.
inline void wrap(u64* x, int bytes, bool has_sign) {
    const int above = 64 - 8 * bytes;
    if (has_sign) {
        for (int i = 0; i < LANES; ++i) x[i] = (u64)((s64)(x[i] << above) >> above);
    } else {
        for (int i = 0; i < LANES; ++i) x[i] = x[i] << above >> above;
    }
}

// Registers by width, as 64-bit integers with zeros or signs.
inline void read_integers(Warp& w, int32_t at, int width, int bytes, bool has_sign, u64* x) {
    switch (width) {
        case 1: copy_lanes(w.in<u8>(at), x); break;
        case 2: copy_lanes(w.in<u16>(at), x); break;
        case 4: copy_lanes(w.in<u32>(at), x); break;
        default: copy_lanes(w.in<u64>(at), x);
    }
    wrap(x, bytes, has_sign);
}
inline void write_integers(Warp& w, int32_t at, int width, Mask m, const u64* x) {
    auto write = [=](auto* to) { each(m, [=](int i) { to[i] = (decltype(*to + 0))x[i]; }); };
    switch (width) {
        case 1: return write(w.at<u8>(at));
        case 2: return write(w.at<u16>(at));
        case 4: return write(w.at<u32>(at));
    }
    write(w.at<u64>(at));
}

enum Format { F16 = 1, BF16, TF32, F32, F64, E4M3, E5M2 };

template <int Exponent, int Fraction>
f32 widen8(u8 bits) {  // e5m2 has infinities, e4m3 only NaN
    constexpr int bias = (1 << (Exponent - 1)) - 1;
    int e = bits >> Fraction & ((1 << Exponent) - 1), f = bits & ((1 << Fraction) - 1);
    f32 x;
    if (Exponent == 5 && e == 31) x = f ? __builtin_nanf("") : __builtin_inff();
    else if (Exponent == 4 && (bits & 0x7f) == 0x7f) x = __builtin_nanf("");
    else if (e == 0) x = __builtin_ldexpf((f32)f, 1 - bias - Fraction);
    else x = __builtin_ldexpf((f32)(f + (1 << Fraction)), e - bias - Fraction);
    return bits & 0x80 ? -x : x;
}

// To the nearest, to the largest finite number where it is larger (.satfinite).
template <int Exponent, int Fraction>
u8 narrow8(f64 x) {
    constexpr int bias = (1 << (Exponent - 1)) - 1;
    constexpr u8 most = Exponent == 4 ? 0x7e : 0x7b;
    u8 sign = __builtin_signbit(x) ? 0x80 : 0;
    if (x != x) return 0x7f;
    x = __builtin_fabs(x);
    if (x >= widen8<Exponent, Fraction>(most)) return sign | most;
    int e = x == 0 ? 1 - bias : __builtin_ilogb(x);
    if (e < 1 - bias) e = 1 - bias;
    int units = (int)__builtin_rint(__builtin_ldexp(x, Fraction - e));  // carries into the exponent
    return sign | (u8)(units + ((e + bias - 1) << Fraction));
}

inline void read_floats(Warp& w, int32_t at, int format, f64* x) {
    const char* p = w.in<char>(at);
    for (int i = 0; i < LANES; ++i) {
        switch (format) {
            case F16: x[i] = Half::widen(((u16*)p)[i]); break;
            case BF16: x[i] = Bfloat16::widen(((u16*)p)[i]); break;
            case F64: x[i] = ((f64*)p)[i]; break;
            default: x[i] = ((f32*)p)[i];
        }
    }
}

template <class Format>
u16 narrow(f64 x, u8 mode) {
    mode &= ROUNDING;
    if (mode == NEAREST) return mgh::Small<Format>(x).bits;
    auto how = mode == TO_ZERO ? mgh::Round::TO_ZERO : mode == UP ? mgh::Round::UP : mgh::Round::DOWN;
    return mgh::rounded<Format>(x, how).bits;
}

inline u64 float_bits(f64 x, int format, u8 mode) {
    switch (format) {
        case F16: return narrow<Half>(x, mode);
        case BF16: return narrow<Bfloat16>(x, mode);
        case TF32: return mode == AWAY ? mgh::ptx::round_to_tf32((f32)x)
                                       : mgh::bit_cast<u32>((f32)x) & 0xffffe000;
        case F64: return mgh::bit_cast<u64>(x);
        case E4M3: return narrow8<4, 3>(x);
        case E5M2: return narrow8<5, 2>(x);
    }
    f32 r = (f32)x;
    if (mode & FLUSH) r = flushed(r);
    return mgh::bit_cast<u32>(r);
}

inline f64 integral(f64 x, u8 mode) {
    switch (mode & ROUNDING) {
        case TO_ZERO: return __builtin_trunc(x);
        case DOWN: return __builtin_floor(x);
        case UP: return __builtin_ceil(x);
    }
    return __builtin_rint(x);
}

// Operands of conversions: a: the register, b: its width, c: the type's bytes (or Format),
// d: the result's width, value: its bytes (or Format), flags: see below.
enum ConversionFlag { FROM_SIGNED = 2, TO_SIGNED = 4, TO_INTEGRAL = 8, RELU = 16 };

inline void limit(u64* x, bool from_signed, int bytes, bool to_signed) {
    u64 most = (to_signed ? ~0ull >> 1 : ~0ull) >> (64 - 8 * bytes);
    s64 least = to_signed ? -(s64)most - 1 : 0;
    for (int i = 0; i < LANES; ++i) {
        bool negative = from_signed && (s64)x[i] < 0;
        if (negative && (s64)x[i] < least) x[i] = (u64)least;
        else if (!negative && x[i] > most) x[i] = most;
    }
}
inline void integer_to_integer(Warp& w, const Op& o, Mask m) {
    u64 x[LANES];
    read_integers(w, o.a, o.b, o.c, o.flags & FROM_SIGNED, x);
    if (o.flags & SATURATE) limit(x, o.flags & FROM_SIGNED, (int)o.value, o.flags & TO_SIGNED);
    wrap(x, (int)o.value, o.flags & TO_SIGNED);
    write_integers(w, o.to, o.d, m, x);
}

__attribute__((noinline)) inline void integer_to_float(Warp& w, const Op& o, Mask m) {
    u64 x[LANES];
    read_integers(w, o.a, o.b, o.c, o.flags & FROM_SIGNED, x);
    Rounding rounding(o.value == F32 || o.value == F64 ? o.mode : (u8)NEAREST, x);
    for (int i = 0; i < LANES; ++i) {
        bool has_sign = o.flags & FROM_SIGNED;
        if (o.value == F32) {
            x[i] = mgh::bit_cast<u32>(has_sign ? (f32)(s64)x[i] : (f32)x[i]);
        } else if (o.value == F64) {
            x[i] = mgh::bit_cast<u64>(has_sign ? (f64)(s64)x[i] : (f64)x[i]);
        } else if ((o.mode & ROUNDING) == NEAREST) {
            bool half = o.value == F16;
            long long s = (long long)x[i];
            unsigned long long u = x[i];
            x[i] = half ? (has_sign ? mgh::Small<Half>(s).bits : mgh::Small<Half>(u).bits)
                        : (has_sign ? mgh::Small<Bfloat16>(s).bits : mgh::Small<Bfloat16>(u).bits);
        } else {
            x[i] = float_bits(has_sign ? (f64)(s64)x[i] : (f64)x[i], (int)o.value, o.mode);
        }
    }
    write_integers(w, o.to, o.d, m, x);
}

inline void float_to_integer(Warp& w, const Op& o, Mask m) {
    f64 x[LANES];
    u64 r[LANES];
    read_floats(w, o.a, o.c, x);
    int bits = 8 * (int)o.value;
    bool has_sign = o.flags & TO_SIGNED;
    f64 end = __builtin_ldexp(1.0, has_sign ? bits - 1 : bits);
    u64 most = (has_sign ? ~0ull >> 1 : ~0ull) >> (64 - bits);
    u64 least = has_sign ? ~most : 0;
    u64 of_nan = o.c == F64 || bits == 64 ? 1ull << (bits - 1) : 0;
    for (int i = 0; i < LANES; ++i) {
        f64 v = o.mode & FLUSH && o.c == F32 ? flushed((f32)x[i]) : x[i];
        v = integral(v, o.mode);
        if (v != v) r[i] = of_nan;
        else if (v >= end) r[i] = most;
        else if (has_sign ? v < -end : v < 0) r[i] = least;
        else r[i] = has_sign ? (u64)(s64)v : (u64)v;
    }
    wrap(r, (int)o.value, has_sign);
    write_integers(w, o.to, o.d, m, r);
}

__attribute__((noinline)) inline void float_to_float(Warp& w, const Op& o, Mask m) {
    f64 x[LANES];
    u64 r[LANES];
    read_floats(w, o.a, o.c, x);
    Rounding rounding(o.flags & TO_INTEGRAL || o.value != F32 ? (u8)NEAREST : o.mode, x, r);
    for (int i = 0; i < LANES; ++i) {
        f64 v = o.mode & FLUSH && o.c == F32 ? flushed((f32)x[i]) : x[i];
        if (o.flags & TO_INTEGRAL) v = integral(v, o.mode);
        if (o.flags & SATURATE) v = saturated(v);
        if (o.flags & RELU && v < 0) v = 0;
        r[i] = float_bits(v, (int)o.value, o.flags & TO_INTEGRAL ? o.mode & FLUSH : o.mode);
    }
    write_integers(w, o.to, o.d, m, r);
}

// Two floats to one register: the first operand to the upper half.
inline void pack_floats(Warp& w, const Op& o, Mask m) {
    f64 a[LANES], b[LANES];
    u64 r[LANES];
    read_floats(w, o.a, F32, a);
    read_floats(w, o.b, F32, b);
    int half = o.value >= E4M3 ? 8 : 16;
    for (int i = 0; i < LANES; ++i) {
        if (o.flags & RELU) a[i] = a[i] < 0 ? 0 : a[i], b[i] = b[i] < 0 ? 0 : b[i];
        r[i] = float_bits(a[i], (int)o.value, o.mode) << half | float_bits(b[i], (int)o.value, o.mode);
    }
    write_integers(w, o.to, o.d, m, r);
}

inline void unpack_fp8(Warp& w, const Op& o, Mask m) {  // to two numbers of f16
    u64 x[LANES];
    read_integers(w, o.a, o.b, 2, false, x);
    for (int i = 0; i < LANES; ++i) {
        u64 r = 0;
        for (int k = 0; k < 2; ++k) {
            u8 one = (u8)(x[i] >> 8 * k);
            f32 v = o.value == E4M3 ? widen8<4, 3>(one) : widen8<5, 2>(one);
            r |= (u64)Half::narrow(v) << 16 * k;
        }
        x[i] = r;
    }
    write_integers(w, o.to, o.d, m, x);
}

static const Entry floats[] = {
    MGP_FLOATS(f32, f) MGP_FLOATS(f64, )
    MGP_FLOATING("ex2.f32", f32, 1, __builtin_exp2f(a))
    MGP_FLOATING("lg2.f32", f32, 1, __builtin_log2f(a))
    MGP_FLOATING("sin.f32", f32, 1, __builtin_sinf(a))
    MGP_FLOATING("cos.f32", f32, 1, __builtin_cosf(a))
    MGP_FLOATING("tanh.f32", f32, 1, __builtin_tanhf(a))
    MGP_FLOATING("rcp.ftz.f64", f64, 1, __builtin_isnormal(a) || a - a != 0 ? 1 / a : with_sign(a, (f64)__builtin_inf()))
    MGP_SMALLS(Half, "f16") MGP_SMALLS(Bfloat16, "bf16")
    {"slct.f32", [](Warp& w, const Op& o, Mask m) {
        bool flush = o.mode & FLUSH;
        ternary<u32, u32, u32, f32>(w, o, m, [=](u32 a, u32 b, f32 c) {
            return (flush ? flushed(c) : c) >= 0 ? a : b;
        });
    }, PLAIN},
    {"slct.wide.f32", [](Warp& w, const Op& o, Mask m) {
        ternary<u64, u64, u64, f32>(w, o, m, [](u64 a, u64 b, f32 c) { return c >= 0 ? a : b; });
    }, PLAIN},
    MGP_TERNARY("slct.s32", u32, u32, s32, c >= 0 ? a : b)
    MGP_TERNARY("slct.wide.s32", u64, u64, s32, c >= 0 ? a : b)
    MGP_UNARY("cvt.s64.s32", s64, s32, a)
    MGP_UNARY("cvt.u64.u32", u64, u32, a)
    MGP_UNARY("cvt.u32.u64", u32, u64, (u32)a)
    MGP_UNARY("cvt.f32.s32", f32, s32, (f32)a)
    MGP_UNARY("cvt.f64.f32", f64, f32, a)
    MGP_UNARY("cvt.f32.f64", f32, f64, (f32)a)
    MGP_UNARY("cvt.f32.f16", f32, u16, Half::widen(a))
    MGP_UNARY("cvt.f16.f32", u16, f32, Half::narrow(a))
    {"cvt.integers", integer_to_integer, PLAIN},
    {"cvt.to.float", integer_to_float, PLAIN},
    {"cvt.to.integer", float_to_integer, PLAIN},
    {"cvt.floats", float_to_float, PLAIN},
    {"cvt.pack", pack_floats, PLAIN},
    {"cvt.fp8", unpack_fp8, PLAIN},
};

}  // namespace mgp
