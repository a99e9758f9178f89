/* Reads tokenizer.json, Hugging Face's tokenizer in one file: its vocabulary, merges and added
 * tokens. tokenizer_parts.c reads the stages around them. */
#include <string.h>

#include "src/train/text/bpe.h"

static z3d_status refuse(const char *path, const z3d_json *part, const char *what) {
    return Z3D_ERROR(Z3D_ERR_UNSUPPORTED, "%s:%lld: \"%s\" is not supported; %s", path,
                     (long long)part->line, part->key, what);
}

static z3d_status check_model(const z3d_json *model, const char *path) {
    static const char *const marks[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    const z3d_json *type = z3d_json_member(model, "type");
    const z3d_json *dropout = z3d_json_member(model, "dropout");
    if (type && !z3d_json_is_text(type, "BPE"))
        return Z3D_ERROR(
            Z3D_ERR_UNSUPPORTED, "%s:%lld: \"model\" of type %.40s is not supported; only BPE is",
            path, (long long)model->line, type->type == Z3D_JSON_STRING ? type->text : "(none)");
    bool none = z3d_json_is_none(dropout) ||
                (dropout->type == Z3D_JSON_NUMBER && !strpbrk(dropout->text, "123456789"));
    if (!none) return refuse(path, dropout, "it must be null");
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
        const z3d_json *m = z3d_json_member(model, marks[i]);
        if (!z3d_json_is_none(m) && !z3d_json_is_text(m, ""))
            return refuse(path, m, "it must be null");
    }
    return Z3D_OK;
}

/* ---- tokens ---- */

static const z3d_json *first_added(const z3d_json *root) {
    const z3d_json *added = z3d_json_member(root, "added_tokens");
    return added ? added->first : NULL;
}

static z3d_status refuse_token(const z3d_vocabulary *v, const char *path, const z3d_json *m,
                               int64_t id, const char *what) {
    return Z3D_ERROR(v->text.failed ? Z3D_ERR_MEMORY : Z3D_ERR_DATA,
                     "%s:%lld: the token with id %lld %s", path, (long long)m->line, (long long)id,
                     what);
}

/* The largest id of a list: of the members themselves, or of their "id". */
static z3d_status find_largest(const z3d_json *first, bool members, const char *path,
                               int64_t *largest) {
    for (const z3d_json *m = first; m; m = m->next) {
        int64_t id;
        if (!z3d_json_int(members ? z3d_json_member(m, "id") : m, &id))
            return Z3D_ERROR(Z3D_ERR_DATA, "%s:%lld: %s", path, (long long)m->line,
                             members ? "an added token has no \"id\""
                                     : "a token without an id; expected {\"token\": id}");
        if (id > Z3D_MAX_TOKEN_ID)
            return Z3D_ERROR(Z3D_ERR_DATA,
                             "%s:%lld: the token with id %lld is too large: expected ids below "
                             "2^24",
                             path, (long long)m->line, (long long)id);
        if (id > *largest) *largest = id;
    }
    return Z3D_OK;
}

/* Adds all tokens. One that is not in GPT-2's alphabet is added as plain text, which no merge
 * makes. */
static z3d_status add_tokens(z3d_vocabulary *v, const z3d_json *tokens, const char *path) {
    for (const z3d_json *m = tokens->first; m; m = m->next) {
        int64_t id = 0;
        size_t length = strlen(m->key);
        (void)z3d_json_int(m, &id);
        if (length == 0) continue; /* no text becomes this token */
        const char *what = z3d_vocabulary_add(v, id, m->key, length);
        if (what && v->token[id].length == 0 && v->byte_level)
            what = z3d_vocabulary_add_outside(v, id, m->key, length);
        if (what) return refuse_token(v, path, m, id, what);
    }
    return Z3D_OK;
}

/* Reads the rules for text without a token: the tokens of its bytes, else the unknown token, else
 * it is left out. */
static z3d_status read_unknown(z3d_vocabulary *v, const z3d_json *model, const char *path) {
    const z3d_json *unknown = z3d_json_member(model, "unk_token");
    bool fallback = z3d_json_flag(model, "byte_fallback", false);
    int byte = 0, missing = fallback || v->byte_level ? z3d_vocabulary_set_bytes(v, &byte) : 0;
    if (v->byte_level && fallback && missing > 0)
        return refuse(path, z3d_json_member(model, "byte_fallback"),
                      "with ByteLevel it must be false");
    v->fuse_unknown = z3d_json_flag(model, "fuse_unk", false);
    v->ignore_merges = z3d_json_flag(model, "ignore_merges", false);
    if (z3d_json_is_none(unknown)) return Z3D_OK;
    if (unknown->type == Z3D_JSON_STRING)
        v->unknown = z3d_vocabulary_find(v, unknown->text, unknown->length);
    if (v->unknown >= 0) return Z3D_OK;
    return Z3D_ERROR(Z3D_ERR_DATA, "%s:%lld: \"unk_token\" is not in the vocabulary", path,
                     (long long)unknown->line);
}

/* ---- merges ---- */

