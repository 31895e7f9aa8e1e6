// Barriers of the block, and fences.
#pragma once

namespace mgh {
enum BarrierOp { COUNT, AND, OR };
}

#define __syncthreads() mgh_barrier(__LINE__)
#define __syncthreads_count(predicate) mgh_barrier_reduce(mgh::COUNT, !!(predicate), __LINE__)
#define __syncthreads_and(predicate) mgh_barrier_reduce(mgh::AND, !!(predicate), __LINE__)
#define __syncthreads_or(predicate) mgh_barrier_reduce(mgh::OR, !!(predicate), __LINE__)

MGH_SILENT inline void __threadfence_block() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
MGH_SILENT inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
MGH_SILENT inline void __threadfence_system() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __nanosleep(unsigned) { mgh_yield(false); }
