/* Reads GPT-2's vocab.json ({"token": id}) and merges.txt ("left right" in order of rank), or both
 * from tokenizer.json. Their bytes are characters: 33-126, 161-172 and 174-255 stand for
 * themselves, the other 68 are U+0100 and up, in order. */
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "src/train/text/gpt2.h"

enum { MAX_FILE = 1 << 26, CODES = 256 + 68 };

/* Only while reading. */
typedef struct reader {
    z3d_gpt2_vocabulary *out;
    const char *vocab, *merges;
    int16_t byte_of[CODES]; /* of a character; -1: none */
    int32_t *place;         /* tokens by their bytes: a hash table of ids, -1: empty */
    size_t places;
} reader;

static void make_alphabet(reader *r) {
    int next = 256;
    memset(r->byte_of, -1, sizeof r->byte_of);
    for (int b = 0; b < 256; b++) {
        bool itself = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
        r->byte_of[itself ? b : next++] = (int16_t)b;
    }
}

/* Appends the bytes that `length` bytes of characters stand for; false when one stands for none. */
static bool append_token(const reader *r, const char *text, size_t length, z3d_string *out) {
    for (size_t i = 0; i < length; i++) {
        unsigned code = (unsigned char)text[i];
        if (code >= 0x80) { /* the alphabet ends before three bytes begin */
            if (code < 0xc2 || code > 0xdf || i + 1 >= length) return false;
            unsigned low = (unsigned char)text[++i];
            if ((low & 0xc0) != 0x80) return false;
            code = (code & 31) << 6 | (low & 63);
        }
        if (code >= CODES || r->byte_of[code] < 0) return false;
        char byte = (char)r->byte_of[code];
        z3d_string_append_bytes(out, &byte, 1);
    }
    return length > 0;
}

/* ---- tokens by their bytes ---- */

/* The token's place in the table, or the empty one where it would be. */
static int32_t *find_place(const reader *r, const char *bytes, size_t length) {
    const z3d_gpt2_vocabulary *v = r->out;
    size_t at = XXH3_64bits(bytes, length) & (r->places - 1);
    for (;; at = (at + 1) & (r->places - 1)) {
        int32_t id = r->place[at];
        if (id < 0 || (v->token[id].length == length &&
                       memcmp(v->text.text + v->token[id].begin, bytes, length) == 0))
            return &r->place[at];
    }
}

static size_t table_size(size_t count) {
    size_t size = 16;
    while (size < 2 * count) size *= 2;
    return size;
}

/* ---- vocab.json ---- */

static z3d_status refuse_vocab(const reader *r, int64_t line, int64_t id, const char *what) {
    return Z3D_ERROR(Z3D_ERR_DATA, "%s:%lld: the token with id %lld %s", r->vocab, (long long)line,
                     (long long)id, what);
}

/* Its text is at `begin` of the tokens' text. */
static z3d_status place_token(reader *r, int64_t line, int64_t id, size_t begin) {
    z3d_gpt2_vocabulary *v = r->out;
    if (v->text.failed) return Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for the tokens' bytes");
    size_t length = v->text.length - begin;
    int32_t *place = find_place(r, v->text.text + begin, length);
    if (*place >= 0) return refuse_vocab(r, line, id, "has the same text as an earlier token");
    v->token[id] = (z3d_gpt2_token){begin, length};
    *place = (int32_t)id;
    return Z3D_OK;
}

static z3d_status add_token(reader *r, const z3d_json *member) {
    z3d_gpt2_vocabulary *v = r->out;
    int64_t id;
    if (!z3d_json_int(member, &id))
        return Z3D_ERROR(Z3D_ERR_DATA, "%s:%lld: a token without an id; expected {\"token\": id}",
                         r->vocab, (long long)member->line);
    if (id >= v->size)
        return refuse_vocab(r, member->line, id,
                            "is too large: ids must be 0, 1, 2, ... without a hole");
    if (v->token[id].length > 0)
        return refuse_vocab(r, member->line, id, "is not the only token with this id");
    size_t begin = v->text.length;
    if (!append_token(r, member->key, strlen(member->key), &v->text))
        return refuse_vocab(r, member->line, id,
                            "has a character that stands for no byte: this is not a vocabulary "
                            "of GPT-2's kind (byte-level BPE)");
    return place_token(r, member->line, id, begin);
}

static z3d_status check_tokens(reader *r) {
    z3d_gpt2_vocabulary *v = r->out;
    for (int b = 0; b < 256; b++) {
        char byte = (char)b;
        v->byte[b] = *find_place(r, &byte, 1);
        if (v->byte[b] < 0)
            return Z3D_ERROR(Z3D_ERR_DATA,
                             "%s: no token for byte %d: this is not a vocabulary of GPT-2's kind "
                             "(byte-level BPE)",
                             r->vocab, b);
    }
    v->end_of_text = *find_place(r, Z3D_END_OF_TEXT, sizeof Z3D_END_OF_TEXT - 1);
    if (v->end_of_text < 0)
        return Z3D_ERROR(Z3D_ERR_DATA, "%s: no token %s, which ends a document", r->vocab,
                         Z3D_END_OF_TEXT);
    return Z3D_OK;
}

