// Cooperative launches: all blocks at once on one OS thread, a grid's barrier between them.
//
// A block runs until all of its threads wait at the grid's barrier, or for long for other blocks;
// then what the OS thread has one copy of (pointers to shared memory, file-scope variables) is put
// aside and the next block runs.
#pragma once

#include "shared.h"
#include "waits.h"

namespace {

void put_aside(Runner* w) {
    size_t bytes = 0;
    for (unsigned i = 0; i < w->kept_count; ++i) bytes += w->kept[i].bytes;
    w->saved = (unsigned char*)realloc(w->saved, bytes + 1);
    unsigned char* to = w->saved;
    for (unsigned i = 0; i < w->kept_count; to += w->kept[i++].bytes) {
        memcpy(to, w->kept[i].address, w->kept[i].bytes);
    }
}

void take_back(Runner* w) {
    const unsigned char* from = w->saved;
    for (unsigned i = 0; i < w->kept_count; from += w->kept[i++].bytes) {
        memcpy(w->kept[i].address, from, w->kept[i].bytes);
        *w->kept[i].epoch = w->epoch;
    }
}

// The threads that wait at the grid's barrier may go on.
void pass_grid_barrier(Runner* w) {
    for (unsigned i = 0; i < w->at_grid; ++i) append(w->ready, w->grid[i]);
    w->at_grid = 0;
}

// That some blocks wait for blocks that have ended.
void blocks_ended(Runner* w, uint64_t waiting, uint64_t blocks) {
    w->report->status = FAILED;
    say(w->report, "deadlock: %llu of %llu blocks wait at this_grid().sync() on line %d and the"
        " others have ended; every block must reach it", (unsigned long long)waiting,
        (unsigned long long)blocks, w->grid_line);
}

// Runs a block that has begun, to its end or to the grid's barrier.
void run_first(Runner* w) {
    if (Fiber* fiber = take_fiber(w)) return mgh_switch(&w->main_sp, fiber->sp);
    w->report->status = FAILED;
    say(w->report, "no memory for the stacks of threads");
}

// Runs a block until its threads have ended, wait at the grid's barrier or for other blocks.
void run_on(Runner* w, bool first) {
    current = w;
    w->running = true;
    if (first) {
        run_first(w);
    } else {
        take_back(w);
        mgh_switch(&w->main_sp, pop(w->ready)->sp);
    }
    w->running = false;
    if (w->report->status == FINE && w->live) put_aside(w);
}

// Runs the blocks, whose runners are ready, to their ends.
void run_together(Runner** runners, uint64_t blocks, bool reversed) {
    Report* report = runners[0]->report;
    for (bool first = true;; first = false) {
        uint64_t waiting = 0, live = 0;
        Runner* last = nullptr;
        for (uint64_t i = 0; i < blocks; ++i) {
            Runner* w = runners[reversed ? blocks - 1 - i : i];
            if (w->live && w->at_grid < w->live) run_on(w, first);
            if (report->status != FINE) return;
            if (w->live) ++live;
            if (w->live && w->at_grid == w->live) ++waiting, last = w;
        }
        if (!live) return;
        if (waiting < live) continue;
        if (waiting < blocks) return blocks_ended(last, waiting, blocks);
        for (uint64_t i = 0; i < blocks; ++i) pass_grid_barrier(runners[i]);
    }
}

}  // namespace

extern "C" void mgh_grid_barrier(int line) {
    Fiber* fiber = self();
    Runner* w = current;
    if (!w->cooperative) {
        say(w->report, "this_grid().sync() on line %d needs a cooperative launch:"
            " raw_kernel(..., enable_cooperative_groups=True)", line);
        fail(w, FAILED);
    }
    if (w->recorder) record_barrier(w, fiber, OF_GRID, line);
    w->grid_line = line;
    w->grid[w->at_grid++] = fiber;
    wait(fiber, AT_GRID, line);
}
