// The two floating-point types of 16 bits, behind <cuda_fp16.h> and <cuda_bf16.h>.
//
// Values are widened to float, which is exact, and results rounded once: to nearest, ties to even.
// That is what the hardware does, since a float has more than twice the digits; a fused
// multiply-add is made in double and rounded to odd on the way.
#pragma once

namespace mgh {

// The float next to `x` in whose last bit it shows whether anything was lost.
inline float to_odd(double x) {
    float f = (float)x;
    unsigned bits = bit_cast<unsigned>(f);
    if ((double)f == x || x != x || (bits & 1)) return f;
    return bit_cast<float>(__builtin_fabs((double)f) < __builtin_fabs(x) ? bits + 1 : bits - 1);
}

// a * b + c, rounded to odd. The product of two small floats is exact in double.
inline float fma_to_odd(float a, float b, float c) {
    double p = (double)a * b, s = p + c, shift = s - p;
    double lost = (p - (s - shift)) + (c - shift);
    unsigned long long bits = bit_cast<unsigned long long>(s);
    if (lost != 0 && lost == lost && !(bits & 1)) bits += (lost > 0) == (s > 0) ? 1 : -1;
    return to_odd(bit_cast<double>(bits));
}

struct Half {  // 5 bits of exponent, 10 of fraction
    static constexpr char kind = 'f';
    static constexpr unsigned short infinity = 0x7c00;

    static float widen(unsigned short h) {
#if defined(__F16C__) && !defined(__clang__)
        typedef short v8 __attribute__((vector_size(16)));
        return __builtin_ia32_vcvtph2ps((v8){(short)h})[0];
#elif defined(__F16C__) || defined(__aarch64__)
        __fp16 half;  // which no function may return, says clang++
        memcpy(&half, &h, sizeof half);
        return (float)half;
#else
        float f = bit_cast<float>((h & 0x7fffu) << 13) * 0x1p112f;
        unsigned bits = bit_cast<unsigned>(f) | (h & 0x8000u) << 16;
        return bit_cast<float>((h & infinity) == infinity ? bits | 0x7f800000 : bits);
#endif
    }

    static unsigned short narrow(float f) {
#if defined(__F16C__) && !defined(__clang__)
        typedef float v4 __attribute__((vector_size(16)));
        return __builtin_ia32_vcvtps2ph((v4){f}, 0)[0];
#elif defined(__F16C__) || defined(__aarch64__)
        const __fp16 half = (__fp16)f;
        unsigned short bits;
        memcpy(&bits, &half, sizeof bits);
        return bits;
#else
        unsigned bits = bit_cast<unsigned>(f), sign = bits >> 16 & 0x8000;
        bits &= 0x7fffffff;
        if (bits > 0x7f800000) return sign | 0x7fff;
        if (bits >= 0x477ff000) return sign | infinity;  // from 65520 on
        if (bits < 0x38800000) {  // subnormal: the addition rounds
            return sign | (bit_cast<unsigned>(bit_cast<float>(bits) + 0.5f) - 0x3f000000);
        }
        return sign | (bits - 0x38000000 + 0xfff + (bits >> 13 & 1)) >> 13;
#endif
    }
};

struct Bfloat16 {  // the upper half of a float
    static constexpr char kind = 'B';
    static constexpr unsigned short infinity = 0x7f80;

    static float widen(unsigned short h) { return bit_cast<float>((unsigned)h << 16); }

    static unsigned short narrow(float f) {
        unsigned bits = bit_cast<unsigned>(f);
        return f != f ? 0x7fff : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    }
};

struct Raw16 {
    unsigned short x;
};

// Friends rather than templates: an argument may be a float or an integer.
template <class Format>
struct Small {
    using Of = Format;
    unsigned short bits;

    Small() = default;
    MGH_COPIED(Small)
    Small(float x) : bits(Format::narrow(x)) {}
    Small(double x) : Small(to_odd(x)) {}
    Small(short x) : Small((float)x) {}
    Small(unsigned short x) : Small((float)x) {}
    Small(int x) : Small((double)x) {}
    Small(unsigned x) : Small((double)x) {}
    Small(long x) : Small(odd_of(x)) {}
    Small(unsigned long x) : Small(odd_of(x)) {}
    Small(long long x) : Small(odd_of(x)) {}
    Small(unsigned long long x) : Small(odd_of(x)) {}
    Small(Raw16 raw) : bits(raw.x) {}

    static Small of_bits(unsigned short bits) { return Raw16{bits}; }

