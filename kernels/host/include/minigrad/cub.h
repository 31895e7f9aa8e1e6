// What the collectives of CUB share: operators, storage, a warp's reductions and scans.
//
// They compute what CUB's do, floats in the order of its default algorithms; the accesses to shared
// memory that the lab counts are those of these headers. `line` is that of the collective's
// constructor, for the errors of barriers.
#pragma once

#include <type_traits>

#include "../cuda/functional"
#include "cuda_std.h"

#define MGH_CUB_BLOCK(name, ...)                                                             \
   public:                                                                                   \
    explicit name(TempStorage& storage, int line = __builtin_LINE())                         \
        : Block(line), storage(storage) {}                                                   \
    explicit name(int line = __builtin_LINE())                                               \
        : Block(line), storage(details::private_storage<TempStorage>()) {}                   \
                                                                                             \
   private:                                                                                  \
    using Block = details::Block<__VA_ARGS__>;                                               \
    using Block::line, Block::tid, Block::THREADS, Block::barrier;                           \
    TempStorage& storage;                                                                    \
                                                                                             \
   public:

namespace cub {

struct Sum : ::std::plus<> {};
struct Difference : ::std::minus<> {};
struct Max : cuda::maximum<> {};
struct Min : cuda::minimum<> {};
struct Equality : ::std::equal_to<> {};
struct Inequality : ::std::not_equal_to<> {};

template <class K, class V>
struct KeyValuePair {
    using Key = K;
    using Value = V;
    K key;
    V value;
    KeyValuePair() = default;
    KeyValuePair(K key, V value) : key(key), value(value) {}
};
struct ArgMax {
    template <class K, class V>
    KeyValuePair<K, V> operator()(const KeyValuePair<K, V>& a, const KeyValuePair<K, V>& b) const {
        return b.value > a.value || (a.value == b.value && b.key < a.key) ? b : a;
    }
};
struct ArgMin {
    template <class K, class V>
    KeyValuePair<K, V> operator()(const KeyValuePair<K, V>& a, const KeyValuePair<K, V>& b) const {
        return b.value < a.value || (a.value == b.value && b.key < a.key) ? b : a;
    }
};

struct NullType {};

inline unsigned LaneId() { return mgh::self()->linear % mgh::LANES; }
inline unsigned WarpId() { return mgh::self()->linear / mgh::LANES; }
inline int RowMajorTid(int x, int y, int) {
    return (threadIdx.z * y + threadIdx.y) * x + threadIdx.x;
}

namespace details {

// Room for elements that no constructor touches, as a member of a union may be.
template <class T, int N>
struct Room {
    alignas(T) unsigned char bytes[N * sizeof(T)];
    T& operator[](int i) { return ((T*)bytes)[i]; }
};

struct Nothing {};

template <class T>
T& private_storage() {
    static thread_local mgh::Shared place;
    return *(T*)mgh::shared_memory(&place, sizeof(T), alignof(T), "storage of CUB's",
                                   mgh::Shape<T>::value);
}

// A value that no thread may use is poison: NaN, -1.
template <class T>
void poison(T& value) {
    if constexpr (::std::is_trivially_copyable_v<T>) memset((void*)&value, 0xff, sizeof(T));
}

template <int X, int Y, int Z>
struct Block {
    static constexpr int THREADS = X * Y * Z;
    int line, tid;

    explicit Block(int line) : line(line), tid(mgh::self()->linear) {
        const dim3 size = blockDim;
        if (size.x != X || size.y != Y || size.z != Z) {
            mgh_trap("a collective of CUB is for a block of other dimensions than this one: its"
                     " template arguments must be those of the launch", "", line);
        }
    }
    void barrier() const { mgh_barrier(line); }
};

template <class T, class Op>
struct Operand {
    T value;
    Op* op;
    int last;     // of a reduction: the last lane that counts for this one
    int width;    // lanes of a logical warp
    T exclusive;  // of a scan
};

// Lane by lane in one step of a tree, as shuffles do it.
template <class T, class Op>
void reduce_lanes(void* const* operands, unsigned lanes) {
    auto at = [&](int lane) { return (Operand<T, Op>*)operands[lane]; };
    const int first = __builtin_ctz(lanes), width = at(first)->width, end = first + width;
    for (int offset = 1; offset < width; offset *= 2) {
        for (int lane = first; lane + offset < end; ++lane) {
            if (!(lanes >> lane & 1) || lane + offset - first > at(lane)->last) continue;
            if (!(lanes >> (lane + offset) & 1)) continue;
            at(lane)->value = (*at(lane)->op)(at(lane)->value, at(lane + offset)->value);
        }
    }
}

template <class T, class Op>
void scan_lanes(void* const* operands, unsigned lanes) {
    auto at = [&](int lane) { return (Operand<T, Op>*)operands[lane]; };
    const int first = __builtin_ctz(lanes), width = at(first)->width;
    const int count = __builtin_popcount(lanes);
    for (int offset = 1; offset < width; offset *= 2) {
        for (int lane = first + count - 1; lane >= first + offset; --lane) {
            at(lane)->value = (*at(lane)->op)(at(lane - offset)->value, at(lane)->value);
        }
    }
    for (int lane = first + 1; lane < first + count; ++lane) {
        at(lane)->exclusive = at(lane - 1)->value;
    }
}

inline unsigned warp_mask(int width) {
    unsigned lane = LaneId();
    return (width == 32 ? ~0u : (1u << width) - 1) << lane / width * width;
}

// The sum over a logical warp, for its first lane: of the lanes up to `last`.
template <class T, class Op>
T reduce_warp(T value, Op op, int last, int width, int line) {
    Operand<T, Op> operand = {value, &op, last, width, value};
    mgh_collective(warp_mask(width), &operand, reduce_lanes<T, Op>, "cub::WarpReduce", line);
    return operand.value;
}

// Inclusive and exclusive; of the first lane the second is not defined.
template <class T, class Op>
void scan_warp(T value, T& inclusive, T& exclusive, Op op, int width, int line) {
    Operand<T, Op> operand = {value, &op, 0, width, value};
    if (LaneId() % width == 0) poison(operand.exclusive);
    mgh_collective(warp_mask(width), &operand, scan_lanes<T, Op>, "cub::WarpScan", line);
    inclusive = operand.value;
    exclusive = operand.exclusive;
}

template <class T>
T from_warp_lane(T value, int source, int width, int line) {
    uint64_t words[(sizeof(T) + 7) / 8] = {};
    memcpy(words, (void*)&value, sizeof(T));
    for (uint64_t& word : words) {
        word = mgh_warp(mgh::SHUFFLE, warp_mask(width), word, LaneId() / width * width + source, line);
    }
    memcpy((void*)&value, words, sizeof(T));
    return value;
}

}  // namespace details

template <int N, class T, class Op>
T ThreadReduce(T (&items)[N], Op op) {
    details::Room<T, N> sums;  // by a tree
    for (int i = 0; i < N; ++i) sums[i] = items[i];
    for (int width = 1; width < N; width *= 2) {
        for (int i = 0; i + width < N; i += 2 * width) sums[i] = op(sums[i], sums[i + width]);
    }
    return sums[0];
}

}  // namespace cub
