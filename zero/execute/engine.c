/* The engine: layout, traces, programs, plan, verification and memory at creation; then one program
 * run per call. */
#include "zero/execute/engine.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/rng.h"

/* ---- creation ---- */

static z3d_status open_disk(z3d_engine *engine) {
    z3d_program *all[2 * Z3D_MODE_COUNT];
    const int count = z3d_program_set_list(&engine->set, all);
    int requests = 1;
    if (engine->config.without_values) return Z3D_OK;
    if (!engine->config.nvme_path)
        return Z3D_ERROR(Z3D_ERR_CONFIG, "states on the disk need a folder: nvme_path");
    for (int k = 0; k < count; k++) {
        int most = z3d_executor_disk_requests(all[k]);
        if (most > requests) requests = most;
    }
    const z3d_disk_config config = {.folder = engine->config.nvme_path,
                                    .bytes = engine->arena_bytes[Z3D_SPACE_DISK],
                                    .requests = requests};
    z3d_status status = z3d_disk_create(&config, &engine->disk);
    return status == Z3D_OK ? Z3D_OK : z3d_error_context(status, "offload to nvme_path");
}

static z3d_status allocate(z3d_engine *engine) {
    char bytes[32];
    const z3d_program *common = engine->set.program[z3d_program_set_main(&engine->set)];
    memcpy(engine->arena_bytes, common->arena, sizeof common->arena); /* as all programs have it */
    for (int s = 0; s < Z3D_SPACE_COUNT; s++) {
        if (engine->arena_bytes[s] == 0) continue;
        if (s == Z3D_SPACE_DISK) {
            Z3D_TRY(open_disk(engine));
            continue;
        }
        z3d_status status = z3d_device_alloc(engine->config.device, (z3d_space)s,
                                             engine->arena_bytes[s], (void **)&engine->arena[s]);
        if (status != Z3D_OK)
            return z3d_error_context(status, "the arena of %s",
                                     z3d_format_bytes(engine->arena_bytes[s], bytes, sizeof bytes));
    }
    if (!z3d_device_host_reads(engine->config.device)) {
        engine->mailbox_bytes = z3d_executor_mailbox_bytes(common);
        Z3D_TRY(z3d_device_alloc(engine->config.device, Z3D_SPACE_HOST, engine->mailbox_bytes,
                                 (void **)&engine->mailbox));
    }
    z3d_device_set_scratch(engine->config.device,
                           engine->arena[Z3D_SPACE_DEVICE] +
                               common->buffer[Z3D_BUFFER_SCRATCH].offset,
                           common->buffer[Z3D_BUFFER_SCRATCH].bytes);
    return Z3D_OK;
}

/* Prepares the groups for collectives in the arena. `layout` is equal on ranks whose buffers all
 * lie at equal offsets. Collective. */
static z3d_status share_arena(const z3d_engine *engine) {
    z3d_program *all[2 * Z3D_MODE_COUNT];
    const int count = z3d_program_set_list(&engine->set, all);
    uint64_t layout = 0;
    int64_t bucket[Z3D_AXES_COUNT] = {0};
    for (int k = 0; k < count; k++) {
        z3d_program_buckets(all[k], bucket);
        for (int i = 0; i < all[k]->num_buffers; i++) {
            const z3d_buffer *b = &all[k]->buffer[i];
            const int64_t place[] = {k, i, b->space, b->offset, b->bytes};
            layout = z3d_hash(layout, place, sizeof place);
        }
    }
    return z3d_groups_use(engine->config.group, engine->arena[Z3D_SPACE_DEVICE],
                          engine->arena_bytes[Z3D_SPACE_DEVICE], layout, bucket);
}

static z3d_status open_output(const char *path, const char *what, FILE **out) {
    if (!path) return Z3D_OK;
    *out = fopen(path, "w");
    if (!*out) return Z3D_ERROR(Z3D_ERR_IO, "%s %s: %s", what, path, strerror(errno));
    return Z3D_OK;
}

