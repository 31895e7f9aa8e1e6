// Checked mode: the compiler puts a check of shadow memory before every load and store, or a call
// (as for the kernel address sanitizer), and one at every index of an array type (as for the
// undefined behaviour sanitizer).
//
// Arrays lie in slots of an arena of address space, so far apart that an index that is wrong by
// gigabytes still falls into the slot of its own array; shared variables lie in slots likewise.
// Around the bytes that belong to it a slot cannot be accessed: a fault says where (faults.h).
#pragma once

#include <dlfcn.h>

#include "shadow.h"
#include "shared.h"

namespace {

constexpr unsigned SLOTS = 128;  // the first half is for the lab's recorder (checked.py)
Span spans[SLOTS];
uintptr_t arena;
size_t arena_bytes;
unsigned slot_bits;
constexpr size_t MARGIN = 1 << 20;
constexpr size_t KEPT = 16 << 20;  // a slot up to so large stays open for the next launch
constexpr size_t GUARD = 4096;     // bytes on both sides that shadow memory forbids as well

uintptr_t reserve(size_t bytes) {
    void* memory = mmap(nullptr, bytes, PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? 0 : (uintptr_t)memory;
}

bool reserve_arena() {
    uintptr_t reserved = 0;
    for (unsigned bits = 36; !reserved && bits >= 28; bits -= 4) {
        slot_bits = bits;
        arena_bytes = (size_t)SLOTS << bits;
        reserved = reserve(arena_bytes);
    }
    if (!reserved) arena_bytes = 0;
    arena = reserved;
    return reserved;
}

bool have_arena() {
    static const bool reserved = reserve_arena();
    return reserved;
}

void close_slot(Span& span) {
    if (!span.room) return;
    size_t page = sysconf(_SC_PAGESIZE);
    uintptr_t first = span.begin - span.margin;
    mmap((void*)first, span.room, PROT_NONE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    allow(span.begin - GUARD, span.begin);
    allow(span.end & ~(uintptr_t)7, (span.end + page - 1) / page * page + GUARD);
    span = {};
}

// The bytes from the middle of a slot on, to read and to write; under the recorder also `margin`
// bytes on both sides, so that a kernel goes on after it went too far.
bool open_slot(uintptr_t start, unsigned bits, size_t bytes, size_t margin, Span& span) {
    size_t page = sysconf(_SC_PAGESIZE), half = (size_t)1 << (bits - 1);
    if (bytes + margin + page + GUARD > half) return false;
    uintptr_t begin = start + half, after = (begin + bytes + page - 1) / page * page;
    if (span.room && span.end == begin + bytes && span.margin == margin) return true;
    close_slot(span);
    size_t room = after - begin + 2 * margin;
    if (room && mprotect((void*)(begin - margin), room, PROT_READ | PROT_WRITE)) return false;
    span = {begin, begin + bytes, span.name, room, margin};
    forbid(begin - GUARD, begin);
    forbid(begin + bytes, after + GUARD);
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

void describe_access(Report* report, uintptr_t address, size_t size, bool writes, int where,
                     const Span& span) {
    report->address = address;
    report->size = size;
    report->writes = writes;
    report->slot = where;
    report->begin = span.begin;
    report->end = span.end;
    report->name = span.name;
}

__attribute__((noinline)) void outside(uintptr_t address, size_t size, bool writes, int where,
                                       const Span& span, const uintptr_t* frame) {
    Runner* w = current;
    if (!w || !w->running) return;
    describe_access(w->report, address, size, writes, where, span);
    remember_frames(w->report, frame);
    remember_library(w->report, w);
    say_thread(w->report, self());
    fail(w, OUT_OF_BOUNDS);
}

// Variables of kernels' libraries, as compilers write them for the address sanitizer.
struct GlobalVariable {
    uintptr_t begin;
    size_t bytes, room;  // `room` with what follows it and may not be accessed
    const char *name, *module;
    uintptr_t initialised, location, indicator;
};
struct GlobalVariables {
    const GlobalVariable* first;
    size_t count;
    GlobalVariables* next;
} *variables;  // only ever grows, from any OS thread

void add_variables(const GlobalVariable* first, size_t count) {
    auto* added = new GlobalVariables{first, count, __atomic_load_n(&variables, __ATOMIC_ACQUIRE)};
    while (!__atomic_compare_exchange_n(&variables, &added->next, added, false, __ATOMIC_RELEASE,
                                        __ATOMIC_ACQUIRE)) {
    }
    for (size_t i = 0; i < count; ++i) {
        forbid(first[i].begin + first[i].bytes, first[i].begin + first[i].room);
    }
}

const GlobalVariable* variable_at(uintptr_t a) {
    GlobalVariables* all = __atomic_load_n(&variables, __ATOMIC_ACQUIRE);
    for (; all; all = all->next) {
        for (size_t i = 0; i < all->count; ++i) {
            if (a - all->first[i].begin < all->first[i].room) return &all->first[i];
        }
    }
    return nullptr;
}

// The memory that an address belongs to, or is near to; `where` is the slot of an array or a Where.
Span locate(uintptr_t a, int& where) {
    Runner* w = current;
    if (a - arena < arena_bytes) return spans[where = (a - arena) >> slot_bits];
    where = IN_SHARED;
    if (w && a - w->arena < w->arena_bytes) return w->spans[(a - w->arena) >> SHARED_BITS];
    where = a < 4096 ? AT_NULL : UNKNOWN;
    if (a / STACK_BYTES == (uintptr_t)__builtin_frame_address(0) / STACK_BYTES) where = IN_LOCAL;
    if (const GlobalVariable* v = where == UNKNOWN ? variable_at(a) : nullptr) {
        where = IN_VARIABLE;
        return {v->begin, v->begin + v->bytes, v->name, 0, 0};
    }
    return {};
}

inline void check(uintptr_t a, size_t size, bool writes, void* frame) {
    int where;
    const Span span = locate(a, where);
    if (where == UNKNOWN || (where == IN_LOCAL && !shadowed)) return;
    if (a >= span.begin && a + size <= span.end) return;
    outside(a, size, writes, where, span, (uintptr_t*)frame);
}

// Shared memory of this block in a slot of its own, poisoned.
void* place_in_slot(Runner* w, unsigned slot, size_t bytes, const char* name) {
    if (!w->arena && (w->arena = reserve((size_t)SHARED_SLOTS << SHARED_BITS))) {
        w->arena_bytes = (size_t)SHARED_SLOTS << SHARED_BITS;
    }
    uintptr_t start = w->arena + ((uintptr_t)slot << SHARED_BITS);
    size_t margin = w->recorder ? MARGIN : 0;
    if (slot >= SHARED_SLOTS || !w->arena ||
        !open_slot(start, SHARED_BITS, bytes, margin, w->spans[slot])) {
        say(w->report, "checked mode: no memory for shared variables");
        fail(w, FAILED);
    }
    w->spans[slot].name = name;
    memset((void*)w->spans[slot].begin, 0xff, bytes);
    return (void*)w->spans[slot].begin;
}

}  // namespace

extern "C" void* mgh_place(unsigned slot, size_t bytes, bool recorded) {
    bool placed = slot < SLOTS && have_arena() &&
                  open_slot(arena + ((uintptr_t)slot << slot_bits), slot_bits, bytes,
                            recorded ? MARGIN : 0, spans[slot]);
    return placed ? (void*)spans[slot].begin : nullptr;
}

// Closes a slot, unless it is cheaper to keep it open for the next array of its size.
extern "C" void mgh_unplace(unsigned slot) {
    if (spans[slot].margin || spans[slot].room > KEPT) close_slot(spans[slot]);
}

// Memory of this OS thread for a shared variable outside of functions, between closed pages.
extern "C" void* mgh_file_shared(size_t bytes, const char* name) {
    size_t page = sysconf(_SC_PAGESIZE), room = (bytes + page - 1) / page * page;
    uintptr_t first = reserve(room + 2 * page), begin = first + page;
    auto* variable = (GlobalVariable*)calloc(1, sizeof(GlobalVariable));
    if (!first || !variable || mprotect((void*)begin, room, PROT_READ | PROT_WRITE)) {
        say(current->report, "checked mode: no memory for shared variables");
        fail(current, FAILED);
    }
    *variable = {begin, bytes, room + page, name};
    add_variables(variable, 1);
    forbid(first, begin);
    return (void*)begin;
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

extern "C" void __asan_register_globals(const GlobalVariable* first, size_t count) {
    add_variables(first, count);
}
extern "C" void __asan_unregister_globals(const GlobalVariable*, size_t) {}
extern "C" void __asan_before_dynamic_init(const char*) {}
extern "C" void __asan_after_dynamic_init() {}

// What g++ calls where shadow memory forbids an access (report), and what compilers call before
// each access where there is no shadow memory.
#define MGH_CHECK(name, writes, size, ...)                          \
    extern "C" void __asan_##name##_noabort(uintptr_t a __VA_ARGS__) { \
        check(a, size, writes, __builtin_frame_address(0));         \
    }
#define MGH_CHECKS(n)                   \
    MGH_CHECK(load##n, false, n)        \
    MGH_CHECK(store##n, true, n)        \
    MGH_CHECK(report_load##n, false, n) \
    MGH_CHECK(report_store##n, true, n)
MGH_CHECKS(1)
MGH_CHECKS(2)
MGH_CHECKS(4)
MGH_CHECKS(8)
MGH_CHECKS(16)
MGH_CHECK(loadN, false, size, , size_t size)
MGH_CHECK(storeN, true, size, , size_t size)
MGH_CHECK(report_load_n, false, size, , size_t size)
MGH_CHECK(report_store_n, true, size, , size_t size)
#undef MGH_CHECKS
#undef MGH_CHECK
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
