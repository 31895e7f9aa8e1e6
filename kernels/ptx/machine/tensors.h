// Tensor cores: matrices spread over the lanes of a warp, whose 32 lanes must come together.
#pragma once

#include "warps.h"

namespace mgp {

// An element of a matrix in registers, by its bits; formats as for conversions, and integers.
enum Element { S8 = 8, U8, S32 };

inline int element_bits(int format) {
    return format == F16 || format == BF16 ? 16 : format == F64 ? 64 : format == S8 || format == U8 ? 8 : 32;
}

inline f64 element(u64 bits, int format) {
    switch (format) {
        case F16: return Half::widen((u16)bits);
        case BF16: return Bfloat16::widen((u16)bits);
        case TF32: return mgh::bit_cast<f32>((u32)bits & 0xffffe000);
        case F64: return mgh::bit_cast<f64>(bits);
        case S8: return (s8)bits;
        case U8: return (u8)bits;
        case S32: return (s32)bits;
    }
    return mgh::bit_cast<f32>((u32)bits);
}

inline u64 element_of(f64 x, int format) {
    if (format == S32) return (u32)(s64)x;
    if (format == S8 || format == U8) return (u8)(s64)x;
    return float_bits(x, format, NEAREST);
}

// A matrix in the registers of the lanes: `count` of them from `list` on, `bytes` wide.
struct Fragment {
    const int32_t* list;
    int count, bytes, format;

    int per_register() const { return 8 * bytes / element_bits(format); }
    int per_lane() const { return count * per_register(); }

