/* For writing units: converts a unit's run to the arguments of the tensor-parallel layers. */
#ifndef ZERO3D_MODEL_LAYERS_H
#define ZERO3D_MODEL_LAYERS_H

#include "src/model/unit.h"
#include "tensor_parallel/tensor_parallel.h"

static inline z3d_tensor_lane z3d_unit_lane(const z3d_unit_run *run) {
    return (z3d_tensor_lane){.device = run->device,
                             .group = run->process_group[0],
                             .dtype = run->dtype,
                             .gradient_dtype = run->gradient_dtype};
}

/* In generation, int32[batch] (else NULL): the position of each sample's first token.
 * z3d_unit_output_rows: the index of the token in each sample whose logits are the output
 * (z3d_model_take_tokens). */
static inline const int32_t *z3d_unit_starts(const z3d_unit_run *run) {
    return z3d_mode_generates(run->mode) ? run->field[1] : NULL;
}
/* For packed documents, outside generation, int32[batch, tokens] (else NULL): each token's position
 * in its document. */
static inline const int32_t *z3d_unit_row_position(const z3d_unit_run *run) {
    return z3d_mode_generates(run->mode) ? NULL : run->field[2];
}
static inline const int32_t *z3d_unit_output_rows(const z3d_unit_run *run) {
    return z3d_mode_generates(run->mode) ? (const int32_t *)run->field[1] + run->batch : NULL;
}

/* A linear layer on `rows` rows, in -> out (local sizes). Its weight is parameter `weight` of the
 * unit's group `slot`, its bias parameter `bias` (negative: none). */
static inline z3d_linear z3d_unit_linear(const z3d_unit_run *run, int slot, int weight, int bias,
                                         int64_t rows, int64_t in, int64_t out) {
    return (z3d_linear){
        .rows = rows,
        .in = in,
        .out = out,
        .weight = z3d_unit_parameter(run, slot, weight),
        .bias = bias < 0 ? NULL : z3d_unit_parameter(run, slot, bias),
        .weight_gradient = z3d_unit_gradient(run, slot, weight),
        .bias_gradient = bias < 0 ? NULL : z3d_unit_gradient(run, slot, bias),
        .accumulate = run->group[slot].accumulate,
        .inference = z3d_mode_generates(run->mode),
    };
}

#endif
