// Ctrl-C ends launches.
//
// Python's handler of SIGINT only notes that the signal came, and Python looks at the note when the
// launch returns. So we come before it: launches that still run after a grace period are stopped. A
// watcher thread sends each OS thread that runs one a signal, whose handler leaves the kernel as a
// fault does, but only if it finds the thread in the kernel's own code: in the middle of malloc, or
// of the runtime, a lock would stay locked. Else it tries again a millisecond later; the runtime
// looks by itself where threads wait for others (mgh_yield) and between blocks.
#pragma once

#include <errno.h>
#include <semaphore.h>

#include "faults.h"

#if defined(__linux__)
#include <link.h>
#endif

namespace {

enum Stop { GO_ON, ASKED, STOP };  // the state of a launch's `stop`
constexpr unsigned GRACE_US = 200000, RETRY_US = 1000;
constexpr int KICK = SIGURG;  // which nobody needs, and which is ignored unless handled

pthread_mutex_t running_lock = PTHREAD_MUTEX_INITIALIZER;
Running* running;
sem_t asked;
unsigned interrupts;  // how often SIGINT came
bool watched;
struct sigaction interrupted_before, kicked_before;

bool must_stop(const int* stop) { return __atomic_load_n(stop, __ATOMIC_RELAXED) == STOP; }

[[noreturn]] void leave_interrupted(Runner* w) {
    w->report->status = INTERRUPTED;
    give_up(w);
}

uintptr_t program_counter(void* context) {
#if defined(__linux__) && defined(__x86_64__)
    return ((ucontext_t*)context)->uc_mcontext.gregs[16];  // REG_RIP
#elif defined(__linux__) && defined(__aarch64__)
    return ((ucontext_t*)context)->uc_mcontext.pc;
#else
    (void)context;
    return 0;
#endif
}

void hand_on(const struct sigaction& before, int signal, siginfo_t* info, void* context) {
    if (before.sa_flags & SA_SIGINFO) return before.sa_sigaction(signal, info, context);
    if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) before.sa_handler(signal);
}

void on_kick(int signal, siginfo_t* info, void* context) {
    Runner* w = current;
    if (!w || !w->running || !must_stop(w->launch->stop)) {
        return hand_on(kicked_before, signal, info, context);
    }
    const Running& launch = *w->launch;
    if (program_counter(context) - launch.code < launch.code_bytes) leave_interrupted(w);
}

void on_interrupt(int signal, siginfo_t* info, void* context) {
    int error = errno;
    __atomic_add_fetch(&interrupts, 1, __ATOMIC_SEQ_CST);
    sem_post(&asked);
    errno = error;
    hand_on(interrupted_before, signal, info, context);
}

#if defined(__linux__)
// Notes where the code is of the library that the kernel belongs to.
int find_code(dl_phdr_info* object, size_t, void* launch) {
    Running* r = (Running*)launch;
    for (int i = 0; i < object->dlpi_phnum; ++i) {
        const auto& part = object->dlpi_phdr[i];
        uintptr_t first = object->dlpi_addr + part.p_vaddr;
        if (part.p_type != PT_LOAD || r->code - first >= part.p_memsz) continue;
        r->code = first;
        r->code_bytes = part.p_memsz;
        return 1;
    }
    return 0;
}
#endif

void take_signal(int signal, void (*handler)(int, siginfo_t*, void*), int flags,
                 struct sigaction& before) {
    struct sigaction now;
    sigaction(signal, nullptr, &now);
    if (now.sa_flags & SA_SIGINFO && now.sa_sigaction == handler) return;
    before = now;
    now.sa_sigaction = handler;
    now.sa_flags |= SA_SIGINFO | SA_ONSTACK | flags;
    sigaction(signal, &now, nullptr);
}

// Signals the launches that must stop; whether there are any. `only`: one launch, or all that were
// asked.
bool kick(int* only) {
    take_signal(KICK, on_kick, SA_NODEFER | SA_RESTART, kicked_before);
    bool any = false;
    pthread_mutex_lock(&running_lock);
    for (Running* r = running; r; r = r->next) {
        if (only ? r->stop != only : *r->stop == GO_ON) continue;
        __atomic_store_n(r->stop, STOP, __ATOMIC_RELAXED);
#if defined(__linux__)
        if (!r->code_bytes) dl_iterate_phdr(find_code, r);
#endif
        pthread_kill(r->thread, KICK);
        any = true;
    }
    pthread_mutex_unlock(&running_lock);
    return any;
}

void* watch(void*) {
    for (;;) {
        while (sem_wait(&asked)) {
        }
        pthread_mutex_lock(&running_lock);
        for (Running* r = running; r; r = r->next) {
            bool later = r->since == __atomic_load_n(&interrupts, __ATOMIC_SEQ_CST);
            if (*r->stop == GO_ON && !later) __atomic_store_n(r->stop, ASKED, __ATOMIC_RELAXED);
        }
        pthread_mutex_unlock(&running_lock);
        usleep(GRACE_US);
        while (kick(nullptr)) usleep(RETRY_US);
    }
}

void after_fork() {  // only the thread that called it goes on
    pthread_mutex_init(&running_lock, nullptr);
    running = nullptr;
    watched = false;
}

// Under the lock.
void start_watcher() {
    static bool first = true;
    if (first) {
        sem_init(&asked, 0, 0);
        pthread_atfork(nullptr, nullptr, after_fork);
        first = false;
    }
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_t thread;
    watched = pthread_create(&thread, nullptr, watch, nullptr) == 0;
    if (watched) pthread_detach(thread);
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

// Cheap enough for every launch: Python, or a debugger, may have set its handler in between. A
// process that SIGINT ends, or that ignores it, does so as before.
void watch_interrupts() {
    struct sigaction now;
    sigaction(SIGINT, nullptr, &now);
    bool plain = !(now.sa_flags & SA_SIGINFO);
    if (plain && (now.sa_handler == SIG_DFL || now.sa_handler == SIG_IGN)) return;
    take_signal(SIGINT, on_interrupt, 0, interrupted_before);
}

void enter(Running& r) {
    pthread_mutex_lock(&running_lock);
    if (!watched) start_watcher();
    watch_interrupts();
    r.since = __atomic_load_n(&interrupts, __ATOMIC_SEQ_CST);
    r.next = running;
    r.link = &running;
    if (running) running->link = &r.next;
    running = &r;
    if (*r.stop == ASKED) sem_post(&asked);  // blocks of a launch that was asked between two chunks
    pthread_mutex_unlock(&running_lock);
}

void leave(Running& r) {
    pthread_mutex_lock(&running_lock);
    *r.link = r.next;
    if (r.next) r.next->link = r.link;
    pthread_mutex_unlock(&running_lock);
}

}  // namespace

// Stops a launch on all OS threads, and returns when none runs it any more.
extern "C" void mgh_stop(int* stop) {
    __atomic_store_n(stop, STOP, __ATOMIC_RELAXED);
    while (kick(stop)) usleep(RETRY_US);
}
