/* Checks and choices before anything is built: one configuration on all ranks, the mesh, keys that
 * are auto, methods of matrix products. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "src/plan/choose/choose.h"
#include "src/plan/price/measure.h"
#include "src/train/history/history.h"
#include "src/train/trainer.h"

/* Finds the first line in which two texts differ, as each has it (up to 120 bytes). */
static void first_difference(const char *a, const char *b, char *line_a, char *line_b,
                             size_t size) {
    while (*a && *b) {
        size_t length_a = strcspn(a, "\n"), length_b = strcspn(b, "\n");
        if (length_a != length_b || memcmp(a, b, length_a) != 0) break;
        a += length_a + (a[length_a] != '\0');
        b += length_b + (b[length_b] != '\0');
    }
    snprintf(line_a, size, "%.*s", (int)strcspn(a, "\n"), a);
    snprintf(line_b, size, "%.*s", (int)strcspn(b, "\n"), b);
}

/* All ranks must have rank 0's program version and resolved configuration, or the run does not
 * start. */
static z3d_status compare_with_rank_0(z3d_trainer *trainer) {
    z3d_string mine = {0}, theirs = {0};
    char line_a[120], line_b[120];
    z3d_string_append(&mine, "zero3d %s\n", ZERO3D_VERSION);
    z3d_config_write(trainer->config, &mine);
    if (trainer->rank == 0) z3d_string_append(&theirs, "%s", mine.text);
    z3d_status status = mine.failed || theirs.failed
                            ? Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for the configuration's text")
                            : Z3D_OK;
    Z3D_TRY_GOTO(status, z3d_trainer_agree(trainer, status), end);
    Z3D_TRY_GOTO(status, z3d_trainer_share(trainer, 0, &theirs), end);
    if (strcmp(mine.text, theirs.text) != 0) {
        first_difference(mine.text, theirs.text, line_a, line_b, sizeof line_a);
        status = Z3D_ERROR(Z3D_ERR_CONFIG,
                           "this rank's configuration or program differs from rank 0's: \"%s\" "
                           "here, \"%s\" on rank 0; start all ranks with the same "
                           "configuration and program",
                           line_a, line_b);
    }
    status = z3d_trainer_agree(trainer, status);
end:
    z3d_string_free(&mine);
    z3d_string_free(&theirs);
    return status;
}

/* Tells keys without effect: on the cpu device, offload to the host; with states on the disk,
 * asynchronous saves, because states on the disk are not copied to host memory for a save. */
static void say_offload(const z3d_config *config) {
    static const char *const block[] = {"optimizer", "param"};
    const int where[] = {config->zero_optimization_offload_optimizer_device,
                         config->zero_optimization_offload_param_device};
    for (int i = 0; i < 2; i++)
        if (where[i] == Z3D_OFFLOAD_DEVICE_CPU && config->training_device == Z3D_TRAINING_CPU)
            z3d_log(Z3D_LOG_INFO,
                    "zero_optimization.offload_%s.device cpu frees no memory on the cpu device: "
                    "its memory is host memory",
                    block[i]);
    if (config->checkpoint_async && !z3d_plan_saves_beside(config))
        z3d_log(Z3D_LOG_INFO, "checkpoint.async has no effect with "
                              "zero_optimization.offload_optimizer.device nvme: checkpoints are "
                              "written from the disk, while training waits");
}

/* Ranks per node; 0: nodes have different numbers. */
static int ranks_per_node(const z3d_world *world) {
    const int nodes = z3d_world_nodes(world), size = z3d_world_size(world);
    int each = size / nodes;
    for (int rank = 0, count = 0; rank < size; rank++) {
        const bool first =
            rank == 0 || z3d_world_node(world, rank) != z3d_world_node(world, rank - 1);
        count = first ? 1 : count + 1;
        if (count > each || (first && rank % each != 0)) return 0;
    }
    return each;
}

