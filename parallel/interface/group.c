/* Groups and their collectives: checks of arguments, the observer, tickets, traffic
 * counting, and the dispatch to a backend's table. */
#include <inttypes.h>
#include <stdlib.h>

#include "parallel/interface/internal.h"
#include "parallel/reduce/reduce.h"

/* ---- making ---- */

static bool on_one_node(const z3d_world *world, const z3d_mesh *mesh, z3d_axes axes) {
    for (int i = 0; i < z3d_mesh_size(mesh, axes); i++)
        if (world->node[z3d_mesh_member(mesh, axes, mesh->rank, i)] != world->node[world->rank])
            return false;
    return true;
}

static z3d_status create_backend(z3d_group *group) {
    void *unused;
    if (group->device && z3d_device_collectives(group->device, &unused))
        return z3d_nccl_group_create(group);
    bool share = on_one_node(group->world, &group->mesh, group->axes);
    return z3d_message_group_create(group, share ? group->world->sharing : Z3D_SHARE_NOTHING);
}

static void link_group(z3d_world *world, z3d_group *group) {
    z3d_group **end = &world->groups;
    while (*end) end = &(*end)->next;
    *end = group;
}

static void unlink_group(z3d_group *group) {
    z3d_group **link = &group->world->groups;
    while (*link && *link != group) link = &(*link)->next;
    if (!*link) return;
    *link = group->next;
    /* Other groups on this device still need its poll. */
    for (z3d_group *other = group->world->groups; other; other = other->next)
        if (other->device == group->device) return;
    if (group->device) z3d_device_set_poll(group->device, NULL, NULL);
}

static void place(z3d_group *group, z3d_places places) {
    group->places = places;
    group->hops = z3d_links_hops(&group->mesh, group->axes, &places);
    group->across = 0;
    for (int i = 0; i < group->size; i++)
        group->across +=
            z3d_links_across(&places, group->mesh.rank,
                             z3d_mesh_member(&group->mesh, group->axes, group->mesh.rank, i));
}

void z3d_groups_play_nodes(z3d_group *const group[Z3D_AXES_COUNT], int ranks) {
    for (int axes = 0; axes < Z3D_AXES_COUNT; axes++)
        if (group[axes] && group[axes]->world) place(group[axes], (z3d_places){.devices = ranks});
}

z3d_status z3d_group_create_with(z3d_world *world, const z3d_mesh *mesh, z3d_axes axes,
                                 z3d_device *device, z3d_status (*make_backend)(z3d_group *group),
                                 z3d_group **out) {
    *out = NULL;
    if (axes == Z3D_AXES_NONE || axes >= Z3D_AXES_COUNT)
        return Z3D_ERROR(Z3D_ERR_USAGE, "set %d of axes does not exist", (int)axes);
    if (z3d_mesh_size(mesh, Z3D_AXES_WORLD) != world->size || mesh->rank != world->rank)
        return Z3D_ERROR(Z3D_ERR_TOPOLOGY,
                         "the mesh is of rank %d of %d, but this is rank %d of %d", mesh->rank,
                         z3d_mesh_size(mesh, Z3D_AXES_WORLD), world->rank, world->size);
    z3d_group *group = NULL;
    z3d_status status = z3d_new(1, sizeof *group, "a process group", &group);
    if (status == Z3D_OK) {
        group->axes = axes;
        group->mesh = *mesh;
        group->size = z3d_mesh_size(mesh, axes);
        group->index = z3d_mesh_index(mesh, axes, mesh->rank);
        group->world = world;
        group->device = device;
        group->ops = &z3d_self_ops;
        place(group, (z3d_places){.node = world->node});
    }
    /* All ranks make it, or none. */
    Z3D_TRY_GOTO(status, z3d_world_agree(world, status), failed);
    if (group->size > 1) status = make_backend(group);
    Z3D_TRY_GOTO(status, z3d_world_agree(world, status), failed);
    link_group(world, group);
    if (device) z3d_device_set_poll(device, z3d_world_poll, world);
    *out = group;
    return Z3D_OK;
failed:
    if (group && group->ops->destroy) group->ops->destroy(group);
    free(group);
    return status;
}

z3d_status z3d_group_create(z3d_world *world, const z3d_mesh *mesh, z3d_axes axes,
                            z3d_device *device, z3d_group **out) {
    return z3d_group_create_with(world, mesh, axes, device, create_backend, out);
}

z3d_status z3d_group_create_recording(z3d_axes axes, int size, int index, z3d_group **out) {
    *out = NULL;
    if (axes == Z3D_AXES_NONE || axes >= Z3D_AXES_COUNT || size < 1 || index < 0 || index >= size)
        return Z3D_ERROR(Z3D_ERR_USAGE, "invalid recording group: axes %d, size %d, index %d",
                         (int)axes, size, index);
    z3d_group *group = NULL;
    Z3D_TRY(z3d_new(1, sizeof *group, "a recording group", &group));
    group->axes = axes;
    group->size = size;
    group->index = index;
    group->ops = &z3d_record_ops;
    *out = group;
    return Z3D_OK;
}

