/* LoRA's two small products next to a layer's large one. Forward keeps nothing for backward:
 * backward computes A dropout(x) again, which costs only rank / out of the layer's product. */
#include "tensor_parallel/adapter.h"

static z3d_status scale(const z3d_tensor_lane *lane, const z3d_linear *linear,
                        const z3d_adapter *adapter, void *low) {
    if (adapter->scale == 1) return Z3D_OK;
    return Z3D_LAUNCH(lane->device, scale, .x = low, .count = linear->rows * adapter->rank,
                      .dtype = lane->dtype, .factor = adapter->scale);
}

/* The adapter's columns of y, or of y's gradient. */
static void *columns(const z3d_tensor_lane *lane, const z3d_adapter *adapter, const void *y) {
    return (char *)(uintptr_t)y + z3d_bytes_of(lane->dtype, adapter->first);
}

/* *out = dropout(x) */
static z3d_status drop(const z3d_tensor_lane *lane, const z3d_linear *linear,
                       const z3d_adapter *adapter, const void *x, const void **out) {
    *out = x;
    if (adapter->dropout.p == 0) return Z3D_OK;
    *out = adapter->dropped;
    return Z3D_LAUNCH(lane->device, dropout_forward, .x = x, .y = adapter->dropped,
                      .rows = linear->rows, .seq = adapter->tokens, .cols = linear->in,
                      .dtype = lane->dtype, .dropout = adapter->dropout);
}

/* low[rows,rank] = scale x A x; x is already dropout(x). */
static z3d_status lower(const z3d_tensor_lane *lane, const z3d_linear *linear,
                        const z3d_adapter *adapter, const void *x) {
    Z3D_TRY(Z3D_LAUNCH(lane->device, gemm, .m = linear->rows, .n = adapter->rank, .k = linear->in,
                       .transpose_b = true, .inference = linear->inference, .a = x, .b = adapter->a,
                       .c = adapter->low, .lda = linear->in, .ldb = linear->in,
                       .ldc = adapter->rank, .dtype = lane->dtype, .c_dtype = lane->dtype));
    return scale(lane, linear, adapter, adapter->low);
}

z3d_status z3d_adapters_forward(const z3d_tensor_lane *lane, const z3d_linear *linear,
                                const void *x, void *y, void *gelu) {
    for (int i = 0; i < linear->adapters; i++) {
        const z3d_adapter *adapter = &linear->adapter[i];
        const void *dropped;
        Z3D_TRY(drop(lane, linear, adapter, x, &dropped));
        Z3D_TRY(lower(lane, linear, adapter, dropped));
        Z3D_TRY(Z3D_LAUNCH(lane->device, gemm, .m = linear->rows, .n = adapter->out,
                           .k = adapter->rank, .transpose_b = true, .accumulate = true,
                           .inference = linear->inference, .a = adapter->low, .b = adapter->b,
                           .c = columns(lane, adapter, y), .lda = adapter->rank,
                           .ldb = adapter->rank, .ldc = linear->out, .dtype = lane->dtype,
                           .c_dtype = lane->dtype, .gelu = gelu));
    }
    return Z3D_OK;
}

/* low_gradient[rows,rank] = scale x dy B */
static z3d_status lower_gradient(const z3d_tensor_lane *lane, const z3d_linear *linear,
                                 const z3d_adapter *adapter, const void *dy) {
    Z3D_TRY(Z3D_LAUNCH(lane->device, gemm, .m = linear->rows, .n = adapter->rank, .k = adapter->out,
                       .a = columns(lane, adapter, dy), .b = adapter->b, .c = adapter->low_gradient,
                       .lda = linear->out, .ldb = adapter->rank, .ldc = adapter->rank,
                       .dtype = lane->dtype, .c_dtype = lane->dtype));
    return scale(lane, linear, adapter, adapter->low_gradient);
}

/* dx = (accumulate ? dx : 0) + dropout's gradient of low_gradient A */
static z3d_status raise_gradient(const z3d_tensor_lane *lane, const z3d_linear *linear,
                                 const z3d_adapter *adapter, void *dx, bool accumulate) {
    const bool drops = adapter->dropout.p > 0;
    void *to = drops && accumulate ? adapter->dropped : dx;
    Z3D_TRY(Z3D_LAUNCH(lane->device, gemm, .m = linear->rows, .n = linear->in, .k = adapter->rank,
                       .accumulate = accumulate && !drops, .a = adapter->low_gradient,
                       .b = adapter->a, .c = to, .lda = adapter->rank, .ldb = linear->in,
                       .ldc = linear->in, .dtype = lane->dtype, .c_dtype = lane->dtype));
    if (drops)
        Z3D_TRY(Z3D_LAUNCH(lane->device, dropout_backward, .dy = to, .dx = to, .rows = linear->rows,
                           .seq = adapter->tokens, .cols = linear->in, .dtype = lane->dtype,
                           .dropout = adapter->dropout));
    if (to == dx) return Z3D_OK;
    return Z3D_LAUNCH(lane->device, accumulate, .y = dx, .x = to,
                      .count = linear->rows * linear->in, .y_dtype = lane->dtype,
                      .x_dtype = lane->dtype);
}

z3d_status z3d_adapters_input_gradient(const z3d_tensor_lane *lane, const z3d_linear *linear,
                                       const void *dy, void *dx, bool *accumulate) {
    for (int i = 0; i < linear->adapters; i++) {
        const z3d_adapter *adapter = &linear->adapter[i];
        Z3D_TRY(lower_gradient(lane, linear, adapter, dy));
        Z3D_TRY(raise_gradient(lane, linear, adapter, dx, *accumulate));
        *accumulate = true;
    }
    return Z3D_OK;
}

z3d_status z3d_adapters_parameter_gradients(const z3d_tensor_lane *lane, const z3d_linear *linear,
                                            const void *x, const void *dy, bool has_low_gradient) {
    for (int i = 0; i < linear->adapters; i++) {
        const z3d_adapter *adapter = &linear->adapter[i];
        const void *dropped;
        if (!has_low_gradient) Z3D_TRY(lower_gradient(lane, linear, adapter, dy));
        Z3D_TRY(drop(lane, linear, adapter, x, &dropped));
        Z3D_TRY(lower(lane, linear, adapter, dropped));
        Z3D_TRY(Z3D_LAUNCH(
            lane->device, gemm, .m = adapter->out, .n = adapter->rank, .k = linear->rows,
            .transpose_a = true, .accumulate = adapter->accumulate, .a = columns(lane, adapter, dy),
            .b = adapter->low, .c = adapter->b_gradient, .lda = linear->out, .ldb = adapter->rank,
            .ldc = adapter->rank, .dtype = lane->dtype, .c_dtype = lane->gradient_dtype));
        Z3D_TRY(Z3D_LAUNCH(
            lane->device, gemm, .m = adapter->rank, .n = linear->in, .k = linear->rows,
            .transpose_a = true, .accumulate = adapter->accumulate, .a = adapter->low_gradient,
            .b = dropped, .c = adapter->a_gradient, .lda = adapter->rank, .ldb = linear->in,
            .ldc = linear->in, .dtype = lane->dtype, .c_dtype = lane->gradient_dtype));
    }
    return Z3D_OK;
}
