// Copies to shared memory that nobody waits for (`cp.async`, compute capability 8.0 and later;
// before it, ordinary copies).

// Starts the copy of one element or pack of 4, 8 or 16 bytes; zeros where it is outside.
template <class A>
__device__ __forceinline__ void copy_async(A* to, const A* from, bool inside) {
#if __CUDA_ARCH__ >= 800
    const unsigned address = (unsigned)__cvta_generic_to_shared(to);
    const int bytes = inside ? sizeof(A) : 0;
    if constexpr (sizeof(A) == 16) {  // past the L1 cache too
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from),
                     "r"(bytes));
    } else {
        asm volatile("cp.async.ca.shared.global [%0], [%1], %3, %2;" ::"r"(address), "l"(from),
                     "r"(bytes), "n"(sizeof(A)));
    }
#else
    *to = inside ? *from : A{};
#endif
}

// The copies started since the last call are one group.
__device__ __forceinline__ void copies_end() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;");
#endif
}

// Waits for all groups of copies but the last `newer`.
template <int newer>
__device__ __forceinline__ void wait_for_copies() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(newer) : "memory");
#endif
}
