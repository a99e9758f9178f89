/* Parameter groups as flat buffers: the place of each parameter, shards, and ranges of elements
 * that are treated alike. */
#include <stdlib.h>
#include <string.h>

#include "zero/program/layout.h"

enum { RANGE_CLASSES = 6 };

/* The order of parameters, so that a shard is at most six ranges: decayed ones first, the partial
 * ones of both next to each other. */
static int range_class(const z3d_model *model, const z3d_parameter *parameter) {
    int class = z3d_parameter_is_partial(model, parameter) ? 2 : parameter->split_dim < 0 ? 1 : 0;
    return parameter->weight_decay ? class : RANGE_CLASSES - 1 - class;
}

static z3d_status lay_out_group(const z3d_model *model, int index, const z3d_mesh *mesh,
                                z3d_sharding sharding, z3d_group_layout *out) {
    const z3d_parameter_group *group = &model->group[index];
    const int nodes = z3d_mesh_size(mesh, Z3D_ROLE_NODES);
    bool fits = true;
    out->frozen = group->frozen;
    const bool hybrid = sharding == Z3D_SHARDING_HYBRID && nodes > 1;
    out->shard_axes = hybrid ? Z3D_ROLE_BLOCKS : Z3D_ROLE_ROWS;
    if (hybrid) out->copy_axes = Z3D_ROLE_NODES;
    out->rows = z3d_mesh_size(mesh, out->shard_axes);
    out->own = z3d_mesh_index(mesh, out->shard_axes, mesh->rank);
    out->block = hybrid || sharding == Z3D_SHARDING_FLAT ? 1 : nodes;
    for (int class = 0; class < RANGE_CLASSES; class ++) {
        z3d_range range = {.first = out->elements};
        for (int i = 0; i < group->num_parameters; i++) {
            const z3d_parameter *p = &group->parameter[i];
            if (range_class(model, p) != class) continue;
            range.weight_decay = p->weight_decay;
            range.replicated = p->split_dim < 0;
            range.partial = z3d_parameter_is_partial(model, p);
            out->offset[i] = out->elements;
            fits = fits &&
                   z3d_add_i64(out->elements, z3d_parameter_local_elements(p, model->tensor_size),
                               &out->elements);
        }
        if (!fits) break; /* the count of elements is not valid */
        range.count = out->elements - range.first;
        if (range.count == 0) continue;
        out->range[out->num_ranges++] = range;
        if (range.partial && !group->frozen) out->replica_axes = Z3D_ROLE_REPLICAS;
    }
    if (fits) {
        out->shard = z3d_round_up((out->elements + out->rows - 1) / out->rows, Z3D_SHARD_ALIGN);
        fits = z3d_mul_i64(out->shard, out->rows, &out->padded);
    }
    if (!fits)
        return Z3D_ERROR(Z3D_ERR_CONFIG, "parameter group %s: more than 2^63 elements",
                         group->name);
    return Z3D_OK;
}

/* ---- checks of the model, which may be the user's own ---- */

static bool named(const char *name) {
    return name[0] != '\0' && memchr(name, '\0', Z3D_NAME) != NULL;
}

static bool tile_is_sound(const z3d_parameter *p) {
    return p->split_dim >= 0 && p->padded_dim == 0 && p->tile_count > 0 && p->tile_first >= 0 &&
           p->tile_first <= p->shape[p->split_dim] - p->tile_count;
}

