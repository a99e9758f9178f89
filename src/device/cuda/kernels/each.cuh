// Two ways to go over elements: as a line, or as rows of a matrix. An operation is a struct with
// the kernel's struct as its first member, a template over the element types, with
//   template <int N> __device__ void at(int64_t i) const              elements i .. i + N - 1
//   template <int N> __device__ void at(int64_t row, int64_t column) const
#ifndef ZERO3D_DEVICE_CUDA_KERNELS_EACH_CUH
#define ZERO3D_DEVICE_CUDA_KERNELS_EACH_CUH

#include "src/device/cuda/kernels/common.cuh"

namespace {

constexpr int EACH_THREADS = 256;

template <int N, class Operation>
__global__ void __launch_bounds__(EACH_THREADS) element_kernel(Operation operation, int64_t count) {
    int64_t i = ((int64_t)blockIdx.x * EACH_THREADS + threadIdx.x) * N;
    if (i + N <= count)
        operation.template at<N>(i);
    else
        for (; i < count; i++) operation.template at<1>(i);
}

// wide: all pointers are aligned.
template <class Operation>
z3d_status each_element(const z3d_cuda_lane *lane, const char *name, int64_t count, bool wide,
                        Operation operation) {
    if (count <= 0) return Z3D_OK;
    return with_width(wide, [&](auto width) {
        constexpr int N = decltype(width)::value;
        return launch(lane, name, divide_up(count, EACH_THREADS * N), dim3(EACH_THREADS), 0,
                      element_kernel<N, Operation>, operation, count);
    });
}

// Over kernel->count elements, in the types of `dtypes`.
template <template <class...> class Operation, class Kernel, class... Dtypes>
z3d_status each_element(const z3d_cuda_lane *lane, const char *name, const Kernel *kernel,
                        bool wide, Dtypes... dtypes) {
    return with_type(name, dtypes..., [&](auto... types) {
        return each_element(lane, name, kernel->count, wide,
                            Operation<decltype(types)...>{*kernel});
    });
}

// threadIdx.y: one of the block's rows.
template <int N, class Operation>
__global__ void __launch_bounds__(EACH_THREADS)
    row_kernel(Operation operation, int64_t rows, int64_t cols) {
    const int64_t row = (int64_t)blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows) return;
    for (int64_t column = threadIdx.x * N; column < cols; column += blockDim.x * N)
        operation.template at<N>(row, column);
}

// wide: all pointers are aligned; this function checks whether rows are.
template <class Operation>
z3d_status each_row(const z3d_cuda_lane *lane, const char *name, int64_t rows, int64_t cols,
                    bool wide, Operation operation) {
    if (rows <= 0 || cols <= 0) return Z3D_OK;
    return with_width(wide && cols % WIDE == 0, [&](auto width) {
        constexpr int N = decltype(width)::value;
        unsigned across = 1;
        while (across < EACH_THREADS && across * N < cols) across *= 2;
        const dim3 threads(across, EACH_THREADS / across);
        return launch(lane, name, divide_up(rows, threads.y), threads, 0, row_kernel<N, Operation>,
                      operation, rows, cols);
    });
}

// Kernels divide row indices of a micro-batch as 32-bit numbers.
inline z3d_status check_rows(const char *name, int64_t first, int64_t rows) {
    Z3D_REQUIRE(first + rows <= INT32_MAX, "kernel %s: %lld rows from %lld on", name,
                (long long)rows, (long long)first);
    return Z3D_OK;
}

// Over `rows` rows of kernel->cols columns, in its type.
template <template <class> class Operation, class Kernel>
z3d_status each_row(const z3d_cuda_lane *lane, const char *name, const Kernel *kernel, int64_t rows,
                    bool wide) {
    return with_type(name, kernel->dtype, [&](auto type) {
        return each_row(lane, name, rows, kernel->cols, wide, Operation<decltype(type)>{*kernel});
    });
}

} // namespace

#endif
