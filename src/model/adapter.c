/* A block's linear layers with their adapters. */
#include "src/model/transformer.h"

#include <stdio.h>

void z3d_unit_add_adapter(const z3d_unit_run *run, z3d_linear *linear, int weight, int64_t first,
                          int64_t out) {
    const z3d_transformer *shape = z3d_transformer_of(run);
    const int place = z3d_unit_adapter_place(run, weight);
    char site[32];
    if (!place) return;
    snprintf(site, sizeof site, "lora.%d", weight);
    linear->adapter[linear->adapters++] =
        (z3d_adapter){.rank = shape->lora.rank,
                      .first = first,
                      .out = out,
                      .scale = (float)shape->lora.scale,
                      .a = z3d_unit_parameter(run, 0, place),
                      .b = z3d_unit_parameter(run, 0, place + 1),
                      .a_gradient = z3d_unit_gradient(run, 0, place),
                      .b_gradient = z3d_unit_gradient(run, 0, place + 1),
                      .accumulate = run->group[0].accumulate,
                      .dropout = z3d_unit_dropout(run, shape->lora.dropout, site),
                      .tokens = run->tokens};
}

bool z3d_unit_trains_layer(const z3d_unit_run *run, int weight, int bias) {
    return z3d_unit_is_trained(run, 0, weight) || z3d_unit_adapter_place(run, weight) > 0 ||
           (bias >= 0 && z3d_unit_is_trained(run, 0, bias));
}

/* Takes workspace for the adapters of a linear layer. */
static z3d_status take_memory(z3d_unit_run *run, z3d_linear *linear, bool backward) {
    z3d_adapter *first = &linear->adapter[0];
    if (linear->adapters == 0) return Z3D_OK;
    const int64_t low = z3d_row_bytes(run, first->rank);
    Z3D_TRY(z3d_unit_take_workspace(run, linear->rows, low, &first->low));
    if (first->dropout.p > 0)
        Z3D_TRY(z3d_unit_take_workspace(run, linear->rows, z3d_row_bytes(run, linear->in),
                                        &first->dropped));
    for (int i = 0; i < linear->adapters; i++) {
        z3d_adapter *adapter = &linear->adapter[i];
        adapter->low = first->low;
        adapter->dropped = first->dropped;
        if (backward)
            Z3D_TRY(z3d_unit_take_workspace(run, linear->rows, low, &adapter->low_gradient));
    }
    return Z3D_OK;
}

typedef z3d_status forward_of_layer(const z3d_tensor_lane *lane, const z3d_linear *linear,
                                    const void *x, void *y);

static z3d_status run_forward(z3d_unit_run *run, const z3d_linear *linear, const void *x, void *y,
                              forward_of_layer *forward) {
    const z3d_tensor_lane lane = z3d_transformer_lane(run);
    const int64_t mark = z3d_unit_workspace_mark(run);
    z3d_linear own = *linear;
    Z3D_TRY(take_memory(run, &own, false));
    Z3D_TRY(forward(&lane, &own, x, y));
    z3d_unit_workspace_release(run, mark);
    return Z3D_OK;
}

z3d_status z3d_unit_column_forward(z3d_unit_run *run, const z3d_linear *linear, const void *x,
                                   void *y) {
    return run_forward(run, linear, x, y, z3d_column_linear_forward);
}

z3d_status z3d_unit_row_forward(z3d_unit_run *run, const z3d_linear *linear, const void *x,
                                void *y) {
    return run_forward(run, linear, x, y, z3d_row_linear_forward);
}

z3d_status z3d_unit_columns_backward(z3d_unit_run *run, const z3d_linear *linear, int count,
                                     const void *x, const void *const *dy, void *dx) {
    const z3d_tensor_lane lane = z3d_transformer_lane(run);
    const int64_t mark = z3d_unit_workspace_mark(run);
    z3d_linear own[Z3D_LAYER_ADAPTERS];
    for (int i = 0; i < count; i++) {
        own[i] = linear[i];
        Z3D_TRY(take_memory(run, &own[i], true));
    }
    Z3D_TRY(z3d_column_linears_backward(&lane, own, count, x, dy, dx));
    z3d_unit_workspace_release(run, mark);
    return Z3D_OK;
}

z3d_status z3d_unit_row_backward(z3d_unit_run *run, const z3d_linear *linear, const void *x,
                                 const void *dy, void *dx) {
    const z3d_tensor_lane lane = z3d_transformer_lane(run);
    const int64_t mark = z3d_unit_workspace_mark(run);
    z3d_linear own = *linear;
    Z3D_TRY(take_memory(run, &own, true));
    Z3D_TRY(z3d_row_linear_backward(&lane, &own, x, dy, dx));
    z3d_unit_workspace_release(run, mark);
    return Z3D_OK;
}