z3d_status z3d_groups_create(z3d_world *world, const z3d_mesh *mesh, z3d_device *device,
                             z3d_group *group[Z3D_AXES_COUNT]) {
    for (int axes = 0; axes < Z3D_AXES_COUNT; axes++) group[axes] = NULL;
    for (int axes = 0; axes < Z3D_AXES_COUNT; axes++)
        if (z3d_axes_have_group(mesh, (z3d_axes)axes))
            Z3D_TRY(z3d_group_create(world, mesh, (z3d_axes)axes, device, &group[axes]));
    return Z3D_OK;
}

void z3d_groups_destroy(z3d_group *group[Z3D_AXES_COUNT]) {
    for (int axes = 0; axes < Z3D_AXES_COUNT; axes++) {
        z3d_group_destroy(group[axes]);
        group[axes] = NULL;
    }
}

static void free_operations(z3d_group *group, z3d_operation *list) {
    while (list) {
        z3d_operation *next = list->next;
        z3d_staging_free(group, list);
        free(list);
        list = next;
    }
}

void z3d_group_destroy(z3d_group *group) {
    if (!group) return;
    if (group->world) unlink_group(group);
    if (group->ops->destroy) group->ops->destroy(group);
    free_operations(group, group->live);
    free_operations(group, group->free);
    free(group);
}

z3d_axes z3d_group_axes(const z3d_group *group) {
    return group->axes;
}

int z3d_group_size(const z3d_group *group) {
    return group->size;
}

int z3d_group_index(const z3d_group *group) {
    return group->index;
}

int64_t z3d_group_buffer_bytes(const z3d_group *group) {
    return group ? group->buffer_bytes : 0;
}

const char *z3d_group_backend(const z3d_group *group) {
    bool messages = group->ops == &z3d_message_ops;
    return messages ? group->world->transport->name : group->ops->name;
}

bool z3d_group_on_stream(const z3d_group *group) {
    return !group || group->ops->on_stream;
}

void z3d_group_set_observer(z3d_group *group, z3d_observer observe, void *context) {
    group->observe = observe;
    group->observe_context = context;
}

void z3d_group_set_wait_observer(z3d_group *group, z3d_wait_observer waited, void *context) {
    group->waited = waited;
    group->waited_context = context;
}

void z3d_group_set_result_observer(z3d_group *group, z3d_observer result, void *context) {
    group->result = result;
    group->result_context = context;
}

const z3d_traffic *z3d_group_traffic(const z3d_group *group, z3d_collective_kind kind) {
    static const z3d_traffic none[Z3D_COLLECTIVE_COUNT];
    return group ? &group->traffic[kind] : &none[kind];
}

void z3d_traffic_add(z3d_traffic *traffic, const z3d_traffic *amount, int times) {
    traffic->calls += times * amount->calls;
    traffic->bytes += times * amount->bytes;
    traffic->volume_elements += times * amount->volume_elements;
    traffic->scalar_calls += times * amount->scalar_calls;
    traffic->scalar_bytes += times * amount->scalar_bytes;
    traffic->bytes_between_nodes += times * amount->bytes_between_nodes;
}

void z3d_group_count(z3d_group *group, z3d_collective_kind kind, const z3d_traffic *amount,
                     int times) {
    if (group) z3d_traffic_add(&group->traffic[kind], amount, times);
}

/* ---- starting ---- */

static bool is_p2p(z3d_collective_kind kind) {
    return kind == Z3D_COLLECTIVE_SEND || kind == Z3D_COLLECTIVE_RECV;
}

static z3d_status refuse(const z3d_group *group, const z3d_collective *call, const char *why) {
    return Z3D_ERROR(Z3D_ERR_USAGE,
                     "%s on the %s group (size %d, index %d): %s (count %" PRId64
                     ", stride %" PRId64 ", dtype %s, peer %d)",
                     z3d_collective_name(call->kind), z3d_axes_name(group->axes).text, group->size,
                     group->index, why, call->count, call->stride, z3d_dtype_name(call->dtype),
                     call->peer);
}

static bool adds(z3d_collective_kind kind) {
    return kind == Z3D_COLLECTIVE_ALL_REDUCE || kind == Z3D_COLLECTIVE_REDUCE_SCATTER;
}