static z3d_status check_parameter(const z3d_parameter_group *group, int index, int tensor_size) {
    const z3d_parameter *p = &group->parameter[index];
    if (!named(p->name))
        return Z3D_ERROR(Z3D_ERR_CONFIG,
                         "parameter group %s: parameter %d has no name of 1 to %d bytes",
                         group->name, index, Z3D_NAME - 1);
    for (int other = 0; other < index; other++)
        if (strcmp(group->parameter[other].name, p->name) == 0)
            return Z3D_ERROR(Z3D_ERR_CONFIG, "parameter group %s: two parameters are called %s",
                             group->name, p->name);
    if (p->frozen != group->frozen)
        return Z3D_ERROR(
            Z3D_ERR_CONFIG,
            "parameter group %s: %s is %s, but the group is not; call z3d_model_divide "
            "when the model is described",
            group->name, p->name, p->frozen ? "frozen" : "trained");
    if (p->dims < 1 || p->dims > Z3D_MAX_DIMS || p->split_dim < -1 || p->split_dim >= p->dims)
        return Z3D_ERROR(Z3D_ERR_CONFIG,
                         "parameter %s/%s: %d dimensions, split along dimension %d; it must have 1 "
                         "to %d dimensions, and the split dimension must be one of them, or -1",
                         group->name, p->name, p->dims, p->split_dim, Z3D_MAX_DIMS);
    for (int d = 0; d < p->dims; d++)
        if (p->shape[d] < 1)
            return Z3D_ERROR(Z3D_ERR_CONFIG,
                             "parameter %s/%s: dimension %d is %lld, but must be positive",
                             group->name, p->name, d, (long long)p->shape[d]);
    if (p->tile_count != 0 && !tile_is_sound(p))
        return Z3D_ERROR(Z3D_ERR_CONFIG,
                         "parameter %s/%s: a tile of %lld elements from %lld on; it must be a part "
                         "of a split dimension without padding",
                         group->name, p->name, (long long)p->tile_count, (long long)p->tile_first);
    if (p->split_dim < 0) return Z3D_OK;
    int64_t extent = z3d_parameter_extent(p, p->split_dim);
    int64_t whole = p->padded_dim > 0 ? p->padded_dim : extent;
    if (whole >= extent && whole % tensor_size == 0) return Z3D_OK;
    return Z3D_ERROR(Z3D_ERR_CONFIG,
                     "parameter %s/%s: dimension %d of %lld (%lld with padding) cannot be divided "
                     "among %d tensor ranks",
                     group->name, p->name, p->split_dim, (long long)extent, (long long)whole,
                     tensor_size);
}

/* Process groups stay in one pipeline stage: other stages do not run the unit. */
static z3d_status check_process_groups(const z3d_unit *unit) {
    if (unit->num_process_groups < 0 || unit->num_process_groups > Z3D_MAX_PROCESS_GROUPS)
        return Z3D_ERROR(Z3D_ERR_CONFIG, "unit %s: %d process groups, but at most %d are possible",
                         unit->name, unit->num_process_groups, Z3D_MAX_PROCESS_GROUPS);
    for (int slot = 0; slot < unit->num_process_groups; slot++) {
        const z3d_axes axes = unit->process_axes[slot];
        if (axes == Z3D_AXES_NONE || axes >= Z3D_AXES_COUNT || axes & Z3D_ROLE_STAGES)
            return Z3D_ERROR(Z3D_ERR_CONFIG,
                             "unit %s: its process group %d is over axes %s, but it must be over "
                             "axes of one pipeline stage",
                             unit->name, slot, z3d_axes_name(axes).text);
    }
    return Z3D_OK;
}

static z3d_status check_unit(const z3d_model *model, int index) {
    const z3d_unit *u = &model->unit[index];
    if (!named(u->name) || !u->ops || !u->ops->forward ||
        !u->ops->backward == !u->ops->backward_halves)
        return Z3D_ERROR(Z3D_ERR_CONFIG,
                         "unit %d needs a name of 1 to %d bytes, a forward, and either backward or "
                         "backward_halves",
                         index, Z3D_NAME - 1);
    if (u->kind < 0 || u->kind >= model->num_units)
        return Z3D_ERROR(Z3D_ERR_CONFIG, "unit %s: kind %d, but it must be 0 to %d", u->name,
                         u->kind, model->num_units - 1);
    if (u->num_groups < 0 || u->num_groups > Z3D_MAX_UNIT_GROUPS)
        return Z3D_ERROR(Z3D_ERR_CONFIG,
                         "unit %s: %d parameter groups, but at most %d are possible", u->name,
                         u->num_groups, Z3D_MAX_UNIT_GROUPS);
    for (int s = 0; s < u->num_groups; s++)
        if (u->group[s] < 0 || u->group[s] >= model->num_groups)
            return Z3D_ERROR(Z3D_ERR_CONFIG, "unit %s: parameter group %d does not exist (0-%d)",
                             u->name, u->group[s], model->num_groups - 1);
    for (int mode = 0; mode < Z3D_MODE_COUNT; mode++)
        if (u->output_elements[mode] < 0)
            return Z3D_ERROR(Z3D_ERR_CONFIG,
                             "unit %s: its output has %lld elements, which is negative", u->name,
                             (long long)u->output_elements[mode]);
    return check_process_groups(u);
}

