/* The one table of configuration keys: X(field, path, type, bits, default, rule, help).
 * bits: what two values do to the bits of losses and parameters (z3d_config_bits). NONE: nothing,
 * ever. SUM: they change only what the step programs are; of these the sums are read. DECIDE: other
 * values are other bits, or may be. DECIDE_ON_GPUS: with training.device cuda. `zero3d prove` goes
 * by it, so a class that is too weak makes it unsound.
 * default is the YAML text of the default ("" = unset, "auto" where the rule allows it).
 * rule: for numbers an interval "[1,1000000]" or "(0,1)" with "inf" allowed, then optionally "
 * auto", then " epoch"; for ENUM "a|b|c"; for STRING "" (any text), or "a|b|c [1, 2]": one of these
 * or a list like the example: of integers, or, where it has a point, of numbers; for LIST "" (data
 * files), "texts" or "groups" (texts of src/base/param_groups.h). */
#ifndef ZERO3D_BASE_CONFIG_KEYS_H
#define ZERO3D_BASE_CONFIG_KEYS_H

#include "src/base/lr_schedules.h"
#include "src/base/optimizers.h"

/* The axes of the mesh whose sizes are keys: X(AXIS, field, path). Ranks along these hold one copy
 * of the model; the data axis has the rest of the world. */
#define Z3D_CONFIG_AXES(X)                                                                         \
    X(TENSOR, parallel_tensor_model_parallel_size, "parallel.tensor_model_parallel_size")          \
    X(PIPELINE, parallel_pipeline_model_parallel_size, "parallel.pipeline_model_parallel_size")

