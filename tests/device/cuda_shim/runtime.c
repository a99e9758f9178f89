/* The stand-in's runtime library but for streams: the GPU, its memory, copies. Blocks are known, so
 * a copy beyond one or from one that is gone is noticed, a block freed twice or as what it is not,
 * and allocations beyond the GPU's memory. ZERO3D_SHIM_GPU in the environment: "none", "no driver",
 * "old", "new" and "small" make GPUs that training cannot use, "huge" one that its host is too
 * small for. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shim.h"

/* Of bytes: in no block, in one, or only some of them. */
typedef enum place { PAGEABLE, PINNED, DEVICE, BROKEN } place;

typedef struct block {
    char *memory;
    size_t bytes;
    place place;
    struct block *next;
} block;

static block *blocks;
static size_t used; /* of the GPU's memory */
static cudaError_t last;

static bool is(const char *kind) {
    const char *given = getenv("ZERO3D_SHIM_GPU");
    return given && strcmp(given, kind) == 0;
}

/* Small: enough for the library's workspace, but for no model. Huge: more than any host has. */
static size_t memory(void) {
    if (is("huge")) return (size_t)1 << 50;
    return is("small") ? ((size_t)32 << 20) + ((size_t)64 << 10) : (size_t)1 << 30;
}

/* ---- errors ---- */

cudaError_t cuda_shim_answer(cudaError_t error) {
    if (error != cudaSuccess) last = error;
    return error;
}

bool cuda_shim_has_failed(void) {
    return last != cudaSuccess;
}

void cuda_shim_stop(const char *what) {
    fprintf(stderr, "cuda shim: %s\n", what);
    abort();
}

void *cuda_shim_new(size_t bytes) {
    void *made = calloc(1, bytes);
    if (!made) cuda_shim_stop("no memory");
    return made;
}

const char *cudaGetErrorName(cudaError_t error) {
    switch (error) {
#define X(name, number)                                                                            \
    case number:                                                                                   \
        return #name;
        CUDA_SHIM_ERRORS(X)
#undef X
    }
    return "an error that the stand-in does not have";
}

const char *cudaGetErrorString(cudaError_t error) {
    return cudaGetErrorName(error);
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
    (void)device;
    memset(properties, 0, sizeof *properties);
    strcpy(properties->name, "shim");
    memset(properties->uuid.bytes, 7, sizeof properties->uuid.bytes);
    properties->totalGlobalMem = memory();
    properties->major = is("old") ? 6 : is("new") ? 13 : 9;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device) {
    (void)attribute, (void)device;
    *value = 0; /* the first node */
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
    return cuda_shim_answer(device == 0 ? cudaSuccess : cudaErrorInvalidValue);
}

/* ---- memory ---- */

cudaError_t cudaMemGetInfo(size_t *available, size_t *total) {
    *total = memory();
    *available = used < *total ? *total - used : 0;
    return cudaSuccess;
}

