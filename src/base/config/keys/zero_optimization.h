/* Keys: ZeRO. src/base/config/keys.h says what a row is. */
#ifndef ZERO3D_BASE_CONFIG_KEYS_ZERO_OPTIMIZATION_H
#define ZERO3D_BASE_CONFIG_KEYS_ZERO_OPTIMIZATION_H

/* clang-format off */
#define Z3D_CONFIG_ZERO_OPTIMIZATION_KEYS(X) \
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
      "1e9")
/* clang-format on */

#endif
