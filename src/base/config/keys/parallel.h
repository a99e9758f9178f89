/* Keys: ranks and pipeline stages. src/base/config/keys.h says what a row is. */
#ifndef ZERO3D_BASE_CONFIG_KEYS_PARALLEL_H
#define ZERO3D_BASE_CONFIG_KEYS_PARALLEL_H

#include "src/base/pipeline_schedules.h"

/* clang-format off */
#define Z3D_CONFIG_PARALLEL_KEYS(X) \
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
      "these two batch keys")
/* clang-format on */

#endif
