// As much of CUDA as our kernels use, on the host: the same .cu files, compiled by a C++ compiler
// with this folder first on the include path, run here one block after the other, a fibre for every
// thread. A fibre runs until it meets a barrier or a shuffle, so a missing barrier shows when the
// order of the fibres is turned round (cuda_shim_descend), a barrier that not all threads reach is
// an error, and shared memory has exactly the bytes asked for, on the heap, where AddressSanitizer
// sees its bounds. Only dynamic shared memory and full warps are known.
#ifndef ZERO3D_TESTS_DEVICE_CUDA_SHIM_CUDA_RUNTIME_H
#define ZERO3D_TESTS_DEVICE_CUDA_SHIM_CUDA_RUNTIME_H

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <tuple>
#include <type_traits>

extern "C" {
#include "cuda_runtime_api.h"
}

#define __global__
#define __device__
#define __launch_bounds__(...)

struct uint3 {
    unsigned x, y, z;
};

struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};

struct alignas(16) uint4 {
    unsigned x, y, z, w;
};

// Of the thread that runs now.
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;

void __syncthreads();
void *cuda_shim_shared_memory();

constexpr size_t CUDA_SHIM_SLOT = 64;

// Every lane of the warp gives a value and gets all 32, CUDA_SHIM_SLOT bytes apart, valid until its
// next call but one.
const unsigned char *cuda_shim_exchange(const void *value, size_t bytes);

template <class T> struct cuda_shim_warp {
    const unsigned char *slots;
    T operator[](int lane) const {
        T value;
        std::memcpy(&value, slots + (size_t)lane * CUDA_SHIM_SLOT, sizeof value);
        return value;
    }
};

template <class T> cuda_shim_warp<T> cuda_shim_gather(const T &value) {
    static_assert(sizeof value <= CUDA_SHIM_SLOT && std::is_trivially_copyable<T>::value, "slot");
    return {cuda_shim_exchange(&value, sizeof value)};
}

int cuda_shim_lane();

template <class T> T __shfl_sync(unsigned, T value, int lane) {
    return cuda_shim_gather(value)[lane % 32];
}

template <class T> T __shfl_xor_sync(unsigned, T value, int lanes) {
    return cuda_shim_gather(value)[cuda_shim_lane() ^ lanes];
}

inline void __syncwarp(unsigned = 0xffffffffu) {
    cuda_shim_exchange("", 1);
}

// ldmatrix.m8n8.x4 (.trans) and mma.m16n8k16, as the PTX ISA describes them: with g = lane / 4 and
// t = lane % 4, a lane gets elements 2 t and 2 t + 1 of row g of each matrix (or of its transpose),
inline void cuda_shim_load_matrices(uint32_t (&to)[4], const void *row, bool transposed) {
    const auto rows = cuda_shim_gather(row);
    const int g = cuda_shim_lane() / 4, t = cuda_shim_lane() % 4;
    for (int matrix = 0; matrix < 4; matrix++) {
        uint16_t pair[2];
        for (int i = 0; i < 2; i++) {
            const void *from = rows[8 * matrix + (transposed ? 2 * t + i : g)];
            pair[i] = static_cast<const uint16_t *>(from)[transposed ? g : 2 * t + i];
        }
        std::memcpy(&to[matrix], pair, sizeof pair);
    }
}

// and has, of A, rows g (even registers) and g + 8 at k = 2 t (registers 0, 1) and 2 t + 8, of B
// column g at k = 2 t and 2 t + 8, of C columns 2 t and 2 t + 1 of rows g and g + 8.
template <class Widen>
void cuda_shim_multiply_matrices(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                                 Widen widen) {
    struct values {
        float a[4][2], b[2][2]; // of each register the lower half, then the upper
    } mine;
    for (int e = 0; e < 2; e++) {
        for (int r = 0; r < 4; r++) mine.a[r][e] = widen(a[r] >> 16 * e);
        for (int r = 0; r < 2; r++) mine.b[r][e] = widen(b[r] >> 16 * e);
    }
    const auto lanes = cuda_shim_gather(mine);
    const int g = cuda_shim_lane() / 4, t = cuda_shim_lane() % 4;
    for (int half = 0; half < 2; half++)
        for (int owner = 0; owner < 4; owner++) { // k = 8 half + 2 owner, and the next
            const values row = lanes[4 * g + owner];
            for (int e = 0; e < 2; e++) {
                const values column = lanes[4 * (2 * t + e) + owner];
                for (int k = 0; k < 2; k++) {
                    c[e] += row.a[2 * half][k] * column.b[half][k];
                    c[2 + e] += row.a[2 * half + 1][k] * column.b[half][k];
                }
            }
        }
}

inline uint32_t __float_as_uint(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
}

inline float __uint_as_float(uint32_t bits) {
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

inline uint32_t __umulhi(uint32_t a, uint32_t b) {
    return (uint32_t)((uint64_t)a * b >> 32);
}

// ---- what the runtime library has beside its functions of C ----

enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize };
struct cudaFuncAttributes {};

struct cudaLaunchConfig_t {
    dim3 gridDim, blockDim;
    size_t dynamicSmemBytes = 0;
    cudaStream_t stream = nullptr;
};

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *attributes, const void *kernel);
// Remembered: a launch with more shared memory than was asked for is refused, as the driver does.
cudaError_t cudaFuncSetAttribute(const void *kernel, cudaFuncAttribute attribute, int value);

// When the stream comes to it; at once where there is none (kernels tested by themselves).
cudaError_t cuda_shim_do(cudaStream_t stream, std::function<void()> what);

// `thread` is what each of the kernel's threads does.
cudaError_t cuda_shim_launch(const cudaLaunchConfig_t &config, const void *kernel,
                             std::function<void()> thread);

// Arguments are copied: a kernel may run long after its launch.
template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t *config, void (*kernel)(Parameters...),
                               Arguments &&...arguments) {
    return cuda_shim_launch(
        *config, reinterpret_cast<const void *>(kernel),
        [kernel, given = std::tuple<Parameters...>(arguments...)] { std::apply(kernel, given); });
}

// Fibres run from the last thread to the first.
void cuda_shim_descend(bool descend);

#endif
