/* A GPT with its engine. */
#include "tests/gpu/model.h"

#include <stdlib.h>
#include <string.h>

/* Samples of one micro-batch. */
static int64_t micro_of(const check_model *m) {
    return m->batch / z3d_mesh_size(&m->mesh, Z3D_AXES_DATA) / m->accumulation;
}

static z3d_status make_engine(check_context *context, check_model *m) {
    int64_t micro = micro_of(m);
    z3d_engine_config config = {
        .model = m->model,
        .mesh = m->mesh,
        .device = m->device,
        .world = context->world,
        .program = {.stage = m->stage,
                    .dtype = m->dtype,
                    .grad_dtype = m->dtype,
                    .micro_batch = micro,
                    .accumulation = m->accumulation,
                    .reduce_per_step = m->stage < 2,
                    .recompute = m->recompute,
                    .checkpoint_every = 1,
                    .checkpoint_space = m->offload ? Z3D_SPACE_HOST : Z3D_SPACE_DEVICE,
                    .overlap = true,
                    .reduce_bucket = 64 << 20,
                    .gather_bucket = 64 << 20},
        .optimizer = {.beta1 = 0.9f, .beta2 = 0.95f, .epsilon = 1e-8f, .weight_decay = 0.1f},
        .gradient_clipping = 1,
        .scaler = m->scaler,
        .seed = 42,
        .graph = m->graph,
        .verify = true};
    memcpy(config.group, m->group, sizeof m->group);
    size_t count = (size_t)(m->accumulation * micro * m->seq);
    Z3D_TRY(z3d_new(count, sizeof *m->tokens, "tokens", &m->tokens));
    Z3D_TRY(z3d_new(count, sizeof *m->targets, "targets", &m->targets));
    return z3d_engine_create(&config, &m->engine);
}

z3d_status check_model_create(check_context *context, const z3d_device_config *device,
                              check_model *m) {
    int ranks = z3d_world_size(context->world);
    if (m->tensor == 0) m->tensor = 1;
    if (m->accumulation == 0) m->accumulation = 1;
    if (m->scaler.scale == 0) m->scaler.scale = 1;
    Z3D_TRY(
        z3d_mesh_make(m->tensor, ranks / m->tensor, 1, z3d_world_rank(context->world), &m->mesh));
    z3d_gpt_config gpt = {.num_layers = m->layers,
                          .hidden_size = m->hidden,
                          .num_heads = m->heads,
                          .seq_length = m->seq,
                          .vocab_size = m->vocabulary,
                          .vocab_multiple = 128,
                          .hidden_dropout = m->dropout,
                          .attention_dropout = m->dropout,
                          .init_std = 0.02,
                          .tensor_size = m->tensor};
    Z3D_TRY(z3d_gpt_create(&gpt, &m->model));
    Z3D_TRY(z3d_device_create(device, &m->device));
    Z3D_TRY(z3d_groups_create(context->world, &m->mesh, m->device, m->group));
    return make_engine(context, m);
}

void check_model_destroy(check_model *m) {
    z3d_engine_destroy(m->engine);
    z3d_groups_destroy(m->group);
    z3d_device_destroy(m->device);
    z3d_model_destroy(m->model);
    free(m->tokens);
    free(m->targets);
}

/* A counting sequence with noise: something to learn, a function of the global sample. */
static int32_t token(int64_t sample, int64_t i, int64_t vocabulary) {
    uint64_t r = ((uint64_t)sample * 1000003u + (uint64_t)i) * 0x9e3779b97f4a7c15u;
    r ^= r >> 29;
    return (int32_t)((r % 4 == 0 ? r >> 7 : (uint64_t)(sample * 7 + i * 3)) % (uint64_t)vocabulary);
}

z3d_status check_model_step(check_model *m, z3d_step_result *out) {
    enum { MOST_MICRO = 8 };
    z3d_micro_batch batch[MOST_MICRO];
    int64_t micro = micro_of(m), base = m->step * m->batch;
    Z3D_REQUIRE(m->accumulation <= MOST_MICRO, "%d micro-batches", m->accumulation);
    for (int k = 0; k < m->accumulation; k++) {
        int64_t at = k * micro * m->seq;
        int64_t before = k * z3d_mesh_size(&m->mesh, Z3D_AXES_DATA) +
                         z3d_mesh_index(&m->mesh, Z3D_AXES_DATA, m->mesh.rank);
        for (int64_t i = 0; i < micro * m->seq; i++) {
            int64_t sample = base + before * micro + i / m->seq;
            m->tokens[at + i] = token(sample, i % m->seq, m->vocabulary);
            m->targets[at + i] = token(sample, i % m->seq + 1, m->vocabulary);
        }
        batch[k] = (z3d_micro_batch){.field = {m->tokens + at, m->targets + at}};
    }
    m->step++;
    z3d_step_input input = {.micro = batch,
                            .sample_base = base,
                            .global_targets = m->batch * m->seq,
                            .learning_rate = 1e-3f / (float)m->step,
                            .stop_requested = m->step == 3};
    return z3d_engine_train_step(m->engine, &input, out);
}