static z3d_status make_executor(z3d_engine *engine, const z3d_program *program,
                                z3d_executor *executor) {
    const z3d_engine_config *c = &engine->config;
    if (!program) return Z3D_OK;
    *executor = (z3d_executor){
        .config = c,
        .device = c->device,
        .host = c->host ? c->host : c->device,
        .group = c->group,
        .digest = program->mode == Z3D_MODE_TRAIN ? engine->digest : NULL,
        .mailbox = engine->mailbox,
        .disk = engine->disk,
    };
    if (program->mode == Z3D_MODE_TRAIN && !z3d_graph_obstacle(c)) executor->graph.mode = c->graph;
    memcpy(executor->arena, engine->arena, sizeof executor->arena);
    return z3d_executor_create(program, executor);
}

/* The collectives' own buffers are outside the arena, but count as communication. */
static void count_group_buffers(z3d_engine *engine) {
    for (int axes = 0; axes < Z3D_AXES_COUNT; axes++) {
        int64_t bytes = z3d_group_buffer_bytes(engine->config.group[axes]);
        engine->group_bytes += bytes;
        engine->planned[Z3D_SPACE_DEVICE].peak[Z3D_CATEGORY_COMMUNICATION] += bytes;
        engine->planned[Z3D_SPACE_DEVICE].total_peak += bytes;
        z3d_ledger_add(&z3d_engine_main(engine)->measured[Z3D_SPACE_DEVICE],
                       Z3D_CATEGORY_COMMUNICATION, bytes);
    }
}

/* Units may have groups that z3d_axes_have_group does not know; the caller makes these. */
static z3d_status check_groups(const z3d_engine_config *c) {
    for (int u = 0; u < c->model->num_units; u++)
        for (int slot = 0; slot < Z3D_MAX_PROCESS_GROUPS; slot++) {
            const z3d_axes axes = z3d_unit_process_axes(&c->model->unit[u], slot);
            if (axes != Z3D_AXES_NONE && !c->group[axes])
                return Z3D_ERROR(Z3D_ERR_USAGE,
                                 "unit %s has a process group over %s, but the engine is given "
                                 "none; make it with z3d_group_create",
                                 c->model->unit[u].name, z3d_axes_name(axes).text);
        }
    return Z3D_OK;
}

static z3d_status create(z3d_engine *engine) {
    const z3d_engine_config *c = &engine->config;
    const char *obstacle = c->graph == Z3D_GRAPH_ON ? z3d_graph_obstacle(c) : NULL;
    if (obstacle)
        return Z3D_ERROR(Z3D_ERR_CONFIG,
                         "training.cuda_graph: on is not possible here: %s; use auto", obstacle);
    Z3D_TRY(z3d_program_set_create(c->model, &c->mesh, &c->program, z3d_device_threads(c->device),
                                   c->verify, &engine->set));
    Z3D_TRY(check_groups(c));
    Z3D_TRY(open_output(c->digest_path, "digest file", &engine->digest));
    Z3D_TRY(open_output(c->trace_path, "trace file", &engine->trace));
    const z3d_program *train = engine->set.program[Z3D_MODE_TRAIN];
    if (engine->trace) z3d_trace_begin(engine->trace, c, train ? train->num_instructions : 0);
    Z3D_TRY(allocate(engine));
    Z3D_TRY(share_arena(engine));
    for (int mode = 0; mode < Z3D_MODE_COUNT; mode++) {
        Z3D_TRY(make_executor(engine, engine->set.program[mode], &engine->executor[mode]));
        Z3D_TRY(make_executor(engine, engine->set.again[mode], &engine->again_executor[mode]));
    }
    for (int space = 0; space < Z3D_SPACE_COUNT; space++)
        z3d_program_ledger(z3d_engine_main(engine)->program, (z3d_space)space,
                           &engine->planned[space]);
    count_group_buffers(engine);
    engine->state =
        (z3d_engine_state){.loss_scale = c->scaler.scale, .hysteresis_left = c->scaler.hysteresis};
    if (c->without_values || c->program.inference) return Z3D_OK;
    engine->executor[Z3D_MODE_TRAIN].now.skip = 1; /* nothing is pending */
    return z3d_engine_init_parameters(engine);
}

