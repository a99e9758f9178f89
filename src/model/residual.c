/* A block's residual stream: forward adds a branch to it; backward turns the gradient of a rank's
 * own rows into that of all rows, for the branch's backward. */
#include "src/model/transformer.h"

z3d_status z3d_residual_forward(z3d_unit_run *run, const z3d_linear *projection, const void *x,
                                const void *residual, const char *site, void *y) {
    const z3d_transformer *shape = z3d_transformer_of(run);
    z3d_tensor_lane lane = z3d_transformer_lane(run);
    z3d_row_range own = z3d_unit_own_rows(run);
    z3d_dropout dropout = z3d_unit_dropout(run, shape->hidden_dropout, site);
    int64_t mark = z3d_unit_workspace_mark(run);
    void *all;
    if (residual && dropout.p == 0 && z3d_group_size(lane.group) == 1) {
        z3d_linear joined = *projection;
        joined.residual = residual;
        return z3d_unit_row_forward(run, &joined, x, y);
    }
    Z3D_TRY(z3d_unit_take_all_rows(run, y, &all));
    Z3D_TRY(z3d_unit_row_forward(run, projection, x, all));
    z3d_unit_workspace_release(run, mark);
    return Z3D_LAUNCH(run->device, dropout_forward, .x = (char *)all + z3d_unit_own_offset(run),
                      .bias = projection->bias, .residual = residual, .y = y, .rows = own.count,
                      .first = own.first, .seq = run->tokens, .cols = shape->hidden_size,
                      .dtype = run->dtype, .dropout = dropout);
}

bool z3d_residual_dropout_is_identity(const z3d_unit_run *run) {
    const z3d_transformer *shape = z3d_transformer_of(run);
    return z3d_unit_dropout(run, shape->hidden_dropout, "").p == 0 && !shape->sequence_parallel;
}

z3d_status z3d_residual_dropout_gradient(const z3d_unit_run *run, const void *dy, const char *site,
                                         void *all) {
    const z3d_transformer *shape = z3d_transformer_of(run);
    z3d_tensor_lane lane = z3d_transformer_lane(run);
    z3d_row_range own = z3d_unit_own_rows(run);
    Z3D_TRY(Z3D_LAUNCH(
        run->device, dropout_backward, .dy = dy, .dx = (char *)all + z3d_unit_own_offset(run),
        .rows = own.count, .first = own.first, .seq = run->tokens, .cols = shape->hidden_size,
        .dtype = run->dtype, .dropout = z3d_unit_dropout(run, shape->hidden_dropout, site)));
    return z3d_gather_rows(&lane, all, z3d_unit_rows(run), shape->hidden_size);
}

static z3d_status take_rows(z3d_unit_run *run, z3d_halves halves, bool read, void **rows) {
    return z3d_unit_take_between(run, halves, read, z3d_unit_rows(run),
                                 z3d_row_bytes(run, z3d_transformer_of(run)->hidden_size), rows);
}

z3d_status z3d_residual_backward(z3d_unit_run *run, z3d_halves halves, bool trained,
                                 const void *after, const char *site, const void **dy) {
    void *all;
    *dy = after;
    if (z3d_residual_dropout_is_identity(run)) return Z3D_OK;
    Z3D_TRY(take_rows(run, halves, trained, &all));
    *dy = all;
    return halves & Z3D_INPUT_HALF ? z3d_residual_dropout_gradient(run, after, site, all) : Z3D_OK;
}

z3d_status z3d_residual_take_gradient(z3d_unit_run *run, z3d_halves halves, bool trained,
                                      void **d_x1) {
    const bool read = trained && z3d_residual_dropout_is_identity(run);
    *d_x1 = run->input_gradient;
    if (!run->ends_backward && (!read || halves == Z3D_BOTH_HALVES)) return Z3D_OK;
    return take_rows(run, halves, read, d_x1);
}
