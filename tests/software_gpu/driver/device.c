/* Devices, their contexts, error texts, and the table of entry points. */
#define _GNU_SOURCE
#include "gpu.h"

#include <stdio.h>
#include <string.h>

Device devices[MAX_DEVICES];
int device_count;
pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;

enum { DRIVER_VERSION = 13000, STACK = 64, MEMORY = 16 }; /* GiB */

static const Model MODELS[] = {
    {"Software GPU 7.5", 75, 40, 1024, 16, 64 << 10, 64 << 10},
    {"Software GPU 8.0", 80, 108, 2048, 32, 164 << 10, 163 << 10},
    {"Software GPU 9.0", 90, 132, 2048, 32, 228 << 10, 227 << 10},
    {"Software GPU 12.0", 120, 170, 1536, 24, 100 << 10, 99 << 10},
};

static __thread Device *stack[STACK];
static __thread int depth;

void unlock(int *held) { pthread_mutex_unlock(&lock); }

Device *current(void) { return depth ? stack[depth - 1] : NULL; }

/* Make the last device, of a compute capability (major * 10 + minor); 0 where it is unknown. */
__attribute__((visibility("default"))) int software_gpu_device(int ordinal, int cc) {
  for (size_t i = 0; i < sizeof MODELS / sizeof *MODELS; i++) {
    if (MODELS[i].cc != cc || ordinal >= MAX_DEVICES) continue;
    device_count = ordinal + 1;
    devices[ordinal] =
        (Device){.ordinal = ordinal, .model = MODELS[i], .memory = (size_t)MEMORY << 30};
    return 1;
  }
  return 0;
}

/* The bytes that a device has. */
__attribute__((visibility("default"))) void software_gpu_memory(int ordinal, size_t bytes) {
  devices[ordinal].memory = bytes;
}

/* Forget a kernel's fault, as a new process would; the fault. */
__attribute__((visibility("default"))) int software_gpu_forget_fault(int ordinal) {
  LOCKED;
  Result fault = devices[ordinal].fault;
  devices[ordinal].fault = SUCCESS;
  return fault;
}

/* ---- entries: errors */

