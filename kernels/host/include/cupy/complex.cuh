// What CuPy declares of complex numbers outside of `thrust`.
#pragma once

#include "../minigrad/complex.h"

using thrust::acos;
using thrust::acosh;
using thrust::arg;
using thrust::asin;
using thrust::asinh;
using thrust::atan;
using thrust::atanh;
using thrust::complex;
using thrust::conj;
using thrust::cos;
using thrust::cosh;
using thrust::exp;
using thrust::imag;
using thrust::log;
using thrust::log10;
using thrust::real;
using thrust::sin;
using thrust::sinh;
using thrust::tan;
using thrust::tanh;

template <class T>
inline bool isnan(complex<T> z) { return isnan(z.re) || isnan(z.im); }
template <class T>
inline bool isinf(complex<T> z) { return isinf(z.re) || isinf(z.im); }
template <class T>
inline bool isfinite(complex<T> z) { return isfinite(z.re) && isfinite(z.im); }
template <class T>
inline complex<T> log1p(complex<T> z) { return log(z + T(1)); }
template <class T>
inline complex<T> log2(complex<T> z) { return log(z) / T(0.69314718055994530942); }
template <class T>
inline complex<T> expm1(complex<T> z) { return exp(z) - T(1); }
template <class T>
inline complex<T> rint(complex<T> z) { return complex<T>(rint(z.re), rint(z.im)); }

// In the order of the real parts, then of the imaginary ones; NaN only where both are.
template <class T>
inline bool mgh_less(complex<T> a, complex<T> b) {
    return a.re < b.re || (a.re == b.re && a.im < b.im);
}
template <class T>
inline complex<T> min(complex<T> a, complex<T> b) {
    return isnan(a) ? b : isnan(b) || mgh_less(a, b) ? a : b;
}
template <class T>
inline complex<T> max(complex<T> a, complex<T> b) {
    return isnan(a) ? b : isnan(b) || mgh_less(b, a) ? a : b;
}
