// cub::BlockHistogram: counts in bins, by atomic additions.
#pragma once

#include "../../minigrad/cub.h"

namespace cub {

enum BlockHistogramAlgorithm { BLOCK_HISTO_SORT, BLOCK_HISTO_ATOMIC };

template <class T, int X, int N, int Bins, BlockHistogramAlgorithm = BLOCK_HISTO_SORT, int Y = 1,
          int Z = 1, int = 0>
class BlockHistogram : details::Block<X, Y, Z> {
   public:
    struct TempStorage {
        char unused[1];
    };
    MGH_CUB_BLOCK(BlockHistogram, X, Y, Z)

    template <class Counter>
    void InitHistogram(Counter* bins) {
        for (int i = tid; i < Bins; i += THREADS) bins[i] = 0;
    }
    template <class Counter>
    void Composite(T (&items)[N], Counter* bins) {
        barrier();
        for (T item : items) atomicAdd(&bins[item], (Counter)1);
    }
    template <class Counter>
    void Histogram(T (&items)[N], Counter* bins) {
        InitHistogram(bins);
        barrier();
        Composite(items, bins);
    }
};

}  // namespace cub
