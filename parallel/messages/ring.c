/* Ring collectives over messages, as state machines that never block. MPI's own reduce_scatter maps
 * new temporary memory on each call, and its nonblocking collectives have no documented order of
 * sums. Here the order is the contract of parallel.h, and the slots are allocated once.
 *
 * In step s member i sends row i-1-s and receives row i-2-s (modulo size). In steps 0 .. size-2 the
 * member adds its own elements to the received row and sends the sum in the next step: row r starts
 * at member r+1 and is complete at member r. In steps size-1 .. 2 size-3 complete rows go round in
 * the same direction. */
#include "parallel/messages/messages.h"

/* Where a segment lies in the user's buffer. */
typedef struct place {
    char *pointer;
    int64_t elements;
    bool reduce;
} place;

static int64_t min_i64(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static int64_t segment_elements(const z3d_collective *call) {
    return z3d_values_in(call->dtype, Z3D_RING_SEGMENT);
}

static place locate(const z3d_group *group, const z3d_ring *ring, const z3d_collective *call,
                    int64_t q, bool sending) {
    int64_t step = ring->first_step + q / ring->segments, first = 0, elements = call->count;
    if (call->kind != Z3D_COLLECTIVE_BROADCAST) {
        int64_t back = (sending ? 1 : 2) + step % group->size;
        int row = (int)((group->index - back + 2 * group->size) % group->size);
        if (call->kind == Z3D_COLLECTIVE_ALL_REDUCE) {
            first = z3d_row_first(call->count, group->size, row);
            elements = z3d_row_count(call->count, group->size, row);
        } else {
            first = row * call->stride;
        }
    }
    int64_t start = min_i64(q % ring->segments * segment_elements(call), elements);
    return (place){.pointer = (char *)call->buffer + z3d_bytes_of(call->dtype, first + start),
                   .elements = min_i64(elements - start, segment_elements(call)),
                   .reduce = call->kind != Z3D_COLLECTIVE_BROADCAST && step < group->size - 1};
}

static z3d_status begin(z3d_group *group, z3d_operation *operation) {
    z3d_message_group *own = group->state;
    z3d_ring *ring = &own->ring;
    const z3d_collective *call = &operation->call;
    int64_t steps = group->size - 1, rows = call->count;
    *ring = (z3d_ring){.segments = 0};
    z3d_windows_clear(own);
    if (call->kind == Z3D_COLLECTIVE_ALL_REDUCE) {
        rows = z3d_row_count(call->count, group->size, 0);
        steps *= 2;
    }
    if (call->kind == Z3D_COLLECTIVE_ALL_GATHER) ring->first_step = group->size - 1;
    ring->segments = (rows + segment_elements(call) - 1) / segment_elements(call);
    ring->reduce = z3d_reduce_find(call->dtype, call->op);
    if (call->kind == Z3D_COLLECTIVE_BROADCAST) {
        /* A chain from the root to the member before it. */
        int place_in_chain = (group->index - call->peer + group->size) % group->size;
        ring->receives = place_in_chain > 0 ? ring->segments : 0;
        ring->sends = place_in_chain < group->size - 1 ? ring->segments : 0;
        ring->lag = place_in_chain > 0 ? 0 : ring->segments;
    } else {
        ring->receives = ring->sends = steps * ring->segments;
        ring->lag = ring->segments;
    }
    return Z3D_OK;
}

/* Where a received segment goes: into a slot; a complete row goes directly into the buffer. */
static void *target_of(const z3d_message_group *own, const place *at, int64_t q) {
    return at->reduce ? own->slots + q % Z3D_RING_WINDOW * Z3D_RING_SEGMENT : at->pointer;
}

/* A complete row may overwrite this member's partial sum only after that sum was sent. */
static bool may_receive(const z3d_group *group, const z3d_message_group *own) {
    const z3d_ring *ring = &own->ring;
    if (own->in.begun >= ring->receives || z3d_window_is_full(&own->in)) return false;
    int64_t left_at = own->in.begun - (group->size - 1) * ring->segments;
    return ring->first_step > 0 || left_at < 0 || left_at < own->out.ended;
}

static bool may_send(const z3d_message_group *own) {
    return own->out.begun < own->ring.sends && !z3d_window_is_full(&own->out) &&
           own->out.begun - own->ring.lag < own->in.ended;
}

static z3d_status finish_receives(z3d_group *group, const z3d_collective *call, bool *moved) {
    z3d_message_group *own = group->state;
    const z3d_ring *ring = &own->ring;
    for (bool arrived;; own->in.ended++, *moved = true) {
        Z3D_TRY(z3d_window_test(&own->in, &arrived));
        if (!arrived) return Z3D_OK;
        place at = locate(group, ring, call, own->in.ended, false);
        if (at.reduce)
            ring->reduce(at.pointer, target_of(own, &at, own->in.ended), at.pointer, at.elements);
    }
}

static z3d_status finish_sends(z3d_window *out, bool *moved) {
    for (bool left;; out->ended++, *moved = true) {
        Z3D_TRY(z3d_window_test(out, &left));
        if (!left) return Z3D_OK;
    }
}

static z3d_status post_more(z3d_group *group, const z3d_collective *call, bool *moved) {
    z3d_message_group *own = group->state;
    int next = (group->index + 1) % group->size;
    int previous = (group->index + group->size - 1) % group->size;
    for (; may_receive(group, own); *moved = true) {
        place at = locate(group, &own->ring, call, own->in.begun, false);
        Z3D_TRY(z3d_window_begin(own, &own->in, target_of(own, &at, own->in.begun),
                                 z3d_bytes_of(call->dtype, at.elements), previous));
    }
    for (; may_send(own); *moved = true) {
        place at = locate(group, &own->ring, call, own->out.begun, true);
        Z3D_TRY(z3d_window_begin(own, &own->out, at.pointer, z3d_bytes_of(call->dtype, at.elements),
                                 next));
    }
    return Z3D_OK;
}

static z3d_status progress(z3d_group *group, z3d_operation *operation, bool *moved) {
    z3d_message_group *own = group->state;
    const z3d_collective *call = &operation->call;
    Z3D_TRY(finish_receives(group, call, moved));
    Z3D_TRY(finish_sends(&own->out, moved));
    Z3D_TRY(post_more(group, call, moved));
    own->active = own->in.ended < own->ring.receives || own->out.ended < own->ring.sends;
    return Z3D_OK;
}

const z3d_message_algorithm z3d_message_ring = {begin, progress};
