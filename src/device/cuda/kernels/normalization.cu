// Layer normalization, and rmsnorm (without mean and bias): forward with a warp per vector,
// backward with a block per chunk of vectors.
#include "src/device/cuda/kernels/fold.cuh"

namespace {

// Where vectors of `cols` elements lie: a row has `heads` of them (layernorm: one).
struct vectors {
    int64_t count, cols, heads, x_stride, y_stride, dx_stride;
    __device__ int64_t at(int64_t index, int64_t stride) const {
        return heads == 1 ? index * stride : index / heads * stride + index % heads * cols;
    }
};

constexpr int FORWARD_WARPS = 4;

// Mean first, then the squares around it: no cancellation. The second and third time a vector is
// read it comes from the first-level cache. RMS: the mean counts as 0.
template <bool RMS, int N, class T>
__global__ void __launch_bounds__(FORWARD_WARPS *WARP)
    forward_kernel(vectors all, const T *x, const T *weight, const T *bias, T *y, float *mean_out,
                   float *rstd_out, float epsilon) {
    const int64_t index = (int64_t)blockIdx.x * FORWARD_WARPS + threadIdx.x / WARP;
    if (index >= all.count) return;
    const int64_t first = threadIdx.x % WARP * N, cols = all.cols;
    x += all.at(index, all.x_stride);
    y += all.at(index, all.y_stride);
    float v[N], sum = 0.0f, squares = 0.0f;
    for (int64_t column = first; column < cols && !RMS; column += WARP * N) {
        load(v, x + column);
#pragma unroll
        for (int i = 0; i < N; i++) sum += v[i];
    }
    const float mean = RMS ? 0.0f : warp_sum(sum) / (float)cols;
    for (int64_t column = first; column < cols; column += WARP * N) {
        load(v, x + column);
#pragma unroll
        for (int i = 0; i < N; i++) squares += (v[i] - mean) * (v[i] - mean);
    }
    const float rstd = 1.0f / sqrtf(warp_sum(squares) / (float)cols + epsilon);
    for (int64_t column = first; column < cols; column += WARP * N) {
        float w[N], b[N] = {0};
        load(v, x + column);
        load(w, weight + column);
        if (!RMS) load(b, bias + column);
#pragma unroll
        for (int i = 0; i < N; i++) v[i] = (v[i] - mean) * rstd * w[i] + b[i];
        store(y + column, v);
    }
    if (threadIdx.x % WARP > 0) return;
    if (!RMS) mean_out[index] = mean;
    if (rstd_out) rstd_out[index] = rstd;
}

struct forward_operands {
    const void *x, *weight, *bias;
    void *y;
    float *mean, *rstd;
};

template <bool RMS>
z3d_status forward_vectors(const z3d_cuda_lane *lane, const char *name, const vectors &all,
                           const forward_operands &of, float epsilon, z3d_dtype dtype) {
    if (all.count <= 0) return Z3D_OK;
    const bool wide = all.cols % WIDE == 0 && all.x_stride % WIDE == 0 &&
                      all.y_stride % WIDE == 0 && aligned(of.x, of.weight, of.bias, of.y);
    return with_type(dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        return with_width(wide, [&](auto width) {
            constexpr int N = decltype(width)::value;
            return launch(lane, name, divide_up(all.count, FORWARD_WARPS),
                          dim3(FORWARD_WARPS * WARP), 0, forward_kernel<RMS, N, T>, all,
                          static_cast<const T *>(of.x), static_cast<const T *>(of.weight),
                          static_cast<const T *>(of.bias), static_cast<T *>(of.y), of.mean, of.rstd,
                          epsilon);
        });
    });
}

} // namespace

z3d_status z3d_cuda_layernorm_forward(const z3d_cuda_lane *lane,
                                      const z3d_layernorm_forward *kernel) {
    REQUIRE_FLOAT(layernorm_forward, kernel->dtype);
    const int64_t cols = kernel->cols;
    return forward_vectors<false>(
        lane, "layernorm_forward", {kernel->rows, cols, 1, cols, cols, cols},
        {kernel->x, kernel->weight, kernel->bias, kernel->y, kernel->mean, kernel->rstd},
        kernel->epsilon, kernel->dtype);
}

z3d_status z3d_cuda_rmsnorm_forward(const z3d_cuda_lane *lane, const z3d_rmsnorm_forward *kernel) {
    REQUIRE_FLOAT(rmsnorm_forward, kernel->dtype);
    return forward_vectors<true>(
        lane, "rmsnorm_forward",
        {kernel->rows * kernel->heads, kernel->cols, kernel->heads, kernel->x_stride,
         kernel->y_stride, 0},
        {kernel->x, kernel->weight, nullptr, kernel->y, nullptr, kernel->rstd}, kernel->epsilon,
        kernel->dtype);
}

