/* Keys of other frameworks that a configuration may have; they have no field here. */
#ifndef ZERO3D_BASE_CONFIG_FOREIGN_H
#define ZERO3D_BASE_CONFIG_FOREIGN_H

/* Reasons that several keys share. */
#define Z3D_CONFIG_PINNED "host memory for a GPU is always page-locked"
#define Z3D_CONFIG_EXPORT "zero3d checkpoint export writes such a file"
#define Z3D_CONFIG_WHOLE "stage3_param_persistence_threshold says what is kept whole"
#define Z3D_CONFIG_UNITS "units are the model's blocks"
#define Z3D_CONFIG_OWN_IO "sizes and number of requests to the disk are fixed"

/* Keys of pasted blocks, mostly DeepSpeed's, that are accepted and change nothing here: X(path,
 * why). One line notes them; their values are not checked. */
#define Z3D_CONFIG_ACCEPTED(X)                                                                     \
    X("zero_optimization.contiguous_gradients", "gradients are always contiguous")                 \
    X("zero_optimization.reduce_scatter", "gradients are always reduce-scattered")                 \
    X("zero_optimization.allgather_partitions", "parameters are gathered")                         \
    X("zero_optimization.round_robin_gradients", "shards are equal column ranges")                 \
    X("zero_optimization.stage3_gather_16bit_weights_on_model_save", Z3D_CONFIG_EXPORT)            \
    X("zero_optimization.ignore_unused_parameters", "the step program knows each use")             \
    X("zero_optimization.elastic_checkpoint", "every checkpoint loads on any topology")            \
    X("zero_optimization.load_from_fp32_weights", "checkpoints hold fp32 weights")                 \
    X("zero_optimization.stage3_gather_fp16_weights_on_model_save", Z3D_CONFIG_EXPORT)             \
    X("zero_optimization.stage3_model_persistence_threshold", Z3D_CONFIG_WHOLE)                    \
    X("zero_optimization.stage3_module_granularity_threshold", Z3D_CONFIG_UNITS)                   \
    X("zero_optimization.stage3_use_all_reduce_for_fetch_params", "parameters are gathered")       \
    X("zero_optimization.stage3_allgather_sequential", "gathers are in the program's order")       \
    X("zero_optimization.model_persistence_threshold", Z3D_CONFIG_WHOLE)                           \
    X("zero_optimization.gather_16bit_weights_on_model_save", Z3D_CONFIG_EXPORT)                   \
    X("zero_optimization.module_granularity_threshold", Z3D_CONFIG_UNITS)                          \
    X("zero_optimization.use_all_reduce_for_fetch_params", "parameters are gathered")              \
    X("zero_optimization.allgather_sequential", "gathers are in the program's order")              \
    X("zero_optimization.legacy_stage1", "there is one implementation of stage 1")                 \
    X("zero_optimization.use_multi_rank_bucket_allreduce", "gradients are reduce-scattered")       \
    X("zero_optimization.memory_efficient_linear", "the memory planner places tensors")            \
    X("zero_optimization.override_module_apply", "parameters are divided from the start")          \
    X("zero_optimization.log_trace_cache_warnings", "there is no trace cache")                     \
    X("zero_optimization.enable_sanity_checks", "every step program is verified")                  \
    X("zero_optimization.cpu_offload_use_pin_memory", Z3D_CONFIG_PINNED)                           \
    X("zero_optimization.offload_optimizer.pin_memory", Z3D_CONFIG_PINNED)                         \
    X("zero_optimization.offload_optimizer.pipeline_read", "reads run beside the step")            \
    X("zero_optimization.offload_optimizer.pipeline_write", "writes run beside the step")          \
    X("zero_optimization.offload_optimizer.fast_init", "there is one way to make states")          \
    X("zero_optimization.offload_optimizer.convert_grad_on_cpu", "it changes no result")           \
    X("zero_optimization.offload_optimizer.cpuadam_cores_perc", "use training.threads")            \
    X("zero_optimization.offload_param.pin_memory", Z3D_CONFIG_PINNED)                             \
    X("zero_optimization.offload_param.buffer_count", "fetches are planned ahead")                 \
    X("zero_optimization.offload_param.buffer_size", "the memory planner sizes buffers")           \
    X("zero_optimization.offload_param.max_in_cpu", "the memory planner sizes host memory")        \
    X("zero_allow_untested_optimizer", "the optimizers are built in")                              \
    X("zero_force_ds_cpu_optimizer", "the optimizers are built in")                                \
    X("optimizer.params.torch_adam", "each optimizer has one implementation")                      \
    X("optimizer.params.fused", "an optimizer is always one kernel")                               \
    X("optimizer.legacy_fusion", "an optimizer is always one kernel")                              \
    X("activation_checkpointing.synchronize_checkpoint_boundary", "streams are ordered")           \
    X("activation_checkpointing.contiguous_memory_optimization", "memory is planned")              \
    X("activation_checkpointing.profile", "use training.trace_steps")                              \
    X("bf16.check_grad_overflow", "overflow is always checked")                                    \
    X("bf16.immediate_grad_update", "gradients are always summed immediately")                     \
    X("checkpoint.tag_validation", "the ranks always agree on a checkpoint")                       \
    X("checkpoint.load_universal", "every checkpoint loads on any topology")                       \
    X("checkpoint.parallel_write", "every rank writes its part")                                   \
    X("data_types.params_dtype", "fp16.enabled and bf16.enabled choose the type")                  \
    X("prescale_gradients", "the loss is scaled once, by the global batch")                        \
    X("gradient_predivide_factor", "the loss is scaled once, by the global batch")                 \
    X("seq_parallel_communication_data_type", "there is no DeepSpeed-Ulysses")                     \
    X("dataloader_drop_last", "a step is always a full batch")                                     \
    X("use_data_before_expert_parallel_", "there are no experts")                                  \
    X("disable_allgather", "parameters are gathered")                                              \
    X("zero_optimization.aio", Z3D_CONFIG_OWN_IO)                                                  \
    X("aio", Z3D_CONFIG_OWN_IO)                                                                    \
    X("pipeline.seed_layers", "initial weights are the same however units are split")              \
    X("pipeline.pipe_partitioned", "tensor ranks always share the sends between stages")           \
    X("pipeline.grad_partitioned", "tensor ranks always share the sends between stages")           \
    X("pipeline.use_reentrant", "there is one implementation of recomputation")                    \
    X("tensorboard.output_path", "event files are written to run.dir")                             \
    X("tensorboard.job_name", "event files are written to run.dir")                                \
    X("wandb", "examples/follow.py --wandb sends metrics.jsonl there")                             \
    X("csv_monitor", "metrics.jsonl in the run folder has every step")                             \
    X("comet", "metrics.jsonl in the run folder has every step")                                   \
    X("monitor_config", "metrics.jsonl in the run folder has every step")                          \
    X("flops_profiler", "use training.trace_steps")                                                \
    X("compile", "kernels are compiled with the program")                                          \
    X("autotuning", "use zero3d plan --recommend")                                                 \
    X("local_rank", "use zero3d-launch")                                                           \
    X("tensor_parallel.dtype", "fp16.enabled and bf16.enabled choose the type")                    \
    X("torch_compile", "kernels are compiled with the program")                                    \
    X("use_liger_kernel", "kernels are compiled with the program")                                 \
    X("average_tokens_across_devices", "the loss is the mean over a step's trained tokens")        \
    X("wall_clock_breakdown", "use training.trace_steps")                                          \
    X("memory_breakdown", "zero3d plan shows the memory")                                          \
    X("dump_state", "the resolved configuration is in the run folder")                             \
    X("log_level", "there is one level of messages")                                               \
    X("steps_per_print", "use training.log_interval")

