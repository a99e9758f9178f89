/* Creates all parts of a run from the agreed configuration, and destroys them. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "src/plan/choose/advice.h"
#include "src/plan/timeline_picture.h"
#include "src/train/trainer.h"

static z3d_status open_data(z3d_trainer *trainer) {
    const z3d_config *config = trainer->config;
    const z3d_dataset_config data = z3d_dataset_config_of(config, &config->data_validation);
    Z3D_TRY(z3d_train_data_open(config, &trainer->train));
    if (config->data_validation.count == 0) return Z3D_OK;
    z3d_status status = z3d_dataset_open(&data, &trainer->validation);
    return status == Z3D_OK ? status : z3d_error_context(status, "data.validation");
}

/* Checks this rank's part of the tokens; rank 0 compares the tokenizers. */
static z3d_status check_dataset(const z3d_trainer *trainer, const z3d_dataset *dataset,
                                const char *key, int32_t *largest) {
    int ranks = z3d_world_size(trainer->world);
    if (!dataset) return Z3D_OK;
    z3d_status status = z3d_dataset_check(dataset, trainer->rank, ranks, largest);
    if (status == Z3D_OK && trainer->rank == 0)
        status = z3d_dataset_check_tokenizer(dataset, trainer->config);
    return status == Z3D_OK ? status : z3d_error_context(status, "%s", key);
}

/* Collective, agreed. */
static z3d_status check_data(z3d_trainer *trainer) {
    int32_t largest = -1, *all = NULL;
    int ranks = z3d_world_size(trainer->world);
    z3d_status status = check_dataset(trainer, trainer->train, "data.train", &largest);
    if (status == Z3D_OK)
        status = check_dataset(trainer, trainer->validation, "data.validation", &largest);
    if (status == Z3D_OK) status = z3d_new((size_t)ranks, sizeof *all, "tokens", &all);
    status = z3d_trainer_agree(trainer, status);
    if (status == Z3D_OK)
        status = z3d_world_gather_all(trainer->world, &largest, all, sizeof largest);
    for (int i = 0; i < ranks && status == Z3D_OK; i++)
        largest = all[i] > largest ? all[i] : largest;
    trainer->largest_token = largest;
    free(all);
    return status;
}

static z3d_status make_tokenizer(z3d_trainer *trainer) {
    const z3d_config *config = trainer->config;
    if (!z3d_config_has_prompts(config)) return Z3D_OK;
    Z3D_TRY(z3d_tokenizer_of_config(config, &trainer->tokenizer));
    return z3d_trainer_check_prompts(trainer);
}

/* Whether the file has this text: a resumed run usually has the same configuration. */
static bool file_has(const char *path, const z3d_string *text) {
    char *there = NULL;
    size_t length;
    bool same = z3d_read_file(path, text->length, &there, &length) == Z3D_OK &&
                length == text->length && memcmp(there, text->text, length) == 0;
    free(there);
    return same;
}

static z3d_status write_config(z3d_trainer *trainer) {
    char *path = NULL;
    z3d_string text = {0};
    z3d_config_write(trainer->config, &text);
    z3d_status status = z3d_join_path(trainer->config->run_dir, "config.yaml", &path);
    if (status == Z3D_OK && text.failed)
        status = Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for the configuration's text");
    if (status == Z3D_OK && !file_has(path, &text))
        status = z3d_run_folder_keep(&trainer->folder, "config.yaml");
    if (status == Z3D_OK) status = z3d_write_whole_file(path, text.text, text.length);
    free(path);
    z3d_string_free(&text);
    return status;
}

static const char digest_files[] = "digest-rank*.txt", trace_files[] = "trace-rank*.json";

/* Rank 0: a new run keeps all files that an earlier run left in the folder. Files that this run
 * already writes were kept before. */
