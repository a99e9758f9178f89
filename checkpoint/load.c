/* From a checkpoint into an engine. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/format.h"

enum { CHUNK = Z3D_BLOCK_BYTES }; /* elements: 4 MiB, so that most blocks are read in place */

static z3d_status refuse_model(const z3d_checkpoint *c, const char *what) {
    return Z3D_ERROR(Z3D_ERR_CONFIG, "the checkpoint of step %lld is of another model: %s",
                     (long long)z3d_checkpoint_get_info(c)->engine.step, what);
}

static void append_shape(z3d_string *text, const z3d_tensor *t) {
    for (int d = 0; d < t->dims; d++)
        z3d_string_append(text, "%s%lld", d ? " x " : "", (long long)t->shape[d]);
}

/* A tensor of the model against the checkpoint's of that name. */
static z3d_status compare_tensor(const z3d_checkpoint *c, const z3d_tensor *t) {
    int index = z3d_checkpoint_find(c, t->group, t->name);
    z3d_tensor other = {0};
    const char *group, *name;
    const int64_t *shape;
    z3d_string text = {0};
    if (index >= 0) {
        z3d_checkpoint_tensor(c, index, &group, &name, &other.dims, &shape);
        memcpy(other.shape, shape, sizeof other.shape);
        if (other.dims == t->dims &&
            memcmp(other.shape, t->shape, (size_t)t->dims * sizeof *t->shape) == 0)
            return Z3D_OK;
    }
    z3d_string_append(&text, "%s/%s ", t->group, t->name);
    if (index < 0) {
        z3d_string_append(&text, "is not in it");
    } else {
        z3d_string_append(&text, "is ");
        append_shape(&text, &other);
        z3d_string_append(&text, " there and ");
        append_shape(&text, t);
        z3d_string_append(&text, " here");
    }
    z3d_status status = refuse_model(c, text.text ? text.text : "a tensor differs");
    z3d_string_free(&text);
    return status;
}

static z3d_status compare_models(const z3d_checkpoint *c, const z3d_model *model) {
    z3d_tensor *tensor;
    int count;
    z3d_status status = z3d_tensors_of(model, &tensor, &count);
    for (int i = 0; i < count && status == Z3D_OK; i++) status = compare_tensor(c, &tensor[i]);
    for (int i = 0; i < z3d_checkpoint_num_tensors(c) && status == Z3D_OK; i++) {
        const char *group, *name;
        const int64_t *shape;
        char text[2 * Z3D_NAME + 40];
        int dims, found = 0;
        z3d_checkpoint_tensor(c, i, &group, &name, &dims, &shape);
        for (int k = 0; k < count && !found; k++)
            found = strcmp(tensor[k].group, group) == 0 && strcmp(tensor[k].name, name) == 0;
        snprintf(text, sizeof text, "its %s/%s is not in this one", group, name);
        if (!found) status = refuse_model(c, text);
    }
    free(tensor);
    return status;
}

static z3d_status load_part(z3d_checkpoint *c, z3d_engine *engine, const z3d_model *model,
                            z3d_tensor_kind kind, int g, int i, float *chunk) {
    z3d_part part;
    z3d_engine_kept_part(engine, g, i, &part);
    int tensor = z3d_checkpoint_find(c, model->group[g].name, model->group[g].parameter[i].name);
    for (int64_t done = 0; done < part.count;) {
        int64_t count = part.count - done < CHUNK ? part.count - done : CHUNK;
        Z3D_TRY(z3d_checkpoint_read(c, kind, tensor, &part, part.first + done, count, chunk));
        Z3D_TRY(z3d_engine_write_part(engine, kind, g, i, part.first + done, count, chunk));
        done += count;
    }
    return Z3D_OK;
}

z3d_status z3d_checkpoint_load(z3d_checkpoint *c, const z3d_model *model, z3d_engine *engine,
                               bool weights_only) {
    float *chunk;
    Z3D_TRY(compare_models(c, model));
    if (!weights_only && !z3d_checkpoint_has(c, Z3D_TENSOR_MOMENTUM))
        return Z3D_ERROR(Z3D_ERR_CONFIG,
                         "the checkpoint of step %lld was imported: it has weights only, and no "
                         "run can go on from it; checkpoint.init_from begins one with them",
                         (long long)z3d_checkpoint_get_info(c)->engine.step);
    Z3D_TRY(z3d_new(CHUNK, sizeof *chunk, "a buffer to load through", &chunk));
    z3d_engine_parameters_changed(engine);
    int kinds = weights_only ? 1 : Z3D_STATE_KINDS;
    z3d_status status = Z3D_OK;
    /* State by state, as they lie in the files. */
    for (int kind = 0; kind < kinds; kind++)
        for (int g = 0; g < model->num_groups; g++)
            for (int i = 0; i < model->group[g].num_parameters && status == Z3D_OK; i++)
                status = load_part(c, engine, model, (z3d_tensor_kind)kind, g, i, chunk);
    free(chunk);
    if (status == Z3D_OK && !weights_only) {
        const z3d_checkpoint_info *info = z3d_checkpoint_get_info(c);
        z3d_engine_state state = info->engine, now;
        z3d_engine_get_state(engine, &now);
        if (info->dtype != Z3D_F16) { /* it had no loss scale to go on with */
            state.loss_scale = now.loss_scale;
            state.good_steps = now.good_steps;
            state.hysteresis_left = now.hysteresis_left;
        }
        z3d_engine_set_state(engine, &state);
    }
    return status;
}

z3d_status z3d_checkpoint_agree(z3d_world *world, const char *what, z3d_status mine) {
    char text[96];
    snprintf(text, sizeof text, "%.60s (waiting for all ranks)", what);
    z3d_watchdog_place(world, true, text);
    z3d_status status = z3d_world_agree(world, mine);
    z3d_watchdog_place(world, false, what);
    return status;
}

z3d_status z3d_checkpoint_load_all(z3d_world *world, const char *folder, const z3d_model *model,
                                   z3d_engine *engine, z3d_checkpoint_verify verify,
                                   bool weights_only, z3d_checkpoint_accept accept, void *context,
                                   z3d_checkpoint_info *info) {
    z3d_checkpoint *c = NULL;
    int kinds = weights_only ? 1 : Z3D_STATE_KINDS; /* all that the ranks read, together */
    static const char *const opening = "checkpoint: opening",
                             *const checking = "checkpoint: checking files",
                             *const reading = "checkpoint: reading";
    z3d_watchdog_place(world, false, opening);
    z3d_status status = z3d_checkpoint_agree(world, opening, z3d_checkpoint_open(folder, &c));
    if (status == Z3D_OK) {
        z3d_watchdog_place(world, false, checking);
        status = z3d_checkpoint_check_rest(c, verify, kinds, z3d_world_rank(world),
                                           z3d_world_size(world), NULL);
        status = z3d_checkpoint_agree(world, checking, status);
    }
    if (status == Z3D_OK && accept) status = accept(context, z3d_checkpoint_get_info(c));
    if (status == Z3D_OK) {
        z3d_watchdog_place(world, false, reading);
        z3d_checkpoint_set_verify(c, verify);
        status = z3d_checkpoint_load(c, model, engine, weights_only);
        status = z3d_checkpoint_agree(world, reading, status);
    }
    if (status == Z3D_OK && info) {
        *info = *z3d_checkpoint_get_info(c);
        info->config = info->program = info->libraries = NULL;
    }
    z3d_checkpoint_close(c);
    return status;
}
