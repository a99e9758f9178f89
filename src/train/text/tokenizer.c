/* Creates tokenizers; the ids of prompts and documents. */
#include "src/train/tokenizer.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/train/text/bpe.h"

/* ---- ids ---- */

z3d_status z3d_token_list_reserve(z3d_token_list *list, size_t more) {
    enum { FEWEST = 256 };
    if (list->capacity - list->count >= more) return Z3D_OK;
    size_t capacity = list->count + more;
    if (capacity < 2 * list->capacity) capacity = 2 * list->capacity;
    if (capacity < FEWEST) capacity = FEWEST;
    int32_t *grown = realloc(list->id, capacity * sizeof *grown);
    if (!grown) return Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for %zu tokens", capacity);
    list->id = grown;
    list->capacity = capacity;
    return Z3D_OK;
}

z3d_status z3d_token_list_add(z3d_token_list *list, int32_t id) {
    Z3D_TRY(z3d_token_list_reserve(list, 1));
    list->id[list->count++] = id;
    return Z3D_OK;
}

void z3d_token_list_free(z3d_token_list *list) {
    free(list->id);
    *list = (z3d_token_list){0};
}

bool z3d_tokenizer_ends(const z3d_tokenizer *tokenizer, int32_t id) {
    bool ends = id == tokenizer->end_of_text;
    for (size_t i = 0; i < tokenizer->ends.count; i++) ends |= id == tokenizer->ends.id[i];
    return ends;
}

/* ---- creation ---- */

/* The tokenizer `bytes`. No text becomes the token that ends a document. */
static z3d_status make_bytes(z3d_bpe_tokenizer *t, const char *vocab, const char *merges) {
    enum { END = 256 };
    z3d_vocabulary *v = &t->vocabulary;
    if ((vocab && *vocab) || (merges && *merges))
        return Z3D_ERROR(Z3D_ERR_CONFIG, "the bytes tokenizer has no vocabulary files");
    Z3D_TRY(z3d_vocabulary_create(v, END + 1, 0, true));
    v->only_bytes = true;
    for (int id = 0; id < END; id++) {
        const char byte = (char)id;
        (void)z3d_vocabulary_add_outside(v, id, &byte, 1);
    }
    (void)z3d_vocabulary_add_outside(v, END, Z3D_END_OF_TEXT, sizeof Z3D_END_OF_TEXT - 1);
    if (v->text.failed) return Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for the tokens");
    t->base.end_of_text = END;
    return z3d_bpe_tokenizer_mark(t, END, "", false, Z3D_ADDED_SPECIAL);
}

/* `path` itself, if it is a file; in a folder tokenizer.json, else vocab.json. pair: a merges.txt
 * was named, so vocab.json is meant. */
static void find_file(const char *path, bool pair, z3d_string *out) {
    const char *const whole = "tokenizer.json", *const part = "vocab.json";
    const char *const names[] = {pair ? part : whole, pair ? whole : part, whole};
    if (!z3d_is_folder(path)) {
        z3d_string_append(out, "%s", path);
        return;
    }
    for (int i = 0; i < 3; i++) {
        z3d_string_clear(out);
        z3d_string_append(out, "%s/%s", path, names[i]);
        if (out->failed || access(out->text, F_OK) == 0) return;
    }
}

static z3d_status read_tokenizer_json(z3d_bpe_tokenizer *t, const z3d_json *root, const char *path,
                                      const char *merges, bool gpt2) {
    if (merges && *merges)
        return Z3D_ERROR(Z3D_ERR_CONFIG, "%s has its own merges: leave out the merges file %s",
                         path, merges);
    Z3D_TRY(z3d_tokenizer_json_read(t, root, path));
    if (!gpt2) return z3d_special_tokens_find(t, root, path);
    t->base.end_of_text = (int32_t)z3d_tokenizer_json_id(root, Z3D_END_OF_TEXT);
    if (t->base.end_of_text >= 0) return Z3D_OK;
    return Z3D_ERROR(Z3D_ERR_DATA,
                     "%s: no token %s, which ends a document of GPT-2's; for another model's "
                     "tokenizer set data.tokenizer to huggingface",
                     path, Z3D_END_OF_TEXT);
}

