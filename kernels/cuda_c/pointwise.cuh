// Arithmetic of the pointwise table that C has not: division and powers by Python's rules.
#include "common.cuh"

__device__ __forceinline__ float floor_of(float x) { return floorf(x); }
__device__ __forceinline__ double floor_of(double x) { return floor(x); }
__device__ __forceinline__ float fmod_of(float a, float b) { return fmodf(a, b); }
__device__ __forceinline__ double fmod_of(double a, double b) { return fmod(a, b); }
__device__ __forceinline__ float with_sign(float x, float s) { return copysignf(x, s); }
__device__ __forceinline__ double with_sign(double x, double s) { return copysign(x, s); }

// The remainder has the divisor's sign.
template <class T>
__device__ T remainder_of_floats(T a, T b) {
    T rest = fmod_of(a, b);
    if (b == T(0)) return rest;
    if (rest == T(0)) return with_sign(T(0), b);
    return (b < T(0)) != (rest < T(0)) ? rest + b : rest;
}

// The floor of the exact quotient, which a / b may have rounded up to.
template <class T>
__device__ T floor_divide_floats(T a, T b) {
    if (b == T(0)) return a / b;
    T rest = fmod_of(a, b);
    T quotient = (a - rest) / b;
    if (rest != T(0) && (b < T(0)) != (rest < T(0))) quotient -= T(1);
    if (quotient == T(0)) return with_sign(T(0), a / b);
    T whole = floor_of(quotient);
    return quotient - whole > T(0.5) ? whole + T(1) : whole;
}

// Integers: 0 where the divisor is 0; -1 apart, because the quotient of the lowest number overflows.
// Neighbours divide by different numbers: choices, no branches.
template <class T>
__device__ __forceinline__ T divisor(T b) {
    return b == T(0) || (b == T(-1) && T(-1) < T(0)) ? T(1) : b;
}

template <class T>
__device__ T floor_divide(T a, T b) {
    const T by = divisor(b), quotient = a / by, rest = a - quotient * by;
    const T found = quotient - T(rest != T(0) && (rest < T(0)) != (b < T(0)));
    return b == T(0) ? T(0) : by == b ? found : T(0) - a;
}

template <class T>
__device__ T integer_fmod(T a, T b) {
    const T by = divisor(b);
    return a - a / by * by;
}

template <class T>
__device__ T remainder_of(T a, T b) {
    const T rest = integer_fmod(a, b);
    return rest != T(0) && (rest < T(0)) != (b < T(0)) ? rest + b : rest;
}

template <> __device__ float floor_divide(float a, float b) { return floor_divide_floats(a, b); }
template <> __device__ double floor_divide(double a, double b) { return floor_divide_floats(a, b); }
template <> __device__ float remainder_of(float a, float b) { return remainder_of_floats(a, b); }
template <> __device__ double remainder_of(double a, double b) { return remainder_of_floats(a, b); }

// By squaring; a negative exponent leaves 0, but of 1 and -1.
template <class T>
__device__ T integer_power(T a, T b) {
    if (b < T(0)) return a == T(1) || (a == T(-1) && b % T(2) == T(0)) ? T(1) : a == T(-1) ? a : T(0);
    T power = T(1);
    for (; b > T(0); b = b / T(2)) {
        if (b % T(2) != T(0)) power = power * a;
        a = a * a;
    }
    return power;
}

