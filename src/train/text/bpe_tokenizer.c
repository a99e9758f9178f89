/* Byte-pair encoding, stage by stage, and decoding. */
#include <stdlib.h>
#include <string.h>

#include "src/train/text/bpe.h"
#include "src/train/text/text_files.h"

enum { LONGEST_TEXT = 1 << 30 };

/* ---- text to tokens ---- */

/* Encodes text without added tokens. prepend: puts a space before it, if the tokenizer does so. */
static z3d_status encode_words(z3d_bpe_tokenizer *t, const char *text, size_t length, bool prepend,
                               z3d_token_list *out) {
    if (length == 0) return Z3D_OK;
    Z3D_TRY(z3d_rewrites_apply(&t->spaces, prepend, &text, &length));
    return z3d_splitters_run(t->splitters, text, length, t->merger, out);
}

/* Encodes text without tokens of `raw`. first: it is the first piece of the input; begins: the
 * input begins a text. */
static z3d_status encode_between(z3d_bpe_tokenizer *t, const char *text, size_t length, bool first,
                                 bool begins, z3d_token_list *out) {
    if (length == 0) return Z3D_OK;
    Z3D_TRY(z3d_rewrites_apply(&t->normalizer, begins || !first, &text, &length));
    for (size_t at = 0; at < length;) {
        z3d_found found = z3d_added_set_find(&t->rewritten, t->vocabulary.added, text, length, at);
        bool prepend = first && at == 0 ? begins : !t->first_only;
        Z3D_TRY(encode_words(t, text + at, found.begin - at, prepend, out));
        if (found.id >= 0) Z3D_TRY(z3d_token_list_add(out, found.id));
        at = found.end;
    }
    return Z3D_OK;
}

/* first, begins: as above. */
static z3d_status encode_text(z3d_bpe_tokenizer *t, const char *text, size_t length, bool first,
                              bool begins, z3d_token_list *out) {
    if (length > LONGEST_TEXT)
        return Z3D_ERROR(Z3D_ERR_USAGE, "%zu bytes of text at once; at most %d are supported",
                         length, LONGEST_TEXT);
    for (size_t at = 0; at < length;) {
        z3d_found found = z3d_added_set_find(&t->raw, t->vocabulary.added, text, length, at);
        Z3D_TRY(encode_between(t, text + at, found.begin - at, first && at == 0, begins, out));
        if (found.id >= 0) Z3D_TRY(z3d_token_list_add(out, found.id));
        at = found.end;
    }
    return Z3D_OK;
}

z3d_status z3d_tokenizer_encode(z3d_tokenizer *tokenizer, const char *text, size_t length,
                                bool begins, z3d_token_list *out) {
    return encode_text((z3d_bpe_tokenizer *)tokenizer, text, length, true, begins, out);
}

z3d_status z3d_tokenizer_encode_after(z3d_tokenizer *tokenizer, const char *text, size_t length,
                                      z3d_token_list *out) {
    return encode_text((z3d_bpe_tokenizer *)tokenizer, text, length, false, false, out);
}

/* ---- tokens to text ---- */

static void append_token(const z3d_bpe_tokenizer *t, int32_t id, z3d_string *out) {
    const z3d_vocabulary *v = &t->vocabulary;
    const char *text = v->text.text + v->token[id].begin;
    if (t->vocabulary.added[id] & Z3D_ADDED_SPECIAL || v->token[id].length == 0) return;
    int byte = t->byte_tokens ? z3d_vocabulary_byte_of(v, id) : -1;
    char c = (char)byte;
    if (byte >= 0)
        z3d_string_append_bytes(out, &c, 1);
    else if (t->unmark)
        z3d_append_replaced(Z3D_SPACE_MARK, " ", text, v->token[id].length, out);
    else
        z3d_string_append_bytes(out, text, v->token[id].length);
}

z3d_status z3d_tokenizer_decode(const z3d_tokenizer *tokenizer, const int32_t *ids, size_t count,
                                bool begins, z3d_string *out) {
    const z3d_bpe_tokenizer *t = (const z3d_bpe_tokenizer *)tokenizer;
    size_t before = out->length;
    for (size_t i = 0; i < count; i++) {
        if (ids[i] < 0 || ids[i] >= t->vocabulary.size)
            return Z3D_ERROR(Z3D_ERR_DATA, "token %zu is %d: the %s tokenizer has ids 0 to %d", i,
                             ids[i], t->base.name, t->vocabulary.size - 1);
        append_token(t, ids[i], out);
        /* Removes the space that encoding puts before a text. */
        if (begins && t->strip && out->length > before) {
            begins = false;
            if (!out->failed && out->text[before] == ' ') {
                out->length--;
                memmove(out->text + before, out->text + before + 1, out->length - before + 1);
            }
        }
    }
    return out->failed ? Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for the text of %zu tokens", count)
                       : Z3D_OK;
}

/* ---- special tokens ---- */

