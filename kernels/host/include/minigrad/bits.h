// Bit counting, bit casts, conversions with a rounding mode, and loads with a cache hint.
#pragma once

inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(x); }
inline int __clzll(long long x) { return x == 0 ? 64 : __builtin_clzll(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }

inline unsigned long long __brevll(unsigned long long x) {
    x = (x >> 1 & 0x5555555555555555u) | (x & 0x5555555555555555u) << 1;
    x = (x >> 2 & 0x3333333333333333u) | (x & 0x3333333333333333u) << 2;
    x = (x >> 4 & 0x0f0f0f0f0f0f0f0fu) | (x & 0x0f0f0f0f0f0f0f0fu) << 4;
    return __builtin_bswap64(x);
}

inline unsigned __brev(unsigned x) { return __brevll(x) >> 32; }

inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
    unsigned long long bytes = (unsigned long long)y << 32 | x;
    unsigned result = 0;
    for (int i = 0; i < 4; ++i) {
        unsigned choice = selector >> (4 * i) & 7;  // PTX's prmt alone looks at the fourth bit
        result |= (unsigned)(bytes >> (8 * choice) & 255) << (8 * i);
    }
    return result;
}

inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
    return ((unsigned long long)high << 32 | low) << (shift & 31) >> 32;
}

inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
    return ((unsigned long long)high << 32 | low) >> (shift & 31);
}

// The clamped ones shift by 32 at most.
inline unsigned __funnelshift_lc(unsigned low, unsigned high, unsigned shift) {
    return shift >= 32 ? low : __funnelshift_l(low, high, shift);
}
inline unsigned __funnelshift_rc(unsigned low, unsigned high, unsigned shift) {
    return shift >= 32 ? high : __funnelshift_r(low, high, shift);
}

// The place of the |offset|-th bit that is set, from `base` on, up or down; all ones where none is.
inline unsigned __fns(unsigned mask, unsigned base, int offset) {
    if (offset == 0) return mask >> base & 1 ? base : ~0u;
    for (int step = offset > 0 ? 1 : -1, bit = (int)base; bit >= 0 && bit < 32; bit += step) {
        if ((mask >> bit & 1) && (offset -= step) == 0) return bit;
    }
    return ~0u;
}

inline int __mulhi(int a, int b) { return (long long)a * b >> 32; }
inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned long long)a * b >> 32; }
inline long long __mul64hi(long long a, long long b) { return (__int128)a * b >> 64; }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned __int128)a * b >> 64;
}
inline int __mul24(int a, int b) {
    return ((int)((unsigned)a << 8) >> 8) * ((int)((unsigned)b << 8) >> 8);
}
inline unsigned __umul24(unsigned a, unsigned b) { return (a & 0xffffff) * (b & 0xffffff); }
inline unsigned __sad(int a, int b, unsigned c) {
    return c + (a > b ? (unsigned)a - (unsigned)b : (unsigned)b - (unsigned)a);
}
inline unsigned __usad(unsigned a, unsigned b, unsigned c) { return c + (a > b ? a - b : b - a); }
// The sum of the products of four bytes, and c.
template <class Byte, class Word>
inline Word mgh_dp4a(Word a, Word b, Word c) {
    for (int i = 0; i < 32; i += 8) c += (Word)(Byte)(a >> i) * (Word)(Byte)(b >> i);
    return c;
}
inline int __dp4a(int a, int b, int c) { return mgh_dp4a<signed char>(a, b, c); }
inline unsigned __dp4a(unsigned a, unsigned b, unsigned c) {
    return mgh_dp4a<unsigned char>(a, b, c);
}
inline int __hadd(int a, int b) { return ((long long)a + b) >> 1; }
inline int __rhadd(int a, int b) { return ((long long)a + b + 1) >> 1; }
inline unsigned __uhadd(unsigned a, unsigned b) { return ((unsigned long long)a + b) >> 1; }
inline unsigned __urhadd(unsigned a, unsigned b) { return ((unsigned long long)a + b + 1) >> 1; }

