/* Describes GPT-2: its parameter groups, units and facts. src/model/block.c has the functions of
 * its blocks. */
#include "src/model/gpt/private.h"
#include "src/model/limits.h"

#include <stdio.h>

static void add_layernorm(z3d_parameter_group *group, const char *name, int64_t hidden) {
    char full[Z3D_NAME];
    snprintf(full, sizeof full, "%sweight", name);
    z3d_add_vector(group, full, -1, Z3D_INIT_ONES, hidden);
    snprintf(full, sizeof full, "%sbias", name);
    z3d_add_vector(group, full, -1, Z3D_INIT_ZEROS, hidden);
}

/* A block's parameters, in the order of its group without tiling. */
enum {
    LN_1,
    LN_1_BIAS,
    ATTN,
    ATTN_BIAS,
    ATTN_PROJ,
    ATTN_PROJ_BIAS,
    LN_2,
    LN_2_BIAS,
    MLP,
    MLP_BIAS,
    MLP_PROJ,
    MLP_PROJ_BIAS,
    BLOCK_PARAMETERS
};
_Static_assert((int)BLOCK_PARAMETERS <= (int)Z3D_LORA_PLACES, "each has a place");

static void describe_attention(z3d_parameter_group *group, const z3d_transformer *shape) {
    int64_t h = shape->hidden_size, heads = shape->kv_heads, d = shape->head_dim;
    double std = shape->init_std, residual_std = z3d_residual_std(shape);
    z3d_parameter *p;

    add_layernorm(group, "ln_1.", h);
    p = z3d_add_parameter(group, "attn.c_attn.weight", 1, Z3D_INIT_NORMAL, std);
    p->dims = 4;
    p->shape[0] = 3, p->shape[1] = heads, p->shape[2] = d, p->shape[3] = h;
    p = z3d_add_parameter(group, "attn.c_attn.bias", 1, Z3D_INIT_ZEROS, 0);
    p->dims = 3;
    p->shape[0] = 3, p->shape[1] = heads, p->shape[2] = d;
    p = z3d_add_parameter(group, "attn.c_proj.weight", 1, Z3D_INIT_NORMAL, residual_std);
    p->dims = 3;
    p->shape[0] = h, p->shape[1] = heads, p->shape[2] = d;
    z3d_add_vector(group, "attn.c_proj.bias", -1, Z3D_INIT_ZEROS, h);
    add_layernorm(group, "ln_2.", h);
}

static void describe_mlp(z3d_parameter_group *group, const z3d_transformer *shape, bool last_tile) {
    const int64_t h = shape->hidden_size;
    z3d_add_matrix(group, "mlp.c_fc.weight", 0, shape->init_std, 4 * h, h);
    z3d_add_vector(group, "mlp.c_fc.bias", 0, Z3D_INIT_ZEROS, 4 * h);
    z3d_add_matrix(group, "mlp.c_proj.weight", 1, z3d_residual_std(shape), h, 4 * h);
    if (last_tile) z3d_add_vector(group, "mlp.c_proj.bias", -1, Z3D_INIT_ZEROS, h);
}

const z3d_lora_module z3d_gpt_modules[] = {{"attn.c_attn", 3, true},
                                           {"attn.c_proj", 1, false},
                                           {"mlp.c_fc", 1, false},
                                           {"mlp.c_proj", 1, false},
                                           {NULL, 0, false}};

/* One group; with tiling one group for the attention and one for each tile. */
static void describe_block(z3d_parameter_group *group, const z3d_transformer *shape, int index) {
    const int tiles = shape->tiling;
    snprintf(group->name, sizeof group->name, "block.%d", index);
    describe_attention(group, shape);
    if (tiles == 1) describe_mlp(group, shape, true);
    for (int t = 0; t < tiles && tiles > 1; t++) {
        describe_mlp(&group[1 + t], shape, t == tiles - 1);
        z3d_cut_tile(&group[1 + t], group->name, shape, t);
    }
    z3d_add_adapters(group, &shape->lora, z3d_gpt_modules);
}

/* Indices of the parameter groups; the final norm's group follows the blocks' groups. */
enum { WTE, WPE, FIRST_BLOCK };

static void describe_groups(z3d_model *model, const z3d_transformer *shape) {
    z3d_parameter_group *group = model->group;
    z3d_add_token_table(group++, "wte", shape);
    snprintf(group->name, sizeof group->name, "wpe");
    z3d_add_matrix(group, "weight", -1, shape->init_std, shape->seq_length, shape->hidden_size);
    group++;
    for (int i = 0; i < (int)shape->num_layers; i++, group += z3d_block_units(shape))
        describe_block(group, shape, i);
    snprintf(group->name, sizeof group->name, "ln_f");
    add_layernorm(group, "", shape->hidden_size);
}