static z3d_status keep_earlier_run(z3d_trainer *trainer) {
    const z3d_config *config = trainer->config;
    z3d_run_folder *folder = &trainer->folder;
    static const char *const files[] = {"metrics.jsonl", "events.jsonl",
                                        "samples.jsonl", "config.yaml",
                                        "summary.json",  "events.out.tfevents.*.zero3d"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        Z3D_TRY(z3d_run_folder_keep(folder, files[i]));
    if (!config->training_digest) Z3D_TRY(z3d_run_folder_keep(folder, digest_files));
    return config->training_trace_steps > 0 ? Z3D_OK : z3d_run_folder_keep(folder, trace_files);
}

/* A resumed run keeps the lines up to `step`; later lines are moved to another file. */
static z3d_status continue_lines(z3d_trainer *trainer, z3d_line_file *file, const char *name,
                                 const char *path, int64_t step) {
    z3d_string kept = {0}, beyond = {0};
    z3d_status status = z3d_line_file_continue(file, path, step, &beyond);
    const bool moves = step < INT64_MAX && beyond.length > 0;
    if (status == Z3D_OK && moves) status = z3d_run_folder_kept_path(&trainer->folder, name, &kept);
    if (status == Z3D_OK && moves)
        status = z3d_write_whole_file(kept.text, beyond.text, beyond.length);
    if (status == Z3D_OK) status = z3d_line_file_cut(file, (int64_t)beyond.length);
    z3d_string_free(&kept);
    z3d_string_free(&beyond);
    return status;
}

/* Opens a file with lines of steps. A resumed run keeps those up to `last`; INT64_MAX: all, and an
 * incomplete last line is lost. */
static z3d_status open_lines(z3d_trainer *trainer, z3d_line_file *file, const char *name,
                             int64_t last) {
    char *path;
    Z3D_TRY(z3d_join_path(trainer->config->run_dir, name, &path));
    z3d_status status = trainer->resumed_step > 0 ? continue_lines(trainer, file, name, path, last)
                                                  : z3d_line_file_open(file, path);
    free(path);
    return status;
}

/* Rank 0: writes the resolved configuration and opens the files that grow with the run. */
static z3d_status open_run_files(z3d_trainer *trainer) {
    const int64_t step = trainer->resumed_step;
    if (step == 0) Z3D_TRY(keep_earlier_run(trainer));
    Z3D_TRY(write_config(trainer));
    z3d_status status = open_lines(trainer, &trainer->metrics, "metrics.jsonl", step);
    if (status == Z3D_OK && trainer->config->generate_every > 0)
        status = open_lines(trainer, &trainer->samples, "samples.jsonl", step);
    /* Events of steps that the run repeats stay. */
    if (status == Z3D_OK) status = open_lines(trainer, &trainer->events, "events.jsonl", INT64_MAX);
    if (status == Z3D_OK && trainer->config->run_tensorboard)
        status =
            z3d_tensorboard_open(&trainer->board, trainer->config->run_dir, (double)time(NULL));
    z3d_run_folder_say(&trainer->folder);
    return status;
}

static z3d_status make_device(z3d_trainer *trainer, int threads) {
    const z3d_config *config = trainer->config;
    bool cuda = config->training_device == Z3D_TRAINING_CUDA;
    z3d_device_config device = {
        .backend = cuda ? "cuda" : "cpu",
        .threads = threads,
        .local_rank = trainer->world ? z3d_world_local_rank(trainer->world) : 0,
        .host_collectives = config->training_collectives == Z3D_COLLECTIVES_HOST,
        .nccl_windows = config->training_nccl_windows,
        .tf32 = config->training_tf32,
        .attention = (z3d_attention_method)config->training_attention,
        .nondeterministic = !config->training_deterministic,
        .times = config->training_trace_steps > 0,
    };
    static const z3d_dtype types[] = {Z3D_F32, Z3D_BF16, Z3D_F16};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        device.gemm[types[i]] = z3d_trainer_gemm_method(trainer->config, types[i]);
    Z3D_TRY(z3d_device_create(&device, &trainer->device));
    Z3D_TRY(z3d_trainer_use_products(trainer));
    bool offloads = config->zero_optimization_offload_optimizer_device != Z3D_OFFLOAD_DEVICE_NONE ||
                    config->zero_optimization_offload_param_device != Z3D_OFFLOAD_DEVICE_NONE;
    if (!cuda || !offloads) return Z3D_OK;
    const z3d_device_config host = {.backend = "cpu", .threads = threads};
    return z3d_device_create(&host, &trainer->host_device);
}

static z3d_status allocate_batches(z3d_trainer *trainer) {
    const z3d_program_config *program = &trainer->program;
    int64_t count, rows = z3d_samples_of(program, &trainer->mesh);
    if (!z3d_mul_i64(rows, program->accumulation, &count) ||
        !z3d_mul_i64(count, trainer->config->model_seq_length, &count))
        return Z3D_ERROR(Z3D_ERR_CONFIG, "%lld samples x %d micro-batches x %lld tokens: too large",
                         (long long)rows, program->accumulation,
                         (long long)trainer->config->model_seq_length);
    Z3D_TRY(z3d_new((size_t)count, sizeof(int32_t), "a step's tokens", &trainer->tokens));
    Z3D_TRY(z3d_new((size_t)count, sizeof(int32_t), "a step's targets", &trainer->targets));
    if (trainer->config->data_samples == Z3D_SAMPLES_DOCUMENTS)
        Z3D_TRY(z3d_new((size_t)count, sizeof(int32_t), "a step's positions", &trainer->positions));
    Z3D_TRY(z3d_new((size_t)program->accumulation, sizeof *trainer->micro, "a step's micro-batches",
                    &trainer->micro));
    int64_t stride = rows * trainer->config->model_seq_length;
    for (int i = 0; i < program->accumulation; i++) {
        trainer->micro[i].field[0] = trainer->tokens + i * stride;
        trainer->micro[i].field[1] = trainer->targets + i * stride;
        if (trainer->positions) trainer->micro[i].field[2] = trainer->positions + i * stride;
    }
    return Z3D_OK;
}

static void fill_engine_config(const z3d_trainer *trainer, z3d_engine_config *out) {
    const z3d_config *config = trainer->config;
    static const z3d_graph_mode modes[] = {[Z3D_CUDA_GRAPH_AUTO] = Z3D_GRAPH_AUTO,
                                           [Z3D_CUDA_GRAPH_ON] = Z3D_GRAPH_ON,
                                           [Z3D_CUDA_GRAPH_OFF] = Z3D_GRAPH_OFF};
    bool fp16 = config->fp16_enabled, dynamic = fp16 && config->fp16_loss_scale == 0;
    float first = 1;
    for (int64_t i = 0; dynamic && i < config->fp16_initial_scale_power; i++) first *= 2;
    *out = (z3d_engine_config){
        .model = trainer->model,
        .mesh = trainer->mesh,
        .device = trainer->device,
        .host = trainer->host_device,
        .world = trainer->world,
        .program = trainer->program,
        .optimizer = {.beta1 = (float)config->optimizer_params_betas.value[0],
                      .beta2 = (float)config->optimizer_params_betas.value[1],
                      .epsilon = (float)config->optimizer_params_eps,
                      .momentum = (float)config->optimizer_params_momentum,
                      .weight_decay = (float)config->optimizer_params_weight_decay,
                      .ema_decay = (float)config->optimizer_ema_decay},
        .optimizer_group = trainer->optimizer_group,
        .gradient_clipping = config->gradient_clipping,
        .scaler = {.dynamic = dynamic,
                   .scale = fp16 && !dynamic ? (float)config->fp16_loss_scale : first,
                   .min_scale = (float)config->fp16_min_loss_scale,
                   .window = config->fp16_loss_scale_window,
                   .hysteresis = config->fp16_hysteresis},
        .seed = (uint64_t)config->training_seed,
        .graph = z3d_trainer_records(trainer) ? Z3D_GRAPH_OFF : modes[config->training_cuda_graph],
        .verify = config->training_verify,
        .trace_steps = config->training_trace_steps,
    };
    memcpy(out->group, trainer->group, sizeof out->group);
}

/* The name of the run in all ranks' timelines: its title, and the time when rank 0 began it, to the
 * nanosecond. Collective. */
static z3d_status name_traced_run(const z3d_trainer *trainer, z3d_string *out) {
    struct timespec now;
    struct tm utc;
    char date[32];
    clock_gettime(CLOCK_REALTIME, &now);
    Z3D_TRY(z3d_world_broadcast(trainer->world, &now, sizeof now, 0));
    strftime(date, sizeof date, "%Y-%m-%d %H:%M:%S", gmtime_r(&now.tv_sec, &utc));
    z3d_timeline_title(trainer->model, &trainer->mesh, &trainer->program, out);
    if (trainer->config->training_device == Z3D_TRAINING_CUDA)
        z3d_string_append(out, " (the host's times, not the GPU's)");
    z3d_string_append(out, ", %s.%09ld UTC", date, now.tv_nsec);
    return out->failed ? Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for the run's title") : Z3D_OK;
}

/* Texts that the engine's configuration points to. */
typedef struct instruction_files {
    z3d_string disk; /* the folder of states on the disk */
    z3d_string digest, trace, run;
} instruction_files;

/* Names this rank's file. The engine empties files before it writes, so rank 0 first keeps those of
 * an earlier run. */
static z3d_status name_file(z3d_trainer *trainer, const char *all, z3d_string *out) {
    const char *star = strchr(all, '*');
    z3d_string_append(out, "%s/%.*s%d%s", trainer->config->run_dir, (int)(star - all), all,
                      trainer->rank, star + 1);
    if (out->failed) return Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for a file's name");
    return trainer->rank == 0 ? z3d_run_folder_keep(&trainer->folder, all) : Z3D_OK;
}

/* The folder of the disk on this rank. If several keys are set, they name the same folder. */
static z3d_status name_disk(const z3d_config *config, bool inference, z3d_string *out) {
    const char *key = NULL;
    if (config->activation_checkpointing_cpu_checkpointing == Z3D_OFFLOAD_NVME && !inference)
        key = "activation_checkpointing.nvme_path";
    if (config->zero_optimization_offload_param_device == Z3D_OFFLOAD_DEVICE_NVME)
        key = "zero_optimization.offload_param.nvme_path";
    if (config->zero_optimization_offload_optimizer_device == Z3D_OFFLOAD_DEVICE_NVME && !inference)
        key = "zero_optimization.offload_optimizer.nvme_path";
    return key ? z3d_config_expand(config, key, out) : Z3D_OK;
}

/* Generation writes no such files: the folder belongs to the run. Collective, agreed. */
static z3d_status name_instruction_files(z3d_trainer *trainer, instruction_files *files) {
    const z3d_config *config = trainer->config;
    Z3D_TRY(
        z3d_trainer_agree(trainer, name_disk(config, trainer->program.inference, &files->disk)));
    if (trainer->program.inference) return Z3D_OK;
    z3d_status status =
        config->training_digest ? name_file(trainer, digest_files, &files->digest) : Z3D_OK;
    if (status == Z3D_OK && config->training_trace_steps > 0)
        status = name_file(trainer, trace_files, &files->trace);
    status = z3d_trainer_agree(trainer, status);
    if (status != Z3D_OK || config->training_trace_steps == 0) return status;
    return z3d_trainer_agree(trainer, name_traced_run(trainer, &files->run));
}

/* Warns of a slow disk, on rank 0. */
static void say_slow_disk(const z3d_trainer *trainer, const char *folder) {
    const char *disk = z3d_engine_disk(trainer->engine);
    if (disk && strcmp(disk, "io_uring, O_DIRECT") != 0)
        z3d_log(Z3D_LOG_INFO, "%s is read and written with %s", folder, disk);
}

/* Collective, agreed. */
static z3d_status make_engine(z3d_trainer *trainer) {
    z3d_engine_config engine;
    instruction_files files = {0};
    z3d_status status = z3d_trainer_agree(trainer, allocate_batches(trainer));
    if (status == Z3D_OK) status = name_instruction_files(trainer, &files);
    fill_engine_config(trainer, &engine);
    engine.nvme_path = files.disk.text;
    engine.digest_path = files.digest.text;
    engine.trace_path = files.trace.text;
    engine.trace_run = files.run.text;
    trainer->graph_obstacle = z3d_trainer_records(trainer) ? "a rank is recorded (--record-rank)"
                                                           : z3d_graph_obstacle(&engine);
    if (status == Z3D_OK) {
        status = z3d_engine_create(&engine, &trainer->engine);
        /* An error in the configuration happens on all ranks. An error of memory, a file or
         * communication may be this rank's alone, while the others wait in the collectives of their
         * creation. */
        if (status == Z3D_ERR_MEMORY || status == Z3D_ERR_IO || status == Z3D_ERR_COMM)
            status = z3d_trainer_stop_all(trainer, status);
        status = z3d_trainer_agree(trainer, status);
    }
    if (status == Z3D_OK) say_slow_disk(trainer, files.disk.text);
    z3d_string_free(&files.disk);
    z3d_string_free(&files.digest);
    z3d_string_free(&files.trace);
    z3d_string_free(&files.run);
    return status;
}

/* The memory budget of a rank of this node. now: by the memory that is free now, plus the memory
 * that this process has already, because the need counts it too. Otherwise by the memory of the
 * whole machine, for choices that decide a run's values: these must not depend on the memory that
 * is free at the moment. */
static z3d_room room_of(z3d_trainer *trainer, bool now) {
    const z3d_device *device = trainer->device;
    z3d_host_memory_find(&trainer->host);
    const int64_t host = now ? trainer->host.bytes : trainer->host.nominal;
    z3d_room room = {.device = now ? z3d_device_available(device) : z3d_device_memory(device),
                     .host = host == INT64_MAX ? host : host / z3d_world_local_size(trainer->world),
                     .shared = z3d_device_host_reads(device),
                     .from = trainer->host.from};
    if (room.shared) {
        const int64_t taken = now ? z3d_trainer_own_bytes() : 0;
        room.device = room.host;
        if (room.device < INT64_MAX)
            room.device += taken < Z3D_OUTSIDE_BYTES ? taken : Z3D_OUTSIDE_BYTES;
    } else if (room.device < INT64_MAX) { /* without the memory that libraries take */
        room.reserved = z3d_trainer_reserve(trainer, now);
        room.device = room.device > room.reserved ? room.device - room.reserved : 0;
    }
    return room;
}

/* The bytes that generation or evaluation needs on this rank with trainer->program. */
static z3d_status inference_bytes(const z3d_trainer *trainer, int threads, int64_t *out) {
    z3d_program_set set;
    z3d_status status = z3d_program_set_create(trainer->model, &trainer->mesh, &trainer->program,
                                               threads, false, &set);
    if (status == Z3D_OK) {
        const int64_t *arena = set.program[z3d_program_set_main(&set)]->arena;
        *out = arena[Z3D_SPACE_DEVICE];
        if (z3d_device_host_reads(trainer->device))
            *out += arena[Z3D_SPACE_HOST] + z3d_plan_outside(&trainer->mesh);
    }
    z3d_program_set_release(&set);
    return status;
}

/* *fits: whether this stage and batch fit in `share` of the available memory, on every rank.
 * *bytes: the need of this rank. Collective, agreed. */
static z3d_status try_inference(z3d_trainer *trainer, int threads, int64_t stage, int64_t batch,
                                double share, int64_t *bytes, bool *fits) {
    char *all;
    z3d_status made = z3d_new((size_t)z3d_world_size(trainer->world), 1, "who has room", &all);
    Z3D_TRY(z3d_trainer_agree(trainer, made));
    trainer->config->zero_optimization_stage = stage;
    const int64_t positions = trainer->program.generate_positions;
    z3d_status status = z3d_trainer_make_program(trainer);
    trainer->program.inference = true;
    trainer->program.evaluates = trainer->evaluates;
    trainer->program.generate_batch = batch;
    trainer->program.generate_positions = positions;
    if (status == Z3D_OK)
        status = z3d_trainer_agree(trainer, inference_bytes(trainer, threads, bytes));
    char mine = (double)*bytes <= share * (double)room_of(trainer, true).device;
    if (status == Z3D_OK) status = z3d_world_gather_all(trainer->world, &mine, all, sizeof mine);
    *fits = true;
    for (int rank = 0; rank < z3d_world_size(trainer->world); rank++) *fits &= all[rank] != 0;
    free(all);
    return status;
}

/* Chooses stage 0 if it fits: then every rank has all parameters and gathers none. Chooses the
 * largest batch that fits in half of the memory budget, because other processes need memory too; a
 * single prompt may use all of it. Collective, agreed. */
static z3d_status choose_inference(z3d_trainer *trainer, int threads, int64_t prompts,
                                   bool stage_given) {
    enum { LARGEST = 32 };
    char need[24], there[24], outside[24], beside[64] = "";
    const int replicas = z3d_mesh_size(&trainer->mesh, Z3D_ROLE_SAMPLES);
    const int64_t given = trainer->config->generate_batch;
    const int64_t configured = trainer->config->zero_optimization_stage;
    const bool far =
        trainer->config->zero_optimization_offload_param_device != Z3D_OFFLOAD_DEVICE_NONE;
    const int64_t stages[] = {stage_given || far ? configured : 0, configured};
    int64_t most = (prompts + replicas - 1) / replicas, bytes = 0;
    bool fits = false;
    if (most > (given == Z3D_AUTO ? LARGEST : given)) most = given == Z3D_AUTO ? LARGEST : given;
    for (int k = stages[0] == configured; k < 2 && !fits; k++)
        for (int64_t batch = most; batch > 0 && !fits; batch = given == Z3D_AUTO ? batch / 2 : 0) {
            double share = given == Z3D_AUTO && batch > 1 ? 0.5 : 1;
            Z3D_TRY(try_inference(trainer, threads, stages[k], batch, share, &bytes, &fits));
        }
    int64_t room = room_of(trainer, true).device;
    z3d_status status = Z3D_OK;
    if (z3d_device_host_reads(trainer->device))
        snprintf(beside, sizeof beside, " (%s of it outside the plan)",
                 z3d_format_bytes(z3d_plan_outside(&trainer->mesh), outside, sizeof outside));
    if (!fits && bytes > room)
        status =
            Z3D_ERROR(Z3D_ERR_MEMORY,
                      "%s takes %s on this rank%s, but %s are available%s; start more "
                      "ranks: they share the parameters%s",
                      trainer->evaluates ? "evaluation" : "generation",
                      z3d_format_bytes(bytes, need, sizeof need), beside,
                      z3d_format_bytes(room, there, sizeof there),
                      z3d_device_host_reads(trainer->device) ? trainer->host.from : "",
                      given == Z3D_AUTO || most == 1 ? "" : ", or make generate.batch smaller");
    return z3d_trainer_agree(trainer, status);
}

/* Checks, before any rank takes memory, that all ranks of this node fit. The node's first rank
 * checks: every rank must have memory for the rank that needs most. Collective, agreed. */
static z3d_status check_room(z3d_trainer *trainer, int threads, const z3d_room *room) {
    const z3d_choice at = {
        .ranks = z3d_world_size(trainer->world), .threads = threads, .room = room};
    z3d_status status = Z3D_OK;
    z3d_trainer_place(trainer, "start-up: looking for memory");
    if (trainer->rank == 0) status = z3d_plan_check_room(trainer->config, &at);
    return z3d_trainer_agree(trainer, status);
}

/* Collective, agreed. */
static z3d_status make_groups(z3d_trainer *trainer) {
    z3d_trainer_place(trainer, "start-up: making process groups");
    z3d_trainer_wait_place(trainer);
    Z3D_TRY(z3d_trainer_agree(trainer, z3d_groups_create(trainer->world, &trainer->mesh,
                                                         trainer->device, trainer->group)));
    if (trainer->config->parallel_ranks_per_node != Z3D_AUTO)
        z3d_groups_play_nodes(trainer->group, (int)trainer->config->parallel_ranks_per_node);
    return Z3D_OK;
}

/* Sums the FLOPs per token over all pipeline stages, because a rank recomputes only its own units.
 * Collective, agreed. */
static z3d_status find_flops(z3d_trainer *trainer) {
    const z3d_mesh *mesh = &trainer->mesh;
    const z3d_program *train = z3d_engine_program(trainer->engine, Z3D_MODE_TRAIN);
    double step = trainer->model->facts.flops.step, *all = NULL;
    double replayed = z3d_plan_hardware_flops(train) - step;
    z3d_status status =
        z3d_new((size_t)z3d_mesh_size(mesh, Z3D_AXES_WORLD), sizeof *all, "the ranks' work", &all);
    status = z3d_trainer_agree(trainer, status);
    z3d_trainer_wait_place(trainer);
    if (status == Z3D_OK)
        status = z3d_world_gather_all(trainer->world, &replayed, all, sizeof replayed);
    trainer->model_flops = trainer->hardware_flops = step;
    for (int s = 0; s < z3d_mesh_size(mesh, Z3D_ROLE_STAGES) && status == Z3D_OK; s++)
        trainer->hardware_flops += all[z3d_mesh_member(mesh, Z3D_ROLE_STAGES, mesh->rank, s)];
    free(all);
    return status;
}

/* Collective, agreed. */
static z3d_status open_device(z3d_trainer *trainer, int *threads) {
    z3d_trainer_place(trainer, "start-up: sharing the cores");
    z3d_trainer_wait_place(trainer);
    Z3D_TRY(z3d_place_threads(trainer->world, trainer->config->training_threads, threads));
    trainer->config->training_threads = *threads;
    Z3D_TRY(z3d_trainer_choose_gemm(trainer, *threads));
    z3d_trainer_place(trainer, "start-up: opening the device");
    Z3D_TRY(z3d_trainer_agree(trainer, make_device(trainer, *threads)));
    return z3d_trainer_agree(trainer, z3d_trainer_check_sharing(trainer));
}

/* Collective, agreed. */
static z3d_status build(z3d_trainer *trainer) {
    int threads;
    Z3D_TRY(open_device(trainer, &threads));
    Z3D_TRY(z3d_trainer_choose_speeds(trainer));
    const z3d_room nominal = room_of(trainer, false);
    Z3D_TRY(z3d_trainer_choose_program(trainer, threads, &nominal));
    const z3d_room room = room_of(trainer, true);
    Z3D_TRY(check_room(trainer, threads, &room));
    Z3D_TRY(z3d_trainer_measure_peak(trainer));
    Z3D_TRY(z3d_trainer_time_products(trainer));
    Z3D_TRY(make_groups(trainer));
    z3d_trainer_place(trainer, "start-up: building the program");
    Z3D_TRY(make_engine(trainer));
    return find_flops(trainer);
}

/* Opens the run's inputs and its folder. Collective, agreed. */
static z3d_status open_inputs(z3d_trainer *trainer) {
    z3d_trainer_place(trainer, "start-up: opening data");
    Z3D_TRY(z3d_trainer_agree(trainer, open_data(trainer)));
    Z3D_TRY(z3d_trainer_agree(trainer, make_tokenizer(trainer)));
    z3d_trainer_place(trainer, "start-up: making the run folder");
    z3d_status status = Z3D_OK;
    if (trainer->rank == 0) /* before any expensive work */
        status = z3d_run_folder_take(&trainer->folder, trainer->config->run_dir);
    if (status != Z3D_OK) status = z3d_error_context(status, "run.dir");
    Z3D_TRY(z3d_trainer_agree(trainer, status));
    z3d_trainer_place(trainer, "start-up: checking tokens");
    return check_data(trainer);
}

static z3d_optimizer_group numbers_of(const z3d_config *config, const z3d_param_group *group) {
    const bool scaled = !isnan(group->lr_scale), decays = !isnan(group->weight_decay);
    const double scale = scaled             ? group->lr_scale
                         : isnan(group->lr) ? 1
                                            : group->lr / config->optimizer_params_lr;
    return (z3d_optimizer_group){(float)scale, decays, decays ? (float)group->weight_decay : 0};
}

/* Makes the model and the settings of its optimizer groups. */
static z3d_status make_model(z3d_trainer *trainer) {
    const z3d_config *config = trainer->config;
    const z3d_data_list *list = &config->optimizer_param_groups;
    for (int i = 0; i < list->count && i < Z3D_PARAM_GROUPS; i++) {
        z3d_param_group group;
        Z3D_TRY(z3d_param_group_parse(list->path[i], &group));
        trainer->optimizer_group[i] = numbers_of(config, &group);
    }
    return z3d_model_from_config(config, &trainer->model);
}

static void mark_closed(z3d_trainer *trainer) {
    trainer->metrics.fd = trainer->events.fd = trainer->samples.fd = trainer->board.file.fd = -1;
}

/* Agrees on the configuration, and finds this rank's place. */
static z3d_status begin_setup(z3d_trainer *trainer) {
    trainer->rank = z3d_world_rank(trainer->world);
    mark_closed(trainer);
    Z3D_TRY(z3d_trainer_agree_config(trainer));
    /* From here on the watchdog reports a rank that does not advance. */
    const double timeout = trainer->config->training_watchdog_timeout;
    Z3D_TRY(z3d_trainer_agree(trainer, z3d_watchdog_start(trainer->world, timeout)));
    Z3D_TRY(z3d_trainer_agree(trainer, make_model(trainer)));
    Z3D_TRY(z3d_trainer_make_program(trainer));
    return z3d_trainer_find_place(trainer);
}

z3d_status z3d_trainer_begin_inference(z3d_trainer *trainer) {
    Z3D_TRY(begin_setup(trainer));
    return z3d_trainer_agree(trainer, make_tokenizer(trainer));
}

z3d_status z3d_trainer_setup_inference(z3d_trainer *trainer, int64_t prompts, int64_t positions,
                                       bool stage_given) {
    int threads;
    trainer->program.generate_positions = positions;
    Z3D_TRY(open_device(trainer, &threads));
    z3d_trainer_place(trainer, "start-up: looking for memory");
    Z3D_TRY(choose_inference(trainer, threads, prompts, stage_given));
    Z3D_TRY(make_groups(trainer));
    z3d_trainer_place(trainer, "start-up: building the program");
    return make_engine(trainer);
}

z3d_status z3d_trainer_setup(z3d_trainer *trainer) {
    Z3D_TRY(begin_setup(trainer));
    Z3D_TRY(z3d_trainer_agree(trainer, z3d_trainer_name_checkpoints(trainer)));
    Z3D_TRY(open_inputs(trainer));
    Z3D_TRY(z3d_trainer_keep_choices(trainer));
    Z3D_TRY(build(trainer));
    z3d_trainer_place(trainer, "start-up: checkpoints");
    Z3D_TRY(z3d_trainer_resume(trainer));
    if (trainer->complete) return Z3D_OK; /* its files stay unchanged */
    Z3D_TRY(z3d_trainer_open_recording(trainer));
    z3d_trainer_place(trainer, "start-up: opening the run's files");
    z3d_status status = trainer->rank == 0 ? open_run_files(trainer) : Z3D_OK;
    return z3d_trainer_agree(trainer, status);
}

static z3d_status make_replay_groups(z3d_trainer *trainer) {
    const z3d_mesh *mesh = &trainer->mesh;
    for (int axes = 0; axes < Z3D_AXES_COUNT; axes++)
        if (z3d_axes_have_group(mesh, (z3d_axes)axes))
            Z3D_TRY(z3d_group_create_recording((z3d_axes)axes, z3d_mesh_size(mesh, (z3d_axes)axes),
                                               z3d_mesh_index(mesh, (z3d_axes)axes, mesh->rank),
                                               &trainer->group[axes]));
    return Z3D_OK;
}

z3d_status z3d_trainer_setup_replay(z3d_trainer *trainer, int ranks, int rank) {
    z3d_config *config = trainer->config;
    z3d_engine_config engine;
    z3d_string disk = {0};
    int unused;
    trainer->rank = rank;
    mark_closed(trainer);
    Z3D_TRY(z3d_config_settle(config, &z3d_model_rules, ranks, &unused));
    Z3D_TRY(make_model(trainer));
    Z3D_TRY(z3d_plan_program_config(config, trainer->model, &trainer->program));
    Z3D_TRY(z3d_plan_mesh(config, ranks, rank, &trainer->mesh));
    Z3D_TRY(make_device(trainer, (int)config->training_threads));
    Z3D_TRY(make_replay_groups(trainer));
    Z3D_TRY(allocate_batches(trainer));
    Z3D_TRY(name_disk(config, false, &disk));
    fill_engine_config(trainer, &engine);
    engine.graph = Z3D_GRAPH_OFF;
    engine.nvme_path = disk.text;
    z3d_status status = z3d_engine_create(&engine, &trainer->engine);
    z3d_string_free(&disk);
    return status;
}

void z3d_trainer_destroy(z3d_trainer *trainer) {
    z3d_trainer_close_recording(trainer);
    z3d_store_close(trainer->store);
    free(trainer->checkpoint_dir);
    z3d_base_free(&trainer->base);
    z3d_line_file_close(&trainer->metrics);
    z3d_line_file_close(&trainer->events);
    z3d_line_file_close(&trainer->samples);
    z3d_string_free(&trainer->line);
    z3d_tensorboard_close(&trainer->board);
    z3d_engine_destroy(trainer->engine);
    z3d_plan_program_config_release(&trainer->program);
    z3d_model_destroy(trainer->model);
    z3d_groups_destroy(trainer->group);
    z3d_device_destroy(trainer->host_device);
    z3d_device_destroy(trainer->device);
    z3d_dataset_close(trainer->train);
    z3d_dataset_close(trainer->validation);
    z3d_tokenizer_destroy(trainer->tokenizer);
    free(trainer->tokens);
    free(trainer->targets);
    free(trainer->positions);
    free(trainer->micro);
    z3d_string_free(&trainer->weights);
    z3d_string_free(&trainer->offload_why);
    z3d_string_free(&trainer->gather_why);
    z3d_string_free(&trainer->granularity_why);
    z3d_string_free(&trainer->products_why);
    z3d_string_free(&trainer->activation_why);
    z3d_string_free(&trainer->ratio_why);
    z3d_run_folder_release(&trainer->folder);
}