z3d_status z3d_trainer_agree_config(z3d_trainer *trainer) {
    z3d_config *config = trainer->config;
    int data_size = 1;
    z3d_trainer_place(trainer, "start-up: checking the configuration");
    trainer->epochs = config->training_epochs;
    z3d_status status = z3d_train_data_count(config);
    if (status == Z3D_OK) status = z3d_choose_nodes(config, ranks_per_node(trainer->world));
    if (status == Z3D_OK)
        status =
            z3d_config_settle(config, &z3d_model_rules, z3d_world_size(trainer->world), &data_size);
    if (!z3d_config_is_set(config, "training.epochs"))
        trainer->epochs = 0; /* the key had no effect and was reset */
    if (status == Z3D_OK && !*config->run_dir)
        status =
            Z3D_ERROR(Z3D_ERR_CONFIG, "run.dir is empty: set the folder that the run writes to");
    if (status == Z3D_OK) say_offload(config);
    Z3D_TRY(z3d_trainer_agree(trainer, status));
    if (config->parallel_sequence_parallel &&
        config->activation_checkpointing_partition_activations)
        z3d_log(Z3D_LOG_INFO, "activation_checkpointing.partition_activations has no effect: with "
                              "parallel.sequence_parallel each tensor rank stores only its own "
                              "part of a block's input already");
    return compare_with_rank_0(trainer);
}

/* Each rank reads the schedule file. All must read the same, or pipeline stages would wait for
 * ever. */
static z3d_status compare_schedule(z3d_trainer *trainer) {
    const z3d_schedule *schedule = trainer->program.pipeline.file;
    if (!schedule) return Z3D_OK;
    const int *first = schedule->first;
    uint64_t mine = XXH3_64bits(first, ((size_t)schedule->stages + 1) * sizeof *first);
    mine = XXH3_64bits_withSeed(schedule->task,
                                (size_t)first[schedule->stages] * sizeof *schedule->task, mine);
    uint64_t theirs = mine;
    z3d_trainer_wait_place(trainer);
    Z3D_TRY(z3d_world_broadcast(trainer->world, &theirs, sizeof theirs, 0));
    z3d_status status = Z3D_OK;
    if (mine != theirs)
        status = z3d_config_error(
            trainer->config, "parallel.pipeline_schedule_file",
            "the file differs from the one that rank 0 reads; give all ranks the same file");
    return z3d_trainer_agree(trainer, status);
}

z3d_status z3d_trainer_make_program(z3d_trainer *trainer) {
    z3d_plan_program_config_release(&trainer->program);
    z3d_status status = z3d_plan_program_config(trainer->config, trainer->model, &trainer->program);
    Z3D_TRY(z3d_trainer_agree(trainer, status));
    return compare_schedule(trainer);
}

/* Refuses a partition of hpZ or of hierarchical collectives that spans nodes: it would save
 * nothing. Tells if the whole data axis is one partition. */
static z3d_status check_partition(const z3d_trainer *trainer) {
    static const char *const key[] = {[Z3D_CUT_HIERARCHICAL] = "parallel.collective_algorithm",
                                      [Z3D_CUT_HPZ] = "zero_optimization.zero_hpz_partition_size",
                                      [Z3D_CUT_HYBRID] = "zero_optimization.mics_shard_size"};
    const z3d_mesh *mesh = &trainer->mesh;
    const z3d_data_cut cut = z3d_config_data_cut(trainer->config);
    const int size = z3d_mesh_size(mesh, Z3D_ROLE_BLOCKS);
    const bool automatic = trainer->config->parallel_collective_algorithm == Z3D_ALGORITHM_AUTO;
    for (int rank = 0; rank < z3d_mesh_size(mesh, Z3D_AXES_WORLD); rank++) {
        const int first = z3d_mesh_member(mesh, Z3D_ROLE_BLOCKS, rank, 0);
        if (cut == Z3D_CUT_NONE || z3d_mesh_size(mesh, Z3D_ROLE_NODES) == 1 ||
            z3d_world_node(trainer->world, rank) == z3d_world_node(trainer->world, first))
            continue;
        if (cut == Z3D_CUT_HYBRID) {
            z3d_log(Z3D_LOG_INFO,
                    "%s: partitions span nodes; a size that divides the data ranks of "
                    "a node sends less between them",
                    key[cut]);
            return Z3D_OK;
        }
        return z3d_config_error(
            trainer->config, key[cut],
            "the partition of %d data ranks spans two nodes: rank %d is on node %d, rank %d on "
            "node %d; write a size that divides the data ranks of a node, or leave it out",
            size, first, z3d_world_node(trainer->world, first), rank,
            z3d_world_node(trainer->world, rank));
    }
    if (cut != Z3D_CUT_NONE && !automatic && z3d_mesh_size(mesh, Z3D_ROLE_NODES) == 1)
        z3d_log(Z3D_LOG_INFO, "%s has no effect: the %d data ranks are one partition", key[cut],
                size);
    return Z3D_OK;
}

