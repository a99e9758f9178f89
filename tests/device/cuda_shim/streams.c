/* The stand-in's streams, events and graphs. What is enqueued is done as late as it may be: when
 * the host waits, or something that has to be done waits for it. So whoever looks at a result, or
 * reuses a buffer, without having waited sees what was there before. ZERO3D_SHIM_ORDER=early in the
 * environment is the other end: every stream but the first does at once what it may do, so that
 * one that should have waited for the first is too early. A graph does it as late in one launch
 * and as early in the next. ZERO3D_SHIM_CAPTURE=refuse: every capture fails when it ends.
 *
 * Streams, events and entries are never freed: those that are done or gone may still be named. */
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <time.h>

#include "shim.h"

/* Behind the one before it on its stream, and behind one that the stream waited for. */
typedef struct entry {
    struct entry *after[2]; /* NULL: nothing */
    cuda_shim_work work;    /* run NULL: only a wait */
    bool done, captured;
    STAILQ_ENTRY(entry) next;
} entry;

/* In the order of their coming. */
typedef STAILQ_HEAD(list, entry) list;

/* Where a stream or an event is: behind an entry of a capture or (0) of none. */
typedef struct position {
    long capture;
    entry *entry; /* NULL: at the beginning */
} position;

struct cuda_shim_stream {
    bool gone, first;
    position live, captured; /* the latter counts as long as its capture is under way */
};

struct cuda_shim_event {
    bool timed;
    position at;
    double recorded; /* seconds */
};

struct cuda_shim_graph {
    list entries;
    entry *end;
    int users; /* the graph, what was instantiated of it, its launches under way */
    int launches;
};

static list live = STAILQ_HEAD_INITIALIZER(live); /* also what is done, until all is waited for */
static int streams;                               /* that are not gone */

static struct {
    long number; /* 0: none is under way */
    cudaStream_t origin;
    cudaGraph_t graph;
    bool broken;
} capture;

static bool is_set(const char *variable, const char *value) {
    const char *given = getenv(variable);
    return given && strcmp(given, value) == 0;
}

/* ---- doing ---- */

/* Passes everything that an entry is behind, then it; `run`: and does it. */
static void pass(entry *e, bool run) {
    if (!e || e->done) return;
    pass(e->after[0], run);
    pass(e->after[1], run);
    e->done = true;
    if (run && e->work.run) e->work.run(e->work.argument);
    if (!e->captured && e->work.drop) e->work.drop(e->work.argument);
}

bool cuda_shim_captures(cudaStream_t stream) {
    return stream && capture.number && stream->captured.capture == capture.number;
}

static position *position_of(cudaStream_t stream) {
    if (!stream || stream->gone) cuda_shim_stop("no stream, or one that is gone");
    return cuda_shim_captures(stream) ? &stream->captured : &stream->live;
}

/* Behind what is on the stream, and behind `other`. */
static void push(cudaStream_t stream, entry *other, cuda_shim_work work) {
    position *at = position_of(stream);
    entry *made = cuda_shim_new(sizeof *made);
    *made = (entry){{at->entry, other}, work, .captured = at->capture};
    STAILQ_INSERT_TAIL(made->captured ? &capture.graph->entries : &live, made, next);
    at->entry = made;
    if (!made->captured && !stream->first && is_set("ZERO3D_SHIM_ORDER", "early")) pass(made, true);
}

cudaError_t cuda_shim_enqueue(cudaStream_t stream, cuda_shim_work work) {
    if (stream) {
        push(stream, NULL, work);
    } else {
        work.run(work.argument);
        work.drop(work.argument);
    }
    return cudaSuccess;
}

/* Is over by the next question. Never within a capture, nor of an event that was recorded in one.
 */
static cudaError_t query(const position *at) {
    CUDA_SHIM_TRY(cuda_shim_waits());
    if (at->capture) return cuda_shim_answer(cudaErrorCapturedEvent);
    if (!at->entry || at->entry->done) return cudaSuccess;
    pass(at->entry, true);
    return cuda_shim_answer(cudaErrorNotReady);
}

/* ---- streams ---- */

cudaError_t cudaDeviceGetStreamPriorityRange(int *lowest, int *highest) {
    *lowest = 0;
    *highest = -5;
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *out, unsigned flags, int priority) {
    (void)priority;
    return cudaStreamCreateWithFlags(out, flags);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags) {
    if (flags != cudaStreamNonBlocking) return cuda_shim_answer(cudaErrorInvalidValue);
    *out = cuda_shim_new(sizeof **out);
    (*out)->first = streams++ == 0;
    return cudaSuccess;
}

cudaStream_t cuda_shim_legacy_stream(void) {
    static struct cuda_shim_stream legacy;
    return &legacy;
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
    return query(position_of(stream));
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    CUDA_SHIM_TRY(cuda_shim_waits());
    pass(position_of(stream)->entry, true);
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    CUDA_SHIM_TRY(cudaStreamSynchronize(stream));
    stream->gone = true;
    streams--;
    return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void) {
    entry *e;
    CUDA_SHIM_TRY(cuda_shim_waits());
    STAILQ_FOREACH(e, &live, next) pass(e, true);
    STAILQ_INIT(&live);
    return cudaSuccess;
}

