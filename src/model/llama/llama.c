/* Describes Llama: its parameter groups, units and facts. block.c has the functions of its blocks.
 */
#include <stdio.h>
#include <stdlib.h>

#include "src/model/limits.h"
#include "src/model/llama/units.h"

static z3d_status check(const z3d_llama_config *config) {
    z3d_refusal refusal = {"Llama", false};
    z3d_config_judge judge = z3d_refusal_judge(&refusal);
    z3d_llama_check(config, &judge);
    return refusal.any ? Z3D_ERR_CONFIG : Z3D_OK;
}

/* ---- parameter groups ---- */

static z3d_parameter *last_of(z3d_parameter_group *group) {
    return &group->parameter[group->num_parameters - 1];
}

/* Keys and values are split like queries, or every tensor rank has all of them. */
static void describe_kv(z3d_parameter_group *group, const z3d_llama *llama, bool bias) {
    static const char *const names[2][2] = {{"self_attn.k_proj.weight", "self_attn.v_proj.weight"},
                                            {"self_attn.k_proj.bias", "self_attn.v_proj.bias"}};
    const z3d_llama_config *c = &llama->config;
    int64_t rows = c->num_key_value_heads * c->head_dim;
    int split = llama->shares_kv ? -1 : 0;
    for (int i = 0; i < 2; i++) {
        if (bias)
            z3d_add_vector(group, names[1][i], split, Z3D_INIT_ZEROS, rows);
        else
            z3d_add_matrix(group, names[0][i], split, c->init_std, rows, c->hidden_size);
        last_of(group)->partial_gradient = llama->shares_kv;
        last_of(group)->joined =
            true; /* one product with the queries, unless ranks share key/value heads */
    }
}

static void describe_mlp(z3d_parameter_group *group, const z3d_llama *llama) {
    const z3d_llama_config *c = &llama->config;
    const int64_t h = c->hidden_size, inner = c->intermediate_size;
    z3d_add_matrix(group, "mlp.gate_proj.weight", 0, c->init_std, inner, h);
    z3d_add_matrix(group, "mlp.up_proj.weight", 0, c->init_std, inner, h)->joined = true;
    z3d_add_matrix(group, "mlp.down_proj.weight", 1, z3d_residual_std(&llama->shape), h, inner);
}

/* In the order of llama_parameter; without the MLP if it is tiled. */
static void describe_block_group(z3d_parameter_group *group, const z3d_llama *llama) {
    const z3d_llama_config *c = &llama->config;
    int64_t h = c->hidden_size, q = c->num_heads * c->head_dim;
    double std = c->init_std, residual_std = z3d_residual_std(&llama->shape);
    z3d_add_vector(group, "input_layernorm.weight", -1, Z3D_INIT_ONES, h);
    z3d_add_matrix(group, "self_attn.q_proj.weight", 0, std, q, h);
    describe_kv(group, llama, false);
    z3d_add_matrix(group, "self_attn.o_proj.weight", 1, residual_std, h, q);
    z3d_add_vector(group, "post_attention_layernorm.weight", -1, Z3D_INIT_ONES, h);
    if (llama->shape.tiling == 1) describe_mlp(group, llama);
    if (c->attention_bias) {
        z3d_add_vector(group, "self_attn.q_proj.bias", 0, Z3D_INIT_ZEROS, q);
        describe_kv(group, llama, true);
    }
    if (!c->qk_norm) return;
    /* The gradient is partial: a tensor rank sees only its own heads. */
    z3d_add_vector(group, "self_attn.q_norm.weight", -1, Z3D_INIT_ONES, c->head_dim);
    last_of(group)->partial_gradient = true;
    z3d_add_vector(group, "self_attn.k_norm.weight", -1, Z3D_INIT_ONES, c->head_dim);
    last_of(group)->partial_gradient = true;
}

const z3d_lora_module z3d_llama_modules[] = {
    {"self_attn.q_proj", 1, true}, {"self_attn.k_proj", 1, false},
    {"self_attn.v_proj", 1, true}, {"self_attn.o_proj", 1, false},
    {"mlp.gate_proj", 1, false},   {"mlp.up_proj", 1, false},
    {"mlp.down_proj", 1, false},   {NULL, 0, false}};

/* One group; with tiling one group for the attention and one for each tile. */
static void describe_block(z3d_parameter_group *group, const z3d_llama *llama, int index) {
    const int tiles = llama->shape.tiling;
    snprintf(group->name, sizeof group->name, "layers.%d", index);
    describe_block_group(group, llama);
    for (int t = 0; t < tiles && tiles > 1; t++) {
        describe_mlp(&group[1 + t], llama);
        z3d_cut_tile(&group[1 + t], group->name, &llama->shape, t);
    }
    z3d_add_adapters(group, &llama->shape.lora, z3d_llama_modules);
}

