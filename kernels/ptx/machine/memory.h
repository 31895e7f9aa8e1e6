// Loads, stores, atomics and asynchronous copies; each address is checked as hardware checks it.
#pragma once

#include "floats.h"
#include "traffic.h"

namespace mgp {

// -- addresses ---------------------------------------------------------------------------------

struct Access {
    int bytes;  // of all elements together, which the address must be a multiple of
    bool writes, is_atomic = false;
};

[[noreturn]] inline void refuse(Warp& w, Status status, int lane, uint64_t address, Access access,
                                int space, uint64_t begin, uint64_t end) {
    Finding& f = *w.machine->finding;
    f.address = address;
    f.begin = begin;
    f.end = end;
    f.bytes = access.bytes;
    f.writes = access.writes;
    f.space = space;
    fail(w, status, lane);
}

inline uint64_t local_base(const Warp& w, int lane) {
    uint64_t thread = (uint64_t)w.number * LANES + lane;
    return (uint64_t)w.block->local + thread * w.machine->launch.local_room;
}

inline bool inside(uint64_t address, int bytes, uint64_t begin, uint64_t size) {
    return address - begin < size && size - (address - begin) >= (uint64_t)bytes;
}

// Looks for the allocation of an address; keeps it for the next access.
inline bool is_allocated(Machine& machine, uint64_t address, int bytes) {
    const Launch& l = machine.launch;
    if (l.allocation_count < 0) return address >= 4096;
    if (inside(address, bytes, machine.last.begin, machine.last.end - machine.last.begin)) return true;
    int64_t low = 0, high = l.allocation_count;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (l.allocations[middle].end <= address) low = middle + 1;
        else high = middle;
    }
    if (low == l.allocation_count) return false;
    const Span& span = l.allocations[low];
    if (!inside(address, bytes, span.begin, span.end - span.begin)) return false;
    machine.last = span;
    return true;
}

// Where a lane's address, which may be any, points to in this process.
inline uint64_t generic(Warp& w, int lane, uint64_t address, Access access, int space) {
    Machine& machine = *w.machine;
    const Launch& l = machine.launch;
    if (space == GENERIC) {
        if (inside(address, access.bytes, (uint64_t)w.block->shared, l.total_shared)) return address;
        if (l.local_room) {
            uint64_t own = local_base(w, lane);
            if (inside(address, access.bytes, own, (uint64_t)l.local_room)) return address;
        }
        if (inside(address, access.bytes, (uint64_t)l.parameters, (uint64_t)l.parameter_bytes)) {
            return address;
        }
    }
    if (is_allocated(machine, address, access.bytes)) return address;
    Status status = address < 4096 ? NULL_POINTER : OUT_OF_BOUNDS;
    refuse(w, status, lane, address, access, space, machine.last.begin, machine.last.end);
}

// Where a state space lies: addresses are from `begin` on, and in this process `shift` further.
struct Place {
    uint64_t begin, size, shift;
};
inline Place place_of(const Warp& w, int space) {
    const Launch& l = w.machine->launch;
    const Span& last = w.machine->last;
    switch (space) {
        case SHARED: return {0, l.total_shared, (uint64_t)w.block->shared};
        case LOCAL: return {0, (uint64_t)l.local_room, 0};
        case PARAMETERS: return {0, (uint64_t)l.parameter_bytes, (uint64_t)l.parameters};
        case AREA: return {0, (uint64_t)w.frame->area_bytes, (uint64_t)w.frame->area};
    }
    return {last.begin, last.end - last.begin, 0};
}

// Lane by lane, where one is misaligned or outside of the allocation that was accessed last.
__attribute__((noinline)) inline void resolve_each(Warp& w, int space, Mask m, Access access,
                                                   uint64_t* at) {
    const Place place = place_of(w, space);
    for (Mask rest = m; rest; rest &= rest - 1) {
        int i = __builtin_ctz(rest);
        if (at[i] & (uint64_t)(access.bytes - 1)) refuse(w, MISALIGNED, i, at[i], access, space, 0, 0);
        if (space == GENERIC || space == GLOBAL) {
            at[i] = generic(w, i, at[i], access, space);
        } else if (!inside(at[i], access.bytes, 0, place.size)) {
            refuse(w, OUT_OF_BOUNDS, i, at[i], access, space, 0, place.size);
        }
    }
}