z3d_status z3d_engine_create(const z3d_engine_config *config, z3d_engine **out) {
    *out = NULL;
    z3d_engine *engine = NULL;
    Z3D_TRY(z3d_new(1, sizeof *engine, "engine", &engine));
    engine->config = *config;
    z3d_status status = create(engine);
    if (status != Z3D_OK) {
        z3d_engine_destroy(engine);
        return status;
    }
    *out = engine;
    return Z3D_OK;
}

void z3d_engine_destroy(z3d_engine *engine) {
    if (!engine) return;
    for (int mode = 0; mode < Z3D_MODE_COUNT; mode++) {
        z3d_executor_destroy(&engine->executor[mode]);
        z3d_executor_destroy(&engine->again_executor[mode]);
    }
    z3d_device_set_scratch(engine->config.device, NULL, 0);
    z3d_disk_destroy(engine->disk); /* first: its transfers use the arenas */
    for (int s = 0; s < Z3D_SPACE_COUNT; s++)
        if (engine->arena[s])
            z3d_device_free(engine->config.device, (z3d_space)s, engine->arena[s],
                            engine->arena_bytes[s]);
    if (engine->mailbox)
        z3d_device_free(engine->config.device, Z3D_SPACE_HOST, engine->mailbox,
                        engine->mailbox_bytes);
    z3d_program_set_release(&engine->set);
    if (engine->digest) fclose(engine->digest);
    if (engine->trace) {
        z3d_trace_end(engine->trace);
        fclose(engine->trace);
    }
    free(engine);
}

/* ---- running ---- */

static double exposed_seconds(const z3d_engine *engine) {
    double sum = 0;
    for (int axes = 0; axes < Z3D_AXES_COUNT; axes++)
        for (int kind = 0; kind < Z3D_COLLECTIVE_COUNT; kind++)
            sum += z3d_group_traffic(engine->config.group[axes], (z3d_collective_kind)kind)
                       ->exposed_seconds;
    return sum;
}

/* Flushes after each step, so that a full disk fails the step, not the end of the run. */
static z3d_status flush_output(FILE *file, const char *what, const char *path) {
    if (!file || (fflush(file) == 0 && !ferror(file))) return Z3D_OK;
    return Z3D_ERROR(Z3D_ERR_IO, "%s %s: %s", what, path, strerror(errno));
}

/* Switches the timeline's events for waits for collectives on or off. */
static void trace_waits(z3d_executor *executor, bool on) {
    for (int axes = 0; axes < Z3D_AXES_COUNT && executor->trace; axes++)
        if (executor->group[axes])
            z3d_group_set_wait_observer(executor->group[axes], on ? z3d_executor_trace_wait : NULL,
                                        executor);
}

static z3d_status run(z3d_engine *engine, z3d_mode mode, z3d_host_step *host) {
    z3d_executor *executor =
        engine->gathered[mode] ? &engine->again_executor[mode] : &engine->executor[mode];
    if (!engine->set.program[mode])
        return Z3D_ERROR(Z3D_ERR_USAGE, "this model has no output, so it cannot generate");
    bool traced = engine->state.step - engine->first_step <= engine->config.trace_steps;
    executor->trace = traced ? engine->trace : NULL;
    trace_waits(executor, true);
    engine->last = executor;
    z3d_status status = z3d_executor_run(executor, host);
    trace_waits(executor, false);
    Z3D_TRY(status);
    engine->gathered[mode] = engine->set.again[mode] != NULL;
    Z3D_TRY(flush_output(engine->digest, "digest file", engine->config.digest_path));
    return flush_output(executor->trace, "trace file", engine->config.trace_path);
}

