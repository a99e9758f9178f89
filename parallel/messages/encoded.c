/* Sums whose fp32 elements travel in a narrower type. In a ring each hop would round the partial
 * sum. Here each member rounds its part of row r once and sends it to member r, which adds all
 * parts in fp32, in the order of parallel.h. A member sends as many elements as in a ring.
 *
 * In step k (1 .. size-1) member i sends to i-k and receives from i+k (modulo size). First come the
 * sums: member i sends its row i-k. An all_reduce then repeats the steps, and member i sends its
 * own complete row to all. The encoded elements of a segment lie at the segment's beginning in the
 * buffer: a row that was sent is not used again, and a complete row is decoded in place. */
#include <string.h>

#include "parallel/messages/messages.h"

enum { PIECE = 512 }; /* elements that are decoded at a time, on the stack */

/* A run of elements in the user's buffer. */
typedef struct place {
    float *pointer;
    int64_t elements;
} place;

static int64_t segment_elements(const z3d_collective *call) {
    return z3d_values_in(call->wire, Z3D_RING_SEGMENT);
}

static int member_at(const z3d_group *group, int64_t steps) {
    return (int)((group->index + steps + group->size) % group->size);
}

static place locate(const z3d_group *group, const z3d_collective *call, int row, int64_t segment) {
    const bool matrix = call->kind == Z3D_COLLECTIVE_REDUCE_SCATTER;
    const int64_t most = segment_elements(call);
    int64_t first = matrix ? row * call->stride : z3d_row_first(call->count, group->size, row);
    int64_t rest = matrix ? call->count : z3d_row_count(call->count, group->size, row);
    rest -= segment * most;
    if (rest < 0) rest = 0;
    return (place){(float *)call->buffer + first + segment * most, rest < most ? rest : most};
}

static int64_t step_of(const z3d_encoded *run, int64_t q) {
    return q / run->segments + 1;
}

static place locate_sent(const z3d_group *group, const z3d_encoded *run, const z3d_collective *call,
                         int64_t q) {
    int row = run->gathers ? group->index : member_at(group, -step_of(run, q));
    return locate(group, call, row, q % run->segments);
}

static place locate_received(const z3d_group *group, const z3d_encoded *run,
                             const z3d_collective *call, int64_t q) {
    int row = run->gathers ? member_at(group, step_of(run, q)) : group->index;
    return locate(group, call, row, q % run->segments);
}

/* ---- conversions ---- */

static void add_decoded(const z3d_collective *call, const place *at, const char *from) {
    const z3d_codec *codec = z3d_codec_of(call->wire);
    z3d_reduce_function reduce = z3d_reduce_find(call->dtype, call->op);
    float piece[PIECE];
    for (int64_t done = 0; done < at->elements; done += PIECE) {
        int64_t count = at->elements - done < PIECE ? at->elements - done : PIECE;
        codec->decode(piece, from + z3d_bytes_of(call->wire, done), count);
        reduce(at->pointer + done, at->pointer + done, piece, count);
    }
}

/* Goes from the last piece to the first, because decoded elements are wider: a write never reaches
 * encoded elements that are still to be read. */
static void decode_in_place(const z3d_collective *call, const place *at) {
    const z3d_codec *codec = z3d_codec_of(call->wire);
    float piece[PIECE];
    for (int64_t done = (at->elements - 1) / PIECE * PIECE; done >= 0; done -= PIECE) {
        int64_t count = at->elements - done < PIECE ? at->elements - done : PIECE;
        codec->decode(piece, (const char *)at->pointer + z3d_bytes_of(call->wire, done), count);
        memcpy(at->pointer + done, piece, (size_t)count * sizeof *piece);
    }
}

/* ---- the state machine ---- */

static void begin_steps(const z3d_group *group, z3d_encoded *run, const z3d_collective *call,
                        bool gathers) {
    const bool matrix = call->kind == Z3D_COLLECTIVE_REDUCE_SCATTER;
    const int64_t longest = matrix ? call->count : z3d_row_count(call->count, group->size, 0);
    const int64_t most = segment_elements(call), segments = (longest + most - 1) / most;
    *run = (z3d_encoded){
        .gathers = gathers, .segments = segments, .total = segments * (group->size - 1)};
}

