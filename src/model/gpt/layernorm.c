/* Backward of a layernorm, whole or in halves. One kernel reads a row once for its input's gradient
 * and for the sums that are the gradients of weight and bias. So the input half computes both, and
 * keeps the sums in fp32: two rows of hidden, where dy would be all rows. */
#include "src/model/gpt/units.h"

/* gradient (+)= sum, rounded as the kernel rounds its own sums. */
static z3d_status add_sum(const z3d_unit_run *run, int slot, int index, const float *sum,
                          int64_t count) {
    void *gradient = z3d_unit_gradient(run, slot, index);
    if (run->group[slot].accumulate)
        return Z3D_LAUNCH(run->device, accumulate, .y = gradient, .x = sum, .count = count,
                          .y_dtype = run->gradient_dtype, .x_dtype = Z3D_F32);
    return Z3D_LAUNCH(run->device, cast, .destination = gradient, .source = sum, .count = count,
                      .destination_dtype = run->gradient_dtype, .source_dtype = Z3D_F32);
}

z3d_status z3d_gpt_layernorm_backward(z3d_unit_run *run, gpt_halves halves,
                                      const gpt_layernorm *norm, const void *dy,
                                      const void *residual, void *dx) {
    const int64_t hidden = gpt_of(run)->config.hidden_size;
    z3d_layernorm_backward kernel = {
        .x = norm->x,
        .weight = z3d_unit_parameter(run, norm->slot, norm->weight),
        .mean = norm->mean,
        .rstd = norm->rstd,
        .add_to = residual,
        .dx = dx,
        .weight_gradient = z3d_unit_gradient(run, norm->slot, norm->weight),
        .bias_gradient = z3d_unit_gradient(run, norm->slot, norm->weight + 1),
        .rows = z3d_gpt_own_rows(run).count,
        .cols = hidden,
        .dtype = run->dtype,
        .gradient_dtype = run->gradient_dtype,
        .accumulate = run->group[norm->slot].accumulate,
    };
    if (halves != GPT_BOTH_HALVES) {
        float *sums;
        Z3D_TRY(z3d_unit_take_deferred(run, 2 * hidden, sizeof *sums, &sums));
        if (halves == GPT_WEIGHT_HALF) {
            Z3D_TRY(add_sum(run, norm->slot, norm->weight, sums, hidden));
            return add_sum(run, norm->slot, norm->weight + 1, sums + hidden, hidden);
        }
        kernel.weight_gradient = sums;
        kernel.bias_gradient = sums + hidden;
        kernel.gradient_dtype = Z3D_F32;
        kernel.accumulate = false;
    }
    kernel.dy = (const char *)dy + z3d_gpt_own_offset(run);
    return z3d_launch(run->device, &(z3d_kernel){.kind = Z3D_KERNEL_layernorm_backward,
                                                 .as.layernorm_backward = kernel});
}
