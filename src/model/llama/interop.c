/* Llama, Mistral, Qwen2 and Qwen3 in Hugging Face's files: finds which of them a configuration is,
 * and the configuration of each. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/model/interop.h"
#include "src/model/llama/private.h"

enum { DEFAULT_WINDOW = 4096, DEFAULT_WINDOW_LAYERS = 28 };

/* A model_type, and the values that transformers uses for missing keys. */
typedef struct family {
    const char *name, *architecture;
    bool attention_bias, qk_norm;
    enum { NO_WINDOW, WINDOW, OPTIONAL_WINDOW } window;
    int64_t kv_heads, head_dim; /* Z3D_AUTO: computed from the number of heads */
} family;

static const family families[] = {
    {"llama", "LlamaForCausalLM", false, false, NO_WINDOW, Z3D_AUTO, Z3D_AUTO},
    {"mistral", "MistralForCausalLM", false, false, WINDOW, 8, Z3D_AUTO},
    {"qwen2", "Qwen2ForCausalLM", true, false, OPTIONAL_WINDOW, 32, Z3D_AUTO},
    {"qwen3", "Qwen3ForCausalLM", false, true, OPTIONAL_WINDOW, 32, 128}};
enum { FAMILIES = sizeof families / sizeof *families };

/* ---- tensors ---- */

static void view(const char *group, const char *name, int dims, const int64_t *shape,
                 z3d_view *out) {
    const char *model = strcmp(group, "lm_head") == 0 ? "" : "model.";
    *out = (z3d_view){.rows = dims > 1 ? shape[0] : 0, .columns = shape[dims - 1]};
    snprintf(out->name, sizeof out->name, "%s%s.%s", model, group, name);
}

/* Tables of rotary angles, which older versions saved as tensors. */
static bool ignores(const char *name) {
    return z3d_ends_with(name, "rotary_emb.inv_freq");
}

static const int64_t *find_first(const z3d_shapes *shapes, const char *name) {
    int dims;
    return shapes->find(shapes->context, "layers.0", name, &dims);
}

/* The sizes are the tensors' shapes; the numbers of heads come from the configuration. */
static z3d_status read_shapes(const z3d_shapes *shapes, z3d_config *c) {
    int dims;
    char layer[32];
    const int64_t *table = shapes->find(shapes->context, "embed_tokens", "weight", &dims);
    const int64_t *q = find_first(shapes, "self_attn.q_proj.weight");
    const int64_t *k = find_first(shapes, "self_attn.k_proj.weight");
    const int64_t *up = find_first(shapes, "mlp.up_proj.weight");
    if (!table || !q || !k || !up)
        return Z3D_ERROR(Z3D_ERR_DATA,
                         "the checkpoint is not a Llama: it has no embed_tokens/weight, "
                         "layers.0/self_attn.q_proj.weight, layers.0/self_attn.k_proj.weight or "
                         "layers.0/mlp.up_proj.weight");
    c->model_num_layers = 0;
    do {
        snprintf(layer, sizeof layer, "layers.%lld", (long long)++c->model_num_layers);
    } while (shapes->find(shapes->context, layer, "input_layernorm.weight", &dims));
    c->model_vocab_size = table[0];
    c->model_hidden_size = table[1];
    c->model_intermediate_size = up[0];
    c->model_attention_bias = find_first(shapes, "self_attn.q_proj.bias");
    c->model_qk_norm = find_first(shapes, "self_attn.q_norm.weight");
    c->model_tie_word_embeddings = !shapes->find(shapes->context, "lm_head", "weight", &dims);
    z3d_llama_config llama = z3d_llama_config_of(c);
    if (q[0] == llama.num_heads * llama.head_dim &&
        k[0] == llama.num_key_value_heads * llama.head_dim)
        return Z3D_OK;
    return Z3D_ERROR(Z3D_ERR_DATA,
                     "the checkpoint's tensors do not fit its configuration: %lld rows of queries "
                     "and %lld of keys are not %lld and %lld heads of %lld",
                     (long long)q[0], (long long)k[0], (long long)llama.num_heads,
                     (long long)llama.num_key_value_heads, (long long)llama.head_dim);
}