/* clang-format off */
#define Z3D_CONFIG_KEYS(X) \
  X(model_type, "model.type", STRING, DECIDE, "gpt2", "", "the model: gpt2, or llama, which with its keys is also Mistral, Qwen2 and Qwen3") \
  X(model_num_layers, "model.num_layers", INT, DECIDE, "12", "[1,1000000]", "transformer blocks") \
  X(model_hidden_size, "model.hidden_size", INT, DECIDE, "768", "[1,1048576]", "width of the residual stream") \
  X(model_num_attention_heads, "model.num_attention_heads", INT, DECIDE, "12", "[1,65536]", "attention heads; must divide hidden_size, unless model.head_dim is set") \
  X(model_seq_length, "model.seq_length", INT, DECIDE, "1024", "[1,16777216]", "tokens per sample") \
  X(model_vocab_size, "model.vocab_size", INT, DECIDE, "50257", "[2,16777216]", "token ids; padded to make_vocab_size_divisible_by x tensor size, padded logits are masked") \
  X(model_make_vocab_size_divisible_by, "model.make_vocab_size_divisible_by", INT, DECIDE, "128", "[1,65536]", "vocabulary padding unit, as in Megatron-LM") \
  X(model_hidden_dropout, "model.hidden_dropout", FLOAT, DECIDE, "0", "[0,1)", "gpt2: dropout after the embedding and on each residual branch") \
  X(model_attention_dropout, "model.attention_dropout", FLOAT, DECIDE, "0", "[0,1)", "dropout on attention probabilities") \
  X(model_init_method_std, "model.init_method_std", FLOAT, DECIDE, "0.02", "(0,10]", "standard deviation of initial weights; residual projections use this / sqrt(2 num_layers), as in GPT-2") \
  X(model_num_key_value_heads, "model.num_key_value_heads", INT, DECIDE, "auto", "[1,65536] auto", "llama: heads of keys and values, each for a group of attention heads (grouped-query attention); auto: num_attention_heads") \
  X(model_head_dim, "model.head_dim", INT, DECIDE, "auto", "[2,1048576] auto", "llama: width of a head; auto: hidden_size / num_attention_heads") \
  X(model_intermediate_size, "model.intermediate_size", INT, DECIDE, "auto", "[1,16777216] auto", "llama: width inside of the MLP; auto: 4 x hidden_size") \
  X(model_rms_norm_eps, "model.rms_norm_eps", FLOAT, DECIDE, "1e-5", "(0,1]", "llama: epsilon of the RMSNorms") \
  X(model_rope_theta, "model.rope_theta", FLOAT, DECIDE, "10000", "[1,1e15]", "llama: base of the rotary position embedding") \
  X(model_rope_scaling_rope_type, "model.rope_scaling.rope_type", ENUM, DECIDE, "default", "default|linear|llama3|yarn", "llama: how rotary frequencies are stretched for longer contexts, as in Hugging Face's transformers. default: not at all") \
  X(model_rope_scaling_factor, "model.rope_scaling.factor", FLOAT, DECIDE, "1", "[1,1e6]", "linear, llama3, yarn: how many times longer the context is") \
  X(model_rope_scaling_original_max_position_embeddings, "model.rope_scaling.original_max_position_embeddings", INT, DECIDE, "auto", "[1,16777216] auto", "llama3, yarn: the context of the model before it was stretched; they need it, so auto is only for the others") \
  X(model_rope_scaling_low_freq_factor, "model.rope_scaling.low_freq_factor", FLOAT, DECIDE, "1", "(0,1e6]", "llama3: waves longer than original_max_position_embeddings / this are stretched by the whole factor") \
  X(model_rope_scaling_high_freq_factor, "model.rope_scaling.high_freq_factor", FLOAT, DECIDE, "4", "(0,1e6]", "llama3: waves shorter than original_max_position_embeddings / this stay as they are") \
  X(model_rope_scaling_beta_fast, "model.rope_scaling.beta_fast", FLOAT, DECIDE, "32", "(0,1e6]", "yarn: dimensions with more turns than this in the original context stay as they are") \
  X(model_rope_scaling_beta_slow, "model.rope_scaling.beta_slow", FLOAT, DECIDE, "1", "(0,1e6]", "yarn: dimensions with fewer turns than this are stretched by the whole factor") \
  X(model_rope_scaling_attention_factor, "model.rope_scaling.attention_factor", FLOAT, DECIDE, "0", "[0,1e6]", "yarn: what multiplies queries and keys; 0: from factor, mscale and mscale_all_dim") \
  X(model_rope_scaling_mscale, "model.rope_scaling.mscale", FLOAT, DECIDE, "0", "[0,1e6]", "yarn: weight of the attention factor's numerator; with mscale_all_dim") \
  X(model_rope_scaling_mscale_all_dim, "model.rope_scaling.mscale_all_dim", FLOAT, DECIDE, "0", "[0,1e6]", "yarn: weight of the attention factor's denominator; with mscale") \
  X(model_sliding_window, "model.sliding_window", INT, DECIDE, "0", "[0,16777216]", "llama: number of latest tokens that a token attends to, itself included; 0: all") \
  X(model_attention_bias, "model.attention_bias", BOOL, DECIDE, "false", "", "llama: queries, keys and values have biases, as in Qwen2") \
  X(model_qk_norm, "model.qk_norm", BOOL, DECIDE, "false", "", "llama: an RMSNorm of each head's queries and keys, as in Qwen3") \
  X(model_tie_word_embeddings, "model.tie_word_embeddings", BOOL, DECIDE, "false", "", "llama: the embedding's table is also the head's; gpt2's always is") \
  X(model_tiling, "model.tiling", INT, SUM, "1", "[1,1024] auto", "tiles that each block's MLP is cut into, run one after the other; ZeRO-3 gathers the parameters of one at a time. 1: whole blocks; auto: as few as make no tile larger than the attention. Checkpoints are those of whole blocks") \
  X(parallel_tensor_model_parallel_size, "parallel.tensor_model_parallel_size", INT, DECIDE, "1", "[1,65536]", "ranks that split each block's matrices (Megatron tensor parallelism)") \
  X(parallel_sequence_parallel, "parallel.sequence_parallel", BOOL, DECIDE, "false", "", "Megatron's sequence parallelism: layernorms, dropout and residuals work on 1/tp of a micro-batch's tokens; all-reduces become reduce-scatter and all-gather; tp must divide seq_length") \
  X(parallel_pipeline_model_parallel_size, "parallel.pipeline_model_parallel_size", INT, SUM, "1", "[1,1024]", "pipeline stages: ranks that split the model's units (embedding, blocks, head). The number of micro-batches of a step is gradient_accumulation_steps") \
  X(parallel_virtual_pipeline_model_parallel_size, "parallel.virtual_pipeline_model_parallel_size", INT, SUM, "1", "[1,1024]", "chunks of units per pipeline stage (Megatron-LM's virtual pipeline stages). interleaved needs 2 or more, zb-v 2, file any number, the other schedules 1") \
  X(parallel_pipeline_schedule, "parallel.pipeline_schedule", ENUM, SUM, "auto", "auto|1f1b|gpipe|interleaved|zb-h1|zb-v|file", "order of forward and backward passes. auto: interleaved with several chunks per stage, else 1f1b. zb-h1, zb-v: zero-bubble schedules, which cut backward into input and weight gradients. file: parallel.pipeline_schedule_file") \
  X(parallel_pipeline_schedule_file, "parallel.pipeline_schedule_file", STRING, SUM, "", "", "path of a schedule of your own, a CSV file with the header stage,pass,chunk,micro; for parallel.pipeline_schedule file") \
  X(parallel_pipeline_partition, "parallel.pipeline_partition", STRING, SUM, "time", "time|parameters|uniform [4, 3, 3, 4]", "how units are split over chunks. time: equal times; parameters: equal numbers of parameters; uniform: equal numbers of units; a list: units in each chunk, in the order of the forward. Embedding and head are units too") \
  X(parallel_device_speeds, "parallel.device_speeds", STRING, SUM, "equal", "equal|measured [1, 0.5]", "how fast each rank computes. equal: all ranks alike; measured: each rank is timed at the start; a list: one number per rank, in the order of ranks. Slower pipeline stages get fewer units, slower data ranks fewer samples of each micro-batch") \
  X(parallel_ranks_per_node, "parallel.ranks_per_node", INT, SUM, "auto", "[1,1000000] auto", "ranks of each node, for collective_algorithm and zero_hpz_partition_size. auto: those that the launcher started, or the devices of plan --hardware") \
  X(parallel_collective_algorithm, "parallel.collective_algorithm", ENUM, SUM, "ring", "ring|hierarchical|auto", "how the data group's collectives go over the nodes. ring: over all its ranks at once; hierarchical: over the ranks of each node and over the nodes, one after the other; auto: hierarchical where all nodes have equally many ranks, in whole tensor groups, and divide the data ranks") \
  X(parallel_allow_tensor_across_nodes, "parallel.allow_tensor_across_nodes", BOOL, NONE, "false", "", "allow tensor groups that span nodes (slow: the paper's < 5 % case)") \
  X(parallel_world_size, "parallel.world_size", INT, NONE, "auto", "[1,1000000000] auto", "number of ranks that the run must have; auto: any number") \
  X(parallel_elastic, "parallel.elastic", BOOL, SUM, "false", "", "a resumed run may have more or fewer ranks than before, whatever parallel.world_size and gradient_accumulation_steps say. train_batch_size stays: gradient_accumulation_steps becomes what makes it of micro-batches of at most train_micro_batch_size_per_gpu samples. Needs both batch keys") \
  X(train_batch_size, "train_batch_size", INT, DECIDE, "auto", "[1,1000000000] auto", "samples per optimizer step over all ranks") \
  X(train_micro_batch_size_per_gpu, "train_micro_batch_size_per_gpu", INT, SUM, "auto", "[1,1000000] auto", "samples per rank and micro-batch, on average if parallel.device_speeds differ; any two of the three batch keys give the third") \
  X(gradient_accumulation_steps, "gradient_accumulation_steps", INT, SUM, "auto", "[1,1000000] auto", "micro-batches per optimizer step") \
  X(gradient_clipping, "gradient_clipping", FLOAT, DECIDE, "0", "[0,1e9]", "largest global gradient norm; 0: no clipping") \
  X(communication_data_type, "communication_data_type", ENUM, SUM, "auto", "auto|fp32|bf16|fp16", "type in which fp32 gradients travel to be summed: bf16 or fp16 halves the bytes; they are still added in fp32. auto, fp32: as they are (fp32 is refused for gradients of 16 bits). Every rank sends straight to every other one, so with several data ranks per node use it with parallel.collective_algorithm hierarchical. With one data rank the choice has no effect and is allowed") \
  X(zero_optimization_stage, "zero_optimization.stage", INT, SUM, "2", "[0,3]", "ZeRO stage: what is partitioned over the data group. 0: nothing; 1: optimizer states; 2: also gradients; 3: also parameters. With one data rank all stages are equal, and allowed") \
  X(zero_optimization_reduce_bucket_size, "zero_optimization.reduce_bucket_size", INT, SUM, "1e12", "[1,1e12]", "largest number of elements in one reduction; the default: all of a parameter group. A smaller one costs NCCL a copy, and memory for a bucket") \
  X(zero_optimization_allgather_bucket_size, "zero_optimization.allgather_bucket_size", INT, SUM, "1e12", "[1,1e12]", "largest number of elements in one all-gather; the default: all of a parameter group, likewise") \
  X(zero_optimization_overlap_comm, "zero_optimization.overlap_comm", BOOL, SUM, "true", "", "run collectives beside compute") \
  X(zero_optimization_grad_reduce, "zero_optimization.grad_reduce", ENUM, SUM, "auto", "auto|per_step|per_microbatch", "when gradients are reduced, with accumulation. auto: per_step in stages 0 and 1, per_microbatch in stages 2 and 3. per_step keeps whole gradients, also in stages 2 and 3. With one micro-batch a step, or one data rank, the choice has no effect and is allowed") \
  X(zero_optimization_pipeline_gather, "zero_optimization.pipeline_gather", ENUM, SUM, "auto", "auto|per_step|per_microbatch", "stage 3 with pipeline stages: when parameters are gathered. per_step: once for all micro-batches, and kept; per_microbatch: before each use. auto: the faster one that fits, if the machine is described (training.hardware, plan --hardware); else a run takes per_step if it leaves a tenth of the memory free") \
  X(zero_optimization_sub_group_size, "zero_optimization.sub_group_size", INT, SUM, "1e9", "[0,1e15]", "with offload_optimizer: elements of a rank that are stepped at a time; with nvme also read and written at a time; 0: all of a parameter group") \
  X(zero_optimization_offload_optimizer_device, "zero_optimization.offload_optimizer.device", ENUM, DECIDE_ON_GPUS, "none", "none|cpu|nvme", "where the optimizer's states and its fp32 parameters lie, in every stage. none: on the device; cpu: in host memory; nvme: in a file in nvme_path. With cpu and nvme the host's cores step them") \
  X(zero_optimization_offload_optimizer_nvme_path, "zero_optimization.offload_optimizer.nvme_path", STRING, NONE, "", "", "nvme: folder on a local disk. Each rank's file there has no name and is gone when the run ends. ~ and $NAME are expanded on each rank") \
  X(zero_optimization_offload_optimizer_buffer_count, "zero_optimization.offload_optimizer.buffer_count", INT, SUM, "4", "[1,1024]", "with offload_optimizer: pieces of sub_group_size elements that are in host memory at a time: read, stepped or written") \
  X(zero_optimization_offload_optimizer_ratio, "zero_optimization.offload_optimizer.ratio", FLOAT, DECIDE_ON_GPUS, "1", "[0,1] auto", "share of the optimizer states that is offloaded (Twin-Flow), by whole parameter groups, spread evenly; the device keeps and steps the others, with their gradients and parameters. auto: the fastest of 0, 1/8 .. 1 that fits, if the machine is described (training.hardware, plan --hardware); else a run takes the smallest that leaves a tenth of the memory free") \
  X(zero_optimization_offload_optimizer_delayed_param_update, "zero_optimization.offload_optimizer.delayed_param_update", BOOL, DECIDE, "false", "", "one-step delayed parameter update (ZeRO-Offload): the host steps a step's gradients beside the next step's forward and backward, which use the parameters without them. It hides the host's step and changes the losses. Needs ratio 1") \
  X(zero_optimization_offload_param_device, "zero_optimization.offload_param.device", ENUM, SUM, "none", "none|cpu|nvme", "stage 3: where the parameters lie while they are not gathered, as offload_optimizer.device. Also for generate and evaluate") \
  X(zero_optimization_offload_param_nvme_path, "zero_optimization.offload_param.nvme_path", STRING, NONE, "", "", "nvme: folder, as offload_optimizer.nvme_path") \
  X(zero_optimization_stage3_param_persistence_threshold, "zero_optimization.stage3_param_persistence_threshold", INT, SUM, "0", "[0,1e15] auto", "stage 3: parameter groups of at most so many elements are kept whole on every rank and gathered once a step. A group is what a layer gathers at once (`zero3d plan --print-program` names them), not one tensor as in DeepSpeed. auto: 10 x model.hidden_size, as in Hugging Face's integration") \
  X(zero_optimization_zero_hpz_partition_size, "zero_optimization.zero_hpz_partition_size", INT, SUM, "1", "[1,1000000]", "stage 3: data ranks, of one node, that together keep a second copy of the parameters (hpZ of ZeRO++): after each step parameters cross the nodes once, and are then gathered inside of them. Costs that copy's memory. 1: off") \
  X(zero_optimization_mics_shard_size, "zero_optimization.mics_shard_size", INT, SUM, "-1", "[-1,1000000]", "hybrid sharding (MiCS, HSDP): states are sharded over so many data ranks only, and each such group has them all. -1: over all data ranks") \
  X(zero_optimization_stage3_prefetch_bucket_size, "zero_optimization.stage3_prefetch_bucket_size", INT, SUM, "auto", "[0,1e12] auto", "stage 3: elements of parameters that may be gathered before the units that use them; at least the next unit's. More hide a slow network better and take more memory. With offload_param: elements, behind the next unit's, that may be on their way to the device, and with nvme as many behind those from the disk to host memory. auto: the next unit's; with offload_param 5e7") \
  X(zero_optimization_stage3_max_live_parameters, "zero_optimization.stage3_max_live_parameters", INT, SUM, "1e15", "[0,1e15]", "stage 3: elements of parameters that may be gathered at a time. Where more would be, gathers ahead wait and what stage3_max_reuse_distance keeps is released; the unit that runs always has its own. The default: any number") \
  X(zero_optimization_stage3_max_reuse_distance, "zero_optimization.stage3_max_reuse_distance", INT, SUM, "0", "[0,1e15]", "stage 3: gathered parameters stay until their next use if fewer elements of other gathered parameters come before it: fewer gathers, more memory. 0: only for the next unit. DeepSpeed's default for this key and stage3_max_live_parameters is 1e9") \
  X(activation_checkpointing_granularity, "activation_checkpointing.granularity", ENUM, SUM, "auto", "full|selective|none|auto", "what backward recomputes. full: the whole block, only its input is kept; selective: layernorms and attention, 9 b s h per block are kept; none: nothing, 12 b s h per block are kept. auto: the first of none, selective and full whose planned memory leaves a tenth of the machine's free, in a run at least 64 MiB, whatever else runs there (plan --hardware: of the described one's; full where no machine is known); full if a key beside this one needs it. A resumed run keeps it, or what it then fits in") \
  X(activation_checkpointing_recompute_activation, "activation_checkpointing.recompute_activation", ENUM, SUM, "auto", "auto|true|false", "whether backward computes the output of GELU or SwiGLU again. false: forward keeps it, in GPT 4 b s h more per block; with granularity full of the blocks that are recomputed at a time. auto: false if it leaves a tenth of the machine's memory free, in a run at least 64 MiB, whatever else runs there, or if keeping it needs no more memory, in a run or on the machine of plan --hardware; true where the memory is not known") \
  X(activation_checkpointing_partition_activations, "activation_checkpointing.partition_activations", BOOL, SUM, "false", "", "P_a: each tensor rank keeps 1/tp of every activation checkpoint; costs one all-gather of b s h per block. With parallel.sequence_parallel the checkpoints are split anyway, without this cost") \
  X(activation_checkpointing_cpu_checkpointing, "activation_checkpointing.cpu_checkpointing", ENUM, SUM, "false", "false|true|auto|nvme", "P_a+cpu: keep activation checkpoints in host memory. Each is copied there once and back once. auto: true if compute hides the copies, or if the run does not fit otherwise. nvme: in a file in nvme_path; only those that leave and come are in host memory") \
  X(activation_checkpointing_nvme_path, "activation_checkpointing.nvme_path", STRING, NONE, "", "", "cpu_checkpointing nvme: folder, as offload_optimizer.nvme_path; unset: the folder of offload_optimizer or offload_param") \
  X(activation_checkpointing_number_checkpoints, "activation_checkpointing.number_checkpoints", INT, SUM, "auto", "[1,1000000] auto", "number of activation checkpoints, spread evenly over the blocks; auto: one per block") \
  X(activation_checkpointing_replay, "activation_checkpointing.replay", ENUM, SUM, "minimal", "minimal|full", "what a recomputation repeats. full: the block's whole forward, as the paper's systems do; minimal: only what backward reads") \
  X(data_types_grad_accum_dtype, "data_types.grad_accum_dtype", ENUM, DECIDE, "auto", "auto|fp32|bf16|fp16", "type in which gradients accumulate and are reduced: fp32 or the model's. auto: fp32 in bf16 runs of several micro-batches a step (gradient_accumulation_steps above 1), which takes 2 bytes a gradient more; else the model's type") \
  X(fp16_enabled, "fp16.enabled", BOOL, DECIDE, "false", "", "train in fp16 with loss scaling") \
  X(fp16_loss_scale, "fp16.loss_scale", FLOAT, DECIDE, "0", "[0,1e38]", "fixed loss scale; 0: dynamic") \
  X(fp16_initial_scale_power, "fp16.initial_scale_power", INT, DECIDE, "16", "[0,126]", "first loss scale is 2 to this power") \
  X(fp16_loss_scale_window, "fp16.loss_scale_window", INT, DECIDE, "1000", "[1,1e9]", "steps without overflow before the scale doubles") \
  X(fp16_hysteresis, "fp16.hysteresis", INT, DECIDE, "2", "[1,1e6]", "number of overflows before the scale halves") \
  X(fp16_min_loss_scale, "fp16.min_loss_scale", FLOAT, DECIDE, "1", "(0,1e38]", "lowest dynamic loss scale") \
  X(bf16_enabled, "bf16.enabled", BOOL, DECIDE, "false", "", "train in bf16 (fp32 when neither fp16 nor bf16 is enabled)") \
  X(optimizer_type, "optimizer.type", ENUM, DECIDE, "AdamW", Z3D_OPTIMIZER_RULE, "optimizer, as torch.optim has it: SGD with momentum; Adam is AdamW unless optimizer.params.adam_w_mode is false, as in DeepSpeed. Lion is the paper's: sign(0) is 0") \
  X(optimizer_params_lr, "optimizer.params.lr", FLOAT, DECIDE, "6e-4", "[0,1e6]", "peak learning rate") \
  X(optimizer_params_betas, "optimizer.params.betas", FLOAT2, DECIDE, "[0.9, 0.95]", "[0,1)", "AdamW, Adam: decay rates of momentum and variance. Lion: of the update and of the momentum; its paper has [0.9, 0.99]") \
  X(optimizer_params_eps, "optimizer.params.eps", FLOAT, DECIDE, "1e-8", "(0,1]", "AdamW, Adam, Adagrad: added to the root of the variance, or of the sum of squares; torch.optim.Adagrad has 1e-10") \
  X(optimizer_params_momentum, "optimizer.params.momentum", FLOAT, DECIDE, "0.9", "[0,1)", "SGD: decay rate of the momentum") \
  X(optimizer_params_weight_decay, "optimizer.params.weight_decay", FLOAT, DECIDE, "0.1", "[0,1e3]", "weight decay of matrices, decoupled (AdamW, Lion) or added to the gradient (Adam, SGD, Adagrad); biases and norms have none") \
  X(optimizer_params_adam_w_mode, "optimizer.params.adam_w_mode", BOOL, DECIDE, "true", "", "Adam: true: it is AdamW; false: L2 regularization, torch.optim.Adam") \
  X(optimizer_params_exp_avg_dtype, "optimizer.params.exp_avg_dtype", ENUM, DECIDE, "fp32", "fp32|bf16", "AdamW, Adam: type of the momentum between steps. bf16, for both moments: 4 bytes a parameter instead of 8, rounded at random, by training.seed, step and place, alike on every topology") \
  X(optimizer_params_exp_avg_sq_dtype, "optimizer.params.exp_avg_sq_dtype", ENUM, DECIDE, "fp32", "fp32|bf16", "AdamW, Adam: type of the variance; that of exp_avg_dtype") \
  X(optimizer_ema_decay, "optimizer.ema_decay", FLOAT, SUM, "0", "[0,1)", "above 0: an exponential moving average of the parameters is kept beside the optimizer's states, 4 bytes a parameter; the first step copies them. checkpoint export, evaluate and generate use it with --ema") \
  X(optimizer_param_groups, "optimizer.param_groups", LIST, DECIDE, "", "groups", "parameters with a learning rate or a weight decay of their own: a list of {params: [patterns], lr, lr_scale, weight_decay}. lr is a peak, lr_scale a factor of optimizer.params.lr; the schedule is the same. A pattern with * or ? is a whole name, another a part of one; the first group that has a name counts. Names are those of checkpoint show") \
  X(scheduler_type, "scheduler.type", ENUM, DECIDE, "constant", Z3D_LR_SCHEDULE_RULE, "learning-rate schedule: DeepSpeed's names, in which each step trains, or transformers', with its numbers (docs/learning-rate.md)") \
  X(scheduler_params_warmup_num_steps, "scheduler.params.warmup_num_steps", INT, DECIDE, "0", "[0,1e12]", "steps of linear warm-up from 0") \
  X(scheduler_params_warmup_ratio, "scheduler.params.warmup_ratio", FLOAT, DECIDE, "0", "[0,1]", "in place of warmup_num_steps: this share of total_num_steps, rounded up") \
  X(scheduler_params_total_num_steps, "scheduler.params.total_num_steps", INT, DECIDE, "auto", "[1,1e12] auto", "step at which the decay ends; auto: training.steps") \
  X(scheduler_params_num_decay_steps, "scheduler.params.num_decay_steps", INT, DECIDE, "auto", "[1,1e12] auto", "warmup_stable_decay: steps of the decay, the last ones up to total_num_steps; auto: a tenth of total_num_steps, rounded up") \
  X(scheduler_params_decay_type, "scheduler.params.decay_type", ENUM, DECIDE, "cosine", "cosine|linear|1-sqrt", "warmup_stable_decay: the form of the decay; 1-sqrt: 1 - the root of how much of it is over") \
  X(scheduler_params_num_cycles, "scheduler.params.num_cycles", INT, DECIDE, "1", "[1,1e6]", "cosine_with_restarts: decays from the peak, one behind the other, up to total_num_steps") \
  X(scheduler_params_power, "scheduler.params.power", FLOAT, DECIDE, "1", "(0,100]", "polynomial: the power of what is left of the decay") \
  X(scheduler_params_min_lr, "scheduler.params.min_lr", FLOAT, DECIDE, "0", "[0,1e6]", "learning rate at the end of the decay") \
  X(lora_r, "lora.r", INT, DECIDE, "0", "[0,65536]", "rank of adapters beside the model's layers (LoRA, with PEFT's names): only these are trained. 0: no adapters") \
  X(lora_lora_alpha, "lora.lora_alpha", FLOAT, DECIDE, "8", "(0,1e6]", "what an adapter adds is multiplied by lora_alpha / r") \
  X(lora_lora_dropout, "lora.lora_dropout", FLOAT, DECIDE, "0", "[0,1)", "dropout on what an adapter reads") \
  X(lora_use_rslora, "lora.use_rslora", BOOL, DECIDE, "false", "", "multiply by lora_alpha / sqrt(r) instead") \
  X(lora_target_modules, "lora.target_modules", LIST, DECIDE, "", "texts", "layers that have adapters, as Hugging Face names them: all-linear, or a list such as [q_proj, mlp.c_proj]; unset: gpt2 c_attn, llama q_proj and v_proj") \
  X(lora_modules_to_save, "lora.modules_to_save", LIST, DECIDE, "", "texts", "modules that are trained whole beside the adapters, such as [lm_head]") \
  X(lora_init_from, "lora.init_from", STRING, DECIDE, "", "", "folder with PEFT's adapter_model.safetensors: a new run starts with these adapters; unset: with new ones, which add nothing at first") \
  X(data_train, "data.train", LIST, DECIDE, "", "", "token file(s) to train on: a path, or a list of paths or {path, weight}") \
  X(data_validation, "data.validation", LIST, NONE, "", "", "held-out token file(s) for validation") \
  X(data_seed, "data.seed", INT, DECIDE, "1234", "[0,9223372036854775807]", "seed of the order of samples") \
  X(data_samples, "data.samples", ENUM, DECIDE, "windows", "windows|documents", "what a sample is. windows: seq_length tokens, wherever documents begin; documents: whole documents, packed by best fit. For token files of data tokenize and Megatron-LM") \
  X(data_too_long, "data.too_long", ENUM, DECIDE, "truncate", "truncate|drop|split", "with data.samples documents: documents of more than seq_length tokens. truncate: their first tokens are kept; drop: they are left out; split: they become several documents") \
  X(data_tokenizer, "data.tokenizer", ENUM, NONE, "bytes", "bytes|gpt2|huggingface", "how text becomes tokens (for generate): bytes; GPT-2's files; a tokenizer.json of Hugging Face (byte-pair encoding)") \
  X(data_vocab, "data.vocab", STRING, NONE, "", "", "the tokenizer's file or its folder: tokenizer.json; for gpt2 also vocab.json. A relative name may lie beside this file") \
  X(data_special, "data.special", ENUM, NONE, "auto", "auto|none|bos|eos|both", "tokens that are put around a text (generate, evaluate): bos: the one that begins it; eos: the one that ends a document. auto: before a text what tokenizer.json's post_processor puts there, and the end behind a document. A text that has them already gets no second ones") \
  X(data_merges, "data.merges", STRING, NONE, "", "", "the gpt2 tokenizer's merges.txt; unset: the one beside vocab.json") \
  X(training_steps, "training.steps", INT, NONE, "1000", "[1,1e12] auto", "optimizer steps; auto: as many as training.epochs are") \
  X(training_epochs, "training.epochs", FLOAT, DECIDE, "0", "[0,1e6]", "passes over data.train, also a part of one (2.5), in place of training.steps: the run counts the steps at its start, rounded up. data.train is one file then. 0: training.steps") \
  X(training_freeze, "training.freeze", LIST, DECIDE, "", "texts", "parameters that are not trained: a list of patterns of names, as in optimizer.param_groups. They have neither gradients nor optimizer states; blocks before the first trained parameter have no backward and keep no activations") \
  X(training_seed, "training.seed", INT, DECIDE, "1", "[0,9223372036854775807]", "seed of initial weights and dropout") \
  X(training_device, "training.device", ENUM, DECIDE, "cpu", "cpu|cuda", "device; cuda: one GPU per rank") \
  X(training_collectives, "training.collectives", ENUM, DECIDE_ON_GPUS, "auto", "auto|nccl|host", "who runs the collectives. host: zero3d itself, over MPI or TCP. auto: nccl on cuda, host on cpu. host on cuda goes through host memory: it is slow, has the cpu device's order of sums, and ranks may share a GPU") \
  X(training_nccl_windows, "training.nccl.windows", BOOL, DECIDE_ON_GPUS, "false", "", "NCCL: give it the memory that collectives use (ncclCommWindowRegister), so that GPUs that reach each other directly leave out its buffers. This may change the order of its sums. The start of the run says which groups have windows") \
  X(training_attention, "training.attention", ENUM, DECIDE_ON_GPUS, "auto", "auto|cudnn|own", "cuda: who computes attention; auto: cuDNN if it is installed and supports the case (16-bit types, no dropout on the probabilities), else zero3d's own kernels") \
  X(training_deterministic, "training.deterministic", BOOL, DECIDE_ON_GPUS, "true", "", "cuda: false lets cuDNN sum attention's input gradient in any order. This is faster and takes less memory, but two runs differ in their last bits") \
  X(training_tf32, "training.tf32", BOOL, DECIDE_ON_GPUS, "false", "", "cuda: an fp32 run multiplies matrices in TF32: fast, with 10 bits of mantissa") \
  X(training_cuda_graph, "training.cuda_graph", ENUM, NONE, "auto", "auto|on|off", "cuda: capture the train step once, and launch it as one graph from the second step on. Launches are fewer, results are bitwise equal. auto: on with one rank, or with NCCL on one node, without training.digest and training.trace_steps. The start of the run says which") \
  X(training_hardware, "training.hardware", STRING, SUM, "", "", "the machine for which activation_checkpointing.cpu_checkpointing: auto, zero_optimization.pipeline_gather: auto and zero_optimization.offload_optimizer.ratio: auto are decided. A path: a file that describes it (`zero3d doctor --measure FILE` writes one; see configs/hardware). measure: measure this machine at start-up. unset: cpu_checkpointing auto means false, the others go by memory") \
  X(training_threads, "training.threads", INT, NONE, "auto", "[1,4096] auto", "CPU threads per rank; auto: the node's cores / its ranks") \
  X(training_gemm_fp32, "training.gemm.fp32", ENUM, DECIDE, "auto", "auto|sgemm|matmul|portable|measured", "how an fp32 run multiplies matrices. auto: as a table says for the type and the CPU's instruction set; measured: the fastest at the start, which may be another one in the next run. config.yaml has what was chosen, and a resumed run keeps it") \
  X(training_gemm_bf16, "training.gemm.bf16", ENUM, DECIDE, "auto", "auto|sgemm|matmul|portable|measured", "how a bf16 run multiplies matrices, likewise (sgemm: converted to fp32)") \
  X(training_gemm_fp16, "training.gemm.fp16", ENUM, DECIDE, "auto", "auto|sgemm|portable|measured", "how an fp16 run multiplies matrices, likewise (always converted to fp32)") \
  X(training_gemm_cuda, "training.gemm.cuda", LIST, DECIDE_ON_GPUS, "heuristic", "texts", "cuda: which of cuBLASLt's algorithms multiplies. heuristic: the first that its heuristic names and that runs; timed: at the start each shape of product is timed with up to 8 algorithms, with and without its epilogue fused, and the fastest is kept; a list: what a run's config.yaml says then") \
  X(training_log_interval, "training.log_interval", INT, NONE, "10", "[1,1e9]", "steps between console lines") \
  X(training_eval_interval, "training.eval_interval", INT, NONE, "100", "[0,1e12] epoch", "steps between validation losses; epoch: the steps of one pass over data.train, rounded up, with training.epochs; 0: only at the end; needs data.validation") \
  X(training_eval_steps, "training.eval_steps", INT, NONE, "10", "[1,1e9]", "batches per validation loss; needs data.validation") \
  X(training_early_stopping_patience, "training.early_stopping_patience", INT, NONE, "0", "[0,1e9]", "number of validation losses in a row that are not lower than the lowest so far, after which the run ends, as in transformers' EarlyStoppingCallback. A resumed run goes on counting. 0: off; needs data.validation") \
  X(training_max_skipped_steps, "training.max_skipped_steps", INT, NONE, "20", "[1,1e9]", "largest number of steps in a row that are skipped for overflow before the run stops") \
  X(training_peak_tflops, "training.peak_tflops", FLOAT, NONE, "0", "[0,1e6]", "peak TFLOP/s of one rank, for MFU; 0: measured with matrix products on the cpu device") \
  X(training_watchdog_timeout, "training.watchdog_timeout", FLOAT, NONE, "600", "[0,1e9]", "seconds in one wait, or without an answer from a disk, after which the run ends with a report of who waits for whom; 0: no limit") \
  X(training_digest, "training.digest", BOOL, NONE, "false", "", "write a digest of every instruction's output (slow)") \
  X(training_trace_steps, "training.trace_steps", INT, NONE, "0", "[0,1e6]", "number of first steps whose timeline is written, for `zero3d trace` and Perfetto") \
  X(training_verify, "training.verify", BOOL, NONE, "true", "", "verify the step program before running it") \
  X(training_time_limit, "training.time_limit", FLOAT, NONE, "0", "[0,1e9]", "seconds after which the run ends as after SIGTERM: it saves a checkpoint unless checkpoint.interval is 0; 0: no limit") \
  X(checkpoint_dir, "checkpoint.dir", STRING, NONE, "", "", "folder of the run's checkpoints; unset: checkpoints in run.dir") \
  X(checkpoint_interval, "checkpoint.interval", INT, NONE, "auto", "[0,1e12] auto epoch", "steps between checkpoints. If it is not 0, the run also saves at its end and when it is asked to stop. auto: 1000. epoch: the steps of one pass over data.train, rounded up, with training.epochs. 0: no checkpoints, the model is lost") \
  X(checkpoint_keep, "checkpoint.keep", INT, NONE, "3", "[0,1e6]", "number of latest checkpoints to keep; 0: all. Checkpoints that were renamed as damaged are kept and not counted") \
  X(checkpoint_keep_best, "checkpoint.keep_best", BOOL, NONE, "false", "", "also keep the checkpoint of the lowest validation loss, as best in checkpoint.dir: a lower loss is saved at its step, whatever checkpoint.interval is. Needs data.validation") \
  X(checkpoint_resume, "checkpoint.resume", STRING, DECIDE, "auto", "", "auto: resume from the latest checkpoint in checkpoint.dir, if there is one (also with checkpoint.interval: 0). never: start a new run; the folder must have no checkpoints. A path: resume from that checkpoint") \
  X(checkpoint_init_from, "checkpoint.init_from", STRING, DECIDE, "", "", "path of a checkpoint: a new run starts with its weights. A relative name may lie beside this file") \
  X(checkpoint_base, "checkpoint.base", STRING, NONE, "", "", "path of the checkpoint that has the frozen parameters which the loaded checkpoint leaves out; unset: it is where it was when the run began") \
  X(checkpoint_verify, "checkpoint.verify", ENUM, NONE, "full", "full|read|sizes", "what is checked before a checkpoint is used. full: the digest of every byte; read: the digests of what this run reads; sizes: only the files' sizes") \
  X(checkpoint_export_dtype, "checkpoint.export.dtype", ENUM, NONE, "fp32", "fp32|bf16|fp16", "type of the tensors in an export, unless --dtype says another; an import sets it to the model's own") \
  X(checkpoint_export_max_position_embeddings, "checkpoint.export.max_position_embeddings", INT, NONE, "auto", "[1,16777216] auto", "llama: the longest text of the model as an export's config.json has it; an import sets it to the model's own, which a run with a shorter model.seq_length keeps. auto: model.seq_length") \
  X(checkpoint_async, "checkpoint.async", BOOL, SUM, "false", "", "save from a copy in host memory while training continues") \
  X(comms_logger_enabled, "comms_logger.enabled", BOOL, NONE, "false", "", "report the bytes that each kind of collective sends, inside a node and between nodes: in metrics.jsonl, at the end of the run and in zero3d report. Nodes are those of parallel.ranks_per_node, if it is set") \
  X(comms_logger_prof_all, "comms_logger.prof_all", BOOL, NONE, "true", "", "report all kinds of collectives; false: those of comms_logger.prof_ops") \
  X(comms_logger_prof_ops, "comms_logger.prof_ops", LIST, NONE, "", "texts", "kinds of collectives that are reported with comms_logger.prof_all false: a list of all_reduce, reduce_scatter, all_gather, broadcast and send") \
  X(run_dir, "run.dir", STRING, NONE, "runs/default", "", "folder that the run writes to") \
  X(run_tensorboard, "run.tensorboard", BOOL, NONE, "true", "", "write TensorBoard event files") \
  X(generate_prompt, "generate.prompt", STRING, SUM, "", "", "text to continue at the end of the run; unset: no sample") \
  X(generate_prompts, "generate.prompts", LIST, SUM, "", "texts", "more texts to continue at the end of the run, at most 16") \
  X(generate_every, "generate.every", INT, NONE, "0", "[0,1e12]", "steps between samples: the texts of generate.prompt and generate.prompts are also continued as the run goes, and written to samples.jsonl in run.dir. No bit of the training depends on it. 0: only at the end") \
  X(generate_tokens, "generate.tokens", INT, NONE, "200", "[1,1e6]", "number of tokens to generate; this and the next keys need generate.prompt or generate.prompts") \
  X(generate_temperature, "generate.temperature", FLOAT, NONE, "0.8", "[0,100]", "temperature of sampling; 0: always the most likely token") \
  X(generate_top_k, "generate.top_k", INT, NONE, "40", "[0,16777216]", "sample from the k most likely tokens; 0: from all") \
  X(generate_top_p, "generate.top_p", FLOAT, NONE, "1", "(0,1]", "nucleus sampling: of the tokens that top_k leaves, sample from the most likely ones whose probabilities add up to p; 1: from all") \
  X(generate_repetition_penalty, "generate.repetition_penalty", FLOAT, NONE, "1", "(0,100]", "divides positive logits of tokens that the text has, and multiplies negative ones (CTRL); 1: none") \
  X(generate_stop, "generate.stop", LIST, NONE, "", "texts", "texts that end an answer; they are no part of it. A special token of the tokenizer ends it as a token") \
  X(generate_ignore_eos, "generate.ignore_eos", ENUM, NONE, "auto", "auto|true|false", "whether generation goes on behind the end of a document. auto: not for prompts of a file (generate --prompts), else it does") \
  X(generate_batch, "generate.batch", INT, NONE, "auto", "[1,65536] auto", "prompts of a file that each model replica continues together. auto: as many as half of the free memory holds, at most 32") \
  X(generate_seed, "generate.seed", INT, NONE, "1", "[0,9223372036854775807]", "seed of sampling")
