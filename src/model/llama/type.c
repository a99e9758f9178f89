/* Llama's entry in the registry: reads its section of the configuration. */
#include "src/model/limits.h"
#include "src/model/llama/private.h"

static int64_t or_auto(int64_t value, int64_t standard) {
    return value == Z3D_AUTO ? standard : value;
}

z3d_llama_config z3d_llama_config_of(const z3d_config *c) {
    const int64_t hidden = c->model_hidden_size, heads = c->model_num_attention_heads;
    const int64_t kv_heads = or_auto(c->model_num_key_value_heads, heads);
    const int64_t head_dim = or_auto(c->model_head_dim, hidden / heads);
    const int64_t inner = or_auto(c->model_intermediate_size, 4 * hidden);
    return (z3d_llama_config){
        .num_layers = c->model_num_layers,
        .hidden_size = hidden,
        .num_heads = heads,
        .num_key_value_heads = kv_heads,
        .head_dim = head_dim,
        .intermediate_size = inner,
        .tiling =
            z3d_tiling_of(c, 2 * (heads + kv_heads) * head_dim * hidden, 3 * inner * hidden, inner),
        .seq_length = c->model_seq_length,
        .packed = c->data_samples == Z3D_SAMPLES_DOCUMENTS,
        .vocab_size = c->model_vocab_size,
        .vocab_multiple = c->model_make_vocab_size_divisible_by,
        .sliding_window = c->model_sliding_window,
        .attention_dropout = c->model_attention_dropout,
        .init_std = c->model_init_method_std,
        .rms_norm_eps = c->model_rms_norm_eps,
        .rope = {.type = (z3d_rope_type)c->model_rope_scaling_rope_type,
                 .theta = c->model_rope_theta,
                 .factor = c->model_rope_scaling_factor,
                 .original_positions =
                     (double)or_auto(c->model_rope_scaling_original_max_position_embeddings, 0),
                 .low_freq_factor = c->model_rope_scaling_low_freq_factor,
                 .high_freq_factor = c->model_rope_scaling_high_freq_factor,
                 .beta_fast = c->model_rope_scaling_beta_fast,
                 .beta_slow = c->model_rope_scaling_beta_slow,
                 .mscale = c->model_rope_scaling_mscale,
                 .mscale_all_dim = c->model_rope_scaling_mscale_all_dim,
                 .attention_factor = c->model_rope_scaling_attention_factor},
        .attention_bias = c->model_attention_bias,
        .qk_norm = c->model_qk_norm,
        .tie_word_embeddings = c->model_tie_word_embeddings,
        .tensor_size = (int)c->parallel_tensor_model_parallel_size,
        .sequence_parallel = c->parallel_sequence_parallel,
        .lora = z3d_lora_of(c, z3d_llama_modules)};
}

/* Reports keys of model.rope_scaling that this type of scaling does not read. */
static void check_scaling(const z3d_config *config, const z3d_config_judge *judge) {
    enum {
        LINEAR = 1 << Z3D_ROPE_LINEAR,
        LLAMA3 = 1 << Z3D_ROPE_LLAMA3,
        YARN = 1 << Z3D_ROPE_YARN
    };
    static const struct {
        const char *key;
        unsigned readers;
    } keys[] = {{"model.rope_scaling.factor", LINEAR | LLAMA3 | YARN},
                {"model.rope_scaling.original_max_position_embeddings", LLAMA3 | YARN},
                {"model.rope_scaling.low_freq_factor", LLAMA3},
                {"model.rope_scaling.high_freq_factor", LLAMA3},
                {"model.rope_scaling.beta_fast", YARN},
                {"model.rope_scaling.beta_slow", YARN},
                {"model.rope_scaling.attention_factor", YARN},
                {"model.rope_scaling.mscale", YARN},
                {"model.rope_scaling.mscale_all_dim", YARN}};
    static const char *const because[] = {"with rope_type default", "with rope_type linear",
                                          "with rope_type llama3", "with rope_type yarn"};
    int type = config->model_rope_scaling_rope_type;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (!(keys[i].readers >> type & 1))
            judge->idle(judge->context, keys[i].key, "model.rope_scaling.rope_type", because[type]);
    if (type == Z3D_ROPE_YARN &&
        (config->model_rope_scaling_mscale > 0) != (config->model_rope_scaling_mscale_all_dim > 0))
        z3d_limits_complain(judge, "model.rope_scaling.mscale",
                            "it has an effect only with mscale_all_dim; set both or neither");
}

static void check(const z3d_config *config, const z3d_config_judge *judge) {
    z3d_llama_config llama = z3d_llama_config_of(config);
    if (config->model_head_dim == Z3D_AUTO)
        z3d_limits_divisor(judge, "model.num_attention_heads", llama.num_heads, llama.hidden_size,
                           "model.hidden_size");
    check_scaling(config, judge);
    z3d_llama_check(&llama, judge);
    z3d_lora_check(config, z3d_llama_modules, llama.tie_word_embeddings, judge);
}

static void sizes(const z3d_config *config, z3d_model_sizes *out) {
    z3d_llama_config llama = z3d_llama_config_of(config);
    int64_t inner = 2 * llama.intermediate_size,
            vocab = z3d_padded_vocab(llama.vocab_size, llama.vocab_multiple, llama.tensor_size);
    int64_t qkv = (llama.num_heads + 2 * llama.num_key_value_heads) * llama.head_dim;
    int64_t width = inner > vocab ? inner : vocab;
    *out = (z3d_model_sizes){.width = width > qkv ? width : qkv,
                             .tensor_limit = llama.num_heads,
                             .units = llama.num_layers * z3d_tiled_units(llama.tiling) + 2,
                             .parameters = z3d_llama_parameters(&llama)};
}

static z3d_status create(const z3d_config *config, z3d_model **out) {
    z3d_llama_config llama = z3d_llama_config_of(config);
    return z3d_llama_create(&llama, out);
}

const z3d_model_type z3d_llama_type = {
    .name = "llama",
    .keys = (const char *const[]){"model.num_key_value_heads",
                                  "model.head_dim",
                                  "model.intermediate_size",
                                  "model.rms_norm_eps",
                                  "model.rope_theta",
                                  "model.rope_scaling.rope_type",
                                  "model.rope_scaling.factor",
                                  "model.rope_scaling.original_max_position_embeddings",
                                  "model.rope_scaling.low_freq_factor",
                                  "model.rope_scaling.high_freq_factor",
                                  "model.rope_scaling.beta_fast",
                                  "model.rope_scaling.beta_slow",
                                  "model.rope_scaling.attention_factor",
                                  "model.rope_scaling.mscale",
                                  "model.rope_scaling.mscale_all_dim",
                                  "model.sliding_window",
                                  "model.attention_bias",
                                  "model.qk_norm",
                                  "model.tie_word_embeddings",
                                  NULL},
    .check = check,
    .sizes = sizes,
    .create = create,
    .interop = &z3d_llama_interop};
