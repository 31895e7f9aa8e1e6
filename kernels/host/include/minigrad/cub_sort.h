// The sorting of cub::BlockRadixSort and cub::BlockMergeSort: keys lie in shared memory, thread 0
// merges their order, and all move their keys and values.
#pragma once

#include "../cub/block/block_exchange.cuh"

namespace cub::details {

// The stable order of the first `count` items; what is not `less` either way stays in order.
template <int N, class Less>
MGH_SILENT void merge_order(unsigned short* order, int count, Less less) {
    unsigned short other[N];
    for (int i = 0; i < N; ++i) order[i] = i;
    for (int width = 1; width < count; width *= 2) {
        for (int first = 0; first < count; first += 2 * width) {
            int middle = first + width < count ? first + width : count;
            int end = first + 2 * width < count ? first + 2 * width : count;
            int a = first, b = middle;
            for (int i = first; i < end; ++i) {
                bool second = a == middle || (b < end && less(order[b], order[a]));
                other[i] = second ? order[b++] : order[a++];
            }
        }
        for (int i = 0; i < count; ++i) order[i] = other[i];
    }
}

template <class K, class V>
union KeyOrValue {
    K key;
    V value;
    KeyOrValue() = delete;
};
template <class K>
union KeyOrValue<K, NullType> {
    K key;
    KeyOrValue() = delete;
};

template <class K, class V, int X, int N, int Y, int Z>
struct SortStorage {
    Room<KeyOrValue<K, V>, X * Y * Z * N> items;
    unsigned short order[X * Y * Z * N];
};

template <class K, class V, int X, int N, int Y, int Z>
class Sort : Block<X, Y, Z> {
   public:
    static constexpr int ALL = X * Y * Z * N;
    static_assert(ALL <= 1 << 16, "too many items");
    using Storage = SortStorage<K, V, X, N, Y, Z>;

    Sort(Storage& storage, int line) : Block<X, Y, Z>(line), storage(storage) {}

    // Sorts the first `count`, by less(key, key).
    template <class Less>
    void run(K (&keys)[N], V* values, int count, bool striped, Less less) {
        const int tid = this->tid;
        for (int i = 0; i < N; ++i) storage.items[tid * N + i].key = keys[i];
        this->barrier();
        if (tid == 0) order(count, less);
        this->barrier();
        unsigned short from[N];
        for (int i = 0; i < N; ++i) {
            from[i] = storage.order[striped ? i * (X * Y * Z) + tid : tid * N + i];
            keys[i] = storage.items[from[i]].key;
        }
        if constexpr (!::std::is_same_v<V, NullType>) {
            if (!values) return;
            this->barrier();
            for (int i = 0; i < N; ++i) storage.items[tid * N + i].value = values[i];
            this->barrier();
            for (int i = 0; i < N; ++i) values[i] = storage.items[from[i]].value;
        }
    }

   private:
    Storage& storage;

    template <class Less>
    MGH_SILENT void order(int count, Less less) {
        merge_order<ALL>(storage.order, count, Compare<Less>{storage, less});
        MGH_RECORD_STORE(&storage.order);
    }
    template <class Less>
    struct Compare {
        Storage& storage;
        Less less;
        MGH_SILENT bool operator()(int a, int b) {
            const KeyOrValue<K, V>* items = (const KeyOrValue<K, V>*)storage.items.bytes;
            return less(items[a].key, items[b].key);
        }
    };
};

}  // namespace cub::details
