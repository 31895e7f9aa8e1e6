// The state of a CUDA thread and of the block that an OS thread runs, shared with the runtime.
//
// A fiber is a stack that runs CUDA threads one after the other, until one of them has to wait;
// the stack then belongs to the waiting thread and a new fiber goes on with the next. Its state
// lies above its aligned stack, so that any function finds it from its frame address.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "vector_types.h"

namespace mgh {

constexpr size_t STACK_BYTES = 256 << 10;
constexpr unsigned MAX_THREADS = 1024;
constexpr unsigned LANES = 32;

struct Worker;

struct Fiber {
    uint3 thread;     // threadIdx
    unsigned linear;  // its number in the block
    Worker* worker;
    void* sp;         // where it left off, unless its place in a queue says so
    uint64_t value;   // what it brings to a warp operation, and then the result
    int argument;     // the lane to read from, for a shuffle
    unsigned mask;
    int op;           // what it waits for
    int line;
    const char* what;  // its name, for a collective
    bool busy;
};

struct Start {  // the CUDA threads of a block, in the order in which they start
    uint3 thread;
    unsigned linear;
};

struct Place {  // a fiber that waits, and where it left off: its state need not be looked at
    Fiber* fiber;
    void* sp;
};

struct Queue {  // a ring, since at most MAX_THREADS wait
    Place* places;
    unsigned first, last;  // count up; their remainders are places
};

// Computes a warp operation: what each lane brought, by lane, and the lanes that are there.
using Collective = void (*)(void* const* operands, unsigned lanes);

struct Slot {  // a warp operation that some of its lanes have reached
    unsigned mask, arrived;
    int op, line;
    Collective compute;
};

struct Warp {
    unsigned live;  // lanes that have not exited
    unsigned slots;
    Slot slot[LANES];
    Fiber* lane[LANES];
};

struct Shared {  // where this block has a shared variable
    uint64_t epoch;
    void* memory;
};

struct Barrier {
    unsigned arrived;
    int line;
    int count;           // of the predicates that were true, so far
    int result, passed;  // that count, and the threads, at the barrier passed last
    Place* places;       // those that wait
};

struct Worker {
    uint3 block;  // blockIdx
    dim3 block_dim, grid_dim;
    const Start* order;
    unsigned threads, started, live;
    unsigned waiting;  // for anything but the barrier
    uint64_t epoch;  // counts blocks: tells whether a shared variable is new in this one
    unsigned static_shared, dynamic_shared;
    unsigned char* dynamic;
    Queue ready, active;  // able to go on; at __activemask()
    Barrier barrier;
    Warp warp[MAX_THREADS / LANES];
};

// The state of the thread that calls: near the top of its stack, at a page and a line that differ
// between stacks, because the sets of the TLB and of the caches collide where addresses are a
// power of two apart (a barrier took four times as long).
__attribute__((always_inline)) inline Fiber* fiber_of(uintptr_t address) {
    uintptr_t base = address & ~(uintptr_t)(STACK_BYTES - 1);
    uintptr_t colour = base / STACK_BYTES % 32;
    return (Fiber*)(base + STACK_BYTES - 128 - colour * (4096 + 128));
}

__attribute__((always_inline)) inline Fiber* self() {
#if defined(__x86_64__)
    uintptr_t address;  // any in this stack; __builtin_frame_address would cost a frame pointer
    asm("movq %%rsp, %0" : "=r"(address));
#elif defined(__aarch64__)
    uintptr_t address;
    asm("mov %0, sp" : "=r"(address));
#else
    uintptr_t address = (uintptr_t)__builtin_frame_address(0);
#endif
    return fiber_of(address);
}

static_assert(sizeof(Fiber) <= 128, "a fiber's state has 128 bytes above its stack");

}  // namespace mgh

// The runtime (kernels/host/runtime). What may switch stacks is an external function, so that the
// compiler keeps no shared memory in registers across it.
extern "C" {
void mgh_barrier(int line);
int mgh_barrier_reduce(int op, int predicate, int line);
void mgh_grid_barrier(int line);
uint64_t mgh_warp(int op, unsigned mask, uint64_t value, int argument, int line);
void mgh_collective(unsigned mask, void* operand, mgh::Collective compute, const char* what,
                    int line);
unsigned mgh_activemask(int line);
void mgh_yield(bool fruitless);
void mgh_thread_exit(mgh::Fiber* fiber);
void mgh_new_shared(mgh::Worker* worker, void* variable, size_t bytes, uint64_t* epoch,
                    const char* name, const unsigned* shape);
void mgh_place_shared(mgh::Worker* worker, mgh::Shared* variable, size_t bytes, size_t align,
                      const char* name, const unsigned* shape);
void* mgh_file_shared(size_t bytes, const char* name);
void mgh_keep(mgh::Worker* worker, void* variable, size_t bytes, uint64_t* epoch);
void* mgh_from_shared(uint64_t address, int line);
void mgh_copy_async(void* to, const void* from, unsigned bytes, unsigned present, int line);
void mgh_copy_commit();
void mgh_copy_wait(unsigned groups);
void mgh_record(const void* p, size_t size, int op);
void mgh_record_line(const void* p, size_t size, int op, int line);
void mgh_trap(const char* what, const char* detail, int line);
int mgh_printf(const char* format, ...) __attribute__((format(printf, 1, 2)));
}

// Reports to the lab what a thread accesses by other means than loads and stores.
enum { MGH_LOAD_OP, MGH_STORE_OP, MGH_ATOMIC_OP, MGH_ATOMIC_STORE_OP = 8 };
#if defined(MGH_RECORDING)
#define MGH_SILENT __attribute__((no_sanitize("thread")))
#define MGH_RECORD_ATOMIC(address) mgh_record(address, sizeof(*(address)), MGH_ATOMIC_OP)
#define MGH_RECORD_ATOMIC_STORE(address) \
    mgh_record(address, sizeof(*(address)), MGH_ATOMIC_STORE_OP)
#define MGH_RECORD_STORE(address) mgh_record(address, sizeof(*(address)), MGH_STORE_OP)
#define MGH_RECORD_LINE(...) mgh_record_line(__VA_ARGS__)
#else
#define MGH_SILENT
#define MGH_RECORD_ATOMIC(address) ((void)0)
#define MGH_RECORD_ATOMIC_STORE(address) ((void)0)
#define MGH_RECORD_STORE(address) ((void)0)
#define MGH_RECORD_LINE(...) ((void)0)
#endif
