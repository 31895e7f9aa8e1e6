// Recording for the lab (kernels/lab/record). A kernel compiled for recording calls the runtime
// before each load and store and at the beginning of each basic block; the runtime adds the thread,
// the place in the source and the iteration of its loops, and passes them to the lab's recorder.
#pragma once

#include "checks.h"

namespace {

enum Code { PLAIN = -1, ENTRY = -2, SILENT = -3 };  // else a block: what follows a call

// Mirrored by kernels/host/recording.py, from here ...
struct Block {
    int32_t innermost, header_of;  // loops, or -1
};
struct Loop {
    uint32_t begin, end;  // offsets in the library
    int32_t parent;
};
constexpr unsigned DEPTH = 14;
struct Site {  // a place where memory is accessed, or a barrier
    uint32_t frame[DEPTH];  // return addresses, innermost first, as offsets; or a line
    int32_t frames, op, size, line;
};
struct Held {  // a row of the lab's memory: a shared variable, or one of the device
    uint64_t begin, bytes;  // begin is 0 for those whose place is new in each block
    const void* key;
    const char* name;
    const unsigned* shape;
};
struct Recorder {
    int64_t head;  // of the lab's recorder, which these belong to
    void (*note)(int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t);
    void (*execute)(int64_t, int64_t, int64_t, int64_t);
    void (*arrive)(int64_t, int64_t, int64_t, int64_t);
    void (*declare)(int64_t, int64_t, int64_t, int64_t, int64_t);
    void (*outside)(int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t);
    void (*finish)(int64_t);
    uintptr_t base;
    const int32_t* code;  // by offset
    uint64_t code_size;
    const Block* blocks;
    const Loop* loops;
    Site* sites;
    int32_t first_site, site_count, site_room;
    int32_t held_count, held_room, first_held;  // rows of arrays come before
    Held* held;
    const uint8_t* grain;  // of each row, as a power of two
    int32_t misfit;        // a row that has been accessed more finely than that, or -1
    int32_t together;      // whether all blocks run at once
};
// ... to here.

constexpr int ATOMIC_STORE = 8;  // MGH_ATOMIC_STORE_OP
constexpr int VOLATILE = 16;     // added to LOAD and STORE
constexpr uint64_t MIX = 0x1E3779B97F4A7C15;
constexpr int VALUE = 32, STRONG = 35;  // of the head, as in lab/record/recorder.py
constexpr int DIMENSION = -1, NOWHERE = -2;  // instead of the row of an access that is outside
constexpr unsigned KEYS = 1 << 16, NESTED = 24;
// Shared variables are reported at synthetic addresses, those of a grid's blocks one after the
// other.
constexpr int64_t SYNTHETIC = 1ll << 62, APART = 1ll << 44;

struct ActiveLoop {  // a loop that a thread is in
    uintptr_t frame;
    uint64_t outer, iterations;
    int32_t loop;
};
struct Walk {  // where a thread is
    uint64_t epoch, path;  // of which launch and block, and in which iterations of its loops
    unsigned depth;
    ActiveLoop loops[NESTED];
};
struct Store {  // one that is about to be done: what it changes shows afterwards
    size_t due, piece;  // bytes, in how large pieces
    uintptr_t address;
    int64_t site, path, who, real;
    bool strong;
    unsigned char before[256];
};

Walk* walks;
size_t walk_count;
uint64_t launches;
uint64_t* keys;
int32_t* numbers;
Store store;

bool have_walks(size_t threads) {
    if (!keys) {
        keys = (uint64_t*)malloc(KEYS * sizeof *keys);
        numbers = (int32_t*)malloc(KEYS * sizeof *numbers);
    }
    if (walk_count < threads) {
        free(walks);
        walks = (Walk*)calloc(threads, sizeof *walks);
        walk_count = walks ? threads : 0;
    }
    return keys && numbers && walk_count >= threads;
}

// A new launch; of a new kernel no site is known.
bool begin_recording(Recorder* r, size_t threads) {
    if (!have_walks(threads)) return false;
    if (r->site_count == 0) memset(keys, 0, KEYS * sizeof *keys);
    store.due = 0;
    ++launches;
    return true;
}

int64_t block_number(const Runner* w) {
    return w->block.x + (int64_t)w->grid_dim.x * (w->block.y + (int64_t)w->grid_dim.y * w->block.z);
}

int64_t who(const Runner* w, const Fiber* fiber) {
    return block_number(w) << 10 | fiber->linear;
}

Walk& walk_of(const Runner* w, const Fiber* fiber) {
    size_t number = (w->recorder->together ? block_number(w) * MAX_THREADS : 0) + fiber->linear;
    Walk& walk = walks[number];
    uint64_t epoch = launches << 32 | (uint32_t)w->epoch;
    if (walk.epoch != epoch) {
        walk.epoch = epoch;
        walk.path = walk.depth = 0;
    }
    return walk;
}

// Reports the store that has been done by now.
void tell_value(Recorder* r, uintptr_t a, size_t size) {
    int64_t bits = 0;
    memcpy(&bits, (const void*)a, size < sizeof bits ? size : sizeof bits);
    ((int64_t*)r->head)[VALUE] = bits;
}

// Whether the next access is volatile.
void tell_strong(Recorder* r, bool strong) { ((int64_t*)r->head)[STRONG] = strong; }

void settle(Recorder* r) {
    size_t due = store.due, piece = store.piece;
    store.due = 0;
    if (due) tell_strong(r, store.strong);
    for (size_t done = 0; done < due; done += piece, store.path += MIX / 3) {
        bool known = done + piece <= sizeof store.before;
        bool same = known && !memcmp(store.before + done, (char*)store.address + done, piece);
        tell_value(r, store.address + done, piece);
        r->note(r->head, store.site, store.path, store.who, store.real + done, piece, STORE, same);
    }
}

// The number of a site whose data is given, new or known.
int32_t site_of(Recorder* r, const Site& site) {
    uint64_t key = (uint64_t)site.op << 32 | site.size;
    key = (key + site.line) * MIX;
    for (int i = 0; i < site.frames; ++i) key = (key ^ site.frame[i]) * MIX, key ^= key >> 29;
    key |= 1;
    unsigned at = key >> 40;
    for (;; ++at) {
        at %= KEYS;
        if (keys[at] == key) return numbers[at];
        if (!keys[at]) break;
    }
    if (r->site_count == r->site_room) return r->first_site + r->site_room - 1;
    keys[at] = key;
    numbers[at] = r->first_site + r->site_count;
    r->sites[r->site_count] = site;
    return r->first_site + r->site_count++;
}

// The call stack, from a frame of a function of the library on; false if it is not reported: the
// shim's silent functions report their accesses themselves (`told`).
bool trace(const Recorder* r, const uintptr_t* frame, Site& site, bool told = false) {
    uintptr_t base = (uintptr_t)frame & ~(uintptr_t)(STACK_BYTES - 1);
    for (site.frames = 0; site.frames < (int)DEPTH;) {
        uintptr_t offset = frame[1] - r->base;
        int32_t code = offset < r->code_size ? r->code[offset] : ENTRY;
        if (code == ENTRY) break;
        bool silent = code == SILENT && site.frames == 0;
        if (silent && !told) return false;
        if (!silent) site.frame[site.frames++] = offset;
        const uintptr_t* outer = (const uintptr_t*)frame[0];
        if (outer <= frame || (uintptr_t)(outer + 2) >= base + STACK_BYTES) break;
        frame = outer;
    }
    return site.frames;
}

struct Spot {  // an address as the lab knows it
    int row;
    int64_t real;
    Span span;
};

int64_t synthetic(const Runner* w, int row, size_t bytes) {
    return SYNTHETIC + row * APART + (w->recorder->together ? block_number(w) * bytes : 0);
}

bool locate(const Runner* w, uintptr_t a, Spot& spot) {
    const Recorder* r = w->recorder;
    if (a - arena < arena_bytes) {
        unsigned slot = (a - arena) >> slot_bits;
        spot = {(int)slot, (int64_t)a, spans[slot]};
        return true;
    }
    if (a - w->arena < w->arena_bytes) {
        unsigned slot = (a - w->arena) >> SHARED_BITS;
        const Span& span = w->spans[slot];
        int row = w->rows[slot];
        spot = {row, synthetic(w, row, span.end - span.begin) + (int64_t)(a - span.begin), span};
        return true;
    }
    if (fiber_of(a) == self()) return false;
    for (int i = 0; i < r->held_count; ++i) {
        const Held& held = r->held[i];
        if (a - held.begin >= held.bytes) continue;
        int row = r->first_held + i;
        spot = {row, (int64_t)a, {held.begin, held.begin + held.bytes, held.name}};
        if (held.key) spot.real = synthetic(w, row, held.bytes) + (int64_t)(a - held.begin);
        return true;
    }
    return false;
}

void went_outside(Runner* w, const Site& site, const Spot& spot, uintptr_t a) {
    Recorder* r = w->recorder;
    int64_t offset = a - spot.span.begin, bytes = spot.span.end - spot.span.begin;
    if (offset >= 0 && offset < bytes) offset = bytes;  // a wide access that begins inside
    r->outside(r->head, site_of(r, site), who(w, self()), 0, spot.row, offset, bytes);
}

// `size` bytes are about to be accessed; in pieces of `piece` bytes, as many instructions.
void tell(Runner* w, uintptr_t a, size_t size, size_t piece, int op, Site& site) {
    Recorder* r = w->recorder;
    Spot spot;
    if (!locate(w, a, spot)) return;
    int64_t me = who(w, self());
    bool strong = op & VOLATILE;
    op &= ~VOLATILE;
    bool blind = op == ATOMIC_STORE;  // reads nothing
    if (blind) op = ATOMIC;
    // A copy is announced as a store and then a load, both before it is done.
    if (op != LOAD || store.who != me || spot.real - store.real < (int64_t)store.due) settle(r);
    site.op = op;
    site.size = piece;
    if (a < spot.span.begin || a + size > spot.span.end) return went_outside(w, site, spot, a);
    if (spot.row < 0) return;  // of a variable that there is no row for
    int64_t number = site_of(r, site);
    size_t fine = ((size_t)1 << r->grain[spot.row]) - 1;
    if (((a - spot.span.begin) | piece) & fine) r->misfit = spot.row;
    uint64_t path = walk_of(w, self()).path;
    if (op == STORE) {
        store = {size, piece, a, number, (int64_t)path, me, spot.real, strong, {}};
        memcpy(store.before, (void*)a, size < sizeof store.before ? size : sizeof store.before);
        return;
    }
    tell_strong(r, strong);
    for (size_t done = 0; done < size; done += piece, path += MIX / 3) {
        tell_value(r, a + done, piece);
        r->note(r->head, number, path, me, spot.real + done, piece, op, blind);
    }
}

size_t lowest_bit(size_t x) { return x & -x; }

// A load or store of the kernel. `whole`: one instruction; else of a type that is not aligned to
// its size, or not as large as an instruction's.
void record(uintptr_t a, size_t size, int op, bool whole, const void* address_of_frame) {
    Runner* w = current;
    const uintptr_t* frame = (const uintptr_t*)address_of_frame;
    if (!w || !w->running || !w->recorder || fiber_of(a) == self()) return;
    Site site = {};
    if (!trace(w->recorder, frame, site)) return;
    size_t piece = whole ? size : lowest_bit(size | (size <= 16 || a % 16 ? 4 : 16));
    if (a < 4096) {
        settle(w->recorder);
        went_outside(w, site, {NOWHERE, 0, {0, 0, nullptr}}, a);
        say_thread(w->report, self());
        say(w->report, " goes through a null pointer");
        fail(w, OUT_OF_BOUNDS);
    }
    tell(w, a, size, piece, op, site);
}

// An index of an array type is out of bounds: of "float [16][4]" the first is meant.
void record_index(Runner* w, long long index, const char* array, const uintptr_t* frame) {
    Recorder* r = w->recorder;
    Site site = {};
    if (!trace(r, frame, site)) return;
    settle(r);
    site.op = LOAD;
    const char* length = strchr(array, '[');
    r->outside(r->head, site_of(r, site), who(w, self()), 0, DIMENSION, index,
               length ? atoll(length + 1) : 0);
}

// The same, said by the shim: what an instruction accesses whose work the runtime does.
void record_at(Runner* w, const void* p, size_t size, int op, int line) {
    Site site = {};
    site.line = line;
    if (size) tell(w, (uintptr_t)p, size, size, op, site);
}

// The thread comes to a barrier.
void record_barrier(Runner* w, const Fiber* fiber, int kind, int line) {
    Recorder* r = w->recorder;
    settle(r);
    Site site = {};
    site.op = BARRIER, site.size = kind, site.line = line;
    r->arrive(r->head, site_of(r, site), who(w, fiber), kind);
}

// All of a block's threads have come: what its warps did is complete.
void record_passed(Runner* w) {
    settle(w->recorder);
    w->recorder->finish(w->recorder->head);
}

bool is_inside(const Recorder* r, int32_t loop, uintptr_t offset) {
    return offset >= r->loops[loop].begin && offset <= r->loops[loop].end;
}

// A basic block begins: which loops the thread is in now, and which round it is.
void record_block(Runner* w, const uintptr_t* frame) {
    Recorder* r = w->recorder;
    uintptr_t offset = frame[1] - r->base;
    int32_t number = offset < r->code_size ? r->code[offset] : PLAIN;
    if (number < 0) return;
    settle(r);
    Fiber* fiber = self();
    Walk& walk = walk_of(w, fiber);
    uintptr_t here = frame[0];
    while (walk.depth) {
        const ActiveLoop& top = walk.loops[walk.depth - 1];
        if (top.frame > here || (top.frame == here && is_inside(r, top.loop, offset))) break;
        walk.path = top.outer;
        --walk.depth;
    }
    const ActiveLoop* top = walk.depth ? &walk.loops[walk.depth - 1] : nullptr;
    int32_t known = top && top->frame == here ? top->loop : -1, entered[NESTED];
    unsigned count = 0;
    for (int32_t loop = r->blocks[number].innermost; loop >= 0 && loop != known && count < NESTED;
         loop = r->loops[loop].parent) {
        entered[count++] = loop;
    }
    while (count && walk.depth < NESTED) {
        walk.loops[walk.depth++] = {here, walk.path, 0, entered[--count]};
        walk.path *= MIX;
    }
    int32_t header = r->blocks[number].header_of;
    if (header >= 0 && walk.depth && walk.loops[walk.depth - 1].loop == header) {
        ActiveLoop& around = walk.loops[walk.depth - 1];
        walk.path = around.outer * MIX + ++around.iterations;
    }
    const uintptr_t* outer = (const uintptr_t*)here;
    r->execute(r->head, number, walk.path ^ outer[1] << 20, who(w, fiber));
}

// A shared variable has its place in this block.
int record_shared(Runner* w, const void* key, void* address, size_t bytes, const char* name,
                  const unsigned* shape, bool stays) {
    Recorder* r = w->recorder;
    int i = 0;
    while (i < r->held_count && r->held[i].key != key) ++i;
    if (i == r->held_room) return -1;
    if (i == r->held_count) {
        r->held[r->held_count++] = {stays ? (uint64_t)address : 0, bytes, key, name, shape};
    }
    int row = r->first_held + i;
    r->declare(r->head, row, synthetic(w, row, bytes), bytes, block_number(w));
    return row;
}

}  // namespace

