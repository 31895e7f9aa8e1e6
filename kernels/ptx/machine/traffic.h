// What a launch asks of memory: requests of warps, and what caches would serve of them.
//
// A request is an operation of a warp. In global memory it touches lines of 128 bytes and sectors of
// 32, in shared memory it takes wavefronts. Caches are set-associative with 16 ways, a line is found
// by a hash of its number, and the one that was used longest ago makes room; a miss brings the
// sectors that are asked for, not the line. The first level belongs to an SM, is written through and
// makes no room for what is written; the second level belongs to all, and what was written goes to
// memory when it makes room. Both begin empty. What is under way counts as present.
#pragma once

#include "machine.h"

namespace mgp {

constexpr int WAYS = 16;
enum Column {
    REQUESTS, SECTORS, LINES, WAVEFRONTS, L1_MISSES, L2_MISSES, FROM_L1, FROM_L2, FROM_MEMORY, COLUMNS
};

struct Line {
    uint64_t number;  // of 128 bytes, and one: 0 is none
    uint32_t used;
    uint8_t present, written;  // sectors
};

struct Traffic {  // mirrored by kernels/ptx/machine.py
    uint64_t* counts;    // by operation: the columns above
    Line *first, *second;
    uint32_t sms, first_sets, second_sets;  // 0 sets: no caches
    uint32_t now;
    uint64_t written;    // sectors that went to memory
    uint64_t* addresses;  // of atomic operations, and how many there were
    uint32_t address_room;
    uint64_t hottest;    // most atomic operations on one address
    const int32_t* widths;  // by operation: bytes of the access that it is part of, 0 where another
                            // one stands for it; null: each for itself
};

inline Line& find(Traffic& t, Line* lines, uint32_t sets, uint64_t number) {
    uint64_t set = (number * 0x9e3779b97f4a7c15ull >> 24) % sets;
    Line* ways = lines + set * WAYS;
    Line* oldest = ways;
    for (int i = 0; i < WAYS; ++i) {
        if (ways[i].number == number + 1) return ways[i].used = ++t.now, ways[i];
        if (ways[i].used < oldest->used) oldest = ways + i;
    }
    if (lines == t.second) t.written += (uint64_t)__builtin_popcount(oldest->written);
    *oldest = {number + 1, ++t.now, 0, 0};
    return *oldest;
}

inline Line* present(Traffic& t, Line* lines, uint32_t sets, uint64_t number) {
    Line* ways = lines + (number * 0x9e3779b97f4a7c15ull >> 24) % sets * WAYS;
    for (int i = 0; i < WAYS; ++i) {
        if (ways[i].number == number + 1) return ways[i].used = ++t.now, ways + i;
    }
    return nullptr;
}

// The sectors of a line that neither level has, after they were brought.
inline void through_caches(Warp& w, uint64_t* counts, uint64_t line, uint8_t sectors, bool writes,
                           bool is_atomic, int& level) {
    Traffic& t = *w.machine->launch.traffic;
    Line* own = t.first + (size_t)w.block->sm * t.first_sets * WAYS;
    uint8_t missing = sectors;
    if (!writes && t.first_sets) {
        Line& found = find(t, own, t.first_sets, line);
        missing = sectors & ~found.present;
        found.present |= sectors;
    } else if (is_atomic && t.first_sets) {
        if (Line* found = present(t, own, t.first_sets, line)) found->present &= ~sectors;
    }
    if (!missing) return;
    counts[L1_MISSES] += (uint64_t)__builtin_popcount(missing);
    if (level < 1) level = 1;
    Line& found = find(t, t.second, t.second_sets, line);
    uint8_t absent = writes && !is_atomic ? 0 : missing & ~found.present;
    found.present |= missing;
    if (writes) found.written |= missing;
    if (!absent) return;
    counts[L2_MISSES] += (uint64_t)__builtin_popcount(absent);
    level = 2;
}

inline void observe_global(Warp& w, uint64_t* counts, Mask m, const uint64_t* at, int bytes,
                           bool writes, bool is_atomic) {
    uint64_t lines[2 * LANES];
    uint8_t sectors[2 * LANES];
    int count = 0, level = 0;
    for (Mask rest = m; rest; rest &= rest - 1) {
        const uint64_t address = at[__builtin_ctz(rest)];
        for (uint64_t s = address >> 5; s <= (address + (uint64_t)bytes - 1) >> 5; ++s) {
            int i = count - 1;
            while (i >= 0 && lines[i] != s >> 2) --i;
            if (i < 0) lines[i = count++] = s >> 2, sectors[i] = 0;
            sectors[i] |= (uint8_t)(1 << (s & 3));
        }
    }
    counts[LINES] += (uint64_t)count;
    for (int i = 0; i < count; ++i) counts[SECTORS] += (uint64_t)__builtin_popcount(sectors[i]);
    if (!w.machine->launch.traffic->second_sets) return;
    for (int i = 0; i < count; ++i) {
        through_caches(w, counts, lines[i], sectors[i], writes, is_atomic, level);
    }
    ++counts[FROM_L1 + level];
}

// The bank with the most words decides. A word that several lanes ask for is delivered once.
inline uint64_t wavefronts(Mask m, const uint64_t* at, int bytes) {
    uint64_t words[8 * LANES];  // of a fragment: 32 bytes of a lane
    uint8_t in_bank[32] = {}, most = 0;
    int count = 0;
    for (Mask rest = m; rest; rest &= rest - 1) {
        const uint64_t address = at[__builtin_ctz(rest)];
        for (uint64_t word = address >> 2; word <= (address + (uint64_t)bytes - 1) >> 2; ++word) {
            int i = 0;
            while (i < count && words[i] != word) ++i;
            if (i < count) continue;
            words[count++] = word;
            if (++in_bank[word & 31] > most) most = in_bank[word & 31];
        }
    }
    return most;
}

inline void count_address(Traffic& t, uint64_t address) {
    uint64_t at = address * 0x9e3779b97f4a7c15ull >> 20;
    for (uint32_t tries = 0; tries < 8; ++tries, ++at) {
        uint64_t* entry = t.addresses + at % t.address_room * 2;
        if (entry[0] && entry[0] != address) continue;
        entry[0] = address;
        if (++entry[1] > t.hottest) t.hottest = entry[1];
        return;
    }
}

// An access of the lanes of a mask; addresses are those of this process. o: of the program.
__attribute__((noinline)) inline void observe(Warp& w, const Op& o, int space, Mask m,
                                              const uint64_t* at, int bytes, bool writes,
                                              bool is_atomic) {
    Traffic& t = *w.machine->launch.traffic;
    uint64_t* counts = t.counts + (&o - w.machine->launch.ops) * COLUMNS;
    const Launch& l = w.machine->launch;
    const uint64_t shared = (uint64_t)w.block->shared, any = at[__builtin_ctz(m)];
    if (space == PARAMETERS || space == AREA) return;
    if (t.widths) {
        bytes = t.widths[&o - l.ops];
        if (!bytes) return;
    }
    if (space == SHARED || any - shared < l.total_shared) {
        uint64_t from[LANES];
        for (int i = 0; i < LANES; ++i) from[i] = at[i] - shared;
        ++counts[REQUESTS];
        counts[WAVEFRONTS] += wavefronts(m, from, bytes);
        return;
    }
    if (any - (uint64_t)l.parameters < (uint64_t)l.parameter_bytes) return;
    ++counts[REQUESTS];
    if (is_atomic) {
        for (Mask rest = m; rest; rest &= rest - 1) count_address(t, at[__builtin_ctz(rest)]);
    }
    observe_global(w, counts, m, at, bytes, writes, is_atomic);
}

}  // namespace mgp