    operator float() const { return Format::widen(bits); }
    operator Raw16() const { return {bits}; }
    explicit operator bool() const { return (bits & 0x7fff) != 0; }
    template <class T, class = decltype((T)0 % (T)1)>
    operator T() const { return saturate<T>(__builtin_truncf(*this)); }

    Small& operator+=(Small b) { return *this = *this + b; }
    Small& operator-=(Small b) { return *this = *this - b; }
    Small& operator*=(Small b) { return *this = *this * b; }
    Small& operator/=(Small b) { return *this = *this / b; }
    Small& operator++() { return *this += Small(1.0f); }
    Small& operator--() { return *this -= Small(1.0f); }
    Small operator++(int) { Small old = *this; ++*this; return old; }
    Small operator--(int) { Small old = *this; --*this; return old; }
    Small operator+() const { return *this; }
    Small operator-() const { return of_bits(bits ^ 0x8000); }

    friend Small operator+(Small a, Small b) { return (float)a + (float)b; }
    friend Small operator-(Small a, Small b) { return (float)a - (float)b; }
    friend Small operator*(Small a, Small b) { return (float)a * (float)b; }
    friend Small operator/(Small a, Small b) { return (float)a / (float)b; }
    friend bool operator==(Small a, Small b) { return (float)a == (float)b; }
    friend bool operator!=(Small a, Small b) { return (float)a != (float)b; }
    friend bool operator<(Small a, Small b) { return (float)a < (float)b; }
    friend bool operator>(Small a, Small b) { return (float)a > (float)b; }
    friend bool operator<=(Small a, Small b) { return (float)a <= (float)b; }
    friend bool operator>=(Small a, Small b) { return (float)a >= (float)b; }

#define MGH_BINARY(name, ...) \
    friend Small name(Small a, Small b) { return __VA_ARGS__; }
    MGH_BINARY(__hadd, a + b)
    MGH_BINARY(__hsub, a - b)
    MGH_BINARY(__hmul, a * b)
    MGH_BINARY(__hdiv, a / b)
    MGH_BINARY(__hadd_rn, a + b)
    MGH_BINARY(__hsub_rn, a - b)
    MGH_BINARY(__hmul_rn, a * b)
    MGH_BINARY(__hadd_sat, saturated(a + b))
    MGH_BINARY(__hsub_sat, saturated(a - b))
    MGH_BINARY(__hmul_sat, saturated(a * b))
    MGH_BINARY(__hmax, larger(a, b))
    MGH_BINARY(__hmin, -larger(-a, -b))
    MGH_BINARY(__hmax_nan, a != a || b != b ? not_a_number() : larger(a, b))
    MGH_BINARY(__hmin_nan, a != a || b != b ? not_a_number() : -larger(-a, -b))
#undef MGH_BINARY

    friend Small __hfma(Small a, Small b, Small c) { return fma_to_odd(a, b, c); }
    friend Small __hfma_sat(Small a, Small b, Small c) { return saturated(__hfma(a, b, c)); }
    friend Small __hfma_relu(Small a, Small b, Small c) {
        Small x = __hfma(a, b, c);
        return x != x ? x : larger(x, 0.0f);
    }

#define MGH_COMPARE(name, operation)                                            \
    friend bool __h##name(Small a, Small b) { return (float)a operation (float)b; } \
    friend bool __h##name##u(Small a, Small b) {                                \
        return a != a || b != b || (float)a operation (float)b;                 \
    }
    MGH_COMPARE(eq, ==)
    MGH_COMPARE(lt, <)
    MGH_COMPARE(le, <=)
    MGH_COMPARE(gt, >)
    MGH_COMPARE(ge, >=)
#undef MGH_COMPARE
    friend bool __hne(Small a, Small b) { return a < b || a > b; }
    friend bool __hneu(Small a, Small b) { return a != b; }

