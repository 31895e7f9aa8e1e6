// cub::BlockReduce: warps by trees, then thread 0 in order. Other threads get poison.
#pragma once

#include "../../minigrad/cub.h"

namespace cub {

enum BlockReduceAlgorithm {
    BLOCK_REDUCE_RAKING_COMMUTATIVE_ONLY,
    BLOCK_REDUCE_RAKING,
    BLOCK_REDUCE_WARP_REDUCTIONS,
    BLOCK_REDUCE_WARP_REDUCTIONS_NONDETERMINISTIC
};

template <class T, int X, BlockReduceAlgorithm = BLOCK_REDUCE_WARP_REDUCTIONS, int Y = 1, int Z = 1,
          int = 0>
class BlockReduce : details::Block<X, Y, Z> {
    static constexpr int WARPS = (X * Y * Z + 31) / 32;

   public:
    struct TempStorage {
        details::Room<T, WARPS> partial;
    };
    MGH_CUB_BLOCK(BlockReduce, X, Y, Z)

    template <class Op>
    T Reduce(T value, Op op, int valid) {
        const int first = tid / 32 * 32, left = (valid < THREADS ? valid : THREADS) - first;
        T total = details::reduce_warp(value, op, left - 1, 32, line);
        if (tid % 32 == 0) storage.partial[tid / 32] = total;
        barrier();
        if (tid) {
            details::poison(total);
            return total;
        }
        for (int warp = 1; warp < WARPS && 32 * warp < valid; ++warp) {
            total = op(total, storage.partial[warp]);
        }
        return total;
    }
    template <class Op>
    T Reduce(T value, Op op) {
        return Reduce(value, op, THREADS);
    }
    template <int N, class Op>
    T Reduce(T (&items)[N], Op op) {
        return Reduce(ThreadReduce(items, op), op);
    }
    T Sum(T value) { return Reduce(value, ::std::plus<>()); }
    T Sum(T value, int valid) { return Reduce(value, ::std::plus<>(), valid); }
    template <int N>
    T Sum(T (&items)[N]) {
        return Reduce(items, ::std::plus<>());
    }
};

}  // namespace cub
