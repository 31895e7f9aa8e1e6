// What stands before reduction.cu for the sum of the squares of the distances from the mean. T is the
// type that it is computed in.
//
// A count, a mean and such a sum are an accumulator; two are merged as Chan et al. (1979) do it, one
// of a single element as Welford (1962) does. x is read once and nothing cancels: `rest` is what
// rounding has taken from the mean, which may be far larger than the distances.
#define MOMENTS

struct __align__(16) Moments {
    T count, mean, rest, squares;
};

__device__ __forceinline__ Moments load(T x) { return {T(1), x, T(0), T(0)}; }
__device__ __forceinline__ Moments load(Moments x) { return x; }

__device__ __forceinline__ Moments combine(Moments a, Moments b) {
    if (a.count == T(0)) return b;
    const T count = a.count + b.count, share = b.count / count;
    const T d = (b.mean - a.mean) + (b.rest - a.rest), step = d * share;
    const T mean = a.mean + step, done = mean - a.mean;
    const T rest = (a.mean - (mean - done)) + (step - done);
    return {count, mean, a.rest + rest, a.squares + b.squares + d * (d * (a.count * share))};
}

__device__ __forceinline__ Moments shifted(Moments m, int step) {
    return {__shfl_down_sync(FULL_WARP, m.count, step), __shfl_down_sync(FULL_WARP, m.mean, step),
            __shfl_down_sync(FULL_WARP, m.rest, step),
            __shfl_down_sync(FULL_WARP, m.squares, step)};
}
