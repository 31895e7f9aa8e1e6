/* Streams that capture, and graphs: what is enqueued while a stream captures becomes the nodes of a
 * graph, which is launched as a whole, any number of times.
 *
 * The nodes of a graph are run in the order in which they were captured, which is one that their
 * dependencies allow.
 */
#define _GNU_SOURCE
#include "gpu.h"

#include <stdlib.h>
#include <string.h>

enum { GLOBAL, THREAD_LOCAL, RELAXED }; /* modes of a capture */
enum { NONE, ACTIVE, INVALIDATED };     /* states of a stream */

typedef struct {
  Device *device;
  Work *first, **last;
  size_t count;
} Graph;

struct Capture {
  Graph *graph;
  Stream *origin; /* the stream that began it */
  int mode, invalid;
  pthread_t thread;
  uint64_t id;
  Capture *next;
};

typedef struct {
  Device *device;
  size_t count;
  Work **nodes;       /* copies, */
  const Work **known; /* of these */
  Stream *stream;     /* of the last launch: the next one comes after it */
  uint64_t number;
} Executable;

static Capture *captures; /* that go on */
static uint64_t begun;

Work *copied(const Work *work) {
  Work *made = malloc(sizeof *made);
  *made = *work;
  made->next = NULL, made->pointers = NULL;
  if (work->data) made->data = memcpy(malloc(work->bytes), work->data, work->bytes);
  return made;
}

static void destroy(Work *work) {
  free(work->data);
  free(work->pointers);
  free(work);
}

Result invalidate(Capture *capture, Result error) {
  capture->invalid = 1;
  return error;
}

Result capture(Stream *stream, Work *node) {
  Capture *into = stream->capture;
  if (into->invalid) {
    destroy(node);
    return CAPTURE_INVALIDATED;
  }
  *into->graph->last = node, into->graph->last = &node->next;
  into->graph->count++;
  stream->newest_node = node;
  stream->unjoined = stream != into->origin;
  return SUCCESS;
}

/* An event that was recorded in a capture takes a stream into it, and joins it again. */
Result capture_wait(Stream *stream, Event *event) {
  if (!event->capture) return invalidate(stream->capture, CAPTURE_ISOLATION);
  if (stream == stream->device->legacy) return invalidate(event->capture, CAPTURE_IMPLICIT);
  if (event->capture->invalid) return CAPTURE_INVALIDATED;
  if (!stream->capture) {
    stream->capture = event->capture;
    stream->newest_node = event->node;
    stream->unjoined = 1;
  } else if (stream->capture != event->capture) {
    return invalidate(stream->capture, CAPTURE_MERGE);
  } else if (event->stream != stream && event->node == event->stream->newest_node) {
    event->stream->unjoined = 0;
  }
  return SUCCESS;
}

Result refuse_waiting(Device *device) {
  for (Capture *c = captures; c; c = c->next) {
    if (c->origin->device == device) return invalidate(c, CAPTURE_UNSUPPORTED);
  }
  return SUCCESS;
}

Result refuse_unsafe(void) {
  for (Capture *c = captures; c; c = c->next) {
    int mine = pthread_equal(c->thread, pthread_self());
    if (c->mode == GLOBAL || (c->mode == THREAD_LOCAL && mine)) {
      return invalidate(c, CAPTURE_UNSUPPORTED);
    }
  }
  return SUCCESS;
}

Result refuse_legacy(Device *device) {
  for (Capture *c = captures; c; c = c->next) {
    int blocking = !(c->origin->flags & NON_BLOCKING);
    if (c->origin->device == device && blocking) return invalidate(c, CAPTURE_IMPLICIT);
  }
  return SUCCESS;
}

/* ---- entries: capture */

#define IN_STREAM                                                                               \
  IN_CONTEXT;                                                                                   \
  Stream *stream = stream_of(device, handle);                                                   \
  if (!stream) return INVALID_HANDLE

ENTRY(cuStreamBeginCapture, void *handle, int mode) {
  IN_STREAM;
  if (mode < GLOBAL || mode > RELAXED) return INVALID_VALUE;
  if (stream == device->legacy) return CAPTURE_UNSUPPORTED;
  if (stream->capture) return ILLEGAL_STATE;
  Graph *graph = calloc(1, sizeof *graph);
  graph->device = device, graph->last = &graph->first;
  Capture *made = calloc(1, sizeof *made);
  *made = (Capture){graph, stream, mode, 0, pthread_self(), ++begun, captures};
  stream->capture = captures = made;
  stream->newest_node = NULL;
  return SUCCESS;
}

static void destroy_graph(Graph *graph) {
  for (Work *node = graph->first, *next; node; node = next) {
    next = node->next;
    destroy(node);
  }
  free(graph);
}

