// Shared by all kernels here: types, 16-byte accesses, sums over a warp or a block, launching.
// Device code is C++ templates over the element type; all arithmetic is in fp32. Shared memory is
// always dynamic, with a size from the launch, so that the host test (tests/device/cuda_shim) can
// check its bounds.
#ifndef ZERO3D_DEVICE_CUDA_KERNELS_COMMON_CUH
#define ZERO3D_DEVICE_CUDA_KERNELS_COMMON_CUH

#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "src/device/cuda/kernels/cuda_kernels.h"
#include "src/device/cuda/kernels/scratch.h"

namespace {

// Elements that one thread moves at once: 16 bytes of a 16-bit type, 2 x 16 bytes of fp32.
constexpr int WIDE = 8;
constexpr int WARP = 32;
constexpr unsigned ALL_LANES = 0xffffffffu;

struct bf16 {
    uint16_t bits;
};
struct f16 {
    uint16_t bits;
};

__device__ inline float widen(float value) {
    return value;
}

__device__ inline float widen(bf16 value) {
    return __uint_as_float((uint32_t)value.bits << 16);
}

__device__ inline float widen(f16 value) {
#ifdef __CUDACC__
    float result;
    asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(value.bits));
    return result;
#else
    return z3d_f16_to_float(value.bits);
#endif
}

// Rounds to nearest, ties to even; NaN stays NaN. Only fill writes fp64 and integers.
template <class T> __device__ inline void narrow(float value, T *to) {
    *to = static_cast<T>(value);
}

__device__ inline void narrow(float value, uint8_t *to) {
    *to = static_cast<uint8_t>(static_cast<int32_t>(value));
}

__device__ inline void narrow(float value, bf16 *to) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(to->bits) : "f"(value));
#else
    const uint32_t bits = __float_as_uint(value);
    const uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
    to->bits = (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? bits >> 16 | 0x40u : rounded);
#endif
}

__device__ inline void narrow(float value, f16 *to) {
#ifdef __CUDACC__
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(to->bits) : "f"(value));
#else
    to->bits = z3d_float_to_f16(value);
#endif
}

// N elements that move together, up to 16 bytes at a time.
template <class T, int N> struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) pack { T at[N]; };

// N elements from element `at` on.
template <class T, int N>
__device__ inline void load(float (&to)[N], const void *from, int64_t at) {
    const auto loaded = *reinterpret_cast<const pack<T, N> *>(static_cast<const T *>(from) + at);
#pragma unroll
    for (int i = 0; i < N; i++) to[i] = widen(loaded.at[i]);
}

template <class T, int N> __device__ inline void add(float (&to)[N], const void *from, int64_t at) {
    float added[N];
    load<T>(added, from, at);
#pragma unroll
    for (int i = 0; i < N; i++) to[i] += added[i];
}

template <class T, int N>
__device__ inline void store(void *to, int64_t at, const float (&from)[N]) {
    pack<T, N> stored;
#pragma unroll
    for (int i = 0; i < N; i++) narrow(from[i], &stored.at[i]);
    *reinterpret_cast<pack<T, N> *>(static_cast<T *>(to) + at) = stored;
}

// The block's dynamic shared memory.
template <class T> __device__ inline T *shared_memory() {
#ifdef __CUDACC__
    extern __shared__ uint4 z3d_shared_memory[];
    return reinterpret_cast<T *>(z3d_shared_memory);
#else
    return static_cast<T *>(cuda_shim_shared_memory());
#endif
}

// Joins all lanes' values by a fixed tree; all lanes get the result.
template <class F, class Join> __device__ inline F join_warp(F value, Join join) {
#pragma unroll
    for (int lane = WARP / 2; lane > 0; lane /= 2)
        value = join(value, __shfl_xor_sync(ALL_LANES, value, lane));
    return value;
}

// The same for a one-dimensional block of whole warps. slots: shared memory for one value per warp,
// unused since the last barrier.
template <class F, class Join> __device__ inline F join_block(F value, F *slots, Join join) {
    value = join_warp(value, join);
    if (threadIdx.x % WARP == 0) slots[threadIdx.x / WARP] = value;
    __syncthreads();
    F joined = slots[0];
    for (unsigned warp = 1; warp < blockDim.x / WARP; warp++) joined = join(joined, slots[warp]);
    return joined;
}

template <class F> __device__ inline F warp_sum(F value) {
    return join_warp(value, [](F a, F b) { return a + b; });
}

template <class F> __device__ inline F block_sum(F value, F *slots) {
    return join_block(value, slots, [](F a, F b) { return a + b; });
}

