// The stand-in's runtime library but for streams: the GPU, its memory, copies. Blocks are known, so
// a copy beyond one or from one that is gone is noticed, a block freed twice or as what it is not,
// and allocations beyond the GPU's memory. ZERO3D_SHIM_GPU in the environment: "none", "no driver",
// "old", "new" and "small" make GPUs that training cannot use, "huge" one that its host is too
// small for.
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

#include "cuda_runtime.h"
extern "C" {
#include "shim.h"
}

namespace {

// Of bytes: in no block, in one, or only some of them.
enum place { PAGEABLE, PINNED, DEVICE, BROKEN };

struct block {
    size_t bytes;
    place where;
};

std::map<const char *, block> blocks;
size_t used; // of the GPU's memory
cudaError_t last;

bool is(const char *kind) {
    return cuda_shim_is_set("ZERO3D_SHIM_GPU", kind);
}

// Small: enough for the library's workspace, but for no model. Huge: more than any host has.
size_t memory() {
    if (is("huge")) return (size_t)1 << 50;
    return is("small") ? ((size_t)32 << 20) + ((size_t)64 << 10) : (size_t)1 << 30;
}

place place_of(const void *memory, size_t bytes) {
    const char *begin = static_cast<const char *>(memory), *end = begin + bytes;
    for (const auto &[start, b] : blocks)
        if (end > start && begin < start + b.bytes)
            return begin >= start && end <= start + b.bytes ? b.where : BROKEN;
    return PAGEABLE;
}

cudaError_t drop_block(void *memory, place where) {
    const auto found = blocks.find(static_cast<const char *>(memory));
    if (found == blocks.end() || found->second.where != where)
        return cuda_shim_answer(cudaErrorInvalidValue);
    if (where == DEVICE) {
        used -= found->second.bytes;
        std::free(memory);
    }
    blocks.erase(found);
    return cudaSuccess;
}

// When its time has come, a copy's memory must be where it was when it was enqueued.
void check_place(const void *memory, size_t bytes, place where) {
    if (place_of(memory, bytes) != where) cuda_shim_stop("a copy from or to memory that is gone");
}

} // namespace

bool cuda_shim_is_set(const char *variable, const char *value) {
    const char *given = std::getenv(variable);
    return given && std::string(given) == value;
}

// ---- errors ----

cudaError_t cuda_shim_answer(cudaError_t error) {
    if (error != cudaSuccess) last = error;
    return error;
}

bool cuda_shim_has_failed(void) {
    return last != cudaSuccess;
}

void cuda_shim_stop(const char *what) {
    std::fprintf(stderr, "cuda shim: %s\n", what);
    std::abort();
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

cudaError_t cudaGetLastError(void) {
    const cudaError_t error = last;
    last = cudaSuccess;
    return error;
}

// ---- the GPU ----

cudaError_t cudaGetDeviceCount(int *count) {
    if (is("none")) return cudaErrorNoDevice;
    if (is("no driver")) return cudaErrorInsufficientDriver; // leaves the count alone, as there
    *count = 1;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *properties, int) {
    *properties = {"shim", {"7"}, memory(), is("old") ? 6 : is("new") ? 13 : 9, 0};
    return cudaSuccess;
}

// ZERO3D_SHIM_GPU=new: one later than all that was compiled for.
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *, const void *) {
    return is("new") ? cudaErrorNoKernelImageForDevice : cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr, int) {
    *value = 0; // the first node
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
    return cuda_shim_answer(device == 0 ? cudaSuccess : cudaErrorInvalidValue);
}

// ---- memory ----

bool cuda_shim_is_device(const void *memory, size_t bytes) {
    return place_of(memory, bytes) == DEVICE;
}

cudaError_t cudaMemGetInfo(size_t *available, size_t *total) {
    *total = memory();
    *available = *total - used;
    return cudaSuccess;
}

