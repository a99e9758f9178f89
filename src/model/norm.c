/* Norms of rows: the model's layernorm or RMSNorm. Backward is whole or in halves. One kernel reads
 * a row once, for its input's gradient and for the sums that are the gradients of weight and bias.
 * So the input half computes both and keeps the sums, in fp32: they are one or two rows of `hidden`
 * elements; to keep dy instead would take all rows. */
#include "src/model/transformer.h"

static bool has_mean(const z3d_unit_run *run) {
    return z3d_transformer_of(run)->norm == Z3D_NORM_LAYER;
}

z3d_status z3d_norm_take_saved(z3d_unit_run *run, int64_t rows, z3d_norm *norm) {
    if (has_mean(run)) Z3D_TRY(z3d_unit_take_saved(run, rows, sizeof(float), &norm->mean));
    return z3d_unit_take_saved(run, rows, sizeof(float), &norm->rstd);
}

z3d_status z3d_norm_take_workspace(z3d_unit_run *run, int64_t rows, z3d_norm *norm) {
    if (has_mean(run)) Z3D_TRY(z3d_unit_take_workspace(run, rows, sizeof(float), &norm->mean));
    return z3d_unit_take_workspace(run, rows, sizeof(float), &norm->rstd);
}

z3d_status z3d_norm_forward(const z3d_unit_run *run, const z3d_norm *norm, int64_t rows, void *y) {
    const z3d_transformer *shape = z3d_transformer_of(run);
    const int64_t hidden = shape->hidden_size;
    const void *weight = z3d_unit_parameter(run, norm->slot, norm->weight);
    if (shape->norm == Z3D_NORM_RMS)
        return Z3D_LAUNCH(run->device, rmsnorm_forward, .x = norm->x, .weight = weight, .y = y,
                          .rstd = norm->rstd, .rows = rows, .heads = 1, .cols = hidden,
                          .x_stride = hidden, .y_stride = hidden, .epsilon = shape->epsilon,
                          .dtype = run->dtype);
    return Z3D_LAUNCH(run->device, layernorm_forward, .x = norm->x, .weight = weight,
                      .bias = z3d_unit_parameter(run, norm->slot, norm->weight + 1), .y = y,
                      .mean = norm->mean, .rstd = norm->rstd, .rows = rows, .cols = hidden,
                      .epsilon = shape->epsilon, .dtype = run->dtype);
}

z3d_status z3d_norm_forward_all(const z3d_unit_run *run, const z3d_norm *norm, void *y) {
    z3d_tensor_lane lane = z3d_transformer_lane(run);
    Z3D_TRY(z3d_norm_forward(run, norm, z3d_unit_own_rows(run).count,
                             (char *)y + z3d_unit_own_offset(run)));
    return z3d_gather_rows(&lane, y, z3d_unit_rows(run), z3d_transformer_of(run)->hidden_size);
}

/* ---- backward ---- */

static bool is_trained(const z3d_unit_run *run, const z3d_norm *norm) {
    return z3d_unit_is_trained(run, norm->slot, norm->weight) ||
           (has_mean(run) && z3d_unit_is_trained(run, norm->slot, norm->weight + 1));
}

/* gradient (+)= sum, rounded as the kernel rounds its own sums. */
static z3d_status add_sum(const z3d_unit_run *run, int slot, int index, const float *sum,
                          int64_t count) {
    void *gradient = z3d_unit_gradient(run, slot, index);
    if (!gradient) return Z3D_OK;
    if (run->group[slot].accumulate)
        return Z3D_LAUNCH(run->device, accumulate, .y = gradient, .x = sum, .count = count,
                          .y_dtype = run->gradient_dtype, .x_dtype = Z3D_F32);
    return Z3D_LAUNCH(run->device, cast, .destination = gradient, .source = sum, .count = count,
                      .destination_dtype = run->gradient_dtype, .source_dtype = Z3D_F32);
}

/* The kernels always write a gradient; one that is not needed goes to workspace. */
static z3d_status need_target(z3d_unit_run *run, int64_t elements, z3d_dtype dtype, void **target) {
    if (*target) return Z3D_OK;
    return z3d_unit_take_workspace(run, elements, z3d_bytes_of(dtype, 1), target);
}

