/* A GPT or a Llama that trains for some steps. */
#include "tests/gpu/model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "src/device/sim/tape.h"
#include "src/model/llama/llama.h"

check_model check_model_make(int64_t layers, int64_t hidden, int64_t heads, int64_t seq,
                             int64_t vocabulary, int64_t batch) {
    return (check_model){.gpt = {.num_layers = layers,
                                 .hidden_size = hidden,
                                 .num_heads = heads,
                                 .seq_length = seq,
                                 .vocab_size = vocabulary,
                                 .vocab_multiple = 128,
                                 .init_std = 0.02,
                                 .tensor_size = 1},
                         .engine = {.program = {.accumulation = 1,
                                                .overlap = true,
                                                .reduce_bucket = 64 << 20,
                                                .gather_bucket = 64 << 20},
                                    .optimizer = {.beta1 = 0.9f,
                                                  .beta2 = 0.95f,
                                                  .epsilon = 1e-8f,
                                                  .weight_decay = 0.1f},
                                    .gradient_clipping = 1,
                                    .scaler = {.scale = 1},
                                    .seed = 42,
                                    .verify = true},
                         .batch = batch};
}

enum { MOST_MICRO = 8 };

typedef struct trainer {
    check_model of; /* complete */
    z3d_model *model;
    z3d_engine *engine;
    int64_t count;             /* tokens of this rank's micro-batches */
    int32_t *tokens, *targets; /* one block */
} trainer;

static z3d_status make_model(const check_model *m, z3d_model **out) {
    const z3d_gpt_config *g = &m->gpt;
    if (m->kv_heads == 0) return z3d_gpt_create(g, out);
    const z3d_llama_config llama = {.num_layers = g->num_layers,
                                    .hidden_size = g->hidden_size,
                                    .num_heads = g->num_heads,
                                    .num_key_value_heads = m->kv_heads,
                                    .head_dim = g->hidden_size / g->num_heads,
                                    .intermediate_size = m->intermediate,
                                    .seq_length = g->seq_length,
                                    .vocab_size = g->vocab_size,
                                    .vocab_multiple = g->vocab_multiple,
                                    .init_std = g->init_std,
                                    .rms_norm_eps = 1e-5,
                                    .rope = {.theta = 5e5},
                                    .tensor_size = g->tensor_size};
    return z3d_llama_create(&llama, out);
}

static z3d_status create(check_context *context, const z3d_device_config *device, trainer *t) {
    z3d_engine_config *engine = &t->of.engine;
    z3d_program_config *program = &engine->program;
    const int tensor = t->of.gpt.tensor_size, data = z3d_world_size(context->world) / tensor;
    engine->world = context->world;
    Z3D_REQUIRE(program->accumulation <= MOST_MICRO, "%d micro-batches", program->accumulation);
    Z3D_TRY(z3d_mesh_make(tensor, data, 1, z3d_world_rank(engine->world), &engine->mesh));
    Z3D_TRY(make_model(&t->of, &t->model));
    engine->model = t->model;
    Z3D_TRY(z3d_device_create(device, &engine->device));
    Z3D_TRY(z3d_groups_create(engine->world, &engine->mesh, engine->device, engine->group));
    program->micro_batch = t->of.batch / data / program->accumulation;
    program->grad_dtype = program->dtype;
    program->reduce_per_step = program->stage < 2;
    t->count = t->of.batch / data * t->of.gpt.seq_length;
    Z3D_TRY(z3d_new((size_t)t->count, 2 * sizeof *t->tokens, "tokens", &t->tokens));
    t->targets = t->tokens + t->count;
    return z3d_engine_create(engine, &t->engine);
}

static void destroy(trainer *t) {
    z3d_engine_destroy(t->engine);
    z3d_groups_destroy(t->of.engine.group);
    z3d_device_destroy(t->of.engine.device);
    z3d_model_destroy(t->model);
    free(t->tokens);
}

