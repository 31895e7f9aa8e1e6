// Matrix fragments of a warp. How hardware spreads them over lanes is not documented; here a lane
// has a run of outputs in one row, and all of A and B that these need, so that no lane waits for
// another. Elementwise work on fragments is as on a GPU; `num_elements` differs.
#pragma once

#include "cuda_bf16.h"
#include "cuda_fp16.h"
#include "minigrad/ptx.h"

namespace nvcuda::wmma {

struct matrix_a {};
struct matrix_b {};
struct accumulator {};
struct row_major {};
struct col_major {};
enum layout_t { mem_row_major, mem_col_major };

namespace precision {
struct tf32 {};
}  // namespace precision

namespace details {
template <class T>
struct Storage {
    using type = T;
};
template <>
struct Storage<precision::tf32> {
    using type = float;
};

template <class A, class Acc, int M, int N, int K>
constexpr bool known() {
    constexpr bool wide = (M == 16 && N == 16) || (M == 32 && N == 8) || (M == 8 && N == 32);
    constexpr bool tf32 = std::is_same_v<A, precision::tf32>;
    constexpr bool small = sizeof(typename Storage<A>::type) <= 2;
    return tf32 ? M == 16 && N == 16 && K == 8 : small ? wide && K == 16
                                                      : M == 8 && N == 8 && K == 4;
}

// Where the outputs of this lane are.
template <int M, int N>
struct Place {
    static constexpr int width = M * N / 32;
    unsigned row = mgh::self()->linear % 32 / (N / width);
    unsigned column = mgh::self()->linear % 32 % (N / width) * width;
};

// The operands as the multiplication takes them.
inline float widened(float x) {  // as tf32, whose last 13 bits the hardware does not look at
    return mgh::bit_cast<float>(mgh::bit_cast<unsigned>(x) & 0xffffe000);
}
inline double widened(double x) { return x; }
inline int widened(int x) { return x; }
template <class F>
inline float widened(mgh::Small<F> x) {
    return x;
}

// `W` operands as one vector, which the compiler adds and multiplies in one instruction.
template <class Wide, int W>
struct Row {
    typedef Wide Vector __attribute__((vector_size(W * sizeof(Wide))));
};

template <int W, class T>
inline auto widen(const T* x) {
    using Wide = decltype(widened(*x));
    using Vector = typename Row<Wide, W>::Vector;
    Vector y;
    if constexpr (std::is_same_v<T, __nv_bfloat16>) {
        typename Row<unsigned short, W>::Vector halves;
        memcpy(&halves, x, sizeof halves);
        auto bits = __builtin_convertvector(halves, typename Row<unsigned, W>::Vector) << 16;
        memcpy(&y, &bits, sizeof y);
        return y;
    }
#if defined(__F16C__) && !defined(__clang__)
    if constexpr (std::is_same_v<T, __half> && W == 8) {
        typedef short v8 __attribute__((vector_size(16)));
        v8 halves;
        memcpy(&halves, x, sizeof halves);
        return (Vector)__builtin_ia32_vcvtph2ps256(halves);
    }
#endif
    for (int i = 0; i < W; ++i) y[i] = widened(x[i]);
    return y;
}

// Elements that lie one after the other, in one move where that can be.
template <int Count, class To, class From>
inline void copy(To* to, const From* from) {
    if constexpr (std::is_same_v<To, From>) {
        memcpy((void*)to, (const void*)from, Count * sizeof(To));
    } else {
        for (int i = 0; i < Count; ++i) to[i] = from[i];
    }
}
}  // namespace details

template <class Use, int M, int N, int K, class T, class Layout = void>
struct fragment {
    using element_type = T;
    using storage_element_type = typename details::Storage<T>::type;
    static constexpr int width = details::Place<M, N>::width;
    static constexpr int num_elements = std::is_same_v<Use, matrix_a>   ? K
                                        : std::is_same_v<Use, matrix_b> ? K * width
                                                                        : width;
    static constexpr int num_storage_elements = num_elements;
    storage_element_type x[num_elements];