/* added: the id of <|endoftext|> where it may stand outside of the list; -1: it may not. */
static z3d_status add_tokens(reader *r, const z3d_json *root, int64_t added) {
    z3d_gpt2_vocabulary *v = r->out;
    bool outside = added >= 0 && !z3d_json_member(root, Z3D_END_OF_TEXT);
    if (root->type != Z3D_JSON_OBJECT)
        return Z3D_ERROR(Z3D_ERR_DATA, "%s:1: not a vocabulary; expected {\"token\": id, ...}",
                         r->vocab);
    if (root->count >= 1 << 24)
        return Z3D_ERROR(Z3D_ERR_DATA, "%s: %lld tokens; expected fewer than 2^24", r->vocab,
                         (long long)root->count);
    v->size = (int32_t)root->count + outside;
    r->places = table_size((size_t)v->size);
    Z3D_TRY(z3d_new((size_t)v->size + 1, sizeof *v->token, "the tokens", &v->token));
    Z3D_TRY(z3d_new(r->places, sizeof *r->place, "the tokens", &r->place));
    for (size_t i = 0; i < r->places; i++) r->place[i] = -1;
    for (const z3d_json *member = root->first; member; member = member->next)
        Z3D_TRY(add_token(r, member));
    if (outside) {
        size_t begin = v->text.length;
        if (added != v->size - 1)
            return refuse_vocab(r, root->line, added, "is added, but is not the next free id");
        z3d_string_append(&v->text, "%s", Z3D_END_OF_TEXT);
        Z3D_TRY(place_token(r, root->line, added, begin));
    }
    Z3D_TRY(check_tokens(r));
    if (added < 0 || added == v->end_of_text) return Z3D_OK;
    return refuse_vocab(r, root->line, added, "is added as <|endoftext|>, which has another id");
}

/* ---- merges ---- */

static z3d_merge *merge_place(const z3d_gpt2_vocabulary *v, int32_t left, int32_t right) {
    uint64_t key = ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) * 0x9e3779b97f4a7c15u;
    size_t at = (key ^ key >> 32) & (v->places - 1);
    while (v->merge[at].left >= 0 && (v->merge[at].left != left || v->merge[at].right != right))
        at = (at + 1) & (v->places - 1);
    return &v->merge[at];
}

const z3d_merge *z3d_gpt2_find_merge(const z3d_gpt2_vocabulary *v, int32_t left, int32_t right) {
    const z3d_merge *merge = merge_place(v, left, right);
    return merge->left < 0 ? NULL : merge;
}

/* Appends a token's bytes to `joined` and finds its id: -1 when there is none. */
static int32_t find_token(const reader *r, const char *text, size_t length, z3d_string *joined) {
    size_t begin = joined->length;
    if (!append_token(r, text, length, joined) || joined->failed) return -1;
    return *find_place(r, joined->text + begin, joined->length - begin);
}

/* "left right"; `joined` is memory to work in. */
static z3d_status add_merge(reader *r, int64_t line, int64_t rank, const char *text, size_t length,
                            z3d_string *joined) {
    z3d_gpt2_vocabulary *v = r->out;
    const char *space = memchr(text, ' ', length), *what = NULL;
    int32_t left = -1, right = -1, merged = -1;
    joined->length = 0;
    if (!space) {
        what = "expected two tokens with a space between them";
    } else {
        size_t first = (size_t)(space - text);
        left = find_token(r, text, first, joined);
        right = find_token(r, space + 1, length - first - 1, joined);
        if (left >= 0 && right >= 0) merged = *find_place(r, joined->text, joined->length);
    }
    if (joined->failed) return Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for a merge's tokens");
    if (!what && merged < 0)
        what = left < 0    ? "its first token is not in the vocabulary"
               : right < 0 ? "its second token is not in the vocabulary"
                           : "the merged token is not in the vocabulary";
    z3d_merge *place = what ? NULL : merge_place(v, left, right);
    if (place && place->left >= 0) what = "the same two tokens as in an earlier merge";
    if (what) return Z3D_ERROR(Z3D_ERR_DATA, "%s:%lld: %s", r->merges, (long long)line, what);
    *place = (z3d_merge){left, right, (int32_t)rank, merged};
    return Z3D_OK;
}

static z3d_status make_table(z3d_gpt2_vocabulary *v, size_t merges) {
    v->places = table_size(merges);
    Z3D_TRY(z3d_new(v->places, sizeof *v->merge, "the merges", &v->merge));
    for (size_t i = 0; i < v->places; i++) v->merge[i].left = -1;
    return Z3D_OK;
}

