// cub::BlockScan: each of 32 threads takes a segment, and these scan the segments' sums.
#pragma once

#include "../../minigrad/cub.h"

namespace cub {

enum BlockScanAlgorithm { BLOCK_SCAN_RAKING, BLOCK_SCAN_RAKING_MEMOIZE, BLOCK_SCAN_WARP_SCANS };

template <class T, int X, BlockScanAlgorithm = BLOCK_SCAN_RAKING, int Y = 1, int Z = 1, int = 0>
class BlockScan : details::Block<X, Y, Z> {
    static constexpr int SEGMENT = (X * Y * Z + 31) / 32;
    static constexpr int RAKING = (X * Y * Z + SEGMENT - 1) / SEGMENT;
    using None = details::Nothing;

   public:
    struct TempStorage {
        details::Room<T, X * Y * Z + 2> values;
    };
    MGH_CUB_BLOCK(BlockScan, X, Y, Z)

   private:
    struct Scanned {
        T inclusive, exclusive, aggregate;
    };

    // The prefix of the whole block, by what the caller gave: a value, or a function of the sum.
    template <class Op, class Prefix>
    void scan_segments(T value, T& exclusive, Op op, Prefix& prefix) {
        T inclusive = value;
        details::scan_warp(value, inclusive, exclusive, op, 32, line);
        T& aggregate = storage.values[THREADS];
        if (tid == RAKING - 1) aggregate = inclusive;
        T sum = details::from_warp_lane(inclusive, RAKING - 1, 32, line);
        if constexpr (!::std::is_same_v<Prefix, None>) {
            T before = value;
            if constexpr (::std::is_same_v<Prefix, T>) before = prefix;
            else before = details::from_warp_lane((T)prefix(sum), 0, 32, line);
            exclusive = tid ? op(before, exclusive) : before;
        }
    }

    template <class Op, class Prefix>
    Scanned scan(T value, Op op, Prefix& prefix) {
        constexpr bool whole = ::std::is_same_v<Prefix, None>;
        Scanned result = {value, value, value};
        if constexpr (THREADS <= 32) {
            details::scan_warp(value, result.inclusive, result.exclusive, op, 32, line);
            result.aggregate = details::from_warp_lane(result.inclusive, THREADS - 1, 32, line);
            if constexpr (!whole) {
                T before = value;
                if constexpr (::std::is_same_v<Prefix, T>) before = prefix;
                else before = details::from_warp_lane((T)prefix(result.aggregate), 0, 32, line);
                result.inclusive = op(before, result.inclusive);
                result.exclusive = tid ? op(before, result.exclusive) : before;
            }
            return result;
        }
        storage.values[tid] = value;
        barrier();
        if (tid < 32) {
            const int first = tid * SEGMENT;
            const int last = first + SEGMENT < THREADS ? first + SEGMENT : THREADS;
            T sum = value, running = value;
            if (tid < RAKING) {
                sum = storage.values[first];
                for (int i = first + 1; i < last; ++i) sum = op(sum, storage.values[i]);
            }
            scan_segments(sum, running, op, prefix);
            for (int i = first; i < last; ++i) {
                T own = storage.values[i];
                storage.values[i] = running;
                running = whole && i == 0 ? own : op(running, own);
            }
        }
        barrier();
        result.exclusive = storage.values[tid];
        result.inclusive = whole && tid == 0 ? value : op(result.exclusive, value);
        result.aggregate = storage.values[THREADS];
        return result;
    }

    template <bool inclusive, int N, class Op, class Prefix>
    T scan_items(T (&in)[N], T (&out)[N], Op op, Prefix& prefix) {
        Scanned of = scan(ThreadReduce(in, op), op, prefix);
        bool some = !::std::is_same_v<Prefix, None> || tid;
        T running = of.exclusive;
        for (int i = 0; i < N; ++i) {
            T next = some || i ? op(running, in[i]) : in[i];
            out[i] = inclusive ? next : running;
            running = next;
        }
        return of.aggregate;
    }

