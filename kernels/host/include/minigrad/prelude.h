// Included before every CUDA C source: what nvcc declares by itself, for a CPU's compiler.
#pragma once

#include <cfloat>
#include <climits>
// libstdc++'s <cmath> would bring C++17's special functions, which CUDA has not: g++ compiles their
// templates again for every source, for 30 ms.
#undef _GLIBCXX_USE_STD_SPEC_FUNCS
#define _GLIBCXX_USE_STD_SPEC_FUNCS 0
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "qualifiers.h"
#include "vector_types.h"
#include "state.h"
#include "builtins.h"
#include "shared.h"
#include "sync.h"
#include "warp.h"
#include "atomics.h"
#include "bits.h"
#include "maths.h"
#include "fast_maths.h"
#include "rounding.h"
#include "simd.h"
#include "special.h"
#include "io.h"
#include "entry.h"

// Last, so that the C library's own headers are read as on any other machine.
#define __CUDACC__ 1
#define __CUDACC_RTC__ 1
#define __CUDA_ARCH__ 800

// The bytes of the CPU's vectors, for loops that want to be written otherwise for it. Not for the
// lab, which shows what a GPU does.
#if !defined(MGH_RECORDING)
#if defined(__AVX512F__)
#define MINIGRAD_ON_CPU 64
#elif defined(__AVX__)
#define MINIGRAD_ON_CPU 32
#else
#define MINIGRAD_ON_CPU 16
#endif
#endif
