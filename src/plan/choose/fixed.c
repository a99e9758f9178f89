/* The keys that a search may change: plan --recommend changes all sizes, plan --fit those that the
 * configuration does not set. */
#include <string.h>

#include "src/plan/choose/ways.h"

z3d_status z3d_ways_leave_pipeline(z3d_config *config) {
    config->parallel_pipeline_model_parallel_size = 1;
    config->parallel_virtual_pipeline_model_parallel_size = 1;
    config->parallel_pipeline_schedule = Z3D_PIPELINE_AUTO;
    return z3d_config_leave(config, "parallel.pipeline_partition parallel.pipeline_schedule_file "
                                    "zero_optimization.pipeline_gather");
}

static void leave_tensor(z3d_config *config) {
    config->parallel_tensor_model_parallel_size = 1;
    config->parallel_sequence_parallel = config->parallel_allow_tensor_across_nodes = false;
}

/* Clears the parallel sizes and the keys that depend on them. */
static z3d_status leave_sizes(z3d_config *config) {
    leave_tensor(config);
    Z3D_TRY(z3d_ways_leave_pipeline(config));
    return z3d_config_leave(config, "parallel.device_speeds");
}

/* Clears all keys of offload. The data axis is whole, and parameters are gathered for each use. */
static z3d_status leave_states(z3d_config *config) {
    config->zero_optimization_offload_optimizer_delayed_param_update = false;
    Z3D_TRY(z3d_tiers_apply(config, (z3d_fit_tiers){0, 0}));
    return z3d_config_leave(config, "zero_optimization.sub_group_size "
                                    "zero_optimization.stage3_prefetch_bucket_size "
                                    "zero_optimization.offload_optimizer.buffer_count "
                                    "zero_optimization.offload_optimizer.ratio "
                                    "zero_optimization.mics_shard_size "
                                    "zero_optimization.zero_hpz_partition_size "
                                    "zero_optimization.stage3_param_persistence_threshold "
                                    "zero_optimization.stage3_max_live_parameters "
                                    "zero_optimization.stage3_max_reuse_distance "
                                    "parallel.collective_algorithm parallel.ranks_per_node");
}

/* Clears the keys that every search decides. */
static z3d_status leave_methods(z3d_config *config) {
    config->activation_checkpointing_partition_activations = false;
    config->activation_checkpointing_cpu_checkpointing = Z3D_OFFLOAD_OFF;
    return z3d_config_leave(config, "activation_checkpointing.nvme_path training.hardware");
}

/* 0: open. */
static int if_set(const z3d_config *config, const char *path, int64_t value) {
    return z3d_config_is_set(config, path) ? (int)value : 0;
}

/* A list of units and a schedule file suit only one number of stages and chunks. If any key of
 * pipelines is set, an open pipeline size is at least 2. */
static void find_fixed(z3d_config *c, z3d_fixed *out) {
    int unused;
    bool file = c->parallel_pipeline_schedule == Z3D_PIPELINE_FILE;
    bool list = z3d_config_partition(c, NULL, 0, &unused) == Z3D_PARTITION_LIST;
    out->tensor =
        if_set(c, "parallel.tensor_model_parallel_size", c->parallel_tensor_model_parallel_size);
    out->pipeline = if_set(c, "parallel.pipeline_model_parallel_size",
                           c->parallel_pipeline_model_parallel_size);
    out->chunks = if_set(c, "parallel.virtual_pipeline_model_parallel_size",
                         c->parallel_virtual_pipeline_model_parallel_size);
    out->schedule = c->parallel_pipeline_schedule;
    out->gather = c->zero_optimization_pipeline_gather;
    if (!out->gather && c->zero_optimization_stage3_max_reuse_distance > 0)
        out->gather = Z3D_PIPELINE_GATHER_PER_MICROBATCH;
    if (file || list) {
        out->pipeline = (int)c->parallel_pipeline_model_parallel_size;
        out->chunks = (int)c->parallel_virtual_pipeline_model_parallel_size;
    }
    if (out->pipeline) return;
    if (out->chunks || out->schedule || strcmp(c->parallel_pipeline_partition, "time") != 0)
        out->least_pipeline = (int)(c->parallel_pipeline_model_parallel_size = 2);
}