/* Refuses vocab.json without GPT-2's tokens: other models have a vocab.json too, but cut words at
 * other places. */
static z3d_status refuse_vocab(const char *path) {
    z3d_json *config;
    Z3D_TRY(z3d_read_json_beside(path, "config.json", &config));
    bool gpt2 = z3d_json_is_text(z3d_json_member(config, "model_type"), "gpt2");
    z3d_json_free(config);
    return Z3D_ERROR(Z3D_ERR_DATA, "%s: it has no \"model\", so it is not a tokenizer.json; %s",
                     path,
                     gpt2 ? "for GPT-2's vocab.json and merges.txt set data.tokenizer to gpt2"
                          : "make one with transformers: "
                            "AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)");
}

static z3d_status read_root(z3d_bpe_tokenizer *t, const z3d_json *root, const char *path,
                            const char *merges, bool gpt2) {
    const z3d_json *model = z3d_json_member(root, "model"); /* vocab.json has none */
    if (model && model->type == Z3D_JSON_OBJECT)
        return read_tokenizer_json(t, root, path, merges, gpt2);
    if (!gpt2) return refuse_vocab(path);
    char *beside = NULL;
    const bool named = merges && *merges;
    z3d_status status = named ? Z3D_OK : z3d_path_beside(path, "merges.txt", &beside);
    if (status == Z3D_OK) status = z3d_gpt2_files_read(t, root, path, named ? merges : beside);
    free(beside);
    return status;
}

static z3d_status read_files(z3d_bpe_tokenizer *t, const char *vocab, const char *merges,
                             bool gpt2) {
    z3d_string path = {0};
    z3d_json *root;
    if (!vocab || !*vocab)
        return gpt2 ? Z3D_ERROR(Z3D_ERR_CONFIG, "the gpt2 tokenizer needs its vocabulary: "
                                                "vocab.json, tokenizer.json, or a folder with them")
                    : Z3D_ERROR(Z3D_ERR_CONFIG, "the huggingface tokenizer needs its "
                                                "tokenizer.json, or a folder with it");
    find_file(vocab, merges && *merges, &path);
    t->base.path = path.text;
    if (path.failed) return Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for a file's name");
    Z3D_TRY(z3d_json_read(path.text, Z3D_MAX_TOKENIZER_FILE, &root));
    z3d_status status = read_root(t, root, path.text, merges, gpt2);
    z3d_json_free(root);
    return status;
}

static z3d_status make(z3d_bpe_tokenizer *t, z3d_tokenizer_kind kind, const char *vocab,
                       const char *merges) {
    Z3D_TRY(kind == Z3D_TOKENIZER_BYTES ? make_bytes(t, vocab, merges)
                                        : read_files(t, vocab, merges, kind == Z3D_TOKENIZER_GPT2));
    if (kind != Z3D_TOKENIZER_HUGGINGFACE) t->base.usual_begin = t->base.end_of_text;
    return z3d_bpe_tokenizer_finish(t);
}

z3d_status z3d_tokenizer_create(z3d_tokenizer_kind kind, const char *vocab, const char *merges,
                                z3d_tokenizer **out) {
    z3d_bpe_tokenizer *t;
    z3d_status status = z3d_bpe_tokenizer_create(kind, &t);
    if (status == Z3D_OK) status = make(t, kind, vocab, merges);
    *out = (z3d_tokenizer *)t;
    if (status == Z3D_OK) return Z3D_OK;
    z3d_tokenizer_destroy(*out);
    *out = NULL;
    return status;
}

/* ---- the ids of a text ---- */

