// The state of a launch: blocks of warps, whose 32 lanes execute an operation together.
//
// A register holds the values of all lanes, one after the other, so that an operation is a loop over
// 32 elements, which the compiler makes vector code of. Lanes that are at different operations form
// groups; one group of a warp runs at a time.
#pragma once

#include <initializer_list>
#include <setjmp.h>
#include <stdarg.h>

#include "minigrad/prelude.h"

namespace mgp {

using Mask = uint32_t;
constexpr int LANES = 32, BARRIERS = 16;
constexpr Mask ALL = ~0u;

struct Op {  // mirrored by kernels/ptx/machine.py
    uint16_t code;            // which operation: an index into the table
    uint8_t guard;            // 0: always, 1: where the predicate is true, 2: where it is false
    uint8_t mode;             // rounding and flush to zero
    uint8_t space, bytes;     // of memory: which, and the size of an element
    uint8_t count, flags;     // the elements of a vector; what the operation defines
    int32_t predicate;        // where registers are: offsets, below 0 into the constants
    int32_t to, a, b, c, d;
    int32_t target, list;     // another operation; an index into the lists
    int64_t value;
};
static_assert(sizeof(Op) == 48);

enum Mode { NEAREST, TO_ZERO, DOWN, UP, AWAY, ROUNDING = 7, FLUSH = 8 };
enum Space { GENERIC, GLOBAL, SHARED, LOCAL, PARAMETERS, AREA };
enum Flag { SATURATE = 1, NEGATE_C = 2, NAN_WINS = 4, POLLING = 8, WIDE_ADDRESS = 16 };

struct Span {
    uint64_t begin, end;
};

// How a launch ended, or that it has not. Mirrored by kernels/ptx/findings.py.
enum Status {
    FINISHED, RUNNING, OUT_OF_BOUNDS, MISALIGNED, NULL_POINTER, DIVERGENT, DEADLOCK, NOT_IN_MASK,
    NOT_ALL_LANES, TRAP, ASSERTION, SPINNING, NO_MEMORY, BAD_BARRIER, BAD_TARGET
};

struct Finding {  // mirrored by kernels/ptx/machine.py
    int32_t status, pc;
    uint32_t block[3], thread[3];
    uint64_t address, begin, end;
    int32_t bytes, writes, space, lanes;
    char text[512];
};

struct Launch {  // mirrored by kernels/ptx/machine.py
    const Op* ops;
    const int32_t* lists;
    const char *constants, *parameters;
    const Span* allocations;  // in order; none may overlap
    uint64_t* counts;         // by operation: how often a warp executed it, and how many lanes
    int64_t allocation_count;  // -1: addresses are not checked
    int64_t parameter_bytes;
    int32_t entry, register_bytes, area_bytes, local_bytes, local_room;
    uint32_t static_shared, dynamic_shared, total_shared;
    uint32_t grid[3], block[3];
    uint32_t reversed, together;
    const uint64_t* chosen;  // the blocks to run, or null for all
    uint64_t chosen_count;
    uint32_t room, slice;  // blocks at once, operations of a warp until others run; 0: as many as suit
    struct Traffic* traffic;  // what is counted of memory, or null
    struct Chains* chains;    // what is known of latencies, or null
};

// What a function has for the lanes that called it together.
struct Frame {
    Frame* outer;
    int depth, back, call;  // operations: where it returns to, and that of the call
    Mask lanes;             // those that have not returned
    char *registers, *area;
    int area_bytes, local;  // where its local memory begins
};

enum State { READY, LATE, AT_BARRIER, PARTLY, AT_COLLECTIVE };

struct Group {
    Mask lanes, mask;
    Frame* frame;
    int pc, state, barrier;
};

struct Copy {  // one that cp.async has begun
    char *to, *from;
    int lane, bytes, present;
    unsigned group;
};

struct Machine;
struct Block;

// The cycles that a warp would take alone: see chains.h.
struct Chain {
    uint64_t begin, latest, *ready;
    uint32_t issued, barriers;  // of the basic block; that the warp came to
    bool waited;
};

struct Warp {
    Machine* machine;
    Block* block;
    unsigned number;
    Mask live, carry;
    // The group that runs.
    Mask active;
    int pc, meet;  // where it may meet another
    Frame *frame, *first;
    char* registers;
    const char* constants;
    Group groups[LANES];
    int group_count;
    unsigned spun;
    uint32_t tid[3][LANES];
    uint64_t brought[LANES], result[LANES];  // for collectives
    int32_t argument[LANES], clamp[LANES];
    bool holds[LANES];
    Copy* copies;
    int copy_count, copy_room;
    unsigned committed[LANES];
    Chain chain;