namespace {

constexpr int BACKWARD_THREADS = 256, BACKWARD_WARPS = BACKWARD_THREADS / WARP;

// What a vector's backward reads.
template <class T> struct backward_inputs {
    const T *dy, *x, *weight, *add_to; // add_to may be NULL, or dx
    const float *mean, *rstd;
};

// With g = dy * weight and x^ = (x - mean) * rstd: dx = rstd * (g - mean(g) - x^ * mean(g x^));
// RMS: without mean and mean(g). Columns have fixed threads, which keep their sums over the chunk's
// vectors in shared memory; a vector costs one barrier, since the slots of its two sums alternate.
template <bool RMS, int N, class T>
__global__ void __launch_bounds__(BACKWARD_THREADS)
    backward_kernel(vectors all, backward_inputs<T> in, T *dx, float *partials) {
    const int64_t cols = all.cols, count = all.count;
    float *weight_sum = shared_memory<float>(), *bias_sum = weight_sum + cols;
    float *slots = RMS ? bias_sum : bias_sum + cols; // [2][2][BACKWARD_WARPS]
    const int64_t chunks = gridDim.x, chunk = blockIdx.x, first = threadIdx.x * N;
    const int64_t step = BACKWARD_THREADS * N;
    for (int64_t column = threadIdx.x; column < (RMS ? 1 : 2) * cols; column += BACKWARD_THREADS)
        weight_sum[column] = 0.0f;
    __syncthreads();
    for (int64_t index = count * chunk / chunks; index < count * (chunk + 1) / chunks; index++) {
        const T *from = in.x + all.at(index, all.x_stride);
        const T *dy_from = in.dy + all.at(index, all.y_stride);
        const int64_t to = all.at(index, all.dx_stride);
        const float mean = RMS ? 0.0f : in.mean[index], rstd = in.rstd[index];
        float x[N], dy[N], weight[N], sum_g = 0.0f, sum_gx = 0.0f;
        for (int64_t column = first; column < cols; column += step) {
            load(x, from + column);
            load(dy, dy_from + column);
            load(weight, in.weight + column);
#pragma unroll
            for (int i = 0; i < N; i++) {
                const float normalized = (x[i] - mean) * rstd, g = dy[i] * weight[i];
                weight_sum[column + i] += dy[i] * normalized;
                if (!RMS) bias_sum[column + i] += dy[i];
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
        const float mean_g = RMS ? 0.0f : sum_g / (float)cols, mean_gx = sum_gx / (float)cols;
        for (int64_t column = first; column < cols; column += step) {
            float add[N] = {0};
            load(x, from + column);
            load(dy, dy_from + column);
            load(weight, in.weight + column);
            if (in.add_to) load(add, in.add_to + to + column);
#pragma unroll
            for (int i = 0; i < N; i++)
                add[i] += rstd * (dy[i] * weight[i] - mean_g - (x[i] - mean) * rstd * mean_gx);
            store(dx + to + column, add);
        }
        slots += (index - count * chunk / chunks) % 2 ? -2 * BACKWARD_WARPS : 2 * BACKWARD_WARPS;
    }
    __syncthreads();
    for (int64_t column = threadIdx.x; column < cols; column += BACKWARD_THREADS) {
        partials[chunk * cols + column] = weight_sum[column];
        if (!RMS) partials[(chunks + chunk) * cols + column] = bias_sum[column];
    }
}

// Leaves the chunks' sums for the weight, and behind them those for the bias, in scratch.
template <bool RMS, class Kernel>
z3d_status backward_vectors(const z3d_cuda_lane *lane, const char *name, const Kernel *kernel,
                            const float *mean, const vectors &all, int64_t chunks) {
    const bool wide = all.cols % WIDE == 0 && all.x_stride % WIDE == 0 &&
                      all.y_stride % WIDE == 0 && all.dx_stride % WIDE == 0 &&
                      aligned(kernel->dy, kernel->x, kernel->weight, kernel->add_to, kernel->dx);
    const size_t shared = (size_t)((RMS ? 1 : 2) * all.cols + 4 * BACKWARD_WARPS) * sizeof(float);
    return with_type(kernel->dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        const backward_inputs<T> in = {static_cast<const T *>(kernel->dy),
                                       static_cast<const T *>(kernel->x),
                                       static_cast<const T *>(kernel->weight),
                                       static_cast<const T *>(kernel->add_to),
                                       mean,
                                       kernel->rstd};
        return with_width(wide, [&](auto width) {
            constexpr int N = decltype(width)::value;
            return launch(lane, name, chunks, dim3(BACKWARD_THREADS), shared,
                          backward_kernel<RMS, N, T>, all, in, static_cast<T *>(kernel->dx),
                          static_cast<float *>(lane->scratch));
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
    const float *partials = static_cast<const float *>(lane->scratch);
    Z3D_TRY(backward_vectors<false>(lane, "layernorm_backward", kernel, kernel->mean,
                                    {kernel->rows, cols, 1, cols, cols, cols}, chunks));
    Z3D_TRY(fold(lane, "layernorm_backward", partials, chunks, cols, kernel->weight_gradient,
                 kernel->gradient_dtype, kernel->accumulate));
    return fold(lane, "layernorm_backward", partials + chunks * cols, chunks, cols,
                kernel->bias_gradient, kernel->gradient_dtype, kernel->accumulate);
}

z3d_status z3d_cuda_rmsnorm_backward(const z3d_cuda_lane *lane,
                                     const z3d_rmsnorm_backward *kernel) {
    REQUIRE_FLOAT(rmsnorm_backward, kernel->dtype);
    REQUIRE_FLOAT(rmsnorm_backward, kernel->gradient_dtype);
    if (kernel->cols <= 0) return Z3D_OK;
    const int64_t count = kernel->rows * kernel->heads, cols = kernel->cols;
    const int64_t chunks = z3d_cuda_row_chunks(count);
    REQUIRE_SCRATCH(rmsnorm_backward, lane, chunks * cols * (int64_t)sizeof(float));
    Z3D_TRY(backward_vectors<true>(
        lane, "rmsnorm_backward", kernel, nullptr,
        {count, cols, kernel->heads, kernel->x_stride, kernel->y_stride, kernel->dx_stride},
        chunks));
    return fold(lane, "rmsnorm_backward", static_cast<const float *>(lane->scratch), chunks, cols,
                kernel->weight_gradient, kernel->gradient_dtype, kernel->accumulate);
}
