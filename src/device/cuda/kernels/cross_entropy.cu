// Vocab-parallel softmax cross entropy, a block per row. The logits stay in their type: each part
// reads them once, and the gradient takes their place. A rank that has all of them reads them
// twice: part 2 finds the largest, too.
#include "src/device/cuda/kernels/common.cuh"

namespace {

constexpr int THREADS = 256;

// Calls body.at<N>(column) on all of [0, end), N columns at a time where they are whole.
template <int N, class Body> __device__ inline void each_column(int64_t end, Body &body) {
    for (int64_t column = threadIdx.x * N; column < end; column += THREADS * N) {
        if (column + N <= end)
            body.template at<N>(column);
        else
            for (int64_t rest = column; rest < end; rest++) body.template at<1>(rest);
    }
}

template <class T> struct largest_body {
    const T *logits;
    float largest;
    template <int N> __device__ void at(int64_t column) {
        float v[N];
        load(v, logits + column);
#pragma unroll
        for (int i = 0; i < N; i++) largest = fmaxf(largest, v[i]);
    }
};

// A NaN is not seen here but makes the sum of exponentials NaN.
template <int N, class T>
__global__ void __launch_bounds__(THREADS)
    max_kernel(const T *logits, float *max_out, int64_t cols, int64_t valid) {
    const int64_t row = blockIdx.x;
    largest_body<T> body = {logits + row * cols, float_of(0xff800000u)}; // minus infinity
    each_column<N>(valid, body);
    const float largest = block_max(body.largest, shared_memory<float>());
    if (threadIdx.x == 0) max_out[row] = largest;
}

template <class T> struct exponentials_body {
    const T *logits;
    float max, sum;
    template <int N> __device__ void at(int64_t column) {
        float v[N];
        load(v, logits + column);
#pragma unroll
        for (int i = 0; i < N; i++) sum += expf(v[i] - max);
    }
};

// The same where the largest is not known before: `sum` is of exponentials of what is left behind
// the largest so far. Nothing is left of a sum of nothing (which has no largest).
__device__ inline float rescale(float sum, float from, float to) {
    return sum == 0.0f ? 0.0f : sum * expf(from - to);
}

template <class T> struct online_body {
    const T *logits;
    float max, sum;
    template <int N> __device__ void at(int64_t column) {
        float v[N], largest = max;
        load(v, logits + column);
#pragma unroll
        for (int i = 0; i < N; i++) largest = fmaxf(largest, v[i]);
        sum = rescale(sum, max, largest);
        max = largest;
#pragma unroll
        for (int i = 0; i < N; i++) sum += expf(v[i] - max);
    }
};

// The column of this rank that holds `target`, or -1.
__device__ inline int64_t target_column(int32_t target, int64_t first, int64_t valid) {
    const int64_t column = (int64_t)target - first;
    return target >= 0 && column >= 0 && column < valid ? column : -1;
}

template <bool ALONE, int N, class T>
__global__ void __launch_bounds__(THREADS)
    sum_kernel(const T *logits, float *max, const int32_t *targets, float *sums, int64_t cols,
               int64_t valid, int64_t first) {
    const int64_t row = blockIdx.x, rows = gridDim.x;
    float *slots = shared_memory<float>(), largest, sum; // a value of each warp, twice
    if constexpr (ALONE) {
        online_body<T> body = {logits + row * cols, float_of(0xff800000u), 0.0f};
        each_column<N>(valid, body);
        largest = block_max(body.max, slots + THREADS / WARP);
        sum = rescale(body.sum, body.max, largest);
        if (threadIdx.x == 0) max[row] = largest;
    } else {
        exponentials_body<T> body = {logits + row * cols, max[row], 0.0f};
        each_column<N>(valid, body);
        largest = body.max;
        sum = body.sum;
    }
    sum = block_sum(sum, slots);
    if (threadIdx.x > 0) return;
    const int64_t target = target_column(targets[row], first, valid);
    sums[row] = sum;
    sums[rows + row] = target < 0 ? 0.0f : widen(logits[row * cols + target]) - largest;
}

template <class T> struct gradient_body {
    T *logits;
    float max, factor, seed;
    int64_t target;
    template <int N> __device__ void at(int64_t column) {
        float v[N];
        load(v, logits + column);
#pragma unroll
        for (int i = 0; i < N; i++)
            v[i] = expf(v[i] - max) * factor - (column + i == target ? seed : 0.0f);
        store(logits + column, v);
    }
};

template <class T> struct zero_body {
    T *logits;
    template <int N> __device__ void at(int64_t column) {
        const float zero[N] = {0};
        store(logits + column, zero);
    }
};

// An ignored row is padding from its first column on; columns of the padding are set one by one,
// since it may begin anywhere.
template <int N, class T>
__global__ void __launch_bounds__(THREADS)
    gradient_kernel(T *logits, const float *max, const float *sums, const int32_t *targets,
                    int64_t cols, int64_t valid, int64_t first, const z3d_step_state *state) {
    const int64_t row = blockIdx.x;
    logits += row * cols;
    if (targets[row] < 0) {
        zero_body<T> body = {logits};
        each_column<N>(cols, body);
        return;
    }
    const float seed = state->gradient_seed;
    gradient_body<T> body = {logits, max[row], seed / sums[row], seed,
                             target_column(targets[row], first, valid)};
    each_column<N>(valid, body);
    zero_body<T> zero = {logits};
    for (int64_t column = valid + threadIdx.x; column < cols; column += THREADS)
        zero.template at<1>(column);
}

constexpr size_t SLOTS = THREADS / WARP * sizeof(float);

// Calls go(type_tag, width), which launches, where the kernel's struct has rows.
template <class Kernel, class Go> z3d_status each_logit(const Kernel *kernel, Go go) {
    REQUIRE_FLOAT(cross_entropy, kernel->dtype);
    if (kernel->rows <= 0) return Z3D_OK;
    return with_type(kernel->dtype, [&](auto tag) {
        return with_width(kernel->cols % WIDE == 0 && aligned(kernel->logits),
                          [&](auto width) { return go(tag, width); });
    });
}

} // namespace

