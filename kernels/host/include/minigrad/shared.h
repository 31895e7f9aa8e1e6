// Shared memory is poisoned when a block first meets a variable: CUDA does not zero it either.
#pragma once

namespace mgh {

inline void new_in_block(void* variable, size_t bytes, uint64_t* epoch) {
    Worker* worker = self()->worker;
    if (*epoch != worker->epoch) {
        *epoch = worker->epoch;
        mgh_new_shared(worker, variable, bytes, epoch);
    }
}

inline void* dynamic_shared() { return self()->worker->dynamic; }

// Sets a pointer to dynamic shared memory when a block begins.
template <class T>
void point_to_dynamic(T** pointer, uint64_t* epoch) {
    Worker* worker = self()->worker;
    if (*epoch == worker->epoch) return;
    *epoch = worker->epoch;
    *pointer = (T*)worker->dynamic;
    mgh_keep(worker, pointer, sizeof *pointer, epoch);
}

// What is done for file-scope shared variables when a block begins (each fiber asks for it).
struct AtBlockStart {
    void (*act)();
    AtBlockStart* next;
    static inline AtBlockStart* all;

    explicit AtBlockStart(void (*act)()) : act(act), next(all) { all = this; }
};

inline void begin_block() {
    for (AtBlockStart* each = AtBlockStart::all; each; each = each->next) each->act();
}

}  // namespace mgh

// PTX names shared memory by 32-bit addresses: here the lower half of a pointer.
inline size_t __cvta_generic_to_shared(const void* p) { return (unsigned)(uintptr_t)p; }
inline size_t __cvta_generic_to_global(const void* p) { return (uintptr_t)p; }
#define __cvta_shared_to_generic(address) mgh_from_shared(address, __LINE__)

#define MGH_SHARED(name)                                                \
    {                                                                   \
        static thread_local uint64_t mgh_epoch;                         \
        mgh::new_in_block((void*)&name, sizeof(name), &mgh_epoch);      \
    }

// In checked mode: `name` is a reference to memory that the runtime has placed; mgh_d_name, which
// is declared as the source says, only gives its type.
#define MGH_CHECKED_SHARED(name)                                                              \
    static thread_local uint64_t mgh_e_##name;                                                \
    static thread_local void* mgh_p_##name;                                                   \
    if (mgh_e_##name != mgh::self()->worker->epoch) {                                         \
        mgh_e_##name = mgh::self()->worker->epoch;                                            \
        mgh_checked_shared(mgh::self()->worker, &mgh_p_##name, sizeof(mgh_d_##name), #name,   \
                           &mgh_e_##name);                                                    \
    }                                                                                         \
    auto& name = *(decltype(mgh_d_##name)*)mgh_p_##name;

#define MGH_FILE_SHARED(name) static mgh::AtBlockStart mgh_start_##name([] { MGH_SHARED(name) });

#define MGH_DYNAMIC_SHARED(name, ...)          \
    static thread_local __VA_ARGS__* name;     \
    static thread_local uint64_t mgh_epoch_##name; \
    static mgh::AtBlockStart mgh_start_##name([] { \
        mgh::point_to_dynamic(&name, &mgh_epoch_##name); \
    })
