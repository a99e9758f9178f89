/* Reads Hugging Face's GPT-2: config.json, and which files have the tensors. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/interop.h"

enum { MAX_CONFIG = 1 << 20, MAX_INDEX = 1 << 26, MAX_SHARDS = 4096 };

/* ---- config.json ---- */

static bool is_number(const z3d_json *value, double number) {
    return value->type == Z3D_JSON_NUMBER && strtod(value->text, NULL) == number;
}

static bool is_text(const z3d_json *value, const char *text) {
    return value->type == Z3D_JSON_STRING && strcmp(value->text, text) == 0;
}

/* Whether the model is a GPT-2 at all: before its sizes, whose names differ from type to type. */
static z3d_status check_type(const z3d_json *root) {
    const z3d_json *m = z3d_json_member(root, "model_type");
    char text[Z3D_SHOWN + 1];
    if (root->type != Z3D_JSON_OBJECT)
        return Z3D_ERROR(Z3D_ERR_DATA, "expected a JSON object {...}");
    if (!m || is_text(m, "gpt2")) return Z3D_OK;
    return Z3D_ERROR(Z3D_ERR_UNSUPPORTED, "model_type %s: only gpt2 is supported",
                     z3d_shown(m->type == Z3D_JSON_STRING ? m->text : "(not a string)", text));
}

/* A key whose value would mean another computation than ours. */
static z3d_status refuse_key(const z3d_json *member, const char *supported) {
    static const char *const types[] = {"null", NULL, NULL, NULL, "[...]", "{...}"};
    char text[Z3D_SHOWN + 1];
    const char *value = member->type == Z3D_JSON_BOOL ? member->truth ? "true" : "false"
                        : member->type == Z3D_JSON_NUMBER || member->type == Z3D_JSON_STRING
                            ? z3d_shown(member->text, text)
                            : types[member->type];
    return Z3D_ERROR(Z3D_ERR_UNSUPPORTED, "%s: %s is not supported; only %s is", member->key, value,
                     supported);
}

/* Keys that are missing have GPT-2's value. */
static z3d_status check_kind(const z3d_json *root, int64_t hidden) {
    static const struct {
        const char *key;
        bool wanted;
    } flags[] = {{"scale_attn_weights", true},
                 {"scale_attn_by_inverse_layer_idx", false},
                 {"add_cross_attention", false},
                 {"tie_word_embeddings", true}};
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        const z3d_json *m = z3d_json_member(root, flags[i].key);
        if (m && (m->type != Z3D_JSON_BOOL || m->truth != flags[i].wanted))
            return refuse_key(m, flags[i].wanted ? "true" : "false");
    }
    const z3d_json *m = z3d_json_member(root, "activation_function");
    if (m && !is_text(m, "gelu_new") && !is_text(m, "gelu_pytorch_tanh"))
        return refuse_key(m, "gelu_new");
    m = z3d_json_member(root, "layer_norm_epsilon");
    if (m && !is_number(m, 1e-5)) return refuse_key(m, "1e-5");
    m = z3d_json_member(root, "n_inner");
    if (m && m->type != Z3D_JSON_NULL && !is_number(m, 4 * (double)hidden))
        return refuse_key(m, "null or 4 times n_embd");
    return Z3D_OK;
}

static z3d_status read_sizes(const z3d_json *root, z3d_gpt_config *gpt) {
    Z3D_TRY(check_type(root));
    Z3D_TRY(z3d_json_get_int(root, "n_layer", &gpt->num_layers));
    Z3D_TRY(z3d_json_get_int(root, "n_head", &gpt->num_heads));
    Z3D_TRY(z3d_json_get_int(root, "n_embd", &gpt->hidden_size));
    Z3D_TRY(z3d_json_get_int(root, "n_positions", &gpt->seq_length));
    Z3D_TRY(z3d_json_get_int(root, "vocab_size", &gpt->vocab_size));
    return check_kind(root, gpt->hidden_size);
}

