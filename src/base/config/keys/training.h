/* Keys: length, device and products of a run. src/base/config/keys.h says what a row is. */
#ifndef ZERO3D_BASE_CONFIG_KEYS_TRAINING_H
#define ZERO3D_BASE_CONFIG_KEYS_TRAINING_H

/* clang-format off */
#define Z3D_CONFIG_TRAINING_KEYS(X) \
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
      "checkpoint.interval is 0; 0: no limit")
/* clang-format on */

#endif
