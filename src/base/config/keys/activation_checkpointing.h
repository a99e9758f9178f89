/* Keys: activation checkpoints. src/base/config/keys.h says what a row is. */
#ifndef ZERO3D_BASE_CONFIG_KEYS_ACTIVATION_CHECKPOINTING_H
#define ZERO3D_BASE_CONFIG_KEYS_ACTIVATION_CHECKPOINTING_H

/* clang-format off */
#define Z3D_CONFIG_ACTIVATION_CHECKPOINTING_KEYS(X) \
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
      "paper's systems do; minimal: only the part that backward reads")
/* clang-format on */

#endif