/* ---- config.json: known keys besides z3d_common_keys ---- */

static const z3d_known_keys known_keys[] = {
    {Z3D_KEY_ANY,
     "hidden_size num_hidden_layers num_attention_heads num_key_value_heads head_dim "
     "intermediate_size vocab_size max_position_embeddings rms_norm_eps rope_theta rope_scaling "
     "rope_parameters sliding_window use_sliding_window max_window_layers layer_types "
     "tie_word_embeddings attention_bias attention_dropout pretraining_tp is_llama_config"},
    {Z3D_KEY_SILU, "hidden_act"},
    {Z3D_KEY_FALSE, "mlp_bias rope_interleaved use_mrope"},
    {Z3D_KEY_ONE, "partial_rotary_factor"},
    {Z3D_KEY_ANY, NULL}};

static const z3d_known_keys rope_keys[] = {
    {Z3D_KEY_ANY,
     "rope_type type rope_theta factor original_max_position_embeddings low_freq_factor "
     "high_freq_factor beta_fast beta_slow attention_factor mscale mscale_all_dim finetuned"},
    {Z3D_KEY_ONE, "partial_rotary_factor"},
    {Z3D_KEY_ANY, NULL}};

/* ---- config.json: values ---- */

/* NULL if it is missing or null. */
static const z3d_json *value_of(const z3d_json *object, const char *key) {
    const z3d_json *m = z3d_json_member(object, key);
    return m && m->type != Z3D_JSON_NULL ? m : NULL;
}

typedef struct reader {
    const z3d_json *root;
    z3d_problems *problems;
} reader;

static void read_size(const reader *r, const char *key, int64_t *out) {
    z3d_problems_add(r->problems, z3d_json_get_int(r->root, key, out));
}

static void read_int(const reader *r, const z3d_json *object, const char *key, int64_t standard,
                     int64_t *out) {
    *out = standard;
    if (value_of(object, key)) z3d_problems_add(r->problems, z3d_json_get_int(object, key, out));
}

static void read_float(const reader *r, const z3d_json *object, const char *key, double standard,
                       double *out) {
    *out = standard;
    if (value_of(object, key)) z3d_problems_add(r->problems, z3d_json_get_float(object, key, out));
}

static bool read_bool(const reader *r, const char *key, bool standard) {
    const z3d_json *m = value_of(r->root, key);
    if (m && m->type != Z3D_JSON_BOOL)
        z3d_problems_add(r->problems, z3d_refuse_member(m, "true or false"));
    return m ? m->truth : standard;
}

/* ---- config.json: the window ---- */

static z3d_status refuse_layers(const char *key) {
    return Z3D_ERROR(Z3D_ERR_UNSUPPORTED,
                     "%s: a sliding window in some layers only is not supported; only in all or in "
                     "none is",
                     key);
}

/* *slides: whether the layers in layer_types have a window. */
static z3d_status read_layer_types(const z3d_json *types, bool *slides) {
    bool any = false, all = true;
    if (types->type != Z3D_JSON_ARRAY) return z3d_refuse_member(types, "a list");
    for (const z3d_json *m = types->first; m; m = m->next) {
        bool slide = z3d_json_is_text(m, "sliding_attention");
        if (!slide && !z3d_json_is_text(m, "full_attention"))
            return Z3D_ERROR(
                Z3D_ERR_UNSUPPORTED,
                "layer_types: only full_attention and sliding_attention are supported");
        any |= slide;
        all &= slide;
    }
    *slides = any;
    return any && !all ? refuse_layers("layer_types") : Z3D_OK;
}

