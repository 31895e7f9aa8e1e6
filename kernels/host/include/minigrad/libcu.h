// What libcu++'s barrier and pipeline share: scopes, sizes of known alignment, copies.
#pragma once

#include <cstddef>
#include <new>
#include <utility>

#include "cuda_std.h"

namespace cuda {

enum thread_scope {
    thread_scope_system,
    thread_scope_device,
    thread_scope_block,
    thread_scope_thread
};

template <size_t Alignment>
struct aligned_size_t {
    size_t value;
    constexpr explicit aligned_size_t(size_t value) : value(value) {}
    constexpr operator size_t() const { return value; }
};

namespace details {

struct Nothing {
    void operator()() const {}
};

struct Alone {  // a group of one thread
    unsigned size() const { return 1; }
    unsigned thread_rank() const { return 0; }
};

inline void finish_copies() {
    mgh_copy_commit();
    mgh_copy_wait(0);
}

// Begins the thread's share of a copy to shared memory: poison until it is finished.
template <class Group, class T, class Bytes>
void copy_share(const Group& group, T* to, const T* from, Bytes bytes) {
    unsigned step = ((uintptr_t)to | (uintptr_t)from | (size_t)bytes) % 4 ? 1 : 4;
    for (size_t i = group.thread_rank(); i < (size_t)bytes / step; i += group.size()) {
        mgh_copy_async((char*)to + i * step, (const char*)from + i * step, step, step,
                       __builtin_LINE());
    }
}

}  // namespace details

}  // namespace cuda