/* Keys that Hugging Face's integration writes as "auto": X(path, the value that its Trainer puts
 * there). In a run they get our default, with a note, unless their rule has auto. */
#define Z3D_CONFIG_AUTO(X)                                                                         \
    X("gradient_clipping", "1")                                                                    \
    X("optimizer.params.lr", "5e-5")                                                               \
    X("optimizer.params.betas", "[0.9, 0.999]")                                                    \
    X("optimizer.params.eps", "1e-8")                                                              \
    X("optimizer.params.weight_decay", "0")                                                        \
    X("scheduler.params.warmup_num_steps", "0")                                                    \
    X("scheduler.params.total_num_steps", "auto")                                                  \
    X("train_batch_size", "auto")                                                                  \
    X("train_micro_batch_size_per_gpu", "8")                                                       \
    X("gradient_accumulation_steps", "1")                                                          \
    X("zero_optimization.reduce_bucket_size", "1e12")                                              \
    X("zero_optimization.allgather_bucket_size", "1e12")                                           \
    X("zero_optimization.stage3_prefetch_bucket_size", "5e7")                                      \
    X("fp16.enabled", "false")                                                                     \
    X("bf16.enabled", "false")

/* Numbers and switches with the same meaning as a key of ours: X(NAME, path, type, rule). They set
 * our key if nobody did, else they must agree with it (peers.c). A switch that is false is ignored,
 * except tensorboard's. comms_logger's are refused if its block is enabled. */
