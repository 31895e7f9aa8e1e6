/* When work is done: only when the host waits for it, or when a stream is full.
 *
 * Work waits in the queue of its stream, so that a program that reads a result without waiting sees
 * the memory as it was. Waiting for one stream does the work of that stream, and of others only what
 * it depends on; waiting for the device does the newest stream first. A program that relies on an
 * order between streams that it did not ask for therefore gets another one.
 */
#define _GNU_SOURCE
#include "gpu.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { DEPTH = 1024 }; /* of a stream; more work has to wait until the first is done */

static uint64_t newest;
static unsigned long waits; /* for the device, a stream, an event or a copy to the host */

__attribute__((visibility("default"))) unsigned long software_gpu_waits(void) { return waits; }

static Stream *make_stream(Device *device, unsigned flags, int priority) {
  Stream *stream = calloc(1, sizeof *stream);
  stream->device = device, stream->flags = flags, stream->priority = priority;
  stream->last = &stream->first;
  stream->next = device->streams;
  return device->streams = stream;
}

Stream *stream_of(Device *device, void *handle) {
  if (!device->legacy) device->legacy = make_stream(device, 0, 0);
  if ((uintptr_t)handle <= 2) return device->legacy; /* 2: the default stream of a thread */
  for (Stream *s = device->streams; s; s = s->next) {
    if (s == handle) return s;
  }
  return NULL;
}

Work *work(Device *device, Action action) {
  Work *made = calloc(1, sizeof *made);
  made->device = device, made->action = action;
  return made;
}

/* Do the work of a stream up to a number, and before each piece what it depends on. */
static Result finish(Stream *stream, uint64_t number) {
  Device *device = stream->device;
  while (stream->first && stream->first->number <= number) {
    Work *doing = stream->first;
    uint64_t before = doing->number - 1;
    if (stream == device->legacy) {
      for (Stream *s = device->streams; s; s = s->next) {
        if (s != stream && !(s->flags & NON_BLOCKING)) finish(s, before);
      }
    } else if (!(stream->flags & NON_BLOCKING) && device->legacy) {
      finish(device->legacy, before);
    }
    if (doing->awaited) finish(doing->awaited, doing->awaited_number);
    stream->first = doing->next;
    if (!stream->first) stream->last = &stream->first;
    stream->count--;
    if (!device->fault) {
      Result failed = doing->action(doing);
      if (failed) device->fault = failed;
    }
    stream->done = doing->number;
    free(doing->data);
    free(doing);
  }
  return device->fault;
}

Result enqueue(Stream *stream, Work *work) {
  if (stream->capture) return capture(stream, work);
  Result refused = stream == stream->device->legacy ? refuse_legacy(stream->device) : SUCCESS;
  if (refused) {
    free(work->data);
    free(work);
    return refused;
  }
  work->number = stream->newest = ++newest;
  *stream->last = work, stream->last = &work->next;
  if (++stream->count > DEPTH) finish(stream, stream->first->number);
  return SUCCESS;
}

Result finish_stream(Stream *stream) {
  if (stream->capture) return invalidate(stream->capture, CAPTURE_UNSUPPORTED);
  Result refused = stream == stream->device->legacy ? refuse_legacy(stream->device) : SUCCESS;
  if (refused) return refused;
  waits++;
  return finish(stream, stream->newest);
}

Result enqueue_and_finish(Stream *stream, Work *work) {
  Result failed = enqueue(stream, work);
  return failed ? failed : finish_stream(stream);
}

void finish_queues(Device *device) {
  for (Stream *s = device->streams; s; s = s->next) finish(s, s->newest);
}

Result finish_device(Device *device) {
  Result refused = refuse_waiting(device);
  if (refused) return refused;
  waits++;
  finish_queues(device);
  return device->fault;
}

__attribute__((visibility("default"))) void software_gpu_finish(void) {
  LOCKED;
  for (int d = 0; d < device_count; d++) {
    for (Stream *s = devices[d].streams; s; s = s->next) finish(s, s->newest);
  }
}

