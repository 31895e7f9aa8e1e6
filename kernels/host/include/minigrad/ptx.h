// What inline PTX becomes (kernels/host/ptx.py): matrices spread over the lanes of a warp.
#pragma once

#include <type_traits>

#include "ptx_scalars.h"
#include "small_float.h"

namespace mgh::ptx {

// Assigns, keeping the bits where one side is a float and the other is not.
template <class To, class From>
inline void set(To& to, From from) {
    if constexpr (sizeof(To) == sizeof(From)) memcpy((void*)&to, &from, sizeof(To));
    else to = (To)from;
}

template <class T>
inline unsigned bits(T x) {
    static_assert(sizeof(T) == 4, "a register has 32 bits");
    return bit_cast<unsigned>(x);
}

// To 10 bits of fraction: the nearest, of two the one away from zero.
inline unsigned round_to_tf32(float x) {
    unsigned u = bit_cast<unsigned>(x);
    return (u & 0x7f800000) == 0x7f800000 ? u : (u + 0x1000) & 0xffffe000;
}

struct F16 {
    using Sum = float;
    static constexpr int per_register = 2;
    static float of(unsigned r, int i) { return Half::widen(r >> 16 * i); }
};
struct Bf16 {
    using Sum = float;
    static constexpr int per_register = 2;
    static float of(unsigned r, int i) { return Bfloat16::widen(r >> 16 * i); }
};
struct Tf32 {
    using Sum = float;
    static constexpr int per_register = 1;
    static float of(unsigned r, int) { return bit_cast<float>(r & 0xffffe000); }
};
struct S8 {
    using Sum = int;
    static constexpr int per_register = 4;
    static int of(unsigned r, int i) { return (signed char)(r >> 8 * i); }
};
struct U8 {
    using Sum = int;
    static constexpr int per_register = 4;
    static int of(unsigned r, int i) { return (unsigned char)(r >> 8 * i); }
};

constexpr unsigned ALL = 0xffffffff;

[[noreturn]] inline void not_all_lanes(const char* what, int line) {
    mgh_trap(what, "not all lanes of the warp are there", line);
    __builtin_unreachable();
}

struct MmaOperand {
    const unsigned *a, *b;
    void* d;  // holds C before
    int line;
};

// D = A B + C, where lane 4 g + t holds of register r of A (16 x K) row g + 8 (r % 2), of B (K x 8)
// column g, each at P places from t P + 4 P (r / 2 or r) on, and of D (16 x 8) row g + 8 (r / 2),
// column 2 t + r % 2: the layout that the PTX manual gives for all of these shapes.
template <int K, class A, class B, class D>
void mma_lanes(void* const* operands, unsigned lanes) {
    const MmaOperand& any = *(MmaOperand*)operands[__builtin_ctz(lanes)];
    if (lanes != ALL) not_all_lanes("mma.sync", any.line);
    using Sum = typename A::Sum;
    constexpr int P = A::per_register;
    Sum a[16][K], b[K][8], d[16][8];
    for (int lane = 0; lane < 32; ++lane) {
        const MmaOperand& own = *(MmaOperand*)operands[lane];
        int g = lane / 4, t = lane % 4;
        for (int r = 0; r < K / P / 2; ++r) {
            for (int i = 0; i < P; ++i) {
                a[g + 8 * (r % 2)][t * P + 4 * P * (r / 2) + i] = A::of(own.a[r], i);
            }
        }
        for (int r = 0; r < K / P / 4; ++r) {
            for (int i = 0; i < P; ++i) b[t * P + 4 * P * r + i][g] = B::of(own.b[r], i);
        }
        for (int r = 0; r < 4; ++r) {
            Sum& place = d[g + 8 * (r / 2)][2 * t + r % 2];
            if constexpr (sizeof(D) == sizeof(F16)) {
                place = F16::of(((unsigned*)own.d)[r / 2], r % 2);
            } else {
                place = ((Sum*)own.d)[r];
            }
        }
    }
    for (int m = 0; m < 16; ++m) {
        for (int k = 0; k < K; ++k) {
            for (int n = 0; n < 8; ++n) d[m][n] += a[m][k] * b[k][n];
        }
    }
    for (int lane = 0; lane < 32; ++lane) {
        void* to = ((MmaOperand*)operands[lane])->d;
        for (int r = 0; r < 4; ++r) {
            Sum x = d[lane / 4 + 8 * (r / 2)][2 * (lane % 4) + r % 2];
            if constexpr (sizeof(D) == sizeof(F16)) ((unsigned short*)to)[r] = Half::narrow(x);
            else ((Sum*)to)[r] = x;
        }
    }
}

template <int K, class A, class B, class D, int NA, int NB, class T>
void mma(const unsigned (&a)[NA], const unsigned (&b)[NB], T& d, int line) {
    static_assert(NA == K / A::per_register / 2 && NB == K / A::per_register / 4,
                  "mma.sync: the number of registers");
    MmaOperand own = {a, b, d, line};
    mgh_collective(ALL, &own, mma_lanes<K, A, B, D>, "mma.sync", line);
}

struct MatrixOperand {
    unsigned short* row;
    unsigned* registers;
    int line;
};

// Lane 8 m + i gives the address of row i of matrix m; lane 4 g + t holds of each matrix the
// elements 2 t and 2 t + 1 of row g, or with `trans` of column g.
template <int Count, bool trans, bool loads>
void matrix_lanes(void* const* operands, unsigned lanes) {
    const char* what = loads ? "ldmatrix" : "stmatrix";
    const MatrixOperand& any = *(MatrixOperand*)operands[__builtin_ctz(lanes)];
    if (lanes != ALL) not_all_lanes(what, any.line);
    for (int m = 0; m < Count; ++m) {
        for (int lane = 0; lane < 32; ++lane) {
            unsigned& held = ((MatrixOperand*)operands[lane])->registers[m];
            for (int i = 0; i < 2; ++i) {
                int row = lane / 4, column = 2 * (lane % 4) + i;
                if (trans) row = column, column = lane / 4;
                unsigned short* start = ((MatrixOperand*)operands[8 * m + row])->row;
                if ((uintptr_t)start % 16) {
                    mgh_trap(what, "a row must begin at a multiple of 16 bytes", any.line);
                }
                if (loads) held = i ? held | (unsigned)start[column] << 16 : start[column];
                else start[column] = held >> 16 * i;
            }
        }
    }
}

template <int Count, bool trans>
void ldmatrix(unsigned (&registers)[Count], void* row, int line) {
    MatrixOperand own = {(unsigned short*)row, registers, line};
    if (self()->linear % LANES < 8 * Count) MGH_RECORD_LINE(row, 16, MGH_LOAD_OP, line);
    mgh_collective(ALL, &own, matrix_lanes<Count, trans, true>, "ldmatrix", line);
}

template <int Count, bool trans>
void stmatrix(unsigned (&registers)[Count], void* row, int line) {
    MatrixOperand own = {(unsigned short*)row, registers, line};
    if (self()->linear % LANES < 8 * Count) MGH_RECORD_LINE(row, 16, MGH_STORE_OP, line);
    mgh_collective(ALL, &own, matrix_lanes<Count, trans, false>, "stmatrix", line);
}

}  // namespace mgh::ptx
