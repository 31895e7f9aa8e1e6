// Shadow memory of checked mode: a byte for each 8 bytes of the address space. 0: all of them may
// be accessed; 1 to 7: only the first ones; 0xff: none. g++ checks it inline before each access
// (compiler.py gives it the offset), which costs a third of what a call of the runtime does.
#pragma once

#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

namespace {

#if defined(__linux__) && defined(__x86_64__)
constexpr uintptr_t SHADOW = 0x7fff8000;
constexpr size_t SHADOW_BYTES = (size_t)1 << 44;  // of 47 bits of addresses; untouched, it is free
#else
constexpr uintptr_t SHADOW = 0;
constexpr size_t SHADOW_BYTES = 0;
#endif
bool shadowed;

unsigned char* shadow_of(uintptr_t address) { return (unsigned char*)(SHADOW + (address >> 3)); }

// The bytes from `begin` to `end`, a multiple of 8, may not be accessed; those before may.
void forbid(uintptr_t begin, uintptr_t end) {
    if (!shadowed || begin >= end) return;
    unsigned char* at = shadow_of(begin);
    if (begin % 8) *at++ = begin % 8;
    memset(at, 0xff, shadow_of(end) - at);
}

void allow(uintptr_t begin, uintptr_t end) {
    if (shadowed) memset(shadow_of(begin), 0, shadow_of(end + 7) - shadow_of(begin));
}

}  // namespace

// Reserves the shadow memory at the first call; whether it is there. A limit of the process's
// address space (ulimit -v) may forbid it.
extern "C" bool mgh_have_shadow() {
    static const bool reserved = [] {
        if (!SHADOW_BYTES) return false;
        void* wanted = (void*)SHADOW;
        void* got = mmap(wanted, SHADOW_BYTES, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (got == MAP_FAILED) return false;
        if (got != wanted) {  // another mapping is there already
            munmap(got, SHADOW_BYTES);
            return false;
        }
#if defined(MADV_DONTDUMP)
        madvise(got, SHADOW_BYTES, MADV_DONTDUMP);
#endif
        shadowed = true;
        forbid(0, 4096);
        return true;
    }();
    return reserved;
}