/* clang-format on */

/* Reasons that several keys share. */
#define Z3D_CONFIG_PINNED "host memory for a GPU is always page-locked"
#define Z3D_CONFIG_OWN_IO "sizes and number of requests to the disk are fixed"

/* Keys of a DeepSpeed zero_optimization block (and others users paste) that are accepted and change
 * nothing here: X(path, why). The reader says so in one line; values are not looked at. */
#define Z3D_CONFIG_ACCEPTED(X)                                                                     \
    X("zero_optimization.contiguous_gradients",                                                    \
      "gradients are always contiguous: the memory planner lays them out")                         \
    X("zero_optimization.reduce_scatter", "gradients are always reduce-scattered")                 \
    X("zero_optimization.allgather_partitions", "partitions are always all-gathered")              \
    X("zero_optimization.round_robin_gradients",                                                   \
      "shards are equal column ranges; there is no rank order to rotate")                          \
    X("zero_optimization.stage3_gather_16bit_weights_on_model_save",                               \
      "zero3d checkpoint export makes such a file from any checkpoint")                            \
    X("zero_optimization.ignore_unused_parameters",                                                \
      "the step program knows every parameter's use")                                              \
    X("zero_optimization.elastic_checkpoint", "every checkpoint loads on any topology")            \
    X("zero_optimization.load_from_fp32_weights", "checkpoints hold fp32 weights, and no others")  \
    X("zero_optimization.stage3_gather_fp16_weights_on_model_save",                                \
      "zero3d checkpoint export makes such a file from any checkpoint")                            \
    X("zero_optimization.stage3_model_persistence_threshold",                                      \
      "groups up to stage3_param_persistence_threshold are kept whole, however many there are")    \
    X("zero_optimization.stage3_module_granularity_threshold",                                     \
      "units are the model's blocks, and always the same")                                         \
    X("zero_optimization.stage3_use_all_reduce_for_fetch_params",                                  \
      "parameters are always all-gathered")                                                        \
    X("zero_optimization.stage3_allgather_sequential", "one unit is gathered at a time")           \
    X("zero_optimization.model_persistence_threshold",                                             \
      "groups up to stage3_param_persistence_threshold are kept whole, however many there are")    \
    X("zero_optimization.gather_16bit_weights_on_model_save",                                      \
      "zero3d checkpoint export makes such a file from any checkpoint")                            \
    X("zero_optimization.module_granularity_threshold",                                            \
      "units are the model's blocks, and always the same")                                         \
    X("zero_optimization.use_all_reduce_for_fetch_params", "parameters are always all-gathered")   \
    X("zero_optimization.allgather_sequential", "one unit is gathered at a time")                  \
    X("zero_optimization.legacy_stage1", "there is one implementation of stage 1")                 \
    X("zero_optimization.use_multi_rank_bucket_allreduce",                                         \
      "gradients are always reduce-scattered")                                                     \
    X("zero_optimization.memory_efficient_linear", "the memory planner places every tensor")       \
    X("zero_optimization.override_module_apply", "parameters are partitioned from the start")      \
    X("zero_optimization.log_trace_cache_warnings", "there is no trace cache")                     \
    X("zero_optimization.enable_sanity_checks", "every step program is verified")                  \
    X("zero_optimization.cpu_offload_use_pin_memory", Z3D_CONFIG_PINNED)                           \
    X("zero_optimization.offload_optimizer.pin_memory", Z3D_CONFIG_PINNED)                         \
    X("zero_optimization.offload_optimizer.pipeline_read",                                         \
      "reads run beside the step, with overlap_comm")                                              \
    X("zero_optimization.offload_optimizer.pipeline_write",                                        \
      "writes run beside the step, with overlap_comm")                                             \
    X("zero_optimization.offload_optimizer.fast_init", "there is one way to make initial states")  \
    X("zero_optimization.offload_optimizer.convert_grad_on_cpu",                                   \
      "where gradients are converted changes no result")                                           \
    X("zero_optimization.offload_optimizer.cpuadam_cores_perc", "training.threads says how many")  \
    X("zero_optimization.offload_param.pin_memory", Z3D_CONFIG_PINNED)                             \
    X("zero_optimization.offload_param.buffer_count",                                              \
      "the program says how far ahead parameters are fetched")                                     \
    X("zero_optimization.offload_param.buffer_size",                                               \
      "the memory planner gives buffers their size")                                               \
    X("zero_optimization.offload_param.max_in_cpu",                                                \
      "with nvme only what is fetched or stored is in host memory")                                \
    X("zero_allow_untested_optimizer", "the optimizers are built in")                              \
    X("zero_force_ds_cpu_optimizer", "the optimizers are built in")                                \
    X("optimizer.params.torch_adam", "each optimizer has one implementation")                      \
    X("optimizer.params.fused", "an optimizer is always one kernel")                               \
    X("optimizer.legacy_fusion", "an optimizer is always one kernel")                              \
    X("activation_checkpointing.synchronize_checkpoint_boundary",                                  \
      "streams are ordered by the step program")                                                   \
    X("activation_checkpointing.contiguous_memory_optimization",                                   \
      "the memory planner packs everything; nothing fragments")                                    \
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
    X("disable_allgather", "parameters are always all-gathered")                                   \
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
    X("average_tokens_across_devices", "the loss is always of all trained tokens of a step")       \
    X("wall_clock_breakdown", "use training.trace_steps")                                          \
    X("memory_breakdown", "zero3d plan shows the memory")                                          \
    X("dump_state", "the resolved configuration is in the run folder")                             \
    X("log_level", "there is one level of messages")                                               \
    X("steps_per_print", "use training.log_interval")

