/* Packs documents by best fit decreasing, and finds the documents of a sample in an epoch. */
#include "src/train/data/packing.h"

#include <stdlib.h>

#include "src/train/data/order.h"

/* ---- pieces ---- */

/* Called twice for each piece: the first pass counts pieces by length, the second puts them in
 * order. False: the piece is left out because none of its tokens is trained. */
static bool add_piece(z3d_packing *p, const z3d_token_file *file, const z3d_piece *piece) {
    if (!z3d_token_file_trains(file, piece->first + 1, piece->length - 1 + piece->more))
        return false;
    if (p->piece) p->piece[p->end[piece->length]] = *piece;
    p->end[piece->length]++;
    p->pieces++;
    p->facts.tokens += piece->length;
    return true;
}

static void add_document(z3d_packing *p, const z3d_token_file *file, int64_t document,
                         z3d_too_long too_long) {
    int64_t first = z3d_token_file_document(file, document),
            end = z3d_token_file_document(file, document + 1), kept = 0, left_out = 0;
    if (end - first > p->seq_length) {
        p->facts.too_long++;
        if (too_long == Z3D_TOO_LONG_DROP) return;
        if (too_long == Z3D_TOO_LONG_TRUNCATE) end = first + p->seq_length;
    }
    while (first < end) {
        const bool more = end - first > p->seq_length;
        const z3d_piece piece = {first, (int32_t)(more ? p->seq_length : end - first), more};
        if (add_piece(p, file, &piece))
            kept++;
        else
            left_out++;
        first += piece.length;
    }
    if (kept > 0)
        p->facts.untrained_parts += left_out;
    else
        p->facts.untrained++;
}

static void add_documents(z3d_packing *p, const z3d_token_file *file, z3d_too_long too_long) {
    p->pieces = 0;
    p->facts = (z3d_packing_facts){.documents = file->documents};
    for (int64_t i = 0; i < p->facts.documents; i++) add_document(p, file, i, too_long);
}

static z3d_status sort_pieces(z3d_packing *p, const z3d_token_file *file, z3d_too_long too_long) {
    int64_t first = 0;
    Z3D_TRY(z3d_new((size_t)p->seq_length + 2, sizeof *p->end, "lengths of documents", &p->end));
    add_documents(p, file, too_long);
    if (p->pieces > INT32_MAX)
        return Z3D_ERROR(Z3D_ERR_DATA, "%lld documents; at most %d of a file are packed",
                         (long long)p->pieces, INT32_MAX);
    Z3D_TRY(z3d_new((size_t)p->pieces + 1, sizeof *p->piece, "documents", &p->piece));
    for (int64_t length = p->seq_length; length > 0; length--) {
        int64_t count = p->end[length];
        p->end[length] = first;
        first += count;
    }
    add_documents(p, file, too_long);
    return Z3D_OK;
}

/* ---- best fit ---- */

/* Samples by their free room, in tokens: a list of samples for each room, and a tree over the rooms
 * that marks lists with samples. */
typedef struct rooms {
    int64_t leaves;       /* a power of two */
    unsigned char *any;   /* [2 x leaves] nodes 2i and 2i + 1 are the children of node i */
    int32_t *head, *next; /* [leaves] the first sample of a room; [samples] the next sample with the
                             same room; -1: none */
} rooms;

static void mark(rooms *r, int64_t room, bool any) {
    int64_t at = r->leaves + room;
    for (r->any[at] = any; at > 1; at /= 2) r->any[at / 2] = r->any[at] | r->any[at ^ 1];
}

/* The least room, at least `room`, that a sample has; -1: none. */
static int64_t least_room(const rooms *r, int64_t room) {
    int64_t at = r->leaves + room;
    while (!r->any[at]) {
        while (at & 1) at /= 2;
        if (at == 0) return -1;
        at++;
    }
    while (at < r->leaves) at = 2 * at + !r->any[2 * at];
    return at - r->leaves;
}

static void put(rooms *r, int32_t sample, int64_t room) {
    if (r->head[room] < 0) mark(r, room, true);
    r->next[sample] = r->head[room];
    r->head[room] = sample;
}

