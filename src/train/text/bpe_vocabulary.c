/* Tokens by id and by their bytes, and the merges. Byte-level files write bytes as characters:
 * 33-126, 161-172 and 174-255 as themselves, the other 68 as U+0100 and up, in order. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "src/train/text/bpe.h"

/* The byte that a character of GPT-2's alphabet stands for; -1: it is not in the alphabet. */
static int byte_of(unsigned code) {
    enum { FIRST = 256, CONTROLS = 33, LAST = FIRST + 68 };
    bool itself =
        (code >= 33 && code <= 126) || (code >= 161 && code <= 172) || (code >= 174 && code <= 255);
    if (itself) return (int)code;
    if (code < FIRST || code >= LAST) return -1;
    unsigned n = code - FIRST; /* 0-32, 127-160, 173 */
    return (int)(n < CONTROLS ? n : n < LAST - FIRST - 1 ? n - CONTROLS + 127 : 173);
}

bool z3d_vocabulary_append_bytes(const char *text, size_t length, z3d_string *out) {
    for (size_t i = 0; i < length; i++) {
        unsigned code = (unsigned char)text[i];
        if (code >= 0x80) { /* the alphabet has no characters of three bytes */
            if (code < 0xc2 || code > 0xdf || i + 1 >= length) return false;
            unsigned low = (unsigned char)text[++i];
            if ((low & 0xc0) != 0x80) return false;
            code = (code & 31) << 6 | (low & 63);
        }
        int byte = byte_of(code);
        if (byte < 0) return false;
        char c = (char)byte;
        z3d_string_append_bytes(out, &c, 1);
    }
    return length > 0;
}

static bool append_token(const z3d_vocabulary *v, const char *text, size_t length,
                         z3d_string *out) {
    if (v->byte_level) return z3d_vocabulary_append_bytes(text, length, out);
    z3d_string_append_bytes(out, text, length);
    return length > 0;
}

/* ---- tokens ---- */

/* The token's place in the table, or the empty one where it would be. */
static int32_t *find_place(const z3d_vocabulary *v, const char *bytes, size_t length) {
    size_t at = XXH3_64bits(bytes, length) & (v->places - 1);
    for (;; at = (at + 1) & (v->places - 1)) {
        int32_t id = v->place[at];
        if (id < 0 || (v->token[id].length == length &&
                       memcmp(v->text.text + v->token[id].begin, bytes, length) == 0))
            return &v->place[at];
    }
}

int32_t z3d_vocabulary_find(const z3d_vocabulary *v, const char *bytes, size_t length) {
    return *find_place(v, bytes, length);
}

static size_t table_size(size_t count) {
    size_t size = 16;
    while (size < 2 * count) size *= 2;
    return size;
}

z3d_status z3d_vocabulary_create(z3d_vocabulary *v, int64_t size, int64_t merges, bool byte_level) {
    *v = (z3d_vocabulary){.size = (int32_t)size, .unknown = -1, .byte_level = byte_level};
    v->places = table_size((size_t)size);
    Z3D_TRY(z3d_new((size_t)size + 1, sizeof *v->token, "the tokens", &v->token));
    Z3D_TRY(z3d_new((size_t)size + 1, sizeof *v->added, "the added tokens", &v->added));
    Z3D_TRY(z3d_new(v->places, sizeof *v->place, "the tokens", &v->place));
    for (size_t i = 0; i < v->places; i++) v->place[i] = -1;
    size_t merge_places = table_size((size_t)merges);
    Z3D_TRY(z3d_new(merge_places, sizeof *v->merge, "the merges", &v->merge));
    v->merge_places = merge_places;
    for (size_t i = 0; i < merge_places; i++) v->merge[i].left = -1;
    memset(v->byte, -1, sizeof v->byte);
    return Z3D_OK;
}

void z3d_vocabulary_free(z3d_vocabulary *v) {
    free(v->token);
    free(v->added);
    free(v->place);
    free(v->merge);
    z3d_string_free(&v->text);
    z3d_string_free(&v->joined);
    *v = (z3d_vocabulary){0};
}