z3d_status z3d_cuda_cross_entropy_max(const z3d_cuda_lane *lane,
                                      const z3d_cross_entropy_max *kernel) {
    return each_logit(kernel, [&](auto tag, auto width) {
        using T = typename decltype(tag)::type;
        if (kernel->alone) return Z3D_OK;
        return launch(lane, "cross_entropy_max", kernel->rows, dim3(THREADS), SLOTS,
                      max_kernel<decltype(width)::value, T>, static_cast<const T *>(kernel->logits),
                      kernel->max_out, kernel->cols, kernel->valid);
    });
}

z3d_status z3d_cuda_cross_entropy_sum(const z3d_cuda_lane *lane,
                                      const z3d_cross_entropy_sum *kernel) {
    return each_logit(kernel, [&](auto tag, auto width) {
        using T = typename decltype(tag)::type;
        constexpr int N = decltype(width)::value;
        return launch(lane, "cross_entropy_sum", kernel->rows, dim3(THREADS), 2 * SLOTS,
                      kernel->alone ? sum_kernel<true, N, T> : sum_kernel<false, N, T>,
                      static_cast<const T *>(kernel->logits), kernel->max, kernel->targets,
                      kernel->sums, kernel->cols, kernel->valid, kernel->first);
    });
}

z3d_status z3d_cuda_cross_entropy_backward(const z3d_cuda_lane *lane,
                                           const z3d_cross_entropy_backward *kernel) {
    return each_logit(kernel, [&](auto tag, auto width) {
        using T = typename decltype(tag)::type;
        return launch(lane, "cross_entropy_backward", kernel->rows, dim3(THREADS), 0,
                      gradient_kernel<decltype(width)::value, T>, static_cast<T *>(kernel->logits),
                      kernel->max, kernel->sums, kernel->targets, kernel->cols, kernel->valid,
                      kernel->first, kernel->state);
    });
}

namespace {

constexpr int LOSS_THREADS = 1024;

__global__ void __launch_bounds__(LOSS_THREADS)
    loss_kernel(const float *sums, const int32_t *targets, int64_t rows, z3d_step_state *state) {
    double *slots = shared_memory<double>();
    double sum = 0.0, count = 0.0;
    for (int64_t row = threadIdx.x; row < rows; row += LOSS_THREADS)
        if (targets[row] >= 0) {
            sum += log((double)sums[row]) - (double)sums[rows + row];
            count += 1.0;
        }
    sum = block_sum(sum, slots);
    count = block_sum(count, slots + LOSS_THREADS / WARP);
    if (threadIdx.x == 0) {
        state->loss_sum += sum;
        state->valid_targets += count;
    }
}

} // namespace

z3d_status z3d_cuda_cross_entropy_loss(const z3d_cuda_lane *lane,
                                       const z3d_cross_entropy_loss *kernel) {
    if (kernel->rows <= 0) return Z3D_OK;
    return launch(lane, "cross_entropy_loss", 1, dim3(LOSS_THREADS),
                  2 * (LOSS_THREADS / WARP) * sizeof(double), loss_kernel, kernel->sums,
                  kernel->targets, kernel->rows, kernel->state);
}