/* The input of one run, with `count` micro-batches. */
static z3d_host_step host_step(const z3d_engine *engine, const z3d_step_input *input, int count) {
    float scale = engine->state.loss_scale;
    return (z3d_host_step){
        .state = {.step = engine->state.step,
                  .optimizer_step = engine->state.optimizer_step + 1,
                  .sample_base = input->sample_base,
                  .seed = engine->config.seed,
                  .learning_rate = input->learning_rate,
                  .loss_scale = scale,
                  .targets = (double)input->global_targets,
                  .gradient_seed =
                      input->global_targets > 0 ? scale / (float)input->global_targets : 0,
                  .stop_requested = input->stop_requested ? 1 : 0},
        .micro = input->micro,
        .micro_count = count,
        .gradient_clipping = engine->config.gradient_clipping,
    };
}

/* Waits for copies: the host's, or the kernels' where only these wait. */
static double transfer_seconds(const z3d_engine *engine) {
    return engine->executor[Z3D_MODE_TRAIN].transfer_wait_seconds +
           z3d_copies_waited(engine->config.device);
}

z3d_status z3d_engine_train_step(z3d_engine *engine, const z3d_step_input *input,
                                 z3d_step_result *out) {
    const z3d_executor *executor = &engine->executor[Z3D_MODE_TRAIN];
    double begin = z3d_now(), exposed = exposed_seconds(engine);
    double transfer = transfer_seconds(engine), disk = executor->disk_wait_seconds;
    double host_step_seconds = executor->host_step_seconds;
    engine->state.step++;
    z3d_engine_parameters_changed(engine);
    z3d_host_step host = host_step(engine, input, engine->config.program.accumulation);
    Z3D_TRY(run(engine, Z3D_MODE_TRAIN, &host));
    const bool empty = !(host.targets > 0) && input->global_targets > 0;
    if (!host.skipped) engine->state.optimizer_step++;
    if (!empty) { /* a step without targets does not change the loss scale */
        engine->state.skipped_in_a_row = host.skipped ? engine->state.skipped_in_a_row + 1 : 0;
        z3d_loss_scale_update(&engine->config.scaler, &engine->state, host.skipped);
    }
    *out = (z3d_step_result){
        .step = engine->state.step,
        .loss = host.targets > 0 ? host.loss_sum / host.targets : NAN,
        .grad_norm = host.grad_norm,
        .loss_scale = host.state.loss_scale,
        .targets = (int64_t)host.targets,
        .skipped = host.skipped,
        .overflow_group = host.overflow_group,
        .skipped_in_a_row = engine->state.skipped_in_a_row,
        .stop = host.stop,
        .seconds = z3d_now() - begin,
        .exposed_seconds = z3d_mesh_size(&engine->config.mesh, Z3D_AXES_WORLD) == 1
                               ? 0
                               : exposed_seconds(engine) - exposed,
        .exposed_transfer_seconds = transfer_seconds(engine) - transfer,
        .exposed_disk_seconds = executor->disk_wait_seconds - disk,
        .host_step_seconds = executor->host_step_seconds - host_step_seconds,
    };
    return Z3D_OK;
}

z3d_status z3d_engine_evaluate(z3d_engine *engine, const z3d_step_input *input, double *loss_sum,
                               double *targets, bool *stop) {
    z3d_host_step host = host_step(engine, input, 1);
    Z3D_TRY(run(engine, Z3D_MODE_EVALUATE, &host));
    *loss_sum += host.loss_sum;
    *targets += host.targets;
    *stop = host.stop;
    return Z3D_OK;
}

z3d_status z3d_engine_own_loss(z3d_engine *engine, double *loss_sum, double *targets) {
    z3d_step_state state;
    *loss_sum = *targets = 0;
    if (!z3d_executor_counts_loss(engine->last)) return Z3D_OK;
    Z3D_TRY(z3d_device_read(engine->config.device, &state, z3d_executor_state(engine->last),
                            sizeof state));
    *loss_sum = state.loss_sum;
    *targets = state.valid_targets;
    return Z3D_OK;
}

