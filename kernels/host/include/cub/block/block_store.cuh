// cub::BlockStore: the counterpart of cub::BlockLoad.
#pragma once

#include "../../minigrad/cub_move.h"

namespace cub {

enum BlockStoreAlgorithm {
    BLOCK_STORE_DIRECT,
    BLOCK_STORE_STRIPED,
    BLOCK_STORE_VECTORIZE,
    BLOCK_STORE_TRANSPOSE,
    BLOCK_STORE_WARP_TRANSPOSE,
    BLOCK_STORE_WARP_TRANSPOSE_TIMESLICED
};

template <class T, int X, int N, BlockStoreAlgorithm Algorithm = BLOCK_STORE_DIRECT, int Y = 1,
          int Z = 1, int = 0>
class BlockStore : details::Block<X, Y, Z> {
    static constexpr bool BY_BLOCK = Algorithm == BLOCK_STORE_TRANSPOSE;
    static constexpr bool BY_WARP = Algorithm >= BLOCK_STORE_WARP_TRANSPOSE;
    static_assert(!BY_WARP || X * Y * Z % 32 == 0, "the block is to have whole warps");
    using Exchange = BlockExchange<T, X, N, false, Y, Z>;

   public:
    struct Unused {
        char unused[1];
    };
    using TempStorage =
        ::std::conditional_t<BY_BLOCK || BY_WARP, typename Exchange::TempStorage, Unused>;
    MGH_CUB_BLOCK(BlockStore, X, Y, Z)

    template <class Iterator>
    void Store(Iterator to, T (&items)[N], int valid) {
        constexpr bool blocked =
            Algorithm == BLOCK_STORE_DIRECT || Algorithm == BLOCK_STORE_VECTORIZE;
        constexpr auto layout = BY_WARP ? details::WARP_STRIPED
                                : blocked ? details::BLOCKED : details::STRIPED;
        if constexpr (BY_BLOCK) Exchange(storage, line).BlockedToStriped(items);
        if constexpr (BY_WARP) Exchange(storage, line).BlockedToWarpStriped(items);
        details::store(layout, THREADS, tid, to, items, valid);
    }
    template <class Iterator>
    void Store(Iterator to, T (&items)[N]) {
        Store(to, items, THREADS * N);
    }
};

template <class T, int N, class Iterator>
void StoreDirectBlocked(int tid, Iterator to, T (&items)[N], int valid = INT_MAX) {
    details::store(details::BLOCKED, 0, tid, to, items, valid);
}
template <class T, int N>
void StoreDirectBlockedVectorized(int tid, T* to, T (&items)[N]) {
    details::store(details::BLOCKED, 0, tid, to, items, INT_MAX);
}
template <int Threads, class T, int N, class Iterator>
void StoreDirectStriped(int tid, Iterator to, T (&items)[N], int valid = INT_MAX) {
    details::store(details::STRIPED, Threads, tid, to, items, valid);
}
template <class T, int N, class Iterator>
void StoreDirectWarpStriped(int tid, Iterator to, T (&items)[N], int valid = INT_MAX) {
    details::store(details::WARP_STRIPED, 0, tid, to, items, valid);
}

}  // namespace cub
