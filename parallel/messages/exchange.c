/* Barriers and small all_reduces: each member sends its vector to all others and sums all vectors
 * in member order. So the time of one message is enough, and all members get the same bits. */
#include <string.h>

#include "parallel/messages/messages.h"

static int64_t bytes_of(const z3d_collective *call) {
    if (call->kind == Z3D_COLLECTIVE_BARRIER) return 0;
    return z3d_bytes_of(call->dtype, call->count);
}

static z3d_status begin(z3d_group *group, z3d_operation *operation) {
    z3d_message_group *own = group->state;
    const z3d_collective *call = &operation->call;
    int64_t bytes = bytes_of(call);
    char *mine = own->small + (int64_t)group->index * Z3D_SMALL_BYTES;
    if (bytes > 0) memcpy(mine, call->buffer, (size_t)bytes);
    /* Each member starts with its next member, so that no member is the first of all others. */
    for (int k = 1; k < group->size; k++) {
        int from = (group->index + group->size - k) % group->size;
        Z3D_TRY(z3d_message_start(own->channel, false, own->small + (int64_t)from * Z3D_SMALL_BYTES,
                                  bytes, from, own->tag, &own->exchanged[from]));
    }
    for (int k = 1; k < group->size; k++) {
        int to = (group->index + k) % group->size;
        Z3D_TRY(z3d_message_start(own->channel, true, mine, bytes, to, own->tag,
                                  &own->exchanged[group->size + to]));
    }
    return Z3D_OK;
}

static z3d_status progress(z3d_group *group, z3d_operation *operation, bool *moved) {
    z3d_message_group *own = group->state;
    const z3d_collective *call = &operation->call;
    bool all = true;
    for (int i = 0; i < 2 * group->size; i++) {
        bool done;
        Z3D_TRY(z3d_message_test(&own->exchanged[i], &done));
        all = all && done;
    }
    if (!all) return Z3D_OK;
    if (bytes_of(call) > 0) {
        z3d_reduce_function reduce = z3d_reduce_find(call->dtype, call->op);
        memcpy(call->buffer, own->small, (size_t)bytes_of(call));
        for (int member = 1; member < group->size; member++)
            reduce(call->buffer, call->buffer, own->small + (int64_t)member * Z3D_SMALL_BYTES,
                   call->count);
    }
    own->active = false;
    *moved = true;
    return Z3D_OK;
}

const z3d_message_algorithm z3d_message_exchange = {begin, progress};
