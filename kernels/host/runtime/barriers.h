// The block's barrier: passed when every thread that has not exited waits at it.
#pragma once

#include "waits.h"

namespace {

// No thread is ready when all wait, so that the two queues can change places.
void pass_barrier(Runner* w, unsigned waiting) {
    Barrier& barrier = w->barrier;
    barrier.result = barrier.count;
    barrier.passed = barrier.arrived;
    barrier.arrived = 0;
    barrier.count = 0;
    w->vain = 0;
    Place* empty = w->ready.places;
    w->ready = {barrier.places, 0, waiting};
    barrier.places = empty;
}

// The same under the lab's recorder, where the last to arrive goes on last.
__attribute__((noinline)) void arrive_recorded(Runner* w, Fiber* fiber, int line) {
    Barrier& barrier = w->barrier;
    record_barrier(w, fiber, OF_BLOCK, line);
    unsigned before = barrier.arrived++;
    barrier.places[before].fiber = fiber;
    if (before + 1 != w->live) return run_others(fiber, &barrier.places[before].sp);
    record_passed(w);
    pass_barrier(w, before + 1);
    take_turn(w, fiber);
}

// Arrives, and waits unless it is the last.
inline void arrive(Fiber* fiber, int line) {
    Runner* w = current;
    Barrier& barrier = w->barrier;
    if (barrier.arrived == 0) barrier.line = line;
    else if (__builtin_expect(barrier.line != line, 0)) divergent_barrier(fiber, line);
    if (__builtin_expect(w->recorder != nullptr, 0)) return arrive_recorded(w, fiber, line);
    unsigned before = barrier.arrived++;
    if (before + 1 == w->live) return pass_barrier(w, before);
    barrier.places[before].fiber = fiber;
    run_others(fiber, &barrier.places[before].sp);
}

}  // namespace

extern "C" void mgh_barrier(int line) { arrive(self(), line); }

// Sums the predicates; "and" and "or" are derived from the sum.
extern "C" int mgh_barrier_reduce(int op, int predicate, int line) {
    Fiber* fiber = self();
    Barrier& barrier = current->barrier;
    barrier.count += predicate;
    arrive(fiber, line);
    if (op == 0) return barrier.result;
    return op == 1 ? barrier.result == barrier.passed : barrier.result != 0;
}
