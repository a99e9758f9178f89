/* The backend of groups whose collectives run on the device: NCCL, from the CUDA plugin. For the
 * host an operation is complete when it is enqueued; the stream of the kernels waits for it. One
 * communicator of the whole world, bootstrapped with the world's own broadcast, is split into the
 * groups' communicators. Groups with the same members (the world and the data group, where all
 * ranks are data ranks) share a communicator, and so its buffers and its stream. */
#include <stdlib.h>
#include <string.h>

#include "parallel/interface/internal.h"

static z3d_status connect_world(z3d_world *world, z3d_device *device) {
    void *self;
    unsigned char id[Z3D_COLLECTIVES_ID_BYTES] = {0};
    const z3d_stream_collectives *table = z3d_device_collectives(device, &self);
    if (table->connected(self)) return Z3D_OK;
    /* No rank begins to connect unless all ranks have NCCL. */
    Z3D_TRY(z3d_world_agree(world, z3d_device_heard(device, table->load(self))));
    z3d_status status =
        world->rank == 0 ? z3d_device_heard(device, table->make_id(self, id)) : Z3D_OK;
    Z3D_TRY(z3d_world_agree(world, status));
    Z3D_TRY(z3d_world_broadcast(world, id, sizeof id, 0));
    return z3d_device_heard(device, table->connect(self, id, world->size, world->rank));
}

/* The group's axes that have more than one rank. */
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

/* ---- windows ---- */

/* The facts of a rank's memory block that must be equal on all members. */
typedef struct block {
    int64_t bytes; /* 0: NCCL did not allocate it */
    uint64_t layout;
} block;

static bool is_nccl(const z3d_group *group) {
    return group && group->ops == &z3d_nccl_ops;
}

static bool lies_alike(const z3d_group *group, const block *all) {
    const block *mine = &all[group->mesh.rank];
    bool alike = mine->bytes > 0;
    for (int i = 0; i < group->size; i++) {
        const block *other = &all[z3d_mesh_member(&group->mesh, group->axes, group->mesh.rank, i)];
        alike = alike && other->bytes == mine->bytes && other->layout == mine->layout;
    }
    return alike;
}

/* Appends the names of the groups that have windows now. A failure does not end the loop:
 * registering is collective, and ranks without the failure go on with the next group. */
static z3d_status open_windows(z3d_group *const group[Z3D_AXES_COUNT], void *memory,
                               const block *all, z3d_string *names) {
    z3d_status status = Z3D_OK;
    for (int axes = 0; axes < Z3D_AXES_COUNT; axes++) {
        const z3d_group *g = group[axes];
        bool open = false;
        if (!is_nccl(g) || !lies_alike(g, all)) continue;
        z3d_status opened = z3d_device_heard(
            g->device, table_of(g)->open_window(g->state, memory, all[g->mesh.rank].bytes, &open));
        if (opened != Z3D_OK) status = opened;
        if (open)
            z3d_string_append(names, "%s%s", names->text ? ", " : "",
                              z3d_axes_name((z3d_axes)axes).text);
    }
    return status;
}

static z3d_status reserve_buckets(z3d_group *const group[Z3D_AXES_COUNT],
                                  const int64_t bucket[Z3D_AXES_COUNT]) {
    char size[32];
    for (int axes = 0; axes < Z3D_AXES_COUNT; axes++) {
        z3d_group *g = group[axes];
        if (!is_nccl(g) || bucket[axes] == 0) continue;
        z3d_status status =
            z3d_device_heard(g->device, table_of(g)->reserve(g->state, bucket[axes]));
        if (status != Z3D_OK)
            return z3d_error_context(status, "a buffer of %s for the %s group's buckets",
                                     z3d_format_bytes(bucket[axes], size, sizeof size),
                                     z3d_axes_name((z3d_axes)axes).text);
        g->buffer_bytes = bucket[axes];
    }
    return Z3D_OK;
}

z3d_status z3d_groups_use(z3d_group *const group[Z3D_AXES_COUNT], void *memory, int64_t bytes,
                          uint64_t layout, const int64_t bucket[Z3D_AXES_COUNT]) {
    const z3d_group *whole = group[Z3D_AXES_WORLD]; /* has a communicator if any has */
    void *self;
    block *all;
    z3d_string names = {0};
    if (!is_nccl(whole)) return Z3D_OK;
    z3d_world *world = whole->world;
    const z3d_stream_collectives *table = z3d_device_collectives(whole->device, &self);
    const block mine = {table->allocated(self, memory) ? bytes : 0, layout};
    Z3D_TRY(z3d_world_agree(world, reserve_buckets(group, bucket)));
    Z3D_TRY(z3d_world_agree(world, z3d_new((size_t)world->size, sizeof *all, "blocks", &all)));
    z3d_status status = z3d_world_gather_all(world, &mine, all, sizeof mine);
    if (status == Z3D_OK) {
        bool opened = z3d_world_agree(world, open_windows(group, memory, all, &names)) == Z3D_OK;
        if (!opened) table->close_windows(self);
        z3d_log(Z3D_LOG_INFO, "NCCL's windows: %s%s",
                !opened      ? "none: "
                : names.text ? names.text
                             : "none",
                opened ? "" : z3d_error_message());
    }
    z3d_string_free(&names);
    free(all);
    return status;
}

const z3d_group_ops z3d_nccl_ops = {.name = "nccl",
                                    .on_stream = true,
                                    .start = nccl_start,
                                    .waited = nccl_waited,
                                    .destroy = nccl_destroy};
