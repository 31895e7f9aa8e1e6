// Operations on integers, bits and predicates.
#pragma once

#include "machine.h"

namespace mgp {

using s8 = int8_t;
using s16 = int16_t;
using s32 = int32_t;
using s64 = int64_t;
using u8 = uint8_t;
using u16 = uint16_t;
using u32 = uint32_t;
using u64 = uint64_t;
using b16 = u16;
using b32 = u32;
using b64 = u64;

template <class T>
T high(T a, T b) {
    if constexpr (sizeof(T) == 8) {
        using Wide = std::conditional_t<std::is_signed_v<T>, __int128, unsigned __int128>;
        return (T)((Wide)a * (Wide)b >> 64);
    } else {
        using Wide = std::conditional_t<std::is_signed_v<T>, s64, u64>;
        return (T)((Wide)a * (Wide)b >> 8 * sizeof(T));
    }
}

// Division by zero is undefined in PTX; hardware gives all ones, and the dividend as remainder.
template <class T>
T divide(T a, T b) {
    if (b == 0) return (T)~(T)0;
    if (std::is_signed_v<T> && b == (T)-1) return (T)(0 - (std::make_unsigned_t<T>)a);
    return (T)(a / b);
}
template <class T>
T remainder(T a, T b) {
    if (b == 0) return a;
    if (std::is_signed_v<T> && b == (T)-1) return 0;
    return (T)(a % b);
}

template <class T>
T shift_left(T a, u32 by) {
    return by >= 8 * sizeof(T) ? (T)0 : (T)(a << by);
}
template <class T>
T shift_right(T a, u32 by) {
    constexpr u32 bits = 8 * sizeof(T);
    if (by >= bits) by = bits - 1, a = std::is_signed_v<T> ? a : (T)0;
    return (T)(a >> by);
}

inline u32 funnel(u32 low, u32 high, u32 by, bool left) {
    u64 both = (u64)high << 32 | low;
    return left ? (u32)(both << by >> 32) : (u32)(both >> by);
}

template <class T>
T extract(T a, u32 position, u32 length) {
    constexpr u32 bits = 8 * sizeof(T);
    position &= 0xff, length &= 0xff;
    using U = std::make_unsigned_t<T>;
    bool sign = false;
    if (std::is_signed_v<T> && length) {
        u32 last = position + length - 1;
        sign = (U)a >> (last < bits ? last : bits - 1) & 1;
    }
    U taken = position < bits ? (U)a >> position : 0;
    u32 there = position < bits ? bits - position : 0;  // what lies beyond is the sign
    if (length < there) there = length;
    U keep = there >= bits ? ~(U)0 : ((U)1 << there) - 1;
    return (T)((taken & keep) | (sign ? ~keep : 0));
}

template <class T>
T insert(T a, T b, u32 position, u32 length) {
    constexpr u32 bits = 8 * sizeof(T);
    position &= 0xff, length &= 0xff;
    if (position >= bits) return b;
    T field = length >= bits ? ~(T)0 : ((T)1 << length) - 1;
    field = (T)(field << position);
    return (T)((b & ~field) | (a << position & field));
}

inline u32 permute(u32 a, u32 b, u32 selector) {
    u64 bytes = (u64)b << 32 | a;
    u32 result = 0;
    for (int i = 0; i < 4; ++i) {
        u32 one = selector >> 4 * i;
        u32 byte = (u32)(bytes >> 8 * (one & 7)) & 0xff;
        if (one & 8) byte = byte & 0x80 ? 0xff : 0;
        result |= byte << 8 * i;
    }
    return result;
}

// prmt with a mode: which bytes, by the lower two bits of the selector.
inline u32 permute_as(int mode, u32 a, u32 b, u32 c) {
    static const u16 forms[6][4] = {
        {0x3210, 0x4321, 0x5432, 0x6543}, {0x5670, 0x6701, 0x7012, 0x0123},
        {0x0000, 0x1111, 0x2222, 0x3333}, {0x3210, 0x3211, 0x3222, 0x3333},
        {0x0000, 0x1110, 0x2210, 0x3210}, {0x1010, 0x3232, 0x1010, 0x3232}};
    return permute(a, b, forms[mode][c & 3]);
}

template <class T>
u32 leading(T a) {
    if (!a) return 8 * sizeof(T);
    return sizeof(T) == 8 ? __builtin_clzll(a) : __builtin_clz((u32)a);
}

template <class T>
u32 find_bit(T a, bool amount) {  // the highest bit that is not the sign
    constexpr u32 bits = 8 * sizeof(T);
    using U = std::make_unsigned_t<T>;
    U x = (U)a;
    if (std::is_signed_v<T> && a < 0) x = ~x;
    if (!x) return ~0u;
    u32 from_top = leading<U>(x);
    return amount ? from_top : bits - 1 - from_top;
}

template <class T>
T reversed(T a) {
    T r = 0;
    for (u32 i = 0; i < 8 * sizeof(T); ++i) r |= (a >> i & 1) << (8 * sizeof(T) - 1 - i);
    return r;
}

inline u32 logic(u32 a, u32 b, u32 c, u32 table) {
    u32 r = 0;
    for (u32 i = 0; i < 8; ++i) {
        if (table >> i & 1) r |= (i & 4 ? a : ~a) & (i & 2 ? b : ~b) & (i & 1 ? c : ~c);
    }
    return r;
}

// The n-th set bit of `mask` from `base` on, upwards or downwards.
inline u32 nth_set(u32 mask, u32 base, s32 offset) {
    if (base > 31) return ~0u;
    if (offset == 0) return mask >> base & 1 ? base : ~0u;
    int left = offset > 0 ? offset : -offset, step = offset > 0 ? 1 : -1;
    for (int i = (int)base; i >= 0 && i < 32; i += step) {
        if ((mask >> i & 1) && --left == 0) return (u32)i;
    }
    return ~0u;
}

template <class T>
T saturated_sum(s64 x) {
    constexpr s64 most = 0x7fffffff;
    return (T)(x > most ? most : x < -most - 1 ? -most - 1 : x);
}

template <int Parts, class A, class B>
s32 dot(u32 a, u32 b, s32 c, bool upper) {
    for (int i = 0; i < Parts; ++i) {
        s32 x = Parts == 4 ? (s32)(A)(u8)(a >> 8 * i)
                           : std::is_signed_v<A> ? (s32)(s16)(a >> 16 * i)
                                                 : (s32)(u16)(a >> 16 * i);
        c += x * (s32)(B)(u8)(b >> 8 * (i + (Parts == 2 && upper ? 2 : 0)));
    }
    return c;
}

// Sums with the carry of each lane.
template <class T>
void add_carry(Warp& w, const Op& o, Mask m) {
    constexpr u8 TAKES = 1, GIVES = 2, SUBTRACTS = 4;
    T* to = w.at<T>(o.to);
    const T *a = w.in<T>(o.a), *b = w.in<T>(o.b);
    bool subtracts = o.flags & SUBTRACTS;
    Mask carry = w.carry;
    each(m, [&](int i) {
        T x = subtracts ? (T)~b[i] : b[i];
        // A borrow is kept as it is named: 1 where one was taken.
        T in = o.flags & TAKES ? (T)(w.carry >> i & 1) : 0;
        if (subtracts) in = 1 - in;
        unsigned __int128 sum = (unsigned __int128)a[i] + x + in;
        to[i] = (T)sum;
        Mask out = (Mask)(sum >> 8 * sizeof(T)) & 1;
        if (subtracts) out ^= 1;
        carry = (carry & ~(1u << i)) | out << i;
    });
    if (o.flags & GIVES) w.carry = carry;
}

// d[|q] = (a cmp b) op c, as masks of lanes. `value`: 0 none, 1 and, 2 or, 3 xor.
inline void combine(Warp& w, const Op& o, Mask m, Mask truth) {
    Mask other = o.value ? w.predicate(o.c) : 0;
    if (o.flags & NEGATE_C) other = ~other;
    auto joined = [&](Mask x) {
        return o.value == 1 ? x & other : o.value == 2 ? x | other : o.value == 3 ? x ^ other : x;
    };
    Mask* to = w.at<Mask>(o.to);
    *to = (*to & ~m) | (joined(truth) & m);
    if (o.count) {
        Mask* second = w.at<Mask>(o.d);
        *second = (*second & ~m) | (joined(~truth) & m);
    }
}

// 32 bytes of 0 or 1 as bits: a multiplication moves eight of them next to each other.
inline Mask bits_of(const u8* truth) {
    Mask bits = 0;
    for (int i = 0; i < 4; ++i) {
        u64 eight;
        memcpy(&eight, truth + 8 * i, 8);
        bits |= (Mask)(eight * 0x0102040810204080 >> 56) << 8 * i;
    }
    return bits;
}

template <class T, class F>
inline void compare(Warp& w, const Op& o, Mask m, F f) {
    const T *a = w.in<T>(o.a), *b = w.in<T>(o.b);
    u8 truth[LANES];
#pragma GCC ivdep
    for (int i = 0; i < LANES; ++i) truth[i] = f(a[i], b[i]);
    combine(w, o, m, bits_of(truth));
}

#define MGP_COMPARE(name, T, ...)                                              \
    {"setp." name, [](Warp& w, const Op& o, Mask m) {                          \
        compare<T>(w, o, m, [](T a, T b) -> bool { return __VA_ARGS__; });     \
    }, PLAIN},
#define MGP_ORDER(t)                  \
    MGP_COMPARE("lt." #t, t, a < b)   \
    MGP_COMPARE("le." #t, t, a <= b)  \
    MGP_COMPARE("gt." #t, t, a > b)   \
    MGP_COMPARE("ge." #t, t, a >= b)

#define MGP_BITS(t)                                                            \
    MGP_UNARY("mov." #t, t, t, a)                                              \
    MGP_BINARY("add." #t, t, t, (t)(a + b))                                    \
    MGP_BINARY("sub." #t, t, t, (t)(a - b))                                    \
    MGP_BINARY("mul.lo." #t, t, t, (t)((u64)a * b))                            \
    MGP_TERNARY("mad.lo." #t, t, t, t, (t)((u64)a * b + c))                    \
    MGP_BINARY("and." #t, t, t, (t)(a & b))                                    \
    MGP_BINARY("or." #t, t, t, (t)(a | b))                                     \
    MGP_BINARY("xor." #t, t, t, (t)(a ^ b))                                    \
    MGP_UNARY("not." #t, t, t, (t)~a)                                          \
    MGP_UNARY("neg." #t, t, t, (t)(0 - a))                                     \
    MGP_UNARY("cnot." #t, t, t, (t)(a == 0))                                   \
    MGP_COMPARE("eq." #t, t, a == b)                                           \
    MGP_COMPARE("ne." #t, t, a != b)                                           \
    {"shl." #t, [](Warp& w, const Op& o, Mask m) {                             \
        binary<t, t, u32>(w, o, m, [](t a, u32 b) { return shift_left(a, b); }); \
    }, PLAIN},                                                                 \
    {"selp." #t, [](Warp& w, const Op& o, Mask m) {                            \
        Mask chosen = w.predicate(o.c);                                        \
        if (o.flags & NEGATE_C) chosen = ~chosen;                              \
        t* to = w.at<t>(o.to);                                                 \
        const t *a = w.in<t>(o.a), *b = w.in<t>(o.b);                          \
        each(m, [=](int i) { to[i] = chosen >> i & 1 ? a[i] : b[i]; });        \
    }, PLAIN},                                                                 \
    {"set." #t, [](Warp& w, const Op& o, Mask m) {                             \
        Mask truth = w.predicate(o.a);                                         \
        t* to = w.at<t>(o.to);                                                 \
        each(m, [&](int i) { to[i] = truth >> i & 1 ? (t)o.value : (t)0; });   \
    }, PLAIN},

#define MGP_INTEGER(t)                                                         \
    MGP_BINARY("mul.hi." #t, t, t, high<t>(a, b))                              \
    MGP_TERNARY("mad.hi." #t, t, t, t, (t)(high<t>(a, b) + c))                 \
    MGP_BINARY("div." #t, t, t, divide<t>(a, b))                               \
    MGP_BINARY("rem." #t, t, t, remainder<t>(a, b))                            \
    MGP_BINARY("min." #t, t, t, a < b ? a : b)                                 \
    MGP_BINARY("max." #t, t, t, a > b ? a : b)                                 \
    MGP_TERNARY("sad." #t, t, t, t, (t)(c + (a < b ? b - a : a - b)))          \
    {"shr." #t, [](Warp& w, const Op& o, Mask m) {                             \
        binary<t, t, u32>(w, o, m, [](t a, u32 b) { return shift_right(a, b); }); \
    }, PLAIN},                                                                 \
    MGP_ORDER(t)

#define MGP_SIGNED(t) MGP_UNARY("abs." #t, t, t, (t)(a < 0 ? 0 - a : a))

#define MGP_WIDE(to, t)                                                        \
    MGP_BINARY("mul.wide." #t, to, t, (to)((to)a * (to)b))                     \
    MGP_TERNARY("mad.wide." #t, to, t, to, (to)((to)a * (to)b + c))

#define MGP_FIELDS(t)                                                          \
    {"bfe." #t, [](Warp& w, const Op& o, Mask m) {                             \
        ternary<t, t, u32, u32>(w, o, m, [](t a, u32 b, u32 c) { return extract(a, b, c); }); \
    }, PLAIN},                                                                 \
    {"bfind." #t, [](Warp& w, const Op& o, Mask m) {                           \
        bool amount = o.flags;                                                 \
        unary<u32, t>(w, o, m, [=](t a) { return find_bit(a, amount); });      \
    }, PLAIN},

#define MGP_COUNTS(t)                                                          \
    MGP_UNARY("popc." #t, u32, t, (u32)__builtin_popcountll(a))                \
    MGP_UNARY("clz." #t, u32, t, leading(a))                                   \
    MGP_UNARY("brev." #t, t, t, reversed(a))                                   \
    {"bfi." #t, [](Warp& w, const Op& o, Mask m) {                             \
        t* to = w.at<t>(o.to);                                                 \
        const t *a = w.in<t>(o.a), *b = w.in<t>(o.b);                          \
        const u32 *c = w.in<u32>(o.c), *d = w.in<u32>(o.d);                    \
        each(m, [=](int i) { to[i] = insert(a[i], b[i], c[i], d[i]); });       \
    }, PLAIN},                                                                 \
    {"carry." #t, add_carry<t>, PLAIN},

#define MGP_DOT(name, parts, A, B)                                             \
    {name, [](Warp& w, const Op& o, Mask m) {                                  \
        bool upper = o.flags;                                                  \
        ternary<s32, u32, u32, s32>(w, o, m, [=](u32 a, u32 b, s32 c) {        \
            return dot<parts, A, B>(a, b, c, upper);                           \
        });                                                                    \
    }, PLAIN},

#define MGP_PREDICATE(name, ...)                                               \
    {name, [](Warp& w, const Op& o, Mask m) {                                  \
        Mask a = w.predicate(o.a), b = w.predicate(o.b);                       \
        (void)b;                                                               \
        Mask* to = w.at<Mask>(o.to);                                           \
        *to = (*to & ~m) | ((__VA_ARGS__) & m);                                \
    }, PLAIN},

static const Entry integers[] = {
    MGP_BITS(b16) MGP_BITS(b32) MGP_BITS(b64)
    MGP_INTEGER(s16) MGP_INTEGER(s32) MGP_INTEGER(s64)
    MGP_INTEGER(u16) MGP_INTEGER(u32) MGP_INTEGER(u64)
    MGP_SIGNED(s16) MGP_SIGNED(s32) MGP_SIGNED(s64)
    MGP_WIDE(s32, s16) MGP_WIDE(s64, s32) MGP_WIDE(u32, u16) MGP_WIDE(u64, u32)
    MGP_FIELDS(s32) MGP_FIELDS(s64) MGP_FIELDS(u32) MGP_FIELDS(u64)
    MGP_COUNTS(b32) MGP_COUNTS(b64)
    MGP_UNARY("mov.b8", u8, u8, a)
    MGP_BINARY("add.sat.s32", s32, s32, saturated_sum<s32>((s64)a + b))
    MGP_BINARY("sub.sat.s32", s32, s32, saturated_sum<s32>((s64)a - b))
    MGP_TERNARY("mad.hi.sat.s32", s32, s32, s32, saturated_sum<s32>((s64)high<s32>(a, b) + c))
    MGP_BINARY("mul24.lo.s32", s32, s32, (s32)((s64)(a << 8 >> 8) * (b << 8 >> 8)))
    MGP_BINARY("mul24.lo.u32", u32, u32, (a & 0xffffff) * (b & 0xffffff))
    MGP_BINARY("mul24.hi.s32", s32, s32, (s32)((s64)(a << 8 >> 8) * (b << 8 >> 8) >> 16))
    MGP_BINARY("mul24.hi.u32", u32, u32, (u32)((u64)(a & 0xffffff) * (b & 0xffffff) >> 16))
    MGP_BINARY("bmsk.clamp", u32, u32,
               a > 31 ? 0 : (b > 31 - a ? ~0u << a : ((1u << b) - 1) << a))
    MGP_BINARY("bmsk.wrap", u32, u32, ((1u << (b & 31)) - 1) << (a & 31))
    MGP_BINARY("szext.clamp.s32", s32, s32, (u32)b > 31 ? a : b ? a << (32 - b) >> (32 - b) : 0)
    MGP_BINARY("szext.clamp.u32", u32, u32, b > 31 ? a : a & ((1u << b) - 1))
    MGP_BINARY("szext.wrap.s32", s32, s32, b & 31 ? a << (32 - (b & 31)) >> (32 - (b & 31)) : 0)
    MGP_BINARY("szext.wrap.u32", u32, u32, a & ((1u << (b & 31)) - 1))
    MGP_TERNARY("shf.l.wrap", u32, u32, u32, funnel(a, b, c & 31, true))
    MGP_TERNARY("shf.l.clamp", u32, u32, u32, funnel(a, b, c > 32 ? 32 : c, true))
    MGP_TERNARY("shf.r.wrap", u32, u32, u32, funnel(a, b, c & 31, false))
    MGP_TERNARY("shf.r.clamp", u32, u32, u32, funnel(a, b, c > 32 ? 32 : c, false))
    MGP_TERNARY("prmt", u32, u32, u32, permute(a, b, c))
    {"prmt.mode", [](Warp& w, const Op& o, Mask m) {
        int mode = o.flags;
        ternary<u32, u32, u32, u32>(w, o, m, [=](u32 a, u32 b, u32 c) {
            return permute_as(mode, a, b, c);
        });
    }, PLAIN},
    {"lop3", [](Warp& w, const Op& o, Mask m) {
        u32 table = (u32)o.value;
        ternary<u32, u32, u32, u32>(w, o, m, [=](u32 a, u32 b, u32 c) {
            return logic(a, b, c, table);
        });
    }, PLAIN},
    {"fns", [](Warp& w, const Op& o, Mask m) {
        ternary<u32, u32, u32, s32>(w, o, m, nth_set);
    }, PLAIN},
    MGP_DOT("dp4a.s32.s32", 4, s8, s8) MGP_DOT("dp4a.s32.u32", 4, s8, u8)
    MGP_DOT("dp4a.u32.s32", 4, u8, s8) MGP_DOT("dp4a.u32.u32", 4, u8, u8)
    MGP_DOT("dp2a.s32.s32", 2, s8, s8) MGP_DOT("dp2a.s32.u32", 2, s8, u8)
    MGP_DOT("dp2a.u32.s32", 2, u8, s8) MGP_DOT("dp2a.u32.u32", 2, u8, u8)
    MGP_PREDICATE("mov.pred", a)
    MGP_PREDICATE("not.pred", ~a)
    MGP_PREDICATE("and.pred", a & b)
    MGP_PREDICATE("or.pred", a | b)
    MGP_PREDICATE("xor.pred", a ^ b)
    {"pack", [](Warp& w, const Op& o, Mask m) {  // mov.b64 d, {a, b, ...}
        const int32_t* parts = w.machine->launch.lists + o.list;
        char* to = w.at<char>(o.to);
        each(m, [&](int i) {
            for (int k = 0; k < o.count; ++k) {
                memcpy(to + (i * o.count + k) * o.bytes, w.in<char>(parts[k]) + i * o.bytes,
                       o.bytes);
            }
        });
    }, PLAIN},
    {"unpack", [](Warp& w, const Op& o, Mask m) {
        const int32_t* parts = w.machine->launch.lists + o.list;
        const char* from = w.in<char>(o.a);
        each(m, [&](int i) {
            char whole[16];
            memcpy(whole, from + i * o.count * o.bytes, o.count * o.bytes);
            for (int k = 0; k < o.count; ++k) {
                if (parts[k] < 0) continue;  // "_"
                memcpy(w.at<char>(parts[k]) + i * o.bytes, whole + k * o.bytes, o.bytes);
            }
        });
    }, PLAIN},
    // A register of another width: `bytes` to `count`, with zeros, or the sign where flags say so.
    {"resize", [](Warp& w, const Op& o, Mask m) {
        char* to = w.at<char>(o.to);
        const char* from = w.in<char>(o.a);
        each(m, [&](int i) {
            u64 x = 0;
            memcpy(&x, from + i * o.bytes, o.bytes);
            if (o.flags && o.bytes < 8 && x >> (8 * o.bytes - 1)) x |= ~0ull << 8 * o.bytes;
            memcpy(to + i * o.count, &x, o.count);
        });
    }, PLAIN},
};

}  // namespace mgp
