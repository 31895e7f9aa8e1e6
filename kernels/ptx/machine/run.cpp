// Runs a launch: blocks one after the other, the warps of a block in turn.
#include "tensors.h"

#include "chains.h"

#include <sys/mman.h>

namespace mgp {

static const Entry control[] = {
    {"bra", nullptr, BRANCH},
    {"brx", nullptr, TABLE_BRANCH},
    {"exit", nullptr, EXIT},
    {"ret", nullptr, RETURN},
    {"call", nullptr, CALL},
    {"bar", nullptr, BARRIER},
    {"collective", nullptr, COLLECTIVE},
    {"sleep", nullptr, SLEEP},
    {"special", nullptr, PLAIN},
};
constexpr int SPECIAL = sizeof control / sizeof *control - 1;

template <size_t N>
constexpr int count(const Entry (&)[N]) {
    return (int)N;
}

constexpr int ENTRIES = count(control) + count(integers) + count(floats) + count(memory) + count(tensors);

static Entry table[ENTRIES];

// -- special registers -------------------------------------------------------------------------

enum Special {
    TID_X, TID_Y, TID_Z, NTID_X, NTID_Y, NTID_Z, CTAID_X, CTAID_Y, CTAID_Z, NCTAID_X, NCTAID_Y,
    NCTAID_Z, LANEID, WARPID, NWARPID, SMID, NSMID, GRIDID, LANEMASK_EQ, LANEMASK_LE, LANEMASK_LT,
    LANEMASK_GE, LANEMASK_GT, CLOCK, CLOCK_HI, CLOCK64, GLOBALTIMER, DYNAMIC_SMEM_SIZE,
    TOTAL_SMEM_SIZE, ACTIVEMASK
};

static u64 special_value(const Warp& w, int which, int lane) {
    const Launch& l = w.machine->launch;
    const u32 bit = 1u << lane;
    switch (which) {
        case TID_X: case TID_Y: case TID_Z: return w.tid[which - TID_X][lane];
        case NTID_X: case NTID_Y: case NTID_Z: return l.block[which - NTID_X];
        case CTAID_X: case CTAID_Y: case CTAID_Z: return w.block->index[which - CTAID_X];
        case NCTAID_X: case NCTAID_Y: case NCTAID_Z: return l.grid[which - NCTAID_X];
        case LANEID: return (u64)lane;
        case WARPID: return w.number;
        case NWARPID: return w.machine->warps_a_block;
        case SMID: return 0;
        case NSMID: return 1;
        case GRIDID: return 1;
        case LANEMASK_EQ: return bit;
        case LANEMASK_LT: return bit - 1;
        case LANEMASK_LE: return bit | (bit - 1);
        case LANEMASK_GE: return ~(bit - 1);
        case LANEMASK_GT: return ~(bit | (bit - 1));
        case CLOCK_HI: return w.machine->steps >> 32;
        case GLOBALTIMER: {
            timespec now;
            clock_gettime(CLOCK_MONOTONIC, &now);
            return (u64)now.tv_sec * 1000000000 + (u64)now.tv_nsec;
        }
        case DYNAMIC_SMEM_SIZE: return l.dynamic_shared;
        case TOTAL_SMEM_SIZE: return l.total_shared;
    }
    return w.machine->steps;  // clocks: each operation of a warp takes one
}

static void read_special(Warp& w, const Op& o, Mask m) {
    each(m, [&](int i) {
        u64 value = o.value == ACTIVEMASK ? m : special_value(w, (int)o.value, i);
        if (o.bytes == 8) w.at<u64>(o.to)[i] = value;
        else if (o.bytes == 2) w.at<u16>(o.to)[i] = (u16)value;
        else w.at<u32>(o.to)[i] = (u32)value;
    });
}

// -- a warp ------------------------------------------------------------------------------------

// Lanes for which `taken` holds go to `target`, the others to the next operation.
static inline void branch(Warp& w, Mask taken, int target) {
    Mask others = w.active & ~taken;
    if (!taken) {
        ++w.pc;
    } else if (!others) {
        w.pc = target;
    } else {
        bool back = target <= w.pc;
        int next = w.pc + 1;
        add_group(w, {back ? others : taken, 0, w.frame, back ? next : target, READY, 0});
        w.active = back ? taken : others;
        w.pc = back ? target : next;
        find_meeting(w);
    }
}

static void table_branch(Warp& w, const Op& o, Mask m) {
    const int32_t* targets = w.machine->launch.lists + o.list;
    const u32* index = w.in<u32>(o.a);
    Mask others = w.active & ~m;
    add_group(w, {others, 0, w.frame, w.pc + 1, READY, 0});
    for (Mask rest = m; rest;) {
        int first = __builtin_ctz(rest);
        if (index[first] >= (u32)o.value) fail(w, BAD_TARGET, first);
        Mask same = 0;
        each(rest, [&](int i) { same |= (Mask)(index[i] == index[first]) << i; });
        add_group(w, {same, 0, w.frame, targets[index[first]], READY, 0});
        rest &= ~same;
    }
    w.active = 0;
}

constexpr unsigned POLLS = 64;     // accesses as of one that waits, until others run
constexpr u64 STEPS = 1 << 20;     // operations of a warp, until others run

// Runs groups of a warp until none can go on, or others shall.
static bool run(Warp& w) {
    Machine& machine = *w.machine;
    const Op* ops = machine.launch.ops;
    u64* counts = machine.launch.counts;
    const bool follows = machine.launch.chains;
    const u64 most = machine.launch.slice ? machine.launch.slice : STEPS;
    u64 steps = 0;
    w.spun = 0;
    bool ran = false;
    while (pick(w)) {
        ran = true;
        while (w.active) {
            if (w.pc >= w.meet) {
                park(w, READY);
                break;
            }
            const Op& o = ops[w.pc];
            Mask m = w.active;
            if (o.guard) {
                Mask p = w.predicate(o.predicate);
                m &= o.guard == 1 ? p : ~p;
            }
            ++steps;
            if (counts) ++counts[2 * w.pc], counts[2 * w.pc + 1] += (u64)__builtin_popcount(m);
            const Entry& entry = table[o.code];
            if (__builtin_expect(follows, 0)) {
                follow(w, w.pc);
                if (entry.kind == BARRIER) arrive(w, machine.launch.chains->latency[w.pc]);
                else if (entry.kind != PLAIN && entry.kind != COLLECTIVE) end_basic_block(w.chain);
            }
            if (entry.kind == BRANCH) {
                branch(w, m, o.target);
            } else if (!m) {
                ++w.pc;
            } else {
                switch (entry.kind) {
                    case PLAIN: entry.run(w, o, m); ++w.pc; break;
                    case TABLE_BRANCH: table_branch(w, o, m); break;
                    case EXIT: exit_lanes(w, m); break;
                    case RETURN:
                        if (w.frame->outer) give_back(w, m);
                        else exit_lanes(w, m);
                        break;
                    case CALL: call(w, o, m); break;
                    case BARRIER: barrier(w, o, m); break;
                    case COLLECTIVE: collective(w, o, m); break;
                    case WHOLE_WARP:
                        if (w.live != ALL) fail(w, NOT_ALL_LANES, __builtin_ctz(m));
                        if (all_there(w, m, ALL)) entry.run(w, o, m), ++w.pc;
                        break;
                    default: w.spun = POLLS; ++w.pc;
                }
            }
            if (__builtin_expect(w.spun >= POLLS || steps >= most, 0)) {
                w.spun = 0;
                if (w.active) park(w, LATE);
                machine.steps += steps;
                return true;
            }
        }
    }
    machine.steps += steps;
    return ran;
}

// A warp with no group that can go on: whether that is for good.
static void check_stuck(Warp& w) {
    int partly = -1, waiting = -1;
    for (int i = 0; i < w.group_count; ++i) {
        const Group& g = w.groups[i];
        if (g.state == READY || g.state == LATE || g.state == AT_BARRIER) return;
        if (g.state == PARTLY) partly = i;
        else waiting = i;
    }
    if (partly < 0 && waiting < 0) return;
    const Group& g = w.groups[partly >= 0 ? partly : waiting];
    w.pc = g.pc;
    for (int i = 0; i < w.group_count; ++i) {
        w.machine->finding->lanes = (int)g.lanes;
        if (&w.groups[i] != &g) note(w, "%d 0x%08x ", w.groups[i].pc, w.groups[i].lanes);
    }
    bool whole = table[w.machine->launch.ops[g.pc].code].kind == WHOLE_WARP;
    fail(w, whole ? NOT_ALL_LANES : partly >= 0 ? DIVERGENT : DEADLOCK, __builtin_ctz(g.lanes));
}

// -- blocks ------------------------------------------------------------------------------------

static size_t local_bytes(const Machine& machine) {
    return (size_t)machine.launch.local_room * machine.warps_a_block * LANES;
}

static Block* new_block(Machine& machine, u64 number) {
    const Launch& l = machine.launch;
    size_t warps = machine.warps_a_block, shared = (l.total_shared + 127) / 128 * 128;
    size_t bytes = sizeof(Block) + warps * sizeof(Warp) + shared + 128;
    Block* block = (Block*)calloc(1, bytes);
    if (!block) return nullptr;
    block->warps = (Warp*)(block + 1);
    block->shared = (char*)(((uintptr_t)(block->warps + warps) + 127) & ~(uintptr_t)127);
    memset(block->shared, 0xff, l.total_shared);
    if (l.local_room) {
        void* room = mmap(nullptr, local_bytes(machine), PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (room == MAP_FAILED) return free(block), nullptr;
        block->local = (char*)room;
    }
    u64 at = l.chosen ? l.chosen[number] : l.reversed ? machine.block_count - 1 - number : number;
    block->index[0] = (u32)(at % l.grid[0]);
    block->index[1] = (u32)(at / l.grid[0] % l.grid[1]);
    block->index[2] = (u32)(at / l.grid[0] / l.grid[1]);
    block->live = machine.threads;
    return block;
}

// A kernel's registers may fill half a megabyte for each warp, which malloc would map anew.
static Frame* first_frame(Machine& machine, Warp& w) {
    const Launch& l = machine.launch;
    Frame* frame = machine.spare;
    if (!frame) return new_frame(w, l.register_bytes, l.area_bytes);
    machine.spare = frame->outer;
    poison(frame, l.register_bytes);
    return frame;
}

static void start_warps(Machine& machine, Block& block) {
    const Launch& l = machine.launch;
    for (unsigned n = 0; n < machine.warps_a_block; ++n) {
        Warp& w = block.warps[n];
        w.machine = &machine;
        w.block = &block;
        w.number = n;
        w.constants = l.constants;
        for (unsigned i = 0; i < LANES; ++i) {
            unsigned t = n * LANES + i;
            if (t < machine.threads) w.live |= 1u << i;
            w.tid[0][i] = t % l.block[0];
            w.tid[1][i] = t / l.block[0] % l.block[1];
            w.tid[2][i] = t / l.block[0] / l.block[1];
        }
        Frame* frame = first_frame(machine, w);
        frame->outer = nullptr;
        frame->depth = 0;
        frame->lanes = w.live;
        frame->local = 0;
        poison_local(w, w.live, 0, l.local_bytes);
        add_group(w, {w.live, 0, frame, l.entry, READY, 0});
        w.first = frame;
        if (l.chains) w.chain.ready = (u64*)calloc(l.chains->register_count + 1, sizeof(u64));
    }
}

static void end_block(Machine& machine, Block* block) {
    if (machine.free_sms) machine.free_sms[machine.free_count++] = block->sm;
    for (unsigned n = 0; n < machine.warps_a_block; ++n) {
        Warp& w = block->warps[n];
        if (w.first) {
            w.first->outer = machine.spare;
            machine.spare = w.first;
        }
        free(w.copies);
        free(w.chain.ready);
    }
    if (block->local) munmap(block->local, local_bytes(machine));
    free(block);
}

// Lets each warp of a block run; false when the block has ended.
static bool advance(Machine& machine, Block& block) {
    bool ran = false;
    block.moved = false;
    for (unsigned n = 0; n < machine.warps_a_block; ++n) {
        Warp& w = block.warps[machine.launch.reversed ? machine.warps_a_block - 1 - n : n];
        if (!w.live) continue;
        ran |= run(w);
        if (w.live) check_stuck(w);
    }
    if (!block.live) return false;
    if (!ran) {
        for (unsigned n = 0; n < machine.warps_a_block; ++n) {
            Warp& w = block.warps[n];
            for (int i = 0; i < w.group_count; ++i) {
                machine.finding->lanes = (int)w.groups[i].lanes;
                w.pc = w.groups[i].pc;
                fail(w, DEADLOCK, __builtin_ctz(w.groups[i].lanes));
            }
        }
    }
    return true;
}

constexpr u64 RESIDENT = 512, PATIENCE = 8, FOREVER = 1 << 18;

// Another block begins; false where there is none, or too many run.
static bool admit(Machine& machine) {
    if (machine.next_block == machine.block_count || machine.resident == machine.room) return false;
    Block* block = new_block(machine, machine.next_block++);
    if (!block) {
        machine.finding->status = NO_MEMORY;
        longjmp(machine.escape, 1);
    }
    if (machine.free_count) block->sm = machine.free_sms[--machine.free_count];
    else if (machine.launch.traffic) block->sm = (machine.next_block - 1) % machine.launch.traffic->sms;
    machine.blocks[machine.resident++] = block;
    start_warps(machine, *block);
    return true;
}

static void run_blocks(Machine& machine, u64 budget) {
    u64 until = machine.steps + budget;
    while (machine.resident || admit(machine)) {
        bool moved = false;
        if (machine.launch.room) {
            while (machine.resident < machine.room && admit(machine)) {
            }
        }
        for (u64 i = 0; i < machine.resident; ++i) {
            Block* block = machine.blocks[i];
            if (advance(machine, *block)) {
                moved |= block->moved;
                continue;
            }
            moved = true;
            if (machine.launch.chains) end_chains(machine, *block);
            end_block(machine, block);
            machine.blocks[i--] = machine.blocks[--machine.resident];
        }
        machine.spins = moved ? 0 : machine.spins + 1;
        if (machine.spins > PATIENCE && !admit(machine) && machine.spins > FOREVER / (machine.resident + 1)) {
            fail(machine.blocks[0]->warps[0], SPINNING, 0);
        }
        if (machine.steps >= until) {
            machine.finding->status = RUNNING;
            return;
        }
    }
    machine.finding->status = FINISHED;
}

}  // namespace mgp

using namespace mgp;

#define MGP_API extern "C" __attribute__((visibility("default")))

// The name of an operation, or null after the last.
MGP_API const char* mgp_operation(int number) {
    static bool filled = false;
    if (!filled) {
        int n = 0;
        auto add = [&](const Entry* entries, int size) {
            for (int i = 0; i < size; ++i) table[n++] = entries[i];
        };
        add(control, count(control));
        add(integers, count(integers));
        add(floats, count(floats));
        add(memory, count(memory));
        add(tensors, count(tensors));
        table[SPECIAL].run = read_special;
        filled = true;
    }
    return number < ENTRIES ? table[number].name : nullptr;
}

MGP_API Machine* mgp_new(const Launch* launch) {
    Machine* machine = (Machine*)calloc(1, sizeof(Machine));
    if (!machine) return nullptr;
    machine->launch = *launch;
    machine->threads = launch->block[0] * launch->block[1] * launch->block[2];
    machine->warps_a_block = (machine->threads + LANES - 1) / LANES;
    machine->block_count = (u64)launch->grid[0] * launch->grid[1] * launch->grid[2];
    if (launch->chosen) machine->block_count = launch->chosen_count;
    machine->room = launch->together ? machine->block_count
                                     : machine->block_count < RESIDENT ? machine->block_count : RESIDENT;
    if (launch->room && launch->room < machine->block_count) machine->room = launch->room;
    machine->blocks = (Block**)calloc(machine->room + 1, sizeof(Block*));
    if (launch->traffic) machine->free_sms = (unsigned*)calloc(machine->room + 1, sizeof(unsigned));
    if (!machine->blocks) return free(machine), nullptr;
    return machine;
}

// Runs about `budget` operations of warps; the state goes to `finding`.
MGP_API int mgp_run(Machine* machine, u64 budget, Finding* finding) {
    machine->finding = finding;
    memset(finding, 0, sizeof *finding);
    if (!setjmp(machine->escape)) {
        if (machine->launch.together) {
            while (admit(*machine)) {
            }
        }
        run_blocks(*machine, budget);
    }
    return finding->status;
}

MGP_API u64 mgp_output(Machine* machine, const char** text) {
    *text = machine->output;
    u64 size = machine->output_size;
    machine->output_size = 0;
    return size;
}

MGP_API u64 mgp_steps(const Machine* machine) { return machine->steps; }

MGP_API void mgp_free(Machine* machine) {
    for (u64 i = 0; i < machine->resident; ++i) end_block(*machine, machine->blocks[i]);
    while (Frame* frame = machine->spare) {
        machine->spare = frame->outer;
        free(frame);
    }
    free(machine->blocks);
    free(machine->free_sms);
    free(machine->output);
    free(machine);
}
