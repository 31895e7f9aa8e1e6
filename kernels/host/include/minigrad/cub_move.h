// What cub::BlockLoad and cub::BlockStore share: where a thread's items are, and the functions that
// load and store without a collective.
#pragma once

#include "cub.h"
#include "../cub/block/block_exchange.cuh"

namespace cub::details {

enum Layout { BLOCKED, STRIPED, WARP_STRIPED };

inline int place(Layout layout, int tid, int i, int n, int threads) {
    if (layout == BLOCKED) return tid * n + i;
    return layout == STRIPED ? i * threads + tid : tid / 32 * 32 * n + i * 32 + tid % 32;
}

template <int N, class Iterator, class T>
void load(Layout layout, int threads, int tid, Iterator from, T (&items)[N], int valid) {
    for (int i = 0; i < N; ++i) {
        int at = place(layout, tid, i, N, threads);
        if (at < valid) items[i] = from[at];
    }
}
template <int N, class Iterator, class T>
void store(Layout layout, int threads, int tid, Iterator to, T (&items)[N], int valid) {
    for (int i = 0; i < N; ++i) {
        int at = place(layout, tid, i, N, threads);
        if (at < valid) to[at] = items[i];
    }
}

}  // namespace cub::details
