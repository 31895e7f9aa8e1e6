// Shared memory as the runtime sees it: variables, their 32-bit addresses, asynchronous copies.
#pragma once

#include "scheduler.h"

namespace {

[[noreturn]] void fail(Runner* w, Status status) {
    w->report->status = status;
    give_up(w);
}

void note_variable(Runner* w, void* address, size_t bytes, uint64_t* epoch) {
    if (w->variable_count == MAX_VARIABLES) {
        say(w->report, "more than %u shared variables", MAX_VARIABLES);
        fail(w, TOO_MUCH_SHARED);
    }
    w->variables[w->variable_count++] = {address, bytes, epoch};
}

void finish_copy(const Copy& copy) {
    memcpy(copy.to, copy.from, copy.present);
    memset((char*)copy.to + copy.present, 0, copy.bytes - copy.present);
}

// Forgets the copies of the block before, which nothing waited for.
void forget_copies(Runner* w) {
    if (!w->copies) return;
    for (Pending& pending : w->pending) pending.count = pending.committed = 0;
    w->copies = false;
}

}  // namespace

extern "C" void mgh_keep(Worker* worker, void* variable, size_t bytes, uint64_t* epoch) {
    note_variable((Runner*)worker, variable, bytes, epoch);
}

extern "C" void mgh_new_shared(Worker* worker, void* variable, size_t bytes, uint64_t* epoch) {
    Runner* w = (Runner*)worker;
    memset(variable, 0xff, bytes);
    note_variable(w, variable, bytes, epoch);
    w->static_shared += bytes;
    if (w->static_shared <= 48 << 10) return;
    say(w->report, "%u bytes or more of static shared memory; a block may have %d (more only as"
        " dynamic shared memory, extern __shared__)", w->static_shared, 48 << 10);
    fail(w, TOO_MUCH_SHARED);
}

// The pointer whose lower 32 bits are given: PTX knows shared memory by 32-bit addresses.
extern "C" void* mgh_from_shared(uint64_t address, int line) {
    Runner* w = current;
    auto inside = [&](void* start, size_t bytes) -> void* {
        unsigned offset = (unsigned)address - (unsigned)(uintptr_t)start;
        return offset < bytes ? (char*)start + offset : nullptr;
    };
    if (void* found = inside(w->dynamic, w->dynamic_shared)) return found;
    for (unsigned i = 0; i < w->variable_count; ++i) {
        void* found = inside(w->variables[i].address, w->variables[i].bytes);
        if (found) return found;
    }
    Fiber* fiber = self();
    say(w->report, "line %d: ", line);
    say_thread(w->report, fiber);
    say(w->report, " gives an instruction the address 0x%x, which is not in shared memory",
        (unsigned)address);
    fail(w, FAILED);
}

// cp.async: until it is waited for, the destination holds poison.
extern "C" void mgh_copy_async(void* to, const void* from, unsigned bytes, unsigned present,
                               int line) {
    Runner* w = current;
    Fiber* fiber = self();
    if (((uintptr_t)to | (uintptr_t)from) % bytes) {
        say(w->report, "line %d: ", line);
        say_thread(w->report, fiber);
        say(w->report, " copies %u bytes asynchronously %s an address that is no multiple of %u",
            bytes, (uintptr_t)to % bytes ? "to" : "from", bytes);
        fail(w, FAILED);
    }
    Pending& pending = w->pending[fiber->linear];
    w->copies = true;
    if (pending.count == pending.room) {
        pending.room = pending.room ? 2 * pending.room : 8;
        pending.copies = (Copy*)realloc(pending.copies, pending.room * sizeof(Copy));
    }
    memset(to, 0xff, bytes);
    pending.copies[pending.count++] = {to, from, bytes, present < bytes ? present : bytes,
                                       pending.committed};
}

extern "C" void mgh_copy_commit() { ++current->pending[self()->linear].committed; }

// Finishes the thread's copies but for those of the last `groups` groups.
extern "C" void mgh_copy_wait(unsigned groups) {
    Pending& pending = current->pending[self()->linear];
    unsigned done = 0;
    while (done < pending.count && pending.copies[done].group + groups < pending.committed) {
        finish_copy(pending.copies[done++]);
    }
    pending.count -= done;
    memmove(pending.copies, pending.copies + done, pending.count * sizeof(Copy));
}