/* Do the work of a stream of the current context: what another kernel in it would come after. */
__attribute__((visibility("default"))) void software_gpu_finish_stream(void *handle) {
  LOCKED;
  Device *device = current();
  Stream *stream = device ? stream_of(device, handle) : NULL;
  if (stream) finish(stream, stream->newest);
}

/* ---- entries: streams */

ENTRY(cuStreamCreateWithPriority, void **stream, unsigned flags, int priority) {
  IN_CONTEXT;
  stream_of(device, NULL); /* the legacy stream is the first of all */
  *stream = make_stream(device, flags, priority);
  return SUCCESS;
}

ENTRY(cuStreamCreate, void **stream, unsigned flags) {
  return cuStreamCreateWithPriority(stream, flags, 0);
}

ENTRY(cuStreamDestroy, void *handle) { /* its work is still done, as on a GPU */
  IN_CONTEXT;
  Stream *stream = stream_of(device, handle);
  if (!stream || stream == device->legacy) return INVALID_HANDLE;
  finish(stream, stream->newest);
  for (Stream **s = &device->streams; *s; s = &(*s)->next) {
    if (*s == stream) { *s = stream->next; break; } /* not freed: events may name it */
  }
  return SUCCESS;
}

#define IN_STREAM                                                                               \
  IN_CONTEXT;                                                                                   \
  Stream *stream = stream_of(device, handle);                                                   \
  if (!stream) return INVALID_HANDLE

ENTRY(cuStreamSynchronize, void *handle) { IN_STREAM; return finish_stream(stream); }

/* A program that asks again and again gets there: each question does one piece of work. */
static Result query(Stream *stream, uint64_t number) {
  if (!stream->first || stream->first->number > number) return SUCCESS;
  Result fault = finish(stream, stream->first->number);
  return fault ? fault : NOT_READY;
}

ENTRY(cuStreamQuery, void *handle) {
  IN_STREAM;
  if (stream->capture) return invalidate(stream->capture, CAPTURE_UNSUPPORTED);
  return query(stream, stream->newest);
}

ENTRY(cuStreamGetCtx, void *handle, void **context) {
  IN_STREAM;
  *context = stream->device;
  return SUCCESS;
}

ENTRY(cuStreamGetDevice, void *handle, int *ordinal) {
  IN_STREAM;
  *ordinal = stream->device->ordinal;
  return SUCCESS;
}

ENTRY(cuStreamGetFlags, void *handle, unsigned *flags) {
  IN_STREAM;
  *flags = stream->flags;
  return SUCCESS;
}

ENTRY(cuStreamGetPriority, void *handle, int *priority) {
  IN_STREAM;
  *priority = stream->priority;
  return SUCCESS;
}

ENTRY(cuStreamGetId, void *handle, unsigned long long *id) {
  IN_STREAM;
  *id = (uintptr_t)stream;
  return SUCCESS;
}

ENTRY(cuCtxSynchronize, void) { IN_CONTEXT; return finish_device(device); }

static Result call_host(Work *work) {
  ((void (*)(void *))work->subject)((void *)work->value);
  return SUCCESS;
}

ENTRY(cuLaunchHostFunc, void *handle, void (*function)(void *), void *argument) {
  IN_STREAM;
  Work *call = work(device, call_host);
  call->subject = (void *)function, call->value = (uint64_t)argument;
  return enqueue(stream, call);
}

static Result call_back(Work *work) {
  typedef void (*Callback)(void *, Result, void *);
  ((Callback)work->subject)((void *)work->to, SUCCESS, (void *)work->value);
  return SUCCESS;
}

ENTRY(cuStreamAddCallback, void *handle, void *function, void *argument, unsigned flags) {
  IN_STREAM;
  Work *call = work(device, call_back);
  if (stream->capture) return invalidate(stream->capture, CAPTURE_UNSUPPORTED);
  call->subject = function, call->value = (uint64_t)argument, call->to = (uint64_t)handle;
  return enqueue(stream, call);
}

/* ---- entries: events */

ENTRY(cuEventCreate, void **event, unsigned flags) {
  IN_CONTEXT;
  Event *made = *event = calloc(1, sizeof *made);
  made->device = device;
  return SUCCESS;
}

