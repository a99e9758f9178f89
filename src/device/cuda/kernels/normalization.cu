// Layer normalization: forward with a warp per row, backward with a block per chunk of rows.
#include "src/device/cuda/kernels/fold.cuh"

namespace {

constexpr int FORWARD_WARPS = 4;

// Mean first, then the squares around it: no cancellation. The second and third time a row is read
// it comes from the first-level cache.
template <int N, class T>
__global__ void __launch_bounds__(FORWARD_WARPS *WARP)
    forward_kernel(const T *x, const T *weight, const T *bias, T *y, float *mean_out,
                   float *rstd_out, int64_t rows, int64_t cols, float epsilon) {
    const int64_t row = (int64_t)blockIdx.x * FORWARD_WARPS + threadIdx.x / WARP;
    if (row >= rows) return;
    const int64_t first = threadIdx.x % WARP * N;
    x += row * cols;
    y += row * cols;
    float v[N], sum = 0.0f, squares = 0.0f;
    for (int64_t column = first; column < cols; column += WARP * N) {
        load(v, x + column);
#pragma unroll
        for (int i = 0; i < N; i++) sum += v[i];
    }
    const float mean = warp_sum(sum) / (float)cols;
    for (int64_t column = first; column < cols; column += WARP * N) {
        load(v, x + column);
#pragma unroll
        for (int i = 0; i < N; i++) squares += (v[i] - mean) * (v[i] - mean);
    }
    const float rstd = 1.0f / sqrtf(warp_sum(squares) / (float)cols + epsilon);
    for (int64_t column = first; column < cols; column += WARP * N) {
        float w[N], b[N];
        load(v, x + column);
        load(w, weight + column);
        load(b, bias + column);
#pragma unroll
        for (int i = 0; i < N; i++) v[i] = (v[i] - mean) * rstd * w[i] + b[i];
        store(y + column, v);
    }
    if (threadIdx.x % WARP == 0) {
        mean_out[row] = mean;
        rstd_out[row] = rstd;
    }
}

} // namespace

z3d_status z3d_cuda_layernorm_forward(const z3d_cuda_lane *lane,
                                      const z3d_layernorm_forward *kernel) {
    REQUIRE_FLOAT(layernorm_forward, kernel->dtype);
    if (kernel->rows <= 0) return Z3D_OK;
    const bool wide =
        kernel->cols % WIDE == 0 && aligned(kernel->x, kernel->weight, kernel->bias, kernel->y);
    return with_type(kernel->dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        return with_width(wide, [&](auto width) {
            constexpr int N = decltype(width)::value;
            return launch(lane, "layernorm_forward", divide_up(kernel->rows, FORWARD_WARPS),
                          dim3(FORWARD_WARPS * WARP), 0, forward_kernel<N, T>,
                          static_cast<const T *>(kernel->x), static_cast<const T *>(kernel->weight),
                          static_cast<const T *>(kernel->bias), static_cast<T *>(kernel->y),
                          kernel->mean, kernel->rstd, kernel->rows, kernel->cols, kernel->epsilon);
        });
    });
}

