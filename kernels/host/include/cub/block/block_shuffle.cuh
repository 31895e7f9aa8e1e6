// cub::BlockShuffle: items move by threads.
#pragma once

#include "../../minigrad/cub.h"

namespace cub {

template <class T, int X, int Y = 1, int Z = 1, int = 0>
class BlockShuffle : details::Block<X, Y, Z> {
   public:
    struct TempStorage {
        details::Room<T, X * Y * Z> items;
    };
    MGH_CUB_BLOCK(BlockShuffle, X, Y, Z)

    void Offset(T in, T& out, int distance = 1) {
        storage.items[tid] = in;
        barrier();
        const int from = tid + distance;
        if (from >= 0 && from < THREADS) out = storage.items[from];
    }
    void Rotate(T in, T& out, unsigned distance = 1) {
        storage.items[tid] = in;
        barrier();
        out = storage.items[(tid + distance) % THREADS];
    }
    template <int N>
    void Up(T (&in)[N], T (&out)[N]) {
        storage.items[tid] = in[N - 1];
        barrier();
        for (int i = N - 1; i > 0; --i) out[i] = in[i - 1];
        if (tid) out[0] = storage.items[tid - 1];
    }
    template <int N>
    void Up(T (&in)[N], T (&out)[N], T& last) {
        Up(in, out);
        last = storage.items[THREADS - 1];
    }
    template <int N>
    void Down(T (&in)[N], T (&out)[N]) {
        storage.items[tid] = in[0];
        barrier();
        for (int i = 0; i < N - 1; ++i) out[i] = in[i + 1];
        if (tid < THREADS - 1) out[N - 1] = storage.items[tid + 1];
    }
    template <int N>
    void Down(T (&in)[N], T (&out)[N], T& first) {
        Down(in, out);
        first = storage.items[0];
    }
};

}  // namespace cub
