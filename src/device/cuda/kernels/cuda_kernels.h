/* The CUDA kernels: one C function per kernel of src/device/kernels.h, with the same meaning and
 * argument struct. They only enqueue on the lane's stream: no allocation, no synchronisation,
 * nothing that a stream capture refuses. Results depend on the arguments alone: work is cut by
 * shape, never by the number of multiprocessors, and no sum uses atomics. Sums have another order
 * than on the cpu device, so results agree within rounding; dropout masks, single roundings (casts,
 * embedding) and random weights are equal.
 *
 * gemm is not here: the device calls a library for it, with a function of the same form. */
#ifndef ZERO3D_DEVICE_CUDA_KERNELS_H
#define ZERO3D_DEVICE_CUDA_KERNELS_H

#ifdef __cplusplus
extern "C" {
#endif

#include "src/base/status.h"
#include "src/device/kernels.h"

/* A stream and its scratch. Lanes that run at the same time have different scratches. */
typedef struct z3d_cuda_lane {
    void *stream;          /* cudaStream_t */
    void *scratch;         /* device memory, a multiple of 256 bytes */
    int64_t scratch_bytes; /* at least z3d_cuda_kernel_scratch of each kernel (scratch.h) */
} z3d_cuda_lane;

/* z3d_status z3d_cuda_layernorm_forward(const z3d_cuda_lane *lane,
 *                                       const z3d_layernorm_forward *kernel);
 * Pointers are device pointers. Any alignment and shape is possible; accesses have 16 bytes if
 * pointers and row lengths are multiples of 16 bytes. Errors: ERR_INTERNAL (wrong types, shapes or
 * scratch; gemm relies on the checks of z3d_launch), ERR_UNSUPPORTED (layernorm_backward and
 * rmsnorm_backward of more than 18432 columns, or 12288 if rows are not whole packs; attention of
 * more than 256 columns a head), ERR_DEVICE (the driver refuses a launch). Some values are known
 * only on the device: a row of select_row outside the sequence gives NaN, rows outside
 * cache_store's cache are dropped, and state->skip and ->p are read when the kernel runs. */
#define X(name, type)                                                                              \
    z3d_status z3d_cuda_##name(const z3d_cuda_lane *lane, const z3d_##name *kernel);
Z3D_KERNEL_MAP(X)
#undef X

/* Whether this build has machine code for the current GPU; a newer GPU cannot run it. */
bool z3d_cuda_has_kernels(void);

/* Attention of a few rows to a cache. attention_forward checks the arguments and calls it if
 * scratch.h has scratch for the shape. */
z3d_status z3d_cuda_decode_attention(const z3d_cuda_lane *lane,
                                     const z3d_attention_forward *kernel);

#ifdef __cplusplus
}
#endif

#endif