extern "C" void __sanitizer_cov_trace_pc() {
    Runner* w = current;
    if (w && w->running && w->recorder) record_block(w, (uintptr_t*)__builtin_frame_address(0));
}

// What the headers say of atomics, and of what the runtime reads or writes for a kernel.
extern "C" void mgh_record(const void* p, size_t size, int op) {
    Runner* w = current;
    Site site = {};
    const uintptr_t* frame = (const uintptr_t*)__builtin_frame_address(0);
    if (w && w->running && w->recorder && trace(w->recorder, frame, site, true)) {
        tell(w, (uintptr_t)p, size, size, op, site);
    }
}

extern "C" void mgh_record_line(const void* p, size_t size, int op, int line) {
    Runner* w = current;
    if (w && w->running && w->recorder) record_at(w, p, size, op, line);
}

// What compilers call for the thread sanitizer.
#define MGH_ACCESS(n) MGH_ACCESS_OF(n, , 0) MGH_ACCESS_OF(n, volatile_, VOLATILE)
#define MGH_ACCESS_OF(n, how, op)                                                      \
    extern "C" void __tsan_##how##read##n(uintptr_t a) {                               \
        record(a, n, LOAD | op, true, __builtin_frame_address(0));                     \
    }                                                                                  \
    extern "C" void __tsan_##how##write##n(uintptr_t a) {                              \
        record(a, n, STORE | op, true, __builtin_frame_address(0));                    \
    }                                                                                  \
    extern "C" void __tsan_unaligned_##how##read##n(uintptr_t a) {                     \
        record(a, n, LOAD | op, false, __builtin_frame_address(0));                    \
    }                                                                                  \
    extern "C" void __tsan_unaligned_##how##write##n(uintptr_t a) {                    \
        record(a, n, STORE | op, false, __builtin_frame_address(0));                   \
    }
