// Dropout with bias and residual; philox.cuh draws the mask. Its backward is the same without them.
#include "src/device/cuda/kernels/each.cuh"
#include "src/device/cuda/kernels/philox.cuh"

namespace {

// v *= mask for columns column .. column + N - 1 of a row of the micro-batch. N is 1, or N and
// column are multiples of 4.
template <int N>
__device__ inline void drop(float (&v)[N], const dropout_rule &rule, int64_t seq, int64_t row,
                            int64_t column) {
    const dropout_draw draw = dropout_begin(rule);
    const uint32_t sample = (uint32_t)row / (uint32_t)seq, within = (uint32_t)row % (uint32_t)seq;
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
    z3d_dropout_forward k;
    dropout_rule rule;
    template <int N> __device__ void at(int64_t row, int64_t column) const {
        float sum[N];
        load<T>(sum, k.x, row * k.cols + column);
        if (k.bias) add<T>(sum, k.bias, column);
        if constexpr (DROPS) drop(sum, rule, k.seq, k.first + row, column);
        if (k.residual) add<T>(sum, k.residual, row * k.cols + column);
        store<T>(k.y, row * k.cols + column, sum);
    }
};

} // namespace

z3d_status z3d_cuda_dropout_forward(const z3d_cuda_lane *lane, const z3d_dropout_forward *kernel) {
    Z3D_TRY(check_rows("dropout_forward", kernel->first, kernel->rows));
    const bool wide = aligned(kernel->x, kernel->bias, kernel->residual, kernel->y);
    const dropout_rule rule = dropout_rule_of(&kernel->dropout);
    return with_type("dropout_forward", kernel->dtype, [&](auto type) {
        return with_flag(kernel->dropout.p > 0, [&](auto drops) {
            using operation = forward_operation<decltype(type), decltype(drops)::value>;
            return each_row(lane, "dropout_forward", kernel->rows, kernel->cols, wide,
                            operation{*kernel, rule});
        });
    });
}

z3d_status z3d_cuda_dropout_backward(const z3d_cuda_lane *lane, const z3d_dropout_backward *k) {
    if (!(k->dropout.p > 0) && k->dx == k->dy) return Z3D_OK;
    const z3d_dropout_forward mask = {k->dy,    nullptr, nullptr, k->dx,    k->rows,
                                      k->first, k->seq,  k->cols, k->dtype, k->dropout};
    return z3d_cuda_dropout_forward(lane, &mask);
}
