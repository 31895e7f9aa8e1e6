// CUDA's SIMD intrinsics: a word as two halfwords or four bytes, and sums with a limit (`__vi...`).
#pragma once

namespace mgh {

// f of each pair of lanes of type T (signed or not, 8 or 16 bits); lanes of the result wrap.
template <class T, class F>
inline unsigned lanes(unsigned a, unsigned b, F f) {
    constexpr int bits = 8 * sizeof(T);
    constexpr unsigned mask = (1u << bits) - 1;
    unsigned result = 0;
    for (int i = 0; i < 32; i += bits) {
        result |= ((unsigned)f((int)(T)(a >> i), (int)(T)(b >> i)) & mask) << i;
    }
    return result;
}

template <class T>
inline int clamped(int x) {
    constexpr int low = (T)-1 < 0 ? -(1 << (8 * sizeof(T) - 1)) : 0;
    constexpr int high = low + (1 << 8 * sizeof(T)) - 1;
    return x < low ? low : x > high ? high : x;
}

template <class T>
inline unsigned sum_of_differences(unsigned a, unsigned b) {
    unsigned sum = 0;
    for (unsigned i = 0; i < 32; i += 8 * sizeof(T)) {
        int d = (int)(T)(a >> i) - (int)(T)(b >> i);
        sum += d < 0 ? -d : d;
    }
    return sum;
}

}  // namespace mgh

// Names end in the number of lanes: 2 of S16 and U16, 4 of S8 and U8.
#define MGH_LANES(name, T, expression)                                          \
    inline unsigned name(unsigned a, unsigned b) {                              \
        return mgh::lanes<T>(a, b, [](int x, int y) { return (expression); });  \
    }
#define MGH_LANE(name, T, expression)                                           \
    inline unsigned name(unsigned a) {                                          \
        return mgh::lanes<T>(a, 0, [](int x, int) { return (expression); });    \
    }
