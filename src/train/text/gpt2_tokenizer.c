/* GPT-2's tokenizer: each word's bytes are merged into tokens, lowest rank first, leftmost first
 * among equals. A heap of the possible merges makes this n log n, even for one word as long as the
 * text. Short words are frequent and are cached. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "src/train/text/gpt2.h"

enum { REMEMBERED = 1 << 15, WORD_BYTES = 22, WORD_IDS = 6, LONGEST_TEXT = 1 << 30 };

/* A word and its ids. Another one with the same hash takes its place. */
typedef struct remembered {
    uint8_t length, count; /* length 0: none */
    char text[WORD_BYTES];
    int32_t id[WORD_IDS];
} remembered;

/* A token of the word at work, named by where its first byte is. */
typedef struct piece {
    int32_t id;         /* -1: merged into one before it */
    int32_t prev, next; /* -1: none; the last one's next is the length */
} piece;

typedef struct gpt2_tokenizer {
    z3d_tokenizer base;
    z3d_gpt2_vocabulary vocabulary;
    remembered *remembered;
    /* For one word at a time. */
    size_t longest; /* that there is room for */
    piece *piece;   /* [longest] */
    uint64_t *heap; /* [3 x longest]: rank << 32 | where; the smallest at the top */
    size_t in_heap;
} gpt2_tokenizer;

/* ---- the heap ---- */

static void push(gpt2_tokenizer *t, uint64_t value) {
    size_t at = t->in_heap++;
    for (; at > 0 && value < t->heap[(at - 1) / 2]; at = (at - 1) / 2)
        t->heap[at] = t->heap[(at - 1) / 2];
    t->heap[at] = value;
}

