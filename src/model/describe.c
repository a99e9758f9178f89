/* Describes the parts that models of embedding, blocks and head share. */
#include "src/model/transformer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

z3d_parameter *z3d_add_parameter(z3d_parameter_group *group, const char *name, int split_dim,
                                 z3d_init init, double std) {
    /* One parameter beyond the room is counted but not stored, so that the model is refused later.
     */
    if (group->num_parameters <= group->room) group->num_parameters++;
    z3d_parameter *p = &group->parameter[group->num_parameters - 1];
    snprintf(p->name, sizeof p->name, "%s", name);
    p->split_dim = split_dim;
    p->init = init;
    p->standard_deviation = (float)std;
    p->weight_decay = init == Z3D_INIT_NORMAL;
    return p;
}

z3d_parameter *z3d_add_vector(z3d_parameter_group *group, const char *name, int split_dim,
                              z3d_init init, int64_t size) {
    z3d_parameter *p = z3d_add_parameter(group, name, split_dim, init, 0);
    p->dims = 1;
    p->shape[0] = size;
    return p;
}

z3d_parameter *z3d_add_matrix(z3d_parameter_group *group, const char *name, int split_dim,
                              double std, int64_t out, int64_t in) {
    z3d_parameter *p = z3d_add_parameter(group, name, split_dim, Z3D_INIT_NORMAL, std);
    p->dims = 2;
    p->shape[0] = out;
    p->shape[1] = in;
    return p;
}

double z3d_residual_std(const z3d_transformer *shape) {
    return shape->init_std / sqrt(2.0 * (double)shape->num_layers);
}

void z3d_add_token_table(z3d_parameter_group *group, const char *name,
                         const z3d_transformer *shape) {
    snprintf(group->name, sizeof group->name, "%s", name);
    z3d_add_matrix(group, "weight", 0, shape->init_std, shape->vocab_size, shape->hidden_size)
        ->padded_dim = shape->padded_vocab;
}

void z3d_cut_tile(z3d_parameter_group *group, const char *home, const z3d_transformer *shape,
                  int tile) {
    snprintf(group->name, sizeof group->name, "%.32s.mlp.%d", home, tile);
    for (int i = 0; i < group->num_parameters; i++) {
        z3d_parameter *p = &group->parameter[i];
        snprintf(p->home, sizeof p->home, "%s", home);
        if (p->split_dim < 0) continue;
        p->tile_count = p->shape[p->split_dim] / shape->tiling;
        p->tile_first = p->tile_count * tile;
    }
}

/* The last unit's output is the head's, set below. */
static void describe_outputs(z3d_model *model, const z3d_transformer *shape) {
    const int each = z3d_block_units(shape);
    for (int u = 0; u < model->num_units - 1; u++) {
        bool inside = u > 0 && (u - 1) % each < each - 1; /* inside a tiled block: two streams */
        for (int mode = 0; mode < Z3D_MODE_COUNT; mode++) {
            bool split = z3d_model_splits_rows(model, (z3d_mode)mode);
            model->unit[u].output_elements[mode] = (inside ? 2 : 1) * model->tokens[mode] *
                                                   shape->hidden_size /
                                                   (split ? shape->tensor_size : 1);
        }
    }
}

/* A block is one unit; or, if tiled, its attention and each of its MLP's tiles. */
static void describe_block_units(z3d_model *model, const z3d_transformer *shape,
                                 const z3d_transformer_units *units, int block) {
    const int each = z3d_block_units(shape), first = block * each;
    for (int part = 0; part < each; part++) {
        z3d_unit *unit = &model->unit[1 + first + part];
        unit->checkpoint = true;
        unit->num_groups = 1;
        unit->group[0] = units->first_block + first + part;
        unit->index = 1 + block;
        if (part == 0) {
            snprintf(unit->name, sizeof unit->name, "%s.%d%s", units->block, block,
                     each > 1 ? ".attention" : "");
            unit->ops = units->block_ops;
            unit->kind = Z3D_KIND_BLOCK;
            unit->cache_columns = units->cache_columns;
        } else {
            snprintf(unit->name, sizeof unit->name, "%s.%d.mlp.%d", units->block, block, part - 1);
            unit->ops = &z3d_tile_ops;
            unit->kind = part == each - 1 ? Z3D_KIND_LAST_TILE : Z3D_KIND_TILE;
        }
    }
}

static void free_data(z3d_model *model) {
    free(model->data);
}

z3d_status z3d_transformer_create(const z3d_transformer *shape, int groups, int room,
                                  z3d_transformer **own, z3d_model **out) {
    const int units = (int)shape->num_layers * z3d_block_units(shape) + 2;
    Z3D_TRY(z3d_new(1, sizeof **own, "a model's description", own));
    **own = *shape;
    const z3d_status status = z3d_model_create(groups, room, units, out);
    if (status != Z3D_OK) {
        free(*own);
        return status;
    }
    (*out)->data = *own;
    (*out)->destroy = free_data;
    return Z3D_OK;
}

void z3d_describe_units(z3d_model *model, const z3d_transformer *shape,
                        const z3d_transformer_units *units) {
    const int layers = (int)shape->num_layers, last = model->num_units - 1;
    model->tensor_size = shape->tensor_size;
    model->sequence_parallel = shape->sequence_parallel;
    if (units->type)
        model->facts = (z3d_model_facts){.type = units->type,
                                         .tokens = shape->seq_length,
                                         .vocabulary = shape->vocab_size,
                                         .padded_vocabulary = shape->padded_vocab,
                                         .product_outputs = z3d_mlp_columns(shape),
                                         .product_inputs = shape->hidden_size,
                                         .flops = units->flops};
    if (model->num_fields == 0) z3d_model_take_tokens(model, shape->seq_length, units->packed);
    for (int u = 0; u <= last; u++) model->unit[u].data = shape;
    describe_outputs(model, shape);

    z3d_unit *embedding = &model->unit[0];
    snprintf(embedding->name, sizeof embedding->name, "embedding");
    embedding->ops = &z3d_embedding_ops;
    embedding->kind = Z3D_KIND_EMBEDDING;
    embedding->num_groups = shape->learned_positions ? 2 : 1;
    embedding->group[0] = units->embedding[0];
    embedding->group[1] = units->embedding[1];

    for (int i = 0; i < layers; i++) describe_block_units(model, shape, units, i);

    z3d_unit *head = &model->unit[last];
    snprintf(head->name, sizeof head->name, "head");
    head->ops = &z3d_head_ops;
    head->kind = Z3D_KIND_HEAD;
    head->index = layers + 1;
    head->num_groups = 2;
    head->group[0] = units->table;
    head->group[1] = units->norm;
    for (int mode = Z3D_MODE_PREFILL; mode <= Z3D_MODE_DECODE; mode++)
        head->output_elements[mode] = shape->padded_vocab;
}
