// What the kernels of attention see of a mask.
//
// Element (z, i, j) of the mask is mask[z / div % mod, i * step, j]: what is broadcast is not copied.
#include "common.cuh"

constexpr int NONE = 0, ADD = 1, KEEP = 2;  // what a mask does

template <class M>
struct Mask {  // as a head sees it: `keys` elements per row
    const M* rows;
    long long pitch;

    __device__ Mask(const M* mask, int z, int div, int mod, int step, int queries, int keys)
        : rows(mask + (long long)(z / div % mod) * (step ? queries : 1) * keys),
          pitch((long long)step * keys) {}

    template <int KIND, class A>
    __device__ A of(A score, int query, int key) const {
        if (KIND == ADD) return score + A(rows[query * pitch + key]);
        if (KIND == KEEP) return rows[query * pitch + key] ? score : A(-infinity());
        return score;
    }
};
