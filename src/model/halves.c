/* Memory between the halves of a block's backward: only values that the second half reads are kept.
 */
#include "src/model/transformer.h"

bool z3d_unit_trains_layer(const z3d_unit_run *run, int weight, int bias) {
    return z3d_unit_is_trained(run, 0, weight) || z3d_unit_adapter_place(run, weight) > 0 ||
           (bias >= 0 && z3d_unit_is_trained(run, 0, bias));
}

z3d_status z3d_unit_take_between(z3d_unit_run *run, z3d_halves halves, bool read, int64_t count,
                                 int64_t size, void *out_pointer) {
    *(void **)out_pointer = NULL;
    if (read) return z3d_unit_take_deferred(run, count, size, out_pointer);
    if (!(halves & Z3D_INPUT_HALF)) return Z3D_OK;
    return z3d_unit_take_workspace(run, count, size, out_pointer);
}
