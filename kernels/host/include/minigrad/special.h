// Special functions that CUDA has and the C library has not. Those of floats compute in double.
#pragma once

namespace mgh {

constexpr double SLOPE = 1.12837916709551257390;  // of erf at 0: 2 / sqrt(pi)

// Halley's steps from a guess; for y > 0 the equation is erfc(y) = x, which keeps small x exact.
inline double erfcinv_small(double x) {  // 0 < x <= 0.5
    double t = __builtin_sqrt(-2.0 * __builtin_log(0.5 * x));
    double y = 0.70710678118654752440
               * (t - (2.30753 + t * 0.27061) / (1.0 + t * (0.99229 + t * 0.04481)));
    for (int i = 0; i < 3; ++i) {
        double error = __builtin_erfc(y) / x - 1.0;  // relative: x may be tiny
        y += error / (SLOPE * __builtin_exp(-y * y) / x - y * error);
    }
    return y;
}

inline double erfinv(double x) {
    double size = __builtin_fabs(x);
    if (!(size < 1.0)) return size == 1.0 ? x * __builtin_inf() : __builtin_nan("");
    if (size > 0.5) return __builtin_copysign(erfcinv_small(1.0 - size), x);
    double y = x / SLOPE;
    for (int i = 0; i < 3; ++i) {
        double error = __builtin_erf(y) - x;
        y -= error / (SLOPE * __builtin_exp(-y * y) + y * error);
    }
    return y;
}

inline double erfcinv(double x) {
    if (!(x > 0.0 && x < 2.0)) {
        return x == 0.0 ? __builtin_inf() : x == 2.0 ? -__builtin_inf() : __builtin_nan("");
    }
    if (x <= 0.5) return erfcinv_small(x);
    return x < 1.5 ? erfinv(1.0 - x) : -erfcinv_small(2.0 - x);
}

// exp(x * x) * erfc(x), where the product's factors are not too far apart, else its series.
inline double erfcx(double x) {
    if (x < 10.0) {
        double square = x * x;
        return __builtin_exp(square) * (1.0 + __builtin_fma(x, x, -square)) * __builtin_erfc(x);
    }
    double inverse = 0.5 / x / x, term = 1.0, sum = 1.0;
    for (int k = 1; k < 12; ++k) sum += term *= -(2 * k - 1) * inverse;
    return 0.5 * SLOPE / x * sum;
}

// The power series of the modified Bessel functions: all terms have one sign.
inline double bessel_i(int order, double x) {
    double square = 0.25 * x * x, term = order ? 0.5 * x : 1.0, sum = term;
    if (!(__builtin_fabs(x) < 720.0)) return order ? x * __builtin_inf() : x * x;
    for (int k = 1; __builtin_fabs(term) > 1e-17 * __builtin_fabs(sum); ++k) {
        sum += term *= square / ((double)k * (k + order));
    }
    return sum;
}

// The square root of a sum of squares, of which none overflows.
template <class T>
inline double length(int n, const T* values) {
    double largest = 0.0, sum = 0.0;
    for (int i = 0; i < n; ++i) {
        double size = __builtin_fabs((double)values[i]);
        if (size > largest || size != size) largest = size;
    }
    if (largest == 0.0 || !std::isfinite(largest)) return largest;
    for (int i = 0; i < n; ++i) sum += (values[i] / largest) * (values[i] / largest);
    return largest * __builtin_sqrt(sum);
}

}  // namespace mgh

// In a namespace, so that a kernel may be called `norm`: `::norm` is then the kernel alone.
namespace mgh_special {

#define MGH_SPECIAL(name, short_name, expression)                               \
    inline double name(double x) { return expression; }                         \
    inline float name(float x) { return (float)name((double)x); }               \
    inline float short_name(float x) { return (float)name((double)x); }
MGH_SPECIAL(erfinv, erfinvf, mgh::erfinv(x))
MGH_SPECIAL(erfcinv, erfcinvf, mgh::erfcinv(x))
MGH_SPECIAL(erfcx, erfcxf, mgh::erfcx(x))
MGH_SPECIAL(normcdfinv, normcdfinvf, -1.41421356237309504880 * mgh::erfcinv(2.0 * x))
MGH_SPECIAL(cyl_bessel_i0, cyl_bessel_i0f, mgh::bessel_i(0, x))
MGH_SPECIAL(cyl_bessel_i1, cyl_bessel_i1f, mgh::bessel_i(1, x))
#undef MGH_SPECIAL

#define MGH_NORM(T, f)                                                          \
    inline T norm##f(int n, const T* v) { return (T)mgh::length(n, v); }        \
    inline T rnorm##f(int n, const T* v) { return (T)(1.0 / mgh::length(n, v)); } \
    inline T norm4d##f(T x, T y, T z, T w) {                                    \
        T v[] = {x, y, z, w};                                                   \
        return (T)mgh::length(4, v);                                            \
    }                                                                           \
    inline T rnorm4d##f(T x, T y, T z, T w) {                                   \
        T v[] = {x, y, z, w};                                                   \
        return (T)(1.0 / mgh::length(4, v));                                    \
    }                                                                           \
    inline T norm3d##f(T x, T y, T z) {                                         \
        T v[] = {x, y, z};                                                      \
        return (T)mgh::length(3, v);                                            \
    }                                                                           \
    inline T rnorm3d##f(T x, T y, T z) {                                        \
        T v[] = {x, y, z};                                                      \
        return (T)(1.0 / mgh::length(3, v));                                    \
    }
MGH_NORM(double, )
MGH_NORM(float, f)
#undef MGH_NORM

}  // namespace mgh_special

using namespace mgh_special;
