/* Vocab-parallel softmax cross entropy: row maxima, sums of exponentials, the loss, the gradient.
 */
#include "src/device/cpu/isa/isa.h"
#include "src/device/cpu/isa/lanes.h"

/* The maximum of x[n] and `largest`. A NaN does not show in the maximum; it makes the sum of
 * exponentials NaN. */
static float max_tile(const float *restrict x, int64_t n, float largest) {
    float lane[LANES];
    for (int j = 0; j < LANES; j++) lane[j] = largest;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
#pragma omp simd
        for (int j = 0; j < LANES; j++) lane[j] = x[i + j] > lane[j] ? x[i + j] : lane[j];
    }
    for (; i < n; i++) lane[0] = x[i] > lane[0] ? x[i] : lane[0];
    for (int j = 0; j < LANES; j++) largest = lane[j] > largest ? lane[j] : largest;
    return largest;
}

static void max_rows(const void *context, int64_t first, int64_t end) {
    const z3d_cross_entropy_max *kernel = context;
    for (int64_t row = first; row < end; row++) {
        float largest = -INFINITY;
        for (int64_t column = 0; column < kernel->valid; column += TILE) {
            const int64_t n = min_int64(TILE, kernel->valid - column);
            float tile[TILE];
            largest = max_tile(
                load_tile(tile, kernel->logits, kernel->dtype, row * kernel->cols + column, n), n,
                largest);
        }
        kernel->max_out[row] = largest;
    }
}

KERNEL_BY_ROWS(cross_entropy_max, max_rows)

/* The column of this rank that holds `target`, or -1. */
static inline int64_t target_column(int32_t target, int64_t first, int64_t valid) {
    const int64_t column = (int64_t)target - first;
    return target >= 0 && column >= 0 && column < valid ? column : -1;
}

static void sum_rows(const void *context, int64_t first, int64_t end) {
    const z3d_cross_entropy_sum *kernel = context;
    for (int64_t row = first; row < end; row++) {
        const float max = kernel->max[row];
        const int64_t target = target_column(kernel->targets[row], kernel->first, kernel->valid);
        double sum = 0.0;
        float target_logit = 0.0f;
        for (int64_t column = 0; column < kernel->valid; column += TILE) {
            const int64_t n = min_int64(TILE, kernel->valid - column);
            float tile[TILE], e[TILE];
            const float *x =
                load_tile(tile, kernel->logits, kernel->dtype, row * kernel->cols + column, n);
#pragma omp simd
            for (int64_t j = 0; j < n; j++) e[j] = z3d_exp(x[j] - max);
            sum += (double)sum_tile(e, n);
            if (target >= column && target < column + n) target_logit = x[target - column] - max;
        }
        kernel->sums[row] = (float)sum;
        kernel->sums[kernel->rows + row] = target_logit;
    }
}

KERNEL_BY_ROWS(cross_entropy_sum, sum_rows)

/* The loss: rows are cut into at most this many chunks. */
enum { LOSS_CHUNKS = 64 };

typedef struct loss {
    const z3d_cross_entropy_loss *kernel;
    int64_t chunk;
    double *sums, *counts; /* by chunk */
} loss;

static void loss_rows(const void *context, int64_t first, int64_t end) {
    const loss *l = context;
    const z3d_cross_entropy_loss *kernel = l->kernel;
    double sum = 0.0, count = 0.0;
    for (int64_t row = first; row < end; row++)
        if (kernel->targets[row] >= 0) {
            sum += log((double)kernel->sums[row]) - (double)kernel->sums[kernel->rows + row];
            count += 1.0;
        }
    l->sums[first / l->chunk] = sum;
    l->counts[first / l->chunk] = count;
}

z3d_status Z3D_CPU_NAME(cross_entropy_loss)(z3d_cpu *cpu, const z3d_kernel *kernel) {
    const z3d_cross_entropy_loss *cross = &kernel->as.cross_entropy_loss;
    double sums[LOSS_CHUNKS], counts[LOSS_CHUNKS];
    const int64_t chunk =
        cross->rows < LOSS_CHUNKS * 64 ? 64 : (cross->rows + LOSS_CHUNKS - 1) / LOSS_CHUNKS;
    const loss l = {.kernel = cross, .chunk = chunk, .sums = sums, .counts = counts};
    for_blocks(cpu, cross->rows, chunk, 16, loss_rows, &l);
    double sum = 0.0, count = 0.0;
    for (int64_t c = 0; c < (cross->rows + chunk - 1) / chunk; c++) {
        sum += sums[c];
        count += counts[c];
    }
    cross->state->loss_sum += sum;
    cross->state->valid_targets += count;
    return Z3D_OK;
}

static void gradient_row(const z3d_cross_entropy_backward *kernel, int64_t row) {
    const float max = kernel->max[row], seed = kernel->state->gradient_seed;
    const float factor = seed / kernel->sums[row];
    const int64_t target = target_column(kernel->targets[row], kernel->first, kernel->valid);
    for (int64_t column = 0; column < kernel->valid; column += TILE) {
        const int64_t n = min_int64(TILE, kernel->valid - column), i = row * kernel->cols + column;
        float tile[TILE];
        const float *x = load_tile(tile, kernel->logits, kernel->dtype, i, n);
        float *gradient = open_tile(tile, kernel->logits, kernel->dtype, i);
#pragma omp simd
        for (int64_t j = 0; j < n; j++) gradient[j] = z3d_exp(x[j] - max) * factor;
        if (target >= column && target < column + n) gradient[target - column] -= seed;
        close_tile(gradient, kernel->logits, kernel->dtype, i, n);
    }
}

static void gradient_rows(const void *context, int64_t first, int64_t end) {
    const z3d_cross_entropy_backward *kernel = context;
    const size_t size = z3d_dtype_size(kernel->dtype);
    for (int64_t row = first; row < end; row++) {
        const bool ignored = kernel->targets[row] < 0;
        const int64_t zero_from = ignored ? 0 : kernel->valid;
        if (!ignored) gradient_row(kernel, row);
        memset(element_to_write(kernel->logits, kernel->dtype, row * kernel->cols + zero_from), 0,
               (size_t)(kernel->cols - zero_from) * size);
    }
}

KERNEL_BY_ROWS(cross_entropy_backward, gradient_rows)