   public:
    void InclusiveSum(T in, T& out) { InclusiveScan(in, out, ::std::plus<>()); }
    void InclusiveSum(T in, T& out, T& sum) { InclusiveScan(in, out, ::std::plus<>(), sum); }
    template <class Callback>
    void InclusiveSum(T in, T& out, Callback& prefix) {
        InclusiveScan(in, out, ::std::plus<>(), prefix);
    }
    void ExclusiveSum(T in, T& out) { ExclusiveScan(in, out, T{}, ::std::plus<>()); }
    void ExclusiveSum(T in, T& out, T& sum) { ExclusiveScan(in, out, T{}, ::std::plus<>(), sum); }
    template <class Callback>
    void ExclusiveSum(T in, T& out, Callback& prefix) {
        ExclusiveScan(in, out, ::std::plus<>(), prefix);
    }
    template <class Op>
    void InclusiveScan(T in, T& out, Op op) {
        None none;
        out = scan(in, op, none).inclusive;
    }
    template <class Op>
    void InclusiveScan(T in, T& out, Op op, T& sum) {
        None none;
        Scanned of = scan(in, op, none);
        out = of.inclusive, sum = of.aggregate;
    }
    template <class Op, class Callback>
    void InclusiveScan(T in, T& out, Op op, Callback& prefix) {
        out = scan(in, op, prefix).inclusive;
    }
    template <class Op>
    void ExclusiveScan(T in, T& out, Op op) {
        None none;
        out = scan(in, op, none).exclusive;
    }
    template <class Op>
    void ExclusiveScan(T in, T& out, Op op, T& sum) {
        None none;
        Scanned of = scan(in, op, none);
        out = of.exclusive, sum = of.aggregate;
    }
    template <class Op>
    void ExclusiveScan(T in, T& out, T initial, Op op) {
        out = scan(in, op, initial).exclusive;
    }
    template <class Op>
    void ExclusiveScan(T in, T& out, T initial, Op op, T& sum) {
        Scanned of = scan(in, op, initial);
        out = of.exclusive, sum = of.aggregate;
    }
    template <class Op, class Callback,
              class = ::std::enable_if_t<!::std::is_convertible_v<Op, T> &&
                                         !::std::is_same_v<Callback, T>>>
    void ExclusiveScan(T in, T& out, Op op, Callback& prefix) {
        out = scan(in, op, prefix).exclusive;
    }

    template <int N>
    void InclusiveSum(T (&in)[N], T (&out)[N]) {
        InclusiveScan(in, out, ::std::plus<>());
    }
    template <int N>
    void InclusiveSum(T (&in)[N], T (&out)[N], T& sum) {
        InclusiveScan(in, out, ::std::plus<>(), sum);
    }
    template <int N, class Callback>
    void InclusiveSum(T (&in)[N], T (&out)[N], Callback& prefix) {
        InclusiveScan(in, out, ::std::plus<>(), prefix);
    }
    template <int N>
    void ExclusiveSum(T (&in)[N], T (&out)[N]) {
        ExclusiveScan(in, out, T{}, ::std::plus<>());
    }
    template <int N>
    void ExclusiveSum(T (&in)[N], T (&out)[N], T& sum) {
        ExclusiveScan(in, out, T{}, ::std::plus<>(), sum);
    }
    template <int N, class Callback>
    void ExclusiveSum(T (&in)[N], T (&out)[N], Callback& prefix) {
        ExclusiveScan(in, out, ::std::plus<>(), prefix);
    }
    template <int N, class Op>
    void InclusiveScan(T (&in)[N], T (&out)[N], Op op) {
        None none;
        scan_items<true>(in, out, op, none);
    }
    template <int N, class Op>
    void InclusiveScan(T (&in)[N], T (&out)[N], Op op, T& sum) {
        None none;
        sum = scan_items<true>(in, out, op, none);
    }
    template <int N, class Op, class Callback>
    void InclusiveScan(T (&in)[N], T (&out)[N], Op op, Callback& prefix) {
        scan_items<true>(in, out, op, prefix);
    }
    template <int N, class Op>
    void ExclusiveScan(T (&in)[N], T (&out)[N], Op op) {
        None none;
        scan_items<false>(in, out, op, none);
    }
    template <int N, class Op>
    void ExclusiveScan(T (&in)[N], T (&out)[N], Op op, T& sum) {
        None none;
        sum = scan_items<false>(in, out, op, none);
    }
    template <int N, class Op>
    void ExclusiveScan(T (&in)[N], T (&out)[N], T initial, Op op) {
        scan_items<false>(in, out, op, initial);
    }
    template <int N, class Op>
    void ExclusiveScan(T (&in)[N], T (&out)[N], T initial, Op op, T& sum) {
        sum = scan_items<false>(in, out, op, initial);
    }
    template <int N, class Op, class Callback,
              class = ::std::enable_if_t<!::std::is_convertible_v<Op, T> &&
                                         !::std::is_same_v<Callback, T>>>
    void ExclusiveScan(T (&in)[N], T (&out)[N], Op op, Callback& prefix) {
        scan_items<false>(in, out, op, prefix);
    }
};

}  // namespace cub
