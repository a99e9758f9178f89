/* GPT-2 in Hugging Face's files. */
#include <stdio.h>
#include <string.h>

#include "src/model/gpt/private.h"
#include "src/model/interop.h"

/* ---- names and shapes ---- */

/* Outputs are the first three of four dimensions of attn.c_attn.weight, otherwise the first
 * dimension. */
static void view(const char *group, const char *name, int dims, const int64_t *shape,
                 z3d_view *out) {
    int outputs = dims == 4 ? 3 : 1;
    *out = (z3d_view){.columns = 1};
    if (strncmp(group, "block.", 6) == 0)
        snprintf(out->name, sizeof out->name, "h.%s.%s", group + 6, name);
    else
        snprintf(out->name, sizeof out->name, "%s.%s", group, name);
    bool matrix = dims > 1 && z3d_ends_with(name, "weight");
    if (matrix) out->rows = 1;
    for (int d = 0; d < dims; d++)
        *(matrix && d < outputs ? &out->rows : &out->columns) *= shape[d];
    out->turned = matrix && !strstr(name, ".lora_") &&
                  (strncmp(name, "attn.", 5) == 0 || strncmp(name, "mlp.", 4) == 0);
}

/* Attention masks, which older versions saved as tensors. */
static bool ignores(const char *name) {
    return strncmp(name, "h.", 2) == 0 &&
           (z3d_ends_with(name, ".attn.bias") || z3d_ends_with(name, ".attn.masked_bias"));
}

/* The sizes are the tensors' shapes; the number of heads is dimension 1 of attn.c_attn.weight. */
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

/* Known keys besides z3d_common_keys. check_kind checks the values of some. */
static const z3d_known_keys known_keys[] = {
    {Z3D_KEY_ANY,
     "n_layer n_head n_embd n_positions n_ctx vocab_size n_inner activation_function "
     "layer_norm_epsilon scale_attn_weights scale_attn_by_inverse_layer_idx "
     "reorder_and_upcast_attn tie_word_embeddings attn_pdrop embd_pdrop resid_pdrop n_special "
     "predict_special_tokens summary_activation summary_first_dropout summary_proj_to_labels "
     "summary_type summary_use_proj"},
    {Z3D_KEY_ANY, NULL}};

/* A missing key has GPT-2's value. */
static void check_kind(const z3d_json *root, int64_t hidden, z3d_problems *problems) {
    static const struct {
        const char *key;
        bool wanted;
    } flags[] = {{"scale_attn_weights", true},
                 {"scale_attn_by_inverse_layer_idx", false},
                 {"tie_word_embeddings", true}};
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        const z3d_json *m = z3d_json_member(root, flags[i].key);
        if (m && (m->type != Z3D_JSON_BOOL || m->truth != flags[i].wanted))
            z3d_problems_add(problems, z3d_refuse_member(m, flags[i].wanted ? "true" : "false"));
    }
    const z3d_json *m = z3d_json_member(root, "activation_function");
    if (m && !z3d_json_is_text(m, "gelu_new") && !z3d_json_is_text(m, "gelu_pytorch_tanh"))
        z3d_problems_add(problems, z3d_refuse_member(m, "gelu_new"));
    m = z3d_json_member(root, "layer_norm_epsilon");
    if (m && !z3d_json_is_number(m, 1e-5)) z3d_problems_add(problems, z3d_refuse_member(m, "1e-5"));
    m = z3d_json_member(root, "n_inner");
    if (m && m->type != Z3D_JSON_NULL && !z3d_json_is_number(m, 4 * (double)hidden))
        z3d_problems_add(problems, z3d_refuse_member(m, "null or 4 times n_embd"));
}

static void read(const z3d_json *root, z3d_config *c, z3d_problems *problems) {
    z3d_problems_add(problems, z3d_json_get_int(root, "n_layer", &c->model_num_layers));
    z3d_problems_add(problems, z3d_json_get_int(root, "n_head", &c->model_num_attention_heads));
    z3d_problems_add(problems, z3d_json_get_int(root, "n_embd", &c->model_hidden_size));
    z3d_problems_add(problems, z3d_json_get_int(root, "n_positions", &c->model_seq_length));
    z3d_problems_add(problems, z3d_json_get_int(root, "vocab_size", &c->model_vocab_size));
    check_kind(root, c->model_hidden_size, problems);
    z3d_check_keys(root, known_keys, z3d_common_keys, problems);
}

static z3d_status append_config(const z3d_config *c, z3d_string *out) {
    z3d_string_append(out,
                      "  \"architectures\": [\"GPT2LMHeadModel\"],\n  \"model_type\": \"gpt2\",\n"
                      "  \"activation_function\": \"gelu_new\",\n"
                      "  \"layer_norm_epsilon\": 1e-05,\n"
                      "  \"n_layer\": %lld,\n  \"n_head\": %lld,\n  \"n_embd\": %lld,\n"
                      "  \"n_positions\": %lld,\n  \"n_ctx\": %lld,\n  \"vocab_size\": %lld,\n"
                      "  \"tie_word_embeddings\": true,\n",
                      (long long)c->model_num_layers, (long long)c->model_num_attention_heads,
                      (long long)c->model_hidden_size, (long long)c->model_seq_length,
                      (long long)c->model_seq_length, (long long)c->model_vocab_size);
    return Z3D_OK;
}

const z3d_model_interop z3d_gpt_interop = {
    .title = "GPT-2",
    .names = (const char *const[]){"gpt2", NULL},
    .prefix = "transformer.",
    .adapter = "base_model.model.transformer.",
    .copy = "lm_head.weight",
    .copied = "wte.weight",
    .tokenizer = Z3D_TOKENIZER_GPT2,
    .end_of_text = 50256,
    .ignores = ignores,
    .view = view,
    .read = read,
    .append_config = append_config,
    .read_shapes = read_shapes,
};
