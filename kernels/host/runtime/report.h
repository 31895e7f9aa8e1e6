// What a launch has to say: the first error of an OS thread's blocks, and what kernels printed.
#pragma once

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../include/minigrad/state.h"

enum Status { FINE, FAILED, TOO_MUCH_SHARED, ILLEGAL_ACCESS, OUT_OF_BOUNDS, INTERRUPTED };
// Instead of the slot of an array.
enum Where { AT_NULL = -1, IN_SHARED = -2, UNKNOWN = -3, IN_VARIABLE = -4, IN_LOCAL = -5 };

struct Report {  // mirrored by kernels/host/library.py
    int status;
    char message[2000];
    size_t length;
    // In checked mode: the access, its place (a slot or a Where), and who called whom.
    uintptr_t address, begin, end;
    size_t size;
    const char* name;
    int writes, slot, line, frames;
    uintptr_t base, frame[16];
    // The threads that are named, as block << 10 | thread, and the lines where they are, or 0.
    int named, where[2];
    long long who[2];
};

static void name_thread(Report* report, const mgh::Fiber* fiber, int line) {
    const mgh::Worker* w = fiber->worker;
    if (report->named == 2) return;
    long long block = w->block.x + (long long)w->grid_dim.x *
                                       (w->block.y + (long long)w->grid_dim.y * w->block.z);
    report->where[report->named] = line;
    report->who[report->named++] = block << 10 | fiber->linear;
}

static void say(Report* report, const char* format, ...) {
    va_list values;
    va_start(values, format);
    size_t room = sizeof(report->message) - report->length;
    int wrote = vsnprintf(report->message + report->length, room, format, values);
    va_end(values);
    if (wrote > 0) report->length += (size_t)wrote < room ? wrote : room - 1;
}

static void say_thread(Report* report, const mgh::Fiber* fiber) {
    uint3 t = fiber->thread, b = fiber->worker->block;
    say(report, "thread (%u, %u, %u) of block (%u, %u, %u)", t.x, t.y, t.z, b.x, b.y, b.z);
    if (report->named == 0) name_thread(report, fiber, 0);
}

// Device printf, gathered here, because Python's standard output need not be the C library's.
static struct {
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    char* text;
    size_t size, room;
    bool full;
} output;

static constexpr size_t OUTPUT_LIMIT = 16 << 20;

static void print(const char* text, size_t size) {
    pthread_mutex_lock(&output.lock);
    if (output.size + size > output.room && !output.full) {
        size_t room = 2 * (output.room + size);
        char* larger = room > OUTPUT_LIMIT ? nullptr : (char*)realloc(output.text, room);
        if (larger) output.text = larger, output.room = room;
        else output.full = true;
    }
    if (!output.full) memcpy(output.text + output.size, text, size), output.size += size;
    pthread_mutex_unlock(&output.lock);
}

extern "C" int mgh_printf(const char* format, ...) {
    char text[1024];
    va_list values;
    va_start(values, format);
    int size = vsnprintf(text, sizeof text, format, values);
    va_end(values);
    if (size > 0) print(text, (size_t)size < sizeof text ? size : sizeof text - 1);
    return size;
}

extern "C" size_t mgh_output_size() { return output.size; }

// Moves up to `room` bytes of what was printed to `text`; how many.
extern "C" size_t mgh_take_output(char* text, size_t room, int* full) {
    pthread_mutex_lock(&output.lock);
    size_t size = output.size < room ? output.size : room;
    if (size) memcpy(text, output.text, size);
    memmove(output.text, output.text + size, output.size - size);
    output.size -= size;
    *full = output.full;
    output.full = false;
    pthread_mutex_unlock(&output.lock);
    return size;
}
