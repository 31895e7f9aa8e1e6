// cub::BlockMergeSort: a stable sort by a comparison.
#pragma once

#include "../../minigrad/cub_sort.h"

namespace cub {

template <class K, int X, int N, class V = NullType, int Y = 1, int Z = 1>
class BlockMergeSort : details::Block<X, Y, Z> {
    static_assert((X * Y * Z & (X * Y * Z - 1)) == 0, "a block of a power of two");
    using Sorter = details::Sort<K, V, X, N, Y, Z>;

   public:
    using TempStorage = typename Sorter::Storage;
    MGH_CUB_BLOCK(BlockMergeSort, X, Y, Z)

    template <class Less>
    void Sort(K (&keys)[N], Less less) {
        Sorter(storage, line).run(keys, (V*)nullptr, Sorter::ALL, false, less);
    }
    template <class Less>
    void Sort(K (&keys)[N], V (&values)[N], Less less) {
        Sorter(storage, line).run(keys, values, Sorter::ALL, false, less);
    }
    template <class Less>
    void Sort(K (&keys)[N], Less less, int valid, K missing) {
        fill(keys, valid, missing);
        Sorter(storage, line).run(keys, (V*)nullptr, valid, false, less);
    }
    template <class Less>
    void Sort(K (&keys)[N], V (&values)[N], Less less, int valid, K missing) {
        fill(keys, valid, missing);
        Sorter(storage, line).run(keys, values, valid, false, less);
    }
    template <class... Arguments>
    void StableSort(Arguments&&... arguments) {
        Sort(::std::forward<Arguments>(arguments)...);
    }

   private:
    void fill(K (&keys)[N], int valid, K missing) {
        for (int i = 0; i < N; ++i) {
            if (tid * N + i >= valid) keys[i] = missing;
        }
    }
};

}  // namespace cub
