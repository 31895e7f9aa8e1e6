// Complex numbers of CUDA C: two floats or doubles, and functions for their arithmetic.
#pragma once

typedef float2 cuFloatComplex;
typedef float2 cuComplex;
typedef double2 cuDoubleComplex;

#define MGH_COMPLEX(C, T, make, suffix)                                                          \
    inline C make_##make(T re, T im) { return {re, im}; }                                        \
    inline T cuCreal##suffix(C z) { return z.x; }                                                \
    inline T cuCimag##suffix(C z) { return z.y; }                                                \
    inline C cuConj##suffix(C z) { return {z.x, -z.y}; }                                         \
    inline C cuCadd##suffix(C a, C b) { return {a.x + b.x, a.y + b.y}; }                         \
    inline C cuCsub##suffix(C a, C b) { return {a.x - b.x, a.y - b.y}; }                         \
    inline C cuCmul##suffix(C a, C b) { return {a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x}; } \
    inline T cuCabs##suffix(C z) { return std::hypot(z.x, z.y); }                                \
    inline C cuCdiv##suffix(C a, C b) {                                                          \
        const T scale = T(1) / (std::fabs(b.x) + std::fabs(b.y));                                \
        const C p = {a.x * scale, a.y * scale}, q = {b.x * scale, b.y * scale};                  \
        const T square = q.x * q.x + q.y * q.y;                                                  \
        return {(p.x * q.x + p.y * q.y) / square, (p.y * q.x - p.x * q.y) / square};             \
    }                                                                                            \
    inline C cuCfma##suffix(C a, C b, C c) {                                                     \
        return {a.x * b.x - a.y * b.y + c.x, a.x * b.y + a.y * b.x + c.y};                       \
    }
MGH_COMPLEX(cuFloatComplex, float, cuFloatComplex, f)
MGH_COMPLEX(cuDoubleComplex, double, cuDoubleComplex, )
#undef MGH_COMPLEX

inline cuComplex make_cuComplex(float re, float im) { return {re, im}; }
inline cuDoubleComplex cuComplexFloatToDouble(cuFloatComplex z) { return {z.x, z.y}; }
inline cuFloatComplex cuComplexDoubleToFloat(cuDoubleComplex z) { return {(float)z.x, (float)z.y}; }
