/* Turns configuration keys into the step-program builder's input. */
#include <stdlib.h>

#include "src/plan/plan.h"
#include "zero/program/pipeline.h"

/* Units from one activation checkpoint to the next, so that the model has as many checkpoints as
 * the configuration asks for. A block keeps only its input, also if it is tiled. */
static int checkpoint_every(const z3d_config *config, const z3d_model *model) {
    int64_t count = config->activation_checkpointing_number_checkpoints;
    int64_t layers = config->model_num_layers;
    int blocks = count == Z3D_AUTO || count >= layers ? 1 : (int)((layers + count - 1) / count);
    return blocks * z3d_model_part_units(model);
}

bool z3d_plan_reduces_per_step(const z3d_config *config, int stage) {
    if (config->zero_optimization_grad_reduce == Z3D_GRAD_REDUCE_AUTO)
        return z3d_states_reduce_per_step(stage);
    return config->zero_optimization_grad_reduce == Z3D_GRAD_REDUCE_PER_STEP;
}

void z3d_plan_program_config_release(z3d_program_config *config) {
    z3d_schedule_destroy((z3d_schedule *)(uintptr_t)config->pipeline.file);
    free((void *)(uintptr_t)config->first_sample);
    config->pipeline.file = NULL;
    config->first_sample = NULL;
}

z3d_space z3d_plan_space(int offload_device) {
    static const z3d_space space[] = {[Z3D_OFFLOAD_DEVICE_NONE] = Z3D_SPACE_DEVICE,
                                      [Z3D_OFFLOAD_DEVICE_CPU] = Z3D_SPACE_HOST,
                                      [Z3D_OFFLOAD_DEVICE_NVME] = Z3D_SPACE_DISK};
    return space[offload_device];
}

static z3d_offload_plan offload_of(const z3d_config *config) {
    const double ratio = config->zero_optimization_offload_optimizer_ratio;
    return (z3d_offload_plan){
        .optimizer = z3d_plan_space(config->zero_optimization_offload_optimizer_device),
        .parameters = z3d_plan_space(config->zero_optimization_offload_param_device),
        .sub_group = config->zero_optimization_sub_group_size,
        .pieces = (int)config->zero_optimization_offload_optimizer_buffer_count,
        .resident = z3d_is_auto(ratio) ? 0 : 1 - ratio,
        .delayed = config->zero_optimization_offload_optimizer_delayed_param_update &&
                   config->zero_optimization_offload_optimizer_device != Z3D_OFFLOAD_DEVICE_NONE};
}

/* An `auto` that is not yet decided counts as off. */
static z3d_space checkpoint_space(const z3d_config *config) {
    static const z3d_space space[] = {[Z3D_OFFLOAD_OFF] = Z3D_SPACE_DEVICE,
                                      [Z3D_OFFLOAD_ON] = Z3D_SPACE_HOST,
                                      [Z3D_OFFLOAD_AUTO] = Z3D_SPACE_DEVICE,
                                      [Z3D_OFFLOAD_NVME] = Z3D_SPACE_DISK};
    return space[config->activation_checkpointing_cpu_checkpointing];
}

static z3d_optimizer optimizer_of(const z3d_config *config) {
    const z3d_optimizer optimizer = (z3d_optimizer)config->optimizer_type;
    return config->optimizer_params_exp_avg_dtype == Z3D_MOMENTS_BF16
               ? z3d_optimizer_in_bf16(optimizer)
               : optimizer;
}

z3d_dtype z3d_plan_dtype(const z3d_config *config) {
    if (config->fp16_enabled) return Z3D_F16;
    if (config->bf16_enabled) return Z3D_BF16;
    return Z3D_F32;
}

static z3d_dtype wire_of(const z3d_config *config) {
    static const z3d_dtype wire[] = {[Z3D_ACCUM_AUTO] = Z3D_F32,
                                     [Z3D_ACCUM_FP32] = Z3D_F32,
                                     [Z3D_ACCUM_BF16] = Z3D_BF16,
                                     [Z3D_ACCUM_FP16] = Z3D_F16};
    const z3d_accum gradients = z3d_config_grad_accum(config);
    const bool narrow = gradients == Z3D_ACCUM_BF16 || gradients == Z3D_ACCUM_FP16;
    return narrow ? Z3D_F32 : wire[config->communication_data_type];
}

/* ---- units among pipeline stages ---- */

/* The user lists the number of units of each chunk. */
static z3d_status cut_as_listed(const z3d_config *config, const z3d_model *model,
                                z3d_pipeline_config *out) {
    int64_t units[Z3D_MAX_CHUNKS], first = 0;
    int count;
    (void)z3d_config_partition(config, units, Z3D_MAX_CHUNKS, &count);
    if (count != z3d_config_chunks(config))
        return z3d_config_error(config, "parallel.pipeline_partition",
                                "%d numbers for %lld chunks; write the units of each chunk", count,
                                (long long)z3d_config_chunks(config));
    for (int c = 0; c < count; c++) {
        out->first_unit[c] = (int)first;
        if (units[c] < 1 || units[c] > model->num_units - first) break;
        first += units[c];
    }
    out->first_unit[count] = (int)first;
    return first == model->num_units
               ? Z3D_OK
               : z3d_config_error(config, "parallel.pipeline_partition",
                                  "write numbers above 0 whose sum is the model's %d units",
                                  model->num_units);
}

