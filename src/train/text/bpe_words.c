/* Makes tokens from a word: merges its bytes or characters, the lowest rank first, of equal ranks
 * the leftmost first. With a heap of the possible merges this takes n log n steps, also for one
 * word as long as the text. Short words are frequent, so they are remembered. */
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "src/train/text/bpe.h"

enum { REMEMBERED = 1 << 15, WORD_BYTES = 22, WORD_IDS = 6, LONGEST_WORD = 1 << 30 };

/* A remembered word and its ids. Another word with the same hash replaces it. */
typedef struct remembered {
    uint8_t length, count; /* length 0: none */
    char text[WORD_BYTES];
    int32_t id[WORD_IDS];
} remembered;

/* A token of the present word. */
typedef struct piece {
    int32_t id;
    int32_t prev, next;   /* -1: none; the last piece's next is the number of pieces */
    int32_t rank, merged; /* of its merge with the next piece; rank -1: no merge */
} piece;

struct z3d_word_merger {
    const z3d_vocabulary *vocabulary;
    remembered *remembered;
    /* Memory for one word. */
    size_t longest; /* the most bytes of a word that fit */
    piece *piece;   /* [longest] */
    uint64_t *heap; /* [3 x longest]: rank << 32 | index of the piece; the smallest at the top */
    size_t in_heap;
    bool told; /* a warning about left-out text was given */
};

/* ---- the heap ---- */

static void push(z3d_word_merger *t, uint64_t value) {
    size_t at = t->in_heap++;
    for (; at > 0 && value < t->heap[(at - 1) / 2]; at = (at - 1) / 2)
        t->heap[at] = t->heap[(at - 1) / 2];
    t->heap[at] = value;
}

static uint64_t pop(z3d_word_merger *t) {
    uint64_t top = t->heap[0], value = t->heap[--t->in_heap];
    size_t at = 0;
    for (size_t child; (child = 2 * at + 1) < t->in_heap; at = child) {
        if (child + 1 < t->in_heap && t->heap[child + 1] < t->heap[child]) child++;
        if (value <= t->heap[child]) break;
        t->heap[at] = t->heap[child];
    }
    t->heap[at] = value;
    return top;
}

/* ---- merging ---- */

/* Adds the merge of the piece at `at` with the next one to the heap, if it exists. */
static void offer(z3d_word_merger *t, int32_t at, int32_t count) {
    piece *left = &t->piece[at];
    const z3d_merge *merge = NULL;
    if (left->next < count)
        merge = z3d_vocabulary_find_merge(t->vocabulary, left->id, t->piece[left->next].id);
    left->rank = merge ? merge->rank : -1;
    if (!merge) return;
    left->merged = merge->merged;
    push(t, (uint64_t)merge->rank << 32 | (uint32_t)at);
}

static void merge_pieces(z3d_word_merger *t, int32_t at, int32_t count) {
    piece *left = &t->piece[at], *gone = &t->piece[left->next];
    left->id = left->merged;
    left->next = gone->next;
    gone->rank = -1;
    if (left->next < count) t->piece[left->next].prev = at;
    if (left->prev >= 0) offer(t, left->prev, count);
    offer(t, at, count);
}

static void merge_all(z3d_word_merger *t, int32_t count) {
    t->in_heap = 0;
    for (int32_t i = 0; i < count; i++) offer(t, i, count);
    while (t->in_heap > 0) {
        uint64_t top = pop(t);
        int32_t at = (int32_t)(uint32_t)top;
        /* A rank belongs to one pair of tokens: if the rank has changed, the pair no longer exists.
         */
        if (t->piece[at].rank == (int32_t)(top >> 32)) merge_pieces(t, at, count);
    }
}

/* ---- the pieces of a word ---- */

static z3d_status make_room(z3d_word_merger *t, size_t length) {
    if (length <= t->longest) return Z3D_OK;
    free(t->piece);
    free(t->heap);
    t->piece = NULL;
    t->heap = NULL;
    t->longest = 0;
    Z3D_TRY(z3d_new(length, sizeof *t->piece, "a word's tokens", &t->piece));
    Z3D_TRY(z3d_new(3 * length, sizeof *t->heap, "a word's merges", &t->heap));
    t->longest = length;
    return Z3D_OK;
}

static void tell_once(z3d_word_merger *t, unsigned char byte) {
    if (!t->told)
        z3d_log(
            Z3D_LOG_WARN,
            "the tokenizer has no token for byte 0x%02X of this text: such text is left out, as "
            "Hugging Face's tokenizers do",
            byte);
    t->told = true;
}

