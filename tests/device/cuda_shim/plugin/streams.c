/* The stand-in's streams and events. What is enqueued is done as late as it may be: when the host
 * waits, or something that has to be done waits for it. So whoever looks at a result, or reuses a
 * buffer, without having waited sees what was there before. ZERO3D_SHIM_ORDER=early in the
 * environment is the other end: every stream but the first does at once what it may do, so that
 * one that should have waited for the first is too early. Streams and events are never freed: a use
 * after their end is noticed. */
#include <stdlib.h>
#include <string.h>

#include "shim.h"

enum { ALIVE = 0x5a33d };

/* Work, an event's record, or a wait for what `other` had enqueued at `position`. */
typedef struct entry {
    struct entry *next;
    cuda_shim_work work;
    cudaEvent_t record;
    cudaStream_t other;
    long position;
} entry;

struct cuda_shim_stream {
    int alive, first, legacy;
    long enqueued, done;
    entry *head, **tail;
    cuda_shim_reach reach;
    struct cuda_shim_stream *next;
};

struct cuda_shim_event {
    int alive, timed;
    cudaStream_t stream; /* NULL: never recorded */
    long position;       /* on the stream, of the last record */
    double recorded;     /* seconds */
    cuda_shim_reach reach;
};

static _Thread_local cudaStream_t streams; /* those alive */
_Thread_local double cuda_shim_now;

cudaError_t cuda_shim_check_stream(cudaStream_t stream) {
    return stream && stream->alive == ALIVE ? cudaSuccess : cudaErrorInvalidValue;
}

static cudaError_t check_event(cudaEvent_t event) {
    return event && event->alive == ALIVE ? cudaSuccess : cudaErrorInvalidValue;
}

/* ---- doing ---- */

static void run_until(cudaStream_t stream, long position);

static void record(cudaEvent_t event, long position) {
    if (event->position == position) event->recorded = cuda_shim_now; /* else again since */
}

static void run_one(cudaStream_t stream) {
    entry *e = stream->head;
    cuda_shim_now += 1e-6;
    stream->head = e->next;
    if (!stream->head) stream->tail = &stream->head;
    if (e->other) run_until(e->other, e->position);
    if (e->record) record(e->record, stream->done + 1);
    if (e->work.run) e->work.run(e->work.argument);
    if (e->work.drop) e->work.drop(e->work.argument);
    stream->done++;
    free(e);
}

static void run_until(cudaStream_t stream, long position) {
    while (stream->done < position) run_one(stream);
}

static cudaError_t push(cudaStream_t stream, entry what) {
    const char *order = getenv("ZERO3D_SHIM_ORDER");
    entry *made = malloc(sizeof *made);
    if (!made) return cudaErrorMemoryAllocation;
    *made = what;
    made->next = NULL;
    *stream->tail = made;
    stream->tail = &made->next;
    stream->enqueued++;
    if (order && strcmp(order, "early") == 0 && !stream->first) run_until(stream, stream->enqueued);
    return cudaSuccess;
}

cuda_shim_reach *cuda_shim_reach_of(cudaStream_t stream) {
    return &stream->reach;
}

cudaError_t cuda_shim_enqueue(cudaStream_t stream, cuda_shim_work work) {
    cudaError_t error = cuda_shim_check_stream(stream);
    if (error == cudaSuccess && stream->reach.capture)
        return cuda_shim_capture_work(&stream->reach, work);
    if (error == cudaSuccess) error = push(stream, (entry){.work = work});
    if (error != cudaSuccess && work.drop) work.drop(work.argument);
    return cuda_shim_answer(error);
}

cudaError_t cuda_shim_finish(cudaStream_t stream) {
    if (cuda_shim_check_stream(stream) != cudaSuccess)
        return cuda_shim_answer(cudaErrorInvalidValue);
    run_until(stream, stream->enqueued);
    return cudaSuccess;
}

void cuda_shim_finish_all(void) {
    for (cudaStream_t s = streams; s; s = s->next) run_until(s, s->enqueued);
}

int cuda_shim_is_busy(void) {
    for (cudaStream_t s = streams; s; s = s->next)
        if (s->done < s->enqueued) return 1;
    return 0;
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
    *out = calloc(1, sizeof **out);
    if (!*out || flags != cudaStreamNonBlocking) return cuda_shim_answer(cudaErrorInvalidValue);
    int first = 1;
    for (cudaStream_t s = streams; s; s = s->next) first &= s->legacy;
    **out = (struct cuda_shim_stream){.alive = ALIVE, .first = first, .next = streams};
    (*out)->tail = &(*out)->head;
    streams = *out;
    return cudaSuccess;
}

