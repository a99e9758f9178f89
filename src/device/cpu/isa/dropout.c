/* Dropout with bias and residual, and its backward. dropout.h decides what is dropped. */
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

z3d_status Z3D_CPU_NAME(dropout_forward)(z3d_cpu *cpu, const z3d_kernel *kernel) {
    forward f = {.kernel = &kernel->as.dropout_forward};
    REQUIRE_FLOAT(dropout_forward, f.kernel->dtype);
    if (f.kernel->dropout.p > 0.0f) f.rule = z3d_dropout_rule_of(&f.kernel->dropout);
    for_rows(cpu, f.kernel->rows, f.kernel->cols, forward_rows, &f);
    return Z3D_OK;
}

typedef struct backward {
    const z3d_dropout_backward *kernel;
    z3d_dropout_rule rule;
} backward;

static void backward_rows(const void *context, int64_t first, int64_t end) {
    const backward *b = context;
    const z3d_dropout_backward *kernel = b->kernel;
    const int64_t cols = kernel->cols;
    for (int64_t row = first; row < end; row++)
        for (int64_t column = 0; column < cols; column += TILE) {
            const int64_t n = min_int64(TILE, cols - column), i = row * cols + column;
            float dy_tile[TILE], dx_tile[TILE], mask[TILE];
            const float *dy = load_tile(dy_tile, kernel->dy, kernel->dtype, i, n);
            float *dx = open_tile(dx_tile, kernel->dx, kernel->dtype, i);
            const int64_t of_batch = kernel->first + row;
            z3d_dropout_mask(&b->rule, of_batch / kernel->seq, 0, of_batch % kernel->seq, column, n,
                             mask);
#pragma omp simd
            for (int64_t j = 0; j < n; j++) dx[j] = dy[j] * mask[j];
            close_tile(dx, kernel->dx, kernel->dtype, i, n);
        }
}

static void copy_rows(const void *context, int64_t first, int64_t end) {
    const z3d_dropout_backward *kernel = ((const backward *)context)->kernel;
    const int64_t cols = kernel->cols, size = (int64_t)z3d_dtype_size(kernel->dtype);
    memcpy(element_to_write(kernel->dx, kernel->dtype, first * cols),
           element(kernel->dy, kernel->dtype, first * cols), (size_t)((end - first) * cols * size));
}

z3d_status Z3D_CPU_NAME(dropout_backward)(z3d_cpu *cpu, const z3d_kernel *kernel) {
    backward b = {.kernel = &kernel->as.dropout_backward};
    REQUIRE_FLOAT(dropout_backward, b.kernel->dtype);
    if (b.kernel->dropout.p > 0.0f) {
        b.rule = z3d_dropout_rule_of(&b.kernel->dropout);
        for_rows(cpu, b.kernel->rows, b.kernel->cols, backward_rows, &b);
    } else if (b.kernel->dx != b.kernel->dy)
        for_rows(cpu, b.kernel->rows, b.kernel->cols, copy_rows, &b);
    return Z3D_OK;
}