static int32_t take(rooms *r, int64_t room) {
    int32_t sample = r->head[room];
    r->head[room] = r->next[sample];
    if (r->head[room] < 0) mark(r, room, false);
    return sample;
}

/* sample_of[i]: the sample of piece i. */
static void fit(z3d_packing *p, rooms *r, int32_t *sample_of) {
    for (int64_t i = 0; i < r->leaves; i++) r->head[i] = -1;
    for (int64_t i = 0; i < p->pieces; i++) {
        int64_t length = p->piece[i].length, room = least_room(r, length);
        sample_of[i] = room < 0 ? (int32_t)p->facts.samples++ : take(r, room);
        put(r, sample_of[i], (room < 0 ? p->seq_length : room) - length);
    }
}

static z3d_status fit_pieces(z3d_packing *p, int32_t *sample_of) {
    rooms r = {.leaves = 2};
    while (r.leaves <= p->seq_length) r.leaves *= 2;
    z3d_status status = z3d_new((size_t)r.leaves, 2, "packing documents", &r.any);
    if (status == Z3D_OK)
        status = z3d_new((size_t)r.leaves, sizeof *r.head, "packing documents", &r.head);
    if (status == Z3D_OK)
        status = z3d_new((size_t)p->pieces, sizeof *r.next, "packing documents", &r.next);
    if (status == Z3D_OK) fit(p, &r, sample_of);
    free(r.any);
    free(r.head);
    free(r.next);
    return status;
}

/* Lists the places sample by sample. */
static z3d_status order_places(z3d_packing *p, const int32_t *sample_of) {
    Z3D_TRY(z3d_new((size_t)p->pieces, sizeof *p->place, "places of documents", &p->place));
    Z3D_TRY(z3d_new((size_t)p->facts.samples + 2, sizeof *p->sample, "samples", &p->sample));
    for (int64_t i = 0; i < p->pieces; i++) p->sample[sample_of[i] + 2]++;
    for (int64_t i = 2; i <= p->facts.samples; i++) p->sample[i] += p->sample[i - 1];
    for (int64_t i = 0; i < p->pieces; i++)
        p->place[p->sample[sample_of[i] + 1]++] =
            (int32_t)i; /* afterwards this element is the beginning of the next sample */
    return Z3D_OK;
}

z3d_status z3d_packing_create(const z3d_token_file *file, int64_t seq_length, z3d_too_long too_long,
                              z3d_packing *p) {
    int32_t *sample_of;
    *p = (z3d_packing){.seq_length = seq_length};
    Z3D_TRY(sort_pieces(p, file, too_long));
    if (p->pieces == 0)
        return Z3D_ERROR(Z3D_ERR_DATA,
                         "%s: nothing is left to train on: of %lld documents %lld have more than "
                         "model.seq_length (%lld) tokens, and %lld have no trained token in a "
                         "sample; see data.too_long",
                         file->path, (long long)p->facts.documents, (long long)p->facts.too_long,
                         (long long)p->seq_length, (long long)p->facts.untrained);
    Z3D_TRY(z3d_new((size_t)p->pieces, sizeof *sample_of, "packing documents", &sample_of));
    z3d_status status = fit_pieces(p, sample_of);
    if (status == Z3D_OK) status = order_places(p, sample_of);
    free(sample_of);
    return status;
}

void z3d_packing_free(z3d_packing *p) {
    free(p->piece);
    free(p->end);
    free(p->place);
    free(p->sample);
}

/* ---- an epoch ---- */

bool z3d_packing_piece(const z3d_packing *p, uint64_t key, int64_t sample, int64_t nth,
                       z3d_piece *out) {
    if (nth >= p->sample[sample + 1] - p->sample[sample]) return false;
    int64_t place = p->place[p->sample[sample] + nth], length = p->piece[place].length;
    int64_t first = p->end[length + 1], count = p->end[length] - first;
    z3d_philox_block words = z3d_philox(key, (uint64_t)length, 0);
    *out = p->piece[first + z3d_permute((uint64_t)words.word[0] << 32 | words.word[1], count,
                                        place - first)];
    return true;
}
