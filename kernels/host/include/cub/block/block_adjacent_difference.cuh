// cub::BlockAdjacentDifference: what a function makes of neighbours.
#pragma once

#include "../../minigrad/cub.h"

namespace cub {

template <class T, int X, int Y = 1, int Z = 1, int = 0>
class BlockAdjacentDifference : details::Block<X, Y, Z> {
   public:
    struct TempStorage {
        details::Room<T, X * Y * Z> edge;
    };
    MGH_CUB_BLOCK(BlockAdjacentDifference, X, Y, Z)

   private:
    template <int N, class U, class Op>
    void left(T (&in)[N], U (&out)[N], Op op, int valid, const T* before) {
        storage.edge[tid] = in[N - 1];
        barrier();
        for (int i = N - 1; i > 0; --i) out[i] = tid * N + i < valid ? op(in[i], in[i - 1]) : in[i];
        if (tid * N >= valid) out[0] = in[0];
        else if (tid) out[0] = op(in[0], storage.edge[tid - 1]);
        else out[0] = before ? (U)op(in[0], *before) : (U)in[0];
    }
    template <int N, class U, class Op>
    void right(T (&in)[N], U (&out)[N], Op op, int valid, const T* after) {
        storage.edge[tid] = in[0];
        barrier();
        for (int i = 0; i < N; ++i) {
            if (tid * N + i + 1 >= valid) out[i] = after && i == N - 1 ? (U)op(in[i], *after) : (U)in[i];
            else out[i] = op(in[i], i < N - 1 ? in[i + 1] : storage.edge[tid + 1]);
        }
    }

   public:
    template <int N, class U, class Op>
    void SubtractLeft(T (&in)[N], U (&out)[N], Op op) {
        left(in, out, op, THREADS * N, nullptr);
    }
    template <int N, class U, class Op>
    void SubtractLeft(T (&in)[N], U (&out)[N], Op op, T before) {
        left(in, out, op, THREADS * N, &before);
    }
    template <int N, class U, class Op>
    void SubtractLeftPartialTile(T (&in)[N], U (&out)[N], Op op, int valid) {
        left(in, out, op, valid, nullptr);
    }
    template <int N, class U, class Op>
    void SubtractRight(T (&in)[N], U (&out)[N], Op op) {
        right(in, out, op, THREADS * N, nullptr);
    }
    template <int N, class U, class Op>
    void SubtractRight(T (&in)[N], U (&out)[N], Op op, T after) {
        right(in, out, op, THREADS * N, &after);
    }
    template <int N, class U, class Op>
    void SubtractRightPartialTile(T (&in)[N], U (&out)[N], Op op, int valid) {
        right(in, out, op, valid, nullptr);
    }
};

}  // namespace cub
