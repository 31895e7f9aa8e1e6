// How the runtime calls a kernel.
#pragma once

#include <utility>

#include "describe.h"

namespace mgh {

// The next CUDA thread of the block becomes this fiber's; false when all have started.
inline bool next_thread(Fiber* fiber) {
    Worker* worker = fiber->worker;
    if (worker->started == worker->threads) return false;
#if defined(MGH_RECORDING)  // the lanes of a warp are to stay together: those that began go on first
    if (worker->ready.first != worker->ready.last) return false;
#endif
    const Start& start = worker->order[worker->started++];
    fiber->thread = start.thread;
    fiber->linear = start.linear;
    return true;
}

inline void exit_thread(Fiber* fiber) {
    Worker* worker = fiber->worker;
    --worker->live;
    worker->warp[fiber->linear / LANES].live &= ~(1u << fiber->linear % LANES);
    if (worker->waiting + worker->barrier.arrived) mgh_thread_exit(fiber);
}

// Arguments lie one after the other, each at a multiple of 16 bytes.
template <class... P>
constexpr size_t offset_of(int index) {
    constexpr size_t sizes[] = {sizeof(P)..., 0};
    size_t offset = 0;
    for (int i = 0; i < index; ++i) offset += (sizes[i] + 15) / 16 * 16;
    return offset;
}

template <class T>
inline T read(const char* argument) {
    alignas(T) char bytes[sizeof(T)];
    memcpy(bytes, argument, sizeof(T));
    return *(T*)bytes;
}

template <auto kernel, class Type = decltype(kernel)>
struct Entry;

template <auto kernel, class... P>
struct Entry<kernel, void (*)(P...)> {
    static constexpr int count = sizeof...(P);
    static constexpr Parameter parameters[count + 1] = {Describe<P>::value..., Parameter{}};

    // Runs CUDA threads on this fiber until all of the block's have started.
    static void run(const char* arguments) {
        Fiber* fiber = self();
        begin_block();
        while (next_thread(fiber)) {
            call(arguments, std::make_index_sequence<sizeof...(P)>{});
            exit_thread(fiber);
        }
    }

   private:
    template <size_t... I>
    __attribute__((always_inline)) static void call(const char* arguments,
                                                    std::index_sequence<I...>) {
        kernel(read<P>(arguments + std::integral_constant<size_t, offset_of<P...>(I)>::value)...);
    }
};

struct Global {  // mirrored by kernels/host/library.py
    void* address;
    size_t bytes;
};

}  // namespace mgh

// What Python finds in the library: kernels and variables by number.
#if defined(__clang__)
#define MGH_VISIBLE extern "C" __attribute__((visibility("default")))
#else
#define MGH_VISIBLE extern "C" __attribute__((visibility("default"), externally_visible))
#endif
#define MGH_KERNEL(number, ...)                                                          \
    MGH_VISIBLE const mgh::Parameter* const mgh_parameters_##number =                    \
        mgh::Entry<&::__VA_ARGS__>::parameters;                                          \
    MGH_VISIBLE const int mgh_count_##number = mgh::Entry<&::__VA_ARGS__>::count;        \
    MGH_VISIBLE void mgh_run_threads_##number(const char* a) {                           \
        mgh::Entry<&::__VA_ARGS__>::run(a);                                              \
    }
#define MGH_BOUND(number, ...) MGH_VISIBLE const unsigned mgh_bound_##number = ::__VA_ARGS__;
#define MGH_GLOBAL(number, ...) \
    MGH_VISIBLE const mgh::Global mgh_global_##number = {(void*)&__VA_ARGS__, sizeof(__VA_ARGS__)};
