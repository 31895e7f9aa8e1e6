// Checked mode: the compiler calls us before every load and store (as for the kernel address
// sanitizer) and at every index of an array type (as for the undefined behaviour sanitizer).
//
// Arrays lie in slots of an arena of address space, so far apart that an index that is wrong by
// gigabytes still falls into the slot of its own array; shared variables lie in slots likewise.
#pragma once

#include <dlfcn.h>

#include "shared.h"

namespace {

constexpr unsigned SLOTS = 64;
Span spans[SLOTS];
uintptr_t arena;
size_t arena_bytes;
unsigned slot_bits;
constexpr size_t MARGIN = 1 << 20;

uintptr_t reserve(size_t bytes) {
    void* memory = mmap(nullptr, bytes, PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? 0 : (uintptr_t)memory;
}

bool have_arena() {
    for (unsigned bits = 36; !arena && bits >= 28; bits -= 4) {
        slot_bits = bits;
        arena_bytes = (size_t)SLOTS << bits;
        arena = reserve(arena_bytes);
    }
    if (!arena) arena_bytes = 0;
    return arena;
}

// The bytes from the middle of a slot on, to read and to write; under the recorder also `margin`
// bytes on both sides, so that a kernel goes on after it went too far.
bool open_slot(uintptr_t start, unsigned bits, size_t bytes, size_t margin, Span& span) {
    if (bytes + margin > (size_t)1 << (bits - 1)) return false;
    uintptr_t begin = start + ((size_t)1 << (bits - 1));
    size_t room = bytes + 2 * margin;
    if (room && mprotect((void*)(begin - margin), room, PROT_READ | PROT_WRITE)) return false;
    span = {begin, begin + bytes, span.name};
    return true;
}

void remember_frames(Report* report, const uintptr_t* frame) {
    uintptr_t base = (uintptr_t)frame & ~(uintptr_t)(STACK_BYTES - 1);
    while (report->frames < 16 && (uintptr_t)frame > base &&
           (uintptr_t)(frame + 2) < base + STACK_BYTES) {
        report->frame[report->frames++] = frame[1];
        const uintptr_t* outer = (const uintptr_t*)frame[0];
        if (outer <= frame) break;
        frame = outer;
    }
}

void remember_library(Report* report, Runner* w) {
    Dl_info info;
    if (dladdr((void*)w->run_threads, &info)) report->base = (uintptr_t)info.dli_fbase;
}

__attribute__((noinline)) void outside(uintptr_t address, size_t size, bool writes, int slot,
                                       const Span& span, const uintptr_t* frame) {
    Runner* w = current;
    if (!w || !w->running) return;
    Report* report = w->report;
    report->address = address;
    report->size = size;
    report->writes = writes;
    report->slot = slot;
    report->begin = span.begin;
    report->end = span.end;
    report->name = span.name;
    remember_frames(report, frame);
    remember_library(report, w);
    say_thread(report, self());
    fail(w, OUT_OF_BOUNDS);
}

inline void check(uintptr_t a, size_t size, bool writes, void* frame) {
    if (a - arena < arena_bytes) {
        unsigned slot = (a - arena) >> slot_bits;
        const Span& span = spans[slot];
        if (a >= span.begin && a + size <= span.end) return;
        return outside(a, size, writes, slot, span, (uintptr_t*)frame);
    }
    Runner* w = current;
    if (w && a - w->arena < w->arena_bytes) {
        const Span& span = w->spans[(a - w->arena) >> SHARED_BITS];
        if (a >= span.begin && a + size <= span.end) return;
        return outside(a, size, writes, IN_SHARED, span, (uintptr_t*)frame);
    }
    if (a < 4096) outside(a, size, writes, AT_NULL, {}, (uintptr_t*)frame);
}

// Shared memory of this block in a slot of its own, poisoned.
void* place_in_slot(Runner* w, unsigned slot, size_t bytes, const char* name) {
    if (!w->arena && (w->arena = reserve((size_t)SHARED_SLOTS << SHARED_BITS))) {
        w->arena_bytes = (size_t)SHARED_SLOTS << SHARED_BITS;
    }
    Span& span = w->spans[slot];
    span.name = name;
    uintptr_t start = w->arena + ((uintptr_t)slot << SHARED_BITS);
    if (slot >= SHARED_SLOTS || !w->arena || !open_slot(start, SHARED_BITS, bytes, w->recorder ? MARGIN : 0, span)) {
        say(w->report, "checked mode: no memory for shared variables");
        fail(w, FAILED);
    }
    memset((void*)span.begin, 0xff, bytes);
    return (void*)span.begin;
}

}  // namespace

extern "C" void* mgh_place(unsigned slot, size_t bytes, bool recorded) {
    bool placed = slot < SLOTS && have_arena() &&
                  open_slot(arena + ((uintptr_t)slot << slot_bits), slot_bits, bytes,
                            recorded ? MARGIN : 0, spans[slot]);
    return placed ? (void*)spans[slot].begin : nullptr;
}

extern "C" void mgh_unplace(unsigned slot) {
    Span& span = spans[slot];
    size_t bytes = span.end - span.begin + 2 * MARGIN;
    mmap((void*)(span.begin - MARGIN), bytes, PROT_NONE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    span = {};
}

extern "C" void mgh_place_shared(Worker* worker, Shared* variable, size_t bytes, size_t align,
                                 const char* name, const unsigned* shape) {
    Runner* w = (Runner*)worker;
    variable->epoch = w->epoch;
    mgh_keep(worker, &variable->memory, sizeof variable->memory, &variable->epoch);
    if (w->checked) {
        unsigned slot = 1 + w->placed++;
        variable->memory = place_in_slot(w, slot, bytes, name);
        if (w->recorder) {
            w->rows[slot] = record_shared(w, variable, variable->memory, bytes, name, shape, false);
        }
        return note_shared(w, variable->memory, bytes);
    }
    size_t start = (w->static_end + align - 1) / align * align;
    variable->memory = w->statics + start;
    note_shared(w, variable->memory, bytes);  // not more than the limit, but for what aligns it
    w->static_end = start + bytes;
    if (w->static_end > sizeof w->statics) {
        say(w->report, "no room to align shared variables");
        fail(w, TOO_MUCH_SHARED);
    }
    memset(variable->memory, 0xff, bytes);
}

#define MGH_CHECK(n)                                                                          \
    extern "C" void __asan_load##n##_noabort(uintptr_t a) {                                   \
        check(a, n, false, __builtin_frame_address(0));                                       \
    }                                                                                         \
    extern "C" void __asan_store##n##_noabort(uintptr_t a) {                                  \
        check(a, n, true, __builtin_frame_address(0));                                        \
    }
