// Dropout with bias and residual, and its backward. philox.cuh decides what is dropped.
#include "src/device/cuda/kernels/each.cuh"
#include "src/device/cuda/kernels/philox.cuh"

namespace {

// v *= mask for columns column .. column + N - 1 of a row of the micro-batch; N is 1 or a multiple
// of 4, and so is column then.
template <int N>
__device__ inline void drop(float (&v)[N], const dropout_rule &rule, uint32_t seq, int64_t row,
                            int64_t column) {
    const dropout_draw draw = dropout_begin(rule);
    const uint32_t sample = (uint32_t)row / seq, within = (uint32_t)row % seq;
    float mask[4];
#pragma unroll
    for (int i = 0; i < N; i += 4) {
        dropout_block(mask, draw, sample, 0, within, (uint32_t)((column + i) / 4));
        if constexpr (N == 1)
            v[0] *= mask[column % 4];
        else
#pragma unroll
            for (int j = 0; j < 4; j++) v[i + j] *= mask[j];
    }
}

template <class T, bool DROPS> struct forward_operation {
    const T *x, *bias, *residual; // bias, residual may be NULL
    T *y;
    int64_t first, seq, cols;
    dropout_rule rule;
    template <int N> __device__ void at(int64_t row, int64_t column) const {
        const int64_t i = row * cols + column;
        float sum[N], added[N];
        load(sum, x + i);
        if (bias) {
            load(added, bias + column);
#pragma unroll
            for (int j = 0; j < N; j++) sum[j] += added[j];
        }
        if constexpr (DROPS) drop(sum, rule, (uint32_t)seq, first + row, column);
        if (residual) {
            load(added, residual + i);
#pragma unroll
            for (int j = 0; j < N; j++) sum[j] += added[j];
        }
        store(y + i, sum);
    }
};

template <class T> struct backward_operation {
    const T *dy;
    T *dx;
    int64_t first, seq, cols;
    dropout_rule rule;
    template <int N> __device__ void at(int64_t row, int64_t column) const {
        float v[N];
        load(v, dy + row * cols + column);
        drop(v, rule, (uint32_t)seq, first + row, column);
        store(dx + row * cols + column, v);
    }
};

} // namespace

#define REQUIRE_ROWS(name, kernel)                                                                 \
    Z3D_REQUIRE((kernel)->first + (kernel)->rows <= INT32_MAX,                                     \
                "kernel " #name ": %lld rows from %lld on", (long long)(kernel)->rows,             \
                (long long)(kernel)->first)

z3d_status z3d_cuda_dropout_forward(const z3d_cuda_lane *lane, const z3d_dropout_forward *kernel) {
    REQUIRE_FLOAT(dropout_forward, kernel->dtype);
    REQUIRE_ROWS(dropout_forward, kernel);
    const bool wide = aligned(kernel->x, kernel->bias, kernel->residual, kernel->y);
    const dropout_rule rule = dropout_rule_of(&kernel->dropout);
    return with_type(kernel->dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        const auto run = [&](auto drops) {
            return each_row(
                lane, "dropout_forward", kernel->rows, kernel->cols, wide,
                forward_operation<T, decltype(drops)::value>{
                    static_cast<const T *>(kernel->x), static_cast<const T *>(kernel->bias),
                    static_cast<const T *>(kernel->residual), static_cast<T *>(kernel->y),
                    kernel->first, kernel->seq, kernel->cols, rule});
        };
        return kernel->dropout.p > 0 ? run(std::true_type()) : run(std::false_type());
    });
}

z3d_status z3d_cuda_dropout_backward(const z3d_cuda_lane *lane,
                                     const z3d_dropout_backward *kernel) {
    REQUIRE_FLOAT(dropout_backward, kernel->dtype);
    REQUIRE_ROWS(dropout_backward, kernel);
    const int64_t rows = kernel->rows;
    if (!(kernel->dropout.p > 0)) {
        z3d_cast copy = {kernel->dx, kernel->dy, rows * kernel->cols, kernel->dtype, kernel->dtype};
        return kernel->dx == kernel->dy ? Z3D_OK : z3d_cuda_cast(lane, &copy);
    }
    return with_type(kernel->dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        return each_row(
            lane, "dropout_backward", rows, kernel->cols, aligned(kernel->dy, kernel->dx),
            backward_operation<T>{static_cast<const T *>(kernel->dy), static_cast<T *>(kernel->dx),
                                  kernel->first, kernel->seq, kernel->cols,
                                  dropout_rule_of(&kernel->dropout)});
    });
}