// Exactly the bytes asked for, so that AddressSanitizer sees their end; new memory is no zeros.
cudaError_t cudaMalloc(void **out, size_t bytes) {
    CUDA_SHIM_TRY(cuda_shim_waits());
    *out = nullptr;
    if (bytes > memory() - used || posix_memalign(out, 256, bytes) != 0)
        return cuda_shim_answer(cudaErrorMemoryAllocation);
    std::memset(*out, 0xff, bytes);
    used += bytes;
    blocks[static_cast<const char *>(*out)] = {bytes, DEVICE};
    return cudaSuccess;
}

cudaError_t cudaFree(void *memory) {
    CUDA_SHIM_TRY(cudaDeviceSynchronize()); // as the library does
    return memory ? drop_block(memory, DEVICE) : cudaSuccess;
}

cudaError_t cudaHostRegister(void *memory, size_t bytes, unsigned) {
    CUDA_SHIM_TRY(cuda_shim_waits());
    blocks[static_cast<const char *>(memory)] = {bytes, PINNED};
    return cudaSuccess;
}

cudaError_t cudaHostUnregister(void *memory) {
    CUDA_SHIM_TRY(cuda_shim_waits());
    return drop_block(memory, PINNED);
}

// ---- filling and copying ----

cudaError_t cudaMemset2DAsync(void *to, size_t pitch, int value, size_t width, size_t height,
                              cudaStream_t stream) {
    if (width * height == 0) return cudaSuccess;
    const size_t bytes = (height - 1) * pitch + width;
    const place where = place_of(to, bytes);
    if (pitch < width || where == BROKEN || (!blocks.empty() && where != DEVICE))
        return cuda_shim_answer(cudaErrorInvalidValue);
    return cuda_shim_do(stream, [=] {
        check_place(to, bytes, where);
        for (size_t row = 0; row < bytes; row += pitch)
            std::memset(static_cast<char *>(to) + row, value, width);
    });
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream) {
    return cudaMemset2DAsync(to, bytes, value, bytes, 1, stream);
}

// The host does not wait for it, and no stream of ours does.
cudaError_t cudaMemset(void *to, int value, size_t bytes) {
    return cudaMemsetAsync(to, value, bytes, nullptr);
}

// To and from pageable memory the host waits.
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
    if (bytes == 0) return cudaSuccess;
    const place target = place_of(to, bytes), source = place_of(from, bytes);
    if (target == BROKEN || source == BROKEN) return cuda_shim_answer(cudaErrorInvalidValue);
    CUDA_SHIM_TRY(cuda_shim_do(stream, [=] {
        check_place(to, bytes, target);
        check_place(from, bytes, source);
        std::memcpy(to, from, bytes);
    }));
    const bool waits = stream && (target == PAGEABLE || source == PAGEABLE);
    return waits ? cudaStreamSynchronize(stream) : cudaSuccess;
}

// ---- numbers ----

double cuda_shim_get(const void *from, z3d_dtype type, int64_t at) {
    if (type == Z3D_F64) return static_cast<const double *>(from)[at];
    if (type == Z3D_F32) return (double)static_cast<const float *>(from)[at];
    if (type == Z3D_I32) return (double)static_cast<const int32_t *>(from)[at];
    const uint16_t bits = static_cast<const uint16_t *>(from)[at];
    return (double)(type == Z3D_BF16 ? z3d_bf16_to_float(bits) : z3d_f16_to_float(bits));
}

void cuda_shim_put(void *to, z3d_dtype type, int64_t at, double value) {
    if (type == Z3D_F64)
        static_cast<double *>(to)[at] = value;
    else if (type == Z3D_F32)
        static_cast<float *>(to)[at] = (float)value;
    else if (type == Z3D_I32)
        static_cast<int32_t *>(to)[at] = (int32_t)value;
    else
        static_cast<uint16_t *>(to)[at] =
            type == Z3D_BF16 ? z3d_float_to_bf16((float)value) : z3d_float_to_f16((float)value);
}
