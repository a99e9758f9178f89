// Sums: bias_backward (over rows) and sum_squares (over everything; also the overflow check).
#include "src/device/cuda/kernels/fold.cuh"

namespace {

constexpr int LANES = 8; // rows that a block adds at a time

// Partial sums of one chunk of rows and a stripe of 32 threads' columns.
template <int N, class T>
__global__ void __launch_bounds__(WARP *LANES)
    column_sums_kernel(const T *dy, float *partials, int64_t rows, int64_t cols, int64_t stripes) {
    float *sums = shared_memory<float>(); // [LANES][WARP * N]
    const int64_t chunks = gridDim.x / stripes, chunk = blockIdx.x / stripes;
    const int64_t column = (blockIdx.x % stripes * WARP + threadIdx.x) * N;
    float sum[N] = {0}, v[N];
    for (int64_t row = rows * chunk / chunks + threadIdx.y;
         row < rows * (chunk + 1) / chunks && column < cols; row += LANES) {
        load(v, dy + row * cols + column);
#pragma unroll
        for (int i = 0; i < N; i++) sum[i] += v[i];
    }
    float *mine = sums + threadIdx.x * N;
#pragma unroll
    for (int i = 0; i < N; i++) mine[threadIdx.y * WARP * N + i] = sum[i];
    __syncthreads();
    if (threadIdx.y > 0 || column >= cols) return;
    for (int lane = 1; lane < LANES; lane++)
#pragma unroll
        for (int i = 0; i < N; i++) sum[i] += mine[lane * WARP * N + i];
#pragma unroll
    for (int i = 0; i < N; i++) partials[chunk * cols + column + i] = sum[i];
}

} // namespace

z3d_status z3d_cuda_bias_backward(const z3d_cuda_lane *lane, const z3d_bias_backward *kernel) {
    REQUIRE_FLOAT(bias_backward, kernel->dtype);
    REQUIRE_FLOAT(bias_backward, kernel->gradient_dtype);
    if (kernel->cols <= 0) return Z3D_OK;
    const int64_t chunks = z3d_cuda_row_chunks(kernel->rows), cols = kernel->cols;
    REQUIRE_SCRATCH(bias_backward, lane, chunks * cols * (int64_t)sizeof(float));
    float *partials = static_cast<float *>(lane->scratch);
    Z3D_TRY(with_type(kernel->dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        return with_width(cols % WIDE == 0 && aligned(kernel->dy), [&](auto width) {
            constexpr int N = decltype(width)::value;
            const int64_t stripes = divide_up(cols, WARP * N);
            return launch(lane, "bias_backward", chunks * stripes, dim3(WARP, LANES),
                          LANES * WARP * N * sizeof(float), column_sums_kernel<N, T>,
                          static_cast<const T *>(kernel->dy), partials, kernel->rows, cols,
                          stripes);
        });
    }));
    return fold(lane, "bias_backward", partials, chunks, cols, kernel->gradient,
                kernel->gradient_dtype, kernel->accumulate);
}

namespace {

constexpr int SQUARE_THREADS = 256;

// In fp64: the square of any finite fp32 is finite there, so the sum is not finite exactly if an
// element is not.
template <int N, class T>
__global__ void __launch_bounds__(SQUARE_THREADS)
    squares_kernel(const T *x, int64_t count, int64_t chunk, double *sums) {
    const int64_t first = (int64_t)blockIdx.x * chunk;
    const int64_t end = first + chunk < count ? first + chunk : count;
    double sum = 0.0;
    for (int64_t i = first + threadIdx.x * N; i < end; i += SQUARE_THREADS * N) {
        float v[N] = {0};
        if (i + N <= end)
            load(v, x + i);
        else
            for (int j = 0; j < end - i; j++) v[j] = widen(x[i + j]);
#pragma unroll
        for (int j = 0; j < N; j++) sum += (double)v[j] * (double)v[j];
    }
    sum = block_sum(sum, shared_memory<double>());
    if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(SQUARE_THREADS)
    add_sums_kernel(const double *sums, int count, double *out) {
    double sum = 0.0;
    for (int i = (int)threadIdx.x; i < count; i += SQUARE_THREADS) sum += sums[i];
    sum = block_sum(sum, shared_memory<double>());
    if (threadIdx.x == 0) *out += sum;
}

} // namespace

z3d_status z3d_cuda_sum_squares(const z3d_cuda_lane *lane, const z3d_sum_squares *kernel) {
    REQUIRE_FLOAT(sum_squares, kernel->dtype);
    if (kernel->count <= 0) return Z3D_OK;
    const int64_t chunk = z3d_cuda_square_chunk(kernel->count);
    const int64_t blocks = divide_up(kernel->count, chunk);
    const size_t slots = SQUARE_THREADS / WARP * sizeof(double);
    REQUIRE_SCRATCH(sum_squares, lane, blocks * (int64_t)sizeof(double));
    double *sums = static_cast<double *>(lane->scratch);
    Z3D_TRY(with_type(kernel->dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        return with_width(aligned(kernel->x), [&](auto width) {
            constexpr int N = decltype(width)::value;
            return launch(lane, "sum_squares", blocks, dim3(SQUARE_THREADS), slots,
                          squares_kernel<N, T>, static_cast<const T *>(kernel->x), kernel->count,
                          chunk, sums);
        });
    }));
    return launch(lane, "sum_squares", 1, dim3(SQUARE_THREADS), slots, add_sums_kernel, sums,
                  (int)blocks, kernel->out);
}

bool z3d_cuda_has_kernels(void) {
    cudaFuncAttributes unused;
    const cudaError_t error =
        cudaFuncGetAttributes(&unused, reinterpret_cast<const void *>(add_sums_kernel));
    if (error != cudaSuccess) cudaGetLastError();
    return error != cudaErrorNoKernelImageForDevice && error != cudaErrorInvalidDeviceFunction;
}
