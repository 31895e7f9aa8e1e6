// What scalar instructions of inline PTX become: functions of the instruction's name and type.
#pragma once

namespace mgh::ptx {

template <class T>
using Unsigned = std::make_unsigned_t<T>;

// A shift by the width or more leaves the sign, or nothing.
template <class T>
inline T shl(T a, unsigned n) { return n >= 8 * sizeof(T) ? 0 : (T)((Unsigned<T>)a << n); }
template <class T>
inline T shr(T a, unsigned n) { return n >= 8 * sizeof(T) ? (a < 0 ? -1 : 0) : a >> n; }

template <class T>
inline T min(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) return std::fmin(a, b);
    else return a < b ? a : b;
}
template <class T>
inline T max(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) return std::fmax(a, b);
    else return a > b ? a : b;
}
template <class T>
inline T abs(T a) { return a < 0 ? -a : a; }
template <>
inline float abs(float a) { return __builtin_fabsf(a); }
template <>
inline double abs(double a) { return __builtin_fabs(a); }
template <class T>
inline T neg(T a) { return -a; }
template <class T>
inline T not_(T a) { return std::is_same_v<T, bool> ? !a : ~a; }
template <class T>
inline unsigned popc(T a) { return __builtin_popcountll(a); }
template <class T>
inline unsigned clz(T a) { return a == 0 ? 8 * sizeof(T) : __builtin_clzll(a) - (64 - 8 * sizeof(T)); }
template <class T>
inline T brev(T a) { return __brevll(a) >> (64 - 8 * sizeof(T)); }

// Bits start to start + length - 1; what lies past the word's end, or the field's, is the sign of
// the field for signed types.
template <class T>
inline T bfe(T a, unsigned start, unsigned length) {
    constexpr unsigned width = 8 * sizeof(T);
    start &= 255, length &= 255;
    if (length == 0) return 0;
    unsigned last = start + length - 1 < width - 1 ? start + length - 1 : width - 1;
    bool sign = (T)-1 < 0 && (Unsigned<T>)a >> last & 1;
    if (start >= width) return sign ? -1 : 0;
    Unsigned<T> mask = ~(Unsigned<T>)0 >> (width - 1 - (last - start));
    Unsigned<T> field = (Unsigned<T>)a >> start & mask;
    return sign ? field | ~mask : field;
}

template <class T>
inline T bfi(T a, T b, unsigned start, unsigned length) {
    constexpr unsigned width = 8 * sizeof(T);
    start &= 255, length &= 255;
    if (length == 0 || start >= width) return b;
    T mask = (length >= width ? ~(T)0 : ((T)1 << length) - 1) << start;
    return (b & ~mask) | ((a << start) & mask);
}

template <class T>
inline T prmt(T a, T b, unsigned selector) {
    unsigned long long bytes = (unsigned long long)b << 32 | a;
    T result = 0;
    for (int i = 0; i < 4; ++i) {
        unsigned choice = selector >> (4 * i) & 15;
        unsigned byte = bytes >> (8 * (choice & 7)) & 255;
        if (choice & 8) byte = byte & 128 ? 255 : 0;
        result |= byte << (8 * i);
    }
    return result;
}

// Bit i of the result is the bit of `table` that bits i of a, b and c select.
template <class T>
inline T lop3(T a, T b, T c, unsigned table) {
    T result = 0;
    for (int k = 0; k < 8; ++k) {
        if (table >> k & 1) result |= (k & 4 ? a : ~a) & (k & 2 ? b : ~b) & (k & 1 ? c : ~c);
    }
    return result;
}

template <class T>
inline T shf_l_wrap(T low, T high, unsigned n) { return __funnelshift_l(low, high, n); }
template <class T>
inline T shf_r_wrap(T low, T high, unsigned n) { return __funnelshift_r(low, high, n); }
template <class T>
inline T shf_l_clamp(T low, T high, unsigned n) {
    return n >= 32 ? low : __funnelshift_l(low, high, n);
}
template <class T>
inline T shf_r_clamp(T low, T high, unsigned n) {
    return n >= 32 ? high : __funnelshift_r(low, high, n);
}

