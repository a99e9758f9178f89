/* The stand-in's graphs. ZERO3D_SHIM_CAPTURE=refuse in the environment: every capture fails when it
 * ends. What is given to a stream that captures becomes a node, behind the nodes
 * that the stream has come to by itself or by events that it waited for. A launch runs the nodes in
 * an order that their dependencies allow: now the earliest first, the next time the latest, so that
 * what lacks an event gives wrong numbers. What CUDA refuses while a thread captures (its waits,
 * its allocations) is refused here, and ends the capture. */
#include <stdlib.h>
#include <string.h>

#include "shim.h"

typedef struct node {
    cuda_shim_work work;
    cuda_shim_reach behind;
} node;

struct cuda_shim_graph {
    node *nodes;
    int count, capacity;
    int users; /* the graph, what was instantiated of it, its launches under way */
    int launches;
};

enum { MOST_STREAMS = 64 };

/* One at a time. */
typedef struct capture_state {
    long number; /* 0: none is under way */
    cudaStream_t origin;
    cuda_shim_reach *joined[MOST_STREAMS];
    int streams;
    struct cuda_shim_graph *graph;
    cudaError_t broken;
} capture_state;

static _Thread_local capture_state now;
static _Thread_local long captures;

/* ---- what has been come to ---- */

static void *grown(void *list, int count, int *capacity, size_t size) {
    if (count < *capacity) return list;
    *capacity = *capacity ? 2 * *capacity : 8;
    list = realloc(list, (size_t)*capacity * size);
    if (!list) cuda_shim_stop("no memory for a graph");
    return list;
}

static void add(cuda_shim_reach *to, int node) {
    for (int i = 0; i < to->count; i++)
        if (to->node[i] == node) return;
    to->node = grown(to->node, to->count, &to->capacity, sizeof *to->node);
    to->node[to->count++] = node;
}

static void add_all(cuda_shim_reach *to, const cuda_shim_reach *more) {
    for (int i = 0; i < more->count; i++) add(to, more->node[i]);
}

/* ---- capturing ---- */

cudaError_t cuda_shim_refuse(cudaError_t error) {
    if (now.number) now.broken = cudaErrorStreamCaptureInvalidated;
    return cuda_shim_answer(error);
}

cudaError_t cuda_shim_waits(void) {
    return now.number ? cuda_shim_refuse(cudaErrorStreamCaptureUnsupported) : cudaSuccess;
}

cudaError_t cuda_shim_capture_work(cuda_shim_reach *stream, cuda_shim_work work) {
    struct cuda_shim_graph *graph = now.graph;
    if (now.broken) {
        if (work.drop) work.drop(work.argument);
        return cuda_shim_answer(now.broken);
    }
    graph->nodes = grown(graph->nodes, graph->count, &graph->capacity, sizeof *graph->nodes);
    node *made = &graph->nodes[graph->count];
    *made = (node){.work = work};
    add_all(&made->behind, stream);
    stream->count = 0;
    add(stream, graph->count++);
    return cudaSuccess;
}

/* Also of what is no capture: an event is where it was recorded last. */
cudaError_t cuda_shim_capture_record(cuda_shim_reach *event, const cuda_shim_reach *stream) {
    if (stream->capture && now.broken) return cuda_shim_answer(now.broken);
    event->capture = stream->capture;
    event->count = 0;
    add_all(event, stream);
    return cudaSuccess;
}

static cudaError_t join(cuda_shim_reach *stream) {
    if (stream->capture) return cudaSuccess;
    if (now.streams == MOST_STREAMS) cuda_shim_stop("more streams in a capture than are known");
    now.joined[now.streams++] = stream;
    stream->capture = now.number;
    stream->count = 0;
    return cudaSuccess;
}