MGH_ACCESS(1)
MGH_ACCESS(2)
MGH_ACCESS(4)
MGH_ACCESS(8)
MGH_ACCESS(16)
#undef MGH_ACCESS
#undef MGH_ACCESS_OF
extern "C" void __tsan_read_range(uintptr_t a, size_t size) {
    record(a, size, LOAD, false, __builtin_frame_address(0));
}
extern "C" void __tsan_write_range(uintptr_t a, size_t size) {
    record(a, size, STORE, false, __builtin_frame_address(0));
}
extern "C" void __tsan_init() {}
extern "C" void __tsan_func_entry(void*) {}
extern "C" void __tsan_func_exit() {}
extern "C" void __tsan_vptr_update(void**, void*) {}  // of objects with virtual functions
extern "C" void __tsan_vptr_read(void**) {}

// Instead of what kernels compiled for recording call by these names.
namespace {
void record_bytes(const void* p, size_t size, int op, const uintptr_t* frame) {
    Runner* w = current;
    Site site = {};
    if (!w || !w->running || !w->recorder || !size) return;
    if (fiber_of((uintptr_t)p) == self() || !trace(w->recorder, frame, site)) return;
    tell(w, (uintptr_t)p, size, lowest_bit((uintptr_t)p | size | 16), op, site);
}
}  // namespace

extern "C" void* __wrap_memcpy(void* to, const void* from, size_t size) {
    record_bytes(from, size, LOAD, (const uintptr_t*)__builtin_frame_address(0));
    record_bytes(to, size, STORE, (const uintptr_t*)__builtin_frame_address(0));
    return memcpy(to, from, size);
}
extern "C" void* __tsan_memcpy(void* to, const void* from, size_t size)
    __attribute__((alias("__wrap_memcpy")));
extern "C" void* __wrap_memset(void* to, int byte, size_t size) {
    record_bytes(to, size, STORE, (const uintptr_t*)__builtin_frame_address(0));
    return memset(to, byte, size);
}
extern "C" int __wrap___cxa_thread_atexit(void (*)(void*), void*, void*) { return 0; }
extern "C" void* __tsan_memset(void* to, int byte, size_t size)
    __attribute__((alias("__wrap_memset")));