/* "left right" or ["left", "right"]. */
static z3d_status add_merge(z3d_vocabulary *v, const z3d_json *m, int64_t rank, const char *path) {
    const char *what = "a merge that is neither \"left right\" nor [\"left\", \"right\"]";
    const z3d_json *left = m->type == Z3D_JSON_ARRAY && m->count == 2 ? m->first : NULL;
    const char *space = m->type == Z3D_JSON_STRING ? strchr(m->text, ' ') : NULL;
    if (left && left->type == Z3D_JSON_STRING && left->next->type == Z3D_JSON_STRING)
        what = z3d_vocabulary_add_merge(v, rank, left->text, left->length, left->next->text,
                                        left->next->length);
    else if (space)
        what = z3d_vocabulary_add_merge(v, rank, m->text, (size_t)(space - m->text), space + 1,
                                        strlen(space + 1));
    if (v->joined.failed) return Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for a merge's tokens");
    if (what) return Z3D_ERROR(Z3D_ERR_DATA, "%s:%lld: %s", path, (long long)m->line, what);
    return Z3D_OK;
}

/* ---- added tokens ---- */

/* If an added token is in the vocabulary, it must have the same id there. */
static z3d_status place_added(z3d_vocabulary *v, const z3d_json *m, int32_t id, const char *text,
                              const char *path) {
    z3d_string written = {0};
    size_t length = strlen(text);
    if (v->token[id].length == 0) {
        const char *what = z3d_vocabulary_add_outside(v, id, text, length);
        return what ? refuse_token(v, path, m, id, what) : Z3D_OK;
    }
    bool same = v->token[id].length == length &&
                memcmp(v->text.text + v->token[id].begin, text, length) == 0;
    if (!same && v->byte_level && z3d_vocabulary_append_bytes(text, length, &written))
        same = v->token[id].length == written.length &&
               memcmp(v->text.text + v->token[id].begin, written.text, written.length) == 0;
    z3d_string_free(&written);
    return same ? Z3D_OK
                : refuse_token(v, path, m, id, "is added, but is another token in the vocabulary");
}

static z3d_status add_added(z3d_bpe_tokenizer *t, const z3d_json *m, const char *path) {
    const z3d_json *content = z3d_json_member(m, "content");
    int64_t id = 0;
    (void)z3d_json_int(z3d_json_member(m, "id"), &id);
    if (!content || content->type != Z3D_JSON_STRING || content->length == 0)
        return Z3D_ERROR(Z3D_ERR_DATA, "%s:%lld: added token %lld has no \"content\"", path,
                         (long long)m->line, (long long)id);
    if (z3d_json_flag(m, "single_word", false))
        return Z3D_ERROR(Z3D_ERR_UNSUPPORTED,
                         "%s:%lld: added token %.40s: \"single_word\" is not supported; it must "
                         "be false",
                         path, (long long)m->line, content->text);
    Z3D_TRY(place_added(&t->vocabulary, m, (int32_t)id, content->text, path));
    bool special = z3d_json_flag(m, "special", false);
    int flags = (special ? Z3D_ADDED_SPECIAL : 0) |
                (z3d_json_flag(m, "lstrip", false) ? Z3D_ADDED_LSTRIP : 0) |
                (z3d_json_flag(m, "rstrip", false) ? Z3D_ADDED_RSTRIP : 0);
    return z3d_bpe_tokenizer_mark(t, (int32_t)id, content->text,
                                  z3d_json_flag(m, "normalized", !special), flags);
}

/* ---- all ---- */

int64_t z3d_tokenizer_json_id(const z3d_json *root, const char *text) {
    int64_t id;
    for (const z3d_json *m = first_added(root); m; m = m->next)
        if (z3d_json_is_text(z3d_json_member(m, "content"), text) &&
            z3d_json_int(z3d_json_member(m, "id"), &id))
            return id;
    const z3d_json *tokens = z3d_json_member(z3d_json_member(root, "model"), "vocab");
    return z3d_json_int(z3d_json_member(tokens, text), &id) ? id : -1;
}

z3d_status z3d_tokenizer_json_read(z3d_bpe_tokenizer *t, const z3d_json *root, const char *path) {
    const z3d_json *model = z3d_json_member(root, "model"), *tokens, *merges;
    const z3d_json *added = z3d_json_member(root, "added_tokens");
    z3d_vocabulary *v = &t->vocabulary;
    int64_t largest = 0, rank = 0;
    bool byte_level;
    Z3D_TRY(check_model(model, path));
    if (!z3d_json_is_none(added) && added->type != Z3D_JSON_ARRAY)
        return refuse(path, added, "it must be a list");
    z3d_status status = z3d_json_get(model, "vocab", Z3D_JSON_OBJECT, &tokens);
    if (status == Z3D_OK) status = z3d_json_get(model, "merges", Z3D_JSON_ARRAY, &merges);
    if (status != Z3D_OK) return z3d_error_context(status, "%s: \"model\"", path);
    Z3D_TRY(z3d_tokenizer_parts_read(t, root, path, &byte_level));
    Z3D_TRY(find_largest(tokens->first, false, path, &largest));
    Z3D_TRY(find_largest(first_added(root), true, path, &largest));
    Z3D_TRY(z3d_vocabulary_create(v, largest + 1, merges->count, byte_level));
    Z3D_TRY(add_tokens(v, tokens, path));
    Z3D_TRY(read_unknown(v, model, path));
    for (const z3d_json *m = merges->first; m; m = m->next) Z3D_TRY(add_merge(v, m, ++rank, path));
    for (const z3d_json *m = first_added(root); m; m = m->next) Z3D_TRY(add_added(t, m, path));
    return Z3D_OK;
}
