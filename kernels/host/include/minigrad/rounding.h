// Arithmetic and conversions that round towards zero, up or down, as the name's ending says.
#pragma once

#include <cfenv>

namespace mgh {

// f(a, b, c) with another rounding mode. The compiler moves no arithmetic on volatile values across
// the calls that change the mode.
template <class To, class From, class F>
inline To in_mode(int mode, From a, From b, From c, F f) {
    const int before = fegetround();
    fesetround(mode);
    volatile From x = a, y = b, z = c;
    volatile To result = f(x, y, z);
    fesetround(before);
    return result;
}

}  // namespace mgh

#define MGH_ROUNDED(name, mode, To, From, parameters, b, c, expression)                           \
    inline To name parameters {                                                                   \
        return mgh::in_mode<To, From>(                                                            \
            mode, a, b, c, [](From x, From y, From z) -> To { (void)y, (void)z; return expression; } \
        );                                                                                        \
    }
#define MGH_ARITHMETIC(d, T, ending, mode)                                                        \
    MGH_ROUNDED(__##d##add_##ending, mode, T, T, (T a, T b), b, 0, x + y)                         \
    MGH_ROUNDED(__##d##sub_##ending, mode, T, T, (T a, T b), b, 0, x - y)                         \
    MGH_ROUNDED(__##d##mul_##ending, mode, T, T, (T a, T b), b, 0, x * y)                         \
    MGH_ROUNDED(__##d##div_##ending, mode, T, T, (T a, T b), b, 0, x / y)                         \
    MGH_ROUNDED(__##d##rcp_##ending, mode, T, T, (T a), 0, 0, 1 / x)                              \
    MGH_ROUNDED(__##d##sqrt_##ending, mode, T, T, (T a), 0, 0, std::sqrt(x))
#define MGH_CONVERSION(name, To, From, mode) MGH_ROUNDED(name, mode, To, From, (From a), 0, 0, (To)x)
#define MGH_DIRECTED(e, mode)                                                                     \
    MGH_ARITHMETIC(f, float, e, mode)                                                             \
    MGH_ARITHMETIC(d, double, e, mode)                                                            \
    MGH_ROUNDED(__fmaf_##e, mode, float, float, (float a, float b, float c), b, c, std::fma(x, y, z)) \
    MGH_ROUNDED(__fma_##e, mode, double, double, (double a, double b, double c), b, c,            \
                std::fma(x, y, z))                                                                \
    inline float __fmaf_ieee_##e(float a, float b, float c) { return __fmaf_##e(a, b, c); }       \
    MGH_CONVERSION(__double2float_##e, float, double, mode)                                       \
    MGH_CONVERSION(__int2float_##e, float, int, mode)                                             \
    MGH_CONVERSION(__uint2float_##e, float, unsigned, mode)                                       \
    MGH_CONVERSION(__ll2float_##e, float, long long, mode)                                        \
    MGH_CONVERSION(__ull2float_##e, float, unsigned long long, mode)                              \
    MGH_CONVERSION(__ll2double_##e, double, long long, mode)                                      \
    MGH_CONVERSION(__ull2double_##e, double, unsigned long long, mode)
MGH_DIRECTED(rz, FE_TOWARDZERO)
MGH_DIRECTED(ru, FE_UPWARD)
MGH_DIRECTED(rd, FE_DOWNWARD)
inline float __fmaf_ieee_rn(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
#undef MGH_DIRECTED
#undef MGH_CONVERSION
#undef MGH_ARITHMETIC
#undef MGH_ROUNDED
