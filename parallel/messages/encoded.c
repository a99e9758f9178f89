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

/* Where segment q that this member sends, or receives, lies. The sums send the others' rows and
 * receive the own one; the gather sends the own row and receives the others'. */
static place locate_segment(const z3d_group *group, const z3d_encoded *run,
                            const z3d_collective *call, int64_t q, bool sends) {
    int64_t step = step_of(run, q);
    int row = run->gathers == sends ? group->index : member_at(group, sends ? -step : step);
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

static void begin_steps(const z3d_group *group, const z3d_collective *call, bool gathers) {
    z3d_message_group *own = group->state;
    const bool matrix = call->kind == Z3D_COLLECTIVE_REDUCE_SCATTER;
    const int64_t longest = matrix ? call->count : z3d_row_count(call->count, group->size, 0);
    const int64_t most = segment_elements(call), segments = (longest + most - 1) / most;
    own->encoded = (z3d_encoded){
        .gathers = gathers, .segments = segments, .total = segments * (group->size - 1)};
    z3d_windows_clear(own);
}

static z3d_status begin(z3d_group *group, z3d_operation *operation) {
    begin_steps(group, &operation->call, false);
    return Z3D_OK;
}

static char *slot_of(const z3d_message_group *own, int64_t q) {
    return own->slots + q % Z3D_RING_WINDOW * Z3D_RING_SEGMENT;
}

static z3d_status finish_receives(z3d_group *group, const z3d_collective *call, bool *moved) {
    z3d_message_group *own = group->state;
    for (bool arrived;; own->in.ended++, *moved = true) {
        Z3D_TRY(z3d_window_test(&own->in, &arrived));
        if (!arrived) return Z3D_OK;
        place at = locate_segment(group, &own->encoded, call, own->in.ended, false);
        if (own->encoded.gathers)
            decode_in_place(call, &at);
        else
            add_decoded(call, &at, slot_of(own, own->in.ended));
    }
}

/* Decodes the own row in place after the last member has received it. */
static z3d_status finish_sends(z3d_group *group, const z3d_collective *call, bool *moved) {
    z3d_message_group *own = group->state;
    const z3d_encoded *run = &own->encoded;
    for (bool left;; own->out.ended++, *moved = true) {
        Z3D_TRY(z3d_window_test(&own->out, &left));
        if (!left) return Z3D_OK;
        if (!run->gathers || step_of(run, own->out.ended) < group->size - 1) continue;
        place at = locate_segment(group, run, call, own->out.ended, true);
        decode_in_place(call, &at);
    }
}

static z3d_status post_receives(z3d_group *group, const z3d_collective *call, bool *moved) {
    z3d_message_group *own = group->state;
    const z3d_encoded *run = &own->encoded;
    for (; own->in.begun < run->total && !z3d_window_is_full(&own->in); *moved = true) {
        place at = locate_segment(group, run, call, own->in.begun, false);
        char *to = run->gathers ? (char *)at.pointer : slot_of(own, own->in.begun);
        Z3D_TRY(z3d_window_begin(own, &own->in, to, z3d_bytes_of(call->wire, at.elements),
                                 member_at(group, step_of(run, own->in.begun))));
    }
    return Z3D_OK;
}

/* A gather encodes the own row once, before the send to the first member. */
static z3d_status post_sends(z3d_group *group, const z3d_collective *call, bool *moved) {
    z3d_message_group *own = group->state;
    const z3d_encoded *run = &own->encoded;
    for (; own->out.begun < run->total && !z3d_window_is_full(&own->out); *moved = true) {
        const int64_t step = step_of(run, own->out.begun);
        place at = locate_segment(group, run, call, own->out.begun, true);
        if (!run->gathers || step == 1)
            z3d_codec_of(call->wire)->encode(at.pointer, at.pointer, at.elements);
        Z3D_TRY(z3d_window_begin(own, &own->out, at.pointer, z3d_bytes_of(call->wire, at.elements),
                                 member_at(group, -step)));
    }
    return Z3D_OK;
}

static z3d_status progress(z3d_group *group, z3d_operation *operation, bool *moved) {
    z3d_message_group *own = group->state;
    const z3d_encoded *run = &own->encoded;
    const z3d_collective *call = &operation->call;
    Z3D_TRY(finish_receives(group, call, moved));
    Z3D_TRY(finish_sends(group, call, moved));
    if (own->in.ended == run->total && own->out.ended == run->total) {
        own->active = call->kind == Z3D_COLLECTIVE_ALL_REDUCE && !run->gathers;
        if (!own->active) return Z3D_OK;
        begin_steps(group, call, true);
        *moved = true;
    }
    Z3D_TRY(post_receives(group, call, moved));
    return post_sends(group, call, moved);
}

const z3d_message_algorithm z3d_message_encoded = {begin, progress};
