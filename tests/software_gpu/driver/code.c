/* Modules, kernels and launches. The instructions are run by callbacks in Python (`runner.py`). */
#define _GNU_SOURCE
#include "gpu.h"

#include <stdlib.h>
#include <string.h>

/* What the runner says about a kernel; bytes, and for each parameter its place. */
typedef struct {
  int static_shared, most_threads, registers, local, parameters;
  int sizes[MAX_PARAMETERS];
} Kernel;

typedef struct {
  int (*load)(int device, const void *image);                  /* a number, or -Result */
  Result (*find)(int module, const char *name, Kernel *found); /* fills `found` */
  Result (*global)(int module, const char *name, Pointer *at, size_t *size);
  Result (*launch)(int module, const char *name, const unsigned *dimensions, const void **values,
                   const Allocation *allocations, size_t count);
} Runner;

typedef struct {
  Device *device; /* NULL: a library, which every device loads when it needs it */
  char *image;
  int numbers[MAX_DEVICES]; /* the runner's, by device; 0: not loaded */
} Module;

typedef struct Function Function;
struct Function {
  Module *module;
  char *name;
  Kernel kernel;
  int asked_shared; /* bytes of dynamic shared memory that were asked for */
  Function *next;
};

static Runner runner;
static Function *functions; /* all handles that were given out */
static unsigned long launches;

__attribute__((visibility("default"))) void software_gpu_runner(const Runner *given) {
  runner = *given;
}

__attribute__((visibility("default"))) unsigned long software_gpu_launches(void) {
  return launches;
}

enum { FIRST_WITHOUT_ASKING = 48 << 10, MOST_Y = 65535, MOST_THREADS = 1024, MOST_DEPTH = 64 };

static Result number_on(Module *module, Device *device, int *number) {
  int *known = &module->numbers[device->ordinal];
  if (!*known) {
    int loaded = runner.load ? runner.load(device->ordinal, module->image) : -NO_BINARY_FOR_GPU;
    if (loaded < 0) return -loaded;
    *known = loaded;
  }
  *number = *known;
  return SUCCESS;
}

static Result load(void **module, const void *image, Device *owner, Device *device) {
  Module *made = calloc(1, sizeof *made);
  made->device = owner;
  made->image = strdup(image); /* PTX is text; a cubin's first bytes are enough to refuse it */
  int number;
  *module = made;
  return number_on(made, device, &number);
}

ENTRY(cuModuleLoadData, void **module, const void *image) {
  IN_CONTEXT;
  return load(module, image, device, device);
}

ENTRY(cuModuleLoadDataEx, void **module, const void *image, unsigned n, void *keys, void *values) {
  return cuModuleLoadData(module, image);
}

ENTRY(cuLibraryLoadData, void **library, const void *image, void *keys, void *values, unsigned n,
      void *more_keys, void *more_values, unsigned m) {
  IN_CONTEXT;
  return load(library, image, NULL, device);
}

ENTRY(cuModuleUnload, void *module) { IN_CONTEXT; return SUCCESS; }
ENTRY(cuLibraryUnload, void *library) { LOCKED; return SUCCESS; }

static Result find(void **function, Module *module, const char *name, Device *device) {
  Kernel kernel = {0};
  int number;
  Result failed = number_on(module, device, &number);
  if (!failed) failed = runner.find(number, name, &kernel);
  if (failed) return failed;
  Function *made = *function = calloc(1, sizeof *made);
  made->module = module, made->name = strdup(name), made->kernel = kernel;
  made->next = functions, functions = made;
  return SUCCESS;
}

ENTRY(cuModuleGetFunction, void **function, Module *module, const char *name) {
  IN_CONTEXT;
  if (module->device != device) return INVALID_HANDLE;
  return find(function, module, name, device);
}

ENTRY(cuLibraryGetKernel, void **kernel, Module *library, const char *name) {
  IN_CONTEXT;
  return find(kernel, library, name, device);
}

ENTRY(cuKernelGetFunction, void **function, void *kernel) { *function = kernel; return SUCCESS; }
ENTRY(cuLibraryGetModule, void **module, void *library) { *module = library; return SUCCESS; }

ENTRY(cuKernelGetLibrary, void **library, Function *kernel) {
  *library = kernel->module;
  return SUCCESS;
}

ENTRY(cuFuncGetModule, void **module, Function *function) {
  *module = function->module;
  return SUCCESS;
}

ENTRY(cuFuncGetName, const char **name, Function *function) {
  *name = function->name;
  return SUCCESS;
}

ENTRY(cuKernelGetName, const char **name, Function *kernel) {
  *name = kernel->name;
  return SUCCESS;
}

ENTRY(cuModuleGetGlobal, Pointer *at, size_t *size, Module *module, const char *name) {
  IN_CONTEXT;
  int number;
  Result failed = number_on(module, device, &number);
  Pointer unused;
  size_t bytes;
  return failed ? failed : runner.global(number, name, at ? at : &unused, size ? size : &bytes);
}

ENTRY(cuLibraryGetGlobal, Pointer *at, size_t *size, Module *library, const char *name) {
  return cuModuleGetGlobal(at, size, library, name);
}

