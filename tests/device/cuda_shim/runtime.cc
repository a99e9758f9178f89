// The stand-in's runtime library but for streams: the GPU, its memory, copies. Blocks are known, so
// a copy beyond one or from one that is gone is noticed, a block freed twice or as what it is not,
// and allocations beyond the GPU's memory. ZERO3D_SHIM_GPU in the environment: "none", "no driver",
// "old", "new" and "small" make GPUs that training cannot use, "huge" one that its host is too
// small for. ZERO3D_SHIM_PIN: "registered": the driver pins no memory but its own; "none": nor
// has it any.
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

#include "cuda_runtime.h"
extern "C" {
#include "shim.h"
}

namespace {

// The first is what one who asks is told, so that tests reach it; the other is a GPU's.
constexpr int TOLD_PITCH = 1024;
constexpr size_t LONGEST_PITCH = INT32_MAX;

// Of bytes: in no block, in one, or only some of them.
enum place { PAGEABLE, PINNED, OWN_PINNED, DEVICE, BROKEN };

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

// Small: enough for a tiny model, but not for what libraries take beside it. Huge: more than any
// host has.
size_t memory() {
    return is("huge") ? (size_t)1 << 50 : (size_t)1 << (is("small") ? 30 : 35);
}

place place_of(const void *memory, size_t bytes) {
    const char *begin = static_cast<const char *>(memory), *end = begin + bytes;
    for (const auto &[start, b] : blocks)
        if (end > start && begin < start + b.bytes)
            return begin < start || end > start + b.bytes ? BROKEN
                   : b.where == OWN_PINNED                ? PINNED
                                                          : b.where;
    return PAGEABLE;
}

cudaError_t drop_block(void *memory, place where) {
    const auto found = blocks.find(static_cast<const char *>(memory));
    if (found == blocks.end() || found->second.where != where)
        return cuda_shim_answer(cudaErrorInvalidValue);
    if (where == DEVICE) used -= found->second.bytes;
    if (where != PINNED) std::free(memory);
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

cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int) {
    *value = attribute == cudaDevAttrMaxPitch ? TOLD_PITCH : 0; // the first node
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
    if (std::getenv("ZERO3D_SHIM_PIN")) return cuda_shim_answer(cudaErrorInvalidValue);
    blocks[static_cast<const char *>(memory)] = {bytes, PINNED};
    return cudaSuccess;
}

cudaError_t cudaHostAlloc(void **out, size_t bytes, unsigned) {
    CUDA_SHIM_TRY(cuda_shim_waits());
    *out = cuda_shim_is_set("ZERO3D_SHIM_PIN", "none") ? nullptr : std::malloc(bytes);
    if (!*out) return cuda_shim_answer(cudaErrorMemoryAllocation);
    blocks[static_cast<const char *>(*out)] = {bytes, OWN_PINNED};
    return cudaSuccess;
}

cudaError_t cudaFreeHost(void *memory) {
    CUDA_SHIM_TRY(cuda_shim_waits());
    return drop_block(memory, OWN_PINNED);
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

// Within the GPU's memory.
cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                              size_t width, size_t height, cudaMemcpyKind kind,
                              cudaStream_t stream) {
    const size_t to_bytes = (height - 1) * to_pitch + width,
                 from_bytes = (height - 1) * from_pitch + width;
    const place target = place_of(to, to_bytes), source = place_of(from, from_bytes);
    if (kind != cudaMemcpyDeviceToDevice || width == 0 || height == 0 || to_pitch < width ||
        from_pitch < width || to_pitch > LONGEST_PITCH || from_pitch > LONGEST_PITCH ||
        (!blocks.empty() && (target != DEVICE || source != DEVICE)))
        return cuda_shim_answer(cudaErrorInvalidValue);
    return cuda_shim_do(stream, [=] {
        check_place(to, to_bytes, target);
        check_place(from, from_bytes, source);
        for (size_t row = 0; row < height; row++)
            std::memcpy(static_cast<char *>(to) + row * to_pitch,
                        static_cast<const char *>(from) + row * from_pitch, width);
    });
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
