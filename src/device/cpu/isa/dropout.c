/* Dropout with bias and residual; dropout.h decides what is dropped. Its backward is the same
 * without them. */
#include "src/device/cpu/isa/isa.h"
/* After isa.h, which turns off a warning. */
#include "src/device/cpu/isa/dropout.h"

typedef struct forward {
    const z3d_dropout_forward *kernel;
    z3d_dropout_rule rule;
} forward;

static void forward_rows(const void *context, int64_t first, int64_t end) {
    const forward *f = context;
    const z3d_dropout_forward *kernel = f->kernel;
    const int64_t cols = kernel->cols;
    for (int64_t row = first; row < end; row++)
        for (int64_t column = 0; column < cols; column += TILE) {
            const int64_t n = min_int64(TILE, cols - column), i = row * cols + column;
            float sum[TILE], tile[TILE], mask[TILE];
            const float *x = load_tile(tile, kernel->x, kernel->dtype, i, n);
            memcpy(sum, x, (size_t)n * sizeof *sum);
            if (kernel->bias) {
                const float *bias = load_tile(tile, kernel->bias, kernel->dtype, column, n);
#pragma omp simd
                for (int64_t j = 0; j < n; j++) sum[j] += bias[j];
            }
            if (kernel->dropout.p > 0.0f) {
                const int64_t of_batch = kernel->first + row;
                z3d_dropout_mask(&f->rule, of_batch / kernel->seq, 0, of_batch % kernel->seq,
                                 column, n, mask);
#pragma omp simd
                for (int64_t j = 0; j < n; j++) sum[j] *= mask[j];
            }
            if (kernel->residual) {
                const float *residual = load_tile(tile, kernel->residual, kernel->dtype, i, n);
#pragma omp simd
                for (int64_t j = 0; j < n; j++) sum[j] += residual[j];
            }
            narrow(element_to_write(kernel->y, kernel->dtype, i), kernel->dtype, sum, n);
        }
}

static z3d_status run(z3d_cpu *cpu, const z3d_dropout_forward *kernel) {
    forward f = {.kernel = kernel};
    if (kernel->dropout.p > 0.0f) f.rule = z3d_dropout_rule_of(&kernel->dropout);
    for_rows(cpu, kernel->rows, kernel->cols, forward_rows, &f);
    return Z3D_OK;
}

z3d_status Z3D_CPU_NAME(dropout_forward)(z3d_cpu *cpu, const z3d_kernel *kernel) {
    REQUIRE_FLOAT(dropout_forward, kernel->as.dropout_forward.dtype);
    return run(cpu, &kernel->as.dropout_forward);
}

z3d_status Z3D_CPU_NAME(dropout_backward)(z3d_cpu *cpu, const z3d_kernel *kernel) {
    const z3d_dropout_backward *k = &kernel->as.dropout_backward;
    REQUIRE_FLOAT(dropout_backward, k->dtype);
    if (!(k->dropout.p > 0.0f)) { /* a copy of the bytes, NaNs too */
        if (k->dx == k->dy) return Z3D_OK;
        const z3d_cast copy = {.destination = k->dx,
                               .source = k->dy,
                               .count = k->rows * k->cols,
                               .destination_dtype = k->dtype,
                               .source_dtype = k->dtype};
        return Z3D_CPU_NAME(cast)(cpu, &(z3d_kernel){.kind = Z3D_KERNEL_cast, .as.cast = copy});
    }
    return run(cpu, &(z3d_dropout_forward){.x = k->dy,
                                           .y = k->dx,
                                           .rows = k->rows,
                                           .first = k->first,
                                           .seq = k->seq,
                                           .cols = k->cols,
                                           .dtype = k->dtype,
                                           .dropout = k->dropout});
}
