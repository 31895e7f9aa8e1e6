// Shared memory in the runtime: variables, their 32-bit addresses, asynchronous copies.
#pragma once

#include "scheduler.h"

namespace {

[[noreturn]] void fail(Runner* w, Status status) {
    w->report->status = status;
    give_up(w);
}

void note(Runner* w, Variable* list, unsigned& count, Variable variable) {
    if (count == MAX_VARIABLES) {
        say(w->report, "more than %u shared variables", MAX_VARIABLES);
        fail(w, TOO_MUCH_SHARED);
    }
    list[count++] = variable;
}

// Notes memory of the block, by which PTX's addresses are understood, and how much there is.
void note_shared(Runner* w, void* address, size_t bytes) {
    note(w, w->variables, w->variable_count, {address, bytes, nullptr});
    w->static_shared += bytes;
    if (w->static_shared <= STATIC_LIMIT) return;
    say(w->report, "%u bytes or more of static shared memory; a block may have %zu (more only as"
        " dynamic shared memory, extern __shared__)", w->static_shared, STATIC_LIMIT);
    fail(w, TOO_MUCH_SHARED);
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

// This OS thread's variables that belong to the block.
extern "C" void mgh_keep(Worker* worker, void* variable, size_t bytes, uint64_t* epoch) {
    Runner* w = (Runner*)worker;
    note(w, w->kept, w->kept_count, {variable, bytes, epoch});
}

extern "C" void mgh_new_shared(Worker* worker, void* variable, size_t bytes, uint64_t* epoch,
                               const char* name, const unsigned* shape) {
    Runner* w = (Runner*)worker;
    memset(variable, 0xff, bytes);
    mgh_keep(worker, variable, bytes, epoch);
    note_shared(w, variable, bytes);
    if (w->recorder) record_shared(w, variable, variable, bytes, name, shape, true);
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
    if (w->recorder) {
        record_at(w, from, present < bytes ? present : bytes, LOAD, line);
        record_at(w, to, bytes, STORE, line);
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
