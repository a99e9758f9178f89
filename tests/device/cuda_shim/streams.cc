// The stand-in's streams, events and graphs. What is enqueued is done as late as it may be: when
// the host waits, or something that has to be done waits for it. So whoever looks at a result, or
// reuses a buffer, without having waited sees what was there before. ZERO3D_SHIM_ORDER=early in the
// environment is the other end: every stream but the first does at once what it may do, so that
// one that should have waited for the first is too early. A graph does it as late in one launch
// and as early in the next. ZERO3D_SHIM_CAPTURE=refuse: every capture fails when it ends. Streams
// and events are never freed: a use after their end is noticed.
#include <memory>
#include <vector>

#include "cuda_runtime.h"
extern "C" {
#include "shim.h"
}

namespace {

struct entry;
using Entry = std::shared_ptr<entry>; // none: nothing to wait for

// Behind the one before it on its stream, and behind one that the stream waited for.
struct entry {
    Entry after[2];
    std::function<void()> work; // none: only a wait
    bool captured, done;
};

// Where a stream or an event is: behind an entry of a capture or (0) of none.
struct position {
    long capture;
    Entry entry;
};

// What was captured, in the order of its coming.
struct recording {
    std::vector<Entry> entries;
    Entry end;
    int launches = 0;
    ~recording() {
        for (const Entry &e : entries) *e = {}; // streams and events may still name it
    }
};

std::vector<Entry> live; // also what is done, until all is waited for
int streams;             // that are not gone

struct capture {
    long number; // 0: none is under way
    std::shared_ptr<recording> made;
    bool broken; // what was not allowed was tried; means nothing where none is under way
} now;

} // namespace

struct cuda_shim_stream {
    bool first, gone;
    position live, captured; // the latter counts as long as its capture is under way
};

struct cuda_shim_event {
    bool timed;
    position at;
    double recorded; // seconds
};

struct cuda_shim_graph {
    std::shared_ptr<recording> made;
};

// ---- doing ----

double cuda_shim_now;

namespace {

cuda_shim_stream legacy; // what calls without a stream use

bool is_done(const Entry &e) {
    return !e || e->done;
}

// Passes everything that an entry is behind, then it; `run`: and does it.
void pass(const Entry &e, bool run) {
    if (is_done(e)) return;
    for (const Entry &other : e->after) pass(other, run);
    e->done = true;
    if (run && e->work) {
        cuda_shim_now += 1e-6;
        e->work();
    }
    if (!e->captured) *e = {{}, nullptr, false, true};
}

position *position_of(cudaStream_t stream) {
    if (stream->gone) cuda_shim_stop("a stream that is gone");
    return cuda_shim_captures(stream) ? &stream->captured : &stream->live;
}

// Behind what is on the stream, and behind `other`.
void push(cudaStream_t stream, const Entry &other, std::function<void()> work) {
    position *at = position_of(stream);
    at->entry.reset(new entry{{at->entry, other}, std::move(work), at->capture != 0, false});
    (at->capture ? now.made->entries : live).push_back(at->entry);
    if (!at->capture && !stream->first && cuda_shim_is_set("ZERO3D_SHIM_ORDER", "early"))
        pass(at->entry, true);
}

// Whoever asks often enough gets to the end. Never within a capture, nor about an event that was
// recorded in one.
cudaError_t query(const position &at) {
    CUDA_SHIM_TRY(cuda_shim_waits());
    if (at.capture) return cuda_shim_answer(cudaErrorCapturedEvent);
    if (is_done(at.entry)) return cudaSuccess;
    Entry next = at.entry;
    while (!is_done(next->after[0]) || !is_done(next->after[1]))
        next = next->after[is_done(next->after[0])];
    pass(next, true);
    return cuda_shim_answer(cudaErrorNotReady);
}

} // namespace

cudaError_t cuda_shim_waits(void) {
    now.broken = true;
    return cuda_shim_answer(now.number ? cudaErrorStreamCaptureUnsupported : cudaSuccess);
}

long cuda_shim_captures(cudaStream_t stream) {
    return stream->captured.capture == now.number ? now.number : 0;
}