/* transformers counts a window's tokens as we do: the newest one included. */
static void read_window(const reader *r, const family *family, z3d_config *c) {
    const z3d_json *window = z3d_json_member(r->root, "sliding_window");
    const z3d_json *types = value_of(r->root, "layer_types");
    bool used = family->window == WINDOW, slides = false;
    int64_t layers;
    read_int(r, r->root, "max_window_layers", DEFAULT_WINDOW_LAYERS, &layers);
    if (family->window == OPTIONAL_WINDOW) used = read_bool(r, "use_sliding_window", false);
    c->model_sliding_window = 0;
    if (family->window == NO_WINDOW && value_of(r->root, "sliding_window"))
        z3d_problems_add(r->problems, z3d_refuse_member(window, "null"));
    if (used && !(window && window->type == Z3D_JSON_NULL))
        read_int(r, r->root, "sliding_window", DEFAULT_WINDOW, &c->model_sliding_window);
    if (types) {
        z3d_problems_add(r->problems, read_layer_types(types, &slides));
        if (slides != (c->model_sliding_window > 0) && family->window != OPTIONAL_WINDOW)
            z3d_problems_add(r->problems, refuse_layers("layer_types"));
        if (!slides) c->model_sliding_window = 0;
    } else if (used && family->window == OPTIONAL_WINDOW) {
        if (layers > 0 && layers < c->model_num_layers)
            z3d_problems_add(r->problems, refuse_layers("max_window_layers"));
        if (layers > 0) c->model_sliding_window = 0;
    }
}

/* ---- config.json: the rotary embedding ---- */

static const char *const rope_types[] = {[Z3D_ROPE_DEFAULT] = "default",
                                         [Z3D_ROPE_LINEAR] = "linear",
                                         [Z3D_ROPE_LLAMA3] = "llama3",
                                         [Z3D_ROPE_YARN] = "yarn"};
enum { ROPE_TYPES = sizeof rope_types / sizeof *rope_types };

static void read_scaling_type(const reader *r, const z3d_json *rope, z3d_config *c) {
    const z3d_json *type = value_of(rope, "rope_type");
    int i = 0;
    if (!type) type = value_of(rope, "type");
    while (type && i < ROPE_TYPES && !z3d_json_is_text(type, rope_types[i])) i++;
    if (i == ROPE_TYPES)
        z3d_problems_add(r->problems, z3d_refuse_member(type, "default, linear, llama3 or yarn"));
    else
        c->model_rope_scaling_rope_type = i;
}

static void read_scaling(const reader *r, const z3d_json *rope, z3d_config *c) {
    static const char original[] = "original_max_position_embeddings";
    read_scaling_type(r, rope, c);
    bool llama3 = c->model_rope_scaling_rope_type == Z3D_ROPE_LLAMA3;
    bool yarn = c->model_rope_scaling_rope_type == Z3D_ROPE_YARN;
    if (c->model_rope_scaling_rope_type != Z3D_ROPE_DEFAULT)
        z3d_problems_add(r->problems,
                         z3d_json_get_float(rope, "factor", &c->model_rope_scaling_factor));
    if (llama3 || yarn)
        read_int(r, rope, original, c->model_seq_length,
                 &c->model_rope_scaling_original_max_position_embeddings);
    if (llama3) {
        read_float(r, rope, "low_freq_factor", 1, &c->model_rope_scaling_low_freq_factor);
        read_float(r, rope, "high_freq_factor", 4, &c->model_rope_scaling_high_freq_factor);
    }
    if (!yarn) return;
    read_float(r, rope, "beta_fast", 32, &c->model_rope_scaling_beta_fast);
    read_float(r, rope, "beta_slow", 1, &c->model_rope_scaling_beta_slow);
    read_float(r, rope, "attention_factor", 0, &c->model_rope_scaling_attention_factor);
    read_float(r, rope, "mscale", 0, &c->model_rope_scaling_mscale);
    read_float(r, rope, "mscale_all_dim", 0, &c->model_rope_scaling_mscale_all_dim);
}

/* Newer versions have all values in rope_parameters; older ones have rope_scaling, and the base in
 * rope_theta. */
