// A kernel that touches memory that is not there ends as an error of its launch, not of Python.
//
// The handler acts only on an OS thread that is running a kernel, where it leaves for the launch;
// any other fault goes to whoever handled the signal before.
#pragma once

#include <signal.h>
#if defined(__linux__)
#include <ucontext.h>
#endif

#include "checks.h"

namespace {

constexpr int SIGNALS[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP};
constexpr int SIGNAL_COUNT = sizeof SIGNALS / sizeof *SIGNALS;
struct sigaction previous[SIGNAL_COUNT];

uintptr_t stack_pointer(void* context) {
#if defined(__linux__) && defined(__x86_64__)
    return ((ucontext_t*)context)->uc_mcontext.gregs[15];  // REG_RSP
#elif defined(__linux__) && defined(__aarch64__)
    return ((ucontext_t*)context)->uc_mcontext.sp;
#else
    (void)context;
    return 0;
#endif
}

// Whether the access that failed was a write, where the processor says so.
bool wrote(void* context) {
#if defined(__linux__) && defined(__x86_64__)
    return ((ucontext_t*)context)->uc_mcontext.gregs[19] & 2;  // REG_ERR
#else
    (void)context;
    return false;
#endif
}

// In checked mode an access that was too far from its array for shadow memory to know of.
bool describe_far(Runner* w, uintptr_t address, void* context) {
    int where;
    const Span span = locate(address, where);
    if (!w->checked || w->recorder || where == UNKNOWN) return false;
    describe_access(w->report, address, 0, wrote(context), where, span);
    w->report->status = OUT_OF_BOUNDS;
    return true;
}

// Whether an access was refused for its alignment. x86 names no address then, nor for one that has
// more bits than addresses have.
bool misaligned(int signal, int code) {
#if defined(__linux__)
    if (signal == SIGSEGV && code == SI_KERNEL) return true;
#endif
    return signal == SIGBUS && code == BUS_ADRALN;
}

void describe(Runner* w, int signal, int code, uintptr_t address, void* context) {
    uintptr_t sp = stack_pointer(context);
    Report* report = w->report;
    uintptr_t base = sp & ~(uintptr_t)(STACK_BYTES - 1);
    Fiber* fiber = nullptr;
    for (unsigned i = 0; i < w->fiber_count; ++i) {
        if (w->fibers[i] == fiber_of(base)) fiber = w->fibers[i];
    }
    if (fiber) say_thread(report, fiber);
    else say(report, "a thread");
    report->status = ILLEGAL_ACCESS;
    if (signal == SIGFPE) {
        say(report, " divided an integer by zero, or the smallest one by -1");
    } else if (misaligned(signal, code)) {
        say(report, " read or wrote at a misaligned address (a float4 and the like must lie at a"
            " multiple of its size), or at one that cannot be");
    } else if (signal == SIGILL || signal == SIGTRAP) {
        say(report, " came to a trap that the compiler put where nothing may come to");
    } else if (describe_far(w, address, context)) {
        return;
    } else if (fiber && address - base < w->page) {
        say(report, " used more local memory than its stack of %zu KiB", STACK_BYTES >> 10);
    } else if (address - (uintptr_t)w->dynamic_end < w->page) {
        say(report, " went past the end of dynamic shared memory (%u bytes: the launch's"
            " shared_mem)", w->dynamic_shared);
    } else {
        say(report, " touched the address 0x%zx, which is outside of all arrays",
            (size_t)address);
    }
}

// Where the code was, for checked mode, whose code has frame pointers.
void find_place(Runner* w, void* context) {
    uintptr_t here = 0, frame = 0;
#if defined(__linux__) && defined(__x86_64__)
    here = ((ucontext_t*)context)->uc_mcontext.gregs[16] + 1;  // REG_RIP
    frame = ((ucontext_t*)context)->uc_mcontext.gregs[10];  // REG_RBP
#elif defined(__linux__) && defined(__aarch64__)
    here = ((ucontext_t*)context)->uc_mcontext.pc + 1;
    frame = ((ucontext_t*)context)->uc_mcontext.regs[29];
#else
    (void)context;
    return;
#endif
    w->report->frame[w->report->frames++] = here;
    if (frame / STACK_BYTES == stack_pointer(context) / STACK_BYTES) {
        remember_frames(w->report, (const uintptr_t*)frame);
    }
    remember_library(w->report, w);
}

void handle(int signal, siginfo_t* info, void* context) {
    Runner* w = current;
    if (w && w->running) {
        describe(w, signal, info->si_code, (uintptr_t)info->si_addr, context);
        if (w->checked) find_place(w, context);
        give_up(w);
    }
    for (int i = 0; i < SIGNAL_COUNT; ++i) {
        if (SIGNALS[i] != signal) continue;
        struct sigaction& before = previous[i];
        if (before.sa_flags & SA_SIGINFO) return before.sa_sigaction(signal, info, context);
        if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
            return before.sa_handler(signal);
        }
        sigaction(signal, &before, nullptr);  // the fault comes again, and is fatal
    }
}

bool is_ours(int signal, struct sigaction& now) {
    sigaction(signal, nullptr, &now);
    return now.sa_flags & SA_SIGINFO && now.sa_sigaction == handle;
}

// For every launch, since others (Python's faulthandler) may come in between: they take SIGSEGV or
// SIGFPE among the first, and each question costs 0.1 us.
void watch_faults() {
    struct sigaction now;
    if (is_ours(SIGSEGV, now) && is_ours(SIGFPE, now)) return;
    for (int i = 0; i < SIGNAL_COUNT; ++i) {
        if (is_ours(SIGNALS[i], now)) continue;
        previous[i] = now;
        struct sigaction ours = {};
        ours.sa_sigaction = handle;
        ours.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
        sigaction(SIGNALS[i], &ours, nullptr);
    }
}

// Once for each OS thread: a stack for the handler, since a fiber's may be the one that is full.
void give_signal_stack() {
    stack_t now;
    if (sigaltstack(nullptr, &now) == 0 && !(now.ss_flags & SS_DISABLE)) return;
    stack_t ours = {};
    ours.ss_size = 64 << 10;
    ours.ss_sp = malloc(ours.ss_size);
    sigaltstack(&ours, nullptr);
}

}  // namespace