static const char *check_id(const z3d_vocabulary *v, int64_t id) {
    if (id >= v->size) return "is too large: ids must be 0, 1, 2, ... without a hole";
    return v->token[id].length > 0 ? "is not the only token with this id" : NULL;
}

const char *z3d_vocabulary_add(z3d_vocabulary *v, int64_t id, const char *text, size_t length) {
    const char *what = check_id(v, id);
    if (what) return what;
    size_t begin = v->text.length;
    bool good = append_token(v, text, length, &v->text);
    if (v->text.failed) return "does not fit in memory";
    size_t bytes = v->text.length - begin;
    int32_t *place = good ? find_place(v, v->text.text + begin, bytes) : NULL;
    if (place && *place < 0) {
        v->token[id] = (z3d_bpe_token){begin, bytes};
        *place = (int32_t)id;
        return NULL;
    }
    v->text.length = begin;
    return good ? "has the same text as an earlier token"
                : "has a character that stands for no byte: this is not a vocabulary "
                  "of GPT-2's kind (byte-level BPE)";
}

const char *z3d_vocabulary_add_outside(z3d_vocabulary *v, int64_t id, const char *text,
                                       size_t length) {
    const char *what = check_id(v, id);
    if (what) return what;
    if (length == 0) return "has no text";
    v->token[id] = (z3d_bpe_token){v->text.length, length};
    z3d_string_append_bytes(&v->text, text, length);
    return v->text.failed ? "does not fit in memory" : NULL;
}

/* ---- bytes ---- */

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

int z3d_vocabulary_byte_of(const z3d_vocabulary *v, int32_t id) {
    const char *text = v->text.text + v->token[id].begin;
    if (v->token[id].length != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>') return -1;
    int high = hex_digit(text[3]), low = hex_digit(text[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

int z3d_vocabulary_set_bytes(z3d_vocabulary *v, int *first) {
    int missing = 0;
    for (int b = 255; b >= 0; b--) {
        char text[8] = {(char)b};
        int length = v->byte_level ? 1 : snprintf(text, sizeof text, "<0x%02X>", b);
        v->byte[b] = z3d_vocabulary_find(v, text, (size_t)length);
        if (v->byte[b] >= 0) continue;
        missing++;
        *first = b;
    }
    return missing;
}

/* ---- merges ---- */

static z3d_merge *merge_place(const z3d_vocabulary *v, int32_t left, int32_t right) {
    uint64_t key = ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) * 0x9e3779b97f4a7c15u;
    size_t at = (key ^ key >> 32) & (v->merge_places - 1);
    while (v->merge[at].left >= 0 && (v->merge[at].left != left || v->merge[at].right != right))
        at = (at + 1) & (v->merge_places - 1);
    return &v->merge[at];
}

const z3d_merge *z3d_vocabulary_find_merge(const z3d_vocabulary *v, int32_t left, int32_t right) {
    const z3d_merge *merge = merge_place(v, left, right);
    return merge->left < 0 ? NULL : merge;
}

/* Appends a token's bytes to v->joined and finds its id; -1: none. */
static int32_t find_token(z3d_vocabulary *v, const char *text, size_t length) {
    size_t begin = v->joined.length;
    if (!append_token(v, text, length, &v->joined) || v->joined.failed) return -1;
    return z3d_vocabulary_find(v, v->joined.text + begin, v->joined.length - begin);
}

const char *z3d_vocabulary_add_merge(z3d_vocabulary *v, int64_t rank, const char *left,
                                     size_t left_length, const char *right, size_t right_length) {
    v->joined.length = 0;
    int32_t a = find_token(v, left, left_length);
    if (a < 0) return "its first token is not in the vocabulary";
    int32_t b = find_token(v, right, right_length);
    if (b < 0) return "its second token is not in the vocabulary";
    int32_t merged = z3d_vocabulary_find(v, v->joined.text, v->joined.length);
    if (merged < 0) return "the merged token is not in the vocabulary";
    z3d_merge *place = merge_place(v, a, b);
    if (place->left >= 0) return "the same two tokens as in an earlier merge";
    *place = (z3d_merge){a, b, (int32_t)rank, merged};
    return NULL;
}