    u64 get(const Warp& w, int lane, int k) const {
        const int bits = element_bits(format), per = per_register();
        u64 x = 0;
        memcpy(&x, w.in<char>(list[k / per]) + lane * bytes, bytes);
        x >>= bits * (k % per);
        return bits == 64 ? x : x & ((1ull << bits) - 1);
    }
    void set(Warp& w, int lane, int k, u64 value) const {
        const int size = element_bits(format) / 8, per = per_register();
        memcpy(w.at<char>(list[k / per]) + lane * bytes + k % per * size, &value, size);
    }
};

// -- mma.sync ----------------------------------------------------------------------------------

// Where element k of a lane lies, as the PTX manual draws it for m16n8kK (and m8n8k4 of f64): lanes
// 4 g + t; rows g and g + 8, columns by groups of P elements, P those of a register.
enum Role { A, B, C };
inline void place(int role, int rows, int p, int lane, int k, int& row, int& column) {
    const int g = lane / 4, t = lane % 4, r = k / p, i = k % p;
    if (role == A) {
        const int halves = rows == 16 ? 2 : 1;
        row = g + 8 * (r % halves);
        column = t * p + i + 4 * p * (r / halves);
    } else if (role == B) {
        row = t * p + i + 4 * p * r;
        column = g;
    } else {
        row = g + 8 * (k / 2);
        column = 2 * t + k % 2;
    }
}

// D = A B + C. Lists: the shape M, N, K; then D, A, B, C: count, bytes, format and registers.
struct Product {
    int m, n, k;
    Fragment d, a, b, c;
};
inline Product product_of(const Warp& w, const Op& o) {
    const int32_t* list = w.machine->launch.lists + o.list;
    Product p = {list[0], list[1], list[2], {}, {}, {}, {}};
    list += 3;
    for (Fragment* f : {&p.d, &p.a, &p.b, &p.c}) {
        *f = {list + 3, list[0], list[1], list[2]};
        list += 3 + list[0];
    }
    return p;
}

constexpr int MOST = 32 * 32;
struct Matrices {
    f64 a[MOST], b[MOST], d[MOST];
};

// Sums in the order of k, in the precision of the accumulators.
inline void multiply(Matrices& x, const Product& p) {
    const bool single = p.d.format == F32 || p.d.format == F16;
    for (int i = 0; i < p.m; ++i) {
        for (int j = 0; j < p.n; ++j) {
            f64 sum = x.d[i * p.n + j];
            for (int k = 0; k < p.k; ++k) {
                sum += x.a[i * p.k + k] * x.b[k * p.n + j];
                if (single) sum = (f32)sum;
            }
            x.d[i * p.n + j] = sum;
        }
    }
}

inline void saturate(f64& x) { x = x > 2147483647.0 ? 2147483647.0 : x < -2147483648.0 ? -2147483648.0 : x; }

inline void mma(Warp& w, const Op& o, Mask) {
    const Product p = product_of(w, o);
    Matrices x;
    int row, column;
    for (int lane = 0; lane < LANES; ++lane) {
        for (int k = 0; k < p.a.per_lane(); ++k) {
            place(A, p.m, p.a.per_register(), lane, k, row, column);
            x.a[row * p.k + column] = element(p.a.get(w, lane, k), p.a.format);
        }
        for (int k = 0; k < p.b.per_lane(); ++k) {
            place(B, p.m, p.b.per_register(), lane, k, row, column);
            x.b[row * p.n + column] = element(p.b.get(w, lane, k), p.b.format);
        }
        for (int k = 0; k < p.c.per_lane(); ++k) {
            place(C, p.m, 1, lane, k, row, column);
            x.d[row * p.n + column] = element(p.c.get(w, lane, k), p.c.format);
        }
    }
    multiply(x, p);
    for (int lane = 0; lane < LANES; ++lane) {
        for (int k = 0; k < p.d.per_lane(); ++k) {
            place(C, p.m, 1, lane, k, row, column);
            f64 value = x.d[row * p.n + column];
            if (o.flags) saturate(value);
            p.d.set(w, lane, k, element_of(value, p.d.format));
        }
    }
}

// -- wmma --------------------------------------------------------------------------------------

// The manual does not say how lanes hold the elements; here element k of a lane is the one numbered
// lane * per_lane + k, by rows. Where there is more room than elements, they are held several times.
inline int numbered(const Fragment& f, int lane, int k, int elements) {
    return (lane * f.per_lane() + k) % elements;
}

inline void wmma(Warp& w, const Op& o, Mask) {
    const Product p = product_of(w, o);
    Matrices x;
    for (int lane = 0; lane < LANES; ++lane) {
        for (int k = 0; k < p.a.per_lane(); ++k) {
            x.a[numbered(p.a, lane, k, p.m * p.k)] = element(p.a.get(w, lane, k), p.a.format);
        }
        for (int k = 0; k < p.b.per_lane(); ++k) {
            x.b[numbered(p.b, lane, k, p.k * p.n)] = element(p.b.get(w, lane, k), p.b.format);
        }
        for (int k = 0; k < p.c.per_lane(); ++k) {
            x.d[numbered(p.c, lane, k, p.m * p.n)] = element(p.c.get(w, lane, k), p.c.format);
        }
    }
    multiply(x, p);
    for (int lane = 0; lane < LANES; ++lane) {
        for (int k = 0; k < p.d.per_lane(); ++k) {
            f64 value = x.d[numbered(p.d, lane, k, p.m * p.n)];
            if (o.flags & 1) saturate(value);
            p.d.set(w, lane, k, element_of(value, p.d.format));
        }
    }
}

// Lists: rows, columns, by_rows, count, bytes, format, registers. b: the stride, in elements.
template <bool loads>
void wmma_memory(Warp& w, const Op& o, Mask m) {
    const int32_t* list = w.machine->launch.lists + o.list;
    const int rows = list[0], columns = list[1];
    const bool by_rows = list[2];
    const Fragment f = {list + 6, list[3], list[4], list[5]};
    const u32* stride = w.in<u32>(o.b);
    const int size = element_bits(f.format) / 8;
    if (!loads) w.block->moved = true;
    const char* base = w.in<char>(o.a);
    const bool wide = o.flags & WIDE_ADDRESS;
    u64 first[LANES], places[LANES], at[LANES];
    for (int i = 0; i < LANES; ++i) first[i] = wide ? ((const u64*)base)[i] : ((const u32*)base)[i];
    Op each_one = o;  // the address in registers of our own
    char* registers = w.registers;
    each_one.a = 0;
    each_one.flags = WIDE_ADDRESS;
    // One request: a lane's elements as they lie in memory, as many as it has.
    for (int i = 0; i < LANES; ++i) {
        int n = numbered(f, i, 0, rows * columns), minor = by_rows ? columns : rows;
        places[i] = first[i] + ((u64)(n / minor) * stride[i] + n % minor) * size;
    }
    w.registers = (char*)places;
    resolve(w, each_one, m, {size, !loads}, at, &o);
    w.registers = registers;
    for (int k = 0; k < f.per_lane(); ++k) {
        for (int i = 0; i < LANES; ++i) {
            int n = numbered(f, i, k, rows * columns), row = n / columns, column = n % columns;
            u64 away = by_rows ? (u64)row * stride[i] + column : (u64)column * stride[i] + row;
            places[i] = first[i] + away * size;
        }
        w.registers = (char*)places;
        resolve(w, each_one, m, {size, !loads}, at, nullptr);
        w.registers = registers;
        for (int i = 0; i < LANES; ++i) {
            u64 value = 0;
            if (loads) memcpy(&value, (void*)at[i], size), f.set(w, i, k, value);
            else value = f.get(w, i, k), memcpy((void*)at[i], &value, size);
        }
    }
}

// -- ldmatrix, stmatrix, movmatrix -------------------------------------------------------------

// Lane 8 m + i gives the address of row i of matrix m; lane 4 g + t holds of each matrix the
// elements 2 t and 2 t + 1 of row g, or with `trans` (flags TRANSPOSED) of column g.
constexpr u8 TRANSPOSED = 1;
template <bool loads>
void matrices(Warp& w, const Op& o, Mask) {
    const int32_t* registers = w.machine->launch.lists + o.list;
    const Mask used = o.count == 4 ? ALL : (1u << 8 * o.count) - 1;
    const bool trans = o.flags & TRANSPOSED;
    u64 at[LANES];
    resolve(w, o, used, {16, !loads}, at);
    if (!loads) w.block->moved = true;
    u16 taken[4][LANES][2];
    for (int m = 0; m < o.count; ++m) {
        for (int lane = 0; lane < LANES; ++lane) {
            for (int i = 0; i < 2; ++i) {
                int row = lane / 4, column = 2 * (lane % 4) + i;
                if (trans) row = column, column = lane / 4;
                u16* place = (u16*)at[8 * m + row] + column;
                if (loads) taken[m][lane][i] = *place;
                else *place = w.in<u16>(registers[m])[2 * lane + i];
            }
        }
    }
    for (int m = 0; loads && m < o.count; ++m) memcpy(w.at<char>(registers[m]), taken[m], sizeof taken[m]);
}

inline void transpose_matrix(Warp& w, const Op& o, Mask) {
    u16 taken[LANES][2];
    const u16* a = w.in<u16>(o.a);
    for (int lane = 0; lane < LANES; ++lane) {
        for (int i = 0; i < 2; ++i) {  // element (g, c) of the result is (c, g)
            int row = 2 * (lane % 4) + i, column = lane / 4;
            taken[lane][i] = a[2 * (4 * row + column / 2) + column % 2];
        }
    }
    memcpy(w.at<char>(o.to), taken, sizeof taken);
}

static const Entry tensors[] = {
    {"mma", mma, WHOLE_WARP},
    {"wmma.mma", wmma, WHOLE_WARP},
    {"wmma.load", wmma_memory<true>, WHOLE_WARP},
    {"wmma.store", wmma_memory<false>, WHOLE_WARP},
    {"ldmatrix", matrices<true>, WHOLE_WARP},
    {"stmatrix", matrices<false>, WHOLE_WARP},
    {"movmatrix", transpose_matrix, WHOLE_WARP},
};

}  // namespace mgp
