/* The one table of configuration keys, in the order of `zero3d config`:
 *
 *   X(field, path, type, default, rule, bits, resume, inference, help)
 *
 * default: the YAML text of the default ("" = unset, "auto" where the rule allows it).
 * rule: for numbers an interval, "[1,1000000]" or "(0,1)", then optionally " auto",
 * then " epoch"; for ENUM "a|b|c"; for STRING "" (any text), or "a|b|c [1, 2]": a word, or a
 * list like the example (with a point: of numbers, else of integers); for LIST ""
 * (data files), "texts" or "groups" (texts of src/base/param_groups.h).
 * bits (z3d_config_bits): how two values change the bits of losses and parameters. `zero3d prove`
 * relies on it: a class that is too weak makes its proofs wrong.
 * resume (z3d_config_resume): whether a resumed run must keep the value.
 * inference (z3d_config_inference): whether generate and evaluate take a checkpoint's value. */
#ifndef ZERO3D_BASE_CONFIG_KEYS_H
#define ZERO3D_BASE_CONFIG_KEYS_H

#include "src/base/lr_schedules.h"
#include "src/base/optimizers.h"
#include "src/base/pipeline_schedules.h"

/* clang-format off */

/* Adapters. */
#define Z3D_CONFIG_LORA_KEYS(X) \
    X(lora_r, "lora.r", \
      INT, "0", "[0,65536]", DECIDE_SUMS, SCALE, STAYS, \
      "rank of adapters beside the model's layers (LoRA, with PEFT's names): only these are " \
      "trained. 0: no adapters") \
    X(lora_lora_alpha, "lora.lora_alpha", \
      FLOAT, "8", "(0,1e6]", DECIDE_SUMS, SCALE, STAYS, \
      "the output of an adapter is multiplied by lora_alpha / r") \
    X(lora_lora_dropout, "lora.lora_dropout", \
      FLOAT, "0", "[0,1)", DECIDE_SUMS, KEPT, STAYS, \
      "dropout on the input of an adapter") \
    X(lora_use_rslora, "lora.use_rslora", \
      BOOL, "false", "", DECIDE_SUMS, SCALE, STAYS, \
      "multiply by lora_alpha / sqrt(r) instead") \
    X(lora_target_modules, "lora.target_modules", \
      LIST, "", "texts", DECIDE_SUMS, ADAPTED, STAYS, \
      "layers that have adapters, as Hugging Face names them: all-linear, or a list such as " \
      "[q_proj, mlp.c_proj]; unset: gpt2 c_attn, llama q_proj and v_proj") \
    X(lora_modules_to_save, "lora.modules_to_save", \
      LIST, "", "texts", DECIDE_SUMS, KEPT, STAYS, \
      "modules that are trained as a whole, beside the adapters, such as [lm_head]") \
    X(lora_init_from, "lora.init_from", \
      STRING, "", "", DECIDE_SUMS, FREE, STAYS, \
      "folder with PEFT's adapter_model.safetensors: a new run starts with these adapters; " \
      "unset: with new ones, whose output is 0 at first")