static void read_rope(const reader *r, z3d_config *c) {
    const z3d_json *rope = value_of(r->root, "rope_parameters");
    if (rope && value_of(r->root, "rope_scaling"))
        z3d_problems_add(
            r->problems,
            Z3D_ERROR(Z3D_ERR_UNSUPPORTED,
                      "rope_scaling: the file also has rope_parameters; remove one of them"));
    if (!rope) rope = value_of(r->root, "rope_scaling");
    read_float(r, r->root, "rope_theta", 10000, &c->model_rope_theta);
    if (!rope) return;
    if (rope->type != Z3D_JSON_OBJECT) {
        z3d_problems_add(r->problems, z3d_refuse_member(rope, "null or {...}"));
        return;
    }
    read_float(r, rope, "rope_theta", c->model_rope_theta, &c->model_rope_theta);
    z3d_problems inside = {.where = rope->key};
    z3d_check_keys(rope, rope_keys, NULL, &inside);
    read_scaling(&(reader){r->root, &inside}, rope, c);
    z3d_problems_add(r->problems, z3d_problems_end(&inside));
}

/* ---- config.json: all of it ---- */

/* Without head_dim the heads divide hidden_size equally. */
static z3d_status check_heads(const z3d_config *c) {
    const int64_t hidden = c->model_hidden_size, heads = c->model_num_attention_heads;
    if (c->model_head_dim != Z3D_AUTO || heads < 1 || hidden % heads == 0) return Z3D_OK;
    return Z3D_ERROR(Z3D_ERR_DATA, "num_attention_heads: %lld does not divide hidden_size %lld",
                     (long long)heads, (long long)hidden);
}

static void read(const z3d_json *root, z3d_config *c, z3d_problems *problems) {
    const reader r = {root, problems};
    const z3d_json *type = z3d_json_member(root, "model_type");
    const z3d_json *bias = value_of(root, "attention_bias");
    const family *family = families;
    while (!z3d_json_is_text(type, family->name)) family++;
    read_size(&r, "num_hidden_layers", &c->model_num_layers);
    read_size(&r, "hidden_size", &c->model_hidden_size);
    read_size(&r, "num_attention_heads", &c->model_num_attention_heads);
    read_size(&r, "intermediate_size", &c->model_intermediate_size);
    read_size(&r, "max_position_embeddings", &c->model_seq_length);
    c->checkpoint_export_max_position_embeddings = c->model_seq_length;
    read_size(&r, "vocab_size", &c->model_vocab_size);
    read_int(&r, root, "num_key_value_heads",
             z3d_json_member(root, "num_key_value_heads") ? Z3D_AUTO : family->kv_heads,
             &c->model_num_key_value_heads);
    read_int(&r, root, "head_dim", z3d_json_member(root, "head_dim") ? Z3D_AUTO : family->head_dim,
             &c->model_head_dim);
    z3d_problems_add(problems, check_heads(c));
    read_float(&r, root, "rms_norm_eps", 1e-6, &c->model_rms_norm_eps);
    c->model_tie_word_embeddings = read_bool(&r, "tie_word_embeddings", false);
    c->model_attention_bias = family->attention_bias;
    c->model_qk_norm = family->qk_norm;
    /* In Llama and Qwen3 this key means a bias of attention's output too. */
    if (bias && !family->attention_bias)
        z3d_problems_add(problems, z3d_check_key(bias, Z3D_KEY_FALSE));
    read_window(&r, family, c);
    read_rope(&r, c);
    z3d_check_keys(root, known_keys, z3d_common_keys, problems);
}

/* ---- writing config.json ---- */

static const family *family_of(const z3d_llama_config *c) {
    for (int i = 0; i < FAMILIES; i++) {
        const family *f = &families[i];
        bool window = c->sliding_window == 0 || f->window != NO_WINDOW;
        if (f->attention_bias == c->attention_bias && f->qk_norm == c->qk_norm && window) return f;
    }
    return NULL;
}

static void append_int(z3d_string *out, const char *key, int64_t value) {
    z3d_string_append(out, "  \"%s\": %lld,\n", key, (long long)value);
}

/* Writes whole numbers with a fraction (1.0), because readers expect a float. */
static void append_float(z3d_string *out, const char *before, const char *key, double value) {
    z3d_string_append(out, "%s\"%s\": ", before, key);
    if (value == floor(value) && fabs(value) < 1e15)
        z3d_string_append(out, "%.1f", value);
    else
        z3d_string_append_number(out, value);
}