static z3d_status check_model(const z3d_model *model, const z3d_mesh *mesh) {
    const int parts = z3d_mesh_size(mesh, Z3D_ROLE_PARTS);
    if (model->tensor_size != parts)
        return Z3D_ERROR(Z3D_ERR_CONFIG,
                         "the model was made for tensor size %d, but the mesh has %d",
                         model->tensor_size, parts);
    if (model->num_units < 1 || model->num_fields < 0 || model->num_fields > Z3D_MAX_FIELDS)
        return Z3D_ERROR(Z3D_ERR_CONFIG,
                         "a model of %d units and %d fields is not possible; it needs 1 or more "
                         "units and 0 to %d fields",
                         model->num_units, model->num_fields, Z3D_MAX_FIELDS);
    for (int f = 0; f < model->num_fields; f++)
        if (model->field[f].bytes_per_sample[Z3D_MODE_TRAIN] < 1)
            return Z3D_ERROR(Z3D_ERR_CONFIG,
                             "field %d: %lld bytes per sample, but it must be positive", f,
                             (long long)model->field[f].bytes_per_sample[Z3D_MODE_TRAIN]);
    for (int g = 0; g < model->num_groups; g++) {
        const z3d_parameter_group *group = &model->group[g];
        if (!named(group->name) || group->num_parameters < 1 || group->num_parameters > group->room)
            return Z3D_ERROR(Z3D_ERR_CONFIG,
                             "parameter group %d needs a name of 1 to %d bytes and 1 to %d "
                             "parameters, for which z3d_model_create has made room; it has %d",
                             g, Z3D_NAME - 1, group->room, group->num_parameters);
        for (int i = 0; i < group->num_parameters; i++)
            Z3D_TRY(check_parameter(group, i, model->tensor_size));
    }
    for (int u = 0; u < model->num_units; u++) Z3D_TRY(check_unit(model, u));
    return Z3D_OK;
}

/* ---- pipeline stages ---- */

/* An even cut; the first chunks have one unit more. */
static int even_cut(int units, int chunks, int chunk) {
    int rest = units % chunks;
    return units / chunks * chunk + (chunk < rest ? chunk : rest);
}

static z3d_status check_chunks(const z3d_model *model, const z3d_pipeline_config *pipeline,
                               int chunks) {
    if (chunks > Z3D_MAX_CHUNKS || chunks > model->num_units)
        return Z3D_ERROR(Z3D_ERR_CONFIG,
                         "%d units cannot be divided into %d chunks of a pipeline: each needs a "
                         "unit, and there can be at most %d",
                         model->num_units, chunks, Z3D_MAX_CHUNKS);
    if (pipeline->first_unit[chunks] == 0) return Z3D_OK; /* an even cut */
    bool ascending =
        pipeline->first_unit[0] == 0 && pipeline->first_unit[chunks] == model->num_units;
    for (int c = 0; c < chunks; c++)
        ascending = ascending && pipeline->first_unit[c] < pipeline->first_unit[c + 1];
    if (ascending) return Z3D_OK;
    return Z3D_ERROR(
        Z3D_ERR_CONFIG,
        "the chunks of the pipeline must have all %d units in order, each chunk at least one",
        model->num_units);
}

static z3d_status place_units(const z3d_model *model, const z3d_pipeline_config *pipeline,
                              z3d_layout *layout) {
    int chunks = layout->num_chunks = layout->stages * z3d_chunks_of_stage(pipeline);
    size_t units = (size_t)model->num_units;
    Z3D_TRY(check_chunks(model, pipeline, chunks));
    bool even = pipeline->first_unit[chunks] == 0;
    Z3D_TRY(z3d_new((size_t)chunks + 1, sizeof(int), "layout's chunks", &layout->first_unit));
    Z3D_TRY(z3d_new((size_t)chunks, sizeof(int), "layout's chunks", &layout->stage_of_chunk));
    Z3D_TRY(z3d_new(units, sizeof(int), "layout's units", &layout->chunk_of_unit));
    for (int c = 0; c <= chunks; c++)
        layout->first_unit[c] =
            even ? even_cut(model->num_units, chunks, c) : pipeline->first_unit[c];
    for (int c = 0; c < chunks; c++) {
        layout->stage_of_chunk[c] = z3d_schedule_stage(pipeline->schedule, layout->stages, c);
        for (int u = layout->first_unit[c]; u < layout->first_unit[c + 1]; u++)
            layout->chunk_of_unit[u] = c;
    }
    return Z3D_OK;
}