cudaError_t cuda_shim_do(cudaStream_t stream, std::function<void()> what) {
    if (stream || streams > 0)
        push(stream ? stream : &legacy, nullptr, std::move(what));
    else
        what();
    return cudaSuccess;
}

cudaError_t cuda_shim_enqueue(cudaStream_t stream, cuda_shim_work work) {
    const std::shared_ptr<void> argument(work.argument, work.drop);
    return cuda_shim_do(stream, [=] { work.run(argument.get()); });
}

// ---- streams ----

cudaError_t cudaDeviceGetStreamPriorityRange(int *lowest, int *highest) {
    *lowest = 0;
    *highest = -5;
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *out, unsigned flags, int) {
    if (flags != cudaStreamNonBlocking) return cuda_shim_answer(cudaErrorInvalidValue);
    *out = new cuda_shim_stream{streams++ == 0, false, {}, {}};
    return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
    return query(*position_of(stream));
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    CUDA_SHIM_TRY(cuda_shim_waits());
    pass(position_of(stream)->entry, true);
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    stream->gone = true;
    streams--;
    return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void) {
    CUDA_SHIM_TRY(cuda_shim_waits());
    for (const Entry &e : live) pass(e, true);
    live.clear();
    return cudaSuccess;
}

// ---- events ----

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags) {
    *out = new cuda_shim_event{flags != cudaEventDisableTiming, {}, 0};
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    event->at.capture = -1; // in none, and not outside: nobody can wait for it
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    if (event->timed) push(stream, nullptr, [event] { event->recorded = cuda_shim_now; });
    event->at = *position_of(stream);
    return cudaSuccess;
}

// A stream joins a capture when it waits for an event of it. Otherwise what is captured and what is
// not cannot wait for each other.
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
    if (now.number && event->at.capture == now.number && !cuda_shim_captures(stream))
        stream->captured = {now.number, nullptr};
    if (event->at.capture == position_of(stream)->capture) {
        push(stream, event->at.entry, nullptr);
        return cudaSuccess;
    }
    now.broken = true;
    return cuda_shim_answer(cudaErrorStreamCaptureIsolation);
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
    return query(event->at);
}

cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t begin, cudaEvent_t end) {
    CUDA_SHIM_TRY(query(begin->at));
    CUDA_SHIM_TRY(query(end->at));
    if (!begin->timed || !end->timed) return cuda_shim_answer(cudaErrorInvalidValue);
    *milliseconds = (float)((end->recorded - begin->recorded) * 1e3);
    return cudaSuccess;
}

// ---- captures ----

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
    static long captures;
    CUDA_SHIM_TRY(cuda_shim_waits());
    now = {++captures, std::make_shared<recording>(),
           cuda_shim_is_set("ZERO3D_SHIM_CAPTURE", "refuse")};
    stream->captured = {now.number, nullptr};
    return cudaSuccess;
}

// Every stream must have come back to the origin: nothing is left that its end is not behind.
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *out) {
    const capture ended = now;
    bool joined = true;
    now = {};
    *out = nullptr;
    if (ended.broken) return cuda_shim_answer(cudaErrorStreamCaptureInvalidated);
    ended.made->end = stream->captured.entry;
    pass(ended.made->end, false);
    for (const Entry &e : ended.made->entries) {
        joined &= e->done || !e->work;
        e->done = false;
    }
    if (!joined) return cuda_shim_answer(cudaErrorStreamCaptureUnjoined);
    *out = new cuda_shim_graph{ended.made};
    return cudaSuccess;
}

// ---- graphs ----

// Their number is all there is.
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *, size_t *count) {
    *count = 0;
    for (const Entry &e : graph->made->entries) *count += e->work != nullptr;
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *out, cudaGraph_t graph,
                                          unsigned long long flags) {
    if (flags != cudaGraphInstantiateFlagUseNodePriority)
        return cuda_shim_answer(cudaErrorInvalidValue);
    *out = new cuda_shim_graph(*graph);
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    delete graph;
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
    CUDA_SHIM_TRY(cuda_shim_waits());
    return cuda_shim_do(stream, [made = graph->made] {
        if (made->launches++ % 2 == 0) pass(made->end, true);
        for (const Entry &e : made->entries) pass(e, true);
        for (const Entry &e : made->entries) e->done = false;
    });
}
