// The second half of sums over rows: the chunks' partial sums are added up in a fixed order.
#ifndef ZERO3D_DEVICE_CUDA_KERNELS_FOLD_CUH
#define ZERO3D_DEVICE_CUDA_KERNELS_FOLD_CUH

#include "src/device/cuda/kernels/common.cuh"

namespace {

constexpr int FOLD_COLS = 32, FOLD_LANES = 8;

// gradient[cols] = (accumulate ? gradient : 0) + sum over chunks of partials[chunks, cols]. Lane l
// of a column adds chunks l, l + 8, ...; the lanes are added in order.
template <class G>
__global__ void __launch_bounds__(FOLD_COLS *FOLD_LANES)
    fold_kernel(const float *partials, int64_t chunks, int64_t cols, G *gradient, bool accumulate) {
    float *sums = shared_memory<float>(); // [FOLD_LANES][FOLD_COLS]
    const int64_t column = (int64_t)blockIdx.x * FOLD_COLS + threadIdx.x;
    float sum = 0.0f;
    for (int64_t chunk = threadIdx.y; chunk < chunks && column < cols; chunk += FOLD_LANES)
        sum += partials[chunk * cols + column];
    sums[threadIdx.y * FOLD_COLS + threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y > 0 || column >= cols) return;
    for (int lane = 1; lane < FOLD_LANES; lane++) sum += sums[lane * FOLD_COLS + threadIdx.x];
    narrow(accumulate ? widen(gradient[column]) + sum : sum, gradient + column);
}

inline z3d_status fold(const z3d_cuda_lane *lane, const char *name, const float *partials,
                       int64_t chunks, int64_t cols, void *gradient, z3d_dtype dtype,
                       bool accumulate) {
    if (cols <= 0) return Z3D_OK;
    return with_type(dtype, [&](auto tag) {
        using G = typename decltype(tag)::type;
        return launch(lane, name, divide_up(cols, FOLD_COLS), dim3(FOLD_COLS, FOLD_LANES),
                      FOLD_COLS * FOLD_LANES * sizeof(float), fold_kernel<G>, partials, chunks,
                      cols, static_cast<G *>(gradient), accumulate);
    });
}

} // namespace

#endif