/* Finds the chunks that use each group. */
static z3d_status find_chunks(const z3d_model *model, z3d_layout *layout) {
    for (int g = 0; g < model->num_groups; g++)
        layout->group[g].chunk[0] = layout->group[g].chunk[1] = -1;
    for (int u = 0; u < model->num_units; u++) {
        int here = layout->chunk_of_unit[u];
        for (int s = 0; s < model->unit[u].num_groups; s++) {
            int g = model->unit[u].group[s], at = 0, *chunk = layout->group[g].chunk;
            while (at < 2 && chunk[at] >= 0 && chunk[at] != here) at++;
            if (at == 2)
                return Z3D_ERROR(Z3D_ERR_CONFIG,
                                 "parameter group %s is used in chunks %d, %d and %d of the "
                                 "pipeline; at most two can share it",
                                 model->group[g].name, chunk[0], chunk[1], here);
            chunk[at] = here;
        }
    }
    return Z3D_OK;
}

/* All stages hold a group that no unit uses; the builder refuses it. Of several copies of the
 * states the first node's counts. */
static void find_holders(const z3d_layout *layout, z3d_group_layout *g) {
    int stage[2] = {-1, -1};
    for (int at = 0; at < 2; at++)
        if (g->chunk[at] >= 0) stage[at] = layout->stage_of_chunk[g->chunk[at]];
    bool first = stage[0] == layout->stage, second = stage[1] == layout->stage;
    g->held = first || second || stage[0] < 0;
    g->counts = (first || stage[0] < 0) &&
                z3d_mesh_index(&layout->mesh, g->copy_axes, layout->mesh.rank) == 0;
    g->twin = g->second_chunk = -1;
    if (g->frozen) return;
    if (first != second) g->twin = stage[first ? 1 : 0];
    if (first && second) g->second_chunk = g->chunk[1];
}

int z3d_layout_use(const z3d_layout *layout, int unit, int group) {
    return layout->group[group].second_chunk == layout->chunk_of_unit[unit];
}

int z3d_layout_stage_of(const z3d_layout *layout, int unit) {
    return layout->stage_of_chunk[layout->chunk_of_unit[unit]];
}

bool z3d_layout_has_unit(const z3d_layout *layout, int unit) {
    return z3d_layout_stage_of(layout, unit) == layout->stage;
}

bool z3d_layout_begins_chunk(const z3d_layout *layout, int unit) {
    return layout->first_unit[layout->chunk_of_unit[unit]] == unit;
}

/* Elements of the groups so far; of the offloaded ones. */
struct spread {
    double all, offloaded;
};

/* Whether the group is offloaded: whole groups, as near to the share as possible, spread evenly
 * over this stage's. A frozen group has no states to share out. */
static bool is_offloaded(const z3d_group_layout *group, const z3d_program_config *config,
                         struct spread *spread) {
    const double elements = group->held ? (double)group->padded : 0;
    if (group->frozen) return true;
    spread->all += elements;
    const double share = config->inference ? 1 : 1 - config->offload.resident;
    const double missing = share * spread->all - spread->offloaded;
    const bool offloaded = missing >= elements / 2;
    if (offloaded) spread->offloaded += elements;
    return offloaded;
}

static z3d_status make_offsets(const z3d_model *model, z3d_layout *layout) {
    size_t parameters = 0;
    for (int g = 0; g < model->num_groups; g++)
        parameters += (size_t)model->group[g].num_parameters;
    Z3D_TRY(z3d_new(parameters, sizeof *layout->offset, "layout's parameters", &layout->offset));
    int64_t *next = layout->offset;
    for (int g = 0; g < model->num_groups; next += model->group[g++].num_parameters)
        layout->group[g].offset = next;
    return Z3D_OK;
}