    fragment() { memset((void*)x, 0xff, sizeof x); }  // poison
};

template <class Use, int M, int N, int K, class T, class Layout, class V>
void fill_fragment(fragment<Use, M, N, K, T, Layout>& f, V value) {
    for (auto& x : f.x) x = (typename details::Storage<T>::type)value;
}

template <int M, int N, int K, class T, class Layout, class P>
void load_matrix_sync(fragment<matrix_a, M, N, K, T, Layout>& f, const P* from, unsigned ldm) {
    details::Place<M, N> at;
    if constexpr (std::is_same_v<Layout, row_major>) {
        details::copy<K>(f.x, from + (size_t)at.row * ldm);
    } else {
        for (int k = 0; k < K; ++k) f.x[k] = from[(size_t)k * ldm + at.row];
    }
}

template <int M, int N, int K, class T, class Layout, class P>
void load_matrix_sync(fragment<matrix_b, M, N, K, T, Layout>& f, const P* from, unsigned ldm) {
    details::Place<M, N> at;
    constexpr int W = details::Place<M, N>::width;
    if constexpr (std::is_same_v<Layout, row_major>) {
        from += at.column;
        for (int k = 0; k < K; ++k) details::copy<W>(f.x + k * W, from + (size_t)k * ldm);
    } else {
        from += (size_t)at.column * ldm;
        for (int j = 0; j < W; ++j, from += ldm) {
            for (int k = 0; k < K; ++k) f.x[k * W + j] = from[k];
        }
    }
}

template <int M, int N, int K, class T, class P>
void load_matrix_sync(fragment<accumulator, M, N, K, T>& f, const P* from, unsigned ldm,
                      layout_t layout) {
    details::Place<M, N> at;
    size_t across = layout == mem_row_major ? 1 : ldm, down = layout == mem_row_major ? ldm : 1;
    from += at.row * down + at.column * across;
    if (across == 1) return details::copy<details::Place<M, N>::width>(f.x, from);
    for (int j = 0; j < f.width; ++j) f.x[j] = from[j * across];
}

template <int M, int N, int K, class T, class P>
void store_matrix_sync(P* to, const fragment<accumulator, M, N, K, T>& f, unsigned ldm,
                       layout_t layout) {
    details::Place<M, N> at;
    size_t across = layout == mem_row_major ? 1 : ldm, down = layout == mem_row_major ? ldm : 1;
    to += at.row * down + at.column * across;
    if (across == 1) return details::copy<details::Place<M, N>::width>(to, f.x);
    for (int j = 0; j < f.width; ++j) to[j * across] = f.x[j];
}

template <int M, int N, int K, class T, class LA, class LB, class D, class C>
void mma_sync(fragment<accumulator, M, N, K, D>& d, const fragment<matrix_a, M, N, K, T, LA>& a,
              const fragment<matrix_b, M, N, K, T, LB>& b,
              const fragment<accumulator, M, N, K, C>& c, bool = false) {
    static_assert(details::known<T, D, M, N, K>(), "no tensor core has this shape for this type");
    using Wide = decltype(details::widened(a.x[0]));
    constexpr int W = details::Place<M, N>::width;
    typename details::Row<Wide, W>::Vector total;
    for (int j = 0; j < W; ++j) total[j] = (Wide)c.x[j];
    constexpr int P = K < 8 ? K : 8;
    Wide left[K];
    for (int k = 0; k < K; k += P) {
        auto part = details::widen<P>(a.x + k);
        memcpy(left + k, &part, sizeof part);
    }
    for (int k = 0; k < K; ++k) total += left[k] * details::widen<W>(b.x + k * W);
    for (int j = 0; j < W; ++j) d.x[j] = (typename details::Storage<D>::type)total[j];
}

inline float __float_to_tf32(float x) { return mgh::bit_cast<float>(mgh::ptx::round_to_tf32(x)); }

}  // namespace nvcuda::wmma

using nvcuda::wmma::__float_to_tf32;