z3d_status z3d_trainer_find_place(z3d_trainer *trainer) {
    const z3d_config *config = trainer->config;
    z3d_status status =
        z3d_plan_mesh(config, z3d_world_size(trainer->world), trainer->rank, &trainer->mesh);
    if (status == Z3D_OK && !config->parallel_allow_tensor_across_nodes)
        status = z3d_mesh_check_nodes(trainer->world, &trainer->mesh);
    if (status == Z3D_OK) status = check_partition(trainer);
    return z3d_trainer_agree(trainer, status);
}

/* Reads the machine that training.hardware describes, on rank 0. `measure` measures it, which is
 * collective. */
static z3d_status describe_machine(z3d_trainer *trainer, int threads, bool *known,
                                   z3d_hardware *out) {
    const char *named = trainer->config->training_hardware;
    *known = named[0] != '\0';
    if (strcmp(named, "measure") == 0 && trainer->config->training_device != Z3D_TRAINING_CPU)
        return z3d_config_error(
            trainer->config, "training.hardware",
            "measure works for the cpu device only; give the path of a hardware "
            "description (examples: configs/hardware)");
    if (strcmp(named, "measure") == 0) {
        double memory = (double)sysconf(_SC_PAGESIZE) * (double)sysconf(_SC_PHYS_PAGES);
        z3d_trainer_place(trainer, "start-up: measuring the machine");
        z3d_trainer_wait_place(trainer);
        return z3d_measure_machine(trainer->world, threads, memory, out);
    }
    if (!*known || trainer->rank != 0) return Z3D_OK;
    z3d_status status = z3d_hardware_read_with(named, NULL, out);
    return status == Z3D_OK ? status : z3d_error_context(status, "training.hardware");
}

/* Decides the keys at `auto` on which the program depends. Collective, agreed. */
static z3d_status choose_keys(z3d_trainer *trainer, int threads, const z3d_room *room) {
    z3d_config *config = trainer->config;
    int *const key[] = {&config->activation_checkpointing_cpu_checkpointing,
                        &config->zero_optimization_pipeline_gather,
                        &config->activation_checkpointing_recompute_activation,
                        &config->activation_checkpointing_granularity};
    enum { KEYS = sizeof key / sizeof *key };
    z3d_hardware hardware;
    z3d_gather_price prices[2];
    struct {
        int key[KEYS];
        double ratio;
    } chosen;
    int ranks = z3d_world_size(trainer->world);
    bool known, gather = *key[1] == Z3D_PIPELINE_GATHER_AUTO && z3d_gather_matters(config, ranks);
    if (*key[0] != Z3D_OFFLOAD_AUTO && !gather && !z3d_ratio_is_open(config) &&
        *key[2] != Z3D_RECOMPUTE_AUTO && *key[3] != Z3D_GRANULARITY_AUTO)
        return Z3D_OK;
    Z3D_TRY(z3d_trainer_agree(trainer, describe_machine(trainer, threads, &known, &hardware)));
    z3d_trainer_place(trainer, "start-up: choosing what to keep, offload and when to gather");
    z3d_status status = Z3D_OK;
    if (trainer->rank == 0) {
        const z3d_choice at = {ranks, threads, known ? &hardware : NULL, room};
        status = z3d_choose_granularity(config, &at, trainer->first_granularity,
                                        &trainer->granularity_why);
        if (status == Z3D_OK) status = z3d_choose_offload(config, &at, &trainer->offload_why);
        if (status == Z3D_OK) status = z3d_choose_ratio(config, &at, &trainer->ratio_why);
        if (status == Z3D_OK && gather)
            status = z3d_choose_gather(config, &at, prices, &trainer->gather_why);
        if (status == Z3D_OK) status = z3d_choose_activation(config, &at, &trainer->activation_why);
    } else {
        status = z3d_config_override(config, "training.hardware=");
    }
    Z3D_TRY(z3d_trainer_agree(trainer, status));
    z3d_trainer_wait_place(trainer);
    memset(&chosen, 0, sizeof chosen);
    for (int k = 0; k < KEYS; k++) chosen.key[k] = *key[k];
    chosen.ratio = config->zero_optimization_offload_optimizer_ratio;
    Z3D_TRY(z3d_world_broadcast(trainer->world, &chosen, sizeof chosen, 0));
    for (int k = 0; k < KEYS; k++) *key[k] = chosen.key[k];
    config->zero_optimization_offload_optimizer_ratio = chosen.ratio;
    return Z3D_OK;
}

