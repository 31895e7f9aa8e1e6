// The fibers of an OS thread, and the scheduler.
#pragma once

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include "report.h"
#include "shadow.h"
#include "switch.h"

namespace {

using namespace mgh;

constexpr size_t FIBERS_AT_ONCE = 16;
constexpr size_t DYNAMIC_LIMIT = 227 << 10;

// A thread that yields so often without progress (64 atomics each time) counts as spinning forever.
// That takes seconds.
#ifndef MGH_SPIN_LIMIT
#define MGH_SPIN_LIMIT (1 << 24)
#endif

constexpr size_t STATIC_LIMIT = 48 << 10;

struct Variable {
    void* address;
    size_t bytes;
    uint64_t* epoch;
};
constexpr unsigned MAX_VARIABLES = 256;

struct Span {  // memory that may be accessed
    uintptr_t begin, end;
    const char* name;
    size_t room, margin;  // what is open of its slot, and how much of that lies before `begin`
};
constexpr unsigned SHARED_SLOTS = 64, SHARED_BITS = 26;

struct Recorder;  // record.h

struct Copy {  // one that has been begun; `present` bytes of its source are read, zeros follow
    void* to;
    const void* from;
    unsigned bytes, present, group;
};
struct Pending {  // the copies of a thread, in order
    Copy* copies;
    unsigned count, room, committed;
};

struct Running {  // blocks of a launch on an OS thread
    pthread_t thread;
    int* stop;         // whether it is to end (interrupt.h)
    Running *next, **link;
    uintptr_t code;    // the memory of the kernel's code: only known of a launch that is to end
    size_t code_bytes;
    unsigned since;    // how many interrupts came before it
};

struct Runner : Worker {  // a Worker with what only the runtime uses
    Place queues[3][MAX_THREADS];
    Fiber* fibers[MAX_THREADS + 1];
    Fiber* free[MAX_THREADS + 1];
    unsigned fiber_count, free_count;
    void* main_sp;
    void (*run_threads)(const char*);
    const char* arguments;
    Report* report;
    Start starts[MAX_THREADS];
    dim3 starts_of;
    bool starts_reversed;
    unsigned char* dynamic_end;  // a page that cannot be touched follows
    size_t page;
    uint64_t vain, yields;
    bool running;
    Running* launch;
    Variable variables[MAX_VARIABLES], kept[MAX_VARIABLES];
    unsigned variable_count, kept_count;
    alignas(128) unsigned char statics[2 * STATIC_LIMIT];  // shared variables of functions
    size_t static_end;
    Pending pending[MAX_THREADS];
    bool copies;  // whether a thread of the block has copied asynchronously
    bool cooperative, checked;
    unsigned at_grid;     // how many wait at the grid's barrier, and where
    int grid_line;
    Fiber* grid[MAX_THREADS];
    uintptr_t arena;  // in checked mode: shared memory, a slot a variable, dynamic memory first
    size_t arena_bytes;
    Span spans[SHARED_SLOTS];
    unsigned placed;
    Recorder* recorder;       // of a launch that the lab records
    int rows[SHARED_SLOTS];   // of the lab's memory
    size_t dynamic_bytes;
    unsigned char* saved;  // what is kept of this block while another one runs
    Runner* next;          // of those that no OS thread has
};

// The runner of this OS thread. Thread-local rather than read from the fiber, whose address depends
// on the stack pointer: so the processor can load the next fiber before the switch to this one
// completes.
#if defined(__linux__)
__attribute__((tls_model("initial-exec")))
#endif
thread_local Runner* current;

// record.h: reports to the lab's recorder, where there is one.
void record_at(Runner* w, const void* p, size_t size, int op, int line);
void record_index(Runner* w, long long index, const char* array, const uintptr_t* frame);
void record_barrier(Runner* w, const Fiber* fiber, int kind, int line);
void record_passed(Runner* w);
int record_shared(Runner* w, const void* key, void* address, size_t bytes, const char* name,
                  const unsigned* shape, bool stays);

enum Access { LOAD, STORE, ATOMIC, BARRIER };  // as in kernels/lab/recorder.py, but for the last
enum BarrierKind { OF_BLOCK, OF_WARP, OF_GRID };

Place& append(Queue& queue, Fiber* fiber) {
    Place& place = queue.places[queue.last++ % MAX_THREADS];
    place = {fiber, fiber->sp};
    return place;
}

// Prefetches the stack of a later fiber, which the cache may no longer hold.
Place* pop(Queue& queue) {
    if (queue.first == queue.last) return nullptr;
    unsigned number = queue.first++;
    const char* later = (const char*)queue.places[(number + 2) % MAX_THREADS].sp;
    __builtin_prefetch(later);
    __builtin_prefetch(later + 64);
    return &queue.places[number % MAX_THREADS];
}

void make_ready(Runner* w, Fiber* fiber) {
    --w->waiting;
    append(w->ready, fiber);
}

// Abandons the block and all its stacks: returns to mgh_launch, which reads the report.
[[noreturn]] void give_up(Runner* w) {
    void* nowhere;
    mgh_switch(&nowhere, w->main_sp);
    __builtin_unreachable();
}

void fiber_main();

void renew(Fiber* fiber) {
    uintptr_t base = (uintptr_t)fiber & ~(uintptr_t)(STACK_BYTES - 1);
    size_t page = current->page;
    fiber->sp = new_stack((void*)(base + page), fiber, fiber_main);
    fiber->busy = false;
}

bool add_fibers(Runner* w) {
    size_t size = (FIBERS_AT_ONCE + 1) * STACK_BYTES;
    void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return false;
    uintptr_t base = ((uintptr_t)memory + STACK_BYTES - 1) & ~(uintptr_t)(STACK_BYTES - 1);
    for (size_t i = 0; i < FIBERS_AT_ONCE && w->fiber_count < MAX_THREADS + 1; ++i) {
        mprotect((void*)base, w->page, PROT_NONE);
        Fiber* fiber = fiber_of(base);
        fiber->worker = w;
        renew(fiber);
        w->fibers[w->fiber_count++] = fiber;
        w->free[w->free_count++] = fiber;
        base += STACK_BYTES;
    }
    return true;
}

Fiber* take_fiber(Runner* w) {
    if (w->free_count == 0 && !add_fibers(w)) return nullptr;
    Fiber* fiber = w->free[--w->free_count];
    fiber->busy = true;
    return fiber;
}

// Under the recorder, fibers that became ready before this one run first: threads continue in the
// order of their arrival, so that the lanes of a warp stay together.
void take_turn(Runner* w, Fiber* fiber) {
    Place* next = pop(w->ready);
    if (next->fiber == fiber) return;
    unsigned i = w->ready.first;
    while (w->ready.places[i % MAX_THREADS].fiber != fiber) ++i;
    mgh_switch(&w->ready.places[i % MAX_THREADS].sp, next->sp);
}

void idle(Runner* w);  // waits.h

// Runs the next fiber instead of `fiber`, which waits and leaves its stack pointer at `sp`: a ready
// one, or one for a new thread.
void run_others(Fiber* fiber, void** sp) {
    Runner* w = current;
    Place* next = pop(w->ready);
    if (__builtin_expect(next != nullptr, 1)) return mgh_switch(sp, next->sp);
    if (w->started < w->threads) {
        Fiber* fresh = take_fiber(w);
        if (fresh) return mgh_switch(sp, fresh->sp);
        w->report->status = FAILED;
        say(w->report, "no memory for the stacks of %u threads", w->threads);
        give_up(w);
    }
    idle(w);
    next = pop(w->ready);
    if (!next) return mgh_switch(sp, w->main_sp);  // to the grid's other blocks
    if (next->fiber == fiber) return;
    for (unsigned i = w->ready.first; i != w->ready.last; ++i) {  // this fiber may be there
        Place& place = w->ready.places[i % MAX_THREADS];
        if (place.fiber == fiber) sp = &place.sp;
    }
    mgh_switch(sp, next->sp);
}

void wait(Fiber* fiber, int op, int line) {
    fiber->op = op;
    fiber->line = line;
    run_others(fiber, &fiber->sp);
}

// Where a fiber begins, and where it goes on when it is taken for another block's threads.
void fiber_main() {
    for (;;) {
        Fiber* fiber = self();
        Runner* w = current;
        w->run_threads(w->arguments);
        fiber->busy = false;
        w->free[w->free_count++] = fiber;
        Place* next = pop(w->ready);
        if (!next && w->live) {
            idle(w);
            next = pop(w->ready);
        }
        mgh_switch(&fiber->sp, next ? next->sp : w->main_sp);
    }
}

}  // namespace
