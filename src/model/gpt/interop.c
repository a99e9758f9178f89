/* GPT-2 in Hugging Face's files. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/model/gpt/units.h"

/* ---- names and shapes ---- */

static bool ends_with(const char *text, const char *end) {
    size_t length = strlen(text), wanted = strlen(end);
    return length >= wanted && strcmp(text + length - wanted, end) == 0;
}

/* Output features are attention's first three dimensions of four, else the first. */
static void view(const char *group, const char *name, int dims, const int64_t *shape,
                 z3d_view *out) {
    int outputs = dims == 4 ? 3 : 1;
    *out = (z3d_view){.columns = 1};
    if (strncmp(group, "block.", 6) == 0)
        snprintf(out->name, sizeof out->name, "h.%s.%s", group + 6, name);
    else
        snprintf(out->name, sizeof out->name, "%s.%s", group, name);
    bool matrix = dims > 1 && ends_with(name, "weight");
    if (matrix) out->rows = 1;
    for (int d = 0; d < dims; d++)
        *(matrix && d < outputs ? &out->rows : &out->columns) *= shape[d];
    out->turned = matrix && (strncmp(name, "attn.", 5) == 0 || strncmp(name, "mlp.", 4) == 0);
}

/* Masks that older versions saved. */
static bool ignores(const char *name) {
    return strncmp(name, "h.", 2) == 0 &&
           (ends_with(name, ".attn.bias") || ends_with(name, ".attn.masked_bias"));
}

/* The sizes are the tensors' own; heads are attention's second dimension. */
static z3d_status read_shapes(const z3d_shapes *shapes, z3d_config *config) {
    static const char other[] = "the checkpoint is not a GPT-2: its tensors have other shapes";
    int dims, attention_dims, table_dims;
    char block[32];
    const int64_t *table = shapes->find(shapes->context, "wte", "weight", &table_dims);
    const int64_t *places = shapes->find(shapes->context, "wpe", "weight", &dims);
    const int64_t *attention =
        shapes->find(shapes->context, "block.0", "attn.c_attn.weight", &attention_dims);
    if (!table || !places || !attention)
        return Z3D_ERROR(Z3D_ERR_DATA, "the checkpoint is not a GPT-2: it has no wte/weight, "
                                       "wpe/weight or block.0/attn.c_attn.weight");
    if (attention_dims != 4 || table_dims != 2) return Z3D_ERROR(Z3D_ERR_DATA, "%s", other);
    config->model_num_layers = 0;
    do {
        snprintf(block, sizeof block, "block.%lld", (long long)++config->model_num_layers);
    } while (shapes->find(shapes->context, block, "ln_1.weight", &dims));
    config->model_num_attention_heads = attention[1];
    config->model_hidden_size = table[1];
    config->model_vocab_size = table[0];
    config->model_seq_length = places[0];
    return Z3D_OK;
}

/* ---- config.json ---- */

static bool is_number(const z3d_json *value, double number) {
    return value->type == Z3D_JSON_NUMBER && strtod(value->text, NULL) == number;
}

static bool is_text(const z3d_json *value, const char *text) {
    return value->type == Z3D_JSON_STRING && strcmp(value->text, text) == 0;
}

/* A key whose value would mean a different computation. */
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

static z3d_status read(const z3d_json *root, z3d_config *config) {
    Z3D_TRY(z3d_json_get_int(root, "n_layer", &config->model_num_layers));
    Z3D_TRY(z3d_json_get_int(root, "n_head", &config->model_num_attention_heads));
    Z3D_TRY(z3d_json_get_int(root, "n_embd", &config->model_hidden_size));
    Z3D_TRY(z3d_json_get_int(root, "n_positions", &config->model_seq_length));
    Z3D_TRY(z3d_json_get_int(root, "vocab_size", &config->model_vocab_size));
    return check_kind(root, config->model_hidden_size);
}

static void append_sizes(const z3d_config *c, z3d_string *out) {
    z3d_string_append(out,
                      "  \"n_layer\": %lld,\n  \"n_head\": %lld,\n  \"n_embd\": %lld,\n"
                      "  \"n_positions\": %lld,\n  \"n_ctx\": %lld,\n  \"vocab_size\": %lld,\n"
                      "  \"tie_word_embeddings\": true,\n",
                      (long long)c->model_num_layers, (long long)c->model_num_attention_heads,
                      (long long)c->model_hidden_size, (long long)c->model_seq_length,
                      (long long)c->model_seq_length, (long long)c->model_vocab_size);
}

const z3d_model_interop z3d_gpt_interop = {
    .title = "GPT-2",
    .prefix = "transformer.",
    .copy = "lm_head.weight",
    .copied = "wte.weight",
    .ignores = ignores,
    .view = view,
    .read = read,
    .begin = "  \"architectures\": [\"GPT2LMHeadModel\"],\n  \"model_type\": \"gpt2\",\n"
             "  \"activation_function\": \"gelu_new\",\n  \"layer_norm_epsilon\": 1e-05,\n",
    .append_sizes = append_sizes,
    .read_shapes = read_shapes,
};
