/* Sends and receives between two members. They wait neither for the group's collectives nor for
 * each other: if a pipeline stage starts a send and then a receive, the receive must not wait for
 * the send. Each has its own tag, from a count that both members keep. */
#include "parallel/messages/messages.h"

static int64_t bytes_of(const z3d_operation *operation) {
    return z3d_bytes_of(operation->call.dtype, operation->call.count);
}

static z3d_status post_piece(const z3d_message_group *own, z3d_operation *operation) {
    int64_t left = bytes_of(operation) - operation->moved;
    int64_t bytes = left < Z3D_MESSAGE_BYTES ? left : Z3D_MESSAGE_BYTES;
    return z3d_message_start(own->channel, operation->call.kind == Z3D_COLLECTIVE_SEND,
                             (char *)operation->call.buffer + operation->moved, bytes,
                             operation->call.peer, operation->tag, &operation->message);
}

z3d_status z3d_p2p_start(z3d_group *group, z3d_operation *operation) {
    z3d_message_group *own = group->state;
    bool sends = operation->call.kind == Z3D_COLLECTIVE_SEND;
    int64_t *count = sends ? own->sent_to : own->received_from;
    /* Odd tags: collectives have even ones. */
    operation->tag = (int)(count[operation->call.peer]++ % (Z3D_TAGS / 2)) * 2 + 1;
    Z3D_TRY(post_piece(own, operation));
    operation->queued = own->p2p;
    own->p2p = operation;
    return Z3D_OK;
}

static z3d_status progress_one(const z3d_message_group *own, z3d_operation *operation,
                               bool *finished, bool *moved) {
    bool done;
    *finished = false;
    Z3D_TRY(z3d_message_test(&operation->message, &done));
    if (!done) return Z3D_OK;
    *moved = true;
    int64_t left = bytes_of(operation) - operation->moved;
    operation->moved += left < Z3D_MESSAGE_BYTES ? left : Z3D_MESSAGE_BYTES;
    *finished = operation->moved == bytes_of(operation);
    return *finished ? Z3D_OK : post_piece(own, operation);
}

z3d_status z3d_p2p_progress(z3d_group *group, bool *moved) {
    z3d_message_group *own = group->state;
    z3d_operation **link = &own->p2p;
    while (*link) {
        bool finished;
        Z3D_TRY(progress_one(own, *link, &finished, moved));
        if (finished) {
            z3d_operation *operation = *link;
            *link = operation->queued;
            z3d_operation_finish(group, operation);
        } else {
            link = &(*link)->queued;
        }
    }
    return Z3D_OK;
}
