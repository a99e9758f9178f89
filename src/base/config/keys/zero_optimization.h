/* Keys: ZeRO. src/base/config/keys.h says what a row is. */
#ifndef ZERO3D_BASE_CONFIG_KEYS_ZERO_OPTIMIZATION_H
#define ZERO3D_BASE_CONFIG_KEYS_ZERO_OPTIMIZATION_H

/* clang-format off */
#define Z3D_CONFIG_ZERO_OPTIMIZATION_KEYS(X) \
    X(zero_optimization_stage, "zero_optimization.stage", \
      INT, "2", "[0,3]", SUM, FREE, STAYS, \
      "ZeRO stage: what is partitioned over the data group. 0: nothing; 1: optimizer states; 2: " \
      "also gradients; 3: also parameters. With one data rank all stages are equal, and allowed") \
    X(zero_optimization_reduce_bucket_size, "zero_optimization.reduce_bucket_size", \
      INT, "1e12", "[1,1e12]", SUM, FREE, STAYS, \
      "largest number of elements in one reduction; the default: all of a parameter group. A " \
      "smaller one costs NCCL a copy, and memory for a bucket") \
    X(zero_optimization_allgather_bucket_size, "zero_optimization.allgather_bucket_size", \
      INT, "1e12", "[1,1e12]", SUM, FREE, STAYS, \
      "largest number of elements in one all-gather; the default: all of a parameter group, " \
      "likewise") \
    X(zero_optimization_overlap_comm, "zero_optimization.overlap_comm", \
      BOOL, "true", "", SUM, FREE, STAYS, \
      "run collectives beside compute") \
    X(zero_optimization_grad_reduce, "zero_optimization.grad_reduce", \
      ENUM, "auto", "auto|per_step|per_microbatch", SUM, FREE, STANDARD, \
      "when gradients are reduced, with accumulation. auto: per_step in stages 0 and 1, " \
      "per_microbatch in stages 2 and 3. per_step keeps whole gradients, also in stages 2 and " \
      "3. With one micro-batch a step, or one data rank, the choice has no effect and is allowed") \
    X(zero_optimization_pipeline_gather, "zero_optimization.pipeline_gather", \
      ENUM, "auto", "auto|per_step|per_microbatch", SUM, FREE, STANDARD, \
      "stage 3 with pipeline stages: when parameters are gathered. per_step: once for all " \
      "micro-batches, and kept; per_microbatch: before each use. auto: the faster one that " \
      "fits, if the machine is described (training.hardware, plan --hardware); else a run takes " \
      "per_step if it leaves a tenth of the memory free") \
    X(zero_optimization_sub_group_size, "zero_optimization.sub_group_size", \
      INT, "1e9", "[0,1e15]", SUM, FREE, STAYS, \
      "with offload_optimizer: elements of a rank that are stepped at a time; with nvme also " \
      "read and written at a time; 0: all of a parameter group") \
    X(zero_optimization_offload_optimizer_device, "zero_optimization.offload_optimizer.device", \
      ENUM, "none", "none|cpu|nvme", DECIDE_ON_GPUS, FREE, STAYS, \
      "where the optimizer's states and its fp32 parameters lie, in every stage. none: on the " \
      "device; cpu: in host memory; nvme: in a file in nvme_path. With cpu and nvme the host's " \
      "cores step them") \
    X(zero_optimization_offload_optimizer_nvme_path, \
      "zero_optimization.offload_optimizer.nvme_path", \
      STRING, "", "", NONE, FREE, STAYS, \
      "nvme: folder on a local disk. Each rank's file there has no name and is gone when the " \
      "run ends. ~ and $NAME are expanded on each rank") \
    X(zero_optimization_offload_optimizer_buffer_count, \
      "zero_optimization.offload_optimizer.buffer_count", \
      INT, "4", "[1,1024]", SUM, FREE, STAYS, \
      "with offload_optimizer: pieces of sub_group_size elements that are in host memory at a " \
      "time: read, stepped or written") \
    X(zero_optimization_offload_optimizer_ratio, "zero_optimization.offload_optimizer.ratio", \
      FLOAT, "1", "[0,1] auto", DECIDE_ON_GPUS, FREE, STAYS, \
      "share of the optimizer states that is offloaded (Twin-Flow), by whole parameter groups, " \
      "spread evenly; the device keeps and steps the others, with their gradients and " \
      "parameters. auto: the fastest of 0, 1/8 .. 1 that fits, if the machine is described " \
      "(training.hardware, plan --hardware); else a run takes the smallest that leaves a tenth " \
      "of the memory free") \
    X(zero_optimization_offload_optimizer_delayed_param_update, \
      "zero_optimization.offload_optimizer.delayed_param_update", \
      BOOL, "false", "", UPDATE, FREE, STAYS, \
      "one-step delayed parameter update (ZeRO-Offload): the host steps a step's gradients " \
      "beside the next step's forward and backward, which use the parameters without them. It " \
      "hides the host's step and changes the losses. Needs ratio 1") \
    X(zero_optimization_offload_param_device, "zero_optimization.offload_param.device", \
      ENUM, "none", "none|cpu|nvme", SUM, FREE, STAYS, \
      "stage 3: where the parameters lie while they are not gathered, as " \
      "offload_optimizer.device. Also for generate and evaluate") \
    X(zero_optimization_offload_param_nvme_path, "zero_optimization.offload_param.nvme_path", \
      STRING, "", "", NONE, FREE, STAYS, \
      "nvme: folder, as offload_optimizer.nvme_path") \
    X(zero_optimization_stage3_param_persistence_threshold, \
      "zero_optimization.stage3_param_persistence_threshold", \
      INT, "0", "[0,1e15] auto", SUM, FREE, STANDARD, \
      "stage 3: parameter groups of at most so many elements are kept whole on every rank and " \
      "gathered once a step. A group is what a layer gathers at once (`zero3d plan " \
      "--print-program` names them), not one tensor as in DeepSpeed. auto: 10 x " \
      "model.hidden_size, as in Hugging Face's integration") \
    X(zero_optimization_zero_hpz_partition_size, "zero_optimization.zero_hpz_partition_size", \
      INT, "1", "[1,1000000]", SUM, FREE, STANDARD, \
      "stage 3: data ranks, of one node, that together keep a second copy of the parameters " \
      "(hpZ of ZeRO++): after each step parameters cross the nodes once, and are then gathered " \
      "inside of them. Costs that copy's memory. 1: off") \
    X(zero_optimization_mics_shard_size, "zero_optimization.mics_shard_size", \
      INT, "-1", "[-1,1000000]", SUM, FREE, STANDARD, \
      "hybrid sharding (MiCS, HSDP): states are sharded over so many data ranks only, and each " \
      "such group has them all. -1: over all data ranks") \
    X(zero_optimization_stage3_prefetch_bucket_size, \
      "zero_optimization.stage3_prefetch_bucket_size", \
      INT, "auto", "[0,1e12] auto", SUM, FREE, STAYS, \
      "stage 3: elements of parameters that may be gathered before the units that use them; at " \
      "least the next unit's. More hide a slow network better and take more memory. With " \
      "offload_param: elements, behind the next unit's, that may be on their way to the device, " \
      "and with nvme as many behind those from the disk to host memory. auto: the next unit's; " \
      "with offload_param 5e7") \
    X(zero_optimization_stage3_max_live_parameters, \
      "zero_optimization.stage3_max_live_parameters", \
      INT, "1e15", "[0,1e15]", SUM, FREE, STANDARD, \
      "stage 3: elements of parameters that may be gathered at a time. Where more would be, " \
      "gathers ahead wait and what stage3_max_reuse_distance keeps is released; the unit that " \
      "runs always has its own. The default: any number") \
    X(zero_optimization_stage3_max_reuse_distance, "zero_optimization.stage3_max_reuse_distance", \
      INT, "0", "[0,1e15]", SUM, FREE, STANDARD, \
      "stage 3: gathered parameters stay until their next use if fewer elements of other " \
      "gathered parameters come before it: fewer gathers, more memory. 0: only for the next " \
      "unit. DeepSpeed's default for this key and stage3_max_live_parameters is 1e9")
/* clang-format on */

#endif