z3d_status z3d_engine_generate(z3d_engine *engine, z3d_mode mode, int64_t sample,
                               const void *tokens, const void *positions, float *out) {
    const z3d_micro_batch micro = {.field = {tokens, positions}};
    const int64_t samples = z3d_samples_in_caches(&engine->set.config);
    if (z3d_mode_prefills(mode) && (sample < 0 || sample >= samples))
        return Z3D_ERROR(Z3D_ERR_USAGE, "generation has %lld samples, but %lld is asked for",
                         (long long)samples, (long long)sample);
    z3d_host_step host = {.state = {.step = engine->state.step},
                          .micro = &micro,
                          .micro_count = 1,
                          .output = out,
                          .cache_first = z3d_mode_prefills(mode) ? sample : 0};
    return run(engine, mode, &host);
}

/* ---- looking in ---- */

void z3d_engine_set_finished(z3d_engine *engine,
                             z3d_status (*finished)(void *context, const z3d_program *program,
                                                    int index, const uint64_t *digest),
                             void *context) {
    engine->executor[Z3D_MODE_TRAIN].finished = finished;
    engine->executor[Z3D_MODE_TRAIN].finished_context = context;
}

z3d_status z3d_engine_read_buffer(const z3d_engine *engine, int buffer, int64_t first, void *out,
                                  int64_t bytes) {
    const z3d_buffer *b = &engine->set.program[Z3D_MODE_TRAIN]->buffer[buffer];
    if (first < 0 || bytes < 0 || bytes > b->bytes - first)
        return Z3D_ERROR(Z3D_ERR_USAGE, "%s has no bytes %lld-%lld", z3d_buffer_name(b).text,
                         (long long)first, (long long)(first + bytes - 1));
    return z3d_executor_read(&engine->executor[Z3D_MODE_TRAIN], b->space, b->offset + first, out,
                             bytes);
}

void z3d_engine_get_state(const z3d_engine *engine, z3d_engine_state *out) {
    const z3d_step_state *now = &engine->executor[Z3D_MODE_TRAIN].now;
    *out = engine->state;
    out->pending = (z3d_pending_update){0};
    if (engine->config.program.offload.delayed && !now->skip)
        out->pending = (z3d_pending_update){true, now->optimizer_step, now->learning_rate,
                                            now->gradient_factor};
}

void z3d_engine_set_state(z3d_engine *engine, const z3d_engine_state *state) {
    const z3d_engine_state fixed = engine->state;
    engine->state = *state;
    engine->first_step = state->step;
    engine->executor[Z3D_MODE_TRAIN].now =
        (z3d_step_state){.optimizer_step = state->pending.optimizer_step,
                         .seed = engine->config.seed,
                         .learning_rate = state->pending.learning_rate,
                         .gradient_factor = state->pending.gradient_factor,
                         .skip = state->pending.waits ? 0 : 1};
    if (engine->config.scaler.dynamic) return;
    engine->state.loss_scale = fixed.loss_scale;
    engine->state.good_steps = fixed.good_steps;
    engine->state.hysteresis_left = fixed.hysteresis_left;
}

const z3d_ledger *z3d_engine_planned(const z3d_engine *engine, z3d_space space) {
    return &engine->planned[space];
}

const z3d_ledger *z3d_engine_measured(const z3d_engine *engine, z3d_space space) {
    return &z3d_engine_main(engine)->measured[space];
}

int64_t z3d_engine_arena_bytes(const z3d_engine *engine) {
    return engine->arena_bytes[Z3D_SPACE_DEVICE];
}

const void *z3d_engine_arena(const z3d_engine *engine, z3d_space space, int64_t *bytes) {
    *bytes = engine->arena_bytes[space];
    return engine->arena[space];
}

const z3d_program *z3d_engine_program(const z3d_engine *engine, z3d_mode mode) {
    return engine->set.program[mode];
}

const z3d_layout *z3d_engine_layout(const z3d_engine *engine) {
    return engine->set.layout;
}

int64_t z3d_engine_graph_launches(const z3d_engine *engine) {
    return engine->executor[Z3D_MODE_TRAIN].graph.launches;
}

const char *z3d_engine_disk(const z3d_engine *engine) {
    return engine->disk ? z3d_disk_description(engine->disk) : NULL;
}

z3d_device *z3d_engine_device(const z3d_engine *engine) {
    return engine->config.device;
}
