/* Describes Llama: its parameter groups, units and facts. src/model/block.c has the functions of
 * its blocks. */
#include <stdio.h>

#include "src/model/limits.h"
#include "src/model/llama/private.h"

/* ---- parameter groups ---- */

/* Keys and values are split like queries, or every tensor rank has all of them. */
static void describe_kv(z3d_parameter_group *group, const z3d_llama_config *c, bool shared,
                        bool bias) {
    static const char *const names[2][2] = {{"self_attn.k_proj.weight", "self_attn.v_proj.weight"},
                                            {"self_attn.k_proj.bias", "self_attn.v_proj.bias"}};
    int64_t rows = c->num_key_value_heads * c->head_dim;
    int split = shared ? -1 : 0;
    for (int i = 0; i < 2; i++) {
        z3d_parameter *p =
            bias ? z3d_add_vector(group, names[1][i], split, Z3D_INIT_ZEROS, rows)
                 : z3d_add_matrix(group, names[0][i], split, c->init_std, rows, c->hidden_size);
        p->partial_gradient = shared;
        p->joined = true; /* one product with the queries, unless ranks share key/value heads */
    }
}

static void describe_mlp(z3d_parameter_group *group, const z3d_llama_config *c,
                         const z3d_transformer *shape) {
    const int64_t h = c->hidden_size, inner = c->intermediate_size;
    z3d_add_matrix(group, "mlp.gate_proj.weight", 0, c->init_std, inner, h);
    z3d_add_matrix(group, "mlp.up_proj.weight", 0, c->init_std, inner, h)->joined = true;
    z3d_add_matrix(group, "mlp.down_proj.weight", 1, z3d_residual_std(shape), h, inner);
}

/* In the order of z3d_block_place, which find_places follows; without the MLP if it is tiled. */
static void describe_block_group(z3d_parameter_group *group, const z3d_llama_config *c,
                                 const z3d_transformer *shape) {
    int64_t h = c->hidden_size, q = c->num_heads * c->head_dim;
    double std = c->init_std, residual_std = z3d_residual_std(shape);
    z3d_add_vector(group, "input_layernorm.weight", -1, Z3D_INIT_ONES, h);
    z3d_add_matrix(group, "self_attn.q_proj.weight", 0, std, q, h);
    describe_kv(group, c, shape->shares_kv, false);
    z3d_add_matrix(group, "self_attn.o_proj.weight", 1, residual_std, h, q);
    z3d_add_vector(group, "post_attention_layernorm.weight", -1, Z3D_INIT_ONES, h);
    if (shape->tiling == 1) describe_mlp(group, c, shape);
    if (c->attention_bias) {
        z3d_add_vector(group, "self_attn.q_proj.bias", 0, Z3D_INIT_ZEROS, q);
        describe_kv(group, c, shape->shares_kv, true);
    }
    if (!c->qk_norm) return;
    /* The gradient is partial: a tensor rank sees only its own heads. */
    static const char *const norms[] = {"self_attn.q_norm.weight", "self_attn.k_norm.weight"};
    for (int i = 0; i < 2; i++)
        z3d_add_vector(group, norms[i], -1, Z3D_INIT_ONES, c->head_dim)->partial_gradient = true;
}

const z3d_lora_module z3d_llama_modules[] = {
    {"self_attn.q_proj", 1, true}, {"self_attn.k_proj", 1, false},
    {"self_attn.v_proj", 1, true}, {"self_attn.o_proj", 1, false},
    {"mlp.gate_proj", 1, false},   {"mlp.up_proj", 1, false},
    {"mlp.down_proj", 1, false},   {NULL, 0, false}};

/* One group; with tiling one group for the attention and one for each tile. */
static void describe_block(z3d_parameter_group *group, const z3d_llama_config *c,
                           const z3d_transformer *shape, int index) {
    const int tiles = shape->tiling;
    snprintf(group->name, sizeof group->name, "layers.%d", index);
    describe_block_group(group, c, shape);
    for (int t = 0; t < tiles && tiles > 1; t++) {
        describe_mlp(&group[1 + t], c, shape);
        z3d_cut_tile(&group[1 + t], group->name, shape, t);
    }
    z3d_add_adapters(group, &shape->lora, z3d_llama_modules);
}

/* Indices of the groups of the final norm and of the head's table. */
static int norm_group(const z3d_transformer *shape) {
    return 1 + (int)shape->num_layers * z3d_block_units(shape);
}

static int head_table(const z3d_llama_config *c, const z3d_transformer *shape) {
    return c->tie_word_embeddings ? 0 : norm_group(shape) + 1;
}

static void describe_groups(z3d_model *model, const z3d_llama_config *c,
                            const z3d_transformer *shape) {
    z3d_parameter_group *norm = &model->group[norm_group(shape)];
    z3d_add_token_table(model->group, "embed_tokens", shape);
    for (int i = 0; i < (int)c->num_layers; i++)
        describe_block(&model->group[1 + i * z3d_block_units(shape)], c, shape, i);
    snprintf(norm->name, sizeof norm->name, "norm");
    z3d_add_vector(norm, "weight", -1, Z3D_INIT_ONES, c->hidden_size);
    if (!c->tie_word_embeddings)
        z3d_add_token_table(&model->group[head_table(c, shape)], "lm_head", shape);
}

