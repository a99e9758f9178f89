// Sums over rows, column by column, in a fixed order.
#ifndef ZERO3D_DEVICE_CUDA_KERNELS_COLUMN_SUMS_CUH
#define ZERO3D_DEVICE_CUDA_KERNELS_COLUMN_SUMS_CUH

#include "src/device/cuda/kernels/common.cuh"

namespace {

// Rows that a block adds at a time; with one chunk there are fewer blocks, so more rows.
template <bool CHUNKED> constexpr int SUM_LANES = CHUNKED ? 8 : 32;

// to[chunks, cols] = (accumulate ? to : 0) + sums over each chunk's rows of from[rows, cols].
// CHUNKED false: one chunk. A block has one chunk of a stripe, the columns of 32 threads. Lane l of
// a column adds the rows l, l + LANES, ...; then the lanes are added in order.
template <bool CHUNKED, int N, class From, class To>
__global__ void __launch_bounds__(WARP *SUM_LANES<CHUNKED>)
    column_sums_kernel(const void *from, void *to, int64_t rows, int64_t cols, int64_t stripes,
                       bool accumulate) {
    constexpr int LANES = SUM_LANES<CHUNKED>;
    float *sums = shared_memory<float>(); // [LANES][WARP * N]
    const int64_t chunks = CHUNKED ? gridDim.x / stripes : 1;
    const int64_t chunk = CHUNKED ? blockIdx.x / stripes : 0;
    const int64_t column = ((blockIdx.x - chunk * stripes) * WARP + threadIdx.x) * N;
    const int64_t end = column < cols ? rows * (chunk + 1) / chunks : 0;
    float sum[N] = {0};
    for (int64_t row = rows * chunk / chunks + threadIdx.y; row < end; row += LANES)
        add<From>(sum, from, row * cols + column);
    float *mine = sums + threadIdx.x * N;
#pragma unroll
    for (int i = 0; i < N; i++) mine[threadIdx.y * WARP * N + i] = sum[i];
    __syncthreads();
    if (threadIdx.y > 0 || column >= cols) return;
    for (int lane = 1; lane < LANES; lane++)
#pragma unroll
        for (int i = 0; i < N; i++) sum[i] += mine[lane * WARP * N + i];
    if (accumulate) add<To>(sum, to, chunk * cols + column);
    store<To>(to, chunk * cols + column, sum);
}

template <bool CHUNKED, int N, class From, class To>
z3d_status column_sums(const z3d_cuda_lane *lane, const char *name, const void *from, void *to,
                       int64_t rows, int64_t cols, int64_t chunks, bool accumulate) {
    constexpr int LANES = SUM_LANES<CHUNKED>;
    const int64_t stripes = divide_up(cols, WARP * N);
    return launch(lane, name, chunks * stripes, dim3(WARP, LANES), LANES * WARP * N * sizeof(float),
                  column_sums_kernel<CHUNKED, N, From, To>, from, to, rows, cols, stripes,
                  accumulate);
}

// The second half: gradient[cols] = (accumulate ? gradient : 0) + sum of the chunks' partial sums.
inline z3d_status fold(const z3d_cuda_lane *lane, const char *name, const float *partials,
                       int64_t chunks, int64_t cols, void *gradient, z3d_dtype dtype,
                       bool accumulate) {
    return with_type(name, dtype, [&](auto type) {
        return column_sums<false, 1, float, decltype(type)>(lane, name, partials, gradient, chunks,
                                                            cols, 1, accumulate);
    });
}

} // namespace

#endif
