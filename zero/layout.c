/* Parameter groups as flat buffers: where each parameter lies, what a shard is, and which of its
 * elements are treated alike. */
#include <stdlib.h>
#include <string.h>

#include "zero/zero.h"

/* Parameters are sorted by this, so that a shard is at most four ranges: decayed and split first,
 * plain and replicated last. */
static int range_class(const z3d_parameter *parameter) {
    return (parameter->weight_decay ? 0 : 2) + (parameter->split_dim < 0 ? 1 : 0);
}

static z3d_status lay_out_group(const z3d_parameter_group *group, int tensor_size, int data_size,
                                z3d_group_layout *out) {
    for (int class = 0; class < 4; class ++) {
        z3d_range range = {out->elements, 0, class < 2, class % 2 == 1};
        for (int i = 0; i < group->num_parameters; i++) {
            const z3d_parameter *p = &group->parameter[i];
            if (range_class(p) != class) continue;
            out->offset[i] = out->elements;
            if (!z3d_add_i64(out->elements, z3d_parameter_local_elements(p, tensor_size),
                             &out->elements))
                return Z3D_ERROR(Z3D_ERR_CONFIG, "parameter group %s: more than 2^63 elements",
                                 group->name);
        }
        range.count = out->elements - range.first;
        if (range.count > 0) out->range[out->num_ranges++] = range;
    }
    out->shard = z3d_round_up((out->elements + data_size - 1) / data_size, Z3D_SHARD_ALIGN);
    if (!z3d_mul_i64(out->shard, data_size, &out->padded))
        return Z3D_ERROR(Z3D_ERR_CONFIG, "parameter group %s: more than 2^63 elements",
                         group->name);
    return Z3D_OK;
}

static z3d_status check_model(const z3d_model *model, const z3d_topology *topology) {
    if (model->tensor_size != topology->size[Z3D_AXIS_TENSOR])
        return Z3D_ERROR(Z3D_ERR_CONFIG,
                         "the model was made for tensor size %d, the topology has %d",
                         model->tensor_size, topology->size[Z3D_AXIS_TENSOR]);
    for (int u = 0; u < model->num_units; u++)
        for (int s = 0; s < model->unit[u].num_groups; s++)
            if (model->unit[u].group[s] < 0 || model->unit[u].group[s] >= model->num_groups)
                return Z3D_ERROR(
                    Z3D_ERR_CONFIG, "unit %s: parameter group %d does not exist (0-%d)",
                    model->unit[u].name, model->unit[u].group[s], model->num_groups - 1);
    return Z3D_OK;
}

z3d_status z3d_layout_create(const z3d_model *model, const z3d_topology *topology,
                             z3d_layout **out) {
    *out = NULL;
    Z3D_TRY(check_model(model, topology));
    z3d_layout *layout = NULL;
    z3d_status status = z3d_new(1, sizeof *layout, "layout", &layout);
    if (status != Z3D_OK) return status;
    layout->num_groups = model->num_groups;
    layout->data_size = topology->size[Z3D_AXIS_DATA];
    layout->data_index = topology->coordinate[Z3D_AXIS_DATA];
    layout->tensor_size = topology->size[Z3D_AXIS_TENSOR];
    layout->tensor_index = topology->coordinate[Z3D_AXIS_TENSOR];
    Z3D_TRY_GOTO(status,
                 z3d_new((size_t)model->num_groups, sizeof *layout->group, "layout's groups",
                         &layout->group),
                 fail);
    for (int g = 0; g < model->num_groups; g++) {
        Z3D_TRY_GOTO(status,
                     lay_out_group(&model->group[g], layout->tensor_size, layout->data_size,
                                   &layout->group[g]),
                     fail);
        if (!z3d_add_i64(layout->padded_total, layout->group[g].padded, &layout->padded_total)) {
            status = Z3D_ERROR(Z3D_ERR_CONFIG, "the model has more than 2^63 elements");
            goto fail;
        }
    }
    *out = layout;
    return Z3D_OK;
fail:
    z3d_layout_destroy(layout);
    return status;
}

void z3d_layout_destroy(z3d_layout *layout) {
    if (!layout) return;
    free(layout->group);
    free(layout);
}

bool z3d_layout_shard_range(const z3d_layout *layout, int group, int range, int index,
                            z3d_range *out) {
    const z3d_group_layout *g = &layout->group[group];
    const z3d_range *r = &g->range[range];
    int64_t from = index * g->shard, to = from + g->shard;
    if (from < r->first) from = r->first;
    if (to > r->first + r->count) to = r->first + r->count;
    *out = *r;
    out->first = from;
    out->count = to - from;
    return to > from;
}