    friend Small __hneg(Small a) { return -a; }
    friend Small __habs(Small a) { return of_bits(a.bits & 0x7fff); }
    friend bool __hisnan(Small a) { return (a.bits & 0x7fff) > Format::infinity; }
    friend int __hisinf(Small a) {
        return (a.bits & 0x7fff) == Format::infinity ? (a.bits >> 15 ? -1 : 1) : 0;
    }

#define MGH_UNARY(name, ...) \
    friend Small h##name(Small a) { float x = a; return __VA_ARGS__; }
    MGH_UNARY(sqrt, __builtin_sqrtf(x))
    MGH_UNARY(rsqrt, 1.0 / __builtin_sqrt((double)x))
    MGH_UNARY(rcp, 1.0f / x)
    MGH_UNARY(exp, __builtin_expf(x))
    MGH_UNARY(exp2, __builtin_exp2f(x))
    MGH_UNARY(exp10, __builtin_exp2(x * 3.32192809488736234787))
    MGH_UNARY(log, __builtin_logf(x))
    MGH_UNARY(log2, __builtin_log2f(x))
    MGH_UNARY(log10, __builtin_log10f(x))
    MGH_UNARY(sin, __builtin_sinf(x))
    MGH_UNARY(cos, __builtin_cosf(x))
    MGH_UNARY(tanh, __builtin_tanhf(x))
    MGH_UNARY(tanh_approx, __builtin_tanhf(x))
    MGH_UNARY(floor, __builtin_floorf(x))
    MGH_UNARY(ceil, __builtin_ceilf(x))
    MGH_UNARY(trunc, __builtin_truncf(x))
    MGH_UNARY(rint, __builtin_rintf(x))
#undef MGH_UNARY

   private:
    static Small not_a_number() { return of_bits(0x7fff); }
    static Small saturated(Small x) {
        float f = x;
        return f > 0 ? (f < 1 ? f : 1.0f) : 0.0f;
    }

    // Of a number and NaN the number, of two zeros the positive one.
    static Small larger(Small a, Small b) {
        if (a == b) return a.bits & 0x8000 ? b : a;
        return a > b || b != b ? a : b;
    }

    // 64-bit integers round twice on the way through double: keep what is lost in the last bit.
    template <class T>
    static float odd_of(T x) {
        constexpr T low = 0xffffff;
        constexpr T exact = (T)1 << 52;
        bool large = x > exact || (x < 0 && x < -exact);
        if (large) x = (x & ~low) | ((x & low) ? 0x800000 : 0);
        return to_odd((double)x);
    }
};

template <class Format>
struct __attribute__((aligned(4))) Small2 {
    using T = Small<Format>;
    T x, y;

    Small2() = default;
    MGH_COPIED(Small2)
    Small2(T x, T y) : x(x), y(y) {}

