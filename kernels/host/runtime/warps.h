// Operations of a warp: the last lane of a mask to arrive computes the result for all of them.
#pragma once

#include <string.h>

#include "waits.h"

namespace {

constexpr uint64_t POISON = ~(uint64_t)0;  // what a shuffle reads from a lane that is not there

uint64_t combine(int op, uint64_t a, uint64_t b) {
    int x = (int)a, y = (int)b;
    unsigned u = a, v = b;
    switch (op) {
        case ADD: return u + v;
        case MIN_SIGNED: return (unsigned)(x < y ? x : y);
        case MAX_SIGNED: return (unsigned)(x > y ? x : y);
        case MIN_UNSIGNED: return u < v ? u : v;
        case MAX_UNSIGNED: return u > v ? u : v;
        case BIT_AND: return u & v;
        case BIT_OR: return u | v;
        default: return u ^ v;
    }
}

template <class Function>
void for_lanes(unsigned lanes, Function function) {
    for (; lanes; lanes &= lanes - 1) function(__builtin_ctz(lanes));
}

void compute(const Warp& warp, int op, Collective function, unsigned lanes) {
    uint64_t value[LANES] = {}, all = 0;
    for_lanes(lanes, [&](int i) { value[i] = warp.lane[i]->value; });
    int first = __builtin_ctz(lanes);
    auto same_as = [&](int lane) {
        unsigned same = 0;
        for_lanes(lanes, [&](int i) { same |= (unsigned)(value[i] == value[lane]) << i; });
        return same;
    };
    switch (op) {
        case SYNCWARP: return;
        case COLLECTIVE: return function((void* const*)value, lanes);
        case SHUFFLE:
            for_lanes(lanes, [&](int i) {
                int source = warp.lane[i]->argument;
                warp.lane[i]->value = lanes >> source & 1 ? value[source] : POISON;
            });
            return;
        case MATCH_ANY: for_lanes(lanes, [&](int i) { warp.lane[i]->value = same_as(i); }); return;
        case MATCH_ALL: all = same_as(first) == lanes ? lanes : 0; break;
        case BALLOT:
        case ANY:
        case ALL:
            for_lanes(lanes, [&](int i) { all |= value[i] << i; });
            if (op != BALLOT) all = op == ANY ? all != 0 : all == lanes;
            break;
        default:
            all = value[first];
            for_lanes(lanes & (lanes - 1), [&](int i) { all = combine(op, all, value[i]); });
    }
    for_lanes(lanes, [&](int i) { warp.lane[i]->value = all; });
}

// In checked mode, a shuffle whose source is another thread that does not execute it is an error;
// lanes that the block does not have give poison.
void check_sources(const Runner* w, const Warp& warp, const Slot& slot) {
    for_lanes(slot.arrived, [&](int i) {
        Fiber* fiber = warp.lane[i];
        unsigned source = fiber->argument;
        bool exists = fiber->linear / LANES * LANES + source < w->threads;
        if (slot.arrived >> source & 1 || !exists) return;
        Report* report = w->report;
        report->status = FAILED;
        say(report, "%s on line %d: ", name_of(fiber, slot.op), slot.line);
        name_thread(report, fiber, slot.line);
        say_thread(report, fiber);
        say(report, " reads from lane %u, which does not execute it (it has ended, or is in another"
            " branch): the value is undefined; let all lanes execute the shuffle, and guard the"
            " data instead", source);
        give_up(current);
    });
}

// All lanes of the slot are there: they get their results and are ready, but for `running`.
void finish(Runner* w, Warp& warp, unsigned slot, Fiber* running) {
    unsigned lanes = warp.slot[slot].arrived;
    if (w->checked && warp.slot[slot].op == SHUFFLE) check_sources(w, warp, warp.slot[slot]);
    compute(warp, warp.slot[slot].op, warp.slot[slot].compute, lanes);
    warp.slot[slot] = warp.slot[--warp.slots];
    for_lanes(lanes, [&](int i) {
        if (warp.lane[i] != running) make_ready(w, warp.lane[i]);
    });
}

[[noreturn]] void wrong_lanes(Fiber* fiber, const char* call, int line, const char* problem) {
    Report* report = current->report;
    report->status = FAILED;
    say(report, "%s on line %d: ", call, line);
    say_thread(report, fiber);
    say(report, " %s", problem);
    give_up(current);
}

// Under the lab's recorder the last to arrive goes on last; `all` says whether this is the one.
__attribute__((noinline)) void join_recorded(Runner* w, Fiber* fiber, int op, int line, bool all,
                                             unsigned slot) {
    if (op == SYNCWARP) record_barrier(w, fiber, OF_WARP, line);
    ++w->waiting;
    if (!all) return wait(fiber, op, line);
    finish(w, w->warp[fiber->linear / LANES], slot, nullptr);
    take_turn(w, fiber);
}

inline uint64_t join(Fiber* fiber, int op, unsigned mask, uint64_t value, int argument, int line,
                     Collective function) {
    Runner* w = current;
    Warp& warp = w->warp[fiber->linear / LANES];
    unsigned bit = 1u << fiber->linear % LANES;
    if (__builtin_expect(!(mask & bit), 0)) {
        wrong_lanes(fiber, name_of(fiber, op), line, "is not in the mask that it gives");
    }
    fiber->value = value;
    fiber->argument = argument;
    fiber->mask = mask;
    warp.lane[fiber->linear % LANES] = fiber;
    unsigned s = 0;
    while (s < warp.slots && warp.slot[s].mask != mask) ++s;
    if (s == warp.slots) warp.slot[warp.slots++] = {mask, 0, op, line, function};
    Slot& slot = warp.slot[s];
    if (__builtin_expect(slot.op != op || slot.compute != function, 0)) {
        wrong_lanes(fiber, name_of(fiber, op), line,
                    "meets lanes of its warp that are at another operation with the same mask");
    }
    slot.arrived |= bit;
    bool all = slot.arrived == (mask & warp.live);
    if (__builtin_expect(w->recorder != nullptr, 0)) join_recorded(w, fiber, op, line, all, s);
    else if (all) finish(w, warp, s, fiber);
    else ++w->waiting, wait(fiber, op, line);
    return fiber->value;
}

}  // namespace

extern "C" uint64_t mgh_warp(int op, unsigned mask, uint64_t value, int argument, int line) {
    return join(self(), op, mask, value, argument, line, nullptr);
}

// The last lane of the mask to arrive runs `compute` on what all brought.
extern "C" void mgh_collective(unsigned mask, void* operand, Collective compute, const char* what,
                               int line) {
    Fiber* fiber = self();
    fiber->what = what;
    join(fiber, COLLECTIVE, mask, (uint64_t)operand, 0, line, compute);
}

extern "C" unsigned mgh_activemask(int line) {
    Fiber* fiber = self();
    append(current->active, fiber);
    ++current->waiting;
    wait(fiber, AT_ACTIVEMASK, line);
    return fiber->value;
}
