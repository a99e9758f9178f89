/* Describes GPT-2: its parameter groups, its units, its facts. embedding.c, block.c and head.c have
 * the units' functions. */
#include "src/model/gpt/units.h"
#include "src/model/limits.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

int64_t z3d_gpt_padded_vocab(const z3d_gpt_config *config) {
    return z3d_round_up(config->vocab_size, config->vocab_multiple * config->tensor_size);
}

static z3d_status check(const z3d_gpt_config *config) {
    z3d_refusal refusal = {"GPT", false};
    z3d_config_judge judge = z3d_refusal_judge(&refusal);
    z3d_gpt_check(config, &judge);
    return refusal.any ? Z3D_ERR_CONFIG : Z3D_OK;
}

/* Appends a parameter whose shape is set by the caller. A matrix (std > 0) has weight decay. */
static z3d_parameter *add(z3d_parameter_group *group, const char *name, int split_dim,
                          z3d_init init, double std) {
    z3d_parameter *p = &group->parameter[group->num_parameters++];
    snprintf(p->name, sizeof p->name, "%s", name);
    p->split_dim = split_dim;
    p->init = init;
    p->standard_deviation = (float)std;
    p->weight_decay = init == Z3D_INIT_NORMAL;
    return p;
}

static void add_vector(z3d_parameter_group *group, const char *name, int split_dim, z3d_init init,
                       int64_t size) {
    z3d_parameter *p = add(group, name, split_dim, init, 0);
    p->dims = 1;
    p->shape[0] = size;
}

static z3d_parameter *add_matrix(z3d_parameter_group *group, const char *name, int split_dim,
                                 double std, int64_t out, int64_t in) {
    z3d_parameter *p = add(group, name, split_dim, Z3D_INIT_NORMAL, std);
    p->dims = 2;
    p->shape[0] = out;
    p->shape[1] = in;
    return p;
}

static void add_layernorm(z3d_parameter_group *group, const char *name, int64_t hidden) {
    char full[Z3D_NAME];
    snprintf(full, sizeof full, "%sweight", name);
    add_vector(group, full, -1, Z3D_INIT_ONES, hidden);
    snprintf(full, sizeof full, "%sbias", name);
    add_vector(group, full, -1, Z3D_INIT_ZEROS, hidden);
}

/* In the order of units.h's GPT_*. The residual projections start smaller by sqrt(2 x layers), so
 * that the residual stream's variance does not grow with depth (GPT-2, section 2.3). */
static void describe_block(z3d_parameter_group *group, const z3d_gpt *gpt) {
    const z3d_gpt_config *c = &gpt->config;
    int64_t h = c->hidden_size, heads = c->num_heads, d = gpt->head_dim;
    double std = c->init_std, residual_std = std / sqrt(2.0 * (double)c->num_layers);
    z3d_parameter *p;

    add_layernorm(group, "ln_1.", h);
    p = add(group, "attn.c_attn.weight", 1, Z3D_INIT_NORMAL, std);
    p->dims = 4;
    p->shape[0] = 3, p->shape[1] = heads, p->shape[2] = d, p->shape[3] = h;
    p = add(group, "attn.c_attn.bias", 1, Z3D_INIT_ZEROS, 0);
    p->dims = 3;
    p->shape[0] = 3, p->shape[1] = heads, p->shape[2] = d;
    p = add(group, "attn.c_proj.weight", 1, Z3D_INIT_NORMAL, residual_std);
    p->dims = 3;
    p->shape[0] = h, p->shape[1] = heads, p->shape[2] = d;
    add_vector(group, "attn.c_proj.bias", -1, Z3D_INIT_ZEROS, h);
    add_layernorm(group, "ln_2.", h);
    add_matrix(group, "mlp.c_fc.weight", 0, std, 4 * h, h);
    add_vector(group, "mlp.c_fc.bias", 0, Z3D_INIT_ZEROS, 4 * h);
    add_matrix(group, "mlp.c_proj.weight", 1, residual_std, h, 4 * h);
    add_vector(group, "mlp.c_proj.bias", -1, Z3D_INIT_ZEROS, h);
}

