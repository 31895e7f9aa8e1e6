/* Allocations. Device memory is memory of this process, so that copies are memcpy and NumPy can look
 * at it. New memory is filled with 0xFF (NaN, or -1), freed memory with 0xDD; freed memory is not
 * used again before QUARANTINE bytes were freed after it. */
#define _GNU_SOURCE
#include "gpu.h"

#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 512, NEW = 0xFF, FREED = 0xDD };
#define FILLED ((size_t)64 << 20)     /* of larger allocations only the two ends are filled */
#define QUARANTINE ((size_t)64 << 20) /* bytes */

static Allocation *found[MAX_DEVICES + 1]; /* by device, sorted by address; pinned memory is last */
static size_t counts[MAX_DEVICES + 1], rooms[MAX_DEVICES + 1];

static struct { void *memory; size_t size; } *freed;
static size_t freed_first, freed_count, freed_room, freed_bytes;

static void fill(void *memory, int value, size_t size) {
  if (size <= FILLED) {
    memset(memory, value, size);
  } else {
    memset(memory, value, FILLED / 2);
    memset((char *)memory + size - FILLED / 2, value, FILLED / 2);
  }
}

/* The index of the first allocation of a list that ends after `at`. */
static size_t position(int list, uint64_t at) {
  size_t low = 0, high = counts[list];
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (found[list][middle].at + found[list][middle].size <= at) low = middle + 1;
    else high = middle;
  }
  return low;
}

Result allocate(Device *device, size_t size, uint64_t *at) {
  if (!size) return INVALID_VALUE;
  if (device && (size > device->memory || device->used > device->memory - size)) {
    return OUT_OF_MEMORY;
  }
  void *memory;
  if (posix_memalign(&memory, ALIGNMENT, size + ALIGNMENT)) return OUT_OF_MEMORY;
  fill(memory, NEW, size);
  int list = device ? device->ordinal : MAX_DEVICES;
  if (counts[list] == rooms[list]) {
    rooms[list] = 2 * rooms[list] + 64;
    found[list] = realloc(found[list], rooms[list] * sizeof *found[list]);
  }
  size_t i = position(list, (uint64_t)memory);
  memmove(found[list] + i + 1, found[list] + i, (counts[list]++ - i) * sizeof *found[list]);
  found[list][i] = (Allocation){(uint64_t)memory, size, device ? device->ordinal : -1};
  if (device) device->used += size;
  *at = (uint64_t)memory;
  return SUCCESS;
}

static void quarantine(void *memory, size_t size) {
  if (freed_count == freed_room) { /* a ring: unrolled when it grows */
    size_t room = 2 * freed_room + 64;
    typeof(freed) grown = malloc(room * sizeof *freed);
    for (size_t i = 0; i < freed_count; i++) grown[i] = freed[(freed_first + i) % freed_room];
    free(freed);
    freed = grown, freed_room = room, freed_first = 0;
  }
  size_t last = (freed_first + freed_count++) % freed_room;
  freed[last].memory = memory, freed[last].size = size;
  freed_bytes += size;
  while (freed_bytes > QUARANTINE && freed_count > 1) {
    freed_bytes -= freed[freed_first].size;
    free(freed[freed_first].memory);
    freed_first = (freed_first + 1) % freed_room, freed_count--;
  }
}

Result release(uint64_t at) {
  if (!at) return SUCCESS;
  for (int list = 0; list <= MAX_DEVICES; list++) {
    size_t i = position(list, at);
    if (i == counts[list] || found[list][i].at != at) continue;
    Allocation gone = found[list][i];
    memmove(found[list] + i, found[list] + i + 1, (--counts[list] - i) * sizeof gone);
    if (gone.device >= 0) devices[gone.device].used -= gone.size;
    fill((void *)at, FREED, gone.size);
    quarantine((void *)at, gone.size);
    return SUCCESS;
  }
  return INVALID_VALUE;
}

const Allocation *allocation_of(uint64_t at) {
  for (int list = 0; list <= MAX_DEVICES; list++) {
    size_t i = position(list, at);
    if (i < counts[list] && found[list][i].at <= at) return &found[list][i];
  }
  return NULL;
}

/* What kernels of a device may access, by address: its memory and pinned memory of the host. */
const Allocation *allocations_of(int device, size_t *count) {
  static Allocation *both;
  static size_t room;
  size_t mine = counts[device], pinned = counts[MAX_DEVICES], i = 0, j = 0;
  *count = mine + pinned;
  if (!pinned) return found[device];
  if (*count > room) both = realloc(both, (room = 2 * *count) * sizeof *both);
  while (i + j < *count) {
    int own = j == pinned || (i < mine && found[device][i].at < found[MAX_DEVICES][j].at);
    both[i + j] = own ? found[device][i] : found[MAX_DEVICES][j];
    if (own) i++; else j++;
  }
  return both;
}

Result check_range(uint64_t at, size_t size) {
  const Allocation *in = allocation_of(at);
  return in && at + size <= in->at + in->size ? SUCCESS : INVALID_VALUE;
}

int is_pinned(const void *at) {
  const Allocation *in = allocation_of((uint64_t)at);
  return in && in->device < 0;
}

/* ---- entries: allocation */

