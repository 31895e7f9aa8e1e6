// Tiles of 64 to 1024 threads: their warps meet at counters, and read each other's values where the
// threads have them. Included by cooperative_groups.h.
#pragma once

namespace cooperative_groups {

namespace details {

// One for each OS thread, as shared variables are; a tile has its first warp's place.
struct Meeting {
    unsigned arrived[mgh::MAX_THREADS / mgh::LANES], passed[mgh::MAX_THREADS / mgh::LANES];
    const void* value[mgh::MAX_THREADS];
};

MGH_SILENT inline Meeting& meeting() {
    static thread_local Meeting here;
    static thread_local uint64_t epoch;
    mgh::Worker* worker = mgh::self()->worker;
    if (epoch != worker->epoch) {
        epoch = worker->epoch;
        memset(&here, 0, sizeof here);
        mgh_keep(worker, &here, sizeof here, &epoch);
    }
    return here;
}

template <unsigned Size>
class LargeTile {
    static_assert(Size <= mgh::MAX_THREADS && (Size & (Size - 1)) == 0,
                  "a tile's size is a power of two up to 1024");

    static unsigned threads() { return mgh::self()->worker->threads; }
    static unsigned first() { return mgh::self()->linear / Size * Size; }

    // What the thread `rank` of the tile has, after all have said where.
    template <class T, class Take>
    MGH_SILENT static auto exchange(const T& value, Take take) {
        const void** values = meeting().value + first();
        values[thread_rank()] = &value;
        sync();
        auto taken = take(values);
        sync();
        return taken;
    }
    template <class T>
    static T from(const T& value, unsigned rank) {
        return exchange(value, [rank](const void** values) { return *(const T*)values[rank]; });
    }

   public:
    static constexpr unsigned size() { return Size; }
    static constexpr unsigned num_threads() { return Size; }
    static unsigned thread_rank() { return mgh::self()->linear % Size; }
    static unsigned meta_group_rank() { return mgh::self()->linear / Size; }
    static unsigned meta_group_size() { return (threads() + Size - 1) / Size; }

    MGH_SILENT static void sync() {
        unsigned place = first() / mgh::LANES, left = threads() - first();
        unsigned passed = meeting().passed[place];
        if (++meeting().arrived[place] == (left < Size ? left : Size)) {
            meeting().arrived[place] = 0;
            ++meeting().passed[place];
            return;
        }
        while (*(volatile unsigned*)&meeting().passed[place] == passed) mgh_yield(true);
    }
    template <class T>
    T shfl(T value, unsigned rank) const {
        return from(value, rank % Size);
    }
    int any(int predicate) const {
        return reduce(predicate != 0, [](int a, int b) { return a | b; });
    }
    int all(int predicate) const {
        return reduce(predicate != 0, [](int a, int b) { return a & b; });
    }
    template <class T, class Op>
    T reduce(T value, Op op) const {
        return exchange(value, [&](const void** values) {
            unsigned left = threads() - first(), last = left < Size ? left : Size;
            T total = *(const T*)values[0];
            for (unsigned i = 1; i < last; ++i) total = op(total, *(const T*)values[i]);
            return total;
        });
    }
};

}  // namespace details

// Compute capability 7.x needs memory for large tiles; here they have theirs.
template <unsigned Threads = 1024>
struct block_tile_memory {
    char unused[1];
};

}  // namespace cooperative_groups