static const char *find_in(const z3d_bpe_tokenizer *t, const z3d_added_set *set, const char *text,
                           size_t length, size_t *bytes) {
    for (size_t at = 0; at < length;) {
        const z3d_found found = z3d_added_set_find(set, t->vocabulary.added, text, length, at);
        if (found.id >= 0 && t->vocabulary.added[found.id] & Z3D_ADDED_SPECIAL) {
            *bytes = t->vocabulary.token[found.id].length;
            return t->vocabulary.text.text + t->vocabulary.token[found.id].begin;
        }
        at = found.end;
    }
    return NULL;
}

const char *z3d_tokenizer_find_special(const z3d_tokenizer *tokenizer, const char *text,
                                       size_t length, size_t *bytes) {
    const z3d_bpe_tokenizer *t = (const z3d_bpe_tokenizer *)tokenizer;
    const char *found = find_in(t, &t->raw, text, length, bytes);
    return found ? found : find_in(t, &t->rewritten, text, length, bytes);
}

void z3d_tokenizer_name_token(const z3d_tokenizer *tokenizer, int32_t id, z3d_string *out) {
    const z3d_vocabulary *v = &((const z3d_bpe_tokenizer *)tokenizer)->vocabulary;
    if (id >= 0 && id < v->size)
        z3d_string_append_bytes(out, v->text.text + v->token[id].begin, v->token[id].length);
}

/* ---- the tokenizer ---- */

void z3d_tokenizer_destroy(z3d_tokenizer *tokenizer) {
    z3d_bpe_tokenizer *t = (z3d_bpe_tokenizer *)tokenizer;
    if (!t) return;
    z3d_vocabulary_free(&t->vocabulary);
    z3d_word_merger_destroy(t->merger);
    z3d_added_set_free(&t->raw);
    z3d_added_set_free(&t->rewritten);
    z3d_rewrites_free(&t->normalizer);
    z3d_rewrites_free(&t->spaces);
    z3d_splitters_destroy(t->splitters);
    z3d_token_list_free(&t->base.ends);
    free(t->base.path);
    free(t);
}

z3d_status z3d_bpe_tokenizer_create(z3d_tokenizer_kind kind, z3d_bpe_tokenizer **out) {
    static const char *const names[] = {[Z3D_TOKENIZER_BYTES] = "bytes",
                                        [Z3D_TOKENIZER_GPT2] = "gpt2",
                                        [Z3D_TOKENIZER_HUGGINGFACE] = "huggingface"};
    z3d_bpe_tokenizer *t;
    *out = NULL;
    Z3D_TRY(z3d_new(1, sizeof *t, "the tokenizer", &t));
    t->base = (z3d_tokenizer){
        .name = names[kind], .begin_of_text = -1, .usual_begin = -1, .end_of_text = -1};
    t->closing = -1;
    *out = t;
    return z3d_splitters_create(&t->splitters);
}

z3d_status z3d_bpe_tokenizer_mark(z3d_bpe_tokenizer *t, int32_t id, const char *text,
                                  bool normalized, int flags) {
    size_t length = strlen(text);
    t->vocabulary.added[id] = (unsigned char)flags;
    if (normalized) Z3D_TRY(z3d_rewrites_apply(&t->normalizer, true, &text, &length));
    if (length == 0) return Z3D_OK;
    return z3d_added_set_add(normalized ? &t->rewritten : &t->raw, text, length, id);
}

/* Whether marks are only at the beginning of merged tokens: then no merge crosses the border before
 * a mark. */
static bool marks_begin_tokens(const z3d_vocabulary *v) {
    const size_t mark = sizeof Z3D_SPACE_MARK - 1;
    for (size_t i = 0; i < v->merge_places; i++) {
        if (v->merge[i].left < 0) continue;
        const z3d_bpe_token *token = &v->token[v->merge[i].merged];
        const char *text = v->text.text + token->begin;
        if (z3d_marked_word(text, token->length) != token->length) return false;
    }
    return z3d_vocabulary_find(v, Z3D_SPACE_MARK, mark) >= 0;
}

z3d_status z3d_bpe_tokenizer_finish(z3d_bpe_tokenizer *t) {
    const z3d_vocabulary *v = &t->vocabulary;
    /* If the whole text would be one word, cuts it where the tokens stay the same. */
    if (!v->byte_level && !v->ignore_merges && z3d_splitters_count(t->splitters) == 0 &&
        marks_begin_tokens(v))
        z3d_splitters_add_function(t->splitters, z3d_marked_word);
    t->base.vocab_size = v->size;
    if (t->base.begin_of_text >= 0) t->base.usual_begin = t->base.begin_of_text;
    for (int32_t id = 0; id < v->size; id++) {
        z3d_content_hash hash = {{t->base.digest, v->token[id].length}};
        z3d_content_hash_add(&hash, (v->text.text ? v->text.text : "") + v->token[id].begin,
                             v->token[id].length);
        t->base.digest = hash.word[0];
    }
    return z3d_word_merger_create(v, &t->merger);
}