/* Calls that may wait for the device, or look at what only a graph's launch will do. */
#define SAFE                                                                                    \
  IN_CONTEXT;                                                                                   \
  Result refused = refuse_unsafe();                                                             \
  if (refused) return refused

ENTRY(cuMemAlloc, Pointer *at, size_t size) { SAFE; return allocate(device, size, at); }

ENTRY(cuMemAllocManaged, Pointer *at, size_t size, unsigned flags) {
  SAFE;
  return allocate(device, size, at);
}

ENTRY(cuMemAllocAsync, Pointer *at, size_t size, void *stream) {
  IN_CONTEXT;
  Stream *queue = stream_of(device, stream);
  if (!queue) return INVALID_HANDLE;
  if (queue->capture) return NOT_SUPPORTED; /* a GPU would make a node that allocates */
  return allocate(device, size, at);
}

ENTRY(cuMemAllocFromPoolAsync, Pointer *at, size_t size, void *pool, void *stream) {
  return cuMemAllocAsync(at, size, stream);
}

ENTRY(cuMemFree, Pointer at) { /* waits for the device */
  SAFE;
  finish_queues(device);
  return device->fault ? device->fault : release(at);
}

static Result release_now(Work *work) { return release(work->to); }

ENTRY(cuMemFreeAsync, Pointer at, void *handle) {
  IN_CONTEXT;
  Stream *stream = stream_of(device, handle);
  const Allocation *in = allocation_of(at);
  if (!stream) return INVALID_HANDLE;
  if (!in || in->at != at || stream->capture) return INVALID_VALUE; /* not the graph's memory */
  Work *free_it = work(device, release_now);
  free_it->to = at;
  return enqueue(stream, free_it);
}

ENTRY(cuMemHostAlloc, void **at, size_t size, unsigned flags) {
  SAFE;
  return allocate(NULL, size, (uint64_t *)at);
}

ENTRY(cuMemAllocHost, void **at, size_t size) { return cuMemHostAlloc(at, size, 0); }

ENTRY(cuMemFreeHost, void *at) {
  SAFE;
  finish_queues(device);
  return device->fault ? device->fault : release((uint64_t)at);
}

ENTRY(cuMemHostGetDevicePointer, Pointer *seen, void *at, unsigned flags) {
  IN_CONTEXT;
  if (!is_pinned(at)) return INVALID_VALUE;
  *seen = (Pointer)at;
  return SUCCESS;
}

ENTRY(cuMemHostGetFlags, unsigned *flags, void *at) {
  IN_CONTEXT;
  *flags = 0;
  return is_pinned(at) ? SUCCESS : INVALID_VALUE;
}

ENTRY(cuMemHostRegister, void *at, size_t size, unsigned flags) { IN_CONTEXT; return SUCCESS; }

ENTRY(cuMemHostUnregister, void *at) { IN_CONTEXT; return finish_device(device); }

ENTRY(cuMemGetInfo, size_t *free, size_t *total) {
  IN_CONTEXT;
  *total = device->memory, *free = device->memory - device->used;
  return SUCCESS;
}

ENTRY(cuMemGetAddressRange, Pointer *base, size_t *size, Pointer at) {
  IN_CONTEXT;
  const Allocation *in = allocation_of(at);
  if (!in) return NOT_FOUND;
  if (base) *base = in->at;
  if (size) *size = in->size;
  return SUCCESS;
}

/* ---- entries: what a pointer points to */

static Result attribute(void *value, int which, Pointer at) {
  enum { CONTEXT = 1, MEMORY_TYPE, DEVICE_POINTER, HOST_POINTER, BUFFER = 7, MANAGED, ORDINAL,
         RANGE_START = 11, RANGE_SIZE };
  const Allocation *in = allocation_of(at);
  if (!in) return INVALID_VALUE;
  switch (which) {
    case CONTEXT: *(void **)value = &devices[in->device < 0 ? 0 : in->device]; break;
    case MEMORY_TYPE: *(unsigned *)value = in->device < 0 ? 1 : 2; break;
    case DEVICE_POINTER: *(Pointer *)value = at; break;
    case HOST_POINTER:
      if (in->device >= 0) return INVALID_VALUE;
      *(Pointer *)value = at;
      break;
    case BUFFER: *(unsigned long long *)value = in->at; break;
    case MANAGED: *(unsigned *)value = 0; break;
    case ORDINAL: *(int *)value = in->device < 0 ? 0 : in->device; break;
    case RANGE_START: *(Pointer *)value = in->at; break;
    case RANGE_SIZE: *(size_t *)value = in->size; break;
    default: return NOT_SUPPORTED;
  }
  return SUCCESS;
}

ENTRY(cuPointerGetAttribute, void *value, int which, Pointer at) {
  LOCKED;
  return attribute(value, which, at);
}

ENTRY(cuPointerGetAttributes, unsigned count, int *which, void **values, Pointer at) {
  LOCKED; /* memory of the host is no error here: its attributes are 0, its device is -2 */
  for (unsigned i = 0; i < count; i++) {
    if (!attribute(values[i], which[i], at)) continue;
    if (which[i] == 1 || which[i] == 3 || which[i] == 4) *(void **)values[i] = NULL;
    else *(int *)values[i] = which[i] == 9 ? -2 : 0;
  }
  return SUCCESS;
}

ENTRY(cuPointerSetAttribute, const void *value, int which, Pointer at) { LOCKED; return SUCCESS; }
