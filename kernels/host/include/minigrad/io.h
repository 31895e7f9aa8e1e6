// printf, assert, traps and clocks of device code.
#pragma once

#undef printf
#define printf mgh_printf

#undef assert
#ifdef NDEBUG
#define assert(condition) ((void)0)
#else
#define assert(condition) \
    ((condition) ? (void)0 : mgh_trap("assertion failed", #condition, __LINE__))
#endif

#define __trap() mgh_trap("__trap()", "", __LINE__)

inline long long clock64() {
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
    long long ticks;
    asm volatile("mrs %0, cntvct_el0" : "=r"(ticks));
    return ticks;
#else
    return ::clock();
#endif
}

#define clock() ((int)clock64())

namespace mgh {
inline unsigned long long globaltimer() {  // nanoseconds
    timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec * 1000000000ull + now.tv_nsec;
}
}  // namespace mgh
