// Changing stacks: `mgh_switch(&from, to)` saves where it is in `from` and goes on at `to`.
//
// Only what a callee must preserve is saved. An assembly function, so that no compiler sees
// through it; `ucontext` elsewhere costs about thirty times as much (it changes signal masks).
#pragma once

#include <stddef.h>
#include <stdint.h>

extern "C" __attribute__((visibility("hidden"))) void mgh_switch(void** from, void* to);
// The first place of a new stack, which ends at `top`: calls `function`, which never returns.
static void* new_stack(void* bottom, void* top, void (*function)());

#if defined(__APPLE__)
#define MGH_NAME "_mgh_switch"
#define MGH_HIDDEN ".private_extern _mgh_switch\n"
#else
#define MGH_NAME "mgh_switch"
#define MGH_HIDDEN ".hidden mgh_switch\n"
#endif

#if defined(__x86_64__) && !defined(MGH_UCONTEXT)

asm(".text\n"
    ".p2align 4\n"
    ".globl " MGH_NAME "\n" MGH_HIDDEN MGH_NAME ":\n"
    "  pushq %rbp\n"
    "  pushq %rbx\n"
    "  pushq %r12\n"
    "  pushq %r13\n"
    "  pushq %r14\n"
    "  pushq %r15\n"
    "  movq %rsp, (%rdi)\n"
    "  movq %rsi, %rsp\n"
    "  popq %r15\n"
    "  popq %r14\n"
    "  popq %r13\n"
    "  popq %r12\n"
    "  popq %rbx\n"
    "  popq %rbp\n"
    "  ret\n");

static void* new_stack(void*, void* top, void (*function)()) {
    uintptr_t* sp = (uintptr_t*)((uintptr_t)top & ~(uintptr_t)15);
    *--sp = 0;                    // where `function` would return to; keeps it aligned
    *--sp = (uintptr_t)function;  // where the switch returns to
    for (int i = 0; i < 6; ++i) *--sp = 0;
    return sp;
}

#elif defined(__aarch64__) && !defined(MGH_UCONTEXT)

asm(".text\n"
    ".p2align 4\n"
    ".globl " MGH_NAME "\n" MGH_HIDDEN MGH_NAME ":\n"
    "  sub sp, sp, #160\n"
    "  stp x19, x20, [sp, #0]\n"
    "  stp x21, x22, [sp, #16]\n"
    "  stp x23, x24, [sp, #32]\n"
    "  stp x25, x26, [sp, #48]\n"
    "  stp x27, x28, [sp, #64]\n"
    "  stp x29, x30, [sp, #80]\n"
    "  stp d8, d9, [sp, #96]\n"
    "  stp d10, d11, [sp, #112]\n"
    "  stp d12, d13, [sp, #128]\n"
    "  stp d14, d15, [sp, #144]\n"
    "  mov x9, sp\n"
    "  str x9, [x0]\n"
    "  mov sp, x1\n"
    "  ldp x19, x20, [sp, #0]\n"
    "  ldp x21, x22, [sp, #16]\n"
    "  ldp x23, x24, [sp, #32]\n"
    "  ldp x25, x26, [sp, #48]\n"
    "  ldp x27, x28, [sp, #64]\n"
    "  ldp x29, x30, [sp, #80]\n"
    "  ldp d8, d9, [sp, #96]\n"
    "  ldp d10, d11, [sp, #112]\n"
    "  ldp d12, d13, [sp, #128]\n"
    "  ldp d14, d15, [sp, #144]\n"
    "  add sp, sp, #160\n"
    "  ret\n");

static void* new_stack(void*, void* top, void (*function)()) {
    uintptr_t* sp = (uintptr_t*)((uintptr_t)top & ~(uintptr_t)15) - 20;
    for (int i = 0; i < 20; ++i) sp[i] = 0;
    sp[11] = (uintptr_t)function;  // x30, where the switch returns to
    return sp;
}

#else

#include <stdlib.h>
#include <ucontext.h>

extern "C" void mgh_switch(void** from, void* to) {
    ucontext_t here;  // lives on the stack that is left, as long as that stack waits
    *from = &here;
    swapcontext(&here, (ucontext_t*)to);
}

static void* new_stack(void* bottom, void* top, void (*function)()) {
    ucontext_t* context = (ucontext_t*)((uintptr_t)top - sizeof(ucontext_t)) - 1;
    context = (ucontext_t*)((uintptr_t)context & ~(uintptr_t)63);
    getcontext(context);
    context->uc_stack.ss_sp = bottom;
    context->uc_stack.ss_size = (char*)context - (char*)bottom;
    context->uc_link = nullptr;
    makecontext(context, function, 0);
    return context;
}

#endif