/* Makes the program again in any case, because z3d_trainer_keep_choices may have changed keys too.
 */
z3d_status z3d_trainer_choose_program(z3d_trainer *trainer, int threads, const z3d_room *room) {
    Z3D_TRY(choose_keys(trainer, threads, room));
    return z3d_trainer_make_program(trainer);
}

/* The method of a key's enumeration value. value_of is the inverse. fp16 has no `matmul`. */
static z3d_gemm_method method_of(z3d_dtype dtype, int value) {
    static const z3d_gemm_method methods[][5] = {
        [Z3D_F32] = {Z3D_GEMM_AUTO, Z3D_GEMM_SGEMM, Z3D_GEMM_MATMUL, Z3D_GEMM_PORTABLE,
                     Z3D_GEMM_AUTO},
        [Z3D_BF16] = {Z3D_GEMM_AUTO, Z3D_GEMM_SGEMM, Z3D_GEMM_MATMUL, Z3D_GEMM_PORTABLE,
                      Z3D_GEMM_AUTO},
        [Z3D_F16] = {Z3D_GEMM_AUTO, Z3D_GEMM_SGEMM, Z3D_GEMM_PORTABLE, Z3D_GEMM_AUTO,
                     Z3D_GEMM_AUTO}};
    return methods[dtype][value];
}

/* Whether the run must choose the method: from the table, or, for `measured`, by timing. */
static bool is_open(z3d_dtype dtype, int value) {
    return method_of(dtype, value) == Z3D_GEMM_AUTO;
}

static int value_of(z3d_dtype dtype, z3d_gemm_method method) {
    for (int value = 0; value < 4; value++)
        if (method_of(dtype, value) == method) return value;
    return 1; /* sgemm, which every type has */
}

static z3d_config_ENUM *gemm_key(z3d_config *config, z3d_dtype dtype) {
    z3d_config_ENUM *const key[] = {[Z3D_F32] = &config->training_gemm_fp32,
                                    [Z3D_BF16] = &config->training_gemm_bf16,
                                    [Z3D_F16] = &config->training_gemm_fp16};
    return key[dtype];
}

z3d_gemm_method z3d_trainer_gemm_method(const z3d_config *config, z3d_dtype dtype) {
    return method_of(dtype, *gemm_key((z3d_config *)config, dtype));
}

/* On a GPU a product's epilogue may round in another way than a recompute, so a resumed run keeps
 * its choice. Runs from before this key recomputed. */
static void keep_recomputing(z3d_config *config, const z3d_config *saved) {
    z3d_config_ENUM *key = &config->activation_checkpointing_recompute_activation;
    const z3d_config_ENUM was = saved->activation_checkpointing_recompute_activation;
    if (config->training_device == Z3D_TRAINING_CUDA && *key == Z3D_RECOMPUTE_AUTO)
        *key = was == Z3D_RECOMPUTE_FALSE ? Z3D_RECOMPUTE_FALSE : Z3D_RECOMPUTE_TRUE;
}

