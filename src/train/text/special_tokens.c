/* Finds the tokens that begin and end a text: tokenizer.json says which token is put before a text,
 * the files beside it name the others. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/train/text/bpe.h"

z3d_status z3d_read_json_beside(const char *path, const char *name, z3d_json **out) {
    char *beside;
    *out = NULL;
    z3d_status status = z3d_path_beside(path, name, &beside);
    if (status == Z3D_OK && access(beside, F_OK) == 0)
        status = z3d_json_read(beside, Z3D_MAX_TOKENIZER_FILE, out);
    free(beside);
    return status;
}

/* The member "eos_token" is a text, or an object with the text as "content"; NULL: missing. */
static const char *text_of(const z3d_json *config, const char *key) {
    const z3d_json *m = z3d_json_member(config, key);
    if (m && m->type == Z3D_JSON_OBJECT) m = z3d_json_member(m, "content");
    return m && m->type == Z3D_JSON_STRING ? m->text : NULL;
}

/* Finds them by their texts in tokenizer_config.json. */
static void read_texts(z3d_bpe_tokenizer *t, const z3d_json *root, const z3d_json *config) {
    const z3d_json *add = z3d_json_member(config, "add_bos_token");
    const char *begin = text_of(config, "bos_token"), *end = text_of(config, "eos_token");
    t->base.contradicted =
        add && add->type == Z3D_JSON_BOOL && add->truth != (t->base.begin_of_text >= 0);
    if (end) t->base.end_of_text = (int32_t)z3d_tokenizer_json_id(root, end);
    if (begin) t->base.usual_begin = (int32_t)z3d_tokenizer_json_id(root, begin);
}

/* Adds an id that ends a text. The first one also ends documents, if no other token does. The
 * tokenizer must have the id, because generation must not draw unknown ids. */
static z3d_status add_end(z3d_bpe_tokenizer *t, int64_t id, const char *name, const char *path) {
    z3d_tokenizer *base = &t->base;
    if (id >= t->vocabulary.size && base->end_of_text >= 0) return Z3D_OK;
    if (id >= t->vocabulary.size)
        return Z3D_ERROR(Z3D_ERR_DATA,
                         "%s: its eos_token_id is %lld, but the tokenizer %s has ids 0 to %d", name,
                         (long long)id, path, t->vocabulary.size - 1);
    if (base->end_of_text < 0) base->end_of_text = (int32_t)id;
    return z3d_token_list_add(&base->ends, (int32_t)id);
}

/* Finds them by "eos_token_id", an id or a list of ids, in the model's files.
 * generation_config.json comes before config.json, as in transformers. */
static z3d_status read_ids(z3d_bpe_tokenizer *t, const char *path) {
    static const char *const names[] = {"generation_config.json", "config.json"};
    z3d_status status = Z3D_OK;
    for (int i = 0; i < 2 && t->base.ends.count == 0 && status == Z3D_OK; i++) {
        z3d_json *config;
        int64_t id;
        Z3D_TRY(z3d_read_json_beside(path, names[i], &config));
        const z3d_json *m = z3d_json_member(config, "eos_token_id");
        const bool list = m && m->type == Z3D_JSON_ARRAY;
        for (m = list ? m->first : m; m && status == Z3D_OK; m = list ? m->next : NULL)
            if (z3d_json_int(m, &id)) status = add_end(t, id, names[i], path);
        z3d_json_free(config);
    }
    return status;
}

z3d_status z3d_special_tokens_find(z3d_bpe_tokenizer *t, const z3d_json *root, const char *path) {
    static const char *const usual[] = {Z3D_END_OF_TEXT, "<|end_of_text|>", "</s>"};
    z3d_json *config;
    Z3D_TRY(z3d_read_json_beside(path, "tokenizer_config.json", &config));
    read_texts(t, root, config);
    z3d_json_free(config);
    Z3D_TRY(read_ids(t, path));
    if (t->base.end_of_text < 0) t->base.end_of_text = t->closing;
    if (t->closing >= 0 && t->closing != t->base.end_of_text)
        return Z3D_ERROR(Z3D_ERR_UNSUPPORTED,
                         "%s: \"post_processor\" puts token %d after a text, but its documents end "
                         "with token %d (\"eos_token\"): make them the same",
                         path, t->closing, t->base.end_of_text);
    for (size_t i = 0; i < sizeof usual / sizeof *usual && t->base.end_of_text < 0; i++)
        t->base.end_of_text = (int32_t)z3d_tokenizer_json_id(root, usual[i]);
    if (t->base.end_of_text >= 0) return Z3D_OK;
    return Z3D_ERROR(Z3D_ERR_DATA,
                     "%s: no token that ends a text: expected \"eos_token\" in "
                     "tokenizer_config.json or \"eos_token_id\" in config.json beside it",
                     path);
}