/* Adds a piece. id -1: the text has no token; it becomes the unknown token or is left out. */
static int32_t put(z3d_word_merger *t, int32_t count, int32_t id, const char *text) {
    const z3d_vocabulary *v = t->vocabulary;
    if (id < 0) {
        if (v->unknown < 0) {
            tell_once(t, (unsigned char)*text);
            return count;
        }
        if (v->fuse_unknown && count > 0 && t->piece[count - 1].id == v->unknown) return count;
        id = v->unknown;
    }
    t->piece[count] = (piece){id, count - 1, count + 1, -1, -1};
    return count + 1;
}

static int32_t put_bytes(z3d_word_merger *t, const char *word, size_t length) {
    int32_t count = 0;
    for (size_t i = 0; i < length; i++)
        count = put(t, count, t->vocabulary->byte[(unsigned char)word[i]], word + i);
    return count;
}

/* Adds characters; one that is no token becomes the tokens of its bytes, if all of these exist. */
static int32_t put_characters(z3d_word_merger *t, const char *word, size_t length) {
    const z3d_vocabulary *v = t->vocabulary;
    int32_t count = 0;
    for (size_t i = 0, bytes; i < length; i += bytes) {
        bytes = z3d_utf8_length(word + i, length - i);
        int32_t id = bytes ? z3d_vocabulary_find(v, word + i, bytes) : -1;
        bytes = bytes ? bytes : 1;
        bool fall_back = id < 0;
        for (size_t b = 0; b < bytes && fall_back; b++)
            fall_back = v->byte[(unsigned char)word[i + b]] >= 0;
        if (!fall_back) count = put(t, count, id, word + i);
        for (size_t b = 0; b < bytes && fall_back; b++)
            count = put(t, count, v->byte[(unsigned char)word[i + b]], word + i);
    }
    return count;
}

static z3d_status add_new_word(z3d_word_merger *t, const char *word, size_t length,
                               z3d_token_list *out) {
    const z3d_vocabulary *v = t->vocabulary;
    if (v->ignore_merges) {
        int32_t id = z3d_vocabulary_find(v, word, length);
        if (id >= 0) {
            out->id[out->count++] = id;
            return Z3D_OK;
        }
    }
    if (length > LONGEST_WORD)
        return Z3D_ERROR(Z3D_ERR_USAGE, "a word of %zu bytes; at most %d are supported", length,
                         LONGEST_WORD);
    Z3D_TRY(make_room(t, length));
    int32_t count = v->byte_level ? put_bytes(t, word, length) : put_characters(t, word, length);
    merge_all(t, count);
    for (int32_t i = 0; i < count; i = t->piece[i].next) out->id[out->count++] = t->piece[i].id;
    return Z3D_OK;
}

/* ---- remembered words ---- */

static z3d_status add_short_word(z3d_word_merger *t, const char *word, size_t length,
                                 z3d_token_list *out) {
    remembered *r = &t->remembered[XXH3_64bits(word, length) % REMEMBERED];
    if (r->length == length && memcmp(r->text, word, length) == 0) {
        memcpy(out->id + out->count, r->id, sizeof r->id); /* a fixed size is faster */
        out->count += r->count;
        return Z3D_OK;
    }
    size_t before = out->count;
    Z3D_TRY(add_new_word(t, word, length, out));
    size_t count = out->count - before;
    if (count > WORD_IDS) return Z3D_OK;
    r->length = (uint8_t)length;
    r->count = (uint8_t)count;
    memcpy(r->text, word, length);
    memcpy(r->id, out->id + before, count * sizeof *r->id);
    return Z3D_OK;
}

z3d_status z3d_word_merger_add(z3d_word_merger *t, const char *word, size_t length,
                               z3d_token_list *out) {
    if (length == 0) return Z3D_OK;
    /* A token has at least one byte. */
    size_t room = length < WORD_IDS ? WORD_IDS : length;
    if (out->capacity - out->count < room) Z3D_TRY(z3d_token_list_reserve(out, room));
    if (t->vocabulary->only_bytes) {
        for (size_t i = 0; i < length; i++) out->id[out->count + i] = (unsigned char)word[i];
        out->count += length;
        return Z3D_OK;
    }
    return length <= WORD_BYTES ? add_short_word(t, word, length, out)
                                : add_new_word(t, word, length, out);
}

z3d_status z3d_word_merger_create(const z3d_vocabulary *v, z3d_word_merger **out) {
    *out = NULL;
    Z3D_TRY(z3d_new(1, sizeof **out, "merging", out));
    (*out)->vocabulary = v;
    if (v->only_bytes) return Z3D_OK;
    return z3d_new(REMEMBERED, sizeof(remembered), "remembered words", &(*out)->remembered);
}

void z3d_word_merger_destroy(z3d_word_merger *t) {
    if (!t) return;
    free(t->remembered);
    free(t->piece);
    free(t->heap);
    free(t);
}
