// Cooperative groups: the grid, the block, tiles of a warp, and lanes that happen to be together.
//
// A group within a warp is a mask of lanes; its operations are those of minigrad/warp.h. Clusters
// are not available.
#pragma once

#include "minigrad/large_tiles.h"

#define MGH_LINE int line = __builtin_LINE()  // the caller's, for errors

namespace cooperative_groups {

namespace details {

inline unsigned lane() { return mgh::self()->linear % mgh::LANES; }
inline unsigned lanes_below() { return (1u << lane()) - 1; }

inline unsigned block_rank() {
    uint3 b = blockIdx;
    dim3 g = gridDim;
    return (b.z * g.y + b.y) * g.x + b.x;
}

inline unsigned block_size() { return mgh::self()->worker->threads; }

// The place of the mask's bit number `rank`.
inline unsigned lane_of(unsigned mask, unsigned rank) {
    for (; rank; --rank) mask &= mask - 1;
    return mask ? __builtin_ctz(mask) : 32;
}

// `lanes` as ranks in the group `mask`.
inline unsigned ranks_of(unsigned mask, unsigned lanes) {
    unsigned ranks = 0;
    for (int rank = 0; mask; mask &= mask - 1, ++rank) {
        ranks |= (lanes >> __builtin_ctz(mask) & 1) << rank;
    }
    return ranks;
}

// What the lane `source` holds; any type that can be copied.
template <class T>
T from_lane(unsigned mask, T value, unsigned source, int line) {
    uint64_t words[(sizeof(T) + 7) / 8] = {};
    memcpy(words, &value, sizeof(T));
    for (uint64_t& word : words) word = mgh_warp(mgh::SHUFFLE, mask, word, source, line);
    memcpy((void*)&value, words, sizeof(T));
    return value;
}

template <class T, class Op>
struct Operand {
    T value;
    Op* op;
};

// Each lane gets what all of its group's values combine to.
template <class T, class Op>
void reduce_lanes(void* const* operands, unsigned lanes) {
    using O = Operand<T, Op>;
    O* first = (O*)operands[__builtin_ctz(lanes)];
    T total = first->value;
    for (unsigned left = lanes & (lanes - 1); left; left &= left - 1) {
        total = (*first->op)(total, ((O*)operands[__builtin_ctz(left)])->value);
    }
    for (unsigned left = lanes; left; left &= left - 1) {
        ((O*)operands[__builtin_ctz(left)])->value = total;
    }
}

// Each lane gets the combination of the values up to its own (or to the one before).
template <class T, class Op, bool inclusive>
void scan_lanes(void* const* operands, unsigned lanes) {
    using O = Operand<T, Op>;
    O* first = (O*)operands[__builtin_ctz(lanes)];
    T total = first->value, before = T();
    if (!inclusive) first->value = before;
    for (unsigned left = lanes & (lanes - 1); left; left &= left - 1) {
        O* own = (O*)operands[__builtin_ctz(left)];
        before = total;
        total = (*first->op)(total, own->value);
        own->value = inclusive ? total : before;
    }
}

template <class T, class Op>
T collective(unsigned mask, T value, Op op, mgh::Collective compute, const char* what, int line) {
    Operand<T, Op> operand = {value, &op};
    mgh_collective(mask, &operand, compute, what, line);
    return operand.value;
}

// The lanes of one warp in a group.
class Lanes {
   public:
    unsigned mask;

    explicit Lanes(unsigned mask) : mask(mask) {}
    unsigned thread_rank() const { return __builtin_popcount(mask & lanes_below()); }
    void sync(MGH_LINE) const { mgh_warp(mgh::SYNCWARP, mask, 0, 0, line); }
    template <class T>
    T shfl(T value, int rank, MGH_LINE) const {
        return from_lane(mask, value, lane_of(mask, rank), line);
    }
    template <class T>
    T shfl_up(T value, unsigned delta, MGH_LINE) const {
        unsigned rank = thread_rank();
        return from_lane(mask, value, rank < delta ? lane() : lane_of(mask, rank - delta), line);
    }
    template <class T>
    T shfl_down(T value, unsigned delta, MGH_LINE) const {
        unsigned source = lane_of(mask, thread_rank() + delta);
        return from_lane(mask, value, source < 32 ? source : lane(), line);
    }
    int any(int predicate, MGH_LINE) const {
        return mgh_warp(mgh::ANY, mask, predicate != 0, 0, line);
    }
    int all(int predicate, MGH_LINE) const {
        return mgh_warp(mgh::ALL, mask, predicate != 0, 0, line);
    }
    unsigned ballot(int predicate, MGH_LINE) const {
        return ranks_of(mask, mgh_warp(mgh::BALLOT, mask, predicate != 0, 0, line));
    }
    template <class T>
    unsigned match_any(T value, MGH_LINE) const {
        return ranks_of(mask, mgh::match_any(line, mask, value));
    }
    template <class T>
    unsigned match_all(T value, int& predicate, MGH_LINE) const {
        return ranks_of(mask, mgh::match_all(line, mask, value, &predicate));
    }
};

// The lanes of this thread in tiles of `size`, of those in `mask`.
inline unsigned tile_mask(unsigned size) {
    return (size == 32 ? ~0u : (1u << size) - 1) << (lane() & ~(size - 1));
}

}  // namespace details

struct grid_group {
    void sync(MGH_LINE) const { mgh_grid_barrier(line); }
    bool is_valid() const { return true; }
    unsigned long long size() const { return num_blocks() * details::block_size(); }
    unsigned long long num_threads() const { return size(); }
    unsigned long long thread_rank() const {
        return (unsigned long long)block_rank() * details::block_size() + mgh::self()->linear;
    }
    unsigned long long num_blocks() const {
        dim3 g = gridDim;
        return (unsigned long long)g.x * g.y * g.z;
    }
    unsigned long long block_rank() const { return details::block_rank(); }
    dim3 group_dim() const { return gridDim; }
    dim3 dim_blocks() const { return gridDim; }
    dim3 block_index() const { return dim3(blockIdx); }
};

struct thread_block {
    static void sync(MGH_LINE) { mgh_barrier(line); }
    static unsigned size() { return details::block_size(); }
    static unsigned num_threads() { return size(); }
    static unsigned thread_rank() { return mgh::self()->linear; }
    static dim3 group_index() { return dim3(blockIdx); }
    static dim3 thread_index() { return dim3(threadIdx); }
    static dim3 group_dim() { return blockDim; }
    static dim3 dim_threads() { return blockDim; }
};

class coalesced_group : public details::Lanes {
    unsigned meta_rank = 0, meta_size = 1;