/* A resumed run of the same precision keeps its gradients' type, also if its micro-batches have
 * changed. */
static void keep_gradients_type(z3d_config *config, const z3d_config *saved) {
    z3d_config_ENUM *key = &config->data_types_grad_accum_dtype;
    const bool alike = saved && saved->bf16_enabled == config->bf16_enabled &&
                       saved->fp16_enabled == config->fp16_enabled;
    if (*key == Z3D_ACCUM_AUTO && alike)
        *key = z3d_trainer_saved_accum(saved);
    else
        *key = z3d_config_grad_accum(config);
}

z3d_status z3d_trainer_keep_choices(z3d_trainer *trainer) {
    z3d_config *config = trainer->config, *saved = NULL;
    z3d_config_ENUM *key = gemm_key(config, trainer->program.dtype);
    z3d_status status = Z3D_OK;
    z3d_trainer_place(trainer, "start-up: looking for checkpoints");
    if (trainer->rank == 0) status = z3d_trainer_saved_config(trainer, &saved);
    if (status == Z3D_OK && trainer->rank == 0) status = z3d_trainer_extend(trainer, saved);
    if (saved && is_open(trainer->program.dtype, *key))
        *key = *gemm_key(saved, trainer->program.dtype);
    if (saved) keep_recomputing(config, saved);
    keep_gradients_type(config, saved);
    trainer->first_granularity =
        saved ? saved->activation_checkpointing_granularity : Z3D_GRANULARITY_NONE;
    if (trainer->first_granularity == Z3D_GRANULARITY_AUTO)
        trainer->first_granularity = Z3D_GRANULARITY_NONE;
    z3d_config_destroy(saved);
    struct {
        int64_t gemm, schedule_end, recompute, gradients;
    } kept = {*key, config->scheduler_params_total_num_steps,
              config->activation_checkpointing_recompute_activation,
              config->data_types_grad_accum_dtype};
    Z3D_TRY(z3d_trainer_take_from_root(trainer, status, &kept, sizeof kept));
    *key = (z3d_config_ENUM)kept.gemm;
    config->scheduler_params_total_num_steps = kept.schedule_end;
    config->activation_checkpointing_recompute_activation = (z3d_config_ENUM)kept.recompute;
    config->data_types_grad_accum_dtype = (z3d_config_ENUM)kept.gradients;
    return Z3D_OK;
}

typedef struct choice {
    int64_t method;
    double gflops;
} choice;

/* Measures methods with the shape of a block's largest product, and the peak with one large square
 * product. */
static z3d_status measure(const z3d_trainer *trainer, int threads, bool choose, choice *out) {
    const z3d_model_facts *facts = &trainer->model->facts;
    z3d_dtype dtype = trainer->program.dtype;
    z3d_device *probe;
    z3d_gemm_method method = Z3D_GEMM_SGEMM, unused;
    double gflops = 0, square = 0;
    int64_t rows = trainer->program.micro_batch * facts->tokens;
    z3d_device_config config = {.backend = "cpu", .threads = threads};
    Z3D_TRY(z3d_device_create(&config, &probe));
    z3d_status status =
        z3d_device_measure_gemm(probe, dtype, rows < 2048 ? rows : 2048, facts->product_outputs,
                                facts->product_inputs, &method, &gflops);
    if (status == Z3D_OK)
        status = z3d_device_measure_gemm(probe, dtype, 1024, 1024, 1024, &unused, &square);
    if (choose) out->method = method;
    out->gflops = gflops > square ? gflops : square;
    z3d_device_destroy(probe);
    return status;
}

