/* The shim's runtime library. A stream or an event that is not there is noticed, and so are
 * allocations beyond the GPU's memory. ZERO3D_SHIM_GPU in the environment: "none", "old" and
 * "small" make GPUs that training cannot use, "huge" one that its host is too small for. */
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cuda_runtime_api.h"

enum { ALIVE = 0x5a33d };

struct cuda_shim_stream {
    int alive;
};
struct cuda_shim_event {
    int alive;
    double recorded; /* seconds; 0: never */
};

static _Thread_local size_t used; /* of the GPU's memory */

static int is(const char *kind) {
    const char *given = getenv("ZERO3D_SHIM_GPU");
    return given && strcmp(given, kind) == 0;
}

/* Small: enough for the library's workspace, but for no model. Huge: more than any host has. */
static size_t memory(void) {
    if (is("huge")) return (size_t)1 << 50;
    return is("small") ? ((size_t)32 << 20) + ((size_t)64 << 10) : (size_t)1 << 30;
}

static size_t left(void) {
    return used < memory() ? memory() - used : 0;
}

static cudaError_t check_stream(const struct cuda_shim_stream *stream) {
    return stream && stream->alive == ALIVE ? cudaSuccess : cudaErrorInvalidValue;
}

static cudaError_t check_event(const struct cuda_shim_event *event) {
    return event && event->alive == ALIVE ? cudaSuccess : cudaErrorInvalidValue;
}

const char *cudaGetErrorString(cudaError_t error) {
    return error == cudaErrorMemoryAllocation ? "out of memory" : "invalid argument";
}

const char *cudaGetErrorName(cudaError_t error) {
    return error == cudaErrorMemoryAllocation ? "cudaErrorMemoryAllocation"
                                              : "cudaErrorInvalidValue";
}

cudaError_t cudaGetLastError(void) {
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *count) {
    if (is("none")) return cudaErrorNoDevice;
    if (is("no driver")) return cudaErrorInsufficientDriver; /* leaves the count alone, as there */
    *count = 1;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device) {
    if (device != 0) return cudaErrorInvalidValue;
    memset(properties, 0, sizeof *properties);
    strcpy(properties->name, "shim");
    memset(properties->uuid.bytes, 7, sizeof properties->uuid.bytes);
    properties->totalGlobalMem = memory();
    properties->major = is("old") ? 6 : 9;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
    return device == 0 ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t cudaDeviceSynchronize(void) {
    return cudaSuccess;
}

/* ---- memory ---- */

cudaError_t cudaMemGetInfo(size_t *available, size_t *total) {
    *total = memory();
    *available = left();
    return cudaSuccess;
}

/* Exactly the bytes asked for, so that AddressSanitizer sees their end; new memory is no zeros. */
cudaError_t cudaMalloc(void **out, size_t bytes) {
    if (bytes > left()) return cudaErrorMemoryAllocation;
    *out = NULL;
    if (posix_memalign(out, 256, bytes ? bytes : 1) != 0) return cudaErrorMemoryAllocation;
    memset(*out, 0xff, bytes);
    used += malloc_usable_size(*out);
    return cudaSuccess;
}

cudaError_t cudaFree(void *block) {
    if (block) used -= malloc_usable_size(block);
    free(block);
    return cudaSuccess;
}

cudaError_t cudaHostAlloc(void **out, size_t bytes, unsigned flags) {
    if (flags != cudaHostAllocDefault) return cudaErrorInvalidValue;
    *out = malloc(bytes ? bytes : 1);
    return *out ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaFreeHost(void *block) {
    free(block);
    return cudaSuccess;
}

cudaError_t cudaMemset(void *to, int value, size_t bytes) {
    memset(to, value, bytes);
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream) {
    memset(to, value, bytes);
    return check_stream(stream);
}

cudaError_t cudaMemset2DAsync(void *to, size_t pitch, int value, size_t width, size_t height,
                              cudaStream_t stream) {
    if (pitch < width) return cudaErrorInvalidValue;
    for (size_t row = 0; row < height; row++) memset((char *)to + row * pitch, value, width);
    return check_stream(stream);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
    if (kind != cudaMemcpyDefault) return cudaErrorInvalidValue;
    if (bytes > 0) memmove(to, from, bytes);
    return check_stream(stream);
}

/* ---- order ---- */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags) {
    *out = calloc(1, sizeof **out);
    if (!*out || flags != cudaStreamNonBlocking) return cudaErrorInvalidValue;
    (*out)->alive = ALIVE;
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    cudaError_t error = check_stream(stream);
    free(stream);
    return error;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    return check_stream(stream);
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
    return check_stream(stream);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
    if (flags != 0 || check_event(event) != cudaSuccess) return cudaErrorInvalidValue;
    return check_stream(stream);
}

cudaError_t cudaEventCreate(cudaEvent_t *out) {
    *out = calloc(1, sizeof **out);
    if (!*out) return cudaErrorMemoryAllocation;
    (*out)->alive = ALIVE;
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags) {
    return flags == cudaEventDisableTiming ? cudaEventCreate(out) : cudaErrorInvalidValue;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    cudaError_t error = check_event(event);
    free(event);
    return error;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    struct timespec now;
    if (check_event(event) != cudaSuccess) return cudaErrorInvalidValue;
    clock_gettime(CLOCK_MONOTONIC, &now);
    event->recorded = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
    return check_stream(stream);
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
    return check_event(event);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    return check_event(event);
}

cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t begin, cudaEvent_t end) {
    if (check_event(begin) != cudaSuccess || check_event(end) != cudaSuccess ||
        begin->recorded == 0 || end->recorded == 0)
        return cudaErrorInvalidValue;
    *milliseconds = (float)((end->recorded - begin->recorded) * 1e3);
    return cudaSuccess;
}
