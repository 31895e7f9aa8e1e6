// Mathematical functions that CUDA has beside those of the C and C++ libraries.
//
// Names are macros where a C library may declare the same function for itself.
#pragma once

// The overloads of <cmath>, which CUDA offers without `std::`.
using std::abs;
using std::acos;
using std::acosh;
using std::asin;
using std::asinh;
using std::atan;
using std::atan2;
using std::atanh;
using std::cbrt;
using std::ceil;
using std::copysign;
using std::cos;
using std::cosh;
using std::erf;
using std::erfc;
using std::exp;
using std::exp2;
using std::expm1;
using std::fabs;
using std::fdim;
using std::floor;
using std::fma;
using std::fmax;
using std::fmin;
using std::fmod;
using std::hypot;
using std::isfinite;
using std::isinf;
using std::isnan;
using std::ldexp;
using std::lgamma;
using std::log;
using std::log10;
using std::log1p;
using std::log2;
using std::nearbyint;
using std::pow;
using std::remainder;
using std::rint;
using std::round;
using std::signbit;
using std::sin;
using std::sinh;
using std::sqrt;
using std::tan;
using std::tanh;
using std::tgamma;
using std::trunc;

#define MGH_MIN_MAX(A, B, R)                                    \
    constexpr R min(A a, B b) { return (R)a < (R)b ? a : b; }   \
    constexpr R max(A a, B b) { return (R)a > (R)b ? a : b; }
MGH_MIN_MAX(int, int, int)
MGH_MIN_MAX(unsigned, unsigned, unsigned)
MGH_MIN_MAX(int, unsigned, unsigned)
MGH_MIN_MAX(unsigned, int, unsigned)
MGH_MIN_MAX(long, long, long)
MGH_MIN_MAX(unsigned long, unsigned long, unsigned long)
MGH_MIN_MAX(long, unsigned long, unsigned long)
MGH_MIN_MAX(unsigned long, long, unsigned long)
MGH_MIN_MAX(long long, long long, long long)
MGH_MIN_MAX(unsigned long long, unsigned long long, unsigned long long)
MGH_MIN_MAX(long long, unsigned long long, unsigned long long)
MGH_MIN_MAX(unsigned long long, long long, unsigned long long)
#undef MGH_MIN_MAX

// Of two values of which one is NaN, the other.
inline float min(float a, float b) { return __builtin_fminf(a, b); }
inline float max(float a, float b) { return __builtin_fmaxf(a, b); }
inline double min(double a, double b) { return __builtin_fmin(a, b); }
inline double max(double a, double b) { return __builtin_fmax(a, b); }
inline double min(float a, double b) { return __builtin_fmin(a, b); }
inline double max(float a, double b) { return __builtin_fmax(a, b); }
inline double min(double a, float b) { return __builtin_fmin(a, b); }
inline double max(double a, float b) { return __builtin_fmax(a, b); }

inline long long llmin(long long a, long long b) { return min(a, b); }
inline long long llmax(long long a, long long b) { return max(a, b); }
inline unsigned umin(unsigned a, unsigned b) { return min(a, b); }
inline unsigned umax(unsigned a, unsigned b) { return max(a, b); }
inline unsigned long long ullmin(unsigned long long a, unsigned long long b) { return min(a, b); }
inline unsigned long long ullmax(unsigned long long a, unsigned long long b) { return max(a, b); }

namespace mgh {

constexpr double PI = 3.14159265358979323846;

inline float rsqrt(float x) { return 1.0f / __builtin_sqrtf(x); }
inline double rsqrt(double x) { return 1.0 / __builtin_sqrt(x); }
inline float rcbrt(float x) { return 1.0f / __builtin_cbrtf(x); }
inline double rcbrt(double x) { return 1.0 / __builtin_cbrt(x); }
inline float exp10(float x) { return (float)__builtin_exp2(x * 3.32192809488736234787); }
inline double exp10(double x) { return __builtin_pow(10.0, x); }
inline float normcdf(float x) { return (float)(0.5 * __builtin_erfc(-x * 0.70710678118654752440)); }
inline double normcdf(double x) { return 0.5 * __builtin_erfc(-x * 0.70710678118654752440); }
inline float rhypot(float x, float y) { return 1.0f / __builtin_hypotf(x, y); }
inline double rhypot(double x, double y) { return 1.0 / __builtin_hypot(x, y); }

// sin(pi x) and cos(pi x), exact where x is a multiple of one half.
inline double sinpi(double x) {
    double r = x - 2.0 * __builtin_rint(0.5 * x);  // in [-1, 1]
    if (r == __builtin_rint(r)) return __builtin_copysign(0.0, x);
    return __builtin_sin(PI * r);
}

inline double cospi(double x) {
    double r = __builtin_fabs(x - 2.0 * __builtin_rint(0.5 * x));
    return r == 0.5 ? 0.0 : __builtin_cos(PI * r);
}

inline float sinpi(float x) { return (float)sinpi((double)x); }
inline float cospi(float x) { return (float)cospi((double)x); }

template <class T>
inline void sincos(T x, T* sine, T* cosine) {
    *sine = std::sin(x);
    *cosine = std::cos(x);
}

template <class T>
inline void sincospi(T x, T* sine, T* cosine) {
    *sine = sinpi(x);
    *cosine = cospi(x);
}

}  // namespace mgh

#define rsqrt(x) mgh::rsqrt(x)
#define rsqrtf(x) rsqrt((float)(x))
#define rcbrt(x) mgh::rcbrt(x)
#define rcbrtf(x) rcbrt((float)(x))
#define exp10(x) mgh::exp10(x)
#define exp10f(x) exp10((float)(x))
#define normcdf(x) mgh::normcdf(x)
#define normcdff(x) normcdf((float)(x))
#define rhypot(x, y) mgh::rhypot(x, y)
#define rhypotf(x, y) rhypot((float)(x), (float)(y))
#define sinpi(x) mgh::sinpi(x)
#define sinpif(x) sinpi((float)(x))
#define cospi(x) mgh::cospi(x)
#define cospif(x) cospi((float)(x))
#define sincos(x, s, c) mgh::sincos(x, s, c)
#define sincosf(x, s, c) sincos((float)(x), s, c)
#define sincospi(x, s, c) mgh::sincospi(x, s, c)
#define sincospif(x, s, c) sincospi((float)(x), s, c)
#define fdividef(a, b) ((float)(a) / (float)(b))