static z3d_status read_config(const char *folder, z3d_gpt_config *gpt) {
    char *path, *text = NULL;
    size_t length;
    z3d_json *root = NULL;
    Z3D_TRY(z3d_io_join(folder, "config.json", &path));
    z3d_status status = z3d_read_file(path, MAX_CONFIG, &text, &length);
    if (status == Z3D_OK) {
        status = z3d_json_parse(text, length, path, &root);
        if (status == Z3D_OK) {
            status = read_sizes(root, gpt);
            if (status != Z3D_OK) z3d_error_context(status, "%s", path);
        }
    }
    z3d_json_free(root);
    free(text);
    free(path);
    return status;
}

/* ---- which files ---- */

static int by_text(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Adds each file that the index names, once. Names are those of files in the folder. */
static z3d_status add_shards(z3d_interop *f, const char *folder, const z3d_json *map) {
    const char **name;
    size_t count = 0;
    char shown[Z3D_SHOWN + 1];
    z3d_status status = Z3D_OK;
    if (map->count == 0) return Z3D_ERROR(Z3D_ERR_DATA, "\"weight_map\" names no tensor");
    Z3D_TRY(z3d_new((size_t)map->count, sizeof *name, "the list of files", &name));
    for (const z3d_json *m = map->first; m && status == Z3D_OK; m = m->next)
        if (m->type != Z3D_JSON_STRING || !*m->text || *m->text == '.' || strchr(m->text, '/'))
            status = Z3D_ERROR(Z3D_ERR_DATA,
                               "\"weight_map\": tensor %s: expected the name of a file in "
                               "this folder",
                               z3d_shown(m->key, shown));
        else
            name[count++] = m->text;
    qsort(name, count, sizeof *name, by_text);
    for (size_t i = 0; i < count && status == Z3D_OK; i++) {
        char *path;
        if (i > 0 && strcmp(name[i], name[i - 1]) == 0) continue;
        status =
            f->num_files == MAX_SHARDS
                ? Z3D_ERROR(Z3D_ERR_DATA, "\"weight_map\" names more than %d files", MAX_SHARDS)
                : z3d_io_join(folder, name[i], &path);
        if (status != Z3D_OK) break;
        status = z3d_interop_add_file(f, path);
        free(path);
    }
    free(name);
    return status;
}

static z3d_status read_index(z3d_interop *f, const char *folder, const char *index) {
    char *text;
    size_t length;
    z3d_json *root = NULL;
    const z3d_json *map;
    Z3D_TRY(z3d_read_file(index, MAX_INDEX, &text, &length));
    z3d_status status = z3d_json_parse(text, length, index, &root);
    if (status == Z3D_OK) {
        status = z3d_json_get(root, "weight_map", Z3D_JSON_OBJECT, &map);
        if (status == Z3D_OK) status = add_shards(f, folder, map);
        if (status != Z3D_OK) z3d_error_context(status, "%s", index);
    }
    z3d_json_free(root);
    free(text);
    return status;
}

/* model.safetensors, or the shards that model.safetensors.index.json names. */
static z3d_status add_files(z3d_interop *f, const char *folder) {
    char *whole = NULL, *index = NULL;
    bool has_whole = false, has_index = false;
    z3d_status status = z3d_io_join(folder, "model.safetensors", &whole);
    if (status == Z3D_OK) status = z3d_io_join(folder, "model.safetensors.index.json", &index);
    if (status == Z3D_OK) status = z3d_io_exists(whole, &has_whole);
    if (status == Z3D_OK) status = z3d_io_exists(index, &has_index);
    if (status == Z3D_OK && has_whole)
        status = z3d_interop_add_file(f, whole);
    else if (status == Z3D_OK && has_index)
        status = read_index(f, folder, index);
    else if (status == Z3D_OK)
        status = Z3D_ERROR(Z3D_ERR_IO,
                           "%s: it has neither model.safetensors nor model.safetensors.index.json "
                           "(PyTorch's .bin files are not read: save the model with "
                           "safe_serialization=True)",
                           folder);
    free(whole);
    free(index);
    return status;
}

z3d_status z3d_huggingface_open(const char *folder, z3d_interop *f) {
    f->conv1d = true;
    Z3D_TRY(read_config(folder, &f->gpt));
    Z3D_TRY(add_files(f, folder));
    Z3D_TRY(z3d_interop_make_model(f));
    return z3d_safetensors_read(f);
}
