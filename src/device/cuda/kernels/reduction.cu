// Sums: bias_backward (over rows) and sum_squares (over everything; also the overflow check).
#include "src/device/cuda/kernels/column_sums.cuh"

z3d_status z3d_cuda_bias_backward(const z3d_cuda_lane *lane, const z3d_bias_backward *kernel) {
    if (kernel->cols <= 0) return Z3D_OK;
    const int64_t chunks = z3d_cuda_row_chunks(kernel->rows), cols = kernel->cols;
    float *partials = static_cast<float *>(lane->scratch);
    Z3D_TRY(with_type("bias_backward", kernel->dtype, [&](auto type) {
        Z3D_TRY(check_scratch("bias_backward", lane, chunks * cols * (int64_t)sizeof(float)));
        return with_width(cols % WIDE == 0 && aligned(kernel->dy), [&](auto width) {
            return column_sums<true, decltype(width)::value, decltype(type), float>(
                lane, "bias_backward", kernel->dy, partials, kernel->rows, cols, chunks, false);
        });
    }));
    return fold(lane, "bias_backward", partials, chunks, cols, kernel->gradient,
                kernel->gradient_dtype, kernel->accumulate);
}

namespace {

constexpr int SQUARE_THREADS = 256;

// In fp64, where the square of any finite fp32 is finite. So the sum is finite if and only if all
// elements are.
template <int N, class T>
__global__ void __launch_bounds__(SQUARE_THREADS)
    squares_kernel(const void *x, int64_t count, int64_t chunk, double *sums) {
    const int64_t first = (int64_t)blockIdx.x * chunk;
    const int64_t end = first + chunk < count ? first + chunk : count;
    double sum = 0.0;
    each_of_block<SQUARE_THREADS, N>(first, end, [&](auto width, int64_t i) {
        float v[decltype(width)::value];
        load<T>(v, x, i);
#pragma unroll
        for (float value : v) sum += (double)value * (double)value;
    });
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
    if (kernel->count <= 0) return Z3D_OK;
    const int64_t chunk = z3d_cuda_square_chunk(kernel->count);
    const int64_t blocks = divide_up(kernel->count, chunk);
    const size_t slots = SQUARE_THREADS / WARP * sizeof(double);
    Z3D_TRY(check_scratch("sum_squares", lane, blocks * (int64_t)sizeof(double)));
    double *sums = static_cast<double *>(lane->scratch);
    Z3D_TRY(with_type("sum_squares", kernel->dtype, [&](auto type) {
        return with_width(aligned(kernel->x), [&](auto width) {
            return launch(lane, "sum_squares", blocks, dim3(SQUARE_THREADS), slots,
                          squares_kernel<decltype(width)::value, decltype(type)>, kernel->x,
                          kernel->count, chunk, sums);
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
