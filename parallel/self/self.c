/* Backends that move no data: of groups of one member, whose buffer is already the result, and of
 * recording groups, which have any size and no peers: only observers see their calls. */
#include "parallel/interface/internal.h"

static z3d_status finish(z3d_group *group, z3d_operation *operation) {
    z3d_operation_finish(group, operation);
    return Z3D_OK;
}

static z3d_status self_start(z3d_group *group, z3d_operation *operation) {
    z3d_collective_kind kind = operation->call.kind;
    if (kind == Z3D_COLLECTIVE_SEND || kind == Z3D_COLLECTIVE_RECV)
        return Z3D_ERROR(Z3D_ERR_COMM, "%s in a group of one member (%s): there is no other member",
                         z3d_collective_name(kind), z3d_axes_name(group->axes).text);
    return finish(group, operation);
}

const z3d_group_ops z3d_self_ops = {.name = "self", .on_stream = true, .start = self_start};
const z3d_group_ops z3d_record_ops = {.name = "record", .on_stream = true, .start = finish};