static z3d_status add_merges(reader *r, const char *text, size_t length) {
    z3d_string joined = {0};
    size_t lines = 1;
    for (size_t i = 0; i < length; i++) lines += text[i] == '\n';
    Z3D_TRY(make_table(r->out, lines));
    z3d_status status = Z3D_OK;
    int64_t line = 1;
    for (const char *at = text, *end = text + length; at < end && status == Z3D_OK; line++) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        size_t bytes = (size_t)((newline ? newline : end) - at);
        bool version = line == 1 && bytes >= 8 && memcmp(at, "#version", 8) == 0;
        size_t used = bytes > 0 && at[bytes - 1] == '\r' ? bytes - 1 : bytes;
        if (!version && used > 0) status = add_merge(r, line, line, at, used, &joined);
        at += bytes + 1;
    }
    z3d_string_free(&joined);
    return status;
}

/* One of tokenizer.json: "left right" or ["left", "right"], in `text`. */
static bool merge_text(const z3d_json *m, z3d_string *text) {
    z3d_string_clear(text);
    if (m->type == Z3D_JSON_STRING) {
        z3d_string_append(text, "%s", m->text);
    } else {
        const z3d_json *left = m->type == Z3D_JSON_ARRAY && m->count == 2 ? m->first : NULL;
        if (!left || left->type != Z3D_JSON_STRING || left->next->type != Z3D_JSON_STRING)
            return false;
        z3d_string_append(text, "%s %s", left->text, left->next->text);
    }
    return true;
}

static z3d_status add_json_merges(reader *r, const z3d_json *merges) {
    z3d_string text = {0}, joined = {0};
    int64_t rank = 0;
    z3d_status status = make_table(r->out, (size_t)merges->count);
    for (const z3d_json *m = merges->first; m && status == Z3D_OK; m = m->next)
        if (!merge_text(m, &text))
            status = Z3D_ERROR(Z3D_ERR_DATA,
                               "%s:%lld: a merge that is neither \"left right\" nor "
                               "[\"left\", \"right\"]",
                               r->vocab, (long long)m->line);
        else
            status = text.failed ? Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for a merge's tokens")
                                 : add_merge(r, m->line, ++rank, text.text, text.length, &joined);
    z3d_string_free(&text);
    z3d_string_free(&joined);
    return status;
}

/* A file that was cut off at a line's end would give other tokens, silently. Tokens of more than
 * one byte are made by merges, but for a few special ones. */
static z3d_status check_merges(const reader *r) {
    const z3d_gpt2_vocabulary *v = r->out;
    bool *made;
    int32_t missing = 0;
    Z3D_TRY(z3d_new((size_t)v->size + 1, sizeof *made, "the tokens", &made));
    for (size_t i = 0; i < v->places; i++)
        if (v->merge[i].left >= 0) made[v->merge[i].merged] = true;
    for (int32_t id = 0; id < v->size; id++)
        missing += !made[id] && v->token[id].length > 1 && id != v->end_of_text;
    free(made);
    if (missing <= v->size / 10) return Z3D_OK;
    return Z3D_ERROR(Z3D_ERR_DATA,
                     "%s: %d of the %d tokens of %s come from no merge: the file is cut off, or "
                     "belongs to another vocabulary",
                     r->merges, missing, v->size, r->vocab);
}

static z3d_status read_merges(reader *r) {
    char *text;
    size_t length;
    Z3D_TRY(z3d_read_file(r->merges, MAX_FILE, &text, &length));
    z3d_status status = add_merges(r, text, length);
    free(text);
    return status;
}

/* ---- all ---- */

static z3d_status read_tokenizer_json(reader *r, const z3d_json *root) {
    const z3d_json *vocab, *merges;
    int64_t end_of_text;
    r->out->one_file = true;
    r->merges = r->vocab;
    Z3D_TRY(z3d_gpt2_tokenizer_json(root, r->vocab, &vocab, &merges, &end_of_text));
    Z3D_TRY(add_tokens(r, vocab, end_of_text));
    return add_json_merges(r, merges);
}

static z3d_status read_vocab(reader *r) {
    char *text;
    size_t length;
    z3d_json *root = NULL;
    Z3D_TRY(z3d_read_file(r->vocab, MAX_FILE, &text, &length));
    z3d_status status = z3d_json_parse(text, length, r->vocab, &root);
    if (status == Z3D_OK)
        status = z3d_gpt2_is_tokenizer_json(root) ? read_tokenizer_json(r, root)
                                                  : add_tokens(r, root, -1);
    z3d_json_free(root);
    free(text);
    return status;
}

z3d_status z3d_gpt2_vocabulary_read(const char *vocab, const char *merges,
                                    z3d_gpt2_vocabulary *out) {
    reader r = {.out = out, .vocab = vocab, .merges = merges};
    *out = (z3d_gpt2_vocabulary){0};
    make_alphabet(&r);
    z3d_status status = read_vocab(&r);
    if (status == Z3D_OK && !out->one_file) status = read_merges(&r);
    if (status == Z3D_OK) status = check_merges(&r);
    free(r.place);
    return status;
}

void z3d_gpt2_vocabulary_free(z3d_gpt2_vocabulary *v) {
    free(v->token);
    free(v->merge);
    z3d_string_free(&v->text);
    *v = (z3d_gpt2_vocabulary){0};
}
