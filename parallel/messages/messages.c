/* The backend of groups over messages: a queue of collectives, one in progress at a time. Sends and
 * receives progress next to it. */
#include <stdlib.h>

#include "parallel/messages/messages.h"

int64_t z3d_message_buffer_bytes(int size, bool node, bool reads) {
    int64_t bytes = node ? z3d_node_buffer_bytes() : (int64_t)size * Z3D_SMALL_BYTES;
    return bytes + (reads ? 0 : (int64_t)Z3D_RING_WINDOW * Z3D_RING_SEGMENT);
}

/* Allocates the buffers of messages: fewer, or none, where shared memory does the work. */
static z3d_status make_buffers(z3d_message_group *own, size_t size, int64_t *bytes) {
    bool reads = own->node && z3d_node_takes_all(own->node);
    *bytes = z3d_message_buffer_bytes((int)size, own->node, reads);
    if (!own->node) {
        Z3D_TRY(z3d_new(2 * size, sizeof(z3d_message), "messages", &own->exchanged));
        Z3D_TRY(z3d_new(size, Z3D_SMALL_BYTES, "small communication buffers", &own->small));
    }
    if (!reads)
        Z3D_TRY(z3d_new(Z3D_RING_WINDOW, Z3D_RING_SEGMENT, "communication slots", &own->slots));
    return Z3D_OK;
}

z3d_status z3d_message_group_create(z3d_group *group, z3d_sharing sharing) {
    z3d_message_group *own = NULL;
    int *members = NULL;
    size_t size = (size_t)group->size;
    z3d_status status = z3d_new(1, sizeof *own, "a process group", &own);
    if (status == Z3D_OK) status = z3d_new(size, sizeof *members, "members", &members);
    for (int i = 0; i < group->size && status == Z3D_OK; i++)
        members[i] = z3d_mesh_member(&group->mesh, group->axes, group->mesh.rank, i);
    group->ops = &z3d_message_ops;
    group->state = own;
    status = z3d_world_agree(group->world, status);
    if (status == Z3D_OK)
        status = z3d_channel_open(group->world, members, group->size, group->index, &own->channel);
    free(members);
    Z3D_TRY(status);
    if (sharing != Z3D_SHARE_NOTHING)
        Z3D_TRY(z3d_node_create(own->channel, sharing == Z3D_SHARE_EVERYTHING, &own->node));
    Z3D_TRY(z3d_new(size, sizeof(int64_t), "send counts", &own->sent_to));
    Z3D_TRY(z3d_new(size, sizeof(int64_t), "receive counts", &own->received_from));
    return make_buffers(own, size, &group->buffer_bytes);
}

/* After an error operations may still be pending: they must not write into freed memory. */
static void drop_messages(z3d_message_group *own, int size) {
    for (int i = 0; i < Z3D_RING_WINDOW; i++) {
        z3d_message_drop(&own->in.message[i]);
        z3d_message_drop(&own->out.message[i]);
    }
    for (int i = 0; own->exchanged && i < 2 * size; i++) z3d_message_drop(&own->exchanged[i]);
    for (z3d_operation *p2p = own->p2p; p2p; p2p = p2p->queued) z3d_message_drop(&p2p->message);
}

static void message_destroy(z3d_group *group) {
    z3d_message_group *own = group->state;
    if (!own) return;
    drop_messages(own, group->size);
    z3d_node_destroy(own->node);
    z3d_channel_close(own->channel);
    free(own->slots);
    free(own->small);
    free(own->exchanged);
    free(own->received_from);
    free(own->sent_to);
    free(own);
}

void z3d_windows_clear(z3d_message_group *own) {
    own->in = (z3d_window){.sends = false};
    own->out = (z3d_window){.sends = true};
}

bool z3d_window_is_full(const z3d_window *window) {
    return window->begun - window->ended == Z3D_RING_WINDOW;
}

