/* Sums over rows in two steps: each fixed chunk of rows leaves a row of partial sums in scratch,
 * then the chunks are added up in order. */
#ifndef ZERO3D_DEVICE_CPU_ISA_PARTIALS_H
#define ZERO3D_DEVICE_CPU_ISA_PARTIALS_H

#include "src/device/cpu/isa/isa.h"

/* The sums over `rows` rows of one kernel. Chunk c has rows rows * c / chunks .. rows * (c + 1) /
 * chunks - 1. */
typedef struct row_sums {
    const void *kernel;
    float *partials; /* [chunks, stride] in scratch; for a second sum [2, chunks, stride] */
    int64_t rows, cols, chunks, stride;
} row_sums;

static inline int64_t first_row(const row_sums *sums, int64_t chunk) {
    return sums->rows * chunk / sums->chunks;
}

typedef struct fold {
    const row_sums *sums;
    const float *partials;
    void *gradient;
    z3d_dtype dtype;
    bool accumulate;
} fold;

static inline void fold_columns(const void *context, int64_t first, int64_t end) {
    const fold *f = context;
    for (int64_t i = first; i < end; i += TILE) {
        const int64_t n = min_int64(TILE, end - i);
        float sum[TILE];
        memcpy(sum, f->partials + i, (size_t)n * sizeof *sum);
        for (int64_t chunk = 1; chunk < f->sums->chunks; chunk++) {
            const float *partial = f->partials + chunk * f->sums->stride + i;
#pragma omp simd
            for (int64_t j = 0; j < n; j++) sum[j] += partial[j];
        }
        store_sum(sum, f->gradient, f->dtype, f->accumulate, i, n);
    }
}

/* body sums the rows of some chunks. gradient[cols] = (accumulate ? gradient : 0) + the sum over
 * the chunks; second: the same for a second sum, or NULL. */
static inline void sum_rows(z3d_cpu *cpu, const void *kernel, int64_t rows, int64_t cols,
                            block_body body, void *gradient, void *second, z3d_dtype dtype,
                            bool accumulate) {
    const row_sums sums = {.kernel = kernel,
                           .partials = (float *)(void *)cpu->scratch,
                           .rows = rows,
                           .cols = cols,
                           .chunks = z3d_row_chunks(rows),
                           .stride = z3d_partial_stride(cols)};
    for_blocks(cpu, sums.chunks, 1, rows * cols / sums.chunks, body, &sums);
    const fold folds[] = {
        {&sums, sums.partials, gradient, dtype, accumulate},
        {&sums, sums.partials + sums.chunks * sums.stride, second, dtype, accumulate}};
    for (int i = 0; i < (second ? 2 : 1); i++)
        for_blocks(cpu, cols, 256, sums.chunks, fold_columns, &folds[i]);
}

#endif
