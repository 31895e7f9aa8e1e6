// cub::BlockExchange: items change places, through shared memory.
#pragma once

#include "../../minigrad/cub.h"

namespace cub {

template <class T, int X, int N, bool = false, int Y = 1, int Z = 1, int = 0>
class BlockExchange : details::Block<X, Y, Z> {
    static constexpr int WARP = X * Y * Z < 32 ? X * Y * Z : 32;

   public:
    struct TempStorage {
        details::Room<T, X * Y * Z * N> items;
    };
    MGH_CUB_BLOCK(BlockExchange, X, Y, Z)

   private:
    int blocked(int i) const { return tid * N + i; }
    int striped(int i) const { return i * THREADS + tid; }
    int warp_striped(int i) const { return tid / WARP * WARP * N + i * WARP + tid % WARP; }

    template <class In, class Out, class From, class To>
    void exchange(In& in, Out& out, From from, To to) {
        for (int i = 0; i < N; ++i) storage.items[from(i)] = in[i];
        barrier();
        for (int i = 0; i < N; ++i) out[i] = storage.items[to(i)];
    }

   public:
#define MGH_EXCHANGE(name, from, to)                                                        \
    template <class U>                                                                      \
    void name(const T (&in)[N], U (&out)[N]) {                                              \
        exchange(in, out, [this](int i) { return from(i); }, [this](int i) { return to(i); }); \
    }                                                                                       \
    void name(T (&items)[N]) { name(items, items); }
    MGH_EXCHANGE(BlockedToStriped, blocked, striped)
    MGH_EXCHANGE(StripedToBlocked, striped, blocked)
    MGH_EXCHANGE(BlockedToWarpStriped, blocked, warp_striped)
    MGH_EXCHANGE(WarpStripedToBlocked, warp_striped, blocked)
#undef MGH_EXCHANGE
    template <class U, class Rank>
    void ScatterToBlocked(const T (&in)[N], U (&out)[N], Rank (&ranks)[N]) {
        exchange(in, out, [&](int i) { return ranks[i]; }, [this](int i) { return blocked(i); });
    }
    template <class U, class Rank>
    void ScatterToStriped(const T (&in)[N], U (&out)[N], Rank (&ranks)[N]) {
        exchange(in, out, [&](int i) { return ranks[i]; }, [this](int i) { return striped(i); });
    }
    template <class Rank>
    void ScatterToBlocked(T (&items)[N], Rank (&ranks)[N]) {
        ScatterToBlocked(items, items, ranks);
    }
    template <class Rank>
    void ScatterToStriped(T (&items)[N], Rank (&ranks)[N]) {
        ScatterToStriped(items, items, ranks);
    }
};

}  // namespace cub