z3d_status z3d_tokenizer_check_ids(const z3d_tokenizer *t, const z3d_token_list *ids,
                                   size_t first) {
    if (t->model_ids == 0 || t->model_ids >= t->vocab_size) return Z3D_OK;
    for (size_t i = first; i < ids->count; i++)
        if (ids->id[i] >= t->model_ids)
            return Z3D_ERROR(Z3D_ERR_DATA,
                             "the text has token %d of the %s tokenizer, but the model has ids 0 "
                             "to %d (model.vocab_size): remove it from the text",
                             ids->id[i], t->name, t->model_ids - 1);
    return Z3D_OK;
}

/* begin: the token to put before the text (-1: none), unless the text begins with it. */
static z3d_status append_text(z3d_tokenizer *t, int32_t begin, const char *text, size_t length,
                              bool begins, z3d_token_list *out) {
    size_t first = out->count;
    if (begin >= 0) Z3D_TRY(z3d_token_list_add(out, begin));
    Z3D_TRY(z3d_tokenizer_encode(t, text, length, begins, out));
    if (begin >= 0 && out->count > first + 1 && out->id[first + 1] == begin) {
        out->count--;
        memmove(out->id + first, out->id + first + 1, (out->count - first) * sizeof *out->id);
    }
    return z3d_tokenizer_check_ids(t, out, first);
}

z3d_status z3d_tokenizer_prompt(z3d_tokenizer *t, const char *text, size_t length,
                                z3d_token_list *out) {
    size_t before = out->count;
    Z3D_TRY(append_text(t, t->begin_of_text, text, length, true, out));
    /* A text may have no ids: unknown text is left out. */
    return out->count > before ? Z3D_OK : z3d_token_list_add(out, t->end_of_text);
}

z3d_status z3d_tokenizer_special_token(z3d_tokenizer *t, const char *text, int32_t *out) {
    z3d_token_list ids = {0};
    z3d_string back = {0};
    *out = -1;
    z3d_status status = z3d_tokenizer_encode(t, text, strlen(text), true, &ids);
    bool one = status == Z3D_OK && ids.count == 1;
    if (one) status = z3d_tokenizer_decode(t, ids.id, 1, false, &back);
    if (one && status == Z3D_OK && back.length == 0) *out = ids.id[0];
    z3d_string_free(&back);
    z3d_token_list_free(&ids);
    return status;
}

bool z3d_tokenizer_ends_documents(const z3d_tokenizer *t) {
    return t->special != Z3D_SPECIAL_NONE && t->special != Z3D_SPECIAL_BOS;
}

#define WHITE " \t\r\n"

/* Whether ids[0 .. count) end with the end of text, or only white space follows it, such as the
 * last newline of a file. At most `space` bytes follow it. */
static z3d_status find_end(const z3d_tokenizer *t, const int32_t *ids, size_t count, size_t space,
                           bool *found) {
    size_t at = count;
    z3d_string rest = {0};
    while (at > 0 && count - at < space && ids[at - 1] != t->end_of_text) at--;
    *found = at > 0 && ids[at - 1] == t->end_of_text;
    if (!*found || at == count) return Z3D_OK;
    z3d_status status = z3d_tokenizer_decode(t, ids + at, count - at, false, &rest);
    *found = rest.text && strspn(rest.text, WHITE) == rest.length;
    z3d_string_free(&rest);
    return status;
}

z3d_status z3d_tokenizer_part(z3d_tokenizer *t, const char *text, size_t length, bool begins,
                              bool ends, z3d_token_list *out) {
    size_t before = out->count;
    /* If the same token ends documents and begins them, the end of the previous document begins
     * this one. */
    bool doubled = t->special == Z3D_SPECIAL_AUTO && t->begin_of_text == t->end_of_text;
    Z3D_TRY(append_text(t, begins && !doubled ? t->begin_of_text : -1, text, length, begins, out));
    if (!ends || !z3d_tokenizer_ends_documents(t)) return Z3D_OK;
    size_t space = 0;
    bool ended = false;
    while (space < length && strchr(WHITE, text[length - space - 1])) space++;
    if (length > 0) Z3D_TRY(find_end(t, out->id + before, out->count - before, space, &ended));
    return ended ? Z3D_OK : z3d_token_list_add(out, t->end_of_text);
}