static void find_places(z3d_llama *llama) {
    int next = 0;
    const bool tiled = llama->shape.tiling > 1;
    for (int p = 0; p < LLAMA_BLOCK_PARAMETERS; p++) {
        bool bias = p >= LLAMA_Q_BIAS && p <= LLAMA_V_BIAS, norm = p >= LLAMA_Q_NORM;
        bool mlp = p >= LLAMA_GATE && p <= LLAMA_DOWN;
        bool has = (!bias || llama->config.attention_bias) && (!norm || llama->config.qk_norm) &&
                   (!mlp || !tiled);
        llama->place[p] = has ? next++ : -1;
    }
}

static int norm_group(const z3d_llama *llama) {
    return 1 + (int)llama->config.num_layers * z3d_block_units(&llama->shape);
}

static int head_table(const z3d_llama *llama) {
    return llama->config.tie_word_embeddings ? 0 : norm_group(llama) + 1;
}

static void describe_groups(z3d_model *model, const z3d_llama *llama) {
    const z3d_llama_config *c = &llama->config;
    z3d_parameter_group *norm = &model->group[norm_group(llama)];
    z3d_add_token_table(model->group, "embed_tokens", &llama->shape);
    for (int i = 0; i < (int)c->num_layers; i++)
        describe_block(&model->group[1 + i * z3d_block_units(&llama->shape)], llama, i);
    snprintf(norm->name, sizeof norm->name, "norm");
    z3d_add_vector(norm, "weight", -1, Z3D_INIT_ONES, c->hidden_size);
    if (!c->tie_word_embeddings)
        z3d_add_token_table(&model->group[head_table(llama)], "lm_head", &llama->shape);
}

/* ---- the model ---- */

static z3d_transformer shape_of(const z3d_llama_config *c) {
    const int tiling = c->tiling > 1 ? (int)c->tiling : 1;
    return (z3d_transformer){.num_layers = c->num_layers,
                             .hidden_size = c->hidden_size,
                             .seq_length = c->seq_length,
                             .vocab_size = c->vocab_size,
                             .padded_vocab =
                                 z3d_padded_vocab(c->vocab_size, c->vocab_multiple, c->tensor_size),
                             .init_std = c->init_std,
                             .tensor_size = c->tensor_size,
                             .sequence_parallel = c->sequence_parallel,
                             .gated_mlp = true,
                             .tiling = tiling,
                             .mlp_inner = c->intermediate_size / c->tensor_size / tiling,
                             .norm = Z3D_NORM_RMS,
                             .epsilon = (float)c->rms_norm_eps,
                             .lora = c->lora};
}

static void fill_in(z3d_llama *llama, const z3d_llama_config *c) {
    llama->shape = shape_of(c);
    llama->config = *c;
    llama->shares_kv = c->tensor_size > c->num_key_value_heads;
    llama->local_heads = c->num_heads / c->tensor_size;
    llama->local_kv_heads = llama->shares_kv ? 1 : c->num_key_value_heads / c->tensor_size;
    find_places(llama);
}

static void destroy(z3d_model *model) {
    free(model->data);
}

z3d_status z3d_llama_create(const z3d_llama_config *config, z3d_model **out) {
    *out = NULL;
    Z3D_TRY(check(config));
    z3d_model *model = NULL;
    z3d_llama *llama = NULL;
    Z3D_TRY(z3d_new(1, sizeof *llama, "Llama's description", &llama));
    fill_in(llama, config);
    int norm = norm_group(llama), groups = norm + (config->tie_word_embeddings ? 1 : 2);
    const int room = LLAMA_BLOCK_PARAMETERS + z3d_count_adapter_parameters(z3d_llama_modules);
    z3d_status status = z3d_model_create(groups, room, norm + 1, &model);
    if (status != Z3D_OK) {
        free(llama);
        return status;
    }
    model->data = llama;
    model->destroy = destroy;
    describe_groups(model, llama);
    z3d_find_adapters(&model->group[1], z3d_llama_modules, llama->shape.adapter);
    z3d_describe_units(
        model, &llama->shape,
        &(z3d_transformer_units){.block = "layers",
                                 .block_ops = &z3d_llama_block_ops,
                                 .cache_columns = 2 * llama->local_kv_heads * config->head_dim,
                                 .embedding = {0},
                                 .first_block = 1,
                                 .table = head_table(llama),
                                 .norm = norm_group(llama),
                                 .packed = config->packed,
                                 .type = "Llama",
                                 .flops = z3d_llama_flops(config)});
    snprintf(model->facts.shape, sizeof model->facts.shape,
             "%lld layers, hidden %lld, %lld heads, %lld key/value heads",
             (long long)config->num_layers, (long long)config->hidden_size,
             (long long)config->num_heads, (long long)config->num_key_value_heads);
    *out = model;
    return Z3D_OK;
}