static z3d_status check_wire(const z3d_group *group, const z3d_collective *call) {
    if (call->wire == Z3D_F32) return Z3D_OK;
    if (call->wire != Z3D_BF16 && call->wire != Z3D_F16)
        return refuse(group, call, "elements travel in fp32, bf16 or fp16");
    if (!adds(call->kind) || call->op != Z3D_SUM || call->dtype != Z3D_F32)
        return refuse(group, call, "only sums of fp32 elements travel in another type");
    if (group->ops == &z3d_nccl_ops)
        return Z3D_ERROR(
            Z3D_ERR_UNSUPPORTED,
            "%s on the %s group: NCCL adds in the type in which elements travel; write "
            "communication_data_type auto, or training.collectives host",
            z3d_collective_name(call->kind), z3d_axes_name(group->axes).text);
    return Z3D_OK;
}

static z3d_status check_call(const z3d_group *group, const z3d_collective *call) {
    z3d_collective_kind kind = call->kind;
    if ((unsigned)kind >= Z3D_COLLECTIVE_COUNT) return refuse(group, call, "no such collective");
    if (kind == Z3D_COLLECTIVE_BARRIER) return Z3D_OK;
    if ((unsigned)call->dtype >= Z3D_DTYPE_COUNT) return refuse(group, call, "no such data type");
    int64_t elements, bytes;
    bool rows = z3d_collective_has_rows(kind);
    if (call->count < 0) return refuse(group, call, "negative count");
    if (rows && call->stride < call->count) return refuse(group, call, "rows overlap");
    if (!z3d_mul_i64(rows ? call->stride : call->count, rows ? group->size : 1, &elements) ||
        !z3d_bytes_fit(call->dtype, elements, &bytes))
        return refuse(group, call, "too many bytes for an int64");
    if (call->count > 0 && !call->buffer) return refuse(group, call, "no buffer");
    if (adds(kind) && !z3d_reduce_find(call->dtype, call->op))
        return refuse(group, call, "this type cannot be summed or compared");
    if ((is_p2p(kind) || kind == Z3D_COLLECTIVE_BROADCAST) &&
        (call->peer < 0 || call->peer >= group->size))
        return refuse(group, call, "no such member");
    if (is_p2p(kind) && call->peer == group->index && group->size > 1)
        return refuse(group, call, "a member cannot send to itself");
    return check_wire(group, call);
}

/* 2 count (N-1)/N without overflow of the product. */
static int64_t all_reduce_volume(int64_t count, int size) {
    int64_t twice = 2 * count;
    return twice - (twice / size + (twice % size != 0));
}

int64_t z3d_collective_volume(z3d_collective_kind kind, int64_t count, int size) {
    if (size == 1) return 0;
    switch (kind) {
    case Z3D_COLLECTIVE_ALL_REDUCE:
        return all_reduce_volume(count, size);
    case Z3D_COLLECTIVE_REDUCE_SCATTER:
    case Z3D_COLLECTIVE_ALL_GATHER:
        return count * (size - 1);
    case Z3D_COLLECTIVE_BROADCAST:
    case Z3D_COLLECTIVE_SEND:
        return count;
    default:
        return 0;
    }
}

static double between_nodes(const z3d_group *group, const z3d_collective *call, int64_t bytes) {
    if (!group->world) return 0;
    if (z3d_collective_travels_in(call) != call->dtype) /* no ring: directly to every member */
        return (double)bytes * group->across / (group->size - 1);
    if (call->kind != Z3D_COLLECTIVE_SEND)
        return z3d_links_crossing((double)bytes, group->hops, group->size);
    const int rank = group->mesh.rank,
              peer = z3d_mesh_member(&group->mesh, group->axes, rank, call->peer);
    return z3d_links_across(&group->places, rank, peer) ? (double)bytes : 0;
}

static void count_call(z3d_group *group, const z3d_collective *call) {
    z3d_traffic *traffic = &group->traffic[call->kind];
    int64_t elements = z3d_collective_volume(call->kind, call->count, group->size);
    /* A barrier has no type. */
    int64_t bytes = elements ? z3d_bytes_of(z3d_collective_travels_in(call), elements) : 0;
    if (bytes > 0) traffic->bytes_between_nodes += between_nodes(group, call, bytes);
    if (call->scalar) {
        traffic->scalar_calls++;
        traffic->scalar_bytes += bytes;
    } else {
        traffic->calls++;
        traffic->bytes += bytes;
        traffic->volume_elements += elements;
    }
}

/* Operations are kept for reuse: after the first use a step allocates none. */
static z3d_status take_operation(z3d_group *group, z3d_operation **out) {
    z3d_operation *operation = group->free;
    if (operation)
        group->free = operation->next;
    else
        Z3D_TRY(z3d_new(1, sizeof *operation, "a pending collective", &operation));
    *operation = (z3d_operation){.id = ++group->next_id,
                                 .staging = operation->staging,
                                 .staging_bytes = operation->staging_bytes};
    *out = operation;
    return Z3D_OK;
}