ENTRY(cuEventDestroy, void *event) { LOCKED; return SUCCESS; } /* not freed: work may name it */

static Result mark(Work *work) {
  Event *event = work->subject;
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  if (event->number == work->number) event->time = now.tv_sec * 1000000000ll + now.tv_nsec;
  return SUCCESS;
}

ENTRY(cuEventRecord, Event *event, void *handle) {
  IN_STREAM;
  if (event->device != device) return INVALID_HANDLE;
  event->capture = stream->capture, event->node = stream->newest_node;
  if (stream->capture) {
    event->stream = stream;
    return SUCCESS;
  }
  Work *record = work(device, mark);
  record->subject = event;
  event->stream = stream, event->time = 0;
  event->number = newest + 1;
  return enqueue(stream, record);
}

ENTRY(cuEventRecordWithFlags, Event *event, void *handle, unsigned flags) {
  return cuEventRecord(event, handle);
}

ENTRY(cuEventQuery, Event *event) {
  IN_CONTEXT;
  if (event->capture) return invalidate(event->capture, CAPTURED_EVENT);
  return event->number ? query(event->stream, event->number) : SUCCESS;
}

ENTRY(cuEventSynchronize, Event *event) {
  IN_CONTEXT;
  if (event->capture) return invalidate(event->capture, CAPTURED_EVENT);
  waits++;
  return event->number ? finish(event->stream, event->number) : SUCCESS;
}

ENTRY(cuEventElapsedTime, float *milliseconds, Event *start, Event *end) {
  IN_CONTEXT;
  if (!start->number || !end->number) return INVALID_HANDLE;
  if (!start->time || !end->time) return NOT_READY;
  *milliseconds = (end->time - start->time) / 1e6;
  return SUCCESS;
}

static Result nothing(Work *work) { return SUCCESS; }

ENTRY(cuStreamWaitEvent, void *handle, Event *event, unsigned flags) {
  IN_STREAM;
  if (event->capture || stream->capture) return capture_wait(stream, event);
  if (!event->number) return SUCCESS;
  Work *wait = work(device, nothing);
  wait->awaited = event->stream, wait->awaited_number = event->number;
  return enqueue(stream, wait);
}

/* ---- entries: copies and fills */

enum { FROM_DEVICE = 1, TO_DEVICE = 2 };

static Result copy_now(Work *work) { /* either side may have been freed meanwhile */
  unsigned sides = work->dimensions[0];
  if (sides & FROM_DEVICE && check_range(work->from, work->size)) return ILLEGAL_ADDRESS;
  if (sides & TO_DEVICE && check_range(work->to, work->size)) return ILLEGAL_ADDRESS;
  memmove((void *)work->to, work->data ? work->data : (void *)work->from, work->size);
  return SUCCESS;
}

static Work *copy(Device *device, uint64_t to, uint64_t from, size_t size, unsigned sides) {
  Work *made = work(device, copy_now);
  made->to = to, made->from = from, made->size = size, made->dimensions[0] = sides;
  return made;
}

/* From pageable memory the driver copies at once into a buffer of its own; from pinned memory the
 * GPU reads later, and so does a graph from either. */
static Result to_device(Stream *stream, Pointer to, const void *from, size_t size) {
  if (!size) return SUCCESS;
  if (check_range(to, size)) return INVALID_VALUE;
  Work *made = copy(stream->device, to, (uint64_t)from, size, TO_DEVICE);
  if (!is_pinned(from) && !stream->capture) made->data = memcpy(malloc(size), from, size);
  return enqueue(stream, made);
}

static Result to_host(Stream *stream, void *to, Pointer from, size_t size, int wait) {
  if (!size) return SUCCESS;
  if (check_range(from, size)) return INVALID_VALUE;
  Result failed = enqueue(stream, copy(stream->device, (uint64_t)to, from, size, FROM_DEVICE));
  if (failed || (stream->capture && !wait)) return failed;
  return wait || !is_pinned(to) ? finish_stream(stream) : SUCCESS;
}

