// cub::WarpScan: by shuffles over 1, 2, 4 ... lanes.
#pragma once

#include "../../minigrad/cub.h"

namespace cub {

template <class T, int Width = 32, int = 0>
class WarpScan {
    static_assert(Width <= 32 && (Width & (Width - 1)) == 0,
                  "on the CPU a logical warp's size is a power of two up to 32");
    int line;

    T last(T value) { return details::from_warp_lane(value, Width - 1, Width, line); }

   public:
    struct TempStorage {
        char unused[1];
    };
    explicit WarpScan(TempStorage&, int line = __builtin_LINE()) : line(line) {}

    template <class Op>
    void Scan(T in, T& inclusive, T& exclusive, Op op) {
        T both[2] = {in, in};
        details::scan_warp(in, both[0], both[1], op, Width, line);
        inclusive = both[0], exclusive = both[1];
    }
    template <class Op>
    void Scan(T in, T& inclusive, T& exclusive, T initial, Op op) {
        Scan(in, inclusive, exclusive, op);
        inclusive = op(initial, inclusive);
        exclusive = LaneId() % Width ? op(initial, exclusive) : initial;
    }
    template <class Op>
    void InclusiveScan(T in, T& out, Op op) {
        T exclusive = in;
        Scan(in, out, exclusive, op);
    }
    template <class Op>
    void InclusiveScan(T in, T& out, Op op, T& sum) {
        InclusiveScan(in, out, op);
        sum = last(out);
    }
    template <class Op>
    void ExclusiveScan(T in, T& out, Op op) {
        T inclusive = in;
        Scan(in, inclusive, out, op);
    }
    template <class Op>
    void ExclusiveScan(T in, T& out, Op op, T& sum) {
        T inclusive = in;
        Scan(in, inclusive, out, op);
        sum = last(inclusive);
    }
    template <class Op>
    void ExclusiveScan(T in, T& out, T initial, Op op) {
        T inclusive = in;
        Scan(in, inclusive, out, initial, op);
    }
    template <class Op>
    void ExclusiveScan(T in, T& out, T initial, Op op, T& sum) {
        T inclusive = in, exclusive = in;
        Scan(in, inclusive, exclusive, op);
        sum = last(inclusive);
        out = LaneId() % Width ? op(initial, exclusive) : initial;
    }
    void InclusiveSum(T in, T& out) { InclusiveScan(in, out, ::std::plus<>()); }
    void InclusiveSum(T in, T& out, T& sum) { InclusiveScan(in, out, ::std::plus<>(), sum); }
    void ExclusiveSum(T in, T& out) { ExclusiveScan(in, out, T{}, ::std::plus<>()); }
    void ExclusiveSum(T in, T& out, T& sum) { ExclusiveScan(in, out, T{}, ::std::plus<>(), sum); }
    T Broadcast(T value, unsigned lane) {
        return details::from_warp_lane(value, lane, Width, line);
    }
};

}  // namespace cub