namespace {

constexpr int BACKWARD_THREADS = 256, BACKWARD_WARPS = BACKWARD_THREADS / WARP;

// What a row's backward reads.
template <class T> struct backward_inputs {
    const T *dy, *x, *weight, *add_to; // add_to may be NULL, or dx
    const float *mean, *rstd;
};

// With g = dy * weight and x^ = (x - mean) * rstd: dx = rstd * (g - mean(g) - x^ * mean(g x^)).
// Columns have fixed threads, which keep their sums over the chunk's rows in shared memory; a row
// costs one barrier, since the slots of its two sums alternate.
template <int N, class T>
__global__ void __launch_bounds__(BACKWARD_THREADS)
    backward_kernel(backward_inputs<T> in, T *dx, float *partials, int64_t rows, int64_t cols) {
    float *weight_sum = shared_memory<float>(), *bias_sum = weight_sum + cols;
    float *slots = bias_sum + cols; // [2][2][BACKWARD_WARPS]
    const int64_t chunks = gridDim.x, chunk = blockIdx.x, first = threadIdx.x * N;
    const int64_t step = BACKWARD_THREADS * N;
    for (int64_t column = threadIdx.x; column < 2 * cols; column += BACKWARD_THREADS)
        weight_sum[column] = 0.0f;
    __syncthreads();
    for (int64_t row = rows * chunk / chunks; row < rows * (chunk + 1) / chunks; row++) {
        const float mean = in.mean[row], rstd = in.rstd[row];
        float x[N], dy[N], weight[N], sum_g = 0.0f, sum_gx = 0.0f;
        for (int64_t column = first; column < cols; column += step) {
            load(x, in.x + row * cols + column);
            load(dy, in.dy + row * cols + column);
            load(weight, in.weight + column);
#pragma unroll
            for (int i = 0; i < N; i++) {
                const float normalized = (x[i] - mean) * rstd, g = dy[i] * weight[i];
                weight_sum[column + i] += dy[i] * normalized;
                bias_sum[column + i] += dy[i];
                sum_g += g;
                sum_gx += g * normalized;
            }
        }
        sum_g = warp_sum(sum_g);
        sum_gx = warp_sum(sum_gx);
        if (threadIdx.x % WARP == 0) {
            slots[threadIdx.x / WARP] = sum_g;
            slots[BACKWARD_WARPS + threadIdx.x / WARP] = sum_gx;
        }
        __syncthreads();
        sum_g = sum_gx = 0.0f;
        for (int warp = 0; warp < BACKWARD_WARPS; warp++) {
            sum_g += slots[warp];
            sum_gx += slots[BACKWARD_WARPS + warp];
        }
        const float mean_g = sum_g / (float)cols, mean_gx = sum_gx / (float)cols;
        for (int64_t column = first; column < cols; column += step) {
            float add[N] = {0};
            load(x, in.x + row * cols + column);
            load(dy, in.dy + row * cols + column);
            load(weight, in.weight + column);
            if (in.add_to) load(add, in.add_to + row * cols + column);
#pragma unroll
            for (int i = 0; i < N; i++)
                add[i] += rstd * (dy[i] * weight[i] - mean_g - (x[i] - mean) * rstd * mean_gx);
            store(dx + row * cols + column, add);
        }
        slots += (row - rows * chunk / chunks) % 2 ? -2 * BACKWARD_WARPS : 2 * BACKWARD_WARPS;
    }
    __syncthreads();
    for (int64_t column = threadIdx.x; column < cols; column += BACKWARD_THREADS) {
        partials[chunk * cols + column] = weight_sum[column];
        partials[(chunks + chunk) * cols + column] = bias_sum[column];
    }
}

z3d_status backward_rows(const z3d_cuda_lane *lane, const z3d_layernorm_backward *kernel,
                         float *partials, int64_t chunks) {
    const bool wide = kernel->cols % WIDE == 0 &&
                      aligned(kernel->dy, kernel->x, kernel->weight, kernel->add_to, kernel->dx);
    const size_t shared = (size_t)(2 * kernel->cols + 4 * BACKWARD_WARPS) * sizeof(float);
    return with_type(kernel->dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        const backward_inputs<T> in = {static_cast<const T *>(kernel->dy),
                                       static_cast<const T *>(kernel->x),
                                       static_cast<const T *>(kernel->weight),
                                       static_cast<const T *>(kernel->add_to),
                                       kernel->mean,
                                       kernel->rstd};
        return with_width(wide, [&](auto width) {
            constexpr int N = decltype(width)::value;
            return launch(lane, "layernorm_backward", chunks, dim3(BACKWARD_THREADS), shared,
                          backward_kernel<N, T>, in, static_cast<T *>(kernel->dx), partials,
                          kernel->rows, kernel->cols);
        });
    });
}

} // namespace

z3d_status z3d_cuda_layernorm_backward(const z3d_cuda_lane *lane,
                                       const z3d_layernorm_backward *kernel) {
    REQUIRE_FLOAT(layernorm_backward, kernel->dtype);
    REQUIRE_FLOAT(layernorm_backward, kernel->gradient_dtype);
    if (kernel->cols <= 0) return Z3D_OK;
    const int64_t chunks = z3d_cuda_row_chunks(kernel->rows), cols = kernel->cols;
    REQUIRE_SCRATCH(layernorm_backward, lane, 2 * chunks * cols * (int64_t)sizeof(float));
    float *partials = static_cast<float *>(lane->scratch);
    Z3D_TRY(backward_rows(lane, kernel, partials, chunks));
    Z3D_TRY(fold(lane, "layernorm_backward", partials, chunks, cols, kernel->weight_gradient,
                 kernel->gradient_dtype, kernel->accumulate));
    return fold(lane, "layernorm_backward", partials + chunks * cols, chunks, cols,
                kernel->bias_gradient, kernel->gradient_dtype, kernel->accumulate);
}