/* ---- events ---- */

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags) {
    *out = cuda_shim_new(sizeof **out);
    (*out)->timed = flags != cudaEventDisableTiming;
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *out) {
    return cudaEventCreateWithFlags(out, 0);
}

/* It is in no capture any more, and not out of one. */
cudaError_t cudaEventDestroy(cudaEvent_t event) {
    event->at.capture = -1;
    return cudaSuccess;
}

static void take_time(void *argument) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    ((cudaEvent_t)argument)->recorded = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    if (event->timed) push(stream, NULL, (cuda_shim_work){take_time, NULL, event});
    event->at = *position_of(stream);
    return cudaSuccess;
}

/* A stream joins a capture when it waits for an event of it. Otherwise what is captured and what is
 * not cannot wait for each other. */
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
    (void)flags;
    if (capture.number && event->at.capture == capture.number && !cuda_shim_captures(stream))
        stream->captured = (position){.capture = capture.number};
    if (event->at.capture != position_of(stream)->capture)
        return cuda_shim_refuse(cudaErrorStreamCaptureIsolation);
    push(stream, event->at.entry, (cuda_shim_work){0});
    return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
    return query(&event->at);
}

cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t begin, cudaEvent_t end) {
    CUDA_SHIM_TRY(query(&begin->at));
    CUDA_SHIM_TRY(query(&end->at));
    if (!begin->timed || !end->timed) return cuda_shim_answer(cudaErrorInvalidValue);
    *milliseconds = (float)((end->recorded - begin->recorded) * 1e3);
    return cudaSuccess;
}

/* ---- captures ---- */

cudaError_t cuda_shim_refuse(cudaError_t error) {
    capture.broken = true;
    return cuda_shim_answer(error);
}

cudaError_t cuda_shim_waits(void) {
    return capture.number ? cuda_shim_refuse(cudaErrorStreamCaptureUnsupported) : cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode) {
    static long captures;
    (void)mode;
    CUDA_SHIM_TRY(cuda_shim_waits());
    capture.number = ++captures;
    capture.origin = stream;
    capture.broken = is_set("ZERO3D_SHIM_CAPTURE", "refuse");
    capture.graph = cuda_shim_new(sizeof *capture.graph);
    capture.graph->users = 1;
    STAILQ_INIT(&capture.graph->entries);
    stream->captured = (position){.capture = capture.number};
    return cudaSuccess;
}

static void let_go(void *argument) {
    cudaGraph_t graph = argument;
    entry *e;
    if (--graph->users > 0) return;
    STAILQ_FOREACH(e, &graph->entries, next)
    if (e->work.drop) e->work.drop(e->work.argument);
    free(graph);
}

/* Whether every stream has come back to the origin: nothing is left that its end is not behind. */
static bool is_joined(cudaGraph_t graph) {
    bool joined = true;
    entry *e;
    pass(graph->end, false);
    STAILQ_FOREACH(e, &graph->entries, next) {
        joined &= e->done || !e->work.run;
        e->done = false;
    }
    return joined;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *out) {
    cudaGraph_t graph = capture.graph;
    cudaError_t error = capture.broken ? cudaErrorStreamCaptureInvalidated : cudaSuccess;
    *out = NULL;
    if (stream != capture.origin) return cuda_shim_answer(cudaErrorInvalidValue);
    memset(&capture, 0, sizeof capture);
    graph->end = stream->captured.entry;
    if (!is_joined(graph) && error == cudaSuccess) error = cudaErrorStreamCaptureUnjoined;
    if (error == cudaSuccess)
        *out = graph;
    else
        let_go(graph);
    return cuda_shim_answer(error);
}

/* ---- graphs ---- */

/* Their number is all there is. */
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count) {
    const entry *e;
    (void)nodes;
    *count = 0;
    STAILQ_FOREACH(e, &graph->entries, next) *count += e->work.run != NULL;
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *out, cudaGraph_t graph,
                                          unsigned long long flags) {
    if (flags != cudaGraphInstantiateFlagUseNodePriority)
        return cuda_shim_answer(cudaErrorInvalidValue);
    graph->users++;
    *out = graph;
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    let_go(graph);
    return cudaSuccess;
}

static void run_graph(void *argument) {
    cudaGraph_t graph = argument;
    entry *e;
    if (graph->launches++ % 2 == 0) pass(graph->end, true);
    STAILQ_FOREACH(e, &graph->entries, next) pass(e, true);
    STAILQ_FOREACH(e, &graph->entries, next) e->done = false;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
    CUDA_SHIM_TRY(cuda_shim_waits());
    graph->users++;
    return cuda_shim_enqueue(stream, (cuda_shim_work){run_graph, let_go, graph});
}