template <class T>
using Wide = std::conditional_t<sizeof(T) == 8,
                                std::conditional_t<((T)-1 > 0), unsigned __int128, __int128>,
                                std::conditional_t<((T)-1 > 0), unsigned long long, long long>>;
template <class T>
inline T mul_lo(T a, T b) { return a * b; }
template <class T>
inline T mul_hi(T a, T b) { return (Wide<T>)a * b >> 8 * sizeof(T); }
template <class T>
inline auto mul_wide(T a, T b) {
    using Narrow = std::conditional_t<((T)-1 > 0), unsigned, int>;
    using Product = std::conditional_t<sizeof(T) == 2, Narrow, Wide<T>>;
    return (Product)a * b;
}
template <class T>
inline T mad_lo(T a, T b, T c) { return a * b + c; }
template <class T>
inline T mad_hi(T a, T b, T c) { return mul_hi(a, b) + c; }
template <class T, class C>
inline auto mad_wide(T a, T b, C c) { return mul_wide(a, b) + (decltype(mul_wide(a, b)))c; }
// A GPU's division does not fail: by 0 the result is not defined, and -1 negates.
template <class T>
inline T div(T a, T b) { return b == 0 ? (T)-1 : b == (T)-1 && b < 0 ? -a : a / b; }
template <class T>
inline T rem(T a, T b) { return b == 0 ? a : b == (T)-1 && b < 0 ? 0 : a % b; }
template <class T>
inline T mul(T a, T b) { return a * b; }
template <class T>
inline T fma(T a, T b, T c) { return std::fma(a, b, c); }

// The carry of one instruction for the next; a thread does not change between them.
inline thread_local bool carry = false;

template <class T>
inline T add_carry(T a, T b, bool in, bool keep) {
    unsigned __int128 sum = (unsigned __int128)a + b + (in && carry);
    if (keep) carry = sum >> 8 * sizeof(T) & 1;
    return (T)sum;
}
template <class T>
inline T sub_carry(T a, T b, bool in, bool keep) {
    unsigned __int128 difference = (unsigned __int128)a - b - (in && carry);
    if (keep) carry = difference >> 8 * sizeof(T) & 1;
    return (T)difference;
}
template <class T>
inline T add_cc(T a, T b) { return add_carry<Unsigned<T>>(a, b, false, true); }
template <class T>
inline T addc_cc(T a, T b) { return add_carry<Unsigned<T>>(a, b, true, true); }
template <class T>
inline T addc(T a, T b) { return add_carry<Unsigned<T>>(a, b, true, false); }
template <class T>
inline T sub_cc(T a, T b) { return sub_carry<Unsigned<T>>(a, b, false, true); }
template <class T>
inline T subc_cc(T a, T b) { return sub_carry<Unsigned<T>>(a, b, true, true); }
template <class T>
inline T subc(T a, T b) { return sub_carry<Unsigned<T>>(a, b, true, false); }
template <class T>
inline T mad_lo_cc(T a, T b, T c) { return add_cc<T>(a * b, c); }
template <class T>
inline T mad_hi_cc(T a, T b, T c) { return add_cc<T>(mul_hi(a, b), c); }
template <class T>
inline T madc_lo_cc(T a, T b, T c) { return addc_cc<T>(a * b, c); }
template <class T>
inline T madc_hi_cc(T a, T b, T c) { return addc_cc<T>(mul_hi(a, b), c); }
template <class T>
inline T madc_lo(T a, T b, T c) { return addc<T>(a * b, c); }
template <class T>
inline T madc_hi(T a, T b, T c) { return addc<T>(mul_hi(a, b), c); }

}  // namespace mgh::ptx