/* What Hugging Face's integration writes as "auto", beside the keys whose rule has it: our default,
 * told in one line. X(path, value that its Trainer fills in where that is not our default). */
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

/* Numbers and switches that say again, or in another way, what a key of ours says: X(NAME, path,
 * type, rule). They set that key where nobody did, else must agree with it (peers.c); a switch that
 * is false says nothing, but tensorboard's. Those of comms_logger say what it does not do. */
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

/* Keys without a counterpart: X(path, off, why, instead). Written with a value of `off` ("a|b"; a
 * mapping by its `enabled`; "unsaid": a mapping without it is off too) they ask for nothing and are
 * accepted; else refused with `instead`, "": "<why>: not supported yet". */
#define Z3D_CONFIG_LATER(X)                                                                        \
    X("zero_optimization.offload_optimizer.super_offload", "false|null", "SuperOffload", "")       \
    X("zero_optimization.zero_quantized_weights", "false", "quantized gathers", "")                \
    X("zero_optimization.zero_quantized_nontrainable_weights", "false", "quantized gathers", "")   \
    X("zero_optimization.zero_quantized_gradients", "false", "quantized reductions", "")           \
    X("zero_optimization.zeropp_loco_param", "null", "quantized reductions", "")                   \
    X("zero_optimization.mics_hierarchical_params_gather", "false", "hierarchical partitions", "") \
    X("parallel.data_parallel_replicate_degree", "1", "a number of copies",                        \
      "write zero_optimization.mics_shard_size: the data ranks of one copy")                       \
    X("zero_optimization.pipeline_loading_checkpoint", "false", "loading while reading", "")       \
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
