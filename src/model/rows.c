/* The rows that a rank has between the tensor-parallel layers. */
#include "src/model/transformer.h"

z3d_tensor_lane z3d_transformer_lane(const z3d_unit_run *run) {
    z3d_tensor_lane lane = z3d_unit_lane(run);
    lane.sequence_parallel =
        z3d_transformer_of(run)->sequence_parallel && !z3d_mode_generates(run->mode);
    return lane;
}

z3d_row_range z3d_unit_own_rows(const z3d_unit_run *run) {
    z3d_tensor_lane lane = z3d_transformer_lane(run);
    return z3d_own_rows(&lane, z3d_unit_rows(run));
}

int64_t z3d_unit_own_offset(const z3d_unit_run *run) {
    return z3d_unit_own_rows(run).first * z3d_row_bytes(run, z3d_transformer_of(run)->hidden_size);
}

const void *z3d_unit_own_part(const z3d_unit_run *run, const void *all) {
    return all ? (const char *)all + z3d_unit_own_offset(run) : NULL;
}

z3d_status z3d_unit_take_all(z3d_unit_run *run, void **all) {
    return z3d_unit_take_workspace(run, z3d_unit_rows(run),
                                   z3d_row_bytes(run, z3d_transformer_of(run)->hidden_size), all);
}

z3d_status z3d_unit_take_all_rows(z3d_unit_run *run, void *own, void **all) {
    *all = own;
    return z3d_transformer_lane(run).sequence_parallel ? z3d_unit_take_all(run, all) : Z3D_OK;
}

z3d_status z3d_unit_copy_rows(const z3d_unit_run *run, void *to, const void *from) {
    return Z3D_LAUNCH(run->device, cast, .destination = to, .source = from,
                      .count = z3d_unit_own_rows(run).count * z3d_transformer_of(run)->hidden_size,
                      .destination_dtype = run->dtype, .source_dtype = run->dtype);
}

z3d_status z3d_unit_all_rows(z3d_unit_run *run, const void *own, const void **all) {
    z3d_tensor_lane lane = z3d_transformer_lane(run);
    void *gathered;
    *all = own;
    if (!lane.sequence_parallel) return Z3D_OK;
    Z3D_TRY(z3d_unit_take_all(run, &gathered));
    *all = gathered;
    Z3D_TRY(z3d_unit_copy_rows(run, (char *)gathered + z3d_unit_own_offset(run), own));
    return z3d_gather_rows(&lane, gathered, z3d_unit_rows(run),
                           z3d_transformer_of(run)->hidden_size);
}
