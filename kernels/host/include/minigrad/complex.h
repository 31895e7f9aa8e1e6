// thrust::complex, as CuPy's <cupy/complex.cuh> has it: arithmetic of two complex numbers, or of one
// and a real number of its own type, and the functions of the C library.
#pragma once

namespace mgh {

template <class T> struct Twin;  // GCC's own complex type, which the C library's functions take
template <> struct Twin<float> { typedef _Complex float type; };
template <> struct Twin<double> { typedef _Complex double type; };

template <class T, class U> struct Wider { typedef decltype(T() + U()) type; };

}  // namespace mgh

namespace thrust {

template <class T>
struct alignas(2 * sizeof(T)) complex {
    typedef T value_type;
    T re, im;

    complex() : re(), im() {}
    complex(const T& real) : re(real), im() {}
    complex(const T& real, const T& imag) : re(real), im(imag) {}
    template <class U>
    complex(const complex<U>& z) : re((T)z.re), im((T)z.im) {}
    complex(typename mgh::Twin<T>::type z) : re(__real__ z), im(__imag__ z) {}

    typename mgh::Twin<T>::type twin() const {
        typename mgh::Twin<T>::type z;
        __real__ z = re;
        __imag__ z = im;
        return z;
    }

    T real() const { return re; }
    T imag() const { return im; }
    void real(T value) { re = value; }
    void imag(T value) { im = value; }

    complex& operator+=(const complex z) { return *this = *this + z; }
    complex& operator-=(const complex z) { return *this = *this - z; }
    complex& operator*=(const complex z) { return *this = *this * z; }
    complex& operator/=(const complex z) { return *this = *this / z; }
};

#define MGH_BINARY(op, both, right, left)                                                       \
    template <class T>                                                                          \
    inline complex<T> operator op(const complex<T>& a, const complex<T>& b) { return both; }    \
    template <class T>                                                                          \
    inline complex<T> operator op(const complex<T>& a, const T& b) { return right; }            \
    template <class T>                                                                          \
    inline complex<T> operator op(const T& a, const complex<T>& b) { return left; }
MGH_BINARY(+, complex<T>(a.re + b.re, a.im + b.im), complex<T>(a.re + b, a.im),
           complex<T>(a + b.re, b.im))
MGH_BINARY(-, complex<T>(a.re - b.re, a.im - b.im), complex<T>(a.re - b, a.im),
           complex<T>(a - b.re, -b.im))
MGH_BINARY(*, complex<T>(a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re),
           complex<T>(a.re * b, a.im * b), complex<T>(a * b.re, a * b.im))
#undef MGH_BINARY

// Scaled by the size of the divisor, so that its square does not overflow.
template <class T>
inline complex<T> operator/(const complex<T>& a, const complex<T>& b) {
    const T scale = T(1) / (std::fabs(b.re) + std::fabs(b.im));
    const complex<T> p(a.re * scale, a.im * scale), q(b.re * scale, b.im * scale);
    const T square = q.re * q.re + q.im * q.im;
    return complex<T>((p.re * q.re + p.im * q.im) / square, (p.im * q.re - p.re * q.im) / square);
}
template <class T>
inline complex<T> operator/(const complex<T>& a, const T& b) {
    return complex<T>(a.re / b, a.im / b);
}
template <class T>
inline complex<T> operator/(const T& a, const complex<T>& b) { return complex<T>(a) / b; }

template <class T>
inline complex<T> operator+(const complex<T>& z) { return z; }
template <class T>
inline complex<T> operator-(const complex<T>& z) { return complex<T>(-z.re, -z.im); }

template <class T>
inline bool operator==(const complex<T>& a, const complex<T>& b) {
    return a.re == b.re && a.im == b.im;
}
template <class T>
inline bool operator==(const complex<T>& a, const T& b) { return a.re == b && a.im == T(); }
template <class T>
inline bool operator==(const T& a, const complex<T>& b) { return b == a; }
template <class T>
inline bool operator!=(const complex<T>& a, const complex<T>& b) { return !(a == b); }
template <class T>
inline bool operator!=(const complex<T>& a, const T& b) { return !(a == b); }
template <class T>
inline bool operator!=(const T& a, const complex<T>& b) { return !(b == a); }

template <class T> inline T real(const complex<T>& z) { return z.re; }
template <class T> inline T imag(const complex<T>& z) { return z.im; }
template <class T> inline T abs(const complex<T>& z) { return std::hypot(z.re, z.im); }
template <class T> inline T arg(const complex<T>& z) { return std::atan2(z.im, z.re); }
template <class T> inline T norm(const complex<T>& z) { return z.re * z.re + z.im * z.im; }
template <class T> inline complex<T> conj(const complex<T>& z) { return complex<T>(z.re, -z.im); }
template <class T>
inline complex<T> polar(const T& size, const T& angle = 0) {
    return complex<T>(size * std::cos(angle), size * std::sin(angle));
}

#define MGH_FUNCTION(name)                                                                     \
    inline complex<float> name(const complex<float>& z) { return __builtin_c##name##f(z.twin()); } \
    inline complex<double> name(const complex<double>& z) { return __builtin_c##name(z.twin()); }
MGH_FUNCTION(exp)
MGH_FUNCTION(log)
MGH_FUNCTION(sqrt)
MGH_FUNCTION(sin)
MGH_FUNCTION(cos)
MGH_FUNCTION(tan)
MGH_FUNCTION(sinh)
MGH_FUNCTION(cosh)
MGH_FUNCTION(tanh)
MGH_FUNCTION(asin)
MGH_FUNCTION(acos)
MGH_FUNCTION(atan)
MGH_FUNCTION(asinh)
MGH_FUNCTION(acosh)
MGH_FUNCTION(atanh)
MGH_FUNCTION(proj)
#undef MGH_FUNCTION

template <class T>
inline complex<T> log10(const complex<T>& z) { return log(z) / T(2.30258509299404568402); }

template <class T, class U>
inline complex<typename mgh::Wider<T, U>::type> pow(const complex<T>& x, const complex<U>& y) {
    typedef complex<typename mgh::Wider<T, U>::type> C;
    return exp(log(C(x)) * C(y));
}
template <class T, class U>
inline complex<typename mgh::Wider<T, U>::type> pow(const complex<T>& x, const U& y) {
    return pow(x, complex<U>(y));
}
template <class T, class U>
inline complex<typename mgh::Wider<T, U>::type> pow(const T& x, const complex<U>& y) {
    return pow(complex<T>(x), y);
}

}  // namespace thrust
