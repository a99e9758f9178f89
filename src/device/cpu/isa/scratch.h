/* How much scratch the kernels of this folder want, and how they cut it: functions of the shape
 * alone, because the cuts decide the order of sums. For interface/cost.c and the kernels. */
#ifndef ZERO3D_DEVICE_CPU_ISA_SCRATCH_H
#define ZERO3D_DEVICE_CPU_ISA_SCRATCH_H

#include "src/device/kernels.h"

/* Sums over rows are cut into this many chunks: enough for 64 threads, few enough that adding the
 * chunks up costs little. Chunk c has rows [rows * c / chunks, rows * (c + 1) / chunks). */
static inline int64_t z3d_row_chunks(int64_t rows) {
    int64_t chunks = (rows + 15) / 16;
    return chunks < 1 ? 1 : chunks > 64 ? 64 : chunks;
}

/* Floats between two rows of partial sums: whole cache lines. */
static inline int64_t z3d_partial_stride(int64_t cols) {
    return (cols + 15) / 16 * 16;
}

static inline int64_t z3d_scratch_bias_backward(const z3d_bias_backward *kernel) {
    return z3d_row_chunks(kernel->rows) * z3d_partial_stride(kernel->cols) * (int64_t)sizeof(float);
}

/* Weight and bias gradient. */
static inline int64_t z3d_scratch_layernorm_backward(const z3d_layernorm_backward *kernel) {
    return 2 * z3d_row_chunks(kernel->rows) * z3d_partial_stride(kernel->cols) *
           (int64_t)sizeof(float);
}

static inline int64_t z3d_scratch_rmsnorm_backward(const z3d_rmsnorm_backward *kernel) {
    return z3d_row_chunks(kernel->rows * kernel->heads) * z3d_partial_stride(kernel->cols) *
           (int64_t)sizeof(float);
}

/* Rows of A that are multiplied while B is read once. */
enum { Z3D_FEW_ROWS = 16 };

/* Whether isa/few_rows.c computes it. Products of training never are: their bits stay. */
static inline bool z3d_gemm_has_few_rows(const z3d_gemm *kernel) {
    return kernel->inference && kernel->m <= Z3D_FEW_ROWS && kernel->transpose_b &&
           !kernel->transpose_a && !kernel->accumulate;
}

/* Elements of a sum that it adds at a time. */
enum { Z3D_FEW_ROWS_STEP = 32 };

/* From a row of A in fp32 to the next, where A is not in fp32 itself. */
static inline int64_t z3d_few_rows_stride(const z3d_gemm *kernel) {
    return (kernel->k + Z3D_FEW_ROWS_STEP - 1) / Z3D_FEW_ROWS_STEP * Z3D_FEW_ROWS_STEP;
}

/* A in fp32. */
static inline int64_t z3d_scratch_few_rows(const z3d_gemm *kernel) {
    if (kernel->dtype == Z3D_F32) return 0;
    return kernel->m * z3d_few_rows_stride(kernel) * (int64_t)sizeof(float);
}

/* Each pair's angle per position. */
static inline int64_t z3d_scratch_rotary(const z3d_rotary *kernel) {
    return kernel->head_dim / 2 * (int64_t)sizeof(float);
}

/* The rows sorted by token: two arrays of keys. */
static inline int64_t z3d_scratch_embedding_backward(const z3d_embedding_backward *kernel) {
    return 2 * kernel->rows * (int64_t)sizeof(uint64_t);
}

#endif
