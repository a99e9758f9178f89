/* What kernels of this folder share with cpu/scratch.c, which has the size of their scratch: the
 * cuts of sums over rows, and products with few rows (attention.h has attention's). Nothing here
 * depends on the number of threads, because the cuts decide the order of sums. */
#ifndef ZERO3D_DEVICE_CPU_ISA_SCRATCH_H
#define ZERO3D_DEVICE_CPU_ISA_SCRATCH_H

#include "src/device/kernels.h"

/* Sums over rows are cut into this many chunks: enough for 64 threads, few enough that adding the
 * chunks up costs little. Chunk c has rows [rows * c / chunks, rows * (c + 1) / chunks). */
static inline int64_t z3d_row_chunks(int64_t rows) {
    int64_t chunks = (rows + 15) / 16;
    return chunks < 1 ? 1 : chunks > 64 ? 64 : chunks;
}

/* Floats from one row of partial sums to the next: whole cache lines. */
static inline int64_t z3d_partial_stride(int64_t cols) {
    return (cols + 15) / 16 * 16;
}

/* Rows of A that are multiplied while B is read once. */
enum { Z3D_FEW_ROWS = 16 };

/* Whether isa/few_rows.c computes this product. It never computes products of training, so their
 * bits do not depend on it. */
static inline bool z3d_gemm_has_few_rows(const z3d_gemm *kernel) {
    return kernel->inference && kernel->m <= Z3D_FEW_ROWS && kernel->transpose_b &&
           !kernel->transpose_a && !kernel->accumulate;
}

/* Elements of a sum that isa/few_rows.c adds at a time. */
enum { Z3D_FEW_ROWS_STEP = 32 };

/* Elements from one row of A to the next, in the fp32 copy of an A that is not fp32. */
static inline int64_t z3d_few_rows_stride(const z3d_gemm *kernel) {
    return (kernel->k + Z3D_FEW_ROWS_STEP - 1) / Z3D_FEW_ROWS_STEP * Z3D_FEW_ROWS_STEP;
}

/* Scratch for the fp32 copy of A. */
static inline int64_t z3d_scratch_few_rows(const z3d_gemm *kernel) {
    if (kernel->dtype == Z3D_F32) return 0;
    return kernel->m * z3d_few_rows_stride(kernel) * (int64_t)sizeof(float);
}

#endif
