/* Begins a model with the weights of a checkpoint that has fewer token ids. */
#include <stdlib.h>

#include "checkpoint/format.h"

enum { CHUNK = Z3D_BLOCK_BYTES / 4 }; /* elements */

void z3d_without_new_rows(const z3d_checkpoint *c, int tensor, z3d_part *slice) {
    slice->global = z3d_checkpoint_tensor(c, tensor)->global;
    if (slice->offset > slice->global) slice->offset = slice->global;
    if (slice->valid > slice->global - slice->offset) slice->valid = slice->global - slice->offset;
    const int64_t elements = slice->valid * slice->inner;
    if (slice->first > elements) slice->first = elements;
    if (slice->count > elements - slice->first) slice->count = elements - slice->first;
}

/* mean[columns] becomes the mean of the checkpoint's rows; sum[columns] is zero before. */
static z3d_status add_rows(z3d_checkpoint *c, int tensor, double *sum, float *chunk, float *mean) {
    z3d_part whole;
    z3d_checkpoint_whole(c, tensor, &whole);
    for (int64_t at = 0, column = 0; at < whole.count; at += CHUNK) {
        const int64_t count = whole.count - at < CHUNK ? whole.count - at : CHUNK;
        Z3D_TRY(z3d_checkpoint_read(c, Z3D_TENSOR_PARAMETER, tensor, &whole, at, count, chunk));
        for (int64_t i = 0; i < count; i++) {
            sum[column] += (double)chunk[i];
            if (++column == whole.inner) column = 0;
        }
    }
    for (int64_t i = 0; i < whole.inner; i++) mean[i] = (float)(sum[i] / (double)whole.global);
    return Z3D_OK;
}

static z3d_status make_mean(z3d_checkpoint *c, int tensor, int64_t columns, float *mean) {
    double *sum = NULL;
    float *chunk = NULL;
    z3d_status status = z3d_new((size_t)columns, sizeof *sum, "a row of a token table", &sum);
    if (status == Z3D_OK)
        status = z3d_new(CHUNK, sizeof *chunk, "a buffer to read through", &chunk);
    if (status == Z3D_OK) status = add_rows(c, tensor, sum, chunk, mean);
    free(sum);
    free(chunk);
    return status;
}

/* Writes this rank's part of the new rows, a row or less at a time. rows: the checkpoint's number
 * of rows. */
static z3d_status write_rows(z3d_engine *engine, int group, int parameter, int64_t rows,
                             const float *mean) {
    z3d_part part;
    z3d_engine_kept_part(engine, group, parameter, &part);
    const int64_t old = rows > part.offset ? (rows - part.offset) * part.inner : 0;
    const int64_t end = part.first + part.count;
    for (int64_t at = part.first > old ? part.first : old, count; at < end; at += count) {
        const int64_t column = at % part.inner;
        count = part.inner - column < end - at ? part.inner - column : end - at;
        Z3D_TRY(z3d_engine_write_part(engine, Z3D_TENSOR_PARAMETER, group, parameter, at, count,
                                      mean + column));
    }
    return Z3D_OK;
}

static z3d_status fill(z3d_world *world, z3d_checkpoint *c, int tensor, z3d_engine *engine,
                       int group, int parameter) {
    static const char place[] = "checkpoint: reading";
    const z3d_tensor *t = z3d_checkpoint_tensor(c, tensor);
    float *mean;
    z3d_status status = z3d_new((size_t)t->inner, sizeof *mean, "a row of a token table", &mean);
    if (status == Z3D_OK && z3d_world_rank(world) == 0)
        status = make_mean(c, tensor, t->inner, mean);
    status = z3d_checkpoint_agree(world, place, status);
    if (status == Z3D_OK)
        status = z3d_world_broadcast(world, mean, t->inner * (int64_t)sizeof *mean, 0);
    if (status == Z3D_OK) status = write_rows(engine, group, parameter, t->global, mean);
    free(mean);
    return z3d_checkpoint_agree(world, place, status);
}

static void say(int64_t ids, int64_t old) {
    const int64_t added = ids - old;
    z3d_log(Z3D_LOG_INFO,
            "model.vocab_size %lld exceeds the checkpoint's %lld: %lld new row%s of each token "
            "table start%s at the mean of the others",
            (long long)ids, (long long)old, (long long)added, z3d_plural(added),
            added == 1 ? "s" : "");
}

z3d_status z3d_fill_new_rows(z3d_world *world, z3d_checkpoint *c, const z3d_model *model,
                             z3d_engine *engine) {
    bool said = z3d_world_rank(world) != 0;
    for (int g = 0; g < model->num_groups; g++)
        for (int i = 0; i < model->group[g].num_parameters; i++) {
            if (!z3d_has_new_rows(c, &model->group[g], i)) continue;
            const int tensor = z3d_checkpoint_find_parameter(c, &model->group[g], i);
            if (!said)
                say(model->group[g].parameter[i].shape[0],
                    z3d_checkpoint_tensor(c, tensor)->global);
            said = true;
            Z3D_TRY(fill(world, c, tensor, engine, g, i));
        }
    return Z3D_OK;
}