z3d_status z3d_encoded_begin(z3d_group *group, z3d_operation *operation) {
    z3d_message_group *own = group->state;
    begin_steps(group, &own->encoded, &operation->call, false);
    return Z3D_OK;
}

static z3d_status finish_receives(z3d_group *group, const z3d_collective *call, bool *moved) {
    z3d_message_group *own = group->state;
    z3d_encoded *run = &own->encoded;
    while (run->received < run->posted) {
        const int64_t slot = run->received % Z3D_RING_WINDOW;
        bool arrived;
        Z3D_TRY(z3d_message_test(&run->receive[slot], &arrived));
        if (!arrived) break;
        place at = locate_received(group, run, call, run->received);
        if (run->gathers)
            decode_in_place(call, &at);
        else
            add_decoded(call, &at, own->slots + slot * Z3D_RING_SEGMENT);
        run->received++;
        *moved = true;
    }
    return Z3D_OK;
}

/* Decodes the own row in place after the last member has received it. */
static z3d_status finish_sends(z3d_group *group, const z3d_collective *call, bool *moved) {
    z3d_encoded *run = &((z3d_message_group *)group->state)->encoded;
    while (run->sent < run->sending) {
        bool left;
        Z3D_TRY(z3d_message_test(&run->send[run->sent % Z3D_RING_WINDOW], &left));
        if (!left) break;
        if (run->gathers && step_of(run, run->sent) == group->size - 1) {
            place at = locate_sent(group, run, call, run->sent);
            decode_in_place(call, &at);
        }
        run->sent++;
        *moved = true;
    }
    return Z3D_OK;
}

static z3d_status post_receives(z3d_group *group, const z3d_collective *call, bool *moved) {
    z3d_message_group *own = group->state;
    z3d_encoded *run = &own->encoded;
    while (run->posted < run->total && run->posted - run->received < Z3D_RING_WINDOW) {
        const int64_t slot = run->posted % Z3D_RING_WINDOW;
        place at = locate_received(group, run, call, run->posted);
        char *to = run->gathers ? (char *)at.pointer : own->slots + slot * Z3D_RING_SEGMENT;
        Z3D_TRY(z3d_message_receive(own->channel, to, z3d_bytes_of(call->wire, at.elements),
                                    member_at(group, step_of(run, run->posted)), own->tag,
                                    &run->receive[slot]));
        run->posted++;
        *moved = true;
    }
    return Z3D_OK;
}

/* A gather encodes the own row once, before the send to the first member. */
static z3d_status post_sends(z3d_group *group, const z3d_collective *call, bool *moved) {
    z3d_message_group *own = group->state;
    z3d_encoded *run = &own->encoded;
    while (run->sending < run->total && run->sending - run->sent < Z3D_RING_WINDOW) {
        const int64_t step = step_of(run, run->sending);
        place at = locate_sent(group, run, call, run->sending);
        if (!run->gathers || step == 1)
            z3d_codec_of(call->wire)->encode(at.pointer, at.pointer, at.elements);
        Z3D_TRY(z3d_message_send(own->channel, at.pointer, z3d_bytes_of(call->wire, at.elements),
                                 member_at(group, -step), own->tag,
                                 &run->send[run->sending % Z3D_RING_WINDOW]));
        run->sending++;
        *moved = true;
    }
    return Z3D_OK;
}

z3d_status z3d_encoded_progress(z3d_group *group, z3d_operation *operation, bool *moved) {
    z3d_message_group *own = group->state;
    z3d_encoded *run = &own->encoded;
    const z3d_collective *call = &operation->call;
    Z3D_TRY(finish_receives(group, call, moved));
    Z3D_TRY(finish_sends(group, call, moved));
    if (run->received == run->total && run->sent == run->total) {
        own->active = call->kind == Z3D_COLLECTIVE_ALL_REDUCE && !run->gathers;
        if (!own->active) return Z3D_OK;
        begin_steps(group, run, call, true);
        *moved = true;
    }
    Z3D_TRY(post_receives(group, call, moved));
    return post_sends(group, call, moved);
}
