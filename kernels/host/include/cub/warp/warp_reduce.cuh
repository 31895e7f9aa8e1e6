// cub::WarpReduce: by a tree of shuffles. The first lane has the result, the others poison.
#pragma once

#include "../../minigrad/cub.h"

namespace cub {

template <class T, int Width = 32, int = 0>
class WarpReduce {
    static_assert(Width <= 32 && (Width & (Width - 1)) == 0,
                  "on the CPU a logical warp's size is a power of two up to 32");
    int line;

    static int lane() { return LaneId() % Width; }
    template <class Op>
    T whole(T value, Op op, int valid) {
        T total = details::reduce_warp(value, op, valid - 1, Width, line);
        if (lane()) details::poison(total);
        return total;
    }
    // The last lane of the segment that this one is in; `lanes` end it, or begin the next.
    template <class Op>
    T segment(T value, Op op, unsigned lanes, bool tails) {
        lanes = lanes >> LaneId() / Width * Width & details::warp_mask(Width) >> LaneId() / Width * Width;
        unsigned after = tails ? lanes >> lane() << lane() : lanes & ~1u << lane();
        int last = !after ? Width - 1 : __builtin_ctz(after) - !tails;
        return details::reduce_warp(value, op, last, Width, line);
    }
    unsigned vote(bool flag) {
        return mgh_warp(mgh::BALLOT, details::warp_mask(Width), flag, 0, line);
    }

   public:
    struct TempStorage {
        char unused[1];
    };
    explicit WarpReduce(TempStorage&, int line = __builtin_LINE()) : line(line) {}

    template <class Op>
    T Reduce(T value, Op op) { return whole(value, op, Width); }
    template <class Op>
    T Reduce(T value, Op op, int valid) { return whole(value, op, valid); }
    template <int N, class Op>
    T Reduce(T (&items)[N], Op op) { return whole(ThreadReduce(items, op), op, Width); }
    T Sum(T value) { return whole(value, ::std::plus<>(), Width); }
    T Sum(T value, int valid) { return whole(value, ::std::plus<>(), valid); }
    template <int N>
    T Sum(T (&items)[N]) { return Reduce(items, ::std::plus<>()); }
    T Max(T value) { return whole(value, cuda::maximum<>(), Width); }
    T Max(T value, int valid) { return whole(value, cuda::maximum<>(), valid); }
    T Min(T value) { return whole(value, cuda::minimum<>(), Width); }
    T Min(T value, int valid) { return whole(value, cuda::minimum<>(), valid); }

    template <class Flag, class Op>
    T HeadSegmentedReduce(T value, Flag head, Op op) {
        return segment(value, op, vote((bool)head), false);
    }
    template <class Flag, class Op>
    T TailSegmentedReduce(T value, Flag tail, Op op) {
        return segment(value, op, vote((bool)tail), true);
    }
    template <class Flag>
    T HeadSegmentedSum(T value, Flag head) {
        return HeadSegmentedReduce(value, head, ::std::plus<>());
    }
    template <class Flag>
    T TailSegmentedSum(T value, Flag tail) {
        return TailSegmentedReduce(value, tail, ::std::plus<>());
    }
};

}  // namespace cub
