/* The software GPU: a driver library (libcuda.so.1) whose devices are in the memory of this process.
 *
 * Five parts: memory.c (allocations), order.c (streams, events: when work is done), graph.c (streams
 * that capture, graphs), code.c (modules, kernels, launches; what runs them are callbacks in Python),
 * device.c (devices, contexts, the table of entry points). Source of what each entry does: the reference manual of the CUDA Driver API.
 *
 * One lock protects everything. It is recursive, since a callback may call the driver.
 */
#ifndef SOFTWARE_GPU_H
#define SOFTWARE_GPU_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

enum {
  SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, NO_DEVICE = 100,
  INVALID_DEVICE = 101, INVALID_CONTEXT = 201, NO_BINARY_FOR_GPU = 209, INVALID_PTX = 218,
  INVALID_HANDLE = 400, ILLEGAL_STATE = 401, NOT_FOUND = 500, NOT_READY = 600, ILLEGAL_ADDRESS = 700,
  LAUNCH_OUT_OF_RESOURCES = 701, MISALIGNED_ADDRESS = 716, LAUNCH_FAILED = 719,
  COOPERATIVE_LAUNCH_TOO_LARGE = 720, NOT_SUPPORTED = 801, CAPTURE_UNSUPPORTED = 900,
  CAPTURE_INVALIDATED = 901, CAPTURE_MERGE = 902, CAPTURE_UNMATCHED = 903, CAPTURE_UNJOINED = 904,
  CAPTURE_ISOLATION = 905, CAPTURE_IMPLICIT = 906, CAPTURED_EVENT = 907, CAPTURE_WRONG_THREAD = 908
};

enum { MAX_DEVICES = 4, MAX_PARAMETERS = 256 };

typedef int Result;
typedef uint64_t Pointer;

typedef struct {
  const char *name;
  int cc, processors, threads_of_processor, blocks_of_processor;
  int shared_of_processor, shared_on_request; /* bytes; the second: of a block that asks for it */
} Model;

typedef struct Stream Stream;

/* A device and its primary context, the only context that it has. */
typedef struct {
  int ordinal, retained;
  Model model;
  size_t memory, used; /* bytes */
  Stream *streams;     /* of the context, the newest first; the legacy default stream is the last */
  Stream *legacy;
  Result fault; /* of a kernel: every later call returns it, as a context that is corrupted does */
} Device;

extern Device devices[MAX_DEVICES];
extern int device_count;
extern pthread_mutex_t lock;

Device *current(void); /* that of the current context; NULL without one */

/* An entry point: exported, and in the table that cuGetProcAddress searches. */
typedef struct { const char *name; void *function; } Entry;
#define ENTRY(name, ...)                                                                        \
  __attribute__((visibility("default"))) Result name(__VA_ARGS__);                              \
  static const Entry entry_##name                                                               \
      __attribute__((used, section("entries"))) = {#name, (void *)name};                        \
  Result name(__VA_ARGS__)

/* The first lines of an entry: under the lock until it returns, in a context without a fault. */
void unlock(int *held);
#define LOCKED                                                                                  \
  int held __attribute__((cleanup(unlock))) = pthread_mutex_lock(&lock);                        \
  (void)held
#define IN_CONTEXT                                                                              \
  LOCKED;                                                                                       \
  Device *device = current();                                                                   \
  if (!device) return INVALID_CONTEXT;                                                          \
  if (device->fault) return device->fault

/* ---- memory.c */
typedef struct {
  uint64_t at, size;
  int device; /* -1: pinned memory of the host */
} Allocation;

Result allocate(Device *device, size_t size, uint64_t *at); /* NULL: pinned memory of the host */
Result release(uint64_t at);
const Allocation *allocation_of(uint64_t at);
const Allocation *allocations_of(int device, size_t *count);
/* SUCCESS if all `size` bytes from `at` are of one allocation on a device. */
Result check_range(uint64_t at, size_t size);
int is_pinned(const void *at);

/* ---- order.c */
typedef struct Work Work;
typedef Result (*Action)(Work *);
struct Work {
  Action action;
  Device *device;
  uint64_t number, awaited_number; /* of all work; the last number of `awaited` that comes before */
  Stream *awaited;
  Work *next;
  uint64_t to, from; /* of a copy or a fill */
  size_t size;
  uint64_t value;
  void *data; /* freed with the work */
  size_t bytes; /* of `data` */
  void **pointers; /* to the arguments in it, for who asks for a node's */
  void *subject;
  unsigned dimensions[8]; /* grid, block, shared bytes, whether all blocks run at once */
};

Stream *stream_of(Device *device, void *handle); /* NULL where it is not of the context */
Work *work(Device *device, Action action);
/* Put work into a stream's queue, or into the graph that it captures; frees it where it fails. */
Result enqueue(Stream *stream, Work *work);
Result finish_device(Device *device); /* both fail where a stream captures */
Result finish_stream(Stream *stream);
void finish_queues(Device *device);
/* Enqueue, and wait until it is done. */
Result enqueue_and_finish(Stream *stream, Work *work);

/* ---- graph.c */
typedef struct Capture Capture;

struct Stream {
  Device *device;
  unsigned flags;
  int priority;
  Work *first, **last;
  int count;
  uint64_t done, newest; /* numbers of work */
  Stream *next;
  Capture *capture;  /* that it takes part in */
  Work *newest_node; /* of that */
  int unjoined;      /* whether the stream that began it has not waited for this one's nodes */
};
enum { NON_BLOCKING = 1 };

typedef struct {
  Stream *stream;
  Device *device;
  uint64_t number; /* of the work that it marks; 0: never recorded */
  int64_t time;    /* nanoseconds, when that was done; 0: not yet */
  Capture *capture; /* in which it was recorded last */
  Work *node;
} Event;

Result capture(Stream *stream, Work *work); /* for a stream that captures */
Result capture_wait(Stream *stream, Event *event);
Result invalidate(Capture *capture, Result error); /* returns the error */
/* What a call that no capture may see answers: SUCCESS where there is none. */
Result refuse_waiting(Device *device);
Result refuse_unsafe(void);
Result refuse_legacy(Device *device);
Work *copied(const Work *work);
Work *node_in(void *executable, const Work *node); /* NULL where it has none for it */
void count_launch(void);

#endif