static z3d_status cut(const z3d_config *config, const z3d_model *model,
                      const z3d_plan_speeds *speeds, z3d_program_config *out) {
    static const z3d_balance balance[] = {[Z3D_PARTITION_TIME] = Z3D_BALANCE_TIME,
                                          [Z3D_PARTITION_PARAMETERS] = Z3D_BALANCE_PARAMETERS,
                                          [Z3D_PARTITION_UNIFORM] = Z3D_BALANCE_UNIFORM};
    int unused;
    z3d_partition partition = z3d_config_partition(config, NULL, 0, &unused);
    if (partition == Z3D_PARTITION_LIST) return cut_as_listed(config, model, &out->pipeline);
    return z3d_partition_units(model, (int)config->parallel_pipeline_model_parallel_size,
                               balance[partition], speeds->stage, out);
}

static z3d_status resolve_pipeline(const z3d_config *config, const z3d_model *model,
                                   const z3d_plan_speeds *speeds, z3d_program_config *out) {
    z3d_schedule *file = NULL;
    if (config->parallel_pipeline_model_parallel_size == 1) return Z3D_OK;
    out->pipeline.schedule = z3d_config_pipeline_schedule(config);
    out->pipeline.chunks_per_stage = (int)config->parallel_virtual_pipeline_model_parallel_size;
    out->pipeline.gather_per_step =
        config->zero_optimization_pipeline_gather == Z3D_PIPELINE_GATHER_PER_STEP;
    Z3D_TRY(cut(config, model, speeds, out));
    if (out->pipeline.schedule != Z3D_SCHEDULE_FILE) return Z3D_OK;
    Z3D_TRY(z3d_schedule_read(config->parallel_pipeline_schedule_file,
                              (int)config->parallel_pipeline_model_parallel_size,
                              (int)z3d_config_chunks(config), out->accumulation, &file));
    out->pipeline.file = file;
    return Z3D_OK;
}

/* ---- all fields ---- */

/* Elements of offloaded parameters that may be fetched ahead: DeepSpeed's default. */
enum { PREFETCHED = 50000000 };

z3d_status z3d_plan_program_config(const z3d_config *config, const z3d_model *model,
                                   z3d_program_config *out) {
    const z3d_dtype dtype = z3d_plan_dtype(config);
    const int64_t prefetch = config->zero_optimization_stage3_prefetch_bucket_size;
    const int64_t live = config->zero_optimization_stage3_max_live_parameters;
    const bool offloads = config->zero_optimization_offload_param_device != Z3D_OFFLOAD_DEVICE_NONE;
    *out = (z3d_program_config){
        .stage = (int)config->zero_optimization_stage,
        .persistence = config->zero_optimization_stage3_param_persistence_threshold,
        .sharding = (z3d_sharding)z3d_config_data_cut(config),
        .dtype = dtype,
        .grad_dtype = z3d_config_grad_accum(config) == Z3D_ACCUM_FP32 ? Z3D_F32 : dtype,
        .wire = wire_of(config),
        .optimizer = optimizer_of(config),
        .ema = config->optimizer_ema_decay > 0,
        .micro_batch = config->train_micro_batch_size_per_gpu,
        .accumulation = (int)config->gradient_accumulation_steps,
        .reduce_per_step = z3d_plan_reduces_per_step(config, (int)config->zero_optimization_stage),
        .recompute = config->activation_checkpointing_granularity == Z3D_GRANULARITY_FULL ||
                     config->activation_checkpointing_granularity == Z3D_GRANULARITY_AUTO,
        .selective = config->activation_checkpointing_granularity == Z3D_GRANULARITY_SELECTIVE,
        .checkpoint_every = checkpoint_every(config, model),
        .partition_activations = config->activation_checkpointing_partition_activations,
        .checkpoint_space = checkpoint_space(config),
        .without_generation = !z3d_config_has_prompts(config),
        .keep_activation =
            config->activation_checkpointing_recompute_activation == Z3D_RECOMPUTE_FALSE,
        .replay_full = config->activation_checkpointing_replay == Z3D_REPLAY_FULL,
        .overlap = config->zero_optimization_overlap_comm,
        .reduce_bucket = config->zero_optimization_reduce_bucket_size,
        .gather_bucket = config->zero_optimization_allgather_bucket_size,
        .gather_ahead = prefetch == Z3D_AUTO || offloads ? 0 : prefetch,
        .prefetch = prefetch == Z3D_AUTO ? PREFETCHED : prefetch,
        .reuse_distance = config->zero_optimization_stage3_max_reuse_distance,
        .max_live = live > 1 ? live : 1, /* in the program's configuration 0 means any number */
        .offload = offload_of(config)};
    z3d_plan_speeds speeds;
    z3d_status status = z3d_plan_speeds_find(config, &speeds);
    if (status == Z3D_OK) status = resolve_pipeline(config, model, &speeds, out);
    if (status == Z3D_OK) status = z3d_plan_shares(config, &speeds, out);
    if (status != Z3D_OK) z3d_plan_program_config_release(out);
    z3d_plan_speeds_release(&speeds);
    return status;
}
