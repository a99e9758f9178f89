/* Parameters as whole logical tensors: initial values, reads and writes. A rank holds, of each
 * logical parameter, the part that is in its tensor slice and in its data shard. */
#include <stdlib.h>
#include <string.h>

#include "zero/execute/engine.h"
#include "zero/program/layout.h"

struct z3d_slice z3d_slice_of(const z3d_parameter *p, const z3d_layout *layout) {
    struct z3d_slice s = {1, 1, 1, 1, 0, 1};
    int split = p->split_dim < 0 ? 0 : p->split_dim;
    for (int d = 0; d < split; d++) s.outer *= p->shape[d];
    for (int d = split + 1; d < p->dims; d++) s.inner *= p->shape[d];
    s.global = p->shape[split];
    s.local = s.valid = s.global;
    if (p->split_dim < 0) return s;
    const int64_t extent = z3d_parameter_extent(p, split), end = p->tile_first + extent;
    s.local = (p->padded_dim > 0 ? p->padded_dim : extent) / layout->tensor_size;
    s.offset = p->tile_first + s.local * layout->tensor_index;
    s.valid = end - s.offset < s.local ? end - s.offset : s.local;
    if (s.valid < 0) s.valid = 0;
    return s;
}

void z3d_engine_parameters_changed(z3d_engine *engine) {
    memset(engine->gathered, 0, sizeof engine->gathered);
}

static int64_t logical_elements(const z3d_parameter *p) {
    int64_t count = 1;
    for (int d = 0; d < p->dims; d++) count *= p->shape[d];
    return count;
}

/* A run of elements that are consecutive here and in the logical tensor. */
struct piece {
    int64_t flat;    /* in the group's flat buffer */
    int64_t logical; /* in the logical tensor */
    int64_t count;
};

/* Piece number `outer` of parameter i of group g, cut to [from, to) of the flat buffer; false:
 * empty. */
static bool piece_of(const z3d_engine *engine, int g, int i, int64_t outer, int64_t from,
                     int64_t to, struct piece *out) {
    const z3d_layout *layout = engine->set.layout;
    struct z3d_slice s = z3d_slice_of(&engine->config.model->group[g].parameter[i], layout);
    int64_t base = layout->group[g].offset[i] + outer * s.local * s.inner;
    int64_t first = base > from ? base : from;
    int64_t last = base + s.valid * s.inner;
    if (last > to) last = to;
    out->flat = first;
    out->logical = (outer * s.global + s.offset) * s.inner + (first - base);
    out->count = last - first;
    return last > first;
}

/* The elements of group g's flat buffer whose optimizer states this rank keeps. */
static void kept_rows(const z3d_engine *engine, int g, int64_t *from, int64_t *to) {
    *from = z3d_state_first(engine->set.layout, g, Z3D_STATE_OPTIMIZER);
    *to = *from + z3d_state_elements(engine->set.layout, g, Z3D_STATE_OPTIMIZER);
}

enum { PIECE = 1 << 16 }; /* bytes of one transfer */

unsigned z3d_engine_kinds(const z3d_engine *engine) {
    return z3d_state_kinds(&engine->config.program);
}

/* ---- first values ---- */

enum { AT_ONCE = 1 << 20 }; /* values that are made before they go to the disk */

/* In host memory; each value depends only on the key and its logical element. */
static void make_uniform(uint64_t key, float bound, int64_t first, int64_t count, float *x) {
    for (int64_t k = 0; k < count; k++) {
        const uint64_t element = (uint64_t)(first + k);
        x[k] =
            bound * (2 * z3d_philox_uniform(z3d_philox(key, element / 4, 0).word[element % 4]) - 1);
    }
}