/* ---- entries: attributes of kernels */

enum { ATTRIBUTE_THREADS, ATTRIBUTE_SHARED, ATTRIBUTE_LOCAL = 3, ATTRIBUTE_REGISTERS,
       ATTRIBUTE_DYNAMIC_SHARED = 8 };

static int known(const Function *function) {
  for (Function *f = functions; f; f = f->next) {
    if (f == function) return 1;
  }
  return 0;
}

ENTRY(cuFuncGetAttribute, int *value, int which, Function *function) {
  LOCKED;
  if (!known(function)) return INVALID_HANDLE;
  const Kernel *kernel = &function->kernel;
  switch (which) {
    case ATTRIBUTE_THREADS: *value = kernel->most_threads; break;
    case ATTRIBUTE_SHARED: *value = kernel->static_shared; break;
    case ATTRIBUTE_LOCAL: *value = kernel->local; break;
    case ATTRIBUTE_REGISTERS: *value = kernel->registers; break;
    case ATTRIBUTE_DYNAMIC_SHARED:
      *value = function->asked_shared ? function->asked_shared : FIRST_WITHOUT_ASKING;
      break;
    default: *value = 0;
  }
  return SUCCESS;
}

ENTRY(cuFuncSetAttribute, Function *function, int which, int value) {
  IN_CONTEXT;
  if (!known(function)) return INVALID_HANDLE;
  if (which != ATTRIBUTE_DYNAMIC_SHARED) return SUCCESS;
  if (value < 0 || value > device->model.shared_on_request - function->kernel.static_shared) {
    return INVALID_VALUE;
  }
  function->asked_shared = value;
  return SUCCESS;
}

ENTRY(cuKernelGetAttribute, int *value, int which, Function *kernel, int device) {
  return cuFuncGetAttribute(value, which, kernel);
}

ENTRY(cuKernelSetAttribute, int which, int value, Function *kernel, int device) {
  return cuFuncSetAttribute(kernel, which, value);
}

ENTRY(cuFuncSetCacheConfig, void *function, int config) { return SUCCESS; }
ENTRY(cuKernelSetCacheConfig, void *kernel, int config, int device) { return SUCCESS; }

/* Threads, shared memory and the limit on blocks; the registers of a software GPU are enough. */
static int blocks_of_processor(const Device *device, const Function *function, int threads,
                               size_t dynamic) {
  int by_threads = device->model.threads_of_processor / ((threads + 31) / 32 * 32);
  size_t shared = function->kernel.static_shared + dynamic + (device->model.cc >= 80 ? 1024 : 0);
  size_t by_shared = shared ? device->model.shared_of_processor / shared : 32;
  int most = device->model.blocks_of_processor;
  if (by_threads < most) most = by_threads;
  return by_shared < (size_t)most ? (int)by_shared : most;
}

ENTRY(cuOccupancyMaxActiveBlocksPerMultiprocessor, int *blocks, Function *function, int threads,
      size_t dynamic) {
  IN_CONTEXT;
  if (!known(function) || threads < 1) return INVALID_VALUE;
  *blocks = blocks_of_processor(device, function, threads, dynamic);
  return SUCCESS;
}

ENTRY(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, int *blocks, Function *function,
      int threads, size_t dynamic, unsigned flags) {
  return cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, threads, dynamic);
}

ENTRY(cuOccupancyMaxPotentialBlockSize, int *grid, int *block, Function *function, void *bytes,
      size_t dynamic, int most) {
  IN_CONTEXT;
  if (!known(function)) return INVALID_VALUE;
  *block = most && most < 256 ? most : 256;
  *grid = device->model.processors * blocks_of_processor(device, function, *block, dynamic);
  return SUCCESS;
}

/* ---- entries: launches */

static Result launch_now(Work *work) {
  Function *function = work->subject;
  const void *values[MAX_PARAMETERS];
  const char *value = work->data;
  for (int i = 0; i < function->kernel.parameters; i++) {
    values[i] = value;
    value += (function->kernel.sizes[i] + 15) / 16 * 16;
  }
  size_t count;
  const Allocation *there = allocations_of(work->device->ordinal, &count);
  int number = function->module->numbers[work->device->ordinal];
  return runner.launch(number, function->name, work->dimensions, values, there, count);
}

/* The arguments at the time of the launch, each at a multiple of 16 bytes. */
static void snapshot(Work *work, const Kernel *kernel, void **arguments) {
  size_t bytes = 16;
  for (int i = 0; i < kernel->parameters; i++) bytes += (kernel->sizes[i] + 15) / 16 * 16;
  char *to = calloc(1, bytes);
  free(work->data);
  work->data = to, work->bytes = bytes;
  for (int i = 0; i < kernel->parameters; i++) {
    memcpy(to, arguments[i], kernel->sizes[i]);
    to += (kernel->sizes[i] + 15) / 16 * 16;
  }
}