/* ---- the model ---- */

/* Each place is one parameter, but the MLP has three; there is no bias of the projection. */
enum { MLP_PARAMETERS = 3, BLOCK_PARAMETERS = Z3D_PLACES - 2 + MLP_PARAMETERS };
_Static_assert((int)BLOCK_PARAMETERS <= (int)Z3D_LORA_PLACES, "each has a place");

/* The biases and the norms of queries and keys, which some models lack, are the last parameters. */
static void find_places(const z3d_llama_config *c, z3d_transformer *shape) {
    int *const place = shape->place, next = 0;
    for (int p = 0; p < Z3D_PLACES; p++) place[p] = -1;
    for (int p = Z3D_PLACE_NORM_1; p <= Z3D_PLACE_MLP; p++) place[p] = next++;
    next = place[Z3D_PLACE_MLP] + (shape->tiling > 1 ? 0 : MLP_PARAMETERS);
    for (int p = Z3D_PLACE_Q_BIAS; p <= Z3D_PLACE_V_BIAS && c->attention_bias; p++)
        place[p] = next++;
    for (int p = Z3D_PLACE_Q_NORM; p <= Z3D_PLACE_K_NORM && c->qk_norm; p++) place[p] = next++;
}

static z3d_transformer shape_of(const z3d_llama_config *c) {
    const int tiling = c->tiling > 1 ? (int)c->tiling : 1;
    const bool shared = c->tensor_size > c->num_key_value_heads;
    z3d_transformer shape = {.num_layers = c->num_layers,
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
                             .head_dim = c->head_dim,
                             .kv_heads = c->num_key_value_heads,
                             .local_heads = c->num_heads / c->tensor_size,
                             .local_kv_heads = shared ? 1 : c->num_key_value_heads / c->tensor_size,
                             .shares_kv = shared,
                             .rotary = true,
                             .qk_norm = c->qk_norm,
                             .workspace_heads = true,
                             .rope = c->rope,
                             .sliding_window = c->sliding_window,
                             .attention_dropout = c->attention_dropout,
                             .lora = c->lora};
    find_places(c, &shape);
    return shape;
}

/* FLOPs per token, counted as for GPT (src/model/gpt/gpt.c): all products, and attention without
 * its causal half, but only inside its window. */
static z3d_model_flops flops_of(const z3d_llama_config *c) {
    double l = (double)c->num_layers, h = (double)c->hidden_size, v = (double)c->vocab_size;
    double q = (double)(c->num_heads * c->head_dim),
           kv = (double)(c->num_key_value_heads * c->head_dim);
    double inner = (double)c->intermediate_size, seen = (double)c->seq_length;
    if (c->sliding_window > 0 && c->sliding_window < c->seq_length)
        seen = (double)c->sliding_window;
    /* Backward is twice forward; recompute repeats the blocks once, the logits never. Only a
     * block's output needs its last matrix, down_proj. */
    double attention = 4 * seen * q, down = 2 * inner * h;
    double block = 2 * h * (2 * q + 2 * kv) + 3 * down + attention;
    return (z3d_model_flops){.step = l * block * 3 + 6 * v * h,
                             .recomputed_step = l * block * 4 + 6 * v * h,
                             .replay = block - down,
                             .replay_with_output = block,
                             .attention = attention};
}

z3d_status z3d_llama_create(const z3d_llama_config *config, z3d_model **out) {
    *out = NULL;
    z3d_refusal refusal = {"Llama", false};
    const z3d_config_judge judge = z3d_refusal_judge(&refusal);
    z3d_llama_check(config, &judge);
    if (refusal.any) return Z3D_ERR_CONFIG;
    const z3d_transformer shape = shape_of(config);
    const int groups = norm_group(&shape) + (config->tie_word_embeddings ? 1 : 2);
    const int room = BLOCK_PARAMETERS + z3d_count_adapter_parameters(z3d_llama_modules);
    z3d_transformer *own;
    z3d_model *model;
    Z3D_TRY(z3d_transformer_create(&shape, groups, room, &own, &model));
    describe_groups(model, config, own);
    z3d_find_adapters(&model->group[1], z3d_llama_modules, own->adapter);
    z3d_describe_units(
        model, own,
        &(z3d_transformer_units){.block = "layers",
                                 .block_ops = &z3d_block_ops,
                                 .cache_columns = 2 * own->local_kv_heads * own->head_dim,
                                 .first_block = 1,
                                 .table = head_table(config, own),
                                 .norm = norm_group(own),
                                 .packed = config->packed,
                                 .type = "Llama",
                                 .flops = flops_of(config)});
    snprintf(model->facts.shape, sizeof model->facts.shape,
             "%lld layers, hidden %lld, %lld heads, %lld key/value heads",
             (long long)config->num_layers, (long long)config->hidden_size,
             (long long)config->num_heads, (long long)config->num_key_value_heads);
    *out = model;
    return Z3D_OK;
}
