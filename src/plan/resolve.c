/* From configuration keys to the model and to the step-program builder's input. */
#include "src/plan/plan.h"

void z3d_plan_gpt_config(const z3d_config *config, z3d_gpt_config *out) {
    *out = (z3d_gpt_config){.num_layers = config->model_num_layers,
                            .hidden_size = config->model_hidden_size,
                            .num_heads = config->model_num_attention_heads,
                            .seq_length = config->model_seq_length,
                            .vocab_size = config->model_vocab_size,
                            .vocab_multiple = config->model_make_vocab_size_divisible_by,
                            .hidden_dropout = config->model_hidden_dropout,
                            .attention_dropout = config->model_attention_dropout,
                            .init_std = config->model_init_method_std,
                            .tensor_size = (int)config->parallel_tensor_model_parallel_size,
                            .sequence_parallel = config->parallel_sequence_parallel};
}

z3d_status z3d_plan_model(const z3d_config *config, z3d_model **out) {
    z3d_gpt_config gpt;
    z3d_plan_gpt_config(config, &gpt);
    return z3d_gpt_create(&gpt, out);
}

/* Blocks from one activation checkpoint to the next, so that there are as many as asked for. */
static int checkpoint_every(const z3d_config *config) {
    int64_t count = config->activation_checkpointing_number_checkpoints;
    int64_t layers = config->model_num_layers;
    return count == Z3D_AUTO || count >= layers ? 1 : (int)((layers + count - 1) / count);
}

void z3d_plan_program_config(const z3d_config *config, z3d_program_config *out) {
    z3d_dtype dtype = config->fp16_enabled ? Z3D_F16 : config->bf16_enabled ? Z3D_BF16 : Z3D_F32;
    *out = (z3d_program_config){
        .stage = (int)config->zero_optimization_stage,
        .dtype = dtype,
        .grad_dtype = config->data_types_grad_accum_dtype == Z3D_ACCUM_FP32 ? Z3D_F32 : dtype,
        .optimizer = (z3d_optimizer)config->optimizer_type,
        .micro_batch = config->train_micro_batch_size_per_gpu,
        .accumulation = (int)config->gradient_accumulation_steps,
        .reduce_per_step = config->zero_optimization_grad_reduce == Z3D_GRAD_REDUCE_PER_STEP,
        .recompute = config->activation_checkpointing_granularity == Z3D_GRANULARITY_FULL,
        .selective = config->activation_checkpointing_granularity == Z3D_GRANULARITY_SELECTIVE,
        .checkpoint_every = checkpoint_every(config),
        .partition_activations = config->activation_checkpointing_partition_activations,
        .offload_activations = config->activation_checkpointing_cpu_checkpointing == Z3D_OFFLOAD_ON,
        .replay_full = config->activation_checkpointing_replay == Z3D_REPLAY_FULL,
        .overlap = config->zero_optimization_overlap_comm,
        .reduce_bucket = config->zero_optimization_reduce_bucket_size,
        .gather_bucket = config->zero_optimization_allgather_bucket_size};
}
