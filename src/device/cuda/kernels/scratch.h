/* The scratch of the CUDA kernels, in bytes, and their cuts of work. Both depend on the shape
 * alone, because cuts decide the order of sums. Inline, so that programs can be planned without the
 * plugin. */
#ifndef ZERO3D_DEVICE_CUDA_KERNELS_SCRATCH_H
#define ZERO3D_DEVICE_CUDA_KERNELS_SCRATCH_H

#include "src/device/kernels.h"

/* The number of chunks in sums over rows: at most about two for each of an H100's 132
 * multiprocessors, few enough that the sum of the chunks costs little. Chunk c has rows [rows * c /
 * chunks, rows * (c + 1) / chunks). */
static inline int64_t z3d_cuda_row_chunks(int64_t rows) {
    const int64_t chunks = (rows + 15) / 16;
    return chunks < 1 ? 1 : chunks > 256 ? 256 : chunks;
}

/* Elements of one block of sum_squares: at most 1024 blocks, multiples that allow 16-byte accesses.
 */
static inline int64_t z3d_cuda_square_chunk(int64_t count) {
    const int64_t step = 4096, chunk = (count + 1023) / 1024;
    return (chunk + step - 1) / step * step;
}

/* The number of chunks of keys in attention of a few rows to a cache, and its scratch; 0 bytes:
 * another kernel computes the shape. */
static inline int64_t z3d_cuda_decode_chunks(int64_t capacity) {
    const int64_t chunks = (capacity + 255) / 256;
    return chunks < 1 ? 1 : chunks > 64 ? 64 : chunks;
}

static inline int64_t z3d_cuda_decode_scratch(const z3d_attention_forward *k) {
    if (!k->starts || k->seq > 4 || k->head_dim > 256 || k->head_dim % 8 != 0 || k->dropout.p > 0)
        return 0;
    return k->batch * k->heads * k->seq * z3d_cuda_decode_chunks(k->capacity) * (k->head_dim + 2) *
           (int64_t)sizeof(float);
}

/* The keys of `rows` rows, twice, and memory for the library's sort. The library has no function of
 * the shape for it, so this is an estimate that the kernel checks. */
static inline int64_t z3d_cuda_sort_scratch(int64_t rows) {
    return 2 * rows * (int64_t)sizeof(uint64_t) + rows + ((int64_t)4 << 20);
}

/* The most scratch that one kernel needs; 0 for gemm and kernels without scratch. */
static inline int64_t z3d_cuda_kernel_scratch(const z3d_kernel *kernel) {
    switch (kernel->kind) {
    case Z3D_KERNEL_bias_backward: {
        const z3d_bias_backward *k = &kernel->as.bias_backward;
        return z3d_cuda_row_chunks(k->rows) * k->cols * (int64_t)sizeof(float);
    }
    case Z3D_KERNEL_layernorm_backward: { /* for weight and bias */
        const z3d_layernorm_backward *k = &kernel->as.layernorm_backward;
        return 2 * z3d_cuda_row_chunks(k->rows) * k->cols * (int64_t)sizeof(float);
    }
    case Z3D_KERNEL_rmsnorm_backward: {
        const z3d_rmsnorm_backward *k = &kernel->as.rmsnorm_backward;
        return z3d_cuda_row_chunks(k->rows * k->heads) * k->cols * (int64_t)sizeof(float);
    }
    case Z3D_KERNEL_embedding_backward:
        return z3d_cuda_sort_scratch(kernel->as.embedding_backward.rows);
    case Z3D_KERNEL_attention_forward:
        return z3d_cuda_decode_scratch(&kernel->as.attention_forward);
    case Z3D_KERNEL_attention_backward: { /* one number per row and head */
        const z3d_attention_backward *k = &kernel->as.attention_backward;
        return k->batch * k->heads * k->seq * (int64_t)sizeof(float);
    }
    case Z3D_KERNEL_sum_squares: { /* one sum per block */
        const int64_t count = kernel->as.sum_squares.count;
        const int64_t chunk = z3d_cuda_square_chunk(count);
        return count > 0 ? (count + chunk - 1) / chunk * (int64_t)sizeof(double) : 0;
    }
    default:
        return 0;
    }
}

#endif
