/* The part of each logical parameter that a rank holds, for checkpoints: one range of its tensor
 * slice's elements. This file finds and copies it. */
#include "zero/execute/engine.h"
#include "zero/program/layout.h"

void z3d_layout_part(const z3d_layout *layout, const z3d_model *model, int g, int i, bool all_rows,
                     z3d_part *out) {
    const z3d_group_layout *group = &layout->group[g];
    struct z3d_slice s = z3d_slice_of(&model->group[g].parameter[i], layout);
    int64_t from = all_rows ? 0 : group->own * group->shard;
    int64_t to = all_rows ? group->padded : from + group->shard;
    if (!group->held) to = from;
    if (s.valid == 0) s.offset = s.global; /* all of this slice is padding */
    *out = (z3d_part){s.outer, s.global, s.inner, s.offset, s.valid, 0, 0};
    /* Elements of the slice before `from` and before `to`, without padding rows. */
    int64_t *bound[] = {&out->first, &out->count}, at[] = {from, to};
    for (int k = 0; k < 2; k++) {
        int64_t local = at[k] - group->offset[i], plane = s.local * s.inner;
        if (local < 0) local = 0;
        if (local > s.outer * plane) local = s.outer * plane;
        int64_t o = plane ? local / plane : 0, rest = plane ? local % plane : 0;
        if (rest > s.valid * s.inner) rest = s.valid * s.inner;
        *bound[k] = o * s.valid * s.inner + rest;
    }
    out->count -= out->first;
}

void z3d_engine_kept_part(const z3d_engine *engine, int group, int parameter, z3d_part *out) {
    z3d_layout_part(engine->set.layout, engine->config.model, group, parameter,
                    z3d_state_is_whole(engine->set.layout, group, Z3D_STATE_OPTIMIZER), out);
}

static z3d_status check_part(const z3d_engine *engine, z3d_tensor_kind kind, int group,
                             int parameter, int64_t first, int64_t count) {
    const z3d_model *model = engine->config.model;
    z3d_part kept;
    if (!(z3d_engine_kinds(engine) & 1U << kind) || group < 0 || group >= model->num_groups ||
        parameter < 0 || parameter >= model->group[group].num_parameters ||
        (model->group[group].frozen && kind != Z3D_TENSOR_PARAMETER))
        return Z3D_ERROR(Z3D_ERR_USAGE, "parameter group %d has no state %d of a parameter %d",
                         group, (int)kind, parameter);
    z3d_engine_kept_part(engine, group, parameter, &kept);
    if (first < kept.first || count < 0 || count > kept.first + kept.count - first)
        return Z3D_ERROR(Z3D_ERR_USAGE,
                         "%s/%s: elements %lld-%lld are requested, but this rank keeps %lld-%lld",
                         model->group[group].name, model->group[group].parameter[parameter].name,
                         (long long)first, (long long)(first + count - 1), (long long)kept.first,
                         (long long)(kept.first + kept.count - 1));
    return Z3D_OK;
}

/* The run of elements from slice element `first` to the end of its plane at most: its place in the
 * group's flat buffer, and its length. */
static int64_t run_at(const z3d_engine *engine, int group, int parameter, int64_t first,
                      int64_t count, int64_t *flat) {
    const z3d_parameter *p = &engine->config.model->group[group].parameter[parameter];
    struct z3d_slice s = z3d_slice_of(p, engine->set.layout);
    int64_t base = engine->set.layout->group[group].offset[parameter];
    if (s.valid == s.local) {
        *flat = base + first;
        return count;
    }
    int64_t valid = s.valid * s.inner, rest = first % valid;
    *flat = base + first / valid * s.local * s.inner + rest;
    return count < valid - rest ? count : valid - rest;
}

z3d_status z3d_engine_read_part(z3d_engine *engine, z3d_tensor_kind kind, int group, int parameter,
                                int64_t first, int64_t count, float *out) {
    Z3D_TRY(check_part(engine, kind, group, parameter, first, count));
    while (count > 0) {
        int64_t flat, run = run_at(engine, group, parameter, first, count, &flat);
        Z3D_TRY(z3d_read_values(engine, kind, group, flat, out, run));
        first += run, count -= run, out += run;
    }
    return Z3D_OK;
}

z3d_status z3d_engine_write_part(z3d_engine *engine, z3d_tensor_kind kind, int group, int parameter,
                                 int64_t first, int64_t count, const float *values) {
    Z3D_TRY(check_part(engine, kind, group, parameter, first, count));
    while (count > 0) {
        int64_t flat, run = run_at(engine, group, parameter, first, count, &flat);
        Z3D_TRY(z3d_write_values(engine, kind, group, flat, values, run));
        first += run, count -= run, values += run;
    }
    return Z3D_OK;
}