static void give_operation(z3d_group *group, z3d_operation *operation) {
    z3d_operation **link = &group->live, *before = NULL;
    while (*link != operation) {
        before = *link;
        link = &before->next;
    }
    *link = operation->next;
    if (group->latest == operation) group->latest = before;
    operation->next = group->free;
    group->free = operation;
}

static z3d_operation *find_operation(const z3d_group *group, z3d_ticket ticket) {
    z3d_operation *operation = group->live;
    while (operation && operation->id != ticket.id) operation = operation->next;
    return operation;
}

/* Tells the device which of its bytes a collective works on. */
static void touch_memory(const z3d_group *group, const z3d_collective *call) {
    const int rows = z3d_collective_has_rows(call->kind) ? group->size : 1;
    if (!call->buffer) return; /* a barrier has no type */
    for (int row = 0; row < rows; row++)
        z3d_device_touch(group->device,
                         (const char *)call->buffer + z3d_bytes_of(call->dtype, row * call->stride),
                         z3d_bytes_of(call->dtype, call->count));
}

z3d_status z3d_collective_start(z3d_group *group, const z3d_collective *call, z3d_ticket *ticket) {
    ticket->id = 0;
    Z3D_TRY(check_call(group, call));
    Z3D_TRY(z3d_error_restore(&group->broken));
    if (group->observe) Z3D_TRY(group->observe(group->observe_context, group, call));
    bool staged = !group->ops->on_stream && group->device && !z3d_device_host_reads(group->device);
    if (group->device) touch_memory(group, call);
    if (!group->ops->on_stream && group->device) Z3D_TRY(z3d_device_synchronize(group->device));
    z3d_operation *operation;
    Z3D_TRY(take_operation(group, &operation));
    operation->call = *call;
    *(group->latest ? &group->latest->next : &group->live) = operation;
    group->latest = operation;
    group->pending++;
    if (group->world) operation->started = z3d_now();
    z3d_status status = staged ? z3d_staging_begin(group, operation) : Z3D_OK;
    if (status == Z3D_OK) status = group->ops->start(group, operation);
    if (status != Z3D_OK) {
        if (!operation->done) group->pending--;
        give_operation(group, operation);
        return status;
    }
    count_call(group, call);
    ticket->id = operation->id;
    return Z3D_OK;
}

/* ---- finishing ---- */

static z3d_status take_result(z3d_group *group, z3d_operation *operation) {
    z3d_status status = operation->target.buffer ? z3d_staging_end(group, operation) : Z3D_OK;
    if (status == Z3D_OK && group->ops->waited) status = group->ops->waited(group, operation);
    const z3d_collective *call = operation->target.buffer ? &operation->target : &operation->call;
    if (status == Z3D_OK && group->result)
        status = group->result(group->result_context, group, call);
    give_operation(group, operation);
    return status;
}

static z3d_status unknown_ticket(const z3d_group *group, z3d_ticket ticket) {
    return Z3D_ERROR(Z3D_ERR_USAGE,
                     "ticket %" PRId64 " of the %s group does not exist or was already used",
                     ticket.id, z3d_axes_name(group->axes).text);
}

z3d_status z3d_collective_wait(z3d_group *group, z3d_ticket ticket) {
    z3d_operation *operation = find_operation(group, ticket);
    if (!operation) return unknown_ticket(group, ticket);
    if (operation->done && !group->world) return take_result(group, operation);
    double begun = z3d_now();
    z3d_collective_kind kind = operation->call.kind;
    int64_t idle = 0;
    while (!operation->done) {
        if (z3d_world_progress(group->world))
            idle = 0;
        else
            z3d_world_idle(group->world, idle++);
        if (group->broken.status != Z3D_OK) {
            give_operation(group, operation);
            return z3d_error_restore(&group->broken);
        }
    }
    double over = z3d_now();
    group->traffic[kind].exposed_seconds += over - begun;
    if (group->waited) group->waited(group->waited_context, group, &operation->call, begun, over);
    return take_result(group, operation);
}

z3d_status z3d_collective_test(z3d_group *group, z3d_ticket ticket) {
    z3d_operation *operation = find_operation(group, ticket);
    if (!operation) return unknown_ticket(group, ticket);
    if (!operation->done) {
        z3d_world_progress(group->world);
        Z3D_TRY(z3d_error_restore(&group->broken));
    }
    return operation->done ? take_result(group, operation) : Z3D_AGAIN;
}

z3d_status z3d_collective_run(z3d_group *group, const z3d_collective *call) {
    z3d_ticket ticket;
    Z3D_TRY(z3d_collective_start(group, call, &ticket));
    return z3d_collective_wait(group, ticket);
}
