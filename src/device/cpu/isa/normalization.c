/* Layer normalization. */
#include "src/device/cpu/isa/lanes.h"
#include "src/device/cpu/isa/partials.h"

/* Mean and 1 / standard deviation of a row, in two passes: no cancellation. */
static void row_statistics(const z3d_layernorm_forward *norm, int64_t row, float *mean_out,
                           float *rstd_out) {
    const int64_t cols = norm->cols;
    float tile[TILE], square[TILE];
    float sum = 0.0f;
    for (int64_t column = 0; column < cols; column += TILE) {
        const int64_t n = min_int64(TILE, cols - column);
        sum += sum_tile(load_tile(tile, norm->x, norm->dtype, row * cols + column, n), n);
    }
    const float mean = sum / (float)cols;
    float sum_squares = 0.0f;
    for (int64_t column = 0; column < cols; column += TILE) {
        const int64_t n = min_int64(TILE, cols - column);
        const float *x = load_tile(tile, norm->x, norm->dtype, row * cols + column, n);
#pragma omp simd
        for (int64_t j = 0; j < n; j++) square[j] = (x[j] - mean) * (x[j] - mean);
        sum_squares += sum_tile(square, n);
    }
    *mean_out = mean;
    *rstd_out = 1.0f / sqrtf(sum_squares / (float)cols + norm->epsilon);
}

static void forward_rows(const void *context, int64_t first, int64_t end) {
    const z3d_layernorm_forward *norm = context;
    const int64_t cols = norm->cols;
    for (int64_t row = first; row < end; row++) {
        float mean, rstd;
        row_statistics(norm, row, &mean, &rstd);
        norm->mean[row] = mean;
        norm->rstd[row] = rstd;
        for (int64_t column = 0; column < cols; column += TILE) {
            const int64_t n = min_int64(TILE, cols - column), i = row * cols + column;
            float x_tile[TILE], weight_tile[TILE], bias_tile[TILE];
            const float *x = load_tile(x_tile, norm->x, norm->dtype, i, n);
            const float *weight = load_tile(weight_tile, norm->weight, norm->dtype, column, n);
            const float *bias = load_tile(bias_tile, norm->bias, norm->dtype, column, n);
            float *y = open_tile(x_tile, norm->y, norm->dtype, i);
#pragma omp simd
            for (int64_t j = 0; j < n; j++) y[j] = (x[j] - mean) * rstd * weight[j] + bias[j];
            close_tile(y, norm->y, norm->dtype, i, n);
        }
    }
}

KERNEL_BY_ROWS(layernorm_forward, forward_rows)

/* Backward: with g = dy * weight and x^ = (x - mean) * rstd,
 * dx = rstd * (g - mean(g) - x^ * mean(g x^)). Weight and bias gradient are sums over rows. */

/* Adds one row to the column sums; computes mean(g) and mean(g x^). */
static void backward_sums(const z3d_layernorm_backward *norm, int64_t row, float *weight_sum,
                          float *bias_sum, float *mean_g, float *mean_gx) {
    const int64_t cols = norm->cols;
    const float mean = norm->mean[row], rstd = norm->rstd[row];
    float sum_g = 0.0f, sum_gx = 0.0f;
    for (int64_t column = 0; column < cols; column += TILE) {
        const int64_t n = min_int64(TILE, cols - column), i = row * cols + column;
        float x_tile[TILE], dy_tile[TILE], weight_tile[TILE], g[TILE], gx[TILE];
        const float *x = load_tile(x_tile, norm->x, norm->dtype, i, n);
        const float *dy = load_tile(dy_tile, norm->dy, norm->dtype, i, n);
        const float *weight = load_tile(weight_tile, norm->weight, norm->dtype, column, n);
        float *restrict weights = weight_sum + column, *restrict biases = bias_sum + column;
#pragma omp simd
        for (int64_t j = 0; j < n; j++) {
            float normalized = (x[j] - mean) * rstd;
            weights[j] += dy[j] * normalized;
            biases[j] += dy[j];
            g[j] = dy[j] * weight[j];
            gx[j] = g[j] * normalized;
        }
        sum_g += sum_tile(g, n);
        sum_gx += sum_tile(gx, n);
    }
    *mean_g = sum_g / (float)cols;
    *mean_gx = sum_gx / (float)cols;
}

static void backward_input(const z3d_layernorm_backward *norm, int64_t row, float mean_g,
                           float mean_gx) {
    const int64_t cols = norm->cols;
    const float mean = norm->mean[row], rstd = norm->rstd[row];
    for (int64_t column = 0; column < cols; column += TILE) {
        const int64_t n = min_int64(TILE, cols - column), i = row * cols + column;
        float x_tile[TILE], dy_tile[TILE], weight_tile[TILE], add_tile[TILE];
        const float *x = load_tile(x_tile, norm->x, norm->dtype, i, n);
        const float *dy = load_tile(dy_tile, norm->dy, norm->dtype, i, n);
        const float *weight = load_tile(weight_tile, norm->weight, norm->dtype, column, n);
        float *dx = open_tile(x_tile, norm->dx, norm->dtype, i);
        if (norm->add_to) {
            const float *add = load_tile(add_tile, norm->add_to, norm->dtype, i, n);
#pragma omp simd
            for (int64_t j = 0; j < n; j++) {
                float normalized = (x[j] - mean) * rstd;
                dx[j] = add[j] + rstd * (dy[j] * weight[j] - mean_g - normalized * mean_gx);
            }
        } else {
#pragma omp simd
            for (int64_t j = 0; j < n; j++) {
                float normalized = (x[j] - mean) * rstd;
                dx[j] = rstd * (dy[j] * weight[j] - mean_g - normalized * mean_gx);
            }
        }
        close_tile(dx, norm->dx, norm->dtype, i, n);
    }
}

static void backward_chunks(const void *context, int64_t first, int64_t end) {
    const row_sums *sums = context;
    const z3d_layernorm_backward *norm = sums->kernel;
    for (int64_t chunk = first; chunk < end; chunk++) {
        float *weight_sum = sums->partials + chunk * sums->stride;
        float *bias_sum = weight_sum + sums->chunks * sums->stride;
        memset(weight_sum, 0, (size_t)norm->cols * sizeof *weight_sum);
        memset(bias_sum, 0, (size_t)norm->cols * sizeof *bias_sum);
        const int64_t last = first_row(sums, chunk + 1);
        for (int64_t row = first_row(sums, chunk); row < last; row++) {
            float mean_g, mean_gx;
            backward_sums(norm, row, weight_sum, bias_sum, &mean_g, &mean_gx);
            backward_input(norm, row, mean_g, mean_gx);
        }
    }
}

KERNEL_OF_TYPES(layernorm_backward, dtype, gradient_dtype,
                sum_rows(cpu, kernel, kernel->rows, kernel->cols, backward_chunks,
                         kernel->weight_gradient, kernel->bias_gradient, kernel->gradient_dtype,
                         kernel->accumulate))
