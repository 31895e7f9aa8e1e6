// cub::BlockDiscontinuity: where an item differs from the one before it, or after it.
#pragma once

#include "../../minigrad/cub.h"

namespace cub {

namespace details {

// CUB's functions of two items may take the place of the second, too.
template <class Op, class T>
auto compare(Op op, const T& a, const T& b, int i) {
    if constexpr (::std::is_invocable_v<Op, T, T, int>) return op(a, b, i);
    else return op(a, b);
}

}  // namespace details

template <class T, int X, int Y = 1, int Z = 1, int = 0>
class BlockDiscontinuity : details::Block<X, Y, Z> {
   public:
    struct TempStorage {
        details::Room<T, X * Y * Z> first, last;
    };
    MGH_CUB_BLOCK(BlockDiscontinuity, X, Y, Z)

   private:
    template <int N, class Flag, class Op>
    void flag(Flag* heads, Flag* tails, T (&in)[N], Op op, const T* before, const T* after) {
        if (heads) storage.last[tid] = in[N - 1];
        if (tails) storage.first[tid] = in[0];
        barrier();
        for (int i = 0; heads && i < N; ++i) {
            if (i) heads[i] = details::compare(op, in[i - 1], in[i], tid * N + i);
            else if (tid) heads[0] = details::compare(op, storage.last[tid - 1], in[0], tid * N);
            else heads[0] = before ? (Flag)details::compare(op, *before, in[0], 0) : (Flag)1;
        }
        for (int i = 0; tails && i < N; ++i) {
            const int next = tid * N + i + 1;
            if (i < N - 1) tails[i] = details::compare(op, in[i], in[i + 1], next);
            else if (tid < THREADS - 1) {
                tails[i] = details::compare(op, in[i], storage.first[tid + 1], next);
            } else {
                tails[i] = after ? (Flag)details::compare(op, in[i], *after, next) : (Flag)1;
            }
        }
    }

   public:
    template <int N, class Flag, class Op>
    void FlagHeads(Flag (&heads)[N], T (&in)[N], Op op) {
        flag(heads, (Flag*)nullptr, in, op, nullptr, nullptr);
    }
    template <int N, class Flag, class Op>
    void FlagHeads(Flag (&heads)[N], T (&in)[N], Op op, T before) {
        flag(heads, (Flag*)nullptr, in, op, &before, nullptr);
    }
    template <int N, class Flag, class Op>
    void FlagTails(Flag (&tails)[N], T (&in)[N], Op op) {
        flag((Flag*)nullptr, tails, in, op, nullptr, nullptr);
    }
    template <int N, class Flag, class Op>
    void FlagTails(Flag (&tails)[N], T (&in)[N], Op op, T after) {
        flag((Flag*)nullptr, tails, in, op, nullptr, &after);
    }
    template <int N, class Flag, class Op>
    void FlagHeadsAndTails(Flag (&heads)[N], Flag (&tails)[N], T (&in)[N], Op op) {
        flag(heads, tails, in, op, nullptr, nullptr);
    }
    template <int N, class Flag, class Op>
    void FlagHeadsAndTails(Flag (&heads)[N], T before, Flag (&tails)[N], T after, T (&in)[N],
                           Op op) {
        flag(heads, tails, in, op, &before, &after);
    }
};

}  // namespace cub