/* Initial values of a piece, from its element `first` on, in `device`'s memory. */
static z3d_status make_values(z3d_engine *engine, z3d_device *device, int g, int i,
                              const struct piece *piece, int64_t first, int64_t count, float *x) {
    const z3d_parameter_group *group = &engine->config.model->group[g];
    const z3d_parameter *p = &group->parameter[i];
    if (p->init == Z3D_INIT_ZEROS || p->init == Z3D_INIT_ONES)
        return Z3D_LAUNCH(device, fill, .x = x, .count = count, .dtype = Z3D_F32,
                          .value = p->init == Z3D_INIT_ONES);
    char name[2 * Z3D_NAME + 2];
    snprintf(name, sizeof name, "%s/%s", z3d_parameter_home(group, i), p->name);
    const uint64_t key = z3d_key(engine->config.seed, name);
    if (p->init == Z3D_INIT_UNIFORM) {
        make_uniform(key, p->standard_deviation, piece->logical + first, count, x);
        return Z3D_OK;
    }
    return Z3D_LAUNCH(device, init_normal, .x = x, .count = count,
                      .place = {.key = key,
                                .local = count,
                                .global = logical_elements(p),
                                .inner = 1,
                                .offset = piece->logical + first},
                      .standard_deviation = p->standard_deviation);
}

/* For states that the device cannot fill: in parts, through host memory. */
static z3d_status init_far_piece(z3d_engine *engine, int g, int i, const struct piece *piece) {
    const int64_t most = piece->count < AT_ONCE ? piece->count : AT_ONCE;
    float *values = NULL;
    z3d_status status = z3d_new((size_t)most, sizeof *values, "first values", &values);
    for (int64_t done = 0; done < piece->count && status == Z3D_OK; done += AT_ONCE) {
        int64_t part = piece->count - done < AT_ONCE ? piece->count - done : AT_ONCE;
        status =
            make_values(engine, z3d_engine_main(engine)->host, g, i, piece, done, part, values);
        if (status == Z3D_OK)
            status =
                z3d_write_values(engine, Z3D_TENSOR_PARAMETER, g, piece->flat + done, values, part);
    }
    free(values);
    return status;
}

/* The address of flat element `flat` of group g in a state that is not on the disk. */
static void *address_of(const z3d_executor *executor, int g, z3d_state_role role, int64_t flat) {
    return executor->arena[z3d_state_space(executor->program->layout, g, role)] +
           z3d_executor_state_place(executor, g, role, 0, flat);
}

static z3d_status init_piece(z3d_engine *engine, int g, int i, const struct piece *piece) {
    const z3d_executor *executor = z3d_engine_main(engine);
    z3d_state_role role;
    int tensor;
    z3d_executor_find(executor, g, Z3D_TENSOR_PARAMETER, &role, &tensor);
    /* A frozen group has only 16-bit values. */
    const bool narrow = engine->set.layout->group[g].state[role].at.codec != Z3D_F32;
    const bool uniform = engine->config.model->group[g].parameter[i].init == Z3D_INIT_UNIFORM;
    if (narrow || uniform || z3d_state_space(engine->set.layout, g, role) != Z3D_SPACE_DEVICE)
        return init_far_piece(engine, g, i, piece);
    float *x = address_of(executor, g, role, piece->flat);
    Z3D_TRY(make_values(engine, executor->device, g, i, piece, 0, piece->count, x));
    if (role == Z3D_STATE_VALUE) return Z3D_OK;
    z3d_dtype dtype = engine->config.program.dtype;
    return Z3D_LAUNCH(engine->config.device, cast,
                      .destination = address_of(executor, g, Z3D_STATE_VALUE, piece->flat),
                      .source = x, .count = piece->count, .destination_dtype = dtype,
                      .source_dtype = Z3D_F32);
}

/* Writes fp32 values to a kept tensor of any type. */
static z3d_status write_as(z3d_engine *engine, int g, z3d_state_role role, int tensor, int64_t flat,
                           const float *values, int64_t count) {
    const z3d_dtype dtype = engine->set.layout->group[g].state[role].at.codec;
    const z3d_executor *executor = z3d_engine_main(engine);
    const int64_t most = z3d_values_in(dtype, PIECE);
    char piece[PIECE];
    if (dtype == Z3D_F32)
        return z3d_executor_write_state(executor, g, role, tensor, flat, values,
                                        z3d_bytes_of(dtype, count));
    for (int64_t done = 0; done < count;) {
        int64_t n = count - done < most ? count - done : most;
        z3d_codec_of(dtype)->encode(piece, values + done, n);
        Z3D_TRY(z3d_executor_write_state(executor, g, role, tensor, flat + done, piece,
                                         z3d_bytes_of(dtype, n)));
        done += n;
    }
    return Z3D_OK;
}

