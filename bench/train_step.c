/* Seconds of a training step through the engine, of GPT-2 124M or of a Llama of its shape, beside
 * the seconds of its matrix products alone (parts/floor.h), measured in the same process:
 * train_step gpt2|llama BATCH SEQ [stage] [threads] [steps] [dtype]. BATCH is the global batch over
 * all ranks. Rank 0 prints one line. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/parts/floor.h"
#include "bench/parts/model.h"
#include "zero/zero.h"

struct bench {
    z3d_world *world;
    z3d_mesh mesh;
    z3d_model *model;
    z3d_device *device;
    z3d_group *group[Z3D_AXES_COUNT];
    z3d_engine *engine;
    int64_t batch, seq;
    int stage, threads, steps;
    z3d_dtype dtype;
    bool llama;
};

static z3d_status create(struct bench *s) {
    int ranks = z3d_world_size(s->world);
    Z3D_TRY(z3d_mesh_make(1, ranks, 1, z3d_world_rank(s->world), &s->mesh));
    Z3D_TRY(bench_model_create(s->llama, s->seq, &s->model));
    Z3D_TRY(z3d_device_create(&(z3d_device_config){.backend = "cpu", .threads = s->threads},
                              &s->device));
    Z3D_TRY(z3d_groups_create(s->world, &s->mesh, s->device, s->group));
    z3d_engine_config config = {
        .model = s->model,
        .mesh = s->mesh,
        .device = s->device,
        .world = s->world,
        .program = {.stage = s->stage,
                    .dtype = s->dtype,
                    .grad_dtype = s->dtype,
                    .micro_batch = s->batch / ranks,
                    .accumulation = 1,
                    .reduce_per_step = s->stage < 2,
                    .overlap = true,
                    .reduce_bucket = 4 << 20,
                    .gather_bucket = 4 << 20},
        .optimizer = {.beta1 = 0.9f, .beta2 = 0.95f, .epsilon = 1e-8f, .weight_decay = 0.1f},
        .gradient_clipping = 1,
        .scaler = {.scale = 1},
        .seed = 1};
    memcpy(config.group, s->group, sizeof s->group);
    return z3d_engine_create(&config, &s->engine);
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Median seconds of a step, the first left out. */
static z3d_status time_steps(struct bench *s, double *median) {
    int64_t count = s->batch / z3d_world_size(s->world) * s->seq;
    double seconds[64];
    int32_t *tokens = malloc((size_t)count * 4);
    if (!tokens) return Z3D_ERROR(Z3D_ERR_MEMORY, "batch");
    for (int64_t i = 0; i < count; i++) tokens[i] = (int32_t)((i * 7919) % VOCABULARY);
    z3d_micro_batch micro = {.field = {tokens, tokens}};
    z3d_step_input input = {
        .micro = &micro, .global_targets = s->batch * s->seq, .learning_rate = 1e-4f};
    z3d_status status = Z3D_OK;
    for (int k = 0; k <= s->steps && status == Z3D_OK; k++) {
        z3d_step_result result;
        status = z3d_engine_train_step(s->engine, &input, &result);
        if (k > 0) seconds[k - 1] = result.seconds;
    }
    free(tokens);
    qsort(seconds, (size_t)s->steps, sizeof *seconds, by_value);
    *median = seconds[s->steps / 2];
    return status;
}

static z3d_status measure(struct bench *s) {
    double step = 0;
    Z3D_TRY(create(s));
    Z3D_TRY(time_steps(s, &step));
    bool alone = z3d_world_size(s->world) == 1;
    double bare = alone ? bench_floor_train(s->llama, s->batch * s->seq) : 0;
    if (z3d_world_rank(s->world) > 0) return Z3D_OK;
    printf("%s %s B %lld x T %lld stage %d ranks %d threads %d: %.3f s/step, %.0f tokens/s",
           s->llama ? "llama-123M" : "gpt2-124M", z3d_dtype_name(s->dtype), (long long)s->batch,
           (long long)s->seq, s->stage, z3d_world_size(s->world), z3d_device_threads(s->device),
           step, (double)(s->batch * s->seq) / step);
    if (alone) printf(", products alone %.3f s, ratio %.3f", bare, bare / step);
    printf("\n");
    return Z3D_OK;
}

int main(int argc, char **argv) {
    struct bench s = {.stage = 0, .threads = 0, .steps = 5, .dtype = Z3D_F32};
    if (argc < 4) {
        fprintf(stderr, "usage: train_step gpt2|llama BATCH SEQ [stage] [threads] [steps, at most "
                        "64] [fp32|bf16]\n");
        return 2;
    }
    s.llama = strcmp(argv[1], "llama") == 0;
    s.batch = atoll(argv[2]);
    s.seq = atoll(argv[3]);
    if (argc > 4) s.stage = atoi(argv[4]);
    if (argc > 5) s.threads = atoi(argv[5]);
    if (argc > 6) s.steps = atoi(argv[6]);
    if (argc > 7 && strcmp(argv[7], "bf16") == 0) s.dtype = Z3D_BF16;
    if (s.steps < 1 || s.steps > 64) s.steps = 5;
    if (z3d_world_create(&argc, &argv, &s.world) != Z3D_OK) {
        fprintf(stderr, "%s\n", z3d_error_message());
        return 1;
    }
    z3d_status status = measure(&s);
    if (status != Z3D_OK) z3d_world_abort(s.world, status, z3d_error_message());
    z3d_engine_destroy(s.engine);
    z3d_groups_destroy(s.group);
    z3d_device_destroy(s.device);
    z3d_model_destroy(s.model);
    z3d_world_destroy(s.world);
    return 0;
}