namespace mgh {

template <class To, class From>
inline To bit_cast(From from) {
    static_assert(sizeof(To) == sizeof(From), "a bit cast keeps the size");
    To to;
    memcpy(&to, &from, sizeof(To));
    return to;
}

// Conversions to integers saturate on a GPU, and NaN becomes 0.
template <class To, class From>
inline To saturate(From x) {
    if (x != x) return 0;
    constexpr To low = (To)-1 < 0 ? (To)((unsigned long long)1 << (8 * sizeof(To) - 1)) : 0;
    constexpr To high = (To)~low;
    if (x <= (From)low) return low;
    if (x >= (From)high) return high;
    return (To)x;
}

}  // namespace mgh

inline int __float_as_int(float x) { return mgh::bit_cast<int>(x); }
inline unsigned __float_as_uint(float x) { return mgh::bit_cast<unsigned>(x); }
inline float __int_as_float(int x) { return mgh::bit_cast<float>(x); }
inline float __uint_as_float(unsigned x) { return mgh::bit_cast<float>(x); }
inline long long __double_as_longlong(double x) { return mgh::bit_cast<long long>(x); }
inline double __longlong_as_double(long long x) { return mgh::bit_cast<double>(x); }
inline int __double2hiint(double x) { return mgh::bit_cast<long long>(x) >> 32; }
inline int __double2loint(double x) { return (int)mgh::bit_cast<long long>(x); }
inline double __hiloint2double(int high, int low) {
    return mgh::bit_cast<double>((long long)high << 32 | (unsigned)low);
}

#define MGH_TO_INTEGER(name, From, To)                                                          \
    inline To __##name##_rn(From x) { return mgh::saturate<To>(__builtin_rint(x)); }            \
    inline To __##name##_rz(From x) { return mgh::saturate<To>(__builtin_trunc(x)); }           \
    inline To __##name##_ru(From x) { return mgh::saturate<To>(__builtin_ceil(x)); }            \
    inline To __##name##_rd(From x) { return mgh::saturate<To>(__builtin_floor(x)); }
MGH_TO_INTEGER(float2int, float, int)
MGH_TO_INTEGER(float2uint, float, unsigned)
MGH_TO_INTEGER(float2ll, float, long long)
MGH_TO_INTEGER(float2ull, float, unsigned long long)
MGH_TO_INTEGER(double2int, double, int)
MGH_TO_INTEGER(double2uint, double, unsigned)
MGH_TO_INTEGER(double2ll, double, long long)
MGH_TO_INTEGER(double2ull, double, unsigned long long)
#undef MGH_TO_INTEGER

inline float __int2float_rn(int x) { return x; }
inline float __uint2float_rn(unsigned x) { return x; }
inline float __ll2float_rn(long long x) { return x; }
inline float __ull2float_rn(unsigned long long x) { return x; }
inline float __double2float_rn(double x) { return x; }
inline double __int2double_rn(int x) { return x; }
inline double __uint2double_rn(unsigned x) { return x; }
inline double __ll2double_rn(long long x) { return x; }
inline double __ull2double_rn(unsigned long long x) { return x; }

#define MGH_LOAD(name)                        \
    template <class T>                        \
    inline T name(const T* address) {         \
        return *address;                      \
    }
MGH_LOAD(__ldg)
MGH_LOAD(__ldca)
MGH_LOAD(__ldcg)
MGH_LOAD(__ldcs)
MGH_LOAD(__ldlu)
MGH_LOAD(__ldcv)
#undef MGH_LOAD

#define MGH_STORE(name)                       \
    template <class T>                        \
    inline void name(T* address, T value) {   \
        *address = value;                     \
    }
MGH_STORE(__stwb)
MGH_STORE(__stcg)
MGH_STORE(__stcs)
MGH_STORE(__stwt)
#undef MGH_STORE
