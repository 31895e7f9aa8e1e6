// How many cycles a warp would take alone: what waits for what.
//
// An instruction begins when its operands are there, but not before its basic block; a block begins
// when the last instruction of the one before it was issued, one a cycle. Within a block the order
// is free, since the assembler arranges instructions so that loads come first. A barrier ends its
// latency after the last warp has come.
#pragma once

#include "machine.h"

namespace mgp {

struct Chains {  // mirrored by kernels/ptx/machine.py
    const int32_t* links;      // by operation: where its registers are in the list, or -1
    const int32_t* registers;  // for each: how many it reads, which; how many it writes, which
    const int32_t* latency;    // by operation, in cycles
    const int32_t* slots;      // by operation: instructions of the machine code
    uint64_t register_count;
    uint64_t cycles, blocks;   // of all blocks that ended
};

inline void end_basic_block(Chain& c) {
    if (c.begin + c.issued > c.latest) c.latest = c.begin + c.issued;
    c.begin = c.latest;
    c.issued = 0;
}

inline void follow(Warp& w, int pc) {
    Chain& c = w.chain;
    const Chains& known = *w.machine->launch.chains;
    if (c.waited) {
        const uint64_t arrived = w.block->arrived[(c.barriers - 1) & 3];
        if (arrived > c.begin) c.begin = c.latest = arrived;
        c.waited = false;
    }
    c.issued += (uint32_t)known.slots[pc];
    if (known.links[pc] < 0) return;
    const int32_t* list = known.registers + known.links[pc];
    uint64_t t = c.begin;
    for (int n = *list++; n; --n, ++list) {
        if (c.ready[*list] > t) t = c.ready[*list];
    }
    if (t + 1 > c.latest) c.latest = t + 1;
    for (int n = *list++; n; --n, ++list) c.ready[*list] = t + (uint64_t)known.latency[pc];
}

// Some warps go on while others have not seen that a barrier ended: they are at most one apart.
inline void arrive(Warp& w, int latency) {
    Chain& c = w.chain;
    end_basic_block(c);
    c.latest += (uint64_t)latency;
    uint64_t& arrived = w.block->arrived[c.barriers++ & 3];
    if (c.latest > arrived) arrived = c.latest;
    c.waited = true;
}

inline void end_chains(Machine& machine, Block& block) {
    Chains& known = *machine.launch.chains;
    uint64_t most = 0;
    for (unsigned n = 0; n < machine.warps_a_block; ++n) {
        Chain& c = block.warps[n].chain;
        end_basic_block(c);
        if (c.latest > most) most = c.latest;
    }
    known.cycles += most;
    ++known.blocks;
}

}  // namespace mgp