// The lanes' addresses as pointers of this process, checked. Lanes that are not in the mask get the
// address of one that is. counted: the operation of the program that the access is one of, if any.
inline void resolve(Warp& w, const Op& o, Mask m, Access access, uint64_t* at, const Op* counted) {
    if (o.flags & WIDE_ADDRESS) {
        const uint64_t* from = w.in<uint64_t>(o.a);
        const uint64_t away = (uint64_t)o.value;
#pragma GCC ivdep
        for (int i = 0; i < LANES; ++i) at[i] = from[i] + away;
    } else {
        const uint32_t *from = w.in<uint32_t>(o.a), away = (uint32_t)o.value;
#pragma GCC ivdep
        for (int i = 0; i < LANES; ++i) at[i] = (uint32_t)(from[i] + away);
    }
    if (m != ALL) {
        const uint64_t any = at[__builtin_ctz(m)];
#pragma GCC ivdep
        for (int i = 0; i < LANES; ++i) at[i] = m >> i & 1 ? at[i] : any;
    }
    const Place place = place_of(w, o.space);
    const uint64_t room = place.size - (uint64_t)access.bytes, unaligned = (uint64_t)access.bytes - 1;
    uint64_t bad = place.size < (uint64_t)access.bytes;
#pragma GCC ivdep
    for (int i = 0; i < LANES; ++i) {
        bad |= (uint64_t)(at[i] - place.begin > room) | (at[i] & unaligned);
    }
    if (__builtin_expect(bad != 0, 0)) {
        resolve_each(w, o.space, m, access, at);
        const uint64_t any = at[__builtin_ctz(m)];
#pragma GCC ivdep
        for (int i = 0; i < LANES; ++i) at[i] = m >> i & 1 ? at[i] : any;
    }
    if (o.space == LOCAL) {
#pragma GCC ivdep
        for (int i = 0; i < LANES; ++i) at[i] += local_base(w, i);
    } else if (o.space == AREA) {
#pragma GCC ivdep
        for (int i = 0; i < LANES; ++i) at[i] += place.shift + (uint64_t)(i * w.frame->area_bytes);
    } else if (place.shift) {
#pragma GCC ivdep
        for (int i = 0; i < LANES; ++i) at[i] += place.shift;
    }
    if (__builtin_expect(w.machine->launch.traffic != nullptr && counted, 0)) {
        observe(w, *counted, o.space, m, at, access.bytes, access.writes, access.is_atomic);
    }
}

inline void resolve(Warp& w, const Op& o, Mask m, Access access, uint64_t* at) {
    resolve(w, o, m, access, at, &o);
}

// -- loads and stores --------------------------------------------------------------------------

// Polling: what a thread that waits for another one does. The warp then lets others run.
inline void polls(Warp& w, const Op& o) {
    if (o.flags & POLLING) ++w.spun;
}

template <class Memory, class Register>
void load(Warp& w, const Op& o, Mask m) {
    uint64_t at[LANES];
    resolve(w, o, m, {(int)sizeof(Memory) * o.count, false}, at);
    polls(w, o);
    const int32_t* registers = w.machine->launch.lists + o.list;
    for (int k = 0; k < o.count; ++k) {
        if (registers[k] < 0) continue;
        Register* to = w.at<Register>(registers[k]);
        const uint64_t* from = at;
        each(m, [=](int i) { to[i] = (Register)((const Memory*)from[i])[k]; });
    }
}

template <class Memory>
void store(Warp& w, const Op& o, Mask m) {
    uint64_t at[LANES];
    resolve(w, o, m, {(int)sizeof(Memory) * o.count, true}, at);
    w.block->moved = true;
    const int32_t* registers = w.machine->launch.lists + o.list;
    // By lanes: of those that write to one place the last one stays.
    if (o.count == 1) {
        const Memory* from = w.in<Memory>(registers[0]);
        if (m == ALL) {
            for (int i = 0; i < LANES; ++i) *(Memory*)at[i] = from[i];
        } else {
            for (Mask rest = m; rest; rest &= rest - 1) {
                *(Memory*)at[__builtin_ctz(rest)] = from[__builtin_ctz(rest)];
            }
        }
        return;
    }
    for (Mask rest = m; rest; rest &= rest - 1) {
        int i = __builtin_ctz(rest);
        for (int k = 0; k < o.count; ++k) ((Memory*)at[i])[k] = w.in<Memory>(registers[k])[i];
    }
}

// -- atomics -----------------------------------------------------------------------------------