   public:
    explicit coalesced_group(unsigned mask, unsigned meta_rank = 0, unsigned meta_size = 1)
        : Lanes(mask), meta_rank(meta_rank), meta_size(meta_size) {}
    unsigned size() const { return __builtin_popcount(mask); }
    unsigned num_threads() const { return size(); }
    unsigned meta_group_rank() const { return meta_rank; }
    unsigned meta_group_size() const { return meta_size; }
};

template <unsigned Size, class Parent = void>
class thread_block_tile;

namespace details {

template <unsigned Size>
class SmallTile : public Lanes {
    static_assert((Size & (Size - 1)) == 0, "a tile's size is a power of two");

   public:
    SmallTile() : Lanes(details::tile_mask(Size)) {}
    static constexpr unsigned size() { return Size; }
    static constexpr unsigned num_threads() { return Size; }
    static unsigned thread_rank() { return details::lane() % Size; }
    static unsigned meta_group_rank() { return mgh::self()->linear / Size; }
    static unsigned meta_group_size() { return (details::block_size() + Size - 1) / Size; }
    template <class T>
    T shfl(T value, int rank, MGH_LINE) const {
        return moved(mgh::IDX, value, rank, line);
    }
    template <class T>
    T shfl_up(T value, unsigned delta, MGH_LINE) const {
        return moved(mgh::UP, value, delta, line);
    }
    template <class T>
    T shfl_down(T value, unsigned delta, MGH_LINE) const {
        return moved(mgh::DOWN, value, delta, line);
    }
    template <class T>
    T shfl_xor(T value, unsigned lanes, MGH_LINE) const {
        return moved(mgh::XOR, value, lanes, line);
    }

   private:
    template <class T>
    T moved(mgh::ShuffleMode mode, T value, int operand, int line) const {
        int source = mgh::shuffle_source(mode, details::lane(), operand, Size);
        return details::from_lane(mask, value, source, line);
    }
};

}  // namespace details

template <unsigned Size>
class thread_block_tile<Size, void>
    : public std::conditional_t<(Size > 32), details::LargeTile<Size>, details::SmallTile<Size>> {};

template <unsigned Size, class Parent>
class thread_block_tile : public thread_block_tile<Size, void> {};

// Any group but the grid, for functions that are no templates.
class thread_group {
    unsigned mask;  // 0: the block

