// Shared memory. A variable of a function is a reference to memory that the runtime gives the block
// when a thread first meets it, poisoned: CUDA does not zero it either. (Each reaches it through a
// pointer in a register; the address of a thread_local array would be asked for again and again.)
#pragma once

#include <type_traits>

namespace mgh {

template <class T>
struct Same {
    using type = T;
};

// Of an array: the size of an element, the number of dimensions, and how long they are.
template <class T>
struct Shape {
    static constexpr unsigned value[] = {
        sizeof(std::remove_all_extents_t<T>), std::rank_v<T>,     std::extent_v<T, 0>,
        std::extent_v<T, 1>,                  std::extent_v<T, 2>, std::extent_v<T, 3>};
};

inline void* shared_memory(Shared* variable, size_t bytes, size_t align, const char* name,
                           const unsigned* shape) {
    Worker* worker = self()->worker;
    if (variable->epoch != worker->epoch) {
        mgh_place_shared(worker, variable, bytes, align, name, shape);
    }
    return variable->memory;
}

// A variable outside of functions: one copy for each OS thread, poisoned when a block begins.
inline void new_in_block(void* variable, size_t bytes, uint64_t* epoch, const char* name,
                         const unsigned* shape) {
    Worker* worker = self()->worker;
    if (*epoch != worker->epoch) {
        *epoch = worker->epoch;
        mgh_new_shared(worker, variable, bytes, epoch, name, shape);
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

// mgh_d_name is the type: what the source declares, as a typedef.
#define MGH_SHARED(name)                                                                   \
    static thread_local mgh::Shared mgh_s_##name;                                          \
    auto& name = *(mgh_d_##name*)mgh::shared_memory(                             \
        &mgh_s_##name, sizeof(mgh_d_##name), __alignof__(mgh_d_##name), #name,             \
        mgh::Shape<mgh_d_##name>::value);

// In checked mode it lies where an access outside of it is noticed.
#if defined(MGH_CHECKED)
#define MGH_FILE_VARIABLE(name)            \
    static thread_local mgh_d_##name& name = \
        *(mgh_d_##name*)mgh_file_shared(sizeof(mgh_d_##name), #name)
#else
#define MGH_FILE_VARIABLE(name) static thread_local mgh_d_##name name
#endif
#define MGH_FILE_SHARED(name)                                                  \
    MGH_FILE_VARIABLE(name);                                                   \
    static mgh::AtBlockStart mgh_start_##name([] {                             \
        static thread_local uint64_t mgh_epoch;                                \
        mgh::new_in_block((void*)&name, sizeof(name), &mgh_epoch, #name,       \
                          mgh::Shape<mgh_d_##name>::value);                    \
    });

#define MGH_DYNAMIC_SHARED(name, ...)          \
    static thread_local __VA_ARGS__* name;     \
    static thread_local uint64_t mgh_epoch_##name; \
    static mgh::AtBlockStart mgh_start_##name([] { \
        mgh::point_to_dynamic(&name, &mgh_epoch_##name); \
    })