static uint64_t pop(gpt2_tokenizer *t) {
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

/* ---- one word ---- */

/* What becomes of the piece at `at` and the one behind it. */
static const z3d_merge *merge_at(const gpt2_tokenizer *t, int32_t at, int32_t length) {
    if (at < 0 || t->piece[at].id < 0 || t->piece[at].next >= length) return NULL;
    return z3d_gpt2_find_merge(&t->vocabulary, t->piece[at].id, t->piece[t->piece[at].next].id);
}

static void offer(gpt2_tokenizer *t, int32_t at, int32_t length) {
    const z3d_merge *merge = merge_at(t, at, length);
    if (merge) push(t, (uint64_t)merge->rank << 32 | (uint32_t)at);
}

static void merge_pieces(gpt2_tokenizer *t, int32_t at, int32_t merged, int32_t length) {
    int32_t gone = t->piece[at].next, next = t->piece[gone].next;
    t->piece[at].id = merged;
    t->piece[at].next = next;
    t->piece[gone].id = -1;
    if (next < length) t->piece[next].prev = at;
    offer(t, t->piece[at].prev, length);
    offer(t, at, length);
}

static z3d_status make_room(gpt2_tokenizer *t, size_t length) {
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

static z3d_status encode_new_word(gpt2_tokenizer *t, const char *word, int32_t length, int32_t *ids,
                                  size_t *count) {
    Z3D_TRY(make_room(t, (size_t)length));
    for (int32_t i = 0; i < length; i++)
        t->piece[i] = (piece){t->vocabulary.byte[(unsigned char)word[i]], i - 1, i + 1};
    t->in_heap = 0;
    for (int32_t i = 0; i + 1 < length; i++) offer(t, i, length);
    while (t->in_heap > 0) {
        uint64_t top = pop(t);
        int32_t at = (int32_t)(uint32_t)top;
        const z3d_merge *merge = merge_at(t, at, length);
        /* A rank has one pair: another rank, and the pair that was offered is gone. */
        if (merge && (uint64_t)merge->rank == top >> 32) merge_pieces(t, at, merge->merged, length);
    }
    *count = 0;
    for (int32_t i = 0; i < length; i = t->piece[i].next) ids[(*count)++] = t->piece[i].id;
    return Z3D_OK;
}

static z3d_status encode_word(gpt2_tokenizer *t, const char *word, size_t length, int32_t *ids,
                              size_t *count) {
    if (length > WORD_BYTES) return encode_new_word(t, word, (int32_t)length, ids, count);
    remembered *r = &t->remembered[XXH3_64bits(word, length) % REMEMBERED];
    if (r->length == length && memcmp(r->text, word, length) == 0) {
        memcpy(ids, r->id, r->count * sizeof *ids);
        *count = r->count;
        return Z3D_OK;
    }
    Z3D_TRY(encode_new_word(t, word, (int32_t)length, ids, count));
    if (*count > WORD_IDS) return Z3D_OK;
    r->length = (uint8_t)length;
    r->count = (uint8_t)*count;
    memcpy(r->text, word, length);
    memcpy(r->id, ids, *count * sizeof *ids);
    return Z3D_OK;
}

/* ---- the table ---- */

static z3d_status gpt2_encode(z3d_tokenizer *tokenizer, const char *text, size_t length,
                              int32_t *ids, size_t *count) {
    gpt2_tokenizer *t = (gpt2_tokenizer *)tokenizer;
    const size_t mark = sizeof Z3D_END_OF_TEXT - 1;
    const char *end = text + length;
    *count = 0;
    if (length > LONGEST_TEXT)
        return Z3D_ERROR(Z3D_ERR_USAGE, "%zu bytes of text at once; at most %d are supported",
                         length, LONGEST_TEXT);
    while (text < end) {
        const char *special = memmem(text, (size_t)(end - text), Z3D_END_OF_TEXT, mark);
        const char *stop = special ? special : end;
        while (text < stop) {
            size_t word = z3d_gpt2_word(text, (size_t)(stop - text)), some;
            Z3D_TRY(encode_word(t, text, word, ids + *count, &some));
            *count += some;
            text += word;
        }
        if (!special) break;
        ids[(*count)++] = t->base.end_of_text;
        text += mark;
    }
    return Z3D_OK;
}

static z3d_status gpt2_decode(const z3d_tokenizer *tokenizer, const int32_t *ids, size_t count,
                              z3d_string *out) {
    const z3d_gpt2_vocabulary *v = &((const gpt2_tokenizer *)tokenizer)->vocabulary;
    for (size_t i = 0; i < count; i++) {
        if (ids[i] < 0 || ids[i] >= v->size)
            return Z3D_ERROR(Z3D_ERR_DATA, "token %zu is %d: this gpt2 tokenizer has ids 0 to %d",
                             i, ids[i], v->size - 1);
        if (ids[i] == v->end_of_text) continue;
        const z3d_gpt2_token *token = &v->token[ids[i]];
        z3d_string_append_bytes(out, v->text.text + token->begin, token->length);
    }
    return out->failed ? Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for the text of %zu tokens", count)
                       : Z3D_OK;
}

static void gpt2_destroy(z3d_tokenizer *tokenizer) {
    gpt2_tokenizer *t = (gpt2_tokenizer *)tokenizer;
    z3d_gpt2_vocabulary_free(&t->vocabulary);
    free(t->remembered);
    free(t->piece);
    free(t->heap);
    free(t);
}

static const struct z3d_tokenizer_ops gpt2_ops = {
    .name = "gpt2",
    .encode = gpt2_encode,
    .decode = gpt2_decode,
    .destroy = gpt2_destroy,
};

/* ---- the files ---- */

static bool is_folder(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

/* `vocab` may be a folder, of vocab.json and merges.txt or of tokenizer.json; merges.txt lies
 * beside vocab.json if it is not named. */
static z3d_status find_files(const char *vocab, const char *merges, z3d_string *vocab_path,
                             z3d_string *merges_path) {
    if (!vocab || !*vocab)
        return Z3D_ERROR(Z3D_ERR_CONFIG, "the gpt2 tokenizer needs its vocabulary: vocab.json, "
                                         "tokenizer.json, or a folder with them");
    bool folder = is_folder(vocab);
    const char *slash = strrchr(vocab, '/');
    z3d_string_append(vocab_path, "%s%s", vocab, folder ? "/vocab.json" : "");
    if (folder && vocab_path->text && access(vocab_path->text, F_OK) != 0) {
        z3d_string whole = {0};
        z3d_string_append(&whole, "%s/tokenizer.json", vocab);
        if (whole.text && access(whole.text, F_OK) == 0) {
            z3d_string_free(vocab_path);
            *vocab_path = whole;
        } else {
            z3d_string_free(&whole);
        }
    }
    if (merges && *merges)
        z3d_string_append(merges_path, "%s", merges);
    else if (folder)
        z3d_string_append(merges_path, "%s/merges.txt", vocab);
    else
        z3d_string_append(merges_path, "%.*smerges.txt", slash ? (int)(slash + 1 - vocab) : 0,
                          vocab);
    return vocab_path->failed || merges_path->failed
               ? Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for the names of the tokenizer's files")
               : Z3D_OK;
}

z3d_status z3d_gpt2_tokenizer_create(const char *vocab, const char *merges, z3d_tokenizer **out) {
    gpt2_tokenizer *t;
    z3d_string vocab_path = {0}, merges_path = {0};
    *out = NULL;
    Z3D_TRY(z3d_new(1, sizeof *t, "the tokenizer", &t));
    z3d_status status = find_files(vocab, merges, &vocab_path, &merges_path);
    if (status == Z3D_OK)
        status = z3d_new(REMEMBERED, sizeof *t->remembered, "remembered words", &t->remembered);
    if (status == Z3D_OK)
        status = z3d_gpt2_vocabulary_read(vocab_path.text, merges_path.text, &t->vocabulary);
    if (status == Z3D_OK && t->vocabulary.one_file && merges && *merges)
        status = Z3D_ERROR(Z3D_ERR_CONFIG, "%s has its own merges: leave out the merges file %s",
                           vocab_path.text, merges);
    t->base = (z3d_tokenizer){&gpt2_ops, t->vocabulary.size, t->vocabulary.end_of_text};
    z3d_string_free(&vocab_path);
    z3d_string_free(&merges_path);
    if (status == Z3D_OK)
        *out = &t->base;
    else
        gpt2_destroy(&t->base);
    return status;
}