ENTRY(cuStreamEndCapture, void *handle, Graph **graph) {
  IN_STREAM;
  Capture *ended = stream->capture;
  *graph = NULL;
  if (!ended) return ILLEGAL_STATE;
  if (ended->origin != stream) return invalidate(ended, CAPTURE_UNMATCHED);
  int mine = pthread_equal(ended->thread, pthread_self());
  if (ended->mode != RELAXED && !mine) return CAPTURE_WRONG_THREAD;
  Result result = ended->invalid ? CAPTURE_INVALIDATED : SUCCESS;
  for (Stream *s = device->streams; s; s = s->next) {
    if (s->capture != ended) continue;
    if (s != stream && s->unjoined && !result) result = CAPTURE_UNJOINED;
    s->capture = NULL, s->newest_node = NULL, s->unjoined = 0;
  }
  for (Capture **c = &captures; *c; c = &(*c)->next) {
    if (*c == ended) { *c = ended->next; break; } /* not freed: events may name it */
  }
  if (result) destroy_graph(ended->graph);
  else *graph = ended->graph;
  return result;
}

static int state(const Stream *stream) {
  return !stream->capture ? NONE : stream->capture->invalid ? INVALIDATED : ACTIVE;
}

ENTRY(cuStreamIsCapturing, void *handle, int *status) {
  IN_STREAM;
  *status = state(stream);
  return SUCCESS;
}

/* The third version of the entry, which CUDA 12.3 brought. */
ENTRY(cuStreamGetCaptureInfo, void *handle, int *status, uint64_t *id, Graph **graph,
      Work *const **nodes, const void **edges, size_t *count) {
  IN_STREAM;
  *status = state(stream);
  if (*status != ACTIVE) return SUCCESS;
  if (id) *id = stream->capture->id;
  if (graph) *graph = stream->capture->graph;
  if (nodes) *nodes = &stream->newest_node;
  static const uint64_t plain = 0; /* an edge without ports */
  if (edges) *edges = &plain;
  if (count) *count = stream->newest_node ? 1 : 0;
  return SUCCESS;
}

ENTRY(cuThreadExchangeStreamCaptureMode, int *mode) { return SUCCESS; }

/* ---- entries: graphs */

ENTRY(cuGraphDestroy, Graph *graph) {
  LOCKED;
  if (!graph) return INVALID_VALUE;
  destroy_graph(graph);
  return SUCCESS;
}

ENTRY(cuGraphGetNodes, Graph *graph, Work **nodes, size_t *count) {
  LOCKED;
  size_t i = 0;
  for (Work *node = graph->first; node && nodes && i < *count; node = node->next) nodes[i++] = node;
  *count = nodes ? i : graph->count;
  return SUCCESS;
}

ENTRY(cuGraphInstantiateWithFlags, Executable **executable, Graph *graph, unsigned long long flags) {
  IN_CONTEXT;
  Executable *made = *executable = calloc(1, sizeof *made);
  made->device = graph->device, made->count = graph->count;
  made->nodes = calloc(graph->count + 1, sizeof *made->nodes);
  made->known = calloc(graph->count + 1, sizeof *made->known);
  size_t i = 0;
  for (Work *node = graph->first; node; node = node->next, i++) {
    made->nodes[i] = copied(node);
    made->known[i] = node;
  }
  return SUCCESS;
}

ENTRY(cuGraphInstantiate, Executable **executable, Graph *graph, unsigned long long flags) {
  return cuGraphInstantiateWithFlags(executable, graph, flags);
}

Work *node_in(void *given, const Work *node) {
  Executable *executable = given;
  for (size_t i = 0; i < executable->count; i++) {
    if (executable->known[i] == node) return executable->nodes[i];
  }
  return NULL;
}

static Result nothing(Work *work) { return SUCCESS; }

ENTRY(cuGraphLaunch, Executable *executable, void *handle) {
  IN_STREAM;
  if (executable->device != device) return INVALID_VALUE;
  if (stream->capture) return NOT_SUPPORTED; /* a GPU would make a node of the whole graph */
  Work *begin = work(device, nothing);
  begin->awaited = executable->stream, begin->awaited_number = executable->number;
  Result failed = enqueue(stream, begin);
  if (failed) return failed;
  count_launch();
  for (size_t i = 0; i < executable->count; i++) enqueue(stream, copied(executable->nodes[i]));
  executable->stream = stream, executable->number = stream->newest;
  return SUCCESS;
}

ENTRY(cuGraphUpload, Executable *executable, void *handle) { IN_STREAM; return SUCCESS; }

ENTRY(cuGraphExecDestroy, Executable *executable) {
  LOCKED;
  for (size_t i = 0; i < executable->count; i++) destroy(executable->nodes[i]);
  free(executable->nodes);
  free(executable->known);
  free(executable);
  return SUCCESS;
}
