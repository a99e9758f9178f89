/* Reads GPT-2's vocab.json ({"token": id}) and merges.txt ("left right" in order of rank). */
#include <stdlib.h>
#include <string.h>

#include "src/train/text/bpe.h"

/* ---- vocab.json ---- */

static z3d_status add_tokens(z3d_vocabulary *v, const z3d_json *root, const char *path) {
    for (const z3d_json *m = root->first; m; m = m->next) {
        int64_t id;
        if (!z3d_json_int(m, &id))
            return Z3D_ERROR(Z3D_ERR_DATA,
                             "%s:%lld: a token without an id; expected {\"token\": id}", path,
                             (long long)m->line);
        const char *what = z3d_vocabulary_add(v, id, m->key, strlen(m->key));
        if (what)
            return Z3D_ERROR(v->text.failed ? Z3D_ERR_MEMORY : Z3D_ERR_DATA,
                             "%s:%lld: the token with id %lld %s", path, (long long)m->line,
                             (long long)id, what);
    }
    int byte;
    if (z3d_vocabulary_set_bytes(v, &byte) == 0) return Z3D_OK;
    return Z3D_ERROR(Z3D_ERR_DATA,
                     "%s: no token for byte %d: this is not a vocabulary of GPT-2's kind "
                     "(byte-level BPE)",
                     path, byte);
}

/* ---- merges.txt ---- */

static z3d_status add_merge(z3d_vocabulary *v, const char *path, int64_t line, const char *text,
                            size_t length) {
    const char *space = memchr(text, ' ', length);
    size_t left = space ? (size_t)(space - text) : 0;
    const char *what = "expected two tokens with a space between them";
    if (space) what = z3d_vocabulary_add_merge(v, line, text, left, space + 1, length - left - 1);
    if (v->joined.failed) return Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for a merge's tokens");
    if (what) return Z3D_ERROR(Z3D_ERR_DATA, "%s:%lld: %s", path, (long long)line, what);
    return Z3D_OK;
}

/* Adds all merges; a merge's rank is the number of its line. */
static z3d_status add_merges(z3d_vocabulary *v, const char *path, const char *text, size_t length) {
    int64_t line = 1;
    for (const char *at = text, *end = text + length; at < end; line++) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        size_t bytes = (size_t)((newline ? newline : end) - at);
        bool version = line == 1 && bytes >= 8 && memcmp(at, "#version", 8) == 0;
        size_t used = bytes > 0 && at[bytes - 1] == '\r' ? bytes - 1 : bytes;
        if (!version && used > 0) Z3D_TRY(add_merge(v, path, line, at, used));
        at += bytes + 1;
    }
    return Z3D_OK;
}

/* Detects a file that was cut off at a line's end, which would silently give other tokens: all
 * tokens of more than one byte, except a few special ones, must come from merges. */
static z3d_status check_merges(const z3d_vocabulary *v, const char *vocab, const char *merges) {
    bool *made;
    int32_t missing = 0;
    Z3D_TRY(z3d_new((size_t)v->size + 1, sizeof *made, "the tokens", &made));
    for (size_t i = 0; i < v->merge_places; i++)
        if (v->merge[i].left >= 0) made[v->merge[i].merged] = true;
    for (int32_t id = 0; id < v->size; id++) missing += !made[id] && v->token[id].length > 1;
    free(made);
    if (missing <= v->size / 10 + 1) return Z3D_OK; /* <|endoftext|> comes from no merge */
    return Z3D_ERROR(Z3D_ERR_DATA,
                     "%s: %d of the %d tokens of %s come from no merge: the file is cut off, or "
                     "belongs to another vocabulary",
                     merges, missing - 1, v->size, vocab);
}

/* ---- both ---- */

static z3d_status read_both(z3d_vocabulary *v, const z3d_json *vocab, const char *vocab_path,
                            const char *merges_path, const char *merges, size_t length) {
    int64_t lines = 1;
    if (vocab->type != Z3D_JSON_OBJECT)
        return Z3D_ERROR(Z3D_ERR_DATA, "%s:1: not a vocabulary; expected {\"token\": id, ...}",
                         vocab_path);
    if (vocab->count > Z3D_MAX_TOKEN_ID)
        return Z3D_ERROR(Z3D_ERR_DATA, "%s: %lld tokens; expected fewer than 2^24", vocab_path,
                         (long long)vocab->count);
    for (size_t i = 0; i < length; i++) lines += merges[i] == '\n';
    Z3D_TRY(z3d_vocabulary_create(v, vocab->count, lines, true));
    Z3D_TRY(add_tokens(v, vocab, vocab_path));
    Z3D_TRY(add_merges(v, merges_path, merges, length));
    return check_merges(v, vocab_path, merges_path);
}

z3d_status z3d_gpt2_files_read(z3d_bpe_tokenizer *t, const z3d_json *vocab, const char *vocab_path,
                               const char *merges_path) {
    char *text;
    size_t length;
    z3d_vocabulary *v = &t->vocabulary;
    Z3D_TRY(z3d_read_file(merges_path, Z3D_MAX_TOKENIZER_FILE, &text, &length));
    z3d_status status = read_both(v, vocab, vocab_path, merges_path, text, length);
    free(text);
    Z3D_TRY(status);
    int32_t end = z3d_vocabulary_find(v, Z3D_END_OF_TEXT, sizeof Z3D_END_OF_TEXT - 1);
    if (end < 0)
        return Z3D_ERROR(Z3D_ERR_DATA, "%s: no token %s, which ends a document", vocab_path,
                         Z3D_END_OF_TEXT);
    t->base.end_of_text = end;
    z3d_splitters_add_function(t->splitters, z3d_gpt2_word);
    return z3d_bpe_tokenizer_mark(t, end, Z3D_END_OF_TEXT, false, Z3D_ADDED_SPECIAL);
}