static z3d_status copy(const z3d_config *config, z3d_config **out) {
    z3d_string text = {0};
    z3d_config_write(config, &text);
    z3d_status status = text.failed ? Z3D_ERROR(Z3D_ERR_MEMORY, "not enough memory for a text")
                                    : z3d_config_create(out);
    if (status == Z3D_OK)
        status = z3d_config_read_text(*out, text.text, text.length, "the configuration");
    z3d_string_free(&text);
    return status;
}

static z3d_status find_world(z3d_ways *w, int ranks, bool keep) {
    z3d_config *c = w->config;
    z3d_mesh mesh;
    bool batch = c->train_batch_size != Z3D_AUTO, file = w->fixed.schedule == Z3D_PIPELINE_FILE;
    if (!keep && !batch)
        return z3d_config_error(c, "train_batch_size",
                                "--recommend keeps it and chooses the micro-batch; write the "
                                "samples of a step");
    if (ranks > 0 && c->parallel_world_size != Z3D_AUTO && c->parallel_world_size != ranks)
        return z3d_config_error(c, "parallel.world_size",
                                "asks for %lld ranks, but --ranks is %d; write auto",
                                (long long)c->parallel_world_size, ranks);
    if (ranks == 0 || !batch || file || (w->fixed.tensor && w->fixed.pipeline)) {
        Z3D_TRY(z3d_plan_place(c, ranks, 0, &mesh));
        ranks = z3d_mesh_size(&mesh, Z3D_AXES_WORLD);
    }
    w->fixed.micros = file ? c->gradient_accumulation_steps : 0;
    w->ranks = ranks;
    w->batch = c->train_batch_size;
    return Z3D_OK;
}

z3d_status z3d_ways_begin(z3d_ways *w, int ranks, bool keep) {
    z3d_config *c = w->config;
    bool parts = z3d_config_is_set(c, "parallel.sequence_parallel");
    w->fixed.cut = z3d_is_nominal(w->hardware) ||
                   /* the nominal machine's nodes are not known */
                   z3d_config_is_set(c, "parallel.collective_algorithm") ||
                   z3d_config_is_set(c, "zero_optimization.zero_hpz_partition_size") ||
                   z3d_config_is_set(c, "zero_optimization.mics_shard_size");
    w->fixed.least_pipeline = 1;
    if (keep) find_fixed(c, &w->fixed);
    w->fixed.sequence_parallel = parts ? c->parallel_sequence_parallel : -1;
    w->fixed.across_nodes = c->parallel_allow_tensor_across_nodes;
    if (c->parallel_tensor_model_parallel_size == 1) leave_tensor(c);
    w->replay = c->activation_checkpointing_replay;
    w->checkpoints = c->activation_checkpointing_number_checkpoints;
    Z3D_TRY(z3d_tiers_find(w));
    Z3D_TRY(leave_methods(c));
    Z3D_TRY(find_world(w, ranks, keep));
    if (!keep) Z3D_TRY(leave_sizes(c));
    Z3D_TRY(z3d_config_check(c, &z3d_model_rules));
    Z3D_TRY(copy(c, &w->flat));
    Z3D_TRY(z3d_ways_leave_pipeline(w->flat));
    Z3D_TRY(copy(w->flat, &w->alone));
    if (w->alone->bf16_enabled && w->alone->data_types_grad_accum_dtype == Z3D_ACCUM_AUTO)
        w->alone->data_types_grad_accum_dtype = /* the type that needs least */
            c->communication_data_type == Z3D_ACCUM_AUTO ? Z3D_ACCUM_BF16 : Z3D_ACCUM_FP32;
    Z3D_TRY(leave_states(w->alone));
    return leave_sizes(w->alone);
}
