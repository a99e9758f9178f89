// Vocabulary-parallel softmax cross entropy, a block per row. The logits keep their type: each part
// reads them once, and the gradient replaces them. If a rank has all logits, part 2 also finds the
// largest, so they are read only twice.
#include "src/device/cuda/kernels/common.cuh"

namespace {

constexpr int THREADS = 256;
constexpr size_t SLOTS = THREADS / WARP * sizeof(float);

template <int N> __device__ inline float largest_of(const float (&v)[N], float largest) {
#pragma unroll
    for (int i = 0; i < N; i++) largest = fmaxf(largest, v[i]);
    return largest;
}

template <int N>
__device__ inline float exponentials_of(const float (&v)[N], float sum, float max) {
#pragma unroll
    for (int i = 0; i < N; i++) sum += expf(v[i] - max);
    return sum;
}

// Ignores NaN, which makes the sum of exponentials NaN later.
template <int N, class T>
__global__ void __launch_bounds__(THREADS) max_kernel(z3d_cross_entropy_max k) {
    const int64_t row = blockIdx.x;
    float largest = -INFINITY;
    each_of_block<THREADS, N>(0, k.valid, [&](auto width, int64_t column) {
        float v[decltype(width)::value];
        load<T>(v, k.logits, row * k.cols + column);
        largest = largest_of(v, largest);
    });
    largest = block_max(largest, shared_memory<float>());
    if (threadIdx.x == 0) k.max_out[row] = largest;
}

// Changes the maximum that a sum of exponentials is relative to. An empty sum (without a maximum)
// stays 0.
__device__ inline float rescale(float sum, float from, float to) {
    return sum == 0.0f ? 0.0f : sum * expf(from - to);
}

// The column of this rank that holds `target`, or -1.
__device__ inline int64_t target_column(int32_t target, int64_t first, int64_t valid) {
    const int64_t column = (int64_t)target - first;
    return target >= 0 && column >= 0 && column < valid ? column : -1;
}

// ALONE: the largest logit is not known yet. sum: relative to the largest so far.
template <bool ALONE, int N, class T>
__global__ void __launch_bounds__(THREADS) sum_kernel(z3d_cross_entropy_sum k) {
    const int64_t row = blockIdx.x, first = row * k.cols;
    float *slots = shared_memory<float>(); // a value of each warp, twice
    float largest = ALONE ? -INFINITY : k.max[row], sum = 0.0f;
    each_of_block<THREADS, N>(0, k.valid, [&](auto width, int64_t column) {
        float v[decltype(width)::value];
        load<T>(v, k.logits, first + column);
        if constexpr (ALONE) {
            const float before = largest;
            largest = largest_of(v, largest);
            sum = rescale(sum, before, largest);
        }
        sum = exponentials_of(v, sum, largest);
    });
    if constexpr (ALONE) {
        const float before = largest;
        largest = block_max(largest, slots + THREADS / WARP);
        sum = rescale(sum, before, largest);
        if (threadIdx.x == 0) k.max[row] = largest;
    }
    sum = block_sum(sum, slots);
    if (threadIdx.x > 0) return;
    const int64_t target = target_column(k.targets[row], k.first, k.valid);
    k.sums[row] = sum;
    k.sums[k.rows + row] =
        target < 0 ? 0.0f : widen(static_cast<const T *>(k.logits)[first + target]) - largest;
}

// An ignored row is treated as padding from column 0 on. Columns of padding are set one by one,
// since padding may begin anywhere.
template <int N, class T>
__global__ void __launch_bounds__(THREADS) gradient_kernel(z3d_cross_entropy_backward k) {
    const int64_t row = blockIdx.x, first = row * k.cols;
    const auto zero = [&](auto width, int64_t column) {
        const float zeros[decltype(width)::value] = {0};
        store<T>(k.logits, first + column, zeros);
    };
    if (k.targets[row] < 0) return each_of_block<THREADS, N>(0, k.cols, zero);
    const float max = k.max[row], seed = k.state->gradient_seed, factor = seed / k.sums[row];
    const int64_t target = target_column(k.targets[row], k.first, k.valid);
    each_of_block<THREADS, N>(0, k.valid, [&](auto width, int64_t column) {
        constexpr int WIDTH = decltype(width)::value;
        float v[WIDTH];
        load<T>(v, k.logits, first + column);
#pragma unroll
        for (int i = 0; i < WIDTH; i++)
            v[i] = expf(v[i] - max) * factor - (column + i == target ? seed : 0.0f);
        store<T>(k.logits, first + column, v);
    });
    each_of_block<THREADS, 1>(k.valid, k.cols, zero);
}

// Calls go(T(), width), which launches, if the kernel has rows.
template <class Kernel, class Go> z3d_status each_logit(const Kernel *kernel, Go go) {
    return with_type("cross_entropy", kernel->dtype, [&](auto type) {
        if (kernel->rows <= 0) return Z3D_OK;
        return with_width(kernel->cols % WIDE == 0 && aligned(kernel->logits),
                          [&](auto width) { return go(type, width); });
    });
}

constexpr int LOSS_THREADS = 1024;

__global__ void __launch_bounds__(LOSS_THREADS) loss_kernel(z3d_cross_entropy_loss k) {
    double *slots = shared_memory<double>();
    double sum = 0.0, count = 0.0;
    for (int64_t row = threadIdx.x; row < k.rows; row += LOSS_THREADS)
        if (k.targets[row] >= 0) {
            sum += log((double)k.sums[row]) - (double)k.sums[k.rows + row];
            count += 1.0;
        }
    sum = block_sum(sum, slots);
    count = block_sum(count, slots + LOSS_THREADS / WARP);
    if (threadIdx.x == 0) {
        k.state->loss_sum += sum;
        k.state->valid_targets += count;
    }
}

} // namespace

z3d_status z3d_cuda_cross_entropy_max(const z3d_cuda_lane *lane,
                                      const z3d_cross_entropy_max *kernel) {
    return each_logit(kernel, [&](auto type, auto width) {
        if (kernel->alone) return Z3D_OK;
        return launch(lane, "cross_entropy_max", kernel->rows, dim3(THREADS), SLOTS,
                      max_kernel<decltype(width)::value, decltype(type)>, *kernel);
    });
}

z3d_status z3d_cuda_cross_entropy_sum(const z3d_cuda_lane *lane,
                                      const z3d_cross_entropy_sum *kernel) {
    return each_logit(kernel, [&](auto type, auto width) {
        return with_flag(kernel->alone, [&](auto alone) {
            return launch(
                lane, "cross_entropy_sum", kernel->rows, dim3(THREADS), 2 * SLOTS,
                sum_kernel<decltype(alone)::value, decltype(width)::value, decltype(type)>,
                *kernel);
        });
    });
}

z3d_status z3d_cuda_cross_entropy_backward(const z3d_cuda_lane *lane,
                                           const z3d_cross_entropy_backward *kernel) {
    return each_logit(kernel, [&](auto type, auto width) {
        return launch(lane, "cross_entropy_backward", kernel->rows, dim3(THREADS), 0,
                      gradient_kernel<decltype(width)::value, decltype(type)>, *kernel);
    });
}

z3d_status z3d_cuda_cross_entropy_loss(const z3d_cuda_lane *lane,
                                       const z3d_cross_entropy_loss *kernel) {
    if (kernel->rows <= 0) return Z3D_OK;
    return launch(lane, "cross_entropy_loss", 1, dim3(LOSS_THREADS),
                  2 * (LOSS_THREADS / WARP) * sizeof(double), loss_kernel, *kernel);
}
