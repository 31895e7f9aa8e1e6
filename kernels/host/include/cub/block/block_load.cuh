// cub::BlockLoad: a tile of items, blocked or striped among the threads.
#pragma once

#include "../../minigrad/cub_move.h"

namespace cub {

enum BlockLoadAlgorithm {
    BLOCK_LOAD_DIRECT,
    BLOCK_LOAD_STRIPED,
    BLOCK_LOAD_VECTORIZE,
    BLOCK_LOAD_TRANSPOSE,
    BLOCK_LOAD_WARP_TRANSPOSE,
    BLOCK_LOAD_WARP_TRANSPOSE_TIMESLICED
};

template <class T, int X, int N, BlockLoadAlgorithm Algorithm = BLOCK_LOAD_DIRECT, int Y = 1,
          int Z = 1, int = 0>
class BlockLoad : details::Block<X, Y, Z> {
    static constexpr bool BY_BLOCK = Algorithm == BLOCK_LOAD_TRANSPOSE;
    static constexpr bool BY_WARP = Algorithm >= BLOCK_LOAD_WARP_TRANSPOSE;
    static_assert(!BY_WARP || X * Y * Z % 32 == 0, "the block is to have whole warps");
    using Exchange = BlockExchange<T, X, N, false, Y, Z>;

   public:
    struct Unused {
        char unused[1];
    };
    using TempStorage =
        ::std::conditional_t<BY_BLOCK || BY_WARP, typename Exchange::TempStorage, Unused>;
    MGH_CUB_BLOCK(BlockLoad, X, Y, Z)

    template <class Iterator>
    void Load(Iterator from, T (&items)[N], int valid) {
        constexpr bool blocked = Algorithm == BLOCK_LOAD_DIRECT || Algorithm == BLOCK_LOAD_VECTORIZE;
        constexpr auto layout = BY_WARP ? details::WARP_STRIPED
                                : blocked ? details::BLOCKED : details::STRIPED;
        details::load(layout, THREADS, tid, from, items, valid);
        if constexpr (BY_BLOCK) Exchange(storage, line).StripedToBlocked(items);
        if constexpr (BY_WARP) Exchange(storage, line).WarpStripedToBlocked(items);
    }
    template <class Iterator>
    void Load(Iterator from, T (&items)[N]) {
        Load(from, items, THREADS * N);
    }
    template <class Iterator, class Default>
    void Load(Iterator from, T (&items)[N], int valid, Default missing) {
        for (T& item : items) item = missing;
        Load(from, items, valid);
    }
};

template <class T, int N, class Iterator>
void LoadDirectBlocked(int tid, Iterator from, T (&items)[N], int valid = INT_MAX) {
    details::load(details::BLOCKED, 0, tid, from, items, valid);
}
template <class T, int N, class Iterator, class Default>
void LoadDirectBlocked(int tid, Iterator from, T (&items)[N], int valid, Default missing) {
    for (T& item : items) item = missing;
    details::load(details::BLOCKED, 0, tid, from, items, valid);
}
template <class T, int N>
void LoadDirectBlockedVectorized(int tid, T* from, T (&items)[N]) {
    details::load(details::BLOCKED, 0, tid, from, items, INT_MAX);
}
template <int Threads, class T, int N, class Iterator>
void LoadDirectStriped(int tid, Iterator from, T (&items)[N], int valid = INT_MAX) {
    details::load(details::STRIPED, Threads, tid, from, items, valid);
}
template <int Threads, class T, int N, class Iterator, class Default>
void LoadDirectStriped(int tid, Iterator from, T (&items)[N], int valid, Default missing) {
    for (T& item : items) item = missing;
    details::load(details::STRIPED, Threads, tid, from, items, valid);
}
template <class T, int N, class Iterator>
void LoadDirectWarpStriped(int tid, Iterator from, T (&items)[N], int valid = INT_MAX) {
    details::load(details::WARP_STRIPED, 0, tid, from, items, valid);
}

}  // namespace cub
