/* Column- and row-parallel linear layers. A pair of them needs two sums over the group: the
 * row-parallel layer's in forward (g in Megatron-LM's figure 3), and the column-parallel layer's in
 * backward (f), which runs while the weight gradient is computed. */
#include "tensor_parallel/adapter.h"

/* y[rows,out] = x[rows,in] W[out,in]^T (+ bias) + the adapters' addends */
static z3d_status multiply(const z3d_tensor_lane *lane, const z3d_linear *linear, const void *x,
                           const void *bias, void *y, void *gelu) {
    const bool alone = linear->adapters == 0;
    Z3D_TRY(Z3D_LAUNCH(lane->device, gemm, .m = linear->rows, .n = linear->out, .k = linear->in,
                       .transpose_b = true, .inference = linear->inference, .a = x,
                       .b = linear->weight, .c = y, .lda = linear->in, .ldb = linear->in,
                       .ldc = linear->out, .dtype = lane->dtype, .c_dtype = lane->dtype,
                       .bias = bias, .residual = linear->residual, .gelu = alone ? gelu : NULL));
    return z3d_adapters_forward(lane, linear, x, y, gelu);
}

/* dx[rows,in] = (accumulate ? dx : 0) + dy[rows,out] W[out,in] + the adapters' addends; all of it
 * times gelu'(before_gelu), if that is not NULL */
static z3d_status input_gradient(const z3d_tensor_lane *lane, const z3d_linear *linear,
                                 const void *dy, void *dx, bool accumulate,
                                 const void *before_gelu) {
    Z3D_TRY(z3d_adapters_input_gradient(lane, linear, dy, dx, &accumulate));
    return Z3D_LAUNCH(lane->device, gemm, .m = linear->rows, .n = linear->in, .k = linear->out,
                      .accumulate = accumulate, .a = dy, .b = linear->weight, .c = dx,
                      .lda = linear->out, .ldb = linear->in, .ldc = linear->in,
                      .dtype = lane->dtype, .c_dtype = lane->dtype, .before_gelu = before_gelu);
}

/* dW[out,in] (+)= dy^T x, db[out] (+)= sum of dy's rows in `bias_rows`. */
static z3d_status parameter_gradients(const z3d_tensor_lane *lane, const z3d_linear *linear,
                                      const void *x, const void *dy, z3d_row_range bias_rows) {
    int64_t row = z3d_bytes_of(lane->dtype, linear->out);
    bool fused = linear->weight_gradient && bias_rows.count == linear->rows;
    if (linear->weight_gradient)
        Z3D_TRY(Z3D_LAUNCH(lane->device, gemm, .m = linear->out, .n = linear->in, .k = linear->rows,
                           .transpose_a = true, .accumulate = linear->accumulate, .a = dy, .b = x,
                           .c = linear->weight_gradient, .lda = linear->out, .ldb = linear->in,
                           .ldc = linear->in, .dtype = lane->dtype, .c_dtype = lane->gradient_dtype,
                           .bias_gradient = fused ? linear->bias_gradient : NULL));
    if (!linear->bias_gradient || fused) return Z3D_OK;
    return Z3D_LAUNCH(lane->device, bias_backward, .dy = (const char *)dy + bias_rows.first * row,
                      .gradient = linear->bias_gradient, .rows = bias_rows.count,
                      .cols = linear->out, .dtype = lane->dtype,
                      .gradient_dtype = lane->gradient_dtype, .accumulate = linear->accumulate);
}

z3d_status z3d_column_linear_forward(const z3d_tensor_lane *lane, const z3d_linear *linear,
                                     const void *x, void *y) {
    return multiply(lane, linear, x, linear->bias, y, linear->gelu);
}

z3d_status z3d_column_linear_backward(const z3d_tensor_lane *lane, const z3d_linear *linear,
                                      const void *x, const void *dy, void *dx) {
    return z3d_column_linears_backward(lane, linear, 1, x, &dy, dx);
}

z3d_status z3d_column_linears_backward(const z3d_tensor_lane *lane, const z3d_linear *linear,
                                       int count, const void *x, const void *const *dy, void *dx) {
    z3d_row_range all = {0, linear->rows};
    z3d_collective sum = z3d_sum_rows(lane, dx, linear->rows, linear->in);
    z3d_ticket ticket;
    for (int i = 0; i < count && dx; i++)
        Z3D_TRY(input_gradient(lane, &linear[i], dy[i], dx, i > 0, NULL));
    if (dx) Z3D_TRY(z3d_collective_start(lane->group, &sum, &ticket));
    for (int i = 0; i < count; i++) {
        if (linear[i].input_only) continue;
        Z3D_TRY(parameter_gradients(lane, &linear[i], x, dy[i], all));
        Z3D_TRY(z3d_adapters_parameter_gradients(lane, &linear[i], x, dy[i], dx != NULL));
    }
    return dx ? z3d_collective_wait(lane->group, ticket) : Z3D_OK;
}

z3d_status z3d_row_linear_forward(const z3d_tensor_lane *lane, const z3d_linear *linear,
                                  const void *x, void *y) {
    z3d_collective sum = z3d_sum_rows(lane, y, linear->rows, linear->out);
    Z3D_TRY(multiply(lane, linear, x, linear->residual ? linear->bias : NULL, y, NULL));
    return z3d_collective_run(lane->group, &sum);
}

z3d_status z3d_row_linear_backward(const z3d_tensor_lane *lane, const z3d_linear *linear,
                                   const void *x, const void *dy, void *dx) {
    if (dx) Z3D_TRY(input_gradient(lane, linear, dy, dx, false, linear->before_gelu));
    if (linear->input_only) return Z3D_OK;
    Z3D_TRY(parameter_gradients(lane, linear, x, dy, z3d_own_rows(lane, linear->rows)));
    return z3d_adapters_parameter_gradients(lane, linear, x, dy, dx != NULL);
}
