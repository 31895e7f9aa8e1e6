// Groups of lanes: where they part, meet and wait; what lanes of a warp compute together.
#pragma once

#include "memory.h"

namespace mgp {

constexpr int NOWHERE = 0x7fffffff;

// -- groups ------------------------------------------------------------------------------------

inline void add_group(Warp& w, Group group) {
    if (group.lanes) w.groups[w.group_count++] = group;
}
inline void remove_group(Warp& w, int index) { w.groups[index] = w.groups[--w.group_count]; }

// Where the running group may meet one that is ready: the first operation of such groups. The running
// group is at an earlier one, until it comes there or jumps over it.
inline void find_meeting(Warp& w) {
    w.meet = NOWHERE;
    for (int i = 0; i < w.group_count; ++i) {
        const Group& g = w.groups[i];
        if (g.state == READY && g.frame == w.frame && g.pc < w.meet) w.meet = g.pc;
    }
}

// The running group waits, as `state` says.
inline void park(Warp& w, int state) {
    add_group(w, {w.active, 0, w.frame, w.pc, state, 0});
    w.active = 0;
}

// Chooses the group that runs: the deepest call, and there the first operation, which lets groups
// that parted meet again. False where none can go on.
inline bool pick(Warp& w) {
    for (int pass = 0; pass < 2; ++pass) {
        int best = -1;
        for (int i = 0; i < w.group_count; ++i) {
            const Group& g = w.groups[i];
            if (g.state != READY) continue;
            if (best < 0 || g.frame->depth > w.groups[best].frame->depth ||
                (g.frame->depth == w.groups[best].frame->depth && g.pc < w.groups[best].pc)) {
                best = i;
            }
        }
        if (best >= 0) {
            w.pc = w.groups[best].pc;
            w.frame = w.groups[best].frame;
            w.registers = w.frame->registers;
            w.active = 0;
            for (int i = 0; i < w.group_count;) {
                const Group& g = w.groups[i];
                bool here = g.state == READY && g.pc == w.pc && g.frame == w.frame;
                if (here) w.active |= g.lanes, remove_group(w, i);
                else ++i;
            }
            find_meeting(w);
            return true;
        }
        for (int i = 0; i < w.group_count; ++i) {  // those that let others go first
            if (w.groups[i].state == LATE) w.groups[i].state = READY;
        }
    }
    return false;
}

// -- frames ------------------------------------------------------------------------------------

// Nothing has been written to registers and parameters.
inline void poison(Frame* frame, int register_bytes) {
    memset(frame->registers, 0xff, (size_t)register_bytes + (size_t)frame->area_bytes * LANES);
}

inline Frame* new_frame(Warp& w, int register_bytes, int area_bytes) {
    size_t room = (size_t)register_bytes + (size_t)area_bytes * LANES;
    Frame* frame = (Frame*)malloc(sizeof(Frame) + room + 64);
    if (!frame) fail(w, NO_MEMORY, 0);
    frame->registers = (char*)(((uintptr_t)(frame + 1) + 63) & ~(uintptr_t)63);
    frame->area = frame->registers + register_bytes;
    frame->area_bytes = area_bytes;
    poison(frame, register_bytes);
    return frame;
}

inline void poison_local(Warp& w, Mask m, int begin, int bytes) {
    if (!bytes) return;
    if (begin + bytes > w.machine->launch.local_room) {
        note(w, "the calls need more than %d bytes of local memory", w.machine->launch.local_room);
        fail(w, NO_MEMORY, __builtin_ctz(m));
    }
    each(m, [&](int i) { memset((char*)local_base(w, i) + begin, 0xff, bytes); });
}

// Lists: the first operation, register_bytes, area_bytes, local_bytes of the function called; how
// much local memory the caller has; then counted triples (from, to, bytes): arguments and results.
enum CallList { FIRST, REGISTER_BYTES, AREA_BYTES, LOCAL_BYTES, CALLER_LOCAL, ARGUMENTS };

inline void copy_areas(Mask m, const Frame* from, const Frame* to, const int32_t* triples, int count) {
    for (int k = 0; k < count; ++k, triples += 3) {
        each(m, [&](int i) {
            memcpy(to->area + (size_t)i * to->area_bytes + triples[1],
                   from->area + (size_t)i * from->area_bytes + triples[0], triples[2]);
        });
    }
}

inline void call(Warp& w, const Op& o, Mask m) {
    constexpr int DEEPEST = 1000;
    if (w.frame->depth == DEEPEST) {
        note(w, "more than %d calls within each other", DEEPEST);
        fail(w, NO_MEMORY, __builtin_ctz(m));
    }
    const int32_t* list = w.machine->launch.lists + o.list;
    Frame* inner = new_frame(w, list[REGISTER_BYTES], list[AREA_BYTES]);
    inner->outer = w.frame;
    inner->depth = w.frame->depth + 1;
    inner->back = w.pc + 1;
    inner->call = w.pc;
    inner->lanes = m;
    inner->local = w.frame->local + list[CALLER_LOCAL];
    poison_local(w, m, inner->local, list[LOCAL_BYTES]);
    copy_areas(m, w.frame, inner, list + ARGUMENTS + 1, list[ARGUMENTS]);
    if (w.active & ~m) add_group(w, {w.active & ~m, 0, w.frame, w.pc + 1, READY, 0});
    w.active = m;
    w.frame = inner;
    w.registers = inner->registers;
    w.pc = list[FIRST];
    w.meet = NOWHERE;
}


inline void give_back(Warp& w, Mask m) {  // ret
    Frame* inner = w.frame;
    const Op& o = w.machine->launch.ops[inner->call];
    const int32_t* list = w.machine->launch.lists + o.list + ARGUMENTS;
    list += 1 + 3 * list[0];
    copy_areas(m, inner, inner->outer, list + 1, list[0]);
    add_group(w, {m, 0, inner->outer, inner->back, READY, 0});
    w.active &= ~m;
    if (w.active) ++w.pc, park(w, READY);
    inner->lanes &= ~m;
    if (!inner->lanes) free(inner);
}

// -- collectives -------------------------------------------------------------------------------

enum Collective {
    SHUFFLE_UP, SHUFFLE_DOWN, SHUFFLE_XOR, SHUFFLE_INDEX, VOTE_ALL, VOTE_ANY, VOTE_UNI, VOTE_BALLOT,
    MATCH_ANY, MATCH_ALL, REDUCE_ADD, REDUCE_MIN_S, REDUCE_MAX_S, REDUCE_MIN_U, REDUCE_MAX_U,
    REDUCE_AND, REDUCE_OR, REDUCE_XOR, REDUCE_MIN_F, REDUCE_MAX_F, ELECT, SYNC
};

// What the lanes bring: a and, for shuffles, b and c. `to` gets the result, `c` or `d` a predicate.
inline void bring(Warp& w, const Op& o, Mask m) {
    if (o.count == ELECT || o.count == SYNC) return;
    bool votes = o.count >= VOTE_ALL && o.count <= VOTE_BALLOT;
    if (votes) {
        Mask p = w.predicate(o.a);
        if (o.flags & NEGATE_C) p = ~p;
        each(m, [&](int i) { w.brought[i] = p >> i & 1; });
    } else if (o.bytes == 8) {
        const u64* a = w.in<u64>(o.a);
        each(m, [&](int i) { w.brought[i] = a[i]; });
    } else {
        const u32* a = w.in<u32>(o.a);
        each(m, [&](int i) { w.brought[i] = a[i]; });
    }
    if (o.count > SHUFFLE_INDEX) return;
    const s32 *b = w.in<s32>(o.b), *c = w.in<s32>(o.c);
    each(m, [&](int i) { w.argument[i] = b[i], w.clamp[i] = c[i]; });
}

// The lane that a shuffle reads, and whether it is within the segment.
inline int source_lane(int mode, int lane, int by, int clamp, bool& within) {
    by &= 31;
    int segment = clamp >> 8 & 31, last = clamp & 31;
    int most = (lane & segment) | (last & ~segment), least = lane & segment;
    int from = mode == SHUFFLE_UP ? lane - by : mode == SHUFFLE_DOWN ? lane + by
             : mode == SHUFFLE_XOR ? lane ^ by : least | (by & ~segment);
    within = mode == SHUFFLE_UP ? from >= most : from <= most;
    return within ? from : lane;
}

inline u64 reduce(int kind, u64 x, u64 y) {
    u32 a = (u32)x, b = (u32)y;
    switch (kind) {
        case REDUCE_ADD: return a + b;
        case REDUCE_MIN_S: return (s32)a < (s32)b ? a : b;
        case REDUCE_MAX_S: return (s32)a > (s32)b ? a : b;
        case REDUCE_MIN_U: return a < b ? a : b;
        case REDUCE_MAX_U: return a > b ? a : b;
        case REDUCE_AND: return a & b;
        case REDUCE_OR: return a | b;
        case REDUCE_MIN_F: return mgh::bit_cast<u32>(smaller(mgh::bit_cast<f32>(a), mgh::bit_cast<f32>(b)));
        case REDUCE_MAX_F: return mgh::bit_cast<u32>(larger(mgh::bit_cast<f32>(a), mgh::bit_cast<f32>(b)));
    }
    return a ^ b;
}

// The results of the lanes that met.
inline void compute(Warp& w, int kind, Mask m) {
    constexpr u64 POISON = ~0ull;
    Mask votes = 0;
    u64 all = 0;
    int first = __builtin_ctz(m);
    auto same_as = [&](int lane) {
        Mask same = 0;
        each(m, [&](int i) { same |= (Mask)(w.brought[i] == w.brought[lane]) << i; });
        return same;
    };
    if (kind <= SHUFFLE_INDEX) {
        each(m, [&](int i) {
            int from = source_lane(kind, i, w.argument[i], w.clamp[i], w.holds[i]);
            w.result[i] = m >> from & 1 ? w.brought[from] : POISON;
        });
        return;
    }
    if (kind == MATCH_ANY) return each(m, [&](int i) { w.result[i] = same_as(i); });
    each(m, [&](int i) { votes |= (Mask)(w.brought[i] & 1) << i; });
    switch (kind) {
        case VOTE_ALL: all = votes == m; break;
        case VOTE_ANY: all = votes != 0; break;
        case VOTE_UNI: all = votes == m || votes == 0; break;
        case VOTE_BALLOT: all = votes; break;
        case MATCH_ALL: all = same_as(first) == m ? m : 0; break;
        case ELECT: all = (u64)first; break;
        case SYNC: return;
        default:
            all = w.brought[first];
            each(m & (m - 1), [&](int i) { all = reduce(kind, all, w.brought[i]); });
    }
    each(m, [&](int i) {
        w.result[i] = all;
        w.holds[i] = kind == MATCH_ALL ? all != 0 : i == first;
    });
}

inline void set_predicate(char* registers, int32_t at, Mask m, const bool* values) {
    Mask* to = (Mask*)(registers + at);
    each(m, [&](int i) { *to = (*to & ~(1u << i)) | (Mask)values[i] << i; });
}

// The results to the registers of a group that is at `o`.
inline void take(Warp& w, const Op& o, char* registers, Mask m) {
    if (o.count == SYNC) return;
    if (o.count >= VOTE_ALL && o.count <= VOTE_UNI) {
        bool values[LANES];
        each(m, [&](int i) { values[i] = w.result[i] != 0; });
        return set_predicate(registers, o.to, m, values);
    }
    if (o.to >= 0) {
        bool wide = o.bytes == 8 && o.count <= SHUFFLE_INDEX;
        each(m, [&](int i) {
            if (wide) ((u64*)(registers + o.to))[i] = w.result[i];
            else ((u32*)(registers + o.to))[i] = (u32)w.result[i];
        });
    }
    if (o.target >= 0) set_predicate(registers, o.target, m, w.holds);
}

// Lanes that wait at a collective like `o` with this mask.
inline Mask waiting_at(const Warp& w, const Op& o, Mask mask) {
    Mask found = 0;
    for (int i = 0; i < w.group_count; ++i) {
        const Group& g = w.groups[i];
        const Op& other = w.machine->launch.ops[g.pc];
        if (g.state == AT_COLLECTIVE && g.mask == mask && other.count == o.count &&
            other.bytes == o.bytes) {
            found |= g.lanes;
        }
    }
    return found;
}

// All lanes of `mask` are there: those that waited go on.
inline void release(Warp& w, const Op& o, Mask mask, Mask all) {
    compute(w, o.count, all);
    for (int i = 0; i < w.group_count; ++i) {
        Group& g = w.groups[i];
        const Op& other = w.machine->launch.ops[g.pc];
        if (g.state != AT_COLLECTIVE || g.mask != mask || other.count != o.count ||
            other.bytes != o.bytes) {
            continue;
        }
        take(w, other, g.frame->registers, g.lanes);
        g.state = READY;
        ++g.pc;
    }
}

// The lanes `m` of the running group come to a collective; those that must wait leave the group.
inline void collective(Warp& w, const Op& o, Mask m) {
    const u32* masks = w.in<u32>(o.d);
    Mask waits = 0;
    bool released = false;
    bring(w, o, m);
    for (Mask rest = m; rest;) {
        const Mask mask = masks[__builtin_ctz(rest)];
        Mask same = 0;
        each(rest, [&](int i) { same |= (Mask)(masks[i] == mask) << i; });
        rest &= ~same;
        if (same & ~mask) {
            note(w, "0x%08x", mask);
            fail(w, NOT_IN_MASK, __builtin_ctz(same & ~mask));
        }
        Mask others = w.group_count ? waiting_at(w, o, mask) : 0;
        if ((same | others) == (mask & w.live)) {
            release(w, o, mask, same | others);
            take(w, o, w.registers, same);
            released |= others != 0;
        } else {
            add_group(w, {same, mask, w.frame, w.pc, AT_COLLECTIVE, 0});
            waits |= same;
        }
    }
    ++w.pc;
    w.active &= ~waits;
    if (released) find_meeting(w);
}

// -- barriers ----------------------------------------------------------------------------------

inline void open_barrier(Block& block, int number) {
    Barrier& barrier = block.barriers[number];
    block.moved = true;
    Warp* const end = block.warps + block.warps->machine->warps_a_block;
    for (Warp* w = block.warps; w < end; ++w) {
        for (int i = 0; i < w->group_count; ++i) {
            Group& g = w->groups[i];
            if (g.state != AT_BARRIER || g.barrier != number) continue;
            const Op& o = w->machine->launch.ops[g.pc];
            if (o.count) {  // bar.red: 1 popc, 2 and, 3 or
                char* to = g.frame->registers + o.to;
                bool holds = o.count == 2 ? barrier.count == barrier.threads : barrier.count != 0;
                if (o.count == 1) each(g.lanes, [&](int k) { ((u32*)to)[k] = barrier.count; });
                else *(Mask*)to = holds ? *(Mask*)to | g.lanes : *(Mask*)to & ~g.lanes;
            }
            g.state = READY;
            ++g.pc;
        }
    }
    barrier = {};
}

inline void check_barrier(Block& block, int number) {
    Barrier& barrier = block.barriers[number];
    unsigned expected = barrier.expected ? barrier.expected : block.live;
    if (barrier.arrived && barrier.arrived >= expected) open_barrier(block, number);
}

// Whether the lanes `m` of the running group, and those that wait here, are all that are `needed`: then
// they are in `m` and run together. Else they wait here: the others may be on their way.
inline bool all_there(Warp& w, Mask& m, Mask needed) {
    if (m == needed) return true;
    w.active &= ~m;
    for (int i = 0; i < w.group_count;) {
        const Group& g = w.groups[i];
        bool here = g.state == PARTLY && g.pc == w.pc && g.frame == w.frame;
        if (here) m |= g.lanes, remove_group(w, i);
        else ++i;
    }
    Mask others = w.active;  // their guard is false
    if (m == needed) {
        w.active |= m;
        return true;
    }
    add_group(w, {m, 0, w.frame, w.pc, PARTLY, 0});
    add_group(w, {others, 0, w.frame, w.pc + 1, READY, 0});
    w.active = 0;
    return false;
}

// The running group arrives at a barrier. flags: 1 aligned (all lanes of the warp that have not
// exited must come together), 4 it does not wait (bar.arrive).
inline void barrier(Warp& w, const Op& o, Mask m) {
    Block& block = *w.block;
    int lane = __builtin_ctz(m);
    unsigned number = w.in<u32>(o.a)[lane], expected = w.in<u32>(o.b)[lane];
    bool aligned = o.flags & 1, waits = !(o.flags & 4);
    if (number >= BARRIERS || expected % LANES) {
        note(w, "barrier %u of %u threads; there are 16, of a multiple of 32 threads", number, expected);
        fail(w, BAD_BARRIER, lane);
    }
    if (aligned && !all_there(w, m, w.live)) return;
    Barrier& b = block.barriers[number];
    unsigned lanes = (unsigned)__builtin_popcount(m);
    b.arrived += expected && aligned ? LANES : lanes;
    b.threads += lanes;
    b.expected = expected;
    if (o.count) b.count += (unsigned)__builtin_popcount(m & (o.flags & NEGATE_C ? ~w.predicate(o.c) : w.predicate(o.c)));
    Mask others = w.active & ~m;
    w.active = 0;
    add_group(w, {others, 0, w.frame, w.pc + 1, READY, 0});
    add_group(w, {m, 0, w.frame, waits ? w.pc : w.pc + 1, waits ? AT_BARRIER : READY, (int)number});
    check_barrier(block, (int)number);
}

// -- the end of lanes --------------------------------------------------------------------------

// Those that waited for these lanes may go on.
inline void after_exit(Warp& w) {
    for (int i = 0; i < w.group_count; ++i) {
        const Group g = w.groups[i];
        if (g.state == PARTLY && g.lanes == w.live) {
            w.groups[i].state = READY;  // comes to the barrier again
        } else if (g.state == AT_COLLECTIVE) {
            const Op& o = w.machine->launch.ops[g.pc];
            Mask all = waiting_at(w, o, g.mask);
            if (all == (g.mask & w.live)) release(w, o, g.mask, all);
        }
    }
    for (int i = 0; i < BARRIERS; ++i) {
        if (w.block->barriers[i].arrived) check_barrier(*w.block, i);
    }
}

inline void exit_lanes(Warp& w, Mask m) {
    w.live &= ~m;
    w.active &= ~m;
    w.block->live -= (unsigned)__builtin_popcount(m);
    w.block->moved = true;
    Frame* frame = w.frame;
    while (frame && frame->outer) {
        Frame* outer = frame->outer;
        frame->lanes &= ~m;
        if (!frame->lanes) free(frame);
        frame = outer;
    }
    if (w.active) ++w.pc, park(w, READY);
    after_exit(w);
}

}  // namespace mgp