static Result between(Stream *stream, Pointer to, Pointer from, size_t size) {
  if (!size) return SUCCESS;
  if (check_range(from, size) || check_range(to, size)) return INVALID_VALUE;
  return enqueue(stream, copy(stream->device, to, from, size, FROM_DEVICE | TO_DEVICE));
}

ENTRY(cuMemcpyHtoD, Pointer to, const void *from, size_t size) {
  IN_CONTEXT;
  Stream *stream = stream_of(device, NULL);
  Result failed = to_device(stream, to, from, size);
  return failed || !is_pinned(from) ? failed : finish_stream(stream);
}

ENTRY(cuMemcpyHtoDAsync, Pointer to, const void *from, size_t size, void *handle) {
  IN_STREAM;
  return to_device(stream, to, from, size);
}

ENTRY(cuMemcpyDtoH, void *to, Pointer from, size_t size) {
  IN_CONTEXT;
  return to_host(stream_of(device, NULL), to, from, size, 1);
}

ENTRY(cuMemcpyDtoHAsync, void *to, Pointer from, size_t size, void *handle) {
  IN_STREAM;
  return to_host(stream, to, from, size, 0);
}

ENTRY(cuMemcpyDtoDAsync, Pointer to, Pointer from, size_t size, void *handle) {
  IN_STREAM;
  return between(stream, to, from, size);
}

ENTRY(cuMemcpyDtoD, Pointer to, Pointer from, size_t size) {
  return cuMemcpyDtoDAsync(to, from, size, NULL);
}

ENTRY(cuMemcpyPeerAsync, Pointer to, void *there, Pointer from, void *here, size_t size,
      void *handle) {
  return cuMemcpyDtoDAsync(to, from, size, handle);
}

ENTRY(cuMemcpyPeer, Pointer to, void *there, Pointer from, void *here, size_t size) {
  return cuMemcpyDtoDAsync(to, from, size, NULL);
}

ENTRY(cuMemcpyAsync, Pointer to, Pointer from, size_t size, void *handle) {
  IN_STREAM;
  const Allocation *a = allocation_of(to), *b = allocation_of(from);
  if (a && a->device >= 0) {
    if (b && b->device >= 0) return between(stream, to, from, size);
    return to_device(stream, to, (const void *)from, size);
  }
  return to_host(stream, (void *)to, from, size, 0);
}

ENTRY(cuMemcpy, Pointer to, Pointer from, size_t size) {
  Result failed = cuMemcpyAsync(to, from, size, NULL);
  return failed ? failed : cuStreamSynchronize(NULL);
}

static Result fill_now(Work *work) {
  if (check_range(work->to, work->size)) return ILLEGAL_ADDRESS;
  size_t width = work->dimensions[0];
  for (size_t i = 0; i < work->size; i += width) memcpy((char *)work->to + i, &work->value, width);
  return SUCCESS;
}

static Result fill(void *handle, Pointer to, uint64_t value, size_t count, unsigned width) {
  IN_STREAM;
  if (!count) return SUCCESS;
  if (to % width || check_range(to, count * width)) return INVALID_VALUE;
  Work *made = work(device, fill_now);
  made->to = to, made->value = value, made->size = count * width, made->dimensions[0] = width;
  return enqueue(stream, made);
}

ENTRY(cuMemsetD8, Pointer to, unsigned char value, size_t n) { return fill(0, to, value, n, 1); }
ENTRY(cuMemsetD16, Pointer to, unsigned short value, size_t n) { return fill(0, to, value, n, 2); }
ENTRY(cuMemsetD32, Pointer to, unsigned value, size_t n) { return fill(0, to, value, n, 4); }
ENTRY(cuMemsetD8Async, Pointer to, unsigned char value, size_t n, void *stream) {
  return fill(stream, to, value, n, 1);
}
ENTRY(cuMemsetD16Async, Pointer to, unsigned short value, size_t n, void *stream) {
  return fill(stream, to, value, n, 2);
}
ENTRY(cuMemsetD32Async, Pointer to, unsigned value, size_t n, void *stream) {
  return fill(stream, to, value, n, 4);
}