static Result check(const Device *device, const Function *function, const unsigned *d, int together) {
  const Kernel *kernel = &function->kernel;
  uint64_t threads = (uint64_t)d[3] * d[4] * d[5];
  for (int i = 0; i < 6; i++) {
    if (!d[i]) return INVALID_VALUE;
  }
  if (d[0] > INT32_MAX || d[1] > MOST_Y || d[2] > MOST_Y) return INVALID_VALUE;
  if (d[3] > MOST_THREADS || d[4] > MOST_THREADS || d[5] > MOST_DEPTH) return INVALID_VALUE;
  if (threads > MOST_THREADS) return INVALID_VALUE;
  if (kernel->most_threads && threads > (uint64_t)kernel->most_threads) return INVALID_VALUE;
  unsigned unasked = FIRST_WITHOUT_ASKING - kernel->static_shared;
  unsigned asked = function->asked_shared;
  if (d[6] > (asked > unasked ? asked : unasked)) return INVALID_VALUE;
  int blocks = blocks_of_processor(device, function, threads, d[6]);
  if (!blocks) return LAUNCH_OUT_OF_RESOURCES;
  uint64_t grid = (uint64_t)d[0] * d[1] * d[2];
  if (together && grid > (uint64_t)blocks * device->model.processors) {
    return COOPERATIVE_LAUNCH_TOO_LARGE;
  }
  return SUCCESS;
}

static Result launch(Function *function, const unsigned *dimensions, void *handle, void **arguments,
                     int together) {
  IN_CONTEXT;
  Stream *stream = stream_of(device, handle);
  if (!stream || !known(function)) return INVALID_HANDLE;
  if (function->module->device && function->module->device != device) return INVALID_HANDLE;
  int number;
  Result failed = number_on(function->module, device, &number);
  if (!failed) failed = check(device, function, dimensions, together);
  if (failed) return failed;
  if (function->kernel.parameters && !arguments) return INVALID_VALUE;
  if (!stream->capture) launches++;
  Work *made = work(device, launch_now);
  made->subject = function;
  snapshot(made, &function->kernel, arguments);
  memcpy(made->dimensions, dimensions, 7 * sizeof *dimensions);
  made->dimensions[7] = together;
  return enqueue(stream, made);
}

void count_launch(void) { launches++; }

ENTRY(cuLaunchKernel, Function *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
      unsigned by, unsigned bz, unsigned shared, void *stream, void **arguments, void **extra) {
  const unsigned dimensions[] = {gx, gy, gz, bx, by, bz, shared};
  return extra ? NOT_SUPPORTED : launch(function, dimensions, stream, arguments, 0);
}

ENTRY(cuLaunchCooperativeKernel, Function *function, unsigned gx, unsigned gy, unsigned gz,
      unsigned bx, unsigned by, unsigned bz, unsigned shared, void *stream, void **arguments) {
  const unsigned dimensions[] = {gx, gy, gz, bx, by, bz, shared};
  return launch(function, dimensions, stream, arguments, 1);
}

typedef struct {
  unsigned dimensions[7];
  void *stream;
  struct { int key; int padding; union { char bytes[64]; int number; } value; } *attributes;
  unsigned count;
} Configuration;

ENTRY(cuLaunchKernelEx, const Configuration *given, Function *function, void **arguments,
      void **extra) {
  enum { COOPERATIVE = 2 };
  int together = 0;
  for (unsigned i = 0; i < given->count; i++) {
    if (given->attributes[i].key == COOPERATIVE) together = given->attributes[i].value.number;
  }
  if (extra) return NOT_SUPPORTED;
  return launch(function, given->dimensions, given->stream, arguments, together);
}

/* ---- entries: kernels in graphs */

typedef struct {
  Function *function;
  unsigned dimensions[7];
  void **arguments, **extra;
  void *kernel, *context;
} KernelNode;

ENTRY(cuGraphKernelNodeGetParams, Work *node, KernelNode *found) {
  LOCKED;
  if (!node || node->action != launch_now) return INVALID_VALUE;
  const Kernel *kernel = &((Function *)node->subject)->kernel;
  free(node->pointers);
  node->pointers = calloc(kernel->parameters + 1, sizeof *node->pointers);
  char *value = node->data;
  for (int i = 0; i < kernel->parameters; i++) {
    node->pointers[i] = value;
    value += (kernel->sizes[i] + 15) / 16 * 16;
  }
  *found = (KernelNode){.function = node->subject, .arguments = node->pointers};
  memcpy(found->dimensions, node->dimensions, 7 * sizeof *node->dimensions);
  return SUCCESS;
}

ENTRY(cuGraphExecKernelNodeSetParams, void *executable, Work *node, const KernelNode *given) {
  IN_CONTEXT;
  Work *mine = node_in(executable, node);
  if (!mine || mine->action != launch_now || !known(given->function)) return INVALID_VALUE;
  if (given->extra) return NOT_SUPPORTED;
  Result failed = check(device, given->function, given->dimensions, mine->dimensions[7]);
  if (failed) return failed;
  mine->subject = given->function;
  snapshot(mine, &given->function->kernel, given->arguments);
  memcpy(mine->dimensions, given->dimensions, 7 * sizeof *given->dimensions);
  return SUCCESS;
}
