// cub::BlockRadixSort: a stable sort by the bits of keys. (By merging here.)
#pragma once

#include "../../minigrad/cub_sort.h"
#include "block_scan.cuh"

namespace cub {

namespace details {

template <size_t Bytes> struct Unsigned;
template <> struct Unsigned<1> { using type = uint8_t; };
template <> struct Unsigned<2> { using type = uint16_t; };
template <> struct Unsigned<4> { using type = uint32_t; };
template <> struct Unsigned<8> { using type = uint64_t; };

// Bits in the order of the keys; -0 is 0.
template <class K>
MGH_SILENT typename Unsigned<sizeof(K)>::type ordered_bits(const K& key) {
    using U = typename Unsigned<sizeof(K)>::type;
    constexpr U sign = (U)1 << (8 * sizeof(K) - 1);
    U bits;
    memcpy(&bits, &key, sizeof(K));
    if constexpr (::std::is_integral_v<K>) return ::std::is_signed_v<K> ? bits ^ sign : bits;
    if (bits == sign) bits = 0;
    return bits & sign ? ~bits : bits | sign;
}

template <class K, bool descending>
struct ByBits {
    int first, count;
    MGH_SILENT uint64_t digits(const K& key) const {
        uint64_t bits = ordered_bits(key) >> first;
        return count < 64 ? bits & (((uint64_t)1 << count) - 1) : bits;
    }
    MGH_SILENT bool operator()(const K& a, const K& b) const {
        return descending ? digits(a) > digits(b) : digits(a) < digits(b);
    }
};

}  // namespace details

template <class K, int X, int N, class V = NullType, int = 4, bool = true,
          BlockScanAlgorithm = BLOCK_SCAN_WARP_SCANS, int = 0, int Y = 1, int Z = 1, int = 0>
class BlockRadixSort : details::Block<X, Y, Z> {
    using Sorter = details::Sort<K, V, X, N, Y, Z>;
    static constexpr int BITS = 8 * sizeof(K);

   public:
    using TempStorage = typename Sorter::Storage;
    MGH_CUB_BLOCK(BlockRadixSort, X, Y, Z)

#define MGH_SORT(name, descending, striped)                                                   \
    void name(K (&keys)[N], int begin_bit = 0, int end_bit = BITS) {                          \
        Sorter(storage, line).run(keys, (V*)nullptr, Sorter::ALL, striped,                    \
                                  details::ByBits<K, descending>{begin_bit, end_bit - begin_bit}); \
    }                                                                                         \
    void name(K (&keys)[N], V (&values)[N], int begin_bit = 0, int end_bit = BITS) {          \
        Sorter(storage, line).run(keys, values, Sorter::ALL, striped,                         \
                                  details::ByBits<K, descending>{begin_bit, end_bit - begin_bit}); \
    }
    MGH_SORT(Sort, false, false)
    MGH_SORT(SortDescending, true, false)
    MGH_SORT(SortBlockedToStriped, false, true)
    MGH_SORT(SortDescendingBlockedToStriped, true, true)
#undef MGH_SORT
};

}  // namespace cub
