/* The backend of groups whose collectives run on the device: NCCL, from the CUDA plugin. For the
 * host an operation is complete when it is enqueued; compute waits for it on its stream. One
 * connection of the whole world, bootstrapped over the world's own broadcast, is split into the
 * groups' communicators. Groups with the same members (the world and the data group, where all
 * ranks are data ranks) share one, and so its buffers and its stream. */
#include <string.h>

#include "parallel/interface/internal.h"

static z3d_status connect_world(z3d_world *world, z3d_device *device) {
    void *self;
    unsigned char id[Z3D_COLLECTIVES_ID_BYTES] = {0};
    const z3d_stream_collectives *table = z3d_device_collectives(device, &self);
    if (table->connected(self)) return Z3D_OK;
    /* Nobody begins to connect unless everybody can. */
    Z3D_TRY(z3d_world_agree(world, z3d_device_heard(device, table->load(self))));
    z3d_status status =
        world->rank == 0 ? z3d_device_heard(device, table->make_id(self, id)) : Z3D_OK;
    Z3D_TRY(z3d_world_agree(world, status));
    Z3D_TRY(z3d_world_broadcast(world, id, sizeof id, 0));
    return z3d_device_heard(device, table->connect(self, id, world->size, world->rank));
}

/* Those along which there is more than one rank. */
static int long_axes(const z3d_group *group) {
    int axes = group->axes;
    for (int axis = 0; axis < Z3D_AXIS_COUNT; axis++)
        if (group->mesh.size[axis] == 1) axes &= ~(1 << axis);
    return axes;
}

/* The same answer on every rank. */
static bool has_members_of(const z3d_group *group, const z3d_group *other) {
    return long_axes(group) == long_axes(other) && group->device == other->device &&
           memcmp(group->mesh.size, other->mesh.size, sizeof group->mesh.size) == 0;
}

z3d_status z3d_nccl_group_create(z3d_group *group) {
    void *self;
    const z3d_stream_collectives *table = z3d_device_collectives(group->device, &self);
    int colour = z3d_mesh_member(&group->mesh, group->axes, group->mesh.rank, 0);
    group->ops = &z3d_nccl_ops;
    for (const z3d_group *other = group->world->groups; other; other = other->next)
        if (other->ops == &z3d_nccl_ops && has_members_of(group, other)) {
            group->state = other->state;
            table->share(group->state);
            return Z3D_OK;
        }
    Z3D_TRY(connect_world(group->world, group->device));
    return z3d_device_heard(group->device,
                            table->split(self, colour, group->index, group->size,
                                         z3d_axes_name(group->axes).text, &group->state));
}

static const z3d_stream_collectives *table_of(const z3d_group *group) {
    void *self;
    return z3d_device_collectives(group->device, &self);
}

static z3d_status nccl_start(z3d_group *group, z3d_operation *operation) {
    z3d_traffic *traffic = &group->traffic[operation->call.kind];
    Z3D_TRY(z3d_device_heard(group->device,
                             table_of(group)->start(group->state, &operation->call,
                                                    &traffic->seconds, &operation->device_id)));
    z3d_operation_finish(group, operation);
    return Z3D_OK;
}

static z3d_status nccl_waited(z3d_group *group, const z3d_operation *operation) {
    z3d_traffic *traffic = &group->traffic[operation->call.kind];
    return z3d_device_heard(group->device, table_of(group)->wait(group->state, operation->device_id,
                                                                 &traffic->exposed_seconds));
}

static void nccl_destroy(z3d_group *group) {
    if (group->state) table_of(group)->destroy(group->state);
}

const z3d_group_ops z3d_nccl_ops = {.name = "nccl",
                                    .on_stream = true,
                                    .start = nccl_start,
                                    .waited = nccl_waited,
                                    .destroy = nccl_destroy};
