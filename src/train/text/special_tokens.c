/* Which tokens begin and end a text: tokenizer.json says what is put before one, the files beside
 * it name the others. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/train/text/bpe.h"

/* FOLDER/name beside `path`; NULL when there is none. */
static z3d_status read_beside(const char *path, const char *name, z3d_json **out) {
    const char *slash = strrchr(path, '/');
    z3d_string beside = {0};
    char *text = NULL;
    size_t length;
    *out = NULL;
    z3d_string_append(&beside, "%.*s%s", slash ? (int)(slash + 1 - path) : 0, path, name);
    z3d_status status = Z3D_OK;
    if (beside.failed) {
        status = Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for a file's name");
    } else if (access(beside.text, F_OK) == 0) {
        status = z3d_read_file(beside.text, Z3D_MAX_TOKENIZER_FILE, &text, &length);
        if (status == Z3D_OK) status = z3d_json_parse(text, length, beside.text, out);
    }
    free(text);
    z3d_string_free(&beside);
    return status;
}

/* "eos_token" is its text, or an object with it as "content"; NULL: not said. */
static const char *text_of(const z3d_json *config, const char *key) {
    const z3d_json *m = z3d_json_member(config, key);
    if (m && m->type == Z3D_JSON_OBJECT) m = z3d_json_member(m, "content");
    return m && m->type == Z3D_JSON_STRING ? m->text : NULL;
}

/* "eos_token_id" is an id or a list of some, the first of which is taken; -1: not said. */
static int64_t id_of(const z3d_json *config, const char *key) {
    const z3d_json *m = z3d_json_member(config, key);
    int64_t id;
    if (m && m->type == Z3D_JSON_ARRAY) m = m->first;
    return z3d_json_int(m, &id) ? id : -1;
}

/* By the texts in tokenizer_config.json. */
static z3d_status read_texts(z3d_bpe_tokenizer *t, const z3d_json *root, const z3d_json *config) {
    const z3d_json *add = z3d_json_member(config, "add_bos_token");
    const char *begin = text_of(config, "bos_token"), *end = text_of(config, "eos_token");
    if (end) t->base.end_of_text = (int32_t)z3d_tokenizer_json_id(root, end);
    if (!add || add->type != Z3D_JSON_BOOL) return Z3D_OK;
    if (!add->truth)
        t->base.begin_of_text = -1;
    else if (begin && t->base.begin_of_text < 0)
        t->base.begin_of_text = (int32_t)z3d_tokenizer_json_id(root, begin);
    return Z3D_OK;
}

/* By the ids in the model's files. */
static z3d_status read_ids(z3d_bpe_tokenizer *t, const char *path) {
    static const char *const names[] = {"generation_config.json", "config.json"};
    for (int i = 0; i < 2 && t->base.end_of_text < 0; i++) {
        z3d_json *config;
        Z3D_TRY(read_beside(path, names[i], &config));
        int64_t id = id_of(config, "eos_token_id");
        z3d_json_free(config);
        if (id >= t->vocabulary.size)
            return Z3D_ERROR(Z3D_ERR_DATA,
                             "%s: its eos_token_id is %lld, but the tokenizer %s has ids 0 to %d",
                             names[i], (long long)id, path, t->vocabulary.size - 1);
        t->base.end_of_text = (int32_t)id;
    }
    return Z3D_OK;
}

z3d_status z3d_special_tokens_find(z3d_bpe_tokenizer *t, const z3d_json *root, const char *path) {
    static const char *const usual[] = {Z3D_END_OF_TEXT, "<|end_of_text|>", "</s>"};
    z3d_json *config;
    Z3D_TRY(read_beside(path, "tokenizer_config.json", &config));
    z3d_status status = read_texts(t, root, config);
    z3d_json_free(config);
    if (status == Z3D_OK) status = read_ids(t, path);
    Z3D_TRY(status);
    for (size_t i = 0; i < sizeof usual / sizeof *usual && t->base.end_of_text < 0; i++)
        t->base.end_of_text = (int32_t)z3d_tokenizer_json_id(root, usual[i]);
    if (t->base.end_of_text >= 0) return Z3D_OK;
    return Z3D_ERROR(Z3D_ERR_DATA,
                     "%s: no token that ends a text: expected \"eos_token\" in "
                     "tokenizer_config.json or \"eos_token_id\" in config.json beside it",
                     path);
}