z3d_status z3d_write_values(z3d_engine *engine, z3d_tensor_kind kind, int g, int64_t flat,
                            const float *values, int64_t count) {
    z3d_state_role role;
    int tensor;
    z3d_executor_find(z3d_engine_main(engine), g, kind, &role, &tensor);
    Z3D_TRY(write_as(engine, g, role, tensor, flat, values, count));
    if (kind != Z3D_TENSOR_PARAMETER || role == Z3D_STATE_VALUE) return Z3D_OK;
    return write_as(engine, g, Z3D_STATE_VALUE, 0, flat, values, count);
}

z3d_status z3d_read_values(const z3d_engine *engine, z3d_tensor_kind kind, int g, int64_t flat,
                           float *out, int64_t count) {
    const z3d_executor *executor = z3d_engine_main(engine);
    z3d_state_role role;
    int tensor;
    z3d_executor_find(executor, g, kind, &role, &tensor);
    const z3d_placement *at = &engine->set.layout->group[g].state[role].at;
    return z3d_executor_read_floats(executor, at->space,
                                    z3d_executor_state_place(executor, g, role, tensor, flat),
                                    at->codec, count, out);
}

z3d_status z3d_engine_init_parameters(z3d_engine *engine) {
    const z3d_model *model = engine->config.model;
    for (int g = 0; g < model->num_groups; g++) {
        int64_t from, to;
        kept_rows(engine, g, &from, &to);
        for (int i = 0; i < model->group[g].num_parameters; i++) {
            int64_t outer = z3d_slice_of(&model->group[g].parameter[i], engine->set.layout).outer;
            for (int64_t o = 0; o < outer; o++) {
                struct piece piece;
                if (!piece_of(engine, g, i, o, from, to, &piece)) continue;
                Z3D_TRY(init_piece(engine, g, i, &piece));
            }
        }
    }
    return z3d_device_synchronize(engine->config.device);
}

/* ---- reading and writing ---- */

static z3d_status check_tensor(const z3d_engine *engine, z3d_tensor_kind kind, int group,
                               int parameter) {
    const z3d_model *model = engine->config.model;
    if (!((z3d_engine_kinds(engine) | Z3D_KIND(GRADIENT)) & 1U << kind))
        return Z3D_ERROR(Z3D_ERR_USAGE, "%s keeps no tensor %d of a parameter",
                         z3d_optimizer_name(engine->config.program.optimizer), (int)kind);
    if (group < 0 || group >= model->num_groups || parameter < 0 ||
        parameter >= model->group[group].num_parameters)
        return Z3D_ERROR(Z3D_ERR_USAGE, "parameter group %d has no parameter %d", group, parameter);
    if (model->group[group].frozen && kind != Z3D_TENSOR_PARAMETER)
        return Z3D_ERROR(Z3D_ERR_USAGE, "parameter group %s is frozen: it has only values",
                         model->group[group].name);
    return Z3D_OK;
}

/* The gradient of the mean over the trained tokens, without the loss scale. */
static z3d_status read_gradient(z3d_engine *engine, int g, const struct piece *piece, float *out) {
    const float scale = engine->executor[Z3D_MODE_TRAIN].gradient_scale;
    Z3D_TRY(z3d_read_values(engine, Z3D_TENSOR_GRADIENT, g, piece->flat, out, piece->count));
    for (int64_t k = 0; k < piece->count; k++) out[k] /= scale;
    return Z3D_OK;
}

/* Sums the ranks' disjoint parts. If every tensor rank holds the parameter, only over the data and
 * pipeline ranks. */
static z3d_status sum_parts(z3d_engine *engine, const z3d_parameter *p, float *values,
                            int64_t count) {
    z3d_collective call = {.kind = Z3D_COLLECTIVE_ALL_REDUCE,
                           .op = Z3D_SUM,
                           .dtype = Z3D_F32,
                           .buffer = values,
                           .count = count,
                           .scalar = true};
    Z3D_TRY(z3d_collective_run(engine->config.group[Z3D_ROLE_ROWS], &call));
    Z3D_TRY(z3d_collective_run(engine->config.group[Z3D_ROLE_STAGES], &call));
    if (p->split_dim < 0) return Z3D_OK;
    return z3d_collective_run(engine->config.group[Z3D_ROLE_PARTS], &call);
}