    Small2& operator+=(Small2 b) { return *this = *this + b; }
    Small2& operator-=(Small2 b) { return *this = *this - b; }
    Small2& operator*=(Small2 b) { return *this = *this * b; }
    Small2& operator/=(Small2 b) { return *this = *this / b; }
    Small2 operator-() const { return {-x, -y}; }

#define MGH_BINARY(name, each) \
    friend Small2 name(Small2 a, Small2 b) { return {each(a.x, b.x), each(a.y, b.y)}; }
    MGH_BINARY(operator+, __hadd)
    MGH_BINARY(operator-, __hsub)
    MGH_BINARY(operator*, __hmul)
    MGH_BINARY(operator/, __hdiv)
    MGH_BINARY(__hadd2, __hadd)
    MGH_BINARY(__hsub2, __hsub)
    MGH_BINARY(__hmul2, __hmul)
    MGH_BINARY(__h2div, __hdiv)
    MGH_BINARY(__hadd2_rn, __hadd)
    MGH_BINARY(__hsub2_rn, __hsub)
    MGH_BINARY(__hmul2_rn, __hmul)
    MGH_BINARY(__hadd2_sat, __hadd_sat)
    MGH_BINARY(__hsub2_sat, __hsub_sat)
    MGH_BINARY(__hmul2_sat, __hmul_sat)
    MGH_BINARY(__hmax2, __hmax)
    MGH_BINARY(__hmin2, __hmin)
    MGH_BINARY(__hmax2_nan, __hmax_nan)
    MGH_BINARY(__hmin2_nan, __hmin_nan)
#undef MGH_BINARY
#define MGH_TERNARY(name, each)                                     \
    friend Small2 name(Small2 a, Small2 b, Small2 c) {              \
        return {each(a.x, b.x, c.x), each(a.y, b.y, c.y)};          \
    }
    MGH_TERNARY(__hfma2, __hfma)
    MGH_TERNARY(__hfma2_sat, __hfma_sat)
    MGH_TERNARY(__hfma2_relu, __hfma_relu)
#undef MGH_TERNARY

#define MGH_COMPARE(name)                                                                       \
    friend bool __hb##name##2(Small2 a, Small2 b) {                                             \
        return __h##name(a.x, b.x) && __h##name(a.y, b.y);                                      \
    }                                                                                           \
    friend Small2 __h##name##2(Small2 a, Small2 b) {                                            \
        return {T((float)__h##name(a.x, b.x)), T((float)__h##name(a.y, b.y))};                  \
    }                                                                                           \
    friend unsigned __h##name##2_mask(Small2 a, Small2 b) {                                     \
        return (__h##name(a.x, b.x) ? 0xffffu : 0) | (__h##name(a.y, b.y) ? 0xffff0000u : 0);   \
    }
    MGH_COMPARE(eq)
    MGH_COMPARE(ne)
    MGH_COMPARE(lt)
    MGH_COMPARE(le)
    MGH_COMPARE(gt)
    MGH_COMPARE(ge)
    MGH_COMPARE(equ)
    MGH_COMPARE(neu)
    MGH_COMPARE(ltu)
    MGH_COMPARE(leu)
    MGH_COMPARE(gtu)
    MGH_COMPARE(geu)
#undef MGH_COMPARE
    friend bool operator==(Small2 a, Small2 b) { return __hbeq2(a, b); }
    friend bool operator!=(Small2 a, Small2 b) { return __hbneu2(a, b); }
    friend bool operator<(Small2 a, Small2 b) { return __hblt2(a, b); }
    friend bool operator>(Small2 a, Small2 b) { return __hbgt2(a, b); }
    friend bool operator<=(Small2 a, Small2 b) { return __hble2(a, b); }
    friend bool operator>=(Small2 a, Small2 b) { return __hbge2(a, b); }

#define MGH_UNARY(name, each) \
    friend Small2 name(Small2 a) { return {each(a.x), each(a.y)}; }
    MGH_UNARY(__hneg2, __hneg)
    MGH_UNARY(__habs2, __habs)
    MGH_UNARY(h2sqrt, hsqrt)
    MGH_UNARY(h2rsqrt, hrsqrt)
    MGH_UNARY(h2rcp, hrcp)
    MGH_UNARY(h2exp, hexp)
    MGH_UNARY(h2exp2, hexp2)
    MGH_UNARY(h2exp10, hexp10)
    MGH_UNARY(h2log, hlog)
    MGH_UNARY(h2log2, hlog2)
    MGH_UNARY(h2log10, hlog10)
    MGH_UNARY(h2sin, hsin)
    MGH_UNARY(h2cos, hcos)
    MGH_UNARY(h2tanh, htanh)
    MGH_UNARY(h2tanh_approx, htanh)
    MGH_UNARY(h2floor, hfloor)
    MGH_UNARY(h2ceil, hceil)
    MGH_UNARY(h2trunc, htrunc)
    MGH_UNARY(h2rint, hrint)
#undef MGH_UNARY
    friend Small2 __hisnan2(Small2 a) {
        return {T((float)__hisnan(a.x)), T((float)__hisnan(a.y))};
    }
    friend float __low2float(Small2 a) { return a.x; }
    friend float __high2float(Small2 a) { return a.y; }
    friend Small2 __lowhigh2highlow(Small2 a) { return {a.y, a.x}; }
};

template <class F>
struct Kind<Small<F>, false> {
    static constexpr char kind = F::kind, element = F::kind;
};
template <class F>
struct Kind<Small2<F>, false> : Vector<F::kind> {};
template <class F>
struct ElementBytes<Small2<F>> {
    static constexpr int value = 2;
};

// Towards zero, up and down: from the nearest, by one step where that is the wrong side.
enum class Round { TO_ZERO, UP, DOWN };
template <class F>
Small<F> rounded(double x, Round mode) {
    Small<F> nearest = x;
    double got = (float)nearest;
    bool larger = __builtin_fabs(got) > __builtin_fabs(x);
    bool smaller = __builtin_fabs(got) < __builtin_fabs(x);
    bool outwards = mode == Round::UP ? x > 0 : mode == Round::DOWN ? x < 0 : false;
    if (outwards ? smaller : larger) nearest.bits += outwards ? 1 : -1;
    return nearest;
}

// Shuffles of one and of two.
template <class F>
Small<F> shfl(int line, ShuffleMode mode, unsigned mask, Small<F> v, int operand, int width = 32) {
    unsigned bits = shuffle<unsigned>(mode, mask, v.bits, operand, width, line);
    return Small<F>::of_bits(bits);
}
template <class F>
Small2<F> shfl(int line, ShuffleMode mode, unsigned mask, Small2<F> v, int operand,
               int width = 32) {
    return shuffle<Small2<F>>(mode, mask, v, operand, width, line);
}

}  // namespace mgh