z3d_status z3d_trainer_choose_gemm(z3d_trainer *trainer, int threads) {
    z3d_dtype dtype = trainer->program.dtype;
    z3d_config *config = trainer->config;
    z3d_config_ENUM *key = gemm_key(config, dtype);
    const bool open = is_open(dtype, *key), measured = open && *key > 0;
    choice chosen = {.method = z3d_gemm_from_table(dtype)};
    z3d_status status = Z3D_OK;
    trainer->peak_tflops = config->training_peak_tflops;
    if (config->training_device != Z3D_TRAINING_CPU) return Z3D_OK;
    const bool wants_peak = config->training_peak_tflops == 0 && !trainer->evaluates;
    if (!open && !wants_peak) return Z3D_OK;
    z3d_trainer_place(trainer, "start-up: measuring matrix products");
    if (trainer->rank == 0 && (measured || wants_peak))
        status = measure(trainer, threads, measured, &chosen);
    Z3D_TRY(z3d_trainer_take_from_root(trainer, status, &chosen, sizeof chosen));
    if (open) {
        *key = value_of(dtype, (z3d_gemm_method)chosen.method);
        z3d_string_append(&trainer->products_why, "training.gemm.%s %s: %s", z3d_dtype_name(dtype),
                          measured ? "measured" : "auto",
                          z3d_gemm_method_name(method_of(dtype, *key)));
    }
    if (wants_peak) {
        trainer->peak_tflops = chosen.gflops / 1e3;
        trainer->peak_measured = true;
    }
    return Z3D_OK;
}

z3d_status z3d_trainer_measure_peak(z3d_trainer *trainer) {
    enum { SIZE = 8192 };
    z3d_gemm_method unused;
    double gflops = 0;
    z3d_status status = Z3D_OK;
    if (trainer->config->training_device == Z3D_TRAINING_CPU || trainer->peak_tflops > 0)
        return Z3D_OK;
    z3d_trainer_place(trainer, "start-up: measuring matrix products");
    if (trainer->rank == 0)
        status = z3d_device_measure_gemm(trainer->device, trainer->program.dtype, SIZE, SIZE, SIZE,
                                         &unused, &gflops);
    Z3D_TRY(z3d_trainer_take_from_root(trainer, status, &gflops, sizeof gflops));
    trainer->peak_tflops = gflops / 1e3;
    trainer->peak_measured = true;
    return Z3D_OK;
}

void z3d_trainer_keep_peak(z3d_trainer *trainer) {
    const char *device = z3d_device_description(trainer->device);
    const char *type = z3d_dtype_name(trainer->program.dtype);
    z3d_history past;
    if (trainer->rank != 0 || !trainer->peak_measured || trainer->resumed_step == 0) return;
    /* An error in the file does not stop the run. */
    (void)z3d_history_read_events(trainer->config->run_dir, &past);
    for (int i = 0; i < past.events; i++) {
        const z3d_history_event *start = &past.event[i];
        if (!(start->peak_tflops > trainer->peak_tflops) || !start->device || !start->type ||
            strcmp(start->device, device) != 0 || strcmp(start->type, type) != 0)
            continue;
        trainer->peak_tflops = start->peak_tflops;
        trainer->peak_kept = true;
    }
    z3d_history_release(&past);
}

z3d_status z3d_trainer_check_sharing(z3d_trainer *trainer) {
    z3d_world *world = trainer->world;
    int size = z3d_world_size(world);
    uint64_t mine = z3d_device_identity(trainer->device), *all = NULL;
    z3d_status status = z3d_new((size_t)size, sizeof mine, "the ranks' devices", &all);
    Z3D_TRY(z3d_trainer_agree(trainer, status));
    z3d_trainer_wait_place(trainer);
    status = z3d_world_gather_all(world, &mine, all, sizeof mine);
    bool allowed = trainer->config->training_collectives == Z3D_COLLECTIVES_HOST || mine == 0;
    for (int i = 0; i < trainer->rank && status == Z3D_OK && !allowed; i++)
        if (all[i] == mine)
            status =
                Z3D_ERROR(Z3D_ERR_TOPOLOGY,
                          "fewer GPUs than ranks: ranks %d and %d on %s use the same GPU; start "
                          "at most one rank per GPU, or set training.collectives: host to "
                          "let ranks share a GPU (slow)",
                          i, trainer->rank, z3d_world_hostname(world));
    free(all);
    return status;
}
