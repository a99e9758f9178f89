/* Root mean square normalization (Zhang and Sennrich, 1910.07467), of whole rows or of the heads
 * within them. A vector is `cols` elements: vector v is head v % heads of row v / heads. */
#include "src/device/cpu/isa/lanes.h"
#include "src/device/cpu/isa/partials.h"

static int64_t vector_at(int64_t v, int64_t heads, int64_t cols, int64_t stride) {
    return v / heads * stride + v % heads * cols;
}

static float reciprocal_of_rms(const z3d_rmsnorm_forward *norm, int64_t at) {
    float tile[TILE], sum = 0.0f;
    for (int64_t column = 0; column < norm->cols; column += TILE) {
        const int64_t n = min_int64(TILE, norm->cols - column);
        const float *x = load_tile(tile, norm->x, norm->dtype, at + column, n);
        sum += dot_tile(x, x, n);
    }
    return 1.0f / sqrtf(sum / (float)norm->cols + norm->epsilon);
}

static void forward_vectors(const void *context, int64_t first, int64_t end) {
    const z3d_rmsnorm_forward *norm = context;
    const int64_t cols = norm->cols;
    for (int64_t v = first; v < end; v++) {
        const int64_t at = vector_at(v, norm->heads, cols, norm->x_stride);
        const int64_t to = vector_at(v, norm->heads, cols, norm->y_stride);
        const float rstd = reciprocal_of_rms(norm, at);
        if (norm->rstd) norm->rstd[v] = rstd;
        for (int64_t column = 0; column < cols; column += TILE) {
            const int64_t n = min_int64(TILE, cols - column);
            float x_tile[TILE], weight_tile[TILE];
            const float *x = load_tile(x_tile, norm->x, norm->dtype, at + column, n);
            const float *weight = load_tile(weight_tile, norm->weight, norm->dtype, column, n);
            float *y = open_tile(x_tile, norm->y, norm->dtype, to + column);
#pragma omp simd
            for (int64_t j = 0; j < n; j++) y[j] = x[j] * rstd * weight[j];
            close_tile(y, norm->y, norm->dtype, to + column, n);
        }
    }
}

KERNEL_OF_BLOCKS(rmsnorm_forward,
                 for_rows(cpu, kernel->rows * kernel->heads, kernel->cols, forward_vectors, kernel))

/* Backward: with g = dy * weight and x^ = x * rstd, dx = rstd * (g - x^ * mean(g x^)). The weight's
 * gradient is a sum over vectors. */

/* Adds one vector to the weight's gradient; returns mean(g x^). */
static float backward_sums(const z3d_rmsnorm_backward *norm, int64_t v, float *weight_sum) {
    const int64_t cols = norm->cols, at = vector_at(v, norm->heads, cols, norm->x_stride);
    const int64_t dy_at = vector_at(v, norm->heads, cols, norm->y_stride);
    const float rstd = norm->rstd[v];
    float sum = 0.0f;
    for (int64_t column = 0; column < cols; column += TILE) {
        const int64_t n = min_int64(TILE, cols - column);
        float x_tile[TILE], dy_tile[TILE], weight_tile[TILE], product[TILE];
        const float *x = load_tile(x_tile, norm->x, norm->dtype, at + column, n);
        const float *dy = load_tile(dy_tile, norm->dy, norm->dtype, dy_at + column, n);
        const float *weight = load_tile(weight_tile, norm->weight, norm->dtype, column, n);
        float *restrict weights = weight_sum + column;
#pragma omp simd
        for (int64_t j = 0; j < n; j++) {
            product[j] = dy[j] * (x[j] * rstd);
            weights[j] += product[j];
        }
        sum += dot_tile(product, weight, n);
    }
    return sum / (float)cols;
}

static void backward_input(const z3d_rmsnorm_backward *norm, int64_t v, float mean_gx) {
    const int64_t cols = norm->cols, at = vector_at(v, norm->heads, cols, norm->x_stride);
    const int64_t dy_at = vector_at(v, norm->heads, cols, norm->y_stride);
    const int64_t to = vector_at(v, norm->heads, cols, norm->dx_stride);
    const float rstd = norm->rstd[v], factor = rstd * mean_gx;
    for (int64_t column = 0; column < cols; column += TILE) {
        const int64_t n = min_int64(TILE, cols - column);
        float x_tile[TILE], dy_tile[TILE], weight_tile[TILE], add_tile[TILE];
        const float *x = load_tile(x_tile, norm->x, norm->dtype, at + column, n);
        const float *dy = load_tile(dy_tile, norm->dy, norm->dtype, dy_at + column, n);
        const float *weight = load_tile(weight_tile, norm->weight, norm->dtype, column, n);
        float *dx = open_tile(x_tile, norm->dx, norm->dtype, to + column);
        if (norm->add_to) {
            const float *add = load_tile(add_tile, norm->add_to, norm->dtype, to + column, n);
#pragma omp simd
            for (int64_t j = 0; j < n; j++)
                dx[j] = add[j] + rstd * (dy[j] * weight[j] - x[j] * factor);
        } else {
#pragma omp simd
            for (int64_t j = 0; j < n; j++) dx[j] = rstd * (dy[j] * weight[j] - x[j] * factor);
        }
        close_tile(dx, norm->dx, norm->dtype, to + column, n);
    }
}

static void backward_chunks(const void *context, int64_t first, int64_t end) {
    const row_sums *sums = context;
    for (int64_t chunk = first; chunk < end; chunk++) {
        float *weight_sum = sums->partials + chunk * sums->stride;
        memset(weight_sum, 0, (size_t)sums->cols * sizeof *weight_sum);
        const int64_t last = first_row(sums, chunk + 1);
        for (int64_t v = first_row(sums, chunk); v < last; v++)
            backward_input(sums->kernel, v, backward_sums(sums->kernel, v, weight_sum));
    }
}

KERNEL_OF_TYPES(rmsnorm_backward, dtype, gradient_dtype,
                sum_rows(cpu, kernel, kernel->rows * kernel->heads, kernel->cols, backward_chunks,
                         kernel->weight_gradient, NULL, kernel->gradient_dtype, kernel->accumulate))
