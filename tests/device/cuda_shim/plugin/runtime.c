/* The stand-in's runtime library but for streams: the GPU, its memory, copies. Blocks are known, so
 * a copy beyond one, or one freed twice or as what it is not, is noticed, and so are allocations
 * beyond the GPU's memory. ZERO3D_SHIM_GPU in the environment: "none", "old", "new" and
 * "small" make GPUs that training cannot use, "huge" one that its host is too small for. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shim.h"

typedef enum place { PAGEABLE, PINNED, DEVICE } place;

typedef struct block {
    char *memory;
    size_t bytes;
    place place;
    struct block *next;
} block;

static _Thread_local block *blocks;
static _Thread_local size_t used; /* of the GPU's memory */
static _Thread_local cudaError_t last;

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

/* ---- errors ---- */

cudaError_t cuda_shim_answer(cudaError_t error) {
    if (error != cudaSuccess) last = error;
    return error;
}

int cuda_shim_has_failed(void) {
    return last != cudaSuccess;
}

void cuda_shim_stop(const char *what) {
    fprintf(stderr, "cuda shim: %s\n", what);
    abort();
}

static const struct {
    cudaError_t error;
    const char *name, *text;
} errors[] = {
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
    {cudaErrorStreamCaptureUnmatched, "cudaErrorStreamCaptureUnmatched",
     "capture was not ended in the same stream as it began"},
    {cudaErrorStreamCaptureUnjoined, "cudaErrorStreamCaptureUnjoined",
     "capturing stream has unjoined work"},
    {cudaErrorStreamCaptureIsolation, "cudaErrorStreamCaptureIsolation",
     "dependency created on uncaptured work in another stream"},
    {cudaErrorCapturedEvent, "cudaErrorCapturedEvent",
     "operation not permitted on an event last recorded in a capturing stream"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
};

static int find_error(cudaError_t error) {
    int i = 0;
    while (errors[i].error != error && errors[i].error != cudaErrorInvalidValue) i++;
    return i;
}

const char *cudaGetErrorString(cudaError_t error) {
    return errors[find_error(error)].text;
}

const char *cudaGetErrorName(cudaError_t error) {
    return errors[find_error(error)].name;
}

cudaError_t cudaGetLastError(void) {
    cudaError_t error = last;
    last = cudaSuccess;
    return error;
}

/* ---- the GPU ---- */

cudaError_t cudaGetDeviceCount(int *count) {
    if (is("none")) return cudaErrorNoDevice;
    if (is("no driver")) return cudaErrorInsufficientDriver; /* leaves the count alone, as there */
    *count = 1;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device) {
    if (device != 0) return cuda_shim_answer(cudaErrorInvalidValue);
    memset(properties, 0, sizeof *properties);
    strcpy(properties->name, "shim");
    memset(properties->uuid.bytes, 7, sizeof properties->uuid.bytes);
    properties->totalGlobalMem = memory();
    properties->major = is("old") ? 6 : is("new") ? 13 : 9;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device) {
    if (device != 0 || attribute != cudaDevAttrHostNumaId)
        return cuda_shim_answer(cudaErrorInvalidValue);
    *value = 0;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
    return cuda_shim_answer(device == 0 ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t cudaDeviceSynchronize(void) {
    cudaError_t error = cuda_shim_waits();
    if (error != cudaSuccess) return error;
    cuda_shim_finish_all();
    return cudaSuccess;
}

/* ---- memory ---- */

cudaError_t cudaMemGetInfo(size_t *available, size_t *total) {
    *total = memory();
    *available = left();
    return cudaSuccess;
}

static cudaError_t add_block(void *memory, size_t bytes, place where) {
    block *made = malloc(sizeof *made);
    if (!made) return cuda_shim_answer(cudaErrorMemoryAllocation);
    *made = (block){.memory = memory, .bytes = bytes, .place = where, .next = blocks};
    blocks = made;
    return cudaSuccess;
}

static cudaError_t drop_block(void *memory, place where) {
    block **link = &blocks;
    while (*link && (*link)->memory != (char *)memory) link = &(*link)->next;
    block *found = *link;
    if (!found || found->place != where) return cuda_shim_answer(cudaErrorInvalidValue);
    *link = found->next;
    if (where == DEVICE) {
        used -= found->bytes;
        free(found->memory);
    }
    free(found);
    return cudaSuccess;
}

cudaError_t cudaMalloc(void **out, size_t bytes) {
    cudaError_t error = cuda_shim_waits();
    if (error != cudaSuccess) return error;
    *out = NULL;
    /* Exactly the bytes asked for, so that AddressSanitizer sees their end; new memory is no zeros.
     */
    if (bytes > left() || posix_memalign(out, 256, bytes ? bytes : 1) != 0)
        return cuda_shim_answer(cudaErrorMemoryAllocation);
    memset(*out, 0xff, bytes);
    used += bytes;
    return add_block(*out, bytes, DEVICE);
}

cudaError_t cudaFree(void *memory) {
    cudaError_t error = cuda_shim_waits();
    if (error != cudaSuccess) return error;
    if (!memory) return cudaSuccess;
    cuda_shim_finish_all(); /* as the library does */
    return drop_block(memory, DEVICE);
}

cudaError_t cudaHostRegister(void *memory, size_t bytes, unsigned flags) {
    cudaError_t error = cuda_shim_waits();
    if (error != cudaSuccess) return error;
    if (flags != cudaHostRegisterDefault) return cuda_shim_answer(cudaErrorInvalidValue);
    return add_block(memory, bytes, PINNED);
}

cudaError_t cudaHostUnregister(void *memory) {
    cudaError_t error = cuda_shim_waits();
    if (error != cudaSuccess) return error;
    if (cuda_shim_is_busy()) cuda_shim_stop("host memory freed beside copies that may be its own");
    return drop_block(memory, PINNED);
}

/* ---- filling and copying ---- */

/* Where bytes lie; cudaErrorInvalidValue where only some of them lie in a block. */
static cudaError_t find(const void *memory, size_t bytes, place *out) {
    const char *at = memory;
    *out = PAGEABLE;
    for (const block *b = blocks; b; b = b->next) {
        if (at + bytes <= b->memory || at >= b->memory + b->bytes) continue;
        *out = b->place;
        return at >= b->memory && at + bytes <= b->memory + b->bytes ? cudaSuccess
                                                                     : cudaErrorInvalidValue;
    }
    return cudaSuccess;
}

int cuda_shim_is_device(const void *memory, size_t bytes) {
    place where;
    return find(memory, bytes, &where) == cudaSuccess && where == DEVICE;
}

typedef struct transfer {
    char *to;
    const char *from; /* NULL: filled */
    void *staged;     /* what was behind a pageable `from` when it was enqueued, or NULL */
    size_t bytes, rows, pitch;
    int value;
    int fixed; /* a copy between blocks: in a graph they must still be there */
} transfer;

static void run_transfer(void *argument) {
    const transfer *t = argument;
    const void *from = t->staged ? t->staged : t->from;
    place to_place, from_place;
    if (t->fixed && t->bytes > 0 &&
        (find(t->to, t->bytes, &to_place) != cudaSuccess || to_place == PAGEABLE ||
         find(from, t->bytes, &from_place) != cudaSuccess || from_place == PAGEABLE))
        cuda_shim_stop("a copy from or to memory that is gone");
    for (size_t row = 0; row < t->rows; row++)
        if (from)
            memmove(t->to, from, t->bytes);
        else
            memset(t->to + row * t->pitch, t->value, t->bytes);
}

static void drop_transfer(void *argument) {
    transfer *t = argument;
    free(t->staged);
    free(t);
}

static cudaError_t enqueue_transfer(cudaStream_t stream, transfer what) {
    transfer *t = malloc(sizeof *t);
    if (!t) return cuda_shim_answer(cudaErrorMemoryAllocation);
    *t = what;
    return cuda_shim_enqueue(stream, (cuda_shim_work){run_transfer, drop_transfer, t});
}

static cudaError_t fill(void *to, size_t pitch, int value, size_t width, size_t height,
                        cudaStream_t stream) {
    place where;
    cudaError_t error = find(to, height > 0 ? (height - 1) * pitch + width : 0, &where);
    if (pitch < width || error != cudaSuccess || (where != DEVICE && width * height > 0))
        return cuda_shim_answer(cudaErrorInvalidValue);
    return enqueue_transfer(
        stream,
        (transfer){.to = to, .bytes = width, .rows = height, .pitch = pitch, .value = value});
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream) {
    return fill(to, bytes, value, bytes, 1, stream);
}

cudaError_t cudaMemset2DAsync(void *to, size_t pitch, int value, size_t width, size_t height,
                              cudaStream_t stream) {
    return fill(to, pitch, value, width, height, stream);
}

/* The host does not wait for it, and no stream of ours does. */
cudaError_t cudaMemset(void *to, int value, size_t bytes) {
    cudaError_t error = cuda_shim_waits();
    if (error != cudaSuccess) return error;
    return fill(to, bytes, value, bytes, 1, cuda_shim_legacy_stream());
}

/* To pageable memory the host waits; from it, it is read before the call returns. */
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
    place target, source;
    if (kind != cudaMemcpyDefault || find(to, bytes, &target) != cudaSuccess ||
        find(from, bytes, &source) != cudaSuccess || cuda_shim_check_stream(stream) != cudaSuccess)
        return cuda_shim_answer(cudaErrorInvalidValue);
    transfer t = {.to = to, .from = from, .bytes = bytes, .rows = bytes > 0};
    t.fixed = target != PAGEABLE && source != PAGEABLE;
    if (cuda_shim_reach_of(stream)->capture && !t.fixed)
        return cuda_shim_refuse(cudaErrorStreamCaptureUnsupported);
    if (target != PAGEABLE && source == PAGEABLE && bytes > 0) {
        t.staged = malloc(bytes);
        if (!t.staged) return cuda_shim_answer(cudaErrorMemoryAllocation);
        memcpy(t.staged, from, bytes);
    }
    cudaError_t error = enqueue_transfer(stream, t);
    return target == PAGEABLE && error == cudaSuccess ? cuda_shim_finish(stream) : error;
}

/* ---- numbers ---- */

double cuda_shim_get(const void *from, z3d_dtype type, int64_t at) {
    if (type == Z3D_F64) return ((const double *)from)[at];
    if (type == Z3D_F32) return (double)((const float *)from)[at];
    if (type == Z3D_I32) return (double)((const int32_t *)from)[at];
    if (type == Z3D_U8) return (double)((const uint8_t *)from)[at];
    uint16_t bits = ((const uint16_t *)from)[at];
    return (double)(type == Z3D_BF16 ? z3d_bf16_to_float(bits) : z3d_f16_to_float(bits));
}

void cuda_shim_put(void *to, z3d_dtype type, int64_t at, double value) {
    if (type == Z3D_F64)
        ((double *)to)[at] = value;
    else if (type == Z3D_F32)
        ((float *)to)[at] = (float)value;
    else if (type == Z3D_I32)
        ((int32_t *)to)[at] = (int32_t)value;
    else if (type == Z3D_U8)
        ((uint8_t *)to)[at] = (uint8_t)value;
    else
        ((uint16_t *)to)[at] =
            type == Z3D_BF16 ? z3d_float_to_bf16((float)value) : z3d_float_to_f16((float)value);
}
