// Shared memory is poisoned when a block first meets a variable: CUDA does not zero it either.
#pragma once

namespace mgh {

inline void new_in_block(void* variable, size_t bytes, uint64_t* epoch) {
    Worker* worker = self()->worker;
    if (*epoch != worker->epoch) {
        *epoch = worker->epoch;
        mgh_new_shared(worker, variable, bytes);
    }
}

inline void* dynamic_shared() { return self()->worker->dynamic; }

// `extern __shared__ T name[];` outside of functions: a pointer, set when a block begins.
struct DynamicShared {
    void (*set)(void*);
    DynamicShared* next;
    static inline DynamicShared* all;

    explicit DynamicShared(void (*set)(void*)) : set(set), next(all) { all = this; }
};

inline void begin_block() {
    for (DynamicShared* each = DynamicShared::all; each; each = each->next) {
        each->set(dynamic_shared());
    }
}

}  // namespace mgh

#define MGH_SHARED(name)                                                \
    {                                                                   \
        static thread_local uint64_t mgh_epoch;                         \
        mgh::new_in_block((void*)&name, sizeof(name), &mgh_epoch);      \
    }

#define MGH_DYNAMIC_SHARED(name, ...)          \
    static thread_local __VA_ARGS__* name;     \
    static mgh::DynamicShared mgh_set_##name([](void* start) { name = (__VA_ARGS__*)start; })
