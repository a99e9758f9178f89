/* Sums over rows in two steps: each fixed chunk of rows leaves a row of partial sums in scratch,
 * then the chunks are added up in order. */
#ifndef ZERO3D_DEVICE_CPU_ISA_PARTIALS_H
#define ZERO3D_DEVICE_CPU_ISA_PARTIALS_H

#include "src/device/cpu/isa/isa.h"

/* gradient[cols] = (accumulate ? gradient : 0) + sum of partials over chunks. */
typedef struct fold {
    const float *partials;
    int64_t chunks, stride, cols;
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
        for (int64_t chunk = 1; chunk < f->chunks; chunk++) {
            const float *partial = f->partials + chunk * f->stride + i;
#pragma omp simd
            for (int64_t j = 0; j < n; j++) sum[j] += partial[j];
        }
        store_sum(sum, f->gradient, f->dtype, f->accumulate, i, n);
    }
}

/* The chunks' rows of partials are z3d_partial_stride(cols) elements apart. */
static inline void fold_partials(z3d_cpu *cpu, const float *partials, int64_t chunks, int64_t cols,
                                 void *gradient, z3d_dtype dtype, bool accumulate) {
    const int64_t stride = z3d_partial_stride(cols);
    const fold f = {partials, chunks, stride, cols, gradient, dtype, accumulate};
    for_blocks(cpu, cols, 256, chunks, fold_columns, &f);
}

#endif