#define Z3D_CONFIG_PEERS(X)                                                                        \
    X(WARMUP_MAX_LR, "scheduler.params.warmup_max_lr", FLOAT, "[0,1e6]")                           \
    X(COS_MIN_RATIO, "scheduler.params.cos_min_ratio", FLOAT, "[0,1e6]")                           \
    X(PIPELINE_STAGES, "pipeline.stages", FLOAT, "[0,1e6]")                                        \
    X(AUTOTP_SIZE, "tensor_parallel.autotp_size", FLOAT, "[0,65536]")                              \
    X(PREFETCH, "zero_optimization.prefetch_bucket_size", FLOAT, "[0,1e12]")                       \
    X(PERSISTENCE, "zero_optimization.param_persistence_threshold", FLOAT, "[0,1e15]")             \
    X(MAX_LIVE, "zero_optimization.max_live_parameters", FLOAT, "[0,1e15]")                        \
    X(MAX_REUSE, "zero_optimization.max_reuse_distance", FLOAT, "[0,1e15]")                        \
    X(SHARD_DEGREE, "parallel.data_parallel_shard_degree", FLOAT, "[-1,1e6]")                      \
    X(CPU_OFFLOAD, "zero_optimization.cpu_offload", BOOL, "")                                      \
    X(CPU_OFFLOAD_PARAM, "zero_optimization.cpu_offload_param", BOOL, "")                          \
    X(CPU_OFFLOAD_PARAMS, "zero_optimization.cpu_offload_params", BOOL, "")                        \
    X(COMMS_VERBOSE, "comms_logger.verbose", BOOL, "")                                             \
    X(COMMS_DEBUG, "comms_logger.debug", BOOL, "")                                                 \
    X(TENSORBOARD, "tensorboard.enabled", BOOL, "")

/* Keys without a counterpart: X(path, off, why, instead). A value in `off` ("a|b") asks for nothing
 * and is accepted, also as a mapping's `enabled` ("unsaid" in `off`: also a mapping without it).
 * Other values are refused with `instead`; "": "<why>: not supported yet". */