__device__ inline float block_max(float value, float *slots) {
    return join_block(value, slots, [](float a, float b) { return fmaxf(a, b); });
}

// Calls body(integral_constant<int, N>(), i) for all of [begin, end), N elements at a time by each
// thread of the block, and for the rest one by one.
template <int THREADS, int N, class Body>
__device__ inline void each_of_block(int64_t begin, int64_t end, Body body) {
    for (int64_t i = begin + threadIdx.x * N; i < end; i += THREADS * N) {
        if (i + N <= end)
            body(std::integral_constant<int, N>(), i);
        else
            for (int64_t rest = i; rest < end; rest++) body(std::integral_constant<int, 1>(), rest);
    }
}

// ---- on the host ----

inline z3d_status check_scratch(const char *name, const z3d_cuda_lane *lane, int64_t bytes) {
    Z3D_REQUIRE(lane->scratch_bytes >= bytes, "kernel %s: scratch of %lld bytes, %lld wanted", name,
                (long long)lane->scratch_bytes, (long long)bytes);
    return Z3D_OK;
}

// Shared memory of a launch that needs no attribute.
constexpr size_t UNASKED_SHARED = 48 << 10;

// Calls body(T()) with the element type.
template <class Body> z3d_status with_type(const char *name, z3d_dtype dtype, Body body) {
    if (dtype == Z3D_F32) return body(float());
    if (dtype == Z3D_BF16) return body(bf16());
    if (dtype == Z3D_F16) return body(f16());
    return Z3D_ERROR(Z3D_ERR_INTERNAL, "kernel %s: type number %d, fp32, bf16 or fp16 wanted", name,
                     (int)dtype);
}

// The same with two types.
template <class Body>
z3d_status with_type(const char *name, z3d_dtype first, z3d_dtype second, Body body) {
    return with_type(name, first, [&](auto a) {
        return with_type(name, second, [&](auto b) { return body(a, b); });
    });
}

// Calls body(true_type()) or body(false_type()).
template <class Body> z3d_status with_flag(bool flag, Body body) {
    return flag ? body(std::true_type()) : body(std::false_type());
}

// Calls body(integral_constant<int, N>) with N = WIDE if `wide`, else 1.
template <class Body> z3d_status with_width(bool wide, Body body) {
    if (wide) return body(std::integral_constant<int, WIDE>());
    return body(std::integral_constant<int, 1>());
}

// Whether all pointers (NULL, too) are multiples of 16 bytes.
template <class... Pointers> inline bool aligned(const Pointers *...pointers) {
    return (... && (reinterpret_cast<uintptr_t>(pointers) % 16 == 0));
}

inline int64_t divide_up(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

inline z3d_status check(const char *name, cudaError_t error) {
    if (error == cudaSuccess) return Z3D_OK;
    return Z3D_ERROR(Z3D_ERR_DEVICE, "kernel %s: %s", name, cudaGetErrorString(error));
}

inline cudaStream_t stream_of(const z3d_cuda_lane *lane) {
    return static_cast<cudaStream_t>(lane->stream);
}

template <class... Parameters, class... Arguments>
z3d_status launch(const z3d_cuda_lane *lane, const char *name, int64_t blocks, dim3 threads,
                  size_t shared_bytes, void (*kernel)(Parameters...), Arguments... arguments) {
    Z3D_REQUIRE(blocks > 0 && blocks <= INT32_MAX, "kernel %s: %lld blocks", name,
                (long long)blocks);
    if (shared_bytes > UNASKED_SHARED)
        if (cudaFuncSetAttribute(reinterpret_cast<const void *>(kernel),
                                 cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 (int)shared_bytes) != cudaSuccess) {
            cudaGetLastError(); // clear it: this error is reported here
            return Z3D_ERROR(Z3D_ERR_UNSUPPORTED,
                             "kernel %s: %lld bytes of shared memory, more than this GPU has", name,
                             (long long)shared_bytes);
        }
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((unsigned)blocks);
    config.blockDim = threads;
    config.dynamicSmemBytes = shared_bytes;
    config.stream = stream_of(lane);
    const cudaError_t error =
        cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...);
    if (error == cudaSuccess) return Z3D_OK;
    cudaGetLastError();
    return Z3D_ERROR(Z3D_ERR_DEVICE,
                     "kernel %s: %s (%lld blocks of %u threads, %lld bytes of shared memory)", name,
                     cudaGetErrorString(error), (long long)blocks, threads.x * threads.y,
                     (long long)shared_bytes);
}

} // namespace

#endif
