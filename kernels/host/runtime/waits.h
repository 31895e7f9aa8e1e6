// When no thread of a block can go on: __activemask() is answered, or it is a deadlock.
#pragma once

#include "scheduler.h"
#include "../include/minigrad/warp.h"

namespace {

enum Wait { AT_BARRIER = 100, AT_ACTIVEMASK, AT_GRID };

const char* name_of(const Fiber* fiber, int op) {
    static const char* const warp_ops[] = {
        "__syncwarp",       "__shfl_sync",       "__ballot_sync",     "__any_sync",
        "__all_sync",       "__match_any_sync",  "__match_all_sync",  "__reduce_add_sync",
        "__reduce_min_sync", "__reduce_min_sync", "__reduce_max_sync", "__reduce_max_sync",
        "__reduce_and_sync", "__reduce_or_sync",  "__reduce_xor_sync"};
    if (op == AT_BARRIER) return "__syncthreads";
    if (op == AT_ACTIVEMASK) return "__activemask";
    if (op == AT_GRID) return "this_grid().sync()";
    if (op == COLLECTIVE) return fiber->what;
    return warp_ops[op];
}

// Reports that the threads of a block wait for each other: how many wait where.
[[noreturn]] void deadlock(Runner* w) {
    Report* report = w->report;
    report->status = FAILED;
    for (unsigned i = 0; i < w->barrier.arrived; ++i) {
        w->barrier.places[i].fiber->op = AT_BARRIER;
        w->barrier.places[i].fiber->line = w->barrier.line;
    }
    say(report, "deadlock in block (%u, %u, %u): ", w->block.x, w->block.y, w->block.z);
    unsigned places = 0;
    for (unsigned i = 0; i < w->fiber_count; ++i) {
        Fiber* first = w->fibers[i];
        bool seen = !first->busy;
        unsigned count = 0;
        for (unsigned j = 0; j < w->fiber_count && !seen; ++j) {
            Fiber* other = w->fibers[j];
            if (!other->busy || other->op != first->op || other->line != first->line) continue;
            if (j < i) seen = true;
            else ++count;
        }
        if (seen) continue;
        if (++places > 6) break;
        name_thread(report, first, first->line);
        say(report, "%s%u thread%s at %s on line %d", places > 1 ? ", " : "", count,
            count == 1 ? " waits" : "s wait", name_of(first, first->op), first->line);
        if (first->op < AT_BARRIER) say(report, " with mask 0x%08x", first->mask);
        say(report, " (first: thread (%u, %u, %u))", first->thread.x, first->thread.y,
            first->thread.z);
    }
    say(report, "; every thread that a barrier or a mask names must reach it or exit");
    give_up(w);
}

[[noreturn]] void divergent_barrier(Fiber* fiber, int line) {
    Runner* w = current;
    w->report->status = FAILED;
    name_thread(w->report, w->barrier.places[0].fiber, w->barrier.line);
    name_thread(w->report, fiber, line);
    say(w->report, "divergent barrier: ");
    say_thread(w->report, fiber);
    say(w->report,
        " is at the barrier on line %d while %u other thread%s of its block wait%s at the one on"
        " line %d; all threads of a block must reach the same barrier",
        line, w->barrier.arrived, w->barrier.arrived == 1 ? "" : "s",
        w->barrier.arrived == 1 ? "s" : "", w->barrier.line);
    give_up(w);
}

// Answers __activemask() as if the lanes of a warp ran in step: the lanes at the same line.
void idle(Runner* w) {
    Queue& active = w->active;
    if (active.first == active.last) {
        if (w->at_grid && w->at_grid == w->live) return;
        deadlock(w);
    }
    int line[MAX_THREADS / LANES] = {};
    unsigned mask[MAX_THREADS / LANES] = {};
    for (unsigned i = active.first; i != active.last; ++i) {
        Fiber* f = active.places[i % MAX_THREADS].fiber;
        unsigned warp = f->linear / LANES;
        if (!mask[warp]) line[warp] = f->line;
        if (line[warp] == f->line) mask[warp] |= 1u << f->linear % LANES;
    }
    for (unsigned count = active.last - active.first; count; --count) {
        Fiber* f = pop(active)->fiber;
        unsigned warp = f->linear / LANES;
        if (mask[warp] >> f->linear % LANES & 1) {
            f->value = mask[warp];
            make_ready(w, f);
        } else {
            append(active, f);
        }
    }
}

}  // namespace