template <class F>
inline mgh::Small<F> atomicAdd(mgh::Small<F>* p, mgh::Small<F> v) {
    return mgh::atomic_update(p, [v](mgh::Small<F> old) { return old + v; });
}
template <class F>
inline mgh::Small2<F> atomicAdd(mgh::Small2<F>* p, mgh::Small2<F> v) {
    return mgh::atomic_update(p, [v](mgh::Small2<F> old) { return old + v; });
}

// Functions that carry the type in their names: `half` or `bfloat16`.
#define MGH_SMALL_NAMES(NAME, T, T2)                                                            \
    inline T __float2##NAME(float x) { return x; }                                              \
    inline T __float2##NAME##_rn(float x) { return x; }                                         \
    inline T __double2##NAME(double x) { return x; }                                            \
    inline float __##NAME##2float(T x) { return x; }                                            \
    inline T2 __float2##NAME##2_rn(float x) { return {x, x}; }                                  \
    inline T2 __floats2##NAME##2_rn(float x, float y) { return {x, y}; }                        \
    inline T2 __float22##NAME##2_rn(float2 v) { return {v.x, v.y}; }                            \
    inline float2 __##NAME##22float2(T2 v) { return {v.x, v.y}; }                               \
    inline T2 __##NAME##2##NAME##2(T x) { return {x, x}; }                                      \
    inline T2 __halves2##NAME##2(T x, T y) { return {x, y}; }                                   \
    inline T2 make_##NAME##2(T x, T y) { return {x, y}; }                                       \
    inline T __low2##NAME(T2 v) { return v.x; }                                                 \
    inline T __high2##NAME(T2 v) { return v.y; }                                                \
    inline T2 __low2##NAME##2(T2 v) { return {v.x, v.x}; }                                      \
    inline T2 __high2##NAME##2(T2 v) { return {v.y, v.y}; }                                     \
    inline T2 __lows2##NAME##2(T2 a, T2 b) { return {a.x, b.x}; }                               \
    inline T2 __highs2##NAME##2(T2 a, T2 b) { return {a.y, b.y}; }                              \
    inline unsigned short __##NAME##_as_ushort(T x) { return x.bits; }                          \
    inline short __##NAME##_as_short(T x) { return (short)x.bits; }                             \
    inline T __ushort_as_##NAME(unsigned short x) { return T::of_bits(x); }                     \
    inline T __short_as_##NAME(short x) { return T::of_bits((unsigned short)x); }               \
    inline signed char __##NAME##2char_rz(T x) { return (signed char)x; }                       \
    inline unsigned char __##NAME##2uchar_rz(T x) { return (unsigned char)x; }                  \
    MGH_ROUNDED(NAME, T, float, float)                                                          \
    MGH_INTEGER(NAME, T, short, short)                                                          \
    MGH_INTEGER(NAME, T, ushort, unsigned short)                                                \
    MGH_INTEGER(NAME, T, int, int)                                                              \
    MGH_INTEGER(NAME, T, uint, unsigned)                                                        \
    MGH_INTEGER(NAME, T, ll, long long)                                                         \
    MGH_INTEGER(NAME, T, ull, unsigned long long)

#define MGH_ROUNDED(NAME, T, name, From)                                                      \
    inline T __##name##2##NAME##_rz(From x) {                                                 \
        return mgh::rounded<T::Of>(x, mgh::Round::TO_ZERO);                                   \
    }                                                                                         \
    inline T __##name##2##NAME##_ru(From x) { return mgh::rounded<T::Of>(x, mgh::Round::UP); } \
    inline T __##name##2##NAME##_rd(From x) { return mgh::rounded<T::Of>(x, mgh::Round::DOWN); }

#define MGH_INTEGER(NAME, T, name, I)                                                          \
    inline T __##name##2##NAME##_rn(I x) { return x; }                                         \
    MGH_ROUNDED(NAME, T, name, I)                                                              \
    inline I __##NAME##2##name##_rn(T x) { return mgh::saturate<I>(__builtin_rintf(x)); }      \
    inline I __##NAME##2##name##_rz(T x) { return mgh::saturate<I>(__builtin_truncf(x)); }     \
    inline I __##NAME##2##name##_ru(T x) { return mgh::saturate<I>(__builtin_ceilf(x)); }      \
    inline I __##NAME##2##name##_rd(T x) { return mgh::saturate<I>(__builtin_floorf(x)); }