z3d_status z3d_window_begin(const z3d_message_group *own, z3d_window *window, void *data,
                            int64_t bytes, int peer) {
    Z3D_TRY(z3d_message_start(own->channel, window->sends, data, bytes, peer, own->tag,
                              &window->message[window->begun % Z3D_RING_WINDOW]));
    window->begun++;
    return Z3D_OK;
}

z3d_status z3d_window_test(z3d_window *window, bool *ended) {
    *ended = false;
    if (window->ended == window->begun) return Z3D_OK;
    return z3d_message_test(&window->message[window->ended % Z3D_RING_WINDOW], ended);
}

static bool is_small(const z3d_collective *call) {
    return call->kind == Z3D_COLLECTIVE_BARRIER ||
           (call->kind == Z3D_COLLECTIVE_ALL_REDUCE &&
            z3d_bytes_of(call->dtype, call->count) <= Z3D_SMALL_BYTES);
}

static const z3d_message_algorithm *algorithm_of(const z3d_message_group *own,
                                                 const z3d_collective *call) {
    if (own->node && z3d_node_takes(own->node, call)) return NULL;
    if (call->wire != Z3D_F32) return &z3d_message_encoded;
    return !own->node && is_small(call) ? &z3d_message_exchange : &z3d_message_ring;
}

static z3d_status begin_head(z3d_group *group) {
    z3d_message_group *own = group->state;
    z3d_operation *head = own->head;
    own->tag = (int)(own->sequence++ % (Z3D_TAGS / 2)) * 2;
    own->active = true;
    head->started = z3d_now(); /* from its turn on: time in the queue is not its own */
    own->algorithm = algorithm_of(own, &head->call);
    if (own->algorithm) {
        if (own->node) z3d_node_skip(own->node, (uint64_t)own->sequence);
        return own->algorithm->begin(group, head);
    }
    z3d_node_begin(own->node, &head->call, (uint64_t)own->sequence);
    return Z3D_OK;
}

static z3d_status progress_head(z3d_group *group, bool *moved) {
    z3d_message_group *own = group->state;
    bool done;
    if (own->algorithm) return own->algorithm->progress(group, own->head, moved);
    Z3D_TRY(z3d_node_progress(own->node, &own->head->call, moved, &done));
    if (done) own->active = false;
    return Z3D_OK;
}

static z3d_status progress_collectives(z3d_group *group, bool *moved) {
    z3d_message_group *own = group->state;
    while (own->head) {
        if (!own->active) Z3D_TRY(begin_head(group));
        Z3D_TRY(progress_head(group, moved));
        if (own->active) return Z3D_OK;
        z3d_operation *done = own->head;
        own->head = done->queued;
        if (!own->head) own->tail = NULL;
        *moved = true;
        z3d_operation_finish(group, done);
    }
    return Z3D_OK;
}

static z3d_status message_progress(z3d_group *group, bool *moved) {
    Z3D_TRY(z3d_p2p_progress(group, moved));
    return progress_collectives(group, moved);
}

static z3d_status message_start(z3d_group *group, z3d_operation *operation) {
    z3d_message_group *own = group->state;
    z3d_collective_kind kind = operation->call.kind;
    if (operation->call.count == 0 && kind != Z3D_COLLECTIVE_BARRIER) {
        /* All members have count 0: no message is needed. */
        z3d_operation_finish(group, operation);
        return Z3D_OK;
    }
    if (kind == Z3D_COLLECTIVE_SEND || kind == Z3D_COLLECTIVE_RECV)
        return z3d_p2p_start(group, operation);
    if (own->tail)
        own->tail->queued = operation;
    else
        own->head = operation;
    own->tail = operation;
    /* Sends the first messages now: the next poll may come late. */
    z3d_world_progress(group->world);
    return Z3D_OK;
}

const z3d_group_ops z3d_message_ops = {.name = "messages",
                                       .start = message_start,
                                       .progress = message_progress,
                                       .destroy = message_destroy};
