// The runtime that kernels compiled for the CPU share: fibers, barriers, warps, launches.
#include "barriers.h"
#include "grid.h"
#include "interrupt.h"
#include "record.h"
#include "warps.h"

#include <sched.h>

#include <atomic>

extern "C" void mgh_thread_exit(Fiber* fiber) {
    Runner* w = current;
    w->vain = 0;
    Barrier& barrier = w->barrier;
    if (barrier.arrived && barrier.arrived == w->live) {
        if (w->recorder) record_passed(w);
        pass_barrier(w, barrier.arrived);
    }
    Warp& warp = w->warp[fiber->linear / LANES];
    for (unsigned s = 0; s < warp.slots;) {
        Slot& slot = warp.slot[s];
        if (slot.arrived == (slot.mask & warp.live)) finish(w, warp, s, nullptr);
        else ++s;
    }
}

// Lets the block's other threads run. A thread that yields for very long without progress hangs.
extern "C" void mgh_yield(bool fruitless) {
    Fiber* fiber = self();
    Runner* w = current;
    if (__builtin_expect(must_stop(w->launch->stop), 0)) leave_interrupted(w);
    if (fruitless && ++w->vain > (w->recorder ? MGH_SPIN_LIMIT >> 12 : MGH_SPIN_LIMIT)) {
        w->report->status = FAILED;
        say_thread(w->report, fiber);
        say(w->report, " spins on a value that nothing changes");
        if (!w->cooperative) {
            say(w->report, " (blocks run one after another: what waits for a later one needs"
                " enable_cooperative_groups=True)");
        }
        give_up(w);
    }
    // All that can go on spin: for threads at __activemask(), it may be.
    if (fruitless && w->vain > w->live && w->active.first != w->active.last) idle(w);
    if (w->cooperative && ++w->yields > w->live) {  // the other blocks' turn
        w->yields = 0;
        return mgh_switch(&append(w->ready, fiber).sp, w->main_sp);
    }
    if (w->ready.first != w->ready.last || w->started < w->threads) {
        Place& mine = append(w->ready, fiber);
        // Not run_others(): a new thread starts before this one runs again.
        Fiber* fresh = w->started < w->threads ? take_fiber(w) : nullptr;
        Place* next = fresh ? nullptr : pop(w->ready);
        if (fresh) mgh_switch(&mine.sp, fresh->sp);
        else if (next->fiber != fiber) mgh_switch(&mine.sp, next->sp);
    } else {
        sched_yield();  // it may wait for another block
    }
}

extern "C" void mgh_trap(const char* what, const char* detail, int line) {
    Fiber* fiber = self();
    Runner* w = current;
    w->report->status = FAILED;
    say(w->report, "line %d: %s%s%s in ", line, what, *detail ? ": " : "", detail);
    say_thread(w->report, fiber);
    give_up(w);
}

namespace {

Runner* new_runner() {
    size_t page = sysconf(_SC_PAGESIZE);
    size_t room = (DYNAMIC_LIMIT + page - 1) / page * page;
    void* memory = mmap(nullptr, sizeof(Runner), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    void* dynamic = mmap(nullptr, room + page, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED || dynamic == MAP_FAILED) return nullptr;
    Runner* w = (Runner*)memory;
    w->page = page;
    w->ready.places = w->queues[0];
    w->active.places = w->queues[1];
    w->barrier.places = w->queues[2];
    w->dynamic_end = (unsigned char*)dynamic + room;
    mprotect(w->dynamic_end, page, PROT_NONE);
    return w;
}

// The order in which threads start: by number, or the other way round.
void set_order(Runner* w, dim3 block, bool reversed) {
    dim3 known = w->starts_of;
    w->order = w->starts;
    w->threads = block.x * block.y * block.z;
    w->block_dim = block;
    if (known.x == block.x && known.y == block.y && known.z == block.z &&
        w->starts_reversed == reversed) {
        return;
    }
    for (unsigned i = 0; i < w->threads; ++i) {
        unsigned t = reversed ? w->threads - 1 - i : i;
        w->starts[i] = {{t % block.x, t / block.x % block.y, t / block.x / block.y}, t};
    }
    w->starts_of = block;
    w->starts_reversed = reversed;
}

void begin(Runner* w) {
    static thread_local uint64_t blocks;
    w->epoch = ++blocks;
    w->started = 0;
    w->live = w->threads;
    w->waiting = 0;
    w->static_shared = 0;
    w->variable_count = w->kept_count = 0;
    w->static_end = 0;
    w->placed = 0;
    w->at_grid = 0;
    w->vain = w->yields = 0;
    for (unsigned i = 0; i * LANES < w->threads; ++i) {
        unsigned lanes = w->threads - i * LANES;
        w->warp[i].live = lanes >= LANES ? ~0u : (1u << lanes) - 1;
        w->warp[i].slots = 0;
    }
    forget_copies(w);
    if (w->dynamic_shared) memset(w->dynamic, 0xff, w->dynamic_bytes);
    if (w->dynamic_shared && w->recorder) {
        static const unsigned bytes[6] = {1, 0};
        w->rows[0] = record_shared(w, bytes, w->dynamic, w->dynamic_shared,
                                   "dynamic shared memory", bytes, false);
    }
}

// After an error the stacks are abandoned, and on another OS thread too: all fibers begin anew.
void start_afresh(Runner* w) {
    w->free_count = 0;
    for (unsigned i = 0; i < w->fiber_count; ++i) {
        Fiber* fiber = w->fibers[i];
        uintptr_t top = (uintptr_t)fiber, bottom = top & ~(uintptr_t)(STACK_BYTES - 1);
        if (w->checked && fiber->busy) allow(bottom, top);  // what lay around local variables
        fiber->worker = w;
        renew(fiber);
        w->free[w->free_count++] = fiber;
    }
    w->ready.first = w->ready.last = w->active.first = w->active.last = 0;
    w->barrier.arrived = 0;
    w->barrier.count = 0;
}

}  // namespace

// What Python gives for a launch. Mirrored by kernels/host/library.py.
struct Launch {
    void (*run_threads)(const char*);
    unsigned grid[3], block[3];
    unsigned shared, reversed, cooperative, checked;
    Recorder* recorder;
};

namespace {

// Runners, with their stacks, of OS threads that have ended: the next threads take them.
std::atomic<Runner*> idle_runners;

void leave_idle(Runner* first, Runner* last) {
    last->next = idle_runners;
    while (!idle_runners.compare_exchange_weak(last->next, first)) {}
}

Runner* take_idle() {
    Runner* first = idle_runners.exchange(nullptr);
    Runner* last = first ? first->next : nullptr;
    if (!last) return first;
    while (last->next) last = last->next;
    leave_idle(first->next, last);
    return first;
}

// An OS thread's: one, or one for each block of a cooperative launch.
struct Runners {
    Runner** all;
    uint64_t count;