    template <class T>
    T* at(int32_t offset) {
        return (T*)(registers + offset);
    }
    template <class T>
    const T* in(int32_t offset) const {
        return (const T*)(offset >= 0 ? registers + offset : constants + ~offset);
    }
    Mask predicate(int32_t offset) const { return *in<Mask>(offset); }
};

struct Barrier {
    unsigned arrived, threads, count, expected;
};

struct Block {
    uint32_t index[3];
    unsigned live;
    Warp* warps;
    char *shared, *local;
    Barrier barriers[BARRIERS];
    bool moved;   // whether something happened besides spinning
    bool running;
    unsigned sm;        // where it would run
    uint64_t arrived[4];  // cycles when the last warp came to one of the last barriers
};

struct Machine {
    Launch launch;
    Block** blocks;
    uint64_t block_count, next_block, resident, room;
    unsigned warps_a_block, threads;
    uint64_t steps, spins;
    unsigned* free_sms;  // those that ended blocks leave
    unsigned free_count;
    Span last;  // the allocation that was accessed last
    Frame* spare;  // of warps that have ended, for others
    Finding* finding;
    jmp_buf escape;
    char* output;
    size_t output_size, output_room;
};

// -- findings ----------------------------------------------------------------------------------

[[noreturn]] inline void fail(Warp& w, Status status, int lane) {
    Finding& f = *w.machine->finding;
    f.status = status;
    f.pc = w.pc;
    for (int i = 0; i < 3; ++i) {
        f.block[i] = w.block->index[i];
        f.thread[i] = w.tid[i][lane];
    }
    longjmp(w.machine->escape, 1);
}

inline void note(Warp& w, const char* format, ...) {
    Finding& f = *w.machine->finding;
    size_t used = strlen(f.text);
    va_list values;
    va_start(values, format);
    vsnprintf(f.text + used, sizeof f.text - used, format, values);
    va_end(values);
}

// -- loops over lanes --------------------------------------------------------------------------

template <class F>
inline void each(Mask m, F f) {
    if (m == ALL) {
#pragma GCC ivdep
        for (int i = 0; i < LANES; ++i) f(i);
    } else {
        for (; m; m &= m - 1) f(__builtin_ctz(m));
    }
}

template <class D, class A, class F>
inline void unary(Warp& w, const Op& o, Mask m, F f) {
    D* to = w.at<D>(o.to);
    const A* a = w.in<A>(o.a);
    each(m, [=](int i) { to[i] = f(a[i]); });
}

template <class D, class A, class B, class F>
inline void binary(Warp& w, const Op& o, Mask m, F f) {
    D* to = w.at<D>(o.to);
    const A* a = w.in<A>(o.a);
    const B* b = w.in<B>(o.b);
    each(m, [=](int i) { to[i] = f(a[i], b[i]); });
}

template <class D, class A, class B, class C, class F>
inline void ternary(Warp& w, const Op& o, Mask m, F f) {
    D* to = w.at<D>(o.to);
    const A* a = w.in<A>(o.a);
    const B* b = w.in<B>(o.b);
    const C* c = w.in<C>(o.c);
    each(m, [=](int i) { to[i] = f(a[i], b[i], c[i]); });
}

// What an operation of the table does, for the lanes of a mask.
using Run = void (*)(Warp&, const Op&, Mask);
enum Kind {
    PLAIN, BRANCH, TABLE_BRANCH, EXIT, RETURN, CALL, BARRIER, WARP_BARRIER, COLLECTIVE, WHOLE_WARP,
    SLEEP
};
struct Entry {
    const char* name;
    Run run;
    Kind kind;
};

#define MGP_UNARY(name, D, A, ...)                                         \
    {name, [](Warp& w, const Op& o, Mask m) {                              \
        unary<D, A>(w, o, m, [](A a) -> D { return __VA_ARGS__; });        \
    }, PLAIN},
#define MGP_BINARY(name, D, T, ...)                                        \
    {name, [](Warp& w, const Op& o, Mask m) {                              \
        binary<D, T, T>(w, o, m, [](T a, T b) -> D { return __VA_ARGS__; }); \
    }, PLAIN},
#define MGP_TERNARY(name, D, T, C, ...)                                    \
    {name, [](Warp& w, const Op& o, Mask m) {                              \
        ternary<D, T, T, C>(w, o, m, [](T a, T b, C c) -> D { return __VA_ARGS__; }); \
    }, PLAIN},

}  // namespace mgp