static const struct { Result code; const char *name, *text; } ERRORS[] = {
    {SUCCESS, "CUDA_SUCCESS", "no error"},
    {INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {NO_BINARY_FOR_GPU, "CUDA_ERROR_NO_BINARY_FOR_GPU",
     "no kernel image is available for execution on the device"},
    {INVALID_PTX, "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"},
    {INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    {ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {LAUNCH_OUT_OF_RESOURCES, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES",
     "too many resources requested for launch"},
    {MISALIGNED_ADDRESS, "CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned address"},
    {LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {COOPERATIVE_LAUNCH_TOO_LARGE, "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE",
     "too many blocks in cooperative launch"},
    {NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {ILLEGAL_STATE, "CUDA_ERROR_ILLEGAL_STATE",
     "the operation cannot be performed in the present state"},
    {CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
     "operation not permitted when stream is capturing"},
    {CAPTURE_INVALIDATED, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
     "operation failed due to a previous error during capture"},
    {CAPTURE_MERGE, "CUDA_ERROR_STREAM_CAPTURE_MERGE",
     "operation would result in a merge of separate capture sequences"},
    {CAPTURE_UNMATCHED, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED",
     "capture was not ended in the same stream as it began"},
    {CAPTURE_UNJOINED, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED",
     "capturing stream has unjoined work"},
    {CAPTURE_ISOLATION, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION",
     "dependency created on uncaptured work in another stream"},
    {CAPTURE_IMPLICIT, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT",
     "operation would make the legacy stream depend on a capturing blocking stream"},
    {CAPTURED_EVENT, "CUDA_ERROR_CAPTURED_EVENT",
     "operation not permitted on an event last recorded in a capturing stream"},
    {CAPTURE_WRONG_THREAD, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD",
     "attempt to terminate a thread-local capture sequence from another thread"},
};

ENTRY(cuGetErrorName, Result code, const char **name) {
  for (size_t i = 0; i < sizeof ERRORS / sizeof *ERRORS; i++) {
    if (ERRORS[i].code == code) { *name = ERRORS[i].name; return SUCCESS; }
  }
  *name = NULL;
  return INVALID_VALUE;
}

ENTRY(cuGetErrorString, Result code, const char **text) {
  for (size_t i = 0; i < sizeof ERRORS / sizeof *ERRORS; i++) {
    if (ERRORS[i].code == code) { *text = ERRORS[i].text; return SUCCESS; }
  }
  *text = NULL;
  return INVALID_VALUE;
}

/* ---- entries: devices */

ENTRY(cuInit, unsigned flags) { return device_count ? SUCCESS : NO_DEVICE; }
ENTRY(cuDriverGetVersion, int *version) { *version = DRIVER_VERSION; return SUCCESS; }
ENTRY(cuDeviceGetCount, int *count) { *count = device_count; return SUCCESS; }

#define OF_DEVICE                                                                               \
  if (ordinal < 0 || ordinal >= device_count) return INVALID_DEVICE;                            \
  Device *device = &devices[ordinal];                                                           \
  (void)device

ENTRY(cuDeviceGet, int *device_handle, int ordinal) {
  OF_DEVICE;
  *device_handle = ordinal;
  return SUCCESS;
}

ENTRY(cuDeviceGetName, char *name, int room, int ordinal) {
  OF_DEVICE;
  snprintf(name, room, "%s", device->model.name);
  return SUCCESS;
}

ENTRY(cuDeviceTotalMem, size_t *bytes, int ordinal) {
  OF_DEVICE;
  *bytes = device->memory;
  return SUCCESS;
}
__attribute__((visibility("default"), alias("cuDeviceTotalMem"))) Result
cuDeviceTotalMem_v2(size_t *bytes, int ordinal);

ENTRY(cuDeviceGetUuid, unsigned char *uuid, int ordinal) {
  OF_DEVICE;
  memset(uuid, 7, 16);
  uuid[15] = ordinal;
  return SUCCESS;
}

ENTRY(cuDeviceGetPCIBusId, char *id, int room, int ordinal) {
  OF_DEVICE;
  snprintf(id, room, "0000:%02x:00.0", ordinal + 1);
  return SUCCESS;
}

ENTRY(cuDeviceComputeCapability, int *major, int *minor, int ordinal) {
  OF_DEVICE;
  *major = device->model.cc / 10, *minor = device->model.cc % 10;
  return SUCCESS;
}

ENTRY(cuDeviceCanAccessPeer, int *can, int from, int to) { *can = 0; return SUCCESS; }

ENTRY(cuDeviceGetAttribute, int *value, int which, int ordinal) {
  OF_DEVICE;
  const Model *m = &device->model;
  switch (which) { /* the numbers of CUdevice_attribute */
    case 1: case 2: case 3: *value = 1024; break; /* threads of a block, along x and y */
    case 4: *value = 64; break;
    case 5: *value = INT32_MAX; break; /* blocks of a grid along x, y and z */
    case 6: case 7: *value = 65535; break;
    case 8: *value = 48 << 10; break; /* shared memory of a block that does not ask */
    case 9: *value = 64 << 10; break; /* constant memory */
    case 10: *value = 32; break;      /* lanes of a warp */
    case 12: case 82: *value = 65536; break; /* registers of a block, of a processor */
    case 13: case 36: *value = 1500000; break; /* clocks in kHz */
    case 14: *value = 512; break; /* alignment of textures */
    case 15: case 31: case 40: *value = 1; break; /* copies beside kernels, several kernels */
    case 16: *value = m->processors; break;
    case 19: case 41: case 83: case 89: case 90: case 95: case 115: *value = 1; break;
    case 33: *value = ordinal + 1; break; /* the PCI bus */
    case 37: *value = 5120; break;        /* bits of the memory's bus */
    case 38: *value = 50 << 20; break;    /* bytes of the L2 cache */
    case 39: *value = m->threads_of_processor; break;
    case 75: *value = m->cc / 10; break;
    case 76: *value = m->cc % 10; break;
    case 81: *value = m->shared_of_processor; break;
    case 97: *value = m->shared_on_request; break;
    case 106: *value = m->blocks_of_processor; break;
    case 111: *value = m->cc >= 80 ? 1024 : 0; break; /* shared memory that the system takes */
    default: *value = 0;
  }
  return SUCCESS;
}

/* ---- entries: contexts */

ENTRY(cuDevicePrimaryCtxRetain, void **context, int ordinal) {
  LOCKED;
  OF_DEVICE;
  device->retained++;
  *context = device;
  return SUCCESS;
}

ENTRY(cuDevicePrimaryCtxRelease, int ordinal) { OF_DEVICE; return SUCCESS; }
ENTRY(cuDevicePrimaryCtxReset, int ordinal) { OF_DEVICE; return SUCCESS; }
ENTRY(cuDevicePrimaryCtxSetFlags, int ordinal, unsigned flags) { OF_DEVICE; return SUCCESS; }

ENTRY(cuDevicePrimaryCtxGetState, int ordinal, unsigned *flags, int *active) {
  OF_DEVICE;
  *flags = 0, *active = device->retained > 0;
  return SUCCESS;
}

ENTRY(cuCtxGetCurrent, void **context) { *context = current(); return SUCCESS; }

ENTRY(cuCtxSetCurrent, Device *context) {
  if (!context) {
    if (depth) depth--;
  } else if (depth) {
    stack[depth - 1] = context;
  } else {
    stack[depth++] = context;
  }
  return SUCCESS;
}

ENTRY(cuCtxPushCurrent, Device *context) {
  if (depth == STACK || !context) return INVALID_CONTEXT;
  stack[depth++] = context;
  return SUCCESS;
}

ENTRY(cuCtxPopCurrent, void **context) {
  if (!depth) return INVALID_CONTEXT;
  depth--;
  if (context) *context = stack[depth];
  return SUCCESS;
}

ENTRY(cuCtxGetDevice, int *ordinal) {
  if (!current()) return INVALID_CONTEXT;
  *ordinal = current()->ordinal;
  return SUCCESS;
}

ENTRY(cuCtxGetApiVersion, void *context, unsigned *version) { *version = 3020; return SUCCESS; }
ENTRY(cuCtxGetFlags, unsigned *flags) { *flags = 0; return SUCCESS; }
ENTRY(cuCtxSetFlags, unsigned flags) { return SUCCESS; }
ENTRY(cuCtxGetLimit, size_t *value, int which) { *value = 1024; return SUCCESS; }
ENTRY(cuCtxSetLimit, int which, size_t value) { return SUCCESS; }
ENTRY(cuCtxGetCacheConfig, int *config) { *config = 0; return SUCCESS; }
ENTRY(cuCtxSetCacheConfig, int config) { return SUCCESS; }
ENTRY(cuCtxEnablePeerAccess, void *context, unsigned flags) { return NOT_SUPPORTED; }
ENTRY(cuModuleGetLoadingMode, int *mode) { *mode = 2; return SUCCESS; }
ENTRY(cuProfilerStart, void) { return SUCCESS; }
ENTRY(cuProfilerStop, void) { return SUCCESS; }

ENTRY(cuCtxGetId, Device *context, unsigned long long *id) {
  Device *of = context ? context : current();
  if (!of) return INVALID_CONTEXT;
  *id = of->ordinal + 1;
  return SUCCESS;
}

ENTRY(cuCtxGetStreamPriorityRange, int *least, int *greatest) {
  *least = 0, *greatest = -5;
  return SUCCESS;
}

/* NVRTC asks for a table of its own, and works without. */
ENTRY(cuGetExportTable, const void **table, const void *id) { *table = NULL; return NOT_FOUND; }

/* ---- the table of entry points */

extern const Entry __start_entries[], __stop_entries[];

static Result search(const char *name, void **function) {
  for (const Entry *e = __start_entries; e < __stop_entries; e++) {
    if (!strcmp(e->name, name)) { *function = e->function; return SUCCESS; }
  }
  *function = NULL;
  return NOT_FOUND;
}

ENTRY(cuGetProcAddress, const char *name, void **function, int version, uint64_t flags) {
  return search(name, function);
}

__attribute__((visibility("default"))) Result
cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags, int *status) {
  Result missing = !strcmp(name, "cuGetProcAddress")
                       ? (*function = (void *)cuGetProcAddress_v2, SUCCESS)
                       : search(name, function);
  if (status) *status = missing ? 1 : 0;
  return missing;
}
