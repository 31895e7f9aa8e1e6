// float4, uint3, dim3 and the like, with CUDA's alignments, and their make_ functions.
#pragma once

#include "qualifiers.h"

#define MGH_VECTOR(T, base, align2, align4, copied_3)                                      \
    struct base##1 { T x; MGH_COPIED(base##1) };                                           \
    struct __attribute__((aligned(align2))) base##2 { T x, y; MGH_COPIED(base##2) };       \
    struct base##3 { T x, y, z; copied_3(base##3) };                                       \
    struct __attribute__((aligned(align4))) base##4 { T x, y, z, w; MGH_COPIED(base##4) }; \
    inline base##1 make_##base##1(T x) { return {x}; }                            \
    inline base##2 make_##base##2(T x, T y) { return {x, y}; }                    \
    inline base##3 make_##base##3(T x, T y, T z) { return {x, y, z}; }            \
    inline base##4 make_##base##4(T x, T y, T z, T w) { return {x, y, z, w}; }

#define MGH_TRIVIAL_3(type)  // constants have it: dim3
MGH_VECTOR(signed char, char, 2, 4, MGH_COPIED)
MGH_VECTOR(unsigned char, uchar, 2, 4, MGH_COPIED)
MGH_VECTOR(short, short, 4, 8, MGH_COPIED)
MGH_VECTOR(unsigned short, ushort, 4, 8, MGH_COPIED)
MGH_VECTOR(int, int, 8, 16, MGH_COPIED)
MGH_VECTOR(unsigned int, uint, 8, 16, MGH_TRIVIAL_3)
MGH_VECTOR(long, long, 2 * sizeof(long), 16, MGH_COPIED)
MGH_VECTOR(unsigned long, ulong, 2 * sizeof(long), 16, MGH_COPIED)
MGH_VECTOR(long long, longlong, 16, 16, MGH_COPIED)
MGH_VECTOR(unsigned long long, ulonglong, 16, 16, MGH_COPIED)
MGH_VECTOR(float, float, 8, 16, MGH_COPIED)
MGH_VECTOR(double, double, 16, 16, MGH_COPIED)

#undef MGH_VECTOR
#undef MGH_TRIVIAL_3

struct dim3 {
    unsigned int x, y, z;
    constexpr dim3(unsigned int x = 1, unsigned int y = 1, unsigned int z = 1) : x(x), y(y), z(z) {}
    constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
    constexpr operator uint3() const { return {x, y, z}; }
};