cudaStream_t cuda_shim_legacy_stream(void) {
    static _Thread_local cudaStream_t legacy;
    if (!legacy && cudaStreamCreateWithFlags(&legacy, cudaStreamNonBlocking) == cudaSuccess)
        legacy->legacy = 1;
    return legacy;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    cudaError_t error = cuda_shim_waits();
    if (error == cudaSuccess) error = cuda_shim_finish(stream);
    if (error != cudaSuccess) return error;
    cudaStream_t *link = &streams;
    while (*link != stream) link = &(*link)->next;
    *link = stream->next;
    stream->alive = 0;
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    cudaError_t error = cuda_shim_waits();
    return error == cudaSuccess ? cuda_shim_finish(stream) : error;
}

/* Whoever asks often enough gets to the end. */
cudaError_t cudaStreamQuery(cudaStream_t stream) {
    if (cuda_shim_waits() != cudaSuccess) return cudaErrorStreamCaptureUnsupported;
    if (cuda_shim_check_stream(stream) != cudaSuccess)
        return cuda_shim_answer(cudaErrorInvalidValue);
    if (stream->done == stream->enqueued) return cudaSuccess;
    run_one(stream);
    return cuda_shim_answer(cudaErrorNotReady);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
    if (flags != 0 || check_event(event) != cudaSuccess ||
        cuda_shim_check_stream(stream) != cudaSuccess)
        return cuda_shim_answer(cudaErrorInvalidValue);
    if (stream->reach.capture || event->reach.capture)
        return cuda_shim_capture_wait(&stream->reach, &event->reach);
    return event->stream
               ? push(stream, (entry){.other = event->stream, .position = event->position})
               : cudaSuccess;
}

/* ---- events ---- */

cudaError_t cudaEventCreate(cudaEvent_t *out) {
    *out = calloc(1, sizeof **out);
    if (!*out) return cuda_shim_answer(cudaErrorMemoryAllocation);
    (*out)->alive = ALIVE;
    (*out)->timed = 1;
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags) {
    if (flags != cudaEventDisableTiming) return cuda_shim_answer(cudaErrorInvalidValue);
    cudaError_t error = cudaEventCreate(out);
    if (error == cudaSuccess) (*out)->timed = 0;
    return error;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    if (check_event(event) != cudaSuccess) return cuda_shim_answer(cudaErrorInvalidValue);
    event->alive = 0;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    if (check_event(event) != cudaSuccess || cuda_shim_check_stream(stream) != cudaSuccess)
        return cuda_shim_answer(cudaErrorInvalidValue);
    cudaError_t error = cuda_shim_capture_record(&event->reach, &stream->reach);
    if (error != cudaSuccess || stream->reach.capture) return error;
    event->stream = stream;
    event->position = stream->enqueued + 1;
    return push(stream, (entry){.record = event});
}

/* What asks about an event: never within a capture, nor of one that was last recorded in one. */
static cudaError_t check_asked(cudaEvent_t event) {
    if (check_event(event) != cudaSuccess) return cuda_shim_answer(cudaErrorInvalidValue);
    cudaError_t error = cuda_shim_waits();
    if (error == cudaSuccess && event->reach.capture)
        error = cuda_shim_answer(cudaErrorCapturedEvent);
    return error;
}

static int is_over(cudaEvent_t event) {
    return !event->stream || event->stream->done >= event->position;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
    cudaError_t error = check_asked(event);
    if (error != cudaSuccess) return error;
    if (is_over(event)) return cudaSuccess;
    run_one(event->stream);
    return cuda_shim_answer(cudaErrorNotReady);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    cudaError_t error = check_asked(event);
    if (error != cudaSuccess) return error;
    if (event->stream) run_until(event->stream, event->position);
    return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t begin, cudaEvent_t end) {
    cudaError_t error = check_asked(begin);
    if (error == cudaSuccess) error = check_asked(end);
    if (error != cudaSuccess) return error;
    if (!begin->stream || !end->stream || !begin->timed || !end->timed)
        return cuda_shim_answer(cudaErrorInvalidValue);
    if (!is_over(begin) || !is_over(end)) return cuda_shim_answer(cudaErrorNotReady);
    *milliseconds = (float)((end->recorded - begin->recorded) * 1e3);
    return cudaSuccess;
}