cudaError_t cuda_shim_capture_wait(cuda_shim_reach *stream, const cuda_shim_reach *event) {
    if (now.broken) return cuda_shim_answer(now.broken);
    if (event->capture && event->capture != now.number)
        return cuda_shim_refuse(cudaErrorCapturedEvent);
    if (!event->capture) return cuda_shim_refuse(cudaErrorStreamCaptureIsolation);
    cudaError_t error = join(stream);
    if (error == cudaSuccess) add_all(stream, event);
    return error;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode) {
    if (cuda_shim_check_stream(stream) != cudaSuccess || mode != cudaStreamCaptureModeThreadLocal)
        return cuda_shim_answer(cudaErrorInvalidValue);
    if (now.number) return cuda_shim_refuse(cudaErrorStreamCaptureUnsupported);
    now = (capture_state){.number = ++captures, .origin = stream};
    now.graph = calloc(1, sizeof *now.graph);
    if (!now.graph) cuda_shim_stop("no memory for a graph");
    now.graph->users = 1;
    return join(cuda_shim_reach_of(stream));
}

/* Whether the origin has come to every node, by itself or by others. Nodes are only behind earlier
 * ones. */
static cudaError_t check_joined(void) {
    const struct cuda_shim_graph *graph = now.graph;
    const cuda_shim_reach *end = cuda_shim_reach_of(now.origin);
    cudaError_t error = cudaSuccess;
    char *met = calloc((size_t)graph->count + 1, 1);
    if (!met) cuda_shim_stop("no memory for a graph");
    for (int i = 0; i < end->count; i++) met[end->node[i]] = 1;
    for (int i = graph->count - 1; i >= 0; i--) {
        if (!met[i]) error = cudaErrorStreamCaptureUnjoined;
        for (int k = 0; met[i] && k < graph->nodes[i].behind.count; k++)
            met[graph->nodes[i].behind.node[k]] = 1;
    }
    free(met);
    return error;
}

/* ---- graphs ---- */

static void let_go(void *argument) {
    struct cuda_shim_graph *graph = argument;
    if (--graph->users > 0) return;
    for (int i = 0; i < graph->count; i++) {
        if (graph->nodes[i].work.drop) graph->nodes[i].work.drop(graph->nodes[i].work.argument);
        free(graph->nodes[i].behind.node);
    }
    free(graph->nodes);
    free(graph);
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *out) {
    *out = NULL;
    if (cuda_shim_check_stream(stream) != cudaSuccess || !now.number)
        return cuda_shim_answer(cudaErrorInvalidValue);
    if (stream != now.origin) return cuda_shim_refuse(cudaErrorStreamCaptureUnmatched);
    const char *capture = getenv("ZERO3D_SHIM_CAPTURE");
    if (capture && strcmp(capture, "refuse") == 0) now.broken = cudaErrorStreamCaptureInvalidated;
    cudaError_t error = now.broken ? now.broken : check_joined();
    for (int i = 0; i < now.streams; i++) now.joined[i]->capture = now.joined[i]->count = 0;
    if (error == cudaSuccess)
        *out = now.graph;
    else
        let_go(now.graph);
    now = (capture_state){0};
    return cuda_shim_answer(error);
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count) {
    if (nodes) return cuda_shim_answer(cudaErrorInvalidValue); /* their number is all there is */
    *count = (size_t)graph->count;
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    let_go(graph);
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

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
    let_go(graph);
    return cudaSuccess;
}

/* ---- launching ---- */

/* The earliest or the latest of those that may run. */
static int next_node(const struct cuda_shim_graph *graph, const char *done, int latest) {
    for (int n = 0; n < graph->count; n++) {
        int i = latest ? graph->count - 1 - n : n, may = !done[i];
        for (int k = 0; may && k < graph->nodes[i].behind.count; k++)
            may = done[graph->nodes[i].behind.node[k]];
        if (may) return i;
    }
    cuda_shim_stop("a graph that cannot go on");
    return -1;
}

static void run_graph(void *argument) {
    struct cuda_shim_graph *graph = argument;
    char *done = calloc((size_t)graph->count + 1, 1);
    if (!done) cuda_shim_stop("no memory for a graph");
    for (int n = 0; n < graph->count; n++) {
        int i = next_node(graph, done, graph->launches % 2 == 0);
        graph->nodes[i].work.run(graph->nodes[i].work.argument);
        done[i] = 1;
    }
    graph->launches++;
    free(done);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
    cudaError_t error = cuda_shim_waits();
    if (error != cudaSuccess) return error;
    graph->users++;
    return cuda_shim_enqueue(stream, (cuda_shim_work){run_graph, let_go, graph});
}