/* ---- for a model ---- */

/* transformers 5 obeys the post-processor and ignores add_bos_token. */
static void tell_contradiction(const z3d_tokenizer *t) {
    const bool begins = t->begin_of_text >= 0;
    z3d_log(Z3D_LOG_WARN,
            "tokenizer.json's post_processor puts %s before a text, but tokenizer_config.json has "
            "add_bos_token %s; the post_processor decides, as in transformers 5 (--special of data "
            "tokenize and generate, and data.special, choose: none, bos, eos, both)",
            begins ? "a token" : "nothing", begins ? "false" : "true");
}

z3d_status z3d_tokenizer_set_special(z3d_tokenizer *t, z3d_special special) {
    bool begins = special == Z3D_SPECIAL_BOS || special == Z3D_SPECIAL_BOTH;
    t->special = special;
    if (special == Z3D_SPECIAL_AUTO) {
        if (t->contradicted) tell_contradiction(t);
        return Z3D_OK;
    }
    if (begins && t->usual_begin < 0)
        return Z3D_ERROR(Z3D_ERR_CONFIG,
                         "special tokens: %s: the %s tokenizer has no token that begins a text; "
                         "expected \"bos_token\" in tokenizer_config.json, or use eos or none",
                         special == Z3D_SPECIAL_BOS ? "bos" : "both", t->name);
    t->begin_of_text = begins ? t->usual_begin : -1;
    return Z3D_OK;
}

z3d_status z3d_tokenizer_set_model(z3d_tokenizer *t, int64_t vocab_size) {
    enum { FEW = 256 }; /* added tokens, such as one for padding */
    const int64_t more = t->vocab_size - vocab_size;
    t->model_ids = (int32_t)vocab_size;
    if (more > FEW || t->end_of_text >= vocab_size)
        return Z3D_ERROR(Z3D_ERR_CONFIG,
                         "model.vocab_size %lld is too small: the %s tokenizer has %d tokens",
                         (long long)vocab_size, t->name, t->vocab_size);
    if (more > 0)
        z3d_log(Z3D_LOG_WARN,
                "the %s tokenizer has %d tokens, but the model has %lld ids (model.vocab_size): a "
                "text with one of the last %lld is refused",
                t->name, t->vocab_size, (long long)vocab_size, (long long)more);
    return Z3D_OK;
}

z3d_status z3d_tokenizer_of_config(const z3d_config *c, z3d_tokenizer **out) {
    z3d_status status = z3d_tokenizer_create((z3d_tokenizer_kind)c->data_tokenizer, c->data_vocab,
                                             c->data_merges, out);
    if (status != Z3D_OK) return z3d_error_context(status, "data.vocab");
    status = z3d_tokenizer_set_special(*out, (z3d_special)c->data_special);
    if (status != Z3D_OK)
        status = z3d_error_context(status, "data.special");
    else if ((status = z3d_tokenizer_set_model(*out, c->model_vocab_size)) != Z3D_OK)
        status = z3d_error_context(status, "data.tokenizer");
    if (status == Z3D_OK) return Z3D_OK;
    z3d_tokenizer_destroy(*out);
    *out = NULL;
    return status;
}

z3d_status z3d_tokenizer_check(z3d_tokenizer_kind kind, const char *vocab, int64_t vocab_size) {
    z3d_tokenizer *t;
    Z3D_TRY(z3d_tokenizer_create(kind, vocab, NULL, &t));
    z3d_status status = z3d_tokenizer_set_special(t, Z3D_SPECIAL_AUTO);
    if (status == Z3D_OK) status = z3d_tokenizer_set_model(t, vocab_size);
    if (status != Z3D_OK) status = z3d_error_context(status, "%s", vocab);
    z3d_tokenizer_destroy(t);
    return status;
}