    ~Runners() {
        for (uint64_t i = 0; i < count; ++i) leave_idle(all[i], all[i]);
        free(all);
        all = nullptr;
        count = 0;
    }
};
thread_local Runners own;

bool have_runners(uint64_t count) {
    if (count <= own.count) return true;
    Runner** more = (Runner**)realloc(own.all, count * sizeof(Runner*));
    if (!more) return false;
    own.all = more;
    give_signal_stack();
    while (own.count < count) {
        Runner* w = take_idle();
        if (w) start_afresh(current = w);  // its stacks were begun on another OS thread
        else w = new_runner();
        if (!w) return false;
        own.all[own.count++] = w;
    }
    return true;
}

void prepare(Runner* w, const Launch* launch, const char* arguments, Report* report,
             Running* here) {
    w->report = report;
    w->launch = here;
    w->run_threads = launch->run_threads;
    w->arguments = arguments;
    w->cooperative = launch->cooperative;
    w->grid_dim = dim3(launch->grid[0], launch->grid[1], launch->grid[2]);
    w->dynamic_shared = launch->shared;
    w->checked = launch->checked;
    w->recorder = launch->recorder;
    w->dynamic_bytes = (launch->shared + 127) / 128 * 128;
    w->dynamic = w->dynamic_end - w->dynamic_bytes;
    if (w->checked) w->dynamic_bytes = launch->shared;
    set_order(w, dim3(launch->block[0], launch->block[1], launch->block[2]), launch->reversed);
}

void set_block(Runner* w, uint64_t number) {
    uint64_t x = w->grid_dim.x, y = w->grid_dim.y;
    w->block = {(unsigned)(number % x), (unsigned)(number / x % y), (unsigned)(number / x / y)};
}

}  // namespace

// Runs the blocks from `first` to `last` (not included) on this OS thread.
static void run_blocks(const Launch* launch, uint64_t first, uint64_t last, Report* report) {
    Runner** runners = own.all;
    Runner* w = current = runners[0];
    uint64_t blocks = (uint64_t)w->grid_dim.x * w->grid_dim.y * w->grid_dim.z;
    if (launch->cooperative) {
        for (uint64_t i = 0; i < last; ++i) set_block(runners[i], i), begin(runners[i]);
        return run_together(runners, last, launch->reversed);
    }
    w->running = true;
    for (uint64_t i = first; i < last && report->status == FINE; ++i) {
        set_block(w, launch->reversed ? blocks - 1 - i : i);
        begin(w);
        run_first(w);
        if (must_stop(w->launch->stop)) report->status = INTERRUPTED;
    }
}

// The same for Python; 0, or a Status. `stop` is what ends the launch from outside (Stop).
extern "C" int mgh_launch(const Launch* launch, const char* arguments, uint64_t first,
                          uint64_t last, Report* report, int* stop) {
    report->status = FINE;
    report->length = 0;
    uint64_t count = launch->cooperative ? last : 1;
    if (!have_runners(count)) {
        say(report, "no memory for running kernels");
        return report->status = FAILED;
    }
    if (launch->recorder && !begin_recording(launch->recorder, count * MAX_THREADS)) {
        say(report, "no memory for the recorder");
        return report->status = FAILED;
    }
    Runner** runners = own.all;
    watch_faults();
    report->frames = report->line = report->named = 0;
    report->slot = UNKNOWN;
    Running here = {pthread_self(), stop, nullptr, nullptr, (uintptr_t)launch->run_threads, 0, 0};
    for (uint64_t i = 0; i < count; ++i) {
        prepare(runners[i], launch, arguments, report, &here);
        if (launch->checked && launch->shared) {
            Runner* w = runners[i];
            const char* name = "dynamic shared memory";
            w->dynamic = (unsigned char*)place_in_slot(w, 0, launch->shared, name);
        }
    }
    enter(here);
    if (must_stop(stop)) report->status = INTERRUPTED;
    else run_blocks(launch, first, last, report);
    if (launch->recorder) settle(launch->recorder);
    for (uint64_t i = 0; i < count; ++i) {
        runners[i]->running = false;
        if (report->status != FINE) start_afresh(current = runners[i]);
    }
    leave(here);
    return report->status;
}