z3d_status z3d_engine_get(z3d_engine *engine, z3d_tensor_kind kind, int group, int parameter,
                          float *out) {
    Z3D_TRY(check_tensor(engine, kind, group, parameter));
    const z3d_parameter *p = &engine->config.model->group[group].parameter[parameter];
    const z3d_group_layout *layout = &engine->set.layout->group[group];
    int64_t from = layout->own * layout->shard, count = logical_elements(p);
    memset(out, 0, (size_t)count * sizeof *out);
    int64_t outer = layout->counts ? z3d_slice_of(p, engine->set.layout).outer : 0;
    for (int64_t o = 0; o < outer; o++) {
        struct piece piece;
        if (!piece_of(engine, group, parameter, o, from, from + layout->shard, &piece)) continue;
        if (kind == Z3D_TENSOR_GRADIENT)
            Z3D_TRY(read_gradient(engine, group, &piece, out + piece.logical));
        else
            Z3D_TRY(
                z3d_read_values(engine, kind, group, piece.flat, out + piece.logical, piece.count));
    }
    return sum_parts(engine, p, out, count);
}

z3d_status z3d_engine_set(z3d_engine *engine, z3d_tensor_kind kind, int group, int parameter,
                          const float *values) {
    Z3D_TRY(check_tensor(engine, kind, group, parameter));
    if (kind == Z3D_TENSOR_GRADIENT) return Z3D_ERROR(Z3D_ERR_USAGE, "gradients cannot be set");
    const z3d_parameter *p = &engine->config.model->group[group].parameter[parameter];
    int64_t from, to;
    z3d_engine_parameters_changed(engine);
    kept_rows(engine, group, &from, &to);
    for (int64_t o = 0; o < z3d_slice_of(p, engine->set.layout).outer; o++) {
        struct piece piece;
        if (!piece_of(engine, group, parameter, o, from, to, &piece)) continue;
        Z3D_TRY(
            z3d_write_values(engine, kind, group, piece.flat, values + piece.logical, piece.count));
    }
    return Z3D_OK;
}

/* ---- raw bytes ---- */

static z3d_status move_tensor(const z3d_engine *engine, bool in, int g, z3d_state_role role,
                              int tensor,
                              z3d_status (*move)(void *context, void *piece, int64_t bytes),
                              void *context) {
    char piece[PIECE];
    const z3d_executor *executor = z3d_engine_main(engine);
    const z3d_layout *layout = engine->set.layout;
    const z3d_dtype dtype = layout->group[g].state[role].at.codec;
    const int64_t most = z3d_values_in(dtype, PIECE);
    const int64_t first = z3d_state_first(layout, g, role);
    const int64_t count = z3d_state_elements(layout, g, role);
    for (int64_t done = 0; done < count; done += most) {
        const int64_t flat = first + done, left = count - done;
        const int64_t bytes = z3d_bytes_of(dtype, left < most ? left : most);
        if (!in) Z3D_TRY(z3d_executor_read_state(executor, g, role, tensor, flat, piece, bytes));
        Z3D_TRY(move(context, piece, bytes));
        if (in) Z3D_TRY(z3d_executor_write_state(executor, g, role, tensor, flat, piece, bytes));
    }
    return Z3D_OK;
}

/* Gradients are kept only if they wait for a delayed step. */
z3d_status z3d_engine_move_kept(z3d_engine *engine, bool in,
                                z3d_status (*move)(void *context, void *piece, int64_t bytes),
                                void *context) {
    static const z3d_state_role states[] = {Z3D_STATE_VALUE, Z3D_STATE_OPTIMIZER,
                                            Z3D_STATE_GRADIENT};
    const z3d_layout *layout = engine->set.layout;
    const int count = engine->config.program.offload.delayed ? 3 : 2;
    const int added = engine->config.program.num_added_states;
    if (in) z3d_engine_parameters_changed(engine);
    for (int g = 0; g < layout->num_groups; g++)
        for (int k = 0; k < count + added; k++) {
            const z3d_state_role role =
                k < count ? states[k] : (z3d_state_role)(Z3D_STATE_COUNT + k - count);
            const int tensors = z3d_count_kinds(layout->group[g].state[role].kinds);
            for (int tensor = 0; tensor < tensors; tensor++)
                Z3D_TRY(move_tensor(engine, in, g, role, tensor, move, context));
        }
    return Z3D_OK;
}