MGH_CHECK(1)
MGH_CHECK(2)
MGH_CHECK(4)
MGH_CHECK(8)
MGH_CHECK(16)
#undef MGH_CHECK
extern "C" void __asan_loadN_noabort(uintptr_t a, size_t size) {
    check(a, size, false, __builtin_frame_address(0));
}
extern "C" void __asan_storeN_noabort(uintptr_t a, size_t size) {
    check(a, size, true, __builtin_frame_address(0));
}
extern "C" void __asan_handle_no_return() {}

struct TypeName {  // as compilers write them for the undefined behaviour sanitizer
    uint16_t kind, info;
    char name[1];
};
struct IndexSite {
    const char* file;
    uint32_t line, column;
    const TypeName *array, *index;
};

extern "C" void __ubsan_handle_out_of_bounds(const IndexSite* site, uintptr_t value) {
    Runner* w = current;
    if (!w || !w->running) return;
    unsigned bits = 1u << (site->index->info >> 1);
    long long index = value;
    bool has_sign = site->index->info & 1;
    if (bits < 64 && has_sign) index = (long long)(value << (64 - bits)) >> (64 - bits);
    if (w->recorder) {
        return record_index(w, index, site->array->name,
                            (const uintptr_t*)__builtin_frame_address(0));
    }
    say(w->report, "index %lld is out of bounds for an array of type %s, ", index,
        site->array->name);
    say_thread(w->report, self());
    w->report->line = site->line;
    fail(w, OUT_OF_BOUNDS);
}