static z3d_status layernorm_backward(z3d_unit_run *run, z3d_halves halves, const z3d_norm *norm,
                                     const void *dy, const void *residual, void *dx) {
    const int64_t hidden = z3d_transformer_of(run)->hidden_size;
    z3d_layernorm_backward kernel = {
        .dy = dy,
        .x = norm->x,
        .weight = z3d_unit_parameter(run, norm->slot, norm->weight),
        .mean = norm->mean,
        .rstd = norm->rstd,
        .add_to = residual,
        .dx = dx,
        .weight_gradient = z3d_unit_gradient(run, norm->slot, norm->weight),
        .bias_gradient = z3d_unit_gradient(run, norm->slot, norm->weight + 1),
        .rows = z3d_unit_own_rows(run).count,
        .cols = hidden,
        .dtype = run->dtype,
        .gradient_dtype = run->gradient_dtype,
        .accumulate = run->group[norm->slot].accumulate,
    };
    const bool trained = is_trained(run, norm);
    if (halves == Z3D_WEIGHT_HALF && !trained) return Z3D_OK;
    if (halves != Z3D_BOTH_HALVES && trained) {
        float *sums;
        Z3D_TRY(z3d_unit_take_deferred(run, 2 * hidden, sizeof *sums, &sums));
        if (halves == Z3D_WEIGHT_HALF) {
            Z3D_TRY(add_sum(run, norm->slot, norm->weight, sums, hidden));
            return add_sum(run, norm->slot, norm->weight + 1, sums + hidden, hidden);
        }
        kernel.weight_gradient = sums;
        kernel.bias_gradient = sums + hidden;
        kernel.gradient_dtype = Z3D_F32;
        kernel.accumulate = false;
    }
    Z3D_TRY(need_target(run, hidden, kernel.gradient_dtype, &kernel.weight_gradient));
    Z3D_TRY(need_target(run, hidden, kernel.gradient_dtype, &kernel.bias_gradient));
    Z3D_TRY(need_target(run, kernel.rows * hidden, run->dtype, &kernel.dx));
    return z3d_launch(run->device, &(z3d_kernel){.kind = Z3D_KERNEL_layernorm_backward,
                                                 .as.layernorm_backward = kernel});
}

z3d_status z3d_rmsnorm_backward_halves(z3d_unit_run *run, z3d_halves halves, int slot, int weight,
                                       z3d_rmsnorm_backward kernel) {
    kernel.weight = z3d_unit_parameter(run, slot, weight);
    kernel.weight_gradient = z3d_unit_gradient(run, slot, weight);
    kernel.dtype = run->dtype;
    kernel.gradient_dtype = run->gradient_dtype;
    kernel.accumulate = run->group[slot].accumulate;
    const bool trained = z3d_unit_is_trained(run, slot, weight);
    if (halves == Z3D_WEIGHT_HALF && !trained) return Z3D_OK;
    if (halves != Z3D_BOTH_HALVES && trained) {
        float *sum;
        Z3D_TRY(z3d_unit_take_deferred(run, kernel.cols, sizeof *sum, &sum));
        if (halves == Z3D_WEIGHT_HALF) return add_sum(run, slot, weight, sum, kernel.cols);
        kernel.weight_gradient = sum;
        kernel.gradient_dtype = Z3D_F32;
        kernel.accumulate = false;
    }
    Z3D_TRY(need_target(run, kernel.cols, kernel.gradient_dtype, &kernel.weight_gradient));
    Z3D_TRY(need_target(run, kernel.rows * kernel.dx_stride, run->dtype, &kernel.dx));
    return z3d_launch(run->device, &(z3d_kernel){.kind = Z3D_KERNEL_rmsnorm_backward,
                                                 .as.rmsnorm_backward = kernel});
}

bool z3d_norm_needs_gradient(const z3d_unit_run *run, const z3d_norm *norm) {
    return !run->ends_backward || is_trained(run, norm);
}

z3d_status z3d_norm_backward(z3d_unit_run *run, z3d_halves halves, const z3d_norm *norm,
                             const void *dy, const void *residual, void *dx) {
    const int64_t hidden = z3d_transformer_of(run)->hidden_size;
    if (dx == run->input_gradient && !z3d_norm_needs_gradient(run, norm)) return Z3D_OK;
    if (has_mean(run)) return layernorm_backward(run, halves, norm, dy, residual, dx);
    return z3d_rmsnorm_backward_halves(run, halves, norm->slot, norm->weight,
                                       (z3d_rmsnorm_backward){.dy = dy,
                                                              .x = norm->x,
                                                              .rstd = norm->rstd,
                                                              .add_to = residual,
                                                              .dx = dx,
                                                              .rows = z3d_unit_own_rows(run).count,
                                                              .heads = 1,
                                                              .cols = hidden,
                                                              .x_stride = hidden,
                                                              .y_stride = hidden,
                                                              .dx_stride = hidden});
}
