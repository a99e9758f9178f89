/* Describes GPT-2: its parameter groups, units and facts. block.c has the functions of its blocks.
 */
#include "src/model/gpt/units.h"
#include "src/model/limits.h"

#include <stdio.h>
#include <stdlib.h>

static z3d_status check(const z3d_gpt_config *config) {
    z3d_refusal refusal = {"GPT", false};
    z3d_config_judge judge = z3d_refusal_judge(&refusal);
    z3d_gpt_check(config, &judge);
    return refusal.any ? Z3D_ERR_CONFIG : Z3D_OK;
}

static void add_layernorm(z3d_parameter_group *group, const char *name, int64_t hidden) {
    char full[Z3D_NAME];
    snprintf(full, sizeof full, "%sweight", name);
    z3d_add_vector(group, full, -1, Z3D_INIT_ONES, hidden);
    snprintf(full, sizeof full, "%sbias", name);
    z3d_add_vector(group, full, -1, Z3D_INIT_ZEROS, hidden);
}

/* In the order of GPT_* in units.h. */
static void describe_attention(z3d_parameter_group *group, const z3d_gpt *gpt) {
    const z3d_gpt_config *c = &gpt->config;
    int64_t h = c->hidden_size, heads = c->num_heads, d = gpt->head_dim;
    double std = c->init_std, residual_std = z3d_residual_std(&gpt->shape);
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

static void describe_mlp(z3d_parameter_group *group, const z3d_gpt *gpt, bool last_tile) {
    const int64_t h = gpt->config.hidden_size;
    z3d_add_matrix(group, "mlp.c_fc.weight", 0, gpt->config.init_std, 4 * h, h);
    z3d_add_vector(group, "mlp.c_fc.bias", 0, Z3D_INIT_ZEROS, 4 * h);
    z3d_add_matrix(group, "mlp.c_proj.weight", 1, z3d_residual_std(&gpt->shape), h, 4 * h);
    if (last_tile) z3d_add_vector(group, "mlp.c_proj.bias", -1, Z3D_INIT_ZEROS, h);
}

const z3d_lora_module z3d_gpt_modules[] = {{"attn.c_attn", 3, true},
                                           {"attn.c_proj", 1, false},
                                           {"mlp.c_fc", 1, false},
                                           {"mlp.c_proj", 1, false},
                                           {NULL, 0, false}};

/* One group; with tiling one group for the attention and one for each tile. */
static void describe_block(z3d_parameter_group *group, const z3d_gpt *gpt, int index) {
    const int tiles = gpt->shape.tiling;
    snprintf(group->name, sizeof group->name, "block.%d", index);
    describe_attention(group, gpt);
    if (tiles == 1) describe_mlp(group, gpt, true);
    for (int t = 0; t < tiles && tiles > 1; t++) {
        describe_mlp(&group[1 + t], gpt, t == tiles - 1);
        z3d_cut_tile(&group[1 + t], group->name, &gpt->shape, t);
    }
    z3d_add_adapters(group, &gpt->shape.lora, z3d_gpt_modules);
}

/* Indices of the parameter groups; the final norm's group follows the blocks' groups. */
enum { WTE, WPE, FIRST_BLOCK };

static void describe_groups(z3d_model *model, const z3d_gpt *gpt) {
    const z3d_gpt_config *c = &gpt->config;
    z3d_parameter_group *group = model->group;
    z3d_add_token_table(group++, "wte", &gpt->shape);
    snprintf(group->name, sizeof group->name, "wpe");
    z3d_add_matrix(group, "weight", -1, c->init_std, c->seq_length, c->hidden_size);
    group++;
    for (int i = 0; i < (int)c->num_layers; i++, group += z3d_block_units(&gpt->shape))
        describe_block(group, gpt, i);
    snprintf(group->name, sizeof group->name, "ln_f");
    add_layernorm(group, "", c->hidden_size);
}

static void destroy(z3d_model *model) {
    free(model->data);
}

static z3d_transformer shape_of(const z3d_gpt_config *c) {
    const int tiling = c->tiling > 1 ? (int)c->tiling : 1;
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
                             .lora = c->lora};
}

z3d_status z3d_gpt_create(const z3d_gpt_config *config, z3d_model **out) {
    *out = NULL;
    Z3D_TRY(check(config));
    z3d_model *model = NULL;
    z3d_gpt *gpt = NULL;
    z3d_transformer shape = shape_of(config);
    int in_blocks =
        (int)config->num_layers * z3d_block_units(&shape); /* units, and as many groups */
    const int room = GPT_BLOCK_PARAMETERS + z3d_count_adapter_parameters(z3d_gpt_modules);
    Z3D_TRY(z3d_model_create(in_blocks + 3, room, in_blocks + 2, &model));
    z3d_status status = z3d_new(1, sizeof *gpt, "GPT's description", &gpt);
    if (status != Z3D_OK) {
        z3d_model_destroy(model);
        return status;
    }
    gpt->config = *config;
    gpt->shape = shape;
    gpt->head_dim = config->hidden_size / config->num_heads;
    gpt->local_heads = config->num_heads / config->tensor_size;
    gpt->local_hidden = config->hidden_size / config->tensor_size;
    model->data = gpt;
    model->destroy = destroy;
    describe_groups(model, gpt);
    z3d_find_adapters(&model->group[FIRST_BLOCK], z3d_gpt_modules, gpt->shape.adapter);
    z3d_describe_units(model, &gpt->shape,
                       &(z3d_transformer_units){.block = "block",
                                                .block_ops = &z3d_gpt_block_ops,
                                                .cache_columns = 2 * gpt->local_hidden,
                                                .embedding = {WTE, WPE},
                                                .first_block = FIRST_BLOCK,
                                                .table = WTE,
                                                .norm = FIRST_BLOCK + in_blocks,
                                                .packed = config->packed,
                                                .type = "GPT",
                                                .flops = z3d_gpt_flops(config)});
    snprintf(model->facts.shape, sizeof model->facts.shape, "%lld layers, hidden %lld, %lld heads",
             (long long)config->num_layers, (long long)config->hidden_size,
             (long long)config->num_heads);
    *out = model;
    return Z3D_OK;
}