#define MGH_COMPARED(name, T, operator)                                         \
    MGH_LANES(__vcmp##name, T, x operator y ? -1 : 0)                           \
    MGH_LANES(__vset##name, T, x operator y ? 1 : 0)
#define MGH_SIMD(n, S, U)                                                       \
    MGH_LANE(__vabs##n, S, x < 0 ? -x : x)                                      \
    MGH_LANE(__vabsss##n, S, mgh::clamped<S>(x < 0 ? -x : x))                   \
    MGH_LANE(__vneg##n, S, -x)                                                  \
    MGH_LANE(__vnegss##n, S, mgh::clamped<S>(-x))                               \
    MGH_LANES(__vadd##n, S, x + y)                                              \
    MGH_LANES(__vaddss##n, S, mgh::clamped<S>(x + y))                           \
    MGH_LANES(__vaddus##n, U, mgh::clamped<U>(x + y))                           \
    MGH_LANES(__vsub##n, S, x - y)                                              \
    MGH_LANES(__vsubss##n, S, mgh::clamped<S>(x - y))                           \
    MGH_LANES(__vsubus##n, U, mgh::clamped<U>(x - y))                           \
    MGH_LANES(__vavgs##n, S, (x + y + (x + y >= 0)) >> 1)                       \
    MGH_LANES(__vavgu##n, U, (x + y + 1) >> 1)                                  \
    MGH_LANES(__vhaddu##n, U, (x + y) >> 1)                                     \
    MGH_LANES(__vabsdiffs##n, S, x > y ? x - y : y - x)                         \
    MGH_LANES(__vabsdiffu##n, U, x > y ? x - y : y - x)                         \
    MGH_LANES(__vmaxs##n, S, x > y ? x : y)                                     \
    MGH_LANES(__vmaxu##n, U, x > y ? x : y)                                     \
    MGH_LANES(__vmins##n, S, x < y ? x : y)                                     \
    MGH_LANES(__vminu##n, U, x < y ? x : y)                                     \
    MGH_COMPARED(eq##n, U, ==)                                                  \
    MGH_COMPARED(ne##n, U, !=)                                                  \
    MGH_COMPARED(ges##n, S, >=)                                                 \
    MGH_COMPARED(geu##n, U, >=)                                                 \
    MGH_COMPARED(gts##n, S, >)                                                  \
    MGH_COMPARED(gtu##n, U, >)                                                  \
    MGH_COMPARED(les##n, S, <=)                                                 \
    MGH_COMPARED(leu##n, U, <=)                                                 \
    MGH_COMPARED(lts##n, S, <)                                                  \
    MGH_COMPARED(ltu##n, U, <)                                                  \
    inline unsigned __vsads##n(unsigned a, unsigned b) {                        \
        return mgh::sum_of_differences<S>(a, b);                                \
    }                                                                           \
    inline unsigned __vsadu##n(unsigned a, unsigned b) {                        \
        return mgh::sum_of_differences<U>(a, b);                                \
    }
MGH_SIMD(2, short, unsigned short)
MGH_SIMD(4, signed char, unsigned char)
#undef MGH_SIMD
#undef MGH_COMPARED

// Sums wrap before they are compared; `_relu`: not below 0.
#define MGH_EXTREME(name, less)                                                                  \
    inline int __viadd##name##_s32(int a, int b, int c) {                                        \
        int sum = (unsigned)a + (unsigned)b;                                                     \
        return sum less c ? sum : c;                                                             \
    }                                                                                            \
    inline unsigned __viadd##name##_u32(unsigned a, unsigned b, unsigned c) {                    \
        return a + b less c ? a + b : c;                                                         \
    }                                                                                            \
    inline int __viadd##name##_s32_relu(int a, int b, int c) {                                   \
        return max(__viadd##name##_s32(a, b, c), 0);                                             \
    }                                                                                            \
    inline unsigned __viadd##name##_s16x2(unsigned a, unsigned b, unsigned c) {                  \
        return __v##name##s2(__vadd2(a, b), c);                                                  \
    }                                                                                            \
    inline unsigned __viadd##name##_u16x2(unsigned a, unsigned b, unsigned c) {                  \
        return __v##name##u2(__vadd2(a, b), c);                                                  \
    }                                                                                            \
    inline unsigned __viadd##name##_s16x2_relu(unsigned a, unsigned b, unsigned c) {             \
        return __vmaxs2(__viadd##name##_s16x2(a, b, c), 0);                                      \
    }                                                                                            \
    inline int __vi##name##_s32_relu(int a, int b) { return max(name(a, b), 0); }                \
    inline int __vi##name##3_s32(int a, int b, int c) { return name(name(a, b), c); }            \
    inline int __vi##name##3_s32_relu(int a, int b, int c) { return max(name(name(a, b), c), 0); } \
    inline unsigned __vi##name##3_u32(unsigned a, unsigned b, unsigned c) {                      \
        return name(name(a, b), c);                                                              \
    }                                                                                            \
    inline unsigned __vi##name##_s16x2_relu(unsigned a, unsigned b) {                            \
        return __vmaxs2(__v##name##s2(a, b), 0);                                                 \
    }                                                                                            \
    inline unsigned __vi##name##3_s16x2(unsigned a, unsigned b, unsigned c) {                    \
        return __v##name##s2(__v##name##s2(a, b), c);                                            \
    }                                                                                            \
    inline unsigned __vi##name##3_s16x2_relu(unsigned a, unsigned b, unsigned c) {               \
        return __vmaxs2(__vi##name##3_s16x2(a, b, c), 0);                                        \
    }                                                                                            \
    inline unsigned __vi##name##3_u16x2(unsigned a, unsigned b, unsigned c) {                    \
        return __v##name##u2(__v##name##u2(a, b), c);                                            \
    }                                                                                            \
    inline int __vib##name##_s32(int a, int b, bool* first) {                                    \
        *first = a less##= b;                                                                    \
        return *first ? a : b;                                                                   \
    }                                                                                            \
    inline unsigned __vib##name##_u32(unsigned a, unsigned b, bool* first) {                     \
        *first = a less##= b;                                                                    \
        return *first ? a : b;                                                                   \
    }                                                                                            \
    inline unsigned __vib##name##_s16x2(unsigned a, unsigned b, bool* high, bool* low) {         \
        *high = (short)(a >> 16) less##= (short)(b >> 16);                                       \
        *low = (short)a less##= (short)b;                                                        \
        return __v##name##s2(a, b);                                                              \
    }                                                                                            \
    inline unsigned __vib##name##_u16x2(unsigned a, unsigned b, bool* high, bool* low) {         \
        *high = a >> 16 less##= b >> 16;                                                         \
        *low = (unsigned short)a less##= (unsigned short)b;                                      \
        return __v##name##u2(a, b);                                                              \
    }
MGH_EXTREME(max, >)
MGH_EXTREME(min, <)
#undef MGH_EXTREME
#undef MGH_LANE
#undef MGH_LANES

// Two halfwords of a times two bytes of b, the lower or the upper ones, and c.
#define MGH_DP2A(name, shift)                                                   \
    inline int name(int a, int b, int c) {                                      \
        return c + (short)a * (signed char)(b >> shift)                         \
               + (short)(a >> 16) * (signed char)(b >> (shift + 8));            \
    }                                                                           \
    inline unsigned name(unsigned a, unsigned b, unsigned c) {                  \
        return c + (a & 0xffff) * (b >> shift & 255) + (a >> 16) * (b >> (shift + 8) & 255); \
    }                                                                           \
    inline int name(short2 a, char4 b, int c) {                                 \
        return name(mgh::bit_cast<int>(a), mgh::bit_cast<int>(b), c);           \
    }                                                                           \
    inline unsigned name(ushort2 a, uchar4 b, unsigned c) {                     \
        return name(mgh::bit_cast<unsigned>(a), mgh::bit_cast<unsigned>(b), c); \
    }
MGH_DP2A(__dp2a_lo, 0)
MGH_DP2A(__dp2a_hi, 16)
#undef MGH_DP2A
inline int __dp4a(char4 a, char4 b, int c) {
    return __dp4a(mgh::bit_cast<int>(a), mgh::bit_cast<int>(b), c);
}
inline unsigned __dp4a(uchar4 a, uchar4 b, unsigned c) {
    return __dp4a(mgh::bit_cast<unsigned>(a), mgh::bit_cast<unsigned>(b), c);
}