static void describe_groups(z3d_model *model, const z3d_gpt *gpt) {
    const z3d_gpt_config *c = &gpt->config;
    z3d_parameter_group *group = model->group;
    snprintf(group->name, sizeof group->name, "wte");
    add_matrix(group, "weight", 0, c->init_std, c->vocab_size, c->hidden_size)->padded_dim =
        gpt->padded_vocab;
    group++;
    snprintf(group->name, sizeof group->name, "wpe");
    add_matrix(group, "weight", -1, c->init_std, c->seq_length, c->hidden_size);
    group++;
    for (int i = 0; i < (int)c->num_layers; i++, group++) {
        snprintf(group->name, sizeof group->name, "block.%d", i);
        describe_block(group, gpt);
    }
    snprintf(group->name, sizeof group->name, "ln_f");
    add_layernorm(group, "", c->hidden_size);
}

static void describe_units(z3d_model *model, const z3d_gpt *gpt) {
    int layers = (int)gpt->config.num_layers, last = layers + 1;
    int64_t rows = gpt->config.seq_length;
    if (gpt->config.sequence_parallel) rows /= gpt->config.tensor_size;
    for (int i = 0; i <= last; i++) {
        z3d_unit *unit = &model->unit[i];
        unit->data = gpt;
        unit->index = i;
        if (i == last) continue;
        for (int mode = 0; mode < Z3D_MODE_COUNT; mode++)
            unit->output_elements[mode] = rows * gpt->config.hidden_size;
    }

    z3d_unit *embedding = &model->unit[0];
    snprintf(embedding->name, sizeof embedding->name, "embedding");
    embedding->ops = &z3d_gpt_embedding_ops;
    embedding->kind = GPT_KIND_EMBEDDING;
    embedding->num_groups = 2;
    embedding->group[0] = 0;
    embedding->group[1] = 1;

    for (int i = 0; i < layers; i++) {
        z3d_unit *block = &model->unit[i + 1];
        snprintf(block->name, sizeof block->name, "block.%d", i);
        block->ops = &z3d_gpt_block_ops;
        block->kind = GPT_KIND_BLOCK;
        block->checkpoint = true;
        block->num_groups = 1;
        block->group[0] = i + 2;
    }

    z3d_unit *head = &model->unit[last];
    snprintf(head->name, sizeof head->name, "head");
    head->ops = &z3d_gpt_head_ops;
    head->kind = GPT_KIND_HEAD;
    head->num_groups = 2;
    head->group[0] = 0;
    head->group[1] = layers + 2;
    head->output_elements[Z3D_MODE_GENERATE] = gpt->padded_vocab;
}

static void describe_facts(z3d_model *model, const z3d_gpt *gpt) {
    const z3d_gpt_config *c = &gpt->config;
    z3d_model_facts *facts = &model->facts;
    *facts = (z3d_model_facts){.type = "GPT",
                               .tokens = c->seq_length,
                               .vocabulary = c->vocab_size,
                               .padded_vocabulary = gpt->padded_vocab,
                               .product_outputs = gpt->local_inner,
                               .product_inputs = c->hidden_size,
                               .flops = z3d_gpt_flops(c)};
    snprintf(facts->shape, sizeof facts->shape, "%lld layers, hidden %lld, %lld heads",
             (long long)c->num_layers, (long long)c->hidden_size, (long long)c->num_heads);
}

static void destroy(z3d_model *model) {
    free(model->data);
}

z3d_status z3d_gpt_create(const z3d_gpt_config *config, z3d_model **out) {
    *out = NULL;
    Z3D_TRY(check(config));
    z3d_model *model = NULL;
    z3d_gpt *gpt = NULL;
    Z3D_TRY(z3d_model_create((int)config->num_layers + 3, (int)config->num_layers + 2, &model));
    z3d_status status = z3d_new(1, sizeof *gpt, "GPT's description", &gpt);
    if (status != Z3D_OK) {
        z3d_model_destroy(model);
        return status;
    }
    gpt->config = *config;
    gpt->head_dim = config->hidden_size / config->num_heads;
    gpt->padded_vocab = z3d_gpt_padded_vocab(config);
    gpt->local_heads = config->num_heads / config->tensor_size;
    gpt->local_hidden = config->hidden_size / config->tensor_size;
    gpt->local_inner = 4 * config->hidden_size / config->tensor_size;
    model->data = gpt;
    model->destroy = destroy;
    model->tensor_size = config->tensor_size;
    model->sequence_parallel = config->sequence_parallel;
    model->num_fields = 2;
    for (int f = 0; f < 2; f++) {
        snprintf(model->field[f].name, Z3D_NAME, "%s", f ? "targets" : "tokens");
        model->field[f].bytes_per_sample = config->seq_length * (int64_t)sizeof(int32_t);
    }
    describe_groups(model, gpt);
    describe_units(model, gpt);
    describe_facts(model, gpt);
    *out = model;
    return Z3D_OK;
}
