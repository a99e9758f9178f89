/* Between the tensor-parallel layers: which rows a rank has, and how the gradient of its own rows
 * becomes that of all rows before a layer's backward. */
#include "src/model/gpt/units.h"

static int64_t row_bytes(const z3d_unit_run *run) {
    return gpt_of(run)->config.hidden_size * (int64_t)z3d_dtype_size(run->dtype);
}

z3d_tensor_lane z3d_gpt_lane(const z3d_unit_run *run) {
    z3d_tensor_lane lane = z3d_unit_lane(run);
    lane.sequence_parallel =
        gpt_of(run)->config.sequence_parallel && !z3d_mode_generates(run->mode);
    return lane;
}

z3d_row_range z3d_gpt_own_rows(const z3d_unit_run *run) {
    z3d_tensor_lane lane = z3d_gpt_lane(run);
    return z3d_own_rows(&lane, gpt_rows(run));
}

int64_t z3d_gpt_own_offset(const z3d_unit_run *run) {
    return z3d_gpt_own_rows(run).first * row_bytes(run);
}

z3d_status z3d_gpt_take_all(z3d_unit_run *run, void *own, void **all) {
    *all = own;
    if (!z3d_gpt_lane(run).sequence_parallel) return Z3D_OK;
    return z3d_unit_take_workspace(run, gpt_rows(run), row_bytes(run), all);
}

bool z3d_gpt_dropout_is_identity(const z3d_unit_run *run) {
    const z3d_gpt_config *c = &gpt_of(run)->config;
    return gpt_dropout(run, c->hidden_dropout, "").p == 0 && !c->sequence_parallel;
}

z3d_status z3d_gpt_dropout_gradient(const z3d_unit_run *run, const void *dy, const char *site,
                                    void *all) {
    const z3d_gpt_config *c = &gpt_of(run)->config;
    z3d_tensor_lane lane = z3d_gpt_lane(run);
    z3d_row_range own = z3d_gpt_own_rows(run);
    Z3D_TRY(Z3D_LAUNCH(run->device, dropout_backward, .dy = dy,
                       .dx = (char *)all + z3d_gpt_own_offset(run), .rows = own.count,
                       .first = own.first, .seq = run->tokens, .cols = c->hidden_size,
                       .dtype = run->dtype, .dropout = gpt_dropout(run, c->hidden_dropout, site)));
    return z3d_gather_rows(&lane, all, gpt_rows(run), c->hidden_size);
}