static void append_scaling(const z3d_rope *rope, z3d_string *out) {
    z3d_string_append(out, "  \"rope_scaling\": ");
    if (rope->type == Z3D_ROPE_DEFAULT) {
        z3d_string_append(out, "null,\n");
        return;
    }
    z3d_string_append(out, "{\"rope_type\": \"%s\"", rope_types[rope->type]);
    append_float(out, ", ", "factor", rope->factor);
    if (rope->type != Z3D_ROPE_LINEAR)
        z3d_string_append(out, ", \"original_max_position_embeddings\": %.0f",
                          rope->original_positions);
    if (rope->type == Z3D_ROPE_LLAMA3) {
        append_float(out, ", ", "low_freq_factor", rope->low_freq_factor);
        append_float(out, ", ", "high_freq_factor", rope->high_freq_factor);
    }
    if (rope->type == Z3D_ROPE_YARN) {
        append_float(out, ", ", "beta_fast", rope->beta_fast);
        append_float(out, ", ", "beta_slow", rope->beta_slow);
        if (rope->attention_factor > 0)
            append_float(out, ", ", "attention_factor", rope->attention_factor);
        if (rope->mscale > 0) append_float(out, ", ", "mscale", rope->mscale);
        if (rope->mscale_all_dim > 0)
            append_float(out, ", ", "mscale_all_dim", rope->mscale_all_dim);
    }
    z3d_string_append(out, "},\n");
}

static void append_window(const family *family, const z3d_llama_config *c, z3d_string *out) {
    bool window = c->sliding_window > 0;
    if (family->window == NO_WINDOW) return;
    if (window)
        append_int(out, "sliding_window", c->sliding_window);
    else
        z3d_string_append(out, "  \"sliding_window\": null,\n");
    if (family->window == OPTIONAL_WINDOW) {
        z3d_string_append(out, "  \"use_sliding_window\": %s,\n", window ? "true" : "false");
        append_int(out, "max_window_layers", window ? 0 : c->num_layers);
    }
}

static z3d_status append_config(const z3d_config *config, z3d_string *out) {
    z3d_llama_config c = z3d_llama_config_of(config);
    const family *family = family_of(&c);
    if (!family)
        return Z3D_ERROR(Z3D_ERR_UNSUPPORTED,
                         "no model of Hugging Face has both model.attention_bias (Qwen2) and "
                         "model.qk_norm (Qwen3)");
    z3d_string_append(out, "  \"architectures\": [\"%s\"],\n  \"model_type\": \"%s\",\n",
                      family->architecture, family->name);
    append_int(out, "num_hidden_layers", c.num_layers);
    append_int(out, "hidden_size", c.hidden_size);
    append_int(out, "num_attention_heads", c.num_heads);
    append_int(out, "num_key_value_heads", c.num_key_value_heads);
    append_int(out, "head_dim", c.head_dim);
    append_int(out, "intermediate_size", c.intermediate_size);
    append_int(out, "vocab_size", c.vocab_size);
    append_int(out, "max_position_embeddings", z3d_positions_of(config));
    z3d_string_append(out, "  \"hidden_act\": \"silu\",\n");
    append_float(out, "  ", "rms_norm_eps", c.rms_norm_eps);
    append_float(out, ",\n  ", "rope_theta", c.rope.theta);
    z3d_string_append(out, ",\n");
    append_scaling(&c.rope, out);
    append_window(family, &c, out);
    z3d_string_append(out, "  \"tie_word_embeddings\": %s,\n",
                      c.tie_word_embeddings ? "true" : "false");
    return Z3D_OK;
}

const z3d_model_interop z3d_llama_interop = {
    .title = "Llama",
    .names = (const char *const[]){"llama", "mistral", "qwen2", "qwen3", NULL},
    .prefix = "model.",
    .adapter = "base_model.model.",
    .copy = "lm_head.weight",
    .copied = "embed_tokens.weight",
    .tokenizer = Z3D_TOKENIZER_HUGGINGFACE,
    .end_of_text = -1,
    .ignores = ignores,
    .view = view,
    .read = read,
    .append_config = append_config,
    .read_shapes = read_shapes,
};