   public:
    thread_group(thread_block) : mask(0) {}
    thread_group(const details::Lanes& lanes) : mask(lanes.mask) {}
    void sync(MGH_LINE) const {
        if (mask) mgh_warp(mgh::SYNCWARP, mask, 0, 0, line);
        else mgh_barrier(line);
    }
    unsigned size() const {
        return mask ? __builtin_popcount(mask & mgh::self()->worker->warp[mgh::self()->linear /
                                                                         mgh::LANES].live)
                    : details::block_size();
    }
    unsigned num_threads() const { return size(); }
    unsigned thread_rank() const {
        return mask ? details::Lanes(mask).thread_rank() : mgh::self()->linear;
    }
    unsigned lanes() const { return mask; }
};

inline thread_block this_thread_block() { return {}; }
template <unsigned Threads>
thread_block this_thread_block(block_tile_memory<Threads>&) {
    return {};
}
inline grid_group this_grid() { return {}; }
inline thread_block_tile<1> this_thread() { return {}; }
#define coalesced_threads() coalesced_group(mgh_activemask(__LINE__))

template <unsigned Size>
thread_block_tile<Size, thread_block> tiled_partition(const thread_block&) {
    return {};
}
template <unsigned Size, unsigned Outer, class Parent>
auto tiled_partition(const thread_block_tile<Outer, Parent>&) {
    static_assert(Size <= Outer, "a tile is part of its parent");
    return thread_block_tile<Size, thread_block_tile<Outer, Parent>>();
}

// Tiles of a group of lanes by rank, and of a block by lane.
inline coalesced_group tiled_partition(const coalesced_group& g, unsigned size) {
    unsigned tile = g.thread_rank() / size, mask = 0;
    for (unsigned rank = tile * size; rank < (tile + 1) * size && rank < g.size(); ++rank) {
        mask |= 1u << details::lane_of(g.mask, rank);
    }
    return coalesced_group(mask, tile, (g.size() + size - 1) / size);
}
template <unsigned Size>
coalesced_group tiled_partition(const coalesced_group& g) {
    return tiled_partition(g, Size);
}
inline thread_group tiled_partition(const thread_group& g, unsigned size) {
    if (size > 32 || (size & (size - 1))) {
        mgh_trap("tiled_partition: the size is a power of two up to 32", "", 0);
    }
    return details::Lanes(details::tile_mask(size) & (g.lanes() ? g.lanes() : ~0u));
}

template <class Group>
coalesced_group labeled_partition(const Group& g, int label, MGH_LINE) {
    return coalesced_group(mgh::match_any(line, g.mask, label));
}
template <class Group>
coalesced_group binary_partition(const Group& g, bool predicate, MGH_LINE) {
    unsigned yes = mgh_warp(mgh::BALLOT, g.mask, predicate, 0, line);
    return coalesced_group(predicate ? yes : g.mask & ~yes, predicate, 2);
}

template <class Group>
void sync(const Group& g, MGH_LINE) {
    g.sync(line);
}
template <class Group>
auto thread_rank(const Group& g) {
    return g.thread_rank();
}
template <class Group>
auto group_size(const Group& g) {
    return g.size();
}
template <class Group, class Function>
void invoke_one(const Group& g, Function&& function) {
    if (g.thread_rank() == 0) function();
}

#define MGH_OPERATION(name, ...)                          \
    template <class T = void>                             \
    struct name {                                         \
        T operator()(T a, T b) const { return __VA_ARGS__; } \
    };                                                    \
    template <>                                           \
    struct name<void> {                                   \
        template <class T>                                \
        T operator()(T a, T b) const {                    \
            return __VA_ARGS__;                           \
        }                                                 \
    };
MGH_OPERATION(plus, a + b)
MGH_OPERATION(less, b < a ? b : a)
MGH_OPERATION(greater, a < b ? b : a)
MGH_OPERATION(bit_and, a & b)
MGH_OPERATION(bit_or, a | b)
MGH_OPERATION(bit_xor, a ^ b)
#undef MGH_OPERATION

template <class Group, class T, class Op>
T reduce(const Group& g, T value, Op op, MGH_LINE) {
    return details::collective(g.mask, value, op, details::reduce_lanes<T, Op>,
                               "cooperative_groups::reduce", line);
}
template <unsigned Size, class Parent, class T, class Op>
std::enable_if_t<(Size > 32), T> reduce(const thread_block_tile<Size, Parent>& g, T value, Op op) {
    return g.reduce(value, op);
}
template <class Group, class T, class Op = plus<T>>
T inclusive_scan(const Group& g, T value, Op op = {}, MGH_LINE) {
    return details::collective(g.mask, value, op, details::scan_lanes<T, Op, true>,
                               "cooperative_groups::inclusive_scan", line);
}
template <class Group, class T, class Op = plus<T>>
T exclusive_scan(const Group& g, T value, Op op = {}, MGH_LINE) {
    return details::collective(g.mask, value, op, details::scan_lanes<T, Op, false>,
                               "cooperative_groups::exclusive_scan", line);
}

// Copies bytes to shared memory: poison until wait(). Each thread copies its share of them.
template <class Group, class To, class From, class Bytes>
void memcpy_async(const Group& g, To* to, const From* from, const Bytes& bytes, MGH_LINE) {
    constexpr unsigned step = sizeof(To) % 4 ? 1 : 4;
    for (size_t i = g.thread_rank(); i < (size_t)bytes / step; i += g.size()) {
        mgh_copy_async((char*)to + i * step, (const char*)from + i * step, step, step, line);
    }
    mgh_copy_commit();
}
// By the number of elements that there is room for, and that there are.
template <class Group, class T, class Room, class Count>
void memcpy_async(const Group& g, T* to, const Room& room, const T* from, const Count& count,
                  MGH_LINE) {
    const size_t elements = (size_t)room < (size_t)count ? (size_t)room : (size_t)count;
    memcpy_async(g, to, from, elements * sizeof(T), line);
}
template <class Group>
void wait(const Group& g, MGH_LINE) {
    mgh_copy_wait(0);
    g.sync(line);
}
template <unsigned Stages, class Group>
void wait_prior(const Group& g, MGH_LINE) {
    mgh_copy_wait(Stages);
    g.sync(line);
}

}  // namespace cooperative_groups

#undef MGH_LINE
