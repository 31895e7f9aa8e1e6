// CUDA's qualifiers. A kernel is `inline`, so that only the one that is launched is compiled.
#pragma once

#define __global__ inline
#define __device__
#define __host__
#define __constant__
#define __managed__
#define __grid_constant__
#define __forceinline__ __attribute__((always_inline))
#if !defined(__clang__)
#define __builtin_assume(condition) ((void)0)
#endif
#define __launch_bounds__(...)
#define __maxnreg__(...)
#define __align__(n) __attribute__((aligned(n)))

// For the lab: a structure with a destructor that is passed by value straight from memory is copied
// before the call, by an access that the compiler instruments.
#if defined(MGH_RECORDING) && !defined(MGH_TRIVIAL)
#define MGH_COPIED(type) \
    __attribute__((always_inline)) ~type() {}
#else
#define MGH_COPIED(type)
#endif

// One copy for each OS thread, and an OS thread runs one block at a time.
#define __shared__ static thread_local
