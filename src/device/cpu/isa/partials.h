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
        float sum[TILE], old_tile[TILE];
        memcpy(sum, f->partials + i, (size_t)n * sizeof *sum);
        for (int64_t chunk = 1; chunk < f->chunks; chunk++) {
            const float *partial = f->partials + chunk * f->stride + i;
#pragma omp simd
            for (int64_t j = 0; j < n; j++) sum[j] += partial[j];
        }
        if (f->accumulate) {
            const float *old = load_tile(old_tile, f->gradient, f->dtype, i, n);
#pragma omp simd
            for (int64_t j = 0; j < n; j++) sum[j] += old[j];
        }
        narrow(element_to_write(f->gradient, f->dtype, i), f->dtype, sum, n);
    }
}

static inline void fold_partials(z3d_cpu *cpu, const fold *f) {
    for_blocks(cpu, f->cols, 256, f->chunks, fold_columns, f);
}

#endif