/* A counting sequence with noise: something to learn, a function of the global sample. */
static int32_t token(int64_t sample, int64_t i, int64_t vocabulary) {
    uint64_t r = ((uint64_t)sample * 1000003u + (uint64_t)i) * 0x9e3779b97f4a7c15u;
    r ^= r >> 29;
    return (int32_t)((r % 4 == 0 ? r >> 7 : (uint64_t)(sample * 7 + i * 3)) % (uint64_t)vocabulary);
}

/* base: the step's first sample. */
static void fill_batch(const trainer *t, int64_t base, z3d_micro_batch *batch) {
    const z3d_mesh *mesh = &t->of.engine.mesh;
    const int64_t seq = t->of.gpt.seq_length, vocabulary = t->of.gpt.vocab_size;
    const int accumulation = t->of.engine.program.accumulation;
    base += z3d_mesh_index(mesh, Z3D_AXES_DATA, mesh->rank) * (t->count / seq);
    for (int64_t i = 0; i < t->count; i++) {
        t->tokens[i] = token(base + i / seq, i % seq, vocabulary);
        t->targets[i] = token(base + i / seq, i % seq + 1, vocabulary);
    }
    for (int k = 0; k < accumulation; k++) {
        int64_t at = k * (t->count / accumulation);
        batch[k] = (z3d_micro_batch){.field = {t->tokens + at, t->targets + at}};
    }
}

static z3d_status run_steps(const trainer *t, z3d_tape *tape, int steps, check_run *run) {
    z3d_micro_batch batch[MOST_MICRO], other = {.field = {t->tokens, t->tokens}};
    z3d_step_input input = {.global_targets = t->of.batch * t->of.gpt.seq_length};
    double targets = 0;
    bool stop;
    Z3D_REQUIRE(steps <= CHECK_STEPS, "%d steps", steps);
    for (int i = 0; i < steps; i++) {
        input.micro = batch;
        input.sample_base = i * t->of.batch;
        input.learning_rate = 1e-3f / (float)(i + 1);
        input.stop_requested = i == 2;
        fill_batch(t, input.sample_base, batch);
        if (tape) z3d_tape_clear(tape);
        Z3D_TRY(z3d_engine_train_step(t->engine, &input, &run->step[i]));
        if (i != 1) continue;
        /* Another program between two steps: the same memory, and a batch of its own. */
        input.micro = &other;
        Z3D_TRY(z3d_engine_evaluate(t->engine, &input, &run->validation, &targets, &stop));
    }
    return Z3D_OK;
}

static void measure(const trainer *t, check_run *run) {
    const z3d_model_flops *flops = &t->model->facts.flops;
    for (int axes = 0; axes < Z3D_AXES_COUNT; axes++) {
        run->buffers += z3d_group_buffer_bytes(t->of.engine.group[axes]);
        for (int kind = 0; kind < Z3D_COLLECTIVE_COUNT; kind++) {
            const z3d_traffic *traffic =
                z3d_group_traffic(t->of.engine.group[axes], (z3d_collective_kind)kind);
            run->calls += traffic->calls + traffic->scalar_calls;
            run->untimed += !isfinite(traffic->seconds) && !isfinite(traffic->exposed_seconds);
        }
    }
    for (int s = 0; s < Z3D_SPACE_COUNT; s++)
        run->peak[s] = z3d_engine_measured(t->engine, (z3d_space)s)->total_peak;
    run->launches = z3d_engine_graph_launches(t->engine);
    run->arena = z3d_engine_arena_bytes(t->engine);
    run->used = z3d_device_used_bytes(t->of.engine.device);
    run->flops = flops->step - 1.5 * (double)t->of.gpt.num_layers * flops->attention;
}

z3d_status check_train(check_context *context, const z3d_device_config *device, check_model model,
                       int steps, check_run *out) {
    trainer t = {.of = model};
    *out = (check_run){0};
    z3d_status status = create(context, device, &t);
    if (status == Z3D_OK) status = run_steps(&t, device->tape, steps, out);
    if (status == Z3D_OK) measure(&t, out);
    destroy(&t);
    return status;
}
