/* The backend of sim groups: any size, no data, no peers. It writes every start and wait on a tape;
 * links.c prices them later. */
#include "parallel/interface/internal.h"
#include "src/device/sim/tape.h"

static z3d_status sim_start(z3d_group *group, z3d_operation *operation) {
    const z3d_collective *call = &operation->call;
    z3d_event event = {.kind = Z3D_EVENT_START,
                       .of = (int)call->kind,
                       .dtype = call->dtype,
                       .form = (int)call->wire,
                       .axes = (int)group->axes,
                       .peer = call->peer,
                       .id = operation->id,
                       .count = call->count};
    Z3D_TRY(z3d_tape_append(group->state, &event));
    z3d_operation_finish(group, operation);
    return Z3D_OK;
}

static z3d_status sim_waited(z3d_group *group, const z3d_operation *operation) {
    z3d_event event = {.kind = Z3D_EVENT_WAIT,
                       .of = (int)operation->call.kind,
                       .axes = (int)group->axes,
                       .id = operation->id};
    return z3d_tape_append(group->state, &event);
}

static const z3d_group_ops sim_ops = {
    .name = "sim", .on_stream = true, .start = sim_start, .waited = sim_waited};

int64_t z3d_group_buffers_on_cpus(int size, bool one_node) {
    return size > 1 ? z3d_message_buffer_bytes(size, one_node, one_node) : 0;
}

z3d_status z3d_group_create_sim(z3d_axes axes, int size, int index, z3d_tape *tape,
                                int64_t buffer_bytes, z3d_group **out) {
    Z3D_TRY(z3d_group_create_recording(axes, size, index, out));
    (*out)->buffer_bytes = buffer_bytes;
    if (size == 1) return Z3D_OK; /* a group of one has nobody to wait for */
    (*out)->ops = &sim_ops;
    (*out)->state = tape;
    return Z3D_OK;
}