static z3d_transformer shape_of(const z3d_gpt_config *c) {
    const int tiling = c->tiling > 1 ? (int)c->tiling : 1;
    const int64_t heads = c->num_heads, local = heads / c->tensor_size;
    return (z3d_transformer){.num_layers = c->num_layers,
                             .hidden_size = c->hidden_size,
                             .seq_length = c->seq_length,
                             .vocab_size = c->vocab_size,
                             .padded_vocab =
                                 z3d_padded_vocab(c->vocab_size, c->vocab_multiple, c->tensor_size),
                             .hidden_dropout = c->hidden_dropout,
                             .init_std = c->init_std,
                             .tensor_size = c->tensor_size,
                             .sequence_parallel = c->sequence_parallel,
                             .learned_positions = true,
                             .tiling = tiling,
                             .mlp_inner = 4 * c->hidden_size / c->tensor_size / tiling,
                             .norm = Z3D_NORM_LAYER,
                             .epsilon = 1e-5f,
                             .place = {[Z3D_PLACE_NORM_1] = LN_1,
                                       [Z3D_PLACE_Q] = ATTN,
                                       [Z3D_PLACE_K] = -1,
                                       [Z3D_PLACE_V] = -1,
                                       [Z3D_PLACE_PROJECTION] = ATTN_PROJ,
                                       [Z3D_PLACE_NORM_2] = LN_2,
                                       [Z3D_PLACE_MLP] = MLP,
                                       [Z3D_PLACE_Q_BIAS] = ATTN_BIAS,
                                       [Z3D_PLACE_K_BIAS] = -1,
                                       [Z3D_PLACE_V_BIAS] = -1,
                                       [Z3D_PLACE_PROJECTION_BIAS] = ATTN_PROJ_BIAS,
                                       [Z3D_PLACE_Q_NORM] = -1,
                                       [Z3D_PLACE_K_NORM] = -1},
                             .head_dim = c->hidden_size / heads,
                             .kv_heads = heads,
                             .local_heads = local,
                             .local_kv_heads = local,
                             .attention_dropout = c->attention_dropout,
                             .lora = c->lora};
}

/* FLOPs per token as Narayanan et al. (2104.04473, equation 3) count them; attention is counted in
 * full, without its causal half. 72 l h^2 (1 + s/6h + V/12lh) without recompute, 96 l h^2 (1 + s/6h
 * + V/16lh) with recompute. */
static z3d_model_flops flops_of(const z3d_gpt_config *config) {
    double l = (double)config->num_layers, h = (double)config->hidden_size;
    double v = (double)config->vocab_size, s = (double)config->seq_length;
    /* Forward: a block's matrices 24 h^2, its attention 4 s h; the logits 2 V h. Backward is twice
     * forward; recompute repeats the blocks once, the logits never. Only a block's output needs its
     * last matrix, 8 h^2. */
    double attention = 4 * s * h, block = 24 * h * h + attention;
    return (z3d_model_flops){.step = l * block * 3 + 6 * v * h,
                             .recomputed_step = l * block * 4 + 6 * v * h,
                             .replay = 16 * h * h + attention,
                             .replay_with_output = block,
                             .attention = attention};
}

z3d_status z3d_gpt_create(const z3d_gpt_config *config, z3d_model **out) {
    *out = NULL;
    z3d_refusal refusal = {"GPT", false};
    const z3d_config_judge judge = z3d_refusal_judge(&refusal);
    z3d_gpt_check(config, &judge);
    if (refusal.any) return Z3D_ERR_CONFIG;
    const z3d_transformer shape = shape_of(config);
    const int in_blocks = (int)config->num_layers * z3d_block_units(&shape); /* groups */
    const int room = BLOCK_PARAMETERS + z3d_count_adapter_parameters(z3d_gpt_modules);
    z3d_transformer *own;
    z3d_model *model;
    Z3D_TRY(z3d_transformer_create(&shape, in_blocks + 3, room, &own, &model));
    describe_groups(model, own);
    z3d_find_adapters(&model->group[FIRST_BLOCK], z3d_gpt_modules, own->adapter);
    z3d_describe_units(
        model, own,
        &(z3d_transformer_units){.block = "block",
                                 .block_ops = &z3d_block_ops,
                                 .cache_columns = 2 * own->local_heads * own->head_dim,
                                 .embedding = {WTE, WPE},
                                 .first_block = FIRST_BLOCK,
                                 .table = WTE,
                                 .norm = FIRST_BLOCK + in_blocks,
                                 .packed = config->packed,
                                 .type = "GPT",
                                 .flops = flops_of(config)});
    snprintf(model->facts.shape, sizeof model->facts.shape, "%lld layers, hidden %lld, %lld heads",
             (long long)config->num_layers, (long long)config->hidden_size,
             (long long)config->num_heads);
    *out = model;
    return Z3D_OK;
}