#define Z3D_CONFIG_KEYS(X) \
    /* The model and its sizes. */ \
    X(model_type, "model.type", \
      STRING, "gpt2", "", DIFFER_SUMS, SIZE, STAYS, \
      "the model: gpt2, or llama, whose keys also describe Mistral, Qwen2 and Qwen3") \
    X(model_num_layers, "model.num_layers", \
      INT, "12", "[1,1000000]", DIFFER_SUMS, SIZE, STAYS, \
      "transformer blocks") \
    X(model_hidden_size, "model.hidden_size", \
      INT, "768", "[1,1048576]", DIFFER_SUMS, SIZE, STAYS, \
      "width of the residual stream") \
    X(model_num_attention_heads, "model.num_attention_heads", \
      INT, "12", "[1,65536]", DIFFER_SUMS, SIZE, STAYS, \
      "attention heads; must divide hidden_size, unless model.head_dim is set") \
    X(model_seq_length, "model.seq_length", \
      INT, "1024", "[1,16777216]", DIFFER_SUMS, SIZE, STAYS, \
      "tokens per sample") \
    X(model_vocab_size, "model.vocab_size", \
      INT, "50257", "[2,16777216]", DIFFER_SUMS, SIZE, STAYS, \
      "token ids; padded to a multiple of make_vocab_size_divisible_by x tensor size; padding is " \
      "masked") \
    X(model_make_vocab_size_divisible_by, "model.make_vocab_size_divisible_by", \
      INT, "128", "[1,65536]", DECIDE_SUMS, FREE, STAYS, \
      "vocabulary padding unit, as in Megatron-LM") \
    X(model_hidden_dropout, "model.hidden_dropout", \
      FLOAT, "0", "[0,1)", DECIDE_SUMS, KEPT, STAYS, \
      "gpt2: dropout after the embedding and on each residual branch") \
    X(model_attention_dropout, "model.attention_dropout", \
      FLOAT, "0", "[0,1)", DECIDE_SUMS, KEPT, STAYS, \
      "dropout on attention probabilities") \
    X(model_init_method_std, "model.init_method_std", \
      FLOAT, "0.02", "(0,10]", WEIGHTS_SUMS, KEPT, STAYS, \
      "standard deviation of initial weights; residual projections use this / sqrt(2 " \
      "num_layers), as in GPT-2") \
    X(model_num_key_value_heads, "model.num_key_value_heads", \
      INT, "auto", "[1,65536] auto", DIFFER_SUMS, SIZE, STAYS, \
      "llama: heads of keys and values, each for a group of attention heads (grouped-query " \
      "attention); auto: num_attention_heads") \
    X(model_head_dim, "model.head_dim", \
      INT, "auto", "[2,1048576] auto", DIFFER_SUMS, SIZE, STAYS, \
      "llama: width of a head; auto: hidden_size / num_attention_heads") \
    X(model_intermediate_size, "model.intermediate_size", \
      INT, "auto", "[1,16777216] auto", DIFFER_SUMS, SIZE, STAYS, \
      "llama: width inside of the MLP; auto: 4 x hidden_size") \
    X(model_rms_norm_eps, "model.rms_norm_eps", \
      FLOAT, "1e-5", "(0,1]", DECIDE_SUMS, KEPT, STAYS, \
      "llama: epsilon of the RMSNorms") \
    X(model_rope_theta, "model.rope_theta", \
      FLOAT, "10000", "[1,1e15]", DECIDE_SUMS, KEPT, STAYS, \
      "llama: base of the rotary position embedding") \
    X(model_rope_scaling_rope_type, "model.rope_scaling.rope_type", \
      ENUM, "default", "default|linear|llama3|yarn", DECIDE_SUMS, KEPT, STAYS, \
      "llama: how rotary frequencies are stretched for longer contexts, as in Hugging Face's " \
      "transformers. default: not at all") \
    X(model_rope_scaling_factor, "model.rope_scaling.factor", \
      FLOAT, "1", "[1,1e6]", DECIDE_SUMS, KEPT, STAYS, \
      "linear, llama3, yarn: how many times longer the context is") \
    X(model_rope_scaling_original_max_position_embeddings, \
      "model.rope_scaling.original_max_position_embeddings", \
      INT, "auto", "[1,16777216] auto", DECIDE_SUMS, KEPT, STAYS, \
      "llama3, yarn: the context of the model before it was stretched; auto only for the other " \
      "types, which do not need it") \
    X(model_rope_scaling_low_freq_factor, "model.rope_scaling.low_freq_factor", \
      FLOAT, "1", "(0,1e6]", DECIDE_SUMS, KEPT, STAYS, \
      "llama3: waves longer than original_max_position_embeddings / this are stretched by the " \
      "whole factor") \
    X(model_rope_scaling_high_freq_factor, "model.rope_scaling.high_freq_factor", \
      FLOAT, "4", "(0,1e6]", DECIDE_SUMS, KEPT, STAYS, \
      "llama3: waves shorter than original_max_position_embeddings / this stay as they are") \
    X(model_rope_scaling_beta_fast, "model.rope_scaling.beta_fast", \
      FLOAT, "32", "(0,1e6]", DECIDE_SUMS, KEPT, STAYS, \
      "yarn: dimensions with more turns than this in the original context stay as they are") \
    X(model_rope_scaling_beta_slow, "model.rope_scaling.beta_slow", \
      FLOAT, "1", "(0,1e6]", DECIDE_SUMS, KEPT, STAYS, \
      "yarn: dimensions with fewer turns than this are stretched by the whole factor") \
    X(model_rope_scaling_attention_factor, "model.rope_scaling.attention_factor", \
      FLOAT, "0", "[0,1e6]", DECIDE_SUMS, KEPT, STAYS, \
      "yarn: factor of queries and keys; 0: from factor, mscale and mscale_all_dim") \
    X(model_rope_scaling_mscale, "model.rope_scaling.mscale", \
      FLOAT, "0", "[0,1e6]", DECIDE_SUMS, KEPT, STAYS, \
      "yarn: m in the attention factor's numerator 0.1 m ln(factor) + 1; with mscale_all_dim") \
    X(model_rope_scaling_mscale_all_dim, "model.rope_scaling.mscale_all_dim", \
      FLOAT, "0", "[0,1e6]", DECIDE_SUMS, KEPT, STAYS, \
      "yarn: m in the attention factor's denominator 0.1 m ln(factor) + 1; with mscale") \
    X(model_sliding_window, "model.sliding_window", \
      INT, "0", "[0,16777216]", DECIDE_SUMS, KEPT, STAYS, \
      "llama: number of latest tokens that a token attends to, itself included; 0: all") \
    X(model_attention_bias, "model.attention_bias", \
      BOOL, "false", "", DIFFER_SUMS, KEPT, STAYS, \
      "llama: queries, keys and values have biases, as in Qwen2") \
    X(model_qk_norm, "model.qk_norm", \
      BOOL, "false", "", DIFFER_SUMS, KEPT, STAYS, \
      "llama: an RMSNorm of each head's queries and keys, as in Qwen3") \
    X(model_tie_word_embeddings, "model.tie_word_embeddings", \
      BOOL, "false", "", DIFFER_SUMS, KEPT, STAYS, \
      "llama: embedding and head share a table; in gpt2 they always do") \
    X(model_tiling, "model.tiling", \
      INT, "1", "[1,1024] auto", SUM, FREE, STAYS, \
      "number of tiles of each block's MLP, which run one after the other; ZeRO-3 gathers the " \
      "parameters of one at a time. 1: whole blocks; auto: the least number with no tile larger " \
      "than the attention. Checkpoints do not depend on it") \
    /* Ranks and pipeline stages. */ \
    X(parallel_tensor_model_parallel_size, "parallel.tensor_model_parallel_size", \
      INT, "1", "[1,65536]", DIFFER_SUMS, FREE, STAYS, \
      "ranks that split each block's matrices (Megatron tensor parallelism)") \
    X(parallel_sequence_parallel, "parallel.sequence_parallel", \
      BOOL, "false", "", ROUND_SUMS, FREE, STANDARD, \
      "Megatron's sequence parallelism: layernorms, dropout and residuals work on 1/tp of a " \
      "micro-batch's tokens; all-reduces become reduce-scatter and all-gather; tp must divide " \
      "seq_length") \
    X(parallel_pipeline_model_parallel_size, "parallel.pipeline_model_parallel_size", \
      INT, "1", "[1,1024]", SUM, FREE, STANDARD, \
      "pipeline stages: ranks that split the model's units (embedding, blocks, head). The " \
      "number of micro-batches of a step is gradient_accumulation_steps") \
    X(parallel_virtual_pipeline_model_parallel_size, \
      "parallel.virtual_pipeline_model_parallel_size", \
      INT, "1", "[1,1024]", SUM, FREE, STANDARD, \
      "chunks of units per pipeline stage (Megatron-LM's virtual pipeline stages)" \
      Z3D_SCHEDULE_CHUNKS) \
    X(parallel_pipeline_schedule, "parallel.pipeline_schedule", \
      ENUM, "auto", Z3D_SCHEDULE_RULE, SUM, FREE, STANDARD, \
      "order of forward and backward passes. auto: interleaved with several chunks per stage, " \
      "else 1f1b. zb-h1, zb-v: zero-bubble schedules, which cut backward into input and weight " \
      "gradients. file: parallel.pipeline_schedule_file") \
    X(parallel_pipeline_schedule_file, "parallel.pipeline_schedule_file", \
      STRING, "", "", SUM, FREE, STANDARD, \
      "path of a schedule of your own, a CSV file with the header stage,pass,chunk,micro; for " \
      "parallel.pipeline_schedule file") \
    X(parallel_pipeline_partition, "parallel.pipeline_partition", \
      STRING, "time", "time|parameters|uniform [4, 3, 3, 4]", SUM, FREE, STANDARD, \
      "split of units over chunks. time: equal times; parameters: equal numbers of parameters; " \
      "uniform: equal numbers of units; a list: units in each chunk, in the order of the " \
      "forward. Embedding and head are units too") \
    X(parallel_device_speeds, "parallel.device_speeds", \
      STRING, "equal", "equal|measured [1, 0.5]", SUM, FREE, STANDARD, \
      "speed of each rank. equal: the same; measured: the start of the run times each rank; a " \
      "list: one number per rank, in the order of ranks. Slower pipeline stages get fewer units, " \
      "slower data ranks fewer samples of each micro-batch") \
    X(parallel_ranks_per_node, "parallel.ranks_per_node", \
      INT, "auto", "[1,1000000] auto", SUM, FREE, STANDARD, \
      "ranks of each node, for collective_algorithm, zero_hpz_partition_size and comms_logger. " \
      "auto: as the launcher started them, or the devices of plan --hardware") \
    X(parallel_collective_algorithm, "parallel.collective_algorithm", \
      ENUM, "ring", "ring|hierarchical|auto", SUM, FREE, STANDARD, \
      "path of the data group's collectives. ring: over all its ranks at once; hierarchical: " \
      "over the ranks of each node and over the nodes, one after the other; auto: hierarchical " \
      "if all nodes have equally many whole tensor groups, and this number divides the data " \
      "ranks") \
    X(parallel_allow_tensor_across_nodes, "parallel.allow_tensor_across_nodes", \
      BOOL, "false", "", NONE, FREE, STAYS, \
      "allow tensor groups across nodes (slow: below 5 % of the peak in the ZeRO paper)") \
    X(parallel_world_size, "parallel.world_size", \
      INT, "auto", "[1,1000000000] auto", NONE, FREE, STANDARD, \
      "number of ranks that the run must have; auto: any number") \
    X(parallel_elastic, "parallel.elastic", \
      BOOL, "false", "", SUM, FREE, STANDARD, \
      "a resumed run may have more or fewer ranks than before; parallel.world_size and " \
      "gradient_accumulation_steps then have no effect. train_batch_size stays: it is divided " \
      "into the largest micro-batches of at most train_micro_batch_size_per_gpu samples. Needs " \
      "these two batch keys") \
    /* The batch and its gradient. */ \
    X(train_batch_size, "train_batch_size", \
      INT, "auto", "[1,1000000000] auto", DIFFER, KEPT, STANDARD, \
      "samples per optimizer step over all ranks") \
    X(train_micro_batch_size_per_gpu, "train_micro_batch_size_per_gpu", \
      INT, "auto", "[1,1000000] auto", SUM, FREE, STAYS, \
      "samples per rank and micro-batch (on average, if parallel.device_speeds differ); any two " \
      "of the three batch keys give the third") \
    X(gradient_accumulation_steps, "gradient_accumulation_steps", \
      INT, "auto", "[1,1000000] auto", SUM, FREE, STAYS, \
      "micro-batches per optimizer step") \
    X(gradient_clipping, "gradient_clipping", \
      FLOAT, "0", "[0,1e9]", BOUND, KEPT, STAYS, \
      "largest global gradient norm; 0: no clipping") \
    X(communication_data_type, "communication_data_type", \
      ENUM, "auto", "auto|fp32|bf16|fp16", SUM, FREE, STANDARD, \
      "type in which fp32 gradients are sent to be summed: bf16 or fp16 halves the bytes; the " \
      "sums are still in fp32. auto, fp32: no conversion (fp32 is refused for gradients of 16 " \
      "bits). With bf16 and fp16 each rank sends to all others, so with several data ranks per " \
      "node use parallel.collective_algorithm hierarchical. With one data rank the choice has no " \
      "effect and is allowed") \
    /* ZeRO. */ \
    X(zero_optimization_stage, "zero_optimization.stage", \
      INT, "2", "[0,3]", SUM, FREE, STAYS, \
      "ZeRO stage: the states that are partitioned over the data group. 0: none; 1: optimizer " \
      "states; 2: also gradients; 3: also parameters. With one data rank all stages are equal " \
      "and allowed") \
    X(zero_optimization_reduce_bucket_size, "zero_optimization.reduce_bucket_size", \
      INT, "1e12", "[1,1e12]", SUM, FREE, STAYS, \
      "largest number of elements in one reduction; the default: all of a parameter group. A " \
      "smaller bucket costs NCCL a copy, and memory for a bucket") \
    X(zero_optimization_allgather_bucket_size, "zero_optimization.allgather_bucket_size", \
      INT, "1e12", "[1,1e12]", SUM, FREE, STAYS, \
      "largest number of elements in one all-gather; the default: all of a parameter group") \
    X(zero_optimization_overlap_comm, "zero_optimization.overlap_comm", \
      BOOL, "true", "", SUM, FREE, STAYS, \
      "run collectives at the same time as compute") \
    X(zero_optimization_grad_reduce, "zero_optimization.grad_reduce", \
      ENUM, "auto", "auto|per_step|per_microbatch", SUM, FREE, STANDARD, \
      "when gradients are reduced, with accumulation. auto: per_step in stages 0 and 1, " \
      "per_microbatch in stages 2 and 3. per_step keeps whole gradients, also in stages 2 and " \
      "3. With one micro-batch a step, or one data rank, the choice has no effect and is allowed") \
    X(zero_optimization_pipeline_gather, "zero_optimization.pipeline_gather", \
      ENUM, "auto", "auto|per_step|per_microbatch", SUM, FREE, STANDARD, \
      "stage 3 with pipeline stages: when parameters are gathered. per_step: once for all " \
      "micro-batches, and kept; per_microbatch: before each use. auto: the faster one that fits, " \
      "if the machine is described (training.hardware, plan --hardware); else per_step if that " \
      "leaves a tenth of the memory free") \
    X(zero_optimization_sub_group_size, "zero_optimization.sub_group_size", \
      INT, "1e9", "[0,1e15]", SUM, FREE, STAYS, \
      "with offload_optimizer: elements that a rank steps (with nvme also reads and writes) at a " \
      "time; 0: all of a parameter group") \
    X(zero_optimization_offload_optimizer_device, "zero_optimization.offload_optimizer.device", \
      ENUM, "none", "none|cpu|nvme", DECIDE_ON_GPUS, FREE, STAYS, \
      "place of the optimizer's states and the fp32 parameters, in every stage. none: the " \
      "device; cpu: host memory; nvme: a file in nvme_path. With cpu and nvme the host's cores " \
      "run the optimizer") \
    X(zero_optimization_offload_optimizer_nvme_path, \
      "zero_optimization.offload_optimizer.nvme_path", \
      STRING, "", "", NONE, FREE, STAYS, \
      "nvme: folder on a local disk. Each rank's file has no name and vanishes when the run " \
      "ends. ~ and $NAME are expanded on each rank") \
    X(zero_optimization_offload_optimizer_buffer_count, \
      "zero_optimization.offload_optimizer.buffer_count", \
      INT, "4", "[1,1024]", SUM, FREE, STAYS, \
      "with offload_optimizer: pieces of sub_group_size elements in host memory at a time, which " \
      "are read, stepped or written") \
    X(zero_optimization_offload_optimizer_ratio, "zero_optimization.offload_optimizer.ratio", \
      FLOAT, "1", "[0,1] auto", DECIDE_ON_GPUS, FREE, STAYS, \
      "share of the optimizer states that is offloaded (Twin-Flow), in whole parameter groups, " \
      "spread evenly; the device keeps and steps the other groups. auto: the fastest of 0, 1/8 " \
      ".. 1 that fits, if the machine is described (training.hardware, plan --hardware); else " \
      "the smallest that leaves a tenth of the memory free") \
    X(zero_optimization_offload_optimizer_delayed_param_update, \
      "zero_optimization.offload_optimizer.delayed_param_update", \
      BOOL, "false", "", UPDATE, FREE, STAYS, \
      "one-step delayed parameter update (ZeRO-Offload): the host runs the optimizer during the " \
      "next step's forward and backward, which still use the old parameters. This hides the " \
      "host's time and changes the losses. Needs ratio 1") \
    X(zero_optimization_offload_param_device, "zero_optimization.offload_param.device", \
      ENUM, "none", "none|cpu|nvme", SUM, FREE, STAYS, \
      "stage 3: place of the parameters while they are not gathered, as in " \
      "offload_optimizer.device. Also for generate and evaluate") \
    X(zero_optimization_offload_param_nvme_path, "zero_optimization.offload_param.nvme_path", \
      STRING, "", "", NONE, FREE, STAYS, \
      "nvme: folder, as offload_optimizer.nvme_path") \
    X(zero_optimization_stage3_param_persistence_threshold, \
      "zero_optimization.stage3_param_persistence_threshold", \
      INT, "0", "[0,1e15] auto", SUM, FREE, STANDARD, \
      "stage 3: parameter groups of at most so many elements are kept whole on every rank and " \
      "gathered once a step. A group is all that a layer gathers at once (`zero3d plan " \
      "--print-program` names the groups), not one tensor as in DeepSpeed. auto: 10 x " \
      "model.hidden_size, as in Hugging Face's integration") \
    X(zero_optimization_zero_hpz_partition_size, "zero_optimization.zero_hpz_partition_size", \
      INT, "1", "[1,1000000]", SUM, FREE, STANDARD, \
      "stage 3: number of data ranks, in one node, that share a second copy of the parameters " \
      "(hpZ of ZeRO++): parameters cross the nodes once a step, and are then gathered inside the " \
      "nodes. Costs the copy's memory. 1: off") \
    X(zero_optimization_mics_shard_size, "zero_optimization.mics_shard_size", \
      INT, "-1", "[-1,1000000]", SUM, FREE, STANDARD, \
      "hybrid sharding (MiCS, HSDP): states are sharded over groups of so many data ranks, and " \
      "each group has all states. -1: over all data ranks") \
    X(zero_optimization_stage3_prefetch_bucket_size, \
      "zero_optimization.stage3_prefetch_bucket_size", \
      INT, "auto", "[0,1e12] auto", SUM, FREE, STAYS, \
      "stage 3: the next units are gathered ahead of their use, up to so many elements, but at " \
      "least one unit. More elements hide a slow network better and take more memory. With " \
      "offload_param: the units after the next one are copied to the device ahead, up to so many " \
      "elements; with nvme as many after those are read from the disk ahead. auto: one unit; " \
      "with offload_param 5e7") \
    X(zero_optimization_stage3_max_live_parameters, \
      "zero_optimization.stage3_max_live_parameters", \
      INT, "1e15", "[0,1e15]", SUM, FREE, STANDARD, \
      "stage 3: largest number of gathered elements at a time. At the limit, gathers ahead wait " \
      "and parameters that stage3_max_reuse_distance keeps are released; the running unit always " \
      "has its parameters. The default: no limit") \
    X(zero_optimization_stage3_max_reuse_distance, "zero_optimization.stage3_max_reuse_distance", \
      INT, "0", "[0,1e15]", SUM, FREE, STANDARD, \
      "stage 3: gathered parameters stay until their next use, if fewer elements of other " \
      "parameters than this are gathered in between: fewer gathers, more memory. 0: only if the " \
      "next unit uses them. DeepSpeed's default for this key and stage3_max_live_parameters is " \
      "1e9") \
    /* Activation checkpoints. */ \
    X(activation_checkpointing_granularity, "activation_checkpointing.granularity", \
      ENUM, "auto", "full|selective|none|auto", SUM, FREE, STAYS, \
      "what backward recomputes. full: the whole block, only its input is kept; selective: " \
      "layernorms and attention, 9 b s h per block are kept; none: nothing, 12 b s h per block " \
      "are kept. auto: the first of none, selective and full whose planned memory leaves a tenth " \
      "of the machine's memory free (in a run at least 64 MiB); other programs on the " \
      "machine do not count. plan --hardware takes the described machine. auto is full without a " \
      "machine, and if another key of this section needs it. A resumed run keeps the choice, if it still fits") \
    X(activation_checkpointing_recompute_activation, \
      "activation_checkpointing.recompute_activation", \
      ENUM, "auto", "auto|true|false", SUM, FREE, STANDARD, \
      "whether backward computes the output of GELU or SwiGLU again. false: forward keeps it, in " \
      "GPT 4 b s h more per block (with granularity full only for the blocks that are recomputed " \
      "at a time). auto: false if that leaves as much memory free as granularity auto wants, or " \
      "needs no more than true does; else true, also without a machine") \
    X(activation_checkpointing_partition_activations, \
      "activation_checkpointing.partition_activations", \
      BOOL, "false", "", SUM, FREE, STANDARD, \
      "P_a: each tensor rank keeps 1/tp of every activation checkpoint; costs one all-gather of " \
      "b s h per block. With parallel.sequence_parallel the checkpoints are always split, at no " \
      "cost") \
    X(activation_checkpointing_cpu_checkpointing, "activation_checkpointing.cpu_checkpointing", \
      ENUM, "false", "false|true|auto|nvme", SUM, FREE, STAYS, \
      "P_a+cpu: keep activation checkpoints in host memory. Each is copied there once and back " \
      "once. auto: true if compute hides the copies, or if the run does not fit otherwise. nvme: " \
      "in a file in nvme_path; host memory has only those that are under way") \
    X(activation_checkpointing_nvme_path, "activation_checkpointing.nvme_path", \
      STRING, "", "", NONE, FREE, STAYS, \
      "cpu_checkpointing nvme: folder, as offload_optimizer.nvme_path; unset: the folder of " \
      "offload_optimizer or offload_param") \
    X(activation_checkpointing_number_checkpoints, "activation_checkpointing.number_checkpoints", \
      INT, "auto", "[1,1000000] auto", SUM, FREE, STAYS, \
      "number of activation checkpoints, spread evenly over the blocks; auto: one per block") \
    X(activation_checkpointing_replay, "activation_checkpointing.replay", \
      ENUM, "minimal", "minimal|full", SUM, FREE, STAYS, \
      "the part of forward that a recomputation repeats. full: the block's whole forward, as the " \
      "paper's systems do; minimal: only the part that backward reads") \
    /* Types and loss scales. */ \
    X(data_types_grad_accum_dtype, "data_types.grad_accum_dtype", \
      ENUM, "auto", "auto|fp32|bf16|fp16", DIFFER_SUMS, PENDING, STANDARD, \
      "type in which gradients accumulate and are reduced: fp32 or the model's. auto: fp32 in " \
      "bf16 runs with several micro-batches a step (gradient_accumulation_steps above 1), 2 more " \
      "bytes a gradient; else the model's type") \
    X(fp16_enabled, "fp16.enabled", \
      BOOL, "false", "", DIFFER_SUMS, PENDING, STAYS, \
      "train in fp16 with loss scaling") \
    X(fp16_loss_scale, "fp16.loss_scale", \
      FLOAT, "0", "[0,1e38]", BOUND, FREE, STAYS, \
      "fixed loss scale; 0: dynamic") \
    X(fp16_initial_scale_power, "fp16.initial_scale_power", \
      INT, "16", "[0,126]", BOUND, FREE, STAYS, \
      "first loss scale is 2 to this power") \
    X(fp16_loss_scale_window, "fp16.loss_scale_window", \
      INT, "1000", "[1,1e9]", BOUND, FREE, STAYS, \
      "steps without overflow before the scale doubles") \
    X(fp16_hysteresis, "fp16.hysteresis", \
      INT, "2", "[1,1e6]", BOUND, FREE, STAYS, \
      "number of overflows before the scale halves") \
    X(fp16_min_loss_scale, "fp16.min_loss_scale", \
      FLOAT, "1", "(0,1e38]", BOUND, FREE, STAYS, \
      "lowest dynamic loss scale") \
    X(bf16_enabled, "bf16.enabled", \
      BOOL, "false", "", DIFFER_SUMS, PENDING, STAYS, \
      "train in bf16 (fp32 if neither fp16 nor bf16 is enabled)") \
    /* The optimizer. */ \
    X(optimizer_type, "optimizer.type", \
      ENUM, "AdamW", Z3D_OPTIMIZER_RULE, UPDATE, KEPT, STAYS, \
      "optimizer, as in torch.optim: SGD with momentum; Adam is AdamW unless " \
      "optimizer.params.adam_w_mode is false, as in DeepSpeed. Lion as in its paper: sign(0) is " \
      "0") \
    X(optimizer_params_lr, "optimizer.params.lr", \
      FLOAT, "6e-4", "[0,1e6]", UPDATE, KEPT, STAYS, \
      "peak learning rate") \
    X(optimizer_params_betas, "optimizer.params.betas", \
      FLOAT2, "[0.9, 0.95]", "[0,1)", UPDATE, KEPT, STAYS, \
      "AdamW, Adam: decay rates of momentum and variance. Lion: of the update and the momentum; " \
      "its paper has [0.9, 0.99]") \
    X(optimizer_params_eps, "optimizer.params.eps", \
      FLOAT, "1e-8", "(0,1]", DECIDE, KEPT, STAYS, \
      "AdamW, Adam, Adagrad: added to the root of the variance, or of the sum of squares; " \
      "torch.optim.Adagrad has 1e-10") \
    X(optimizer_params_momentum, "optimizer.params.momentum", \
      FLOAT, "0.9", "[0,1)", DECIDE, KEPT, STAYS, \
      "SGD: decay rate of the momentum") \
    X(optimizer_params_weight_decay, "optimizer.params.weight_decay", \
      FLOAT, "0.1", "[0,1e3]", DECIDE, KEPT, STAYS, \
      "weight decay of matrices, decoupled (AdamW, Lion) or added to the gradient (Adam, SGD, " \
      "Adagrad); biases and norms have none") \
    X(optimizer_params_adam_w_mode, "optimizer.params.adam_w_mode", \
      BOOL, "true", "", DECIDE, KEPT, STAYS, \
      "Adam: true: AdamW; false: L2 regularization, as in torch.optim.Adam") \
    X(optimizer_params_exp_avg_dtype, "optimizer.params.exp_avg_dtype", \
      ENUM, "fp32", "fp32|bf16", DECIDE, KEPT, STAYS, \
      "AdamW, Adam: type of the momentum between steps. bf16 (for both moments): 4 bytes a " \
      "parameter instead of 8; random rounding by training.seed, step and place gives every " \
      "topology the same bits") \
    X(optimizer_params_exp_avg_sq_dtype, "optimizer.params.exp_avg_sq_dtype", \
      ENUM, "fp32", "fp32|bf16", DECIDE, KEPT, STAYS, \
      "AdamW, Adam: type of the variance; must be that of exp_avg_dtype") \
    X(optimizer_ema_decay, "optimizer.ema_decay", \
      FLOAT, "0", "[0,1)", SUM, KEPT, STAYS, \
      "above 0: keep an exponential moving average of the parameters with the optimizer's " \
      "states, 4 bytes a parameter; it begins as a copy in the first step. checkpoint export, " \
      "evaluate and generate use it with --ema") \
    X(optimizer_param_groups, "optimizer.param_groups", \
      LIST, "", "groups", DECIDE, KEPT, STAYS, \
      "parameters with their own learning rate or weight decay: a list of {params: [patterns], " \
      "lr, lr_scale, weight_decay}. lr is a peak, lr_scale a factor of optimizer.params.lr; the " \
      "schedule is the same. A pattern with * or ? must match a whole name, any other a part of " \
      "one; the first group that matches is used. checkpoint show prints the names") \
    /* The learning rate. */ \
    X(scheduler_type, "scheduler.type", \
      ENUM, "constant", Z3D_LR_SCHEDULE_RULE, DECIDE, KEPT, STAYS, \
      "learning-rate schedule: DeepSpeed's names, or transformers' names and rates " \
      "(docs/learning-rate.md)") \
    X(scheduler_params_warmup_num_steps, "scheduler.params.warmup_num_steps", \
      INT, "0", "[0,1e12]", DECIDE, KEPT, STAYS, \
      "steps of linear warm-up") \
    X(scheduler_params_warmup_ratio, "scheduler.params.warmup_ratio", \
      FLOAT, "0", "[0,1]", DECIDE, KEPT, STAYS, \
      "instead of warmup_num_steps: this share of total_num_steps, rounded up") \
    X(scheduler_params_total_num_steps, "scheduler.params.total_num_steps", \
      INT, "auto", "[1,1e12] auto", DECIDE, END, STAYS, \
      "step at which the decay ends; auto: training.steps") \
    X(scheduler_params_num_decay_steps, "scheduler.params.num_decay_steps", \
      INT, "auto", "[1,1e12] auto", DECIDE, KEPT, STAYS, \
      "warmup_stable_decay: steps of the decay, which ends at total_num_steps; auto: a tenth of " \
      "total_num_steps, rounded up") \
    X(scheduler_params_decay_type, "scheduler.params.decay_type", \
      ENUM, "cosine", "cosine|linear|1-sqrt", DECIDE, KEPT, STAYS, \
      "warmup_stable_decay: the form of the decay; 1-sqrt: 1 - the square root of the part of " \
      "the decay that is done") \
    X(scheduler_params_num_cycles, "scheduler.params.num_cycles", \
      INT, "1", "[1,1e6]", DECIDE, KEPT, STAYS, \
      "cosine_with_restarts: number of decays from the peak, one after the other, up to " \
      "total_num_steps") \
    X(scheduler_params_power, "scheduler.params.power", \
      FLOAT, "1", "(0,100]", DECIDE, KEPT, STAYS, \
      "polynomial: the power of the part of the decay that is left") \
    X(scheduler_params_min_lr, "scheduler.params.min_lr", \
      FLOAT, "0", "[0,1e6]", DECIDE, KEPT, STAYS, \
      "learning rate at the end of the decay") \
    Z3D_CONFIG_LORA_KEYS(X) \
    /* Token files and the tokenizer. */ \
    X(data_train, "data.train", \
      LIST, "", "", FILES, KEPT, STAYS, \
      "token file(s) to train on: a path, or a list of paths or {path, weight}") \
    X(data_validation, "data.validation", \
      LIST, "", "", NONE, FREE, STAYS, \
      "held-out token file(s) for validation") \
    X(data_seed, "data.seed", \
      INT, "1234", "[0,9223372036854775807]", DECIDE, KEPT, STAYS, \
      "seed of the order of samples") \
    X(data_samples, "data.samples", \
      ENUM, "windows", "windows|documents", DECIDE, KEPT, STAYS, \
      "form of a sample. windows: seq_length tokens, wherever documents begin; documents: whole " \
      "documents, packed by best fit. For token files of data tokenize and Megatron-LM") \
    X(data_too_long, "data.too_long", \
      ENUM, "truncate", "truncate|drop|split", DECIDE, KEPT, STAYS, \
      "with data.samples documents: documents of more than seq_length tokens. truncate: their " \
      "first tokens are kept; drop: they are left out; split: they become several documents") \
    X(data_tokenizer, "data.tokenizer", \
      ENUM, "bytes", "bytes|gpt2|huggingface", NONE, FREE, STAYS, \
      "how generate makes tokens from text: bytes; GPT-2's files; a tokenizer.json of Hugging " \
      "Face (byte-pair encoding)") \
    X(data_vocab, "data.vocab", \
      STRING, "", "", NONE, FREE, STAYS, \
      "the tokenizer's file or its folder: tokenizer.json; for gpt2 also vocab.json. A relative " \
      "path is looked for beside this file first") \
    X(data_special, "data.special", \
      ENUM, "auto", "auto|none|bos|eos|both", NONE, FREE, STAYS, \
      "tokens that are put around a text (generate, evaluate). bos: the token that begins a " \
      "text; eos: the token that ends a document. auto: before a text the tokens of " \
      "tokenizer.json's post_processor, after a document the token that ends it. A text that has " \
      "them already gets no second ones") \
    X(data_merges, "data.merges", \
      STRING, "", "", NONE, FREE, STAYS, \
      "the gpt2 tokenizer's merges.txt; unset: the one beside vocab.json") \
    /* Length, device and products of a run. */ \
    X(training_steps, "training.steps", \
      INT, "1000", "[1,1e12] auto", NONE, FREE, STAYS, \
      "optimizer steps; auto: those of training.epochs") \
    X(training_epochs, "training.epochs", \
      FLOAT, "0", "[0,1e6]", DECIDE, FREE, STAYS, \
      "passes over data.train, such as 2.5, instead of training.steps: the start of the run " \
      "computes the steps, rounded up. data.train must be one file. 0: training.steps") \
    X(training_freeze, "training.freeze", \
      LIST, "", "texts", DECIDE_SUMS, KEPT, STAYS, \
      "parameters that are not trained: a list of patterns of names, as in " \
      "optimizer.param_groups. They have neither gradients nor optimizer states; blocks before " \
      "the first trained parameter have no backward and keep no activations") \
    X(training_seed, "training.seed", \
      INT, "1", "[0,9223372036854775807]", WEIGHTS, KEPT, STAYS, \
      "seed of initial weights and dropout") \
    X(training_device, "training.device", \
      ENUM, "cpu", "cpu|cuda", DIFFER_SUMS, FREE, STAYS, \
      "device; cuda: one GPU per rank") \
    X(training_collectives, "training.collectives", \
      ENUM, "auto", "auto|nccl|host", DECIDE_ON_GPUS, FREE, STAYS, \
      "implementation of the collectives. host: zero3d's own, over MPI or TCP. auto: nccl on " \
      "cuda, host on cpu. host on cuda goes through host memory: it is slow, adds in the cpu " \
      "device's order, and lets ranks share a GPU") \
    X(training_nccl_windows, "training.nccl.windows", \
      BOOL, "false", "", DECIDE_ON_GPUS, FREE, STAYS, \
      "NCCL: register the memory of collectives (ncclCommWindowRegister), so that GPUs with " \
      "direct access to each other need no buffers of NCCL. This may change the order of its " \
      "sums. The run prints the groups that have windows") \
    X(training_attention, "training.attention", \
      ENUM, "auto", "auto|cudnn|own", DECIDE_ON_GPUS, FREE, STAYS, \
      "cuda: implementation of attention; auto: cuDNN if it is installed and supports the case " \
      "(16-bit types, no dropout on the probabilities), else zero3d's own kernels") \
    X(training_deterministic, "training.deterministic", \
      BOOL, "true", "", DECIDE_ON_GPUS, FREE, STAYS, \
      "cuda: false lets cuDNN sum attention's input gradient in any order. This is faster and " \
      "takes less memory, but two runs differ in their last bits") \
    X(training_tf32, "training.tf32", \
      BOOL, "false", "", DECIDE_ON_GPUS, FREE, STAYS, \
      "cuda: an fp32 run multiplies matrices in TF32: fast, with 10 bits of mantissa") \
    X(training_cuda_graph, "training.cuda_graph", \
      ENUM, "auto", "auto|on|off", NONE, FREE, STAYS, \
      "cuda: capture the train step once, and launch it as one graph from the second step on: " \
      "fewer launches, the same bits. auto: on with one rank, or with NCCL on one node, without " \
      "training.digest and training.trace_steps. The run prints its choice") \
    X(training_hardware, "training.hardware", \
      STRING, "", "", SUM, FREE, STAYS, \
      "the machine for which activation_checkpointing.cpu_checkpointing auto, " \
      "zero_optimization.pipeline_gather auto and zero_optimization.offload_optimizer.ratio auto " \
      "are decided. A path: a file that describes the machine (`zero3d doctor --measure FILE` " \
      "writes one; see configs/hardware). measure: measure this machine at the start. unset: " \
      "cpu_checkpointing auto is false, the others depend on memory alone") \
    X(training_threads, "training.threads", \
      INT, "auto", "[1,4096] auto", NONE, FREE, STANDARD, \
      "CPU threads per rank; auto: the node's cores / its ranks") \
    X(training_gemm_fp32, "training.gemm.fp32", \
      ENUM, "auto", "auto|sgemm|matmul|portable|measured", METHOD, FREE, STAYS, \
      "method of matrix products in an fp32 run. auto: from a table by type and the CPU's " \
      "instruction set; measured: the fastest at the start, which may differ in the next run. " \
      "config.yaml has the choice, and a resumed run keeps it") \
    X(training_gemm_bf16, "training.gemm.bf16", \
      ENUM, "auto", "auto|sgemm|matmul|portable|measured", METHOD, FREE, STAYS, \
      "the same for a bf16 run (sgemm: converted to fp32)") \
    X(training_gemm_fp16, "training.gemm.fp16", \
      ENUM, "auto", "auto|sgemm|portable|measured", METHOD, FREE, STAYS, \
      "the same for an fp16 run (always converted to fp32)") \
    X(training_gemm_cuda, "training.gemm.cuda", \
      LIST, "heuristic", "texts", METHOD_ON_GPUS, FREE, STANDARD, \
      "cuda: the algorithm of cuBLASLt for each product. heuristic: the first of its proposals " \
      "that runs; timed: the start of the run times each shape of product with up to 8 " \
      "algorithms, with and without its epilogue fused, and keeps the fastest; a list: the " \
      "choices in the config.yaml of a timed run") \
    X(training_log_interval, "training.log_interval", \
      INT, "10", "[1,1e9]", NONE, FREE, STAYS, \
      "steps between console lines") \
    X(training_eval_interval, "training.eval_interval", \
      INT, "100", "[0,1e12] epoch", NONE, FREE, STAYS, \
      "steps between validation losses; epoch (needs training.epochs): the steps of one pass " \
      "over data.train, rounded up; 0: only at the end; needs data.validation") \
    X(training_eval_steps, "training.eval_steps", \
      INT, "10", "[1,1e9]", NONE, FREE, STAYS, \
      "batches per validation loss; needs data.validation") \
    X(training_early_stopping_patience, "training.early_stopping_patience", \
      INT, "0", "[0,1e9]", NONE, FREE, STAYS, \
      "the run ends after so many validation losses in a row that are not below the lowest so " \
      "far, as with transformers' EarlyStoppingCallback. A resumed run goes on counting. 0: off; " \
      "needs data.validation") \
    X(training_max_skipped_steps, "training.max_skipped_steps", \
      INT, "20", "[1,1e9]", NONE, FREE, STAYS, \
      "number of steps in a row with overflow, all skipped, after which the run stops") \
    X(training_peak_tflops, "training.peak_tflops", \
      FLOAT, "0", "[0,1e6]", NONE, FREE, STAYS, \
      "peak TFLOP/s of one rank, for MFU; 0: on the cpu device measured with matrix products") \
    X(training_watchdog_timeout, "training.watchdog_timeout", \
      FLOAT, "600", "[0,1e9]", NONE, FREE, STAYS, \
      "longest wait in seconds, also for a disk; then the run ends with a report of which rank " \
      "waits for which. 0: no limit") \
    X(training_digest, "training.digest", \
      BOOL, "false", "", NONE, FREE, STAYS, \
      "write a digest of every instruction's output (slow)") \
    X(training_trace_steps, "training.trace_steps", \
      INT, "0", "[0,1e6]", NONE, FREE, STAYS, \
      "number of first steps whose timeline is written, for `zero3d trace` and Perfetto") \
    X(training_verify, "training.verify", \
      BOOL, "true", "", NONE, FREE, STAYS, \
      "verify the step program before running it") \
    X(training_time_limit, "training.time_limit", \
      FLOAT, "0", "[0,1e9]", NONE, FREE, STAYS, \
      "seconds after which the run ends as with SIGTERM: it saves a checkpoint, unless " \
      "checkpoint.interval is 0; 0: no limit") \
    /* Checkpoints. */ \
    X(checkpoint_dir, "checkpoint.dir", \
      STRING, "", "", NONE, FREE, STAYS, \
      "folder of the run's checkpoints; unset: checkpoints in run.dir") \
    X(checkpoint_interval, "checkpoint.interval", \
      INT, "auto", "[0,1e12] auto epoch", NONE, FREE, STAYS, \
      "steps between checkpoints. If not 0, the run also saves at its end and when a signal " \
      "stops it. auto: 1000. epoch (needs training.epochs): the steps of one pass over " \
      "data.train, rounded up. 0: no checkpoints, the model is lost") \
    X(checkpoint_keep, "checkpoint.keep", \
      INT, "3", "[0,1e6]", NONE, FREE, STAYS, \
      "number of latest checkpoints to keep; 0: all. Checkpoints that were renamed as damaged " \
      "are kept and not counted") \
    X(checkpoint_keep_best, "checkpoint.keep_best", \
      BOOL, "false", "", NONE, FREE, STAYS, \
      "also keep the checkpoint of the lowest validation loss, as best in checkpoint.dir: each " \
      "lower loss is saved at its step, also between the steps of checkpoint.interval. Needs " \
      "data.validation") \
    X(checkpoint_resume, "checkpoint.resume", \
      STRING, "auto", "", FILES, FREE, STANDARD, \
      "auto: resume from the latest checkpoint in checkpoint.dir, if there is one (also with " \
      "checkpoint.interval: 0). never: start a new run; the folder must have no checkpoints. A " \
      "path: resume from that checkpoint") \
    X(checkpoint_init_from, "checkpoint.init_from", \
      STRING, "", "", FILES, FREE, STAYS, \
      "path of a checkpoint: a new run starts with its weights. A relative path is looked for " \
      "beside this file first") \
    X(checkpoint_base, "checkpoint.base", \
      STRING, "", "", NONE, FREE, STANDARD, \
      "path of the checkpoint with the frozen parameters that the loaded checkpoint leaves out; " \
      "unset: the path when the run began") \
    X(checkpoint_verify, "checkpoint.verify", \
      ENUM, "full", "full|read|sizes", NONE, FREE, STAYS, \
      "check of a checkpoint before its use. full: the digest of every byte; read: the digests " \
      "of the parts that this run reads; sizes: only the files' sizes") \
    X(checkpoint_export_dtype, "checkpoint.export.dtype", \
      ENUM, "fp32", "fp32|bf16|fp16", NONE, FREE, STAYS, \
      "type of the tensors in an export, unless --dtype says another; an import sets it to the " \
      "model's own") \
    X(checkpoint_export_max_position_embeddings, "checkpoint.export.max_position_embeddings", \
      INT, "auto", "[1,16777216] auto", NONE, FREE, STAYS, \
      "llama: max_position_embeddings in an export's config.json; an import sets the model's " \
      "own, which a run with a shorter model.seq_length keeps. auto: model.seq_length") \
    X(checkpoint_async, "checkpoint.async", \
      BOOL, "false", "", SUM, FREE, STAYS, \
      "save from a copy in host memory while training continues") \
    /* What a run writes and reports. */ \
    X(comms_logger_enabled, "comms_logger.enabled", \
      BOOL, "false", "", NONE, FREE, STAYS, \
      "report the bytes that each kind of collective sends, inside a node and between nodes: in " \
      "metrics.jsonl, at the end of the run and in zero3d report. Nodes are those of " \
      "parallel.ranks_per_node, if it is set") \
    X(comms_logger_prof_all, "comms_logger.prof_all", \
      BOOL, "true", "", NONE, FREE, STAYS, \
      "report all kinds of collectives; false: those of comms_logger.prof_ops") \
    X(comms_logger_prof_ops, "comms_logger.prof_ops", \
      LIST, "", "texts", NONE, FREE, STAYS, \
      "kinds of collectives that are reported with comms_logger.prof_all false: a list of " \
      "all_reduce, reduce_scatter, all_gather, broadcast and send") \
    X(run_dir, "run.dir", \
      STRING, "runs/default", "", NONE, FREE, STAYS, \
      "folder that the run writes to") \
    X(run_tensorboard, "run.tensorboard", \
      BOOL, "true", "", NONE, FREE, STAYS, \
      "write TensorBoard event files") \
    /* Generated text. */ \
    X(generate_prompt, "generate.prompt", \
      STRING, "", "", SUM, FREE, STAYS, \
      "text to continue at the end of the run; unset: no sample") \
    X(generate_prompts, "generate.prompts", \
      LIST, "", "texts", SUM, FREE, STANDARD, \
      "more texts to continue at the end of the run, at most 16") \
    X(generate_every, "generate.every", \
      INT, "0", "[0,1e12]", NONE, FREE, STANDARD, \
      "steps between samples: the run also continues the texts of generate.prompt and " \
      "generate.prompts after so many steps, and writes them to samples.jsonl in run.dir. This " \
      "changes no bit of the training. 0: only at the end") \
    X(generate_tokens, "generate.tokens", \
      INT, "200", "[1,1e6]", NONE, FREE, STAYS, \
      "number of tokens to generate; this and the next keys need generate.prompt or " \
      "generate.prompts") \
    X(generate_temperature, "generate.temperature", \
      FLOAT, "0.8", "[0,100]", NONE, FREE, STAYS, \
      "temperature of sampling; 0: always the most likely token") \
    X(generate_top_k, "generate.top_k", \
      INT, "40", "[0,16777216]", NONE, FREE, STAYS, \
      "sample from the k most likely tokens; 0: from all") \
    X(generate_top_p, "generate.top_p", \
      FLOAT, "1", "(0,1]", NONE, FREE, STAYS, \
      "nucleus sampling: of the tokens that top_k leaves, sample from the most likely ones " \
      "whose probabilities add up to p; 1: from all") \
    X(generate_repetition_penalty, "generate.repetition_penalty", \
      FLOAT, "1", "(0,100]", NONE, FREE, STAYS, \
      "divides positive logits of tokens that are in the text, and multiplies negative ones " \
      "(CTRL); 1: none") \
    X(generate_stop, "generate.stop", \
      LIST, "", "texts", NONE, FREE, STAYS, \
      "texts that end an answer, and are not part of it. A special token of the tokenizer is " \
      "compared as a token") \
    X(generate_ignore_eos, "generate.ignore_eos", \
      ENUM, "auto", "auto|true|false", NONE, FREE, STAYS, \
      "whether generation goes on after the end of a document. auto: yes, except for prompts of " \
      "a file (generate --prompts)") \
    X(generate_batch, "generate.batch", \
      INT, "auto", "[1,65536] auto", NONE, FREE, STAYS, \
      "number of a file's prompts that each model replica continues at a time. auto: as many as " \
      "fit in half of the free memory, at most 32") \
    X(generate_seed, "generate.seed", \
      INT, "1", "[0,9223372036854775807]", NONE, FREE, STAYS, \
      "seed of sampling")
/* clang-format on */

/* The axes of the mesh whose sizes are keys: X(AXIS, field, path). The ranks along them hold one
 * copy of the model; the data axis gets the rest of the world. */
#define Z3D_CONFIG_AXES(X)                                                                         \
    X(TENSOR, parallel_tensor_model_parallel_size, "parallel.tensor_model_parallel_size")          \
    X(PIPELINE, parallel_pipeline_model_parallel_size, "parallel.pipeline_model_parallel_size")

#endif
