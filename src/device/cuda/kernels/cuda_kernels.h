/* The CUDA kernels' face: one C function per kernel of src/device/kernels.h, with the same meaning
 * and the same argument struct. All of them only enqueue on the lane's stream: no allocation, no
 * synchronisation, nothing that a stream capture refuses. Results depend on the arguments alone:
 * work is cut by shape, never by the number of multiprocessors, and nothing is added by atomics.
 * Sums run in another order than on the cpu device, so results agree within rounding; what drops
 * (dropout), rounds once (casts, embedding) or is drawn (init_normal) is equal.
 *
 * gemm is not here: the device calls a library for it, as a function of the same shape. */
#ifndef ZERO3D_DEVICE_CUDA_KERNELS_H
#define ZERO3D_DEVICE_CUDA_KERNELS_H

#ifdef __cplusplus
extern "C" {
#endif

#include "src/base/status.h"
#include "src/device/kernels.h"

/* Where kernels run. Lanes that run beside each other have scratches of their own. */
typedef struct z3d_cuda_lane {
    void *stream;          /* cudaStream_t */
    void *scratch;         /* device memory, a multiple of 256 bytes */
    int64_t scratch_bytes; /* at least z3d_cuda_kernel_scratch of what is launched: scratch.h */
} z3d_cuda_lane;

/* z3d_status z3d_cuda_layernorm_forward(const z3d_cuda_lane *lane,
 *                                       const z3d_layernorm_forward *kernel);
 * Pointers are device pointers. Any alignment and shape is right; 16-byte accesses are used where
 * pointers and row lengths are multiples of 16 bytes. Errors: ERR_INTERNAL (types, shapes, scratch
 * that are wrong), ERR_UNSUPPORTED (layernorm_backward and rmsnorm_backward of more than 18432
 * columns, or 12288 of rows that are not whole packs), ERR_DEVICE (a launch that the
 * driver refuses). Some things are seen on the device only: a row of select_row outside the
 * sequence gives NaN, rows outside of cache_store's cache are dropped, and state->skip and ->p are
 * read when the kernel runs. */
#define X(name) z3d_status z3d_cuda_##name(const z3d_cuda_lane *lane, const z3d_##name *kernel);
Z3D_KERNEL_MAP(X)
#undef X

/* Whether this build has machine code for the current GPU: one newer than all that it was compiled
 * for can run none of it. */
bool z3d_cuda_has_kernels(void);

/* Attention of a few rows to a cache, which attention_forward, having checked its arguments, uses
 * where scratch.h has scratch for it. */
z3d_status z3d_cuda_decode_attention(const z3d_cuda_lane *lane,
                                     const z3d_attention_forward *kernel);

#ifdef __cplusplus
}
#endif

#endif