// Lanes update one after the other; nothing else runs meanwhile. `flags` say whether old values are
// wanted (HAS_RESULT).
constexpr u8 HAS_RESULT = 64;
template <class T, class F>
void atomic(Warp& w, const Op& o, Mask m, F f) {
    uint64_t at[LANES];
    resolve(w, o, m, {(int)sizeof(T), true, true}, at);
    ++w.spun;
    const T* b = w.in<T>(o.b);
    const T* c = w.in<T>(o.c);
    for (Mask rest = m; rest; rest &= rest - 1) {
        int i = __builtin_ctz(rest);
        T* place = (T*)at[i];
        T before = *place, after = f(before, b[i], c[i]);
        if (memcmp(&before, &after, sizeof(T)) != 0) w.block->moved = true;
        *place = after;
        if (o.flags & HAS_RESULT) w.at<T>(o.to)[i] = before;
    }
}

#define MGP_ATOMIC(name, T, ...)                                                      \
    {"atom." name, [](Warp& w, const Op& o, Mask m) {                                 \
        atomic<T>(w, o, m, [](T old, T b, T c) -> T { (void)b, (void)c; return __VA_ARGS__; }); \
    }, PLAIN},
#define MGP_ATOMIC_BITS(t)                                                            \
    MGP_ATOMIC("add." #t, t, (t)(old + b)) MGP_ATOMIC("and." #t, t, old & b)          \
    MGP_ATOMIC("or." #t, t, old | b) MGP_ATOMIC("xor." #t, t, old ^ b)                \
    MGP_ATOMIC("exch." #t, t, b) MGP_ATOMIC("cas." #t, t, old == b ? c : old)
#define MGP_ATOMIC_ORDER(t)                                                           \
    MGP_ATOMIC("min." #t, t, b < old ? b : old) MGP_ATOMIC("max." #t, t, b > old ? b : old)

template <class Format>
u16 small_sum(u16 a, u16 b) {
    return Format::narrow(Format::widen(a) + Format::widen(b));
}
template <class Format>
u32 small_sums(u32 a, u32 b) {
    return (u32)small_sum<Format>((u16)(a >> 16), (u16)(b >> 16)) << 16 | small_sum<Format>((u16)a, (u16)b);
}

// -- asynchronous copies -----------------------------------------------------------------------

// Until the copy is waited for, its destination holds poison.
inline void begin_copy(Warp& w, const Op& o, Mask m) {
    uint64_t to[LANES], from[LANES];
    Op source = o;
    source.space = GLOBAL;
    source.a = o.b;
    source.flags = WIDE_ADDRESS;
    source.value = *(const int64_t*)(w.machine->launch.lists + o.list);
    const int bytes = o.bytes;
    const u32* size = w.in<u32>(o.c);
    resolve(w, o, m, {bytes, true}, to);
    Mask reads = 0;
    for (int i = 0; i < LANES; ++i) reads |= (Mask)(size[i] != 0) << i;
    if (reads & m) resolve(w, source, reads & m, {bytes, false}, from, &o);
    for (Mask rest = m; rest; rest &= rest - 1) {
        int i = __builtin_ctz(rest);
        if (w.copy_count == w.copy_room) {
            w.copy_room = w.copy_room ? 2 * w.copy_room : 64;
            w.copies = (Copy*)realloc(w.copies, w.copy_room * sizeof(Copy));
        }
        int present = size[i] < (u32)bytes ? (int)size[i] : bytes;
        memset((char*)to[i], 0xff, bytes);
        w.copies[w.copy_count++] = {(char*)to[i], (char*)from[i], i, bytes, present, w.committed[i]};
    }
}

// Finishes copies of the lanes, but for those of the last `value` groups.
inline void wait_copies(Warp& w, const Op& o, Mask m) {
    int kept = 0;
    for (int k = 0; k < w.copy_count; ++k) {
        const Copy copy = w.copies[k];
        bool ends = m >> copy.lane & 1 && copy.group + (u64)o.value < w.committed[copy.lane];
        if (o.flags) ends = m >> copy.lane & 1;  // wait_all
        if (!ends) {
            w.copies[kept++] = copy;
            continue;
        }
        memcpy(copy.to, copy.from, copy.present);
        memset(copy.to + copy.present, 0, copy.bytes - copy.present);
    }
    w.copy_count = kept;
}

// -- what the host does ------------------------------------------------------------------------

inline void print(Machine& machine, const char* text, size_t size) {
    constexpr size_t LIMIT = 16 << 20;
    if (machine.output_size + size > machine.output_room) {
        size_t room = 2 * (machine.output_room + size);
        if (room > LIMIT) return;
        machine.output = (char*)realloc(machine.output, room);
        machine.output_room = room;
    }
    memcpy(machine.output + machine.output_size, text, size);
    machine.output_size += size;
}

// The bytes of a string of the program that may be read, without its end.
inline size_t readable(Machine& machine, const char* text, size_t most = 1 << 16) {
    size_t size = 0;
    while (size < most && is_allocated(machine, (uint64_t)text + size, 1) && text[size]) ++size;
    return size;
}

// printf's format with arguments as the caller of vprintf lays them out: each at a multiple of its
// size, floats as doubles.
inline int format(Warp& w, const char* text, const char* arguments) {
    char out[1024];
    size_t used = 0, end = readable(*w.machine, text);
    auto put = [&](const char* piece, size_t size) {
        if (used + size > sizeof out) size = sizeof out - used;
        memcpy(out + used, piece, size);
        used += size;
    };
    size_t offset = 0;
    auto take = [&](size_t size) {
        u64 x = 0;
        offset = (offset + size - 1) / size * size;
        memcpy(&x, arguments + offset, size);
        offset += size;
        return x;
    };
    for (size_t i = 0; i < end;) {
        if (text[i] != '%') {
            put(text + i++, 1);
            continue;
        }
        char spec[64], piece[512];
        size_t n = 0;
        bool wide = false;
        spec[n++] = text[i++];
        while (i < end && n < 40 && strchr("-+ #0123456789.*", text[i])) {
            if (text[i] == '*') n += (size_t)snprintf(spec + n, 16, "%d", (int)take(4)), ++i;
            else spec[n++] = text[i++];
        }
        while (i < end && strchr("hlLzjt", text[i])) {
            if (text[i] != 'h') wide = true;
            else spec[n++] = 'h';
            ++i;
        }
        if (i == end) break;
        char kind = text[i++];
        int size = 0;
        if (kind == '%') {
            put("%", 1);
            continue;
        }
        if (strchr("fFeEgGaA", kind)) {
            spec[n++] = kind, spec[n] = 0;
            size = snprintf(piece, sizeof piece, spec, mgh::bit_cast<f64>(take(8)));
        } else if (kind == 's') {
            const char* s = (const char*)take(8);
            put(s, readable(*w.machine, s));
        } else if (kind == 'p') {
            size = snprintf(piece, sizeof piece, "0x%llx", (unsigned long long)take(8));
        } else if (wide) {
            spec[n++] = 'l', spec[n++] = 'l', spec[n++] = kind, spec[n] = 0;
            size = snprintf(piece, sizeof piece, spec, (long long)take(8));
        } else {
            spec[n++] = kind, spec[n] = 0;
            size = snprintf(piece, sizeof piece, spec, (int)take(4));
        }
        if (size > 0) put(piece, (size_t)size < sizeof piece ? (size_t)size : sizeof piece - 1);
    }
    print(*w.machine, out, used);
    return (int)used;
}

inline const char* area_of(Warp& w, int lane) {
    return w.frame->area + (size_t)lane * w.frame->area_bytes;
}

// vprintf(format, arguments) -> the number of bytes: a, b and to are offsets in the area.
inline void do_vprintf(Warp& w, const Op& o, Mask m) {
    for (Mask rest = m; rest; rest &= rest - 1) {
        int i = __builtin_ctz(rest);
        const char *text, *arguments;
        memcpy(&text, area_of(w, i) + o.a, 8);
        memcpy(&arguments, area_of(w, i) + o.b, 8);
        int size = format(w, text, arguments);
        if (o.to >= 0) memcpy((char*)area_of(w, i) + o.to, &size, 4);
    }
}

// __assertfail(message, file, line, function, size of a character)
[[noreturn]] inline void do_assertfail(Warp& w, const Op& o, Mask m) {
    int lane = __builtin_ctz(m);
    const char* texts[3];
    int line;
    memcpy(&texts[0], area_of(w, lane) + o.a, 8);
    memcpy(&texts[1], area_of(w, lane) + o.b, 8);
    memcpy(&line, area_of(w, lane) + o.c, 4);
    memcpy(&texts[2], area_of(w, lane) + o.d, 8);
    auto length = [&](int k) { return (int)readable(*w.machine, texts[k], 200); };
    note(w, "%.*s (%.*s:%d, %.*s)", length(0), texts[0], length(1), texts[1], line, length(2),
         texts[2]);
    fail(w, ASSERTION, lane);
}

#define MGP_LOAD(name, M, R) {"ld." name, load<M, R>, PLAIN},

static const Entry memory[] = {
    MGP_LOAD("u8.1", u8, u8) MGP_LOAD("u8.2", u8, u16) MGP_LOAD("u8.4", u8, u32) MGP_LOAD("u8.8", u8, u64)
    MGP_LOAD("s8.1", s8, s8) MGP_LOAD("s8.2", s8, s16) MGP_LOAD("s8.4", s8, s32) MGP_LOAD("s8.8", s8, s64)
    MGP_LOAD("u16.2", u16, u16) MGP_LOAD("u16.4", u16, u32) MGP_LOAD("u16.8", u16, u64)
    MGP_LOAD("s16.2", s16, s16) MGP_LOAD("s16.4", s16, s32) MGP_LOAD("s16.8", s16, s64)
    MGP_LOAD("u32.4", u32, u32) MGP_LOAD("u32.8", u32, u64) MGP_LOAD("s32.8", s32, s64)
    MGP_LOAD("s32.4", s32, s32) MGP_LOAD("u64.8", u64, u64) MGP_LOAD("s64.8", s64, s64)
    {"st.1", store<u8>, PLAIN}, {"st.2", store<u16>, PLAIN}, {"st.4", store<u32>, PLAIN},
    {"st.8", store<u64>, PLAIN},
    MGP_ATOMIC_BITS(b32) MGP_ATOMIC_BITS(b64)
    MGP_ATOMIC_ORDER(s32) MGP_ATOMIC_ORDER(u32) MGP_ATOMIC_ORDER(s64) MGP_ATOMIC_ORDER(u64)
    MGP_ATOMIC("cas.b16", u16, old == b ? c : old)
    MGP_ATOMIC("inc.u32", u32, old >= b ? 0 : old + 1)
    MGP_ATOMIC("dec.u32", u32, old == 0 || old > b ? b : old - 1)
    MGP_ATOMIC("add.f32", f32, old + b)
    MGP_ATOMIC("add.ftz.f32", f32, flushed(flushed(old) + flushed(b)))
    MGP_ATOMIC("add.f64", f64, old + b)
    MGP_ATOMIC("add.f16", u16, small_sum<Half>(old, b))
    MGP_ATOMIC("add.bf16", u16, small_sum<Bfloat16>(old, b))
    MGP_ATOMIC("add.f16x2", u32, small_sums<Half>(old, b))
    MGP_ATOMIC("add.bf16x2", u32, small_sums<Bfloat16>(old, b))
    {"cp.async", begin_copy, PLAIN},
    {"cp.commit", [](Warp& w, const Op&, Mask m) { each(m, [&](int i) { ++w.committed[i]; }); }, PLAIN},
    {"cp.wait", wait_copies, PLAIN},
    // Addresses of one space as generic ones, and back (flags).
    {"cvta.shared", [](Warp& w, const Op& o, Mask m) {
        u64 base = (u64)w.block->shared;
        if (o.flags) base = 0 - base;
        unary<u64, u64>(w, o, m, [=](u64 a) { return a + base; });
    }, PLAIN},
    {"cvta.local", [](Warp& w, const Op& o, Mask m) {
        u64* to = w.at<u64>(o.to);
        const u64* a = w.in<u64>(o.a);
        each(m, [&](int i) {
            u64 base = local_base(w, i);
            to[i] = o.flags ? a[i] - base : a[i] + base;
        });
    }, PLAIN},
    {"cvta.param", [](Warp& w, const Op& o, Mask m) {
        u64 base = (u64)w.machine->launch.parameters;
        if (o.flags) base = 0 - base;
        unary<u64, u64>(w, o, m, [=](u64 a) { return a + base; });
    }, PLAIN},
    {"isspacep", [](Warp& w, const Op& o, Mask m) {
        const u64* a = w.in<u64>(o.a);
        Mask bits = 0;
        each(m, [&](int i) {
            const Launch& l = w.machine->launch;
            bool shared = inside(a[i], 1, (u64)w.block->shared, l.total_shared);
            bool local = l.local_room && inside(a[i], 1, local_base(w, i), (u64)l.local_room);
            bool yes = o.space == SHARED ? shared : o.space == LOCAL ? local : !shared && !local;
            bits |= (Mask)yes << i;
        });
        Mask* to = w.at<Mask>(o.to);
        *to = (*to & ~m) | (bits & m);
    }, PLAIN},
    // The address of a local variable of this call.
    {"local", [](Warp& w, const Op& o, Mask m) {
        u64 at = (u64)(w.frame->local + o.value);
        if (o.bytes == 4) {
            u32* to = w.at<u32>(o.to);
            each(m, [=](int i) { to[i] = (u32)at; });
        } else {
            u64* to = w.at<u64>(o.to);
            each(m, [=](int i) { to[i] = at; });
        }
    }, PLAIN},
    {"vprintf", do_vprintf, PLAIN},
    {"assertfail", do_assertfail, PLAIN},
    {"trap", [](Warp& w, const Op&, Mask m) { fail(w, TRAP, __builtin_ctz(m)); }, PLAIN},
    {"nothing", [](Warp&, const Op&, Mask) {}, PLAIN},
};

}  // namespace mgp