static z3d_status lay_out(const z3d_model *model, const z3d_program_config *config,
                          z3d_layout *layout) {
    struct spread spread = {0, 0};
    Z3D_TRY(place_units(model, &config->pipeline, layout));
    Z3D_TRY(z3d_new((size_t)model->num_groups, sizeof *layout->group, "layout's groups",
                    &layout->group));
    Z3D_TRY(make_offsets(model, layout));
    Z3D_TRY(find_chunks(model, layout));
    for (int g = 0; g < model->num_groups; g++) {
        z3d_group_layout *group = &layout->group[g];
        Z3D_TRY(lay_out_group(model, g, &layout->mesh, config->sharding, group));
        find_holders(layout, group);
        z3d_states_decide(config, group->shard_axes, group->elements,
                          is_offloaded(group, config, &spread), group->frozen, group->state);
        if (group->block == 1) group->state[Z3D_STATE_SECONDARY].kinds = 0;
        /* Two sums of gradients are added on the device. */
        if (z3d_adds_two_sums(group)) group->state[Z3D_STATE_GRADIENT].at.space = Z3D_SPACE_DEVICE;
        if (group->held && !z3d_add_i64(layout->padded_total, group->padded, &layout->padded_total))
            return Z3D_ERROR(Z3D_ERR_CONFIG, "the model has more than 2^63 elements");
    }
    return Z3D_OK;
}

z3d_status z3d_layout_create(const z3d_model *model, const z3d_mesh *mesh,
                             const z3d_program_config *config, z3d_layout **out) {
    static const z3d_program_config none;
    z3d_layout *layout = NULL;
    if (!config) config = &none;
    *out = NULL;
    Z3D_TRY(check_model(model, mesh));
    Z3D_TRY(z3d_states_check(config));
    Z3D_TRY(z3d_new(1, sizeof *layout, "layout", &layout));
    layout->num_groups = model->num_groups;
    layout->mesh = *mesh;
    layout->tensor_size = z3d_mesh_size(mesh, Z3D_ROLE_PARTS);
    layout->tensor_index = z3d_mesh_index(mesh, Z3D_ROLE_PARTS, mesh->rank);
    layout->stages = z3d_mesh_size(mesh, Z3D_ROLE_STAGES);
    layout->stage = z3d_mesh_index(mesh, Z3D_ROLE_STAGES, mesh->rank);
    layout->first_trained = z3d_model_first_trained(model);
    z3d_status status = lay_out(model, config, layout);
    if (status == Z3D_OK)
        *out = layout;
    else
        z3d_layout_destroy(layout);
    return status;
}

void z3d_layout_destroy(z3d_layout *layout) {
    if (!layout) return;
    free(layout->first_unit);
    free(layout->stage_of_chunk);
    free(layout->chunk_of_unit);
    free(layout->group);
    free(layout->offset);
    free(layout);
}

bool z3d_layout_shard_range(const z3d_layout *layout, int group, int range, z3d_range *out) {
    const z3d_group_layout *g = &layout->group[group];
    const z3d_range *r = &g->range[range];
    int64_t from = g->own * g->shard, to = from + g->shard;
    if (from < r->first) from = r->first;
    if (to > r->first + r->count) to = r->first + r->count;
    *out = *r;
    out->first = from;
    out->count = to - from;
    return to > from;
}

int64_t z3d_layout_largest(const z3d_layout *layout) {
    int64_t largest = 0;
    for (int g = 0; g < layout->num_groups; g++)
        if (layout->group[g].held && layout->group[g].padded > largest)
            largest = layout->group[g].padded;
    return largest;
}

void z3d_layout_partial_part(const z3d_layout *layout, int group, int64_t *first, int64_t *count) {
    *first = *count = 0;
    for (int r = 0; r < layout->group[group].num_ranges; r++) {
        z3d_range range;
        if (!layout->group[group].range[r].partial ||
            !z3d_layout_shard_range(layout, group, r, &range))
            continue;
        if (*count == 0) *first = range.first;
        *count += range.count;
    }
}
