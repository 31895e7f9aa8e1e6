// CUDA's intrinsics: the fast functions, here as exact as the ordinary ones, and arithmetic with
// a rounding mode, of which round-to-nearest is what a CPU does (the others: rounding.h).
#pragma once

#define __expf(x) __builtin_expf(x)
#define __exp10f(x) exp10((float)(x))
#define __logf(x) __builtin_logf(x)
#define __log2f(x) __builtin_log2f(x)
#define __log10f(x) __builtin_log10f(x)
#define __powf(x, y) __builtin_powf(x, y)
#define __sinf(x) __builtin_sinf(x)
#define __cosf(x) __builtin_cosf(x)
#define __tanf(x) __builtin_tanf(x)
#define __tanhf(x) __builtin_tanhf(x)
#define __sincosf(x, s, c) sincos((float)(x), s, c)
#define __fdividef(a, b) ((float)(a) / (float)(b))

inline float __saturatef(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }

// In functions of their own, and not contracted into a fused multiply-add.
#define MGH_EXACT __attribute__((noinline))
MGH_EXACT inline float __fmul_rn(float a, float b) { return a * b; }
MGH_EXACT inline double __dmul_rn(double a, double b) { return a * b; }
MGH_EXACT inline float __fadd_rn(float a, float b) { return a + b; }
MGH_EXACT inline double __dadd_rn(double a, double b) { return a + b; }
MGH_EXACT inline float __fsub_rn(float a, float b) { return a - b; }
MGH_EXACT inline double __dsub_rn(double a, double b) { return a - b; }
#undef MGH_EXACT

inline float __fmaf_rn(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline double __fma_rn(double a, double b, double c) { return __builtin_fma(a, b, c); }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline double __ddiv_rn(double a, double b) { return a / b; }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline double __drcp_rn(double x) { return 1.0 / x; }
inline float __fsqrt_rn(float x) { return __builtin_sqrtf(x); }
inline double __dsqrt_rn(double x) { return __builtin_sqrt(x); }
inline float __frsqrt_rn(float x) { return (float)(1.0 / __builtin_sqrt((double)x)); }