#define Z3D_CONFIG_LATER(X)                                                                        \
    X("zero_optimization.offload_optimizer.super_offload", "false|null", "SuperOffload", "")       \
    X("zero_optimization.zero_quantized_weights", "false", "quantized gathers", "")                \
    X("zero_optimization.zero_quantized_nontrainable_weights", "false", "quantized gathers", "")   \
    X("zero_optimization.zero_quantized_gradients", "false", "quantized reductions", "")           \
    X("zero_optimization.zeropp_loco_param", "null", "quantized reductions", "")                   \
    X("zero_optimization.mics_hierarchical_params_gather", "false", "hierarchical partitions", "") \
    X("parallel.data_parallel_replicate_degree", "1", "a number of copies",                        \
      "write zero_optimization.mics_shard_size: the data ranks of one copy")                       \
    X("zero_optimization.pipeline_loading_checkpoint", "false", "loading rank by rank", "")        \
    X("zero_optimization.zenflow", "null|false", "ZenFlow", "")                                    \
    X("fp32_allreduce", "false", "another type for communication",                                 \
      "not supported: use communication_data_type")                                                \
    X("sparse_gradients", "false", "sparse gradients", "")                                         \
    X("optimizer.params.amsgrad", "false|null", "AMSGrad", "")                                     \
    X("optimizer.params.bias_correction", "true|null", "Adam without bias correction", "")         \
    X("optimizer.params.freeze_step", "null", "1-bit Adam", "")                                    \
    X("optimizer.params.nesterov", "false|null", "Nesterov momentum", "")                          \
    X("optimizer.params.dampening", "0|null", "SGD with dampening", "")                            \
    X("optimizer.params.lr_decay", "0|null", "Adagrad with lr_decay", "use scheduler")             \
    X("optimizer.params.initial_accumulator_value", "0|null",                                      \
      "an Adagrad that does not begin at 0", "")                                                   \
    X("scheduler.params.warmup_min_lr", "0|auto|null", "a warm-up that does not begin at 0", "")   \
    X("scheduler.params.warmup_min_ratio", "0|auto|null", "a warm-up that does not begin at 0",    \
      "")                                                                                          \
    X("scheduler.params.warmup_type", "linear|null", "a warm-up that is not linear", "")           \
    X("scheduler.params.last_batch_iteration", "-1", "a schedule that begins in the middle", "")   \
    X("fp16.auto_cast", "false|null", "casts of the model's inputs", "")                           \
    X("fp16.consecutive_hysteresis", "false", "hysteresis that starts again", "")                  \
    X("fp16.fp16_master_weights_and_grads", "false", "master weights in fp16", "")                 \
    X("bf16.bf16_master_weights_and_grads", "false", "master weights in bf16", "")                 \
    X("bf16.bf16_optimizer_states", "false", "optimizer states in bf16",                           \
      "not supported: use optimizer.params.exp_avg_dtype and exp_avg_sq_dtype")                    \
    X("checkpoint.use_node_local_storage", "false", "checkpoints on each node's own disk",         \
      "not supported: use a folder that all nodes share")                                          \
    X("amp", "false|auto|null|unsaid", "Apex AMP", "not supported: use bf16.enabled")              \
    X("torch_autocast", "false|auto|null|unsaid", "autocast", "not supported: use bf16.enabled")   \
    X("elasticity", "false|null|unsaid", "elastic batch sizes",                                    \
      "not supported: use parallel.elastic; a checkpoint loads on any number of ranks")            \
    X("curriculum_learning", "false|null|unsaid", "curriculum learning", "not supported")          \
    X("data_efficiency", "false|null|unsaid", "data efficiency", "not supported")                  \
    X("compression_training", "null", "compression", "")                                           \
    X("eigenvalue", "false|null|unsaid", "eigenvalues", "not supported")                           \
    X("progressive_layer_drop", "false|null|unsaid", "progressive layer drop", "not supported")    \
    X("quantize_training", "false|null|unsaid", "quantized training", "not supported")             \
    X("sparse_attention", "null|false", "sparse attention", "")                                    \
    X("hybrid_engine", "false|null|unsaid", "the hybrid engine", "not supported")                  \
    X("pipeline.partition", "best|null", "DeepSpeed's partition",                                  \
      "not supported: use parallel.pipeline_partition")                                            \
    X("pipeline.activation_checkpoint_interval", "0|null", "checkpoints of several layers",        \
      "not supported: use activation_checkpointing.granularity and number_checkpoints")            \
    X("nebula", "false|null|unsaid", "Nebula", "not supported: use checkpoint.async")              \
    X("label_smoothing_factor", "0|0.0|null", "label smoothing", "")                               \
    X("neftune_noise_alpha", "null", "noise on embeddings", "")                                    \
    X("lora.use_dora", "false|null", "DoRA", "")                                                   \
    X("lora.bias", "none|null", "training of biases beside adapters", "")                          \
    X("lora.layers_to_transform", "null", "adapters in a part of the layers", "")                  \
    X("lora.exclude_modules", "null", "exclude_modules",                                           \
      "not supported: name the layers in lora.target_modules")                                     \
    X("peft_config", "null", "adapters (LoRA)", "not supported: use lora")                         \
    X("assistant_only_loss", "false", "the loss on answers",                                       \
      "not supported: use --loss-on assistant of zero3d data tokenize")                            \
    X("completion_only_loss", "false|null", "the loss on completions",                             \
      "not supported: use --loss-on completions of zero3d data tokenize")                          \
    X("training.nccl.min_ctas", "auto", "NCCL's least CTAs",                                       \
      "not supported: set NCCL_MIN_CTAS in the environment")                                       \
    X("training.nccl.max_ctas", "auto", "NCCL's most CTAs",                                        \
      "not supported: set NCCL_MAX_CTAS in the environment")                                       \
    X("training.nccl.traffic_class", "auto", "NCCL's traffic class",                               \
      "not supported: set NCCL_IB_SL or NCCL_IB_TC in the environment")                            \
    X("graph_harvesting", "false", "CUDA graphs", "not supported: use training.cuda_graph")

#endif