static void add_block(void *memory, size_t bytes, place where) {
    block *made = cuda_shim_new(sizeof *made);
    *made = (block){.memory = memory, .bytes = bytes, .place = where, .next = blocks};
    blocks = made;
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

/* Exactly the bytes asked for, so that AddressSanitizer sees their end; new memory is no zeros. */
cudaError_t cudaMalloc(void **out, size_t bytes) {
    CUDA_SHIM_TRY(cuda_shim_waits());
    *out = NULL;
    if (used + bytes > memory() || posix_memalign(out, 256, bytes) != 0)
        return cuda_shim_answer(cudaErrorMemoryAllocation);
    memset(*out, 0xff, bytes);
    used += bytes;
    add_block(*out, bytes, DEVICE);
    return cudaSuccess;
}

cudaError_t cudaFree(void *memory) {
    CUDA_SHIM_TRY(cudaDeviceSynchronize()); /* as the library does */
    return memory ? drop_block(memory, DEVICE) : cudaSuccess;
}

cudaError_t cudaHostRegister(void *memory, size_t bytes, unsigned flags) {
    (void)flags;
    CUDA_SHIM_TRY(cuda_shim_waits());
    add_block(memory, bytes, PINNED);
    return cudaSuccess;
}

cudaError_t cudaHostUnregister(void *memory) {
    CUDA_SHIM_TRY(cuda_shim_waits());
    return drop_block(memory, PINNED);
}

static place place_of(const void *memory, size_t bytes) {
    const char *at = memory;
    for (const block *b = blocks; b; b = b->next)
        if (at + bytes > b->memory && at < b->memory + b->bytes)
            return at >= b->memory && at + bytes <= b->memory + b->bytes ? b->place : BROKEN;
    return PAGEABLE;
}

bool cuda_shim_is_device(const void *memory, size_t bytes) {
    return place_of(memory, bytes) == DEVICE;
}

/* ---- filling and copying ---- */

typedef struct transfer {
    char *to;
    const char *from; /* NULL: filled, with rows of `width` bytes, `pitch` apart */
    size_t bytes, width, pitch;
    int value;
    place target, source;
} transfer;

static void run_transfer(void *argument) {
    const transfer *t = argument;
    if (place_of(t->to, t->bytes) != t->target ||
        (t->from && place_of(t->from, t->bytes) != t->source))
        cuda_shim_stop("a copy from or to memory that is gone");
    if (t->from)
        memmove(t->to, t->from, t->bytes);
    else
        for (size_t row = 0; row < t->bytes; row += t->pitch)
            memset(t->to + row, t->value, t->width);
}

static cudaError_t enqueue_transfer(transfer what, cudaStream_t stream) {
    transfer *t = cuda_shim_new(sizeof *t);
    *t = what;
    return cuda_shim_enqueue(stream, (cuda_shim_work){run_transfer, free, t});
}

cudaError_t cudaMemset2DAsync(void *to, size_t pitch, int value, size_t width, size_t height,
                              cudaStream_t stream) {
    transfer t = {.to = to, .width = width, .pitch = pitch, .value = value};
    if (width * height == 0) return cudaSuccess;
    t.bytes = (height - 1) * pitch + width;
    t.target = place_of(to, t.bytes);
    if (pitch < width || t.target == BROKEN || (stream && t.target != DEVICE))
        return cuda_shim_answer(cudaErrorInvalidValue);
    return enqueue_transfer(t, stream);
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream) {
    return cudaMemset2DAsync(to, bytes, value, bytes, 1, stream);
}

/* The host does not wait for it, and no stream of ours does. */
cudaError_t cudaMemset(void *to, int value, size_t bytes) {
    CUDA_SHIM_TRY(cuda_shim_waits());
    return cudaMemsetAsync(to, value, bytes, cuda_shim_legacy_stream());
}

/* To and from pageable memory the host waits. */
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
    transfer t = {.to = to, .from = from, .bytes = bytes};
    (void)kind;
    if (bytes == 0) return cudaSuccess;
    t.target = place_of(to, bytes);
    t.source = place_of(from, bytes);
    if (t.target == BROKEN || t.source == BROKEN) return cuda_shim_answer(cudaErrorInvalidValue);
    CUDA_SHIM_TRY(enqueue_transfer(t, stream));
    bool waits = stream && (t.target == PAGEABLE || t.source == PAGEABLE);
    return waits ? cudaStreamSynchronize(stream) : cudaSuccess;
}

/* ---- numbers ---- */

double cuda_shim_get(const void *from, z3d_dtype type, int64_t at) {
    if (type == Z3D_F64) return ((const double *)from)[at];
    if (type == Z3D_F32) return (double)((const float *)from)[at];
    if (type == Z3D_I32) return (double)((const int32_t *)from)[at];
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
    else
        ((uint16_t *)to)[at] =
            type == Z3D_BF16 ? z3d_float_to_bf16((float)value) : z3d_float_to_f16((float)value);
}
