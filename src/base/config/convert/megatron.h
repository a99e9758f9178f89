/* Megatron-LM's arguments: the table, and the text that has them. */
#ifndef ZERO3D_BASE_CONFIG_MEGATRON_H
#define ZERO3D_BASE_CONFIG_MEGATRON_H

#include "src/base/config/convert/convert.h"

typedef enum megatron_kind {
    MEGATRON_KEY,  /* our key `text` gets its value */
    MEGATRON_TRUE, /* a switch: our key `text` becomes true */
    MEGATRON_OWN,  /* a function converts it */
    MEGATRON_SAME, /* we always do this: `text` says how */
    MEGATRON_NONE, /* no effect: `text` says why */
    MEGATRON_LATER /* not supported: `text` says what to do, or the difference */
} megatron_kind;

/* X(name, kind, text). Names have - instead of _. */
/* clang-format off */
#define MEGATRON_ARGUMENTS(X) \
  X("num-layers", KEY, "model.num_layers") \
  X("hidden-size", KEY, "model.hidden_size") \
  X("num-attention-heads", KEY, "model.num_attention_heads") \
  X("seq-length", KEY, "model.seq_length") \
  X("vocab-size", KEY, "model.vocab_size") \
  X("make-vocab-size-divisible-by", KEY, "model.make_vocab_size_divisible_by") \
  X("hidden-dropout", OWN, "") \
  X("attention-dropout", KEY, "model.attention_dropout") \
  X("init-method-std", KEY, "model.init_method_std") \
  X("tensor-model-parallel-size", KEY, "parallel.tensor_model_parallel_size") \
  X("micro-batch-size", KEY, "train_micro_batch_size_per_gpu") \
  X("global-batch-size", KEY, "train_batch_size") \
  X("lr", KEY, "optimizer.params.lr") \
  X("weight-decay", KEY, "optimizer.params.weight_decay") \
  X("clip-grad", KEY, "gradient_clipping") \
  X("train-iters", OWN, "") \
  X("log-interval", KEY, "training.log_interval") \
  X("ddp-bucket-size", KEY, "zero_optimization.reduce_bucket_size") \
  X("bf16", TRUE, "bf16.enabled") \
  X("fp16", TRUE, "fp16.enabled") \
  X("async-save", TRUE, "checkpoint.async") \
  X("sequence-parallel", OWN, "") \
  X("distribute-saved-activations", OWN, "") \
  X("max-position-embeddings", OWN, "") \
  X("min-lr", OWN, "") \
  X("lr-decay-style", OWN, "") \
  X("lr-warmup-iters", OWN, "") \
  X("lr-decay-iters", OWN, "") \
  X("adam-beta1", OWN, "") \
  X("adam-beta2", OWN, "") \
  X("adam-eps", OWN, "") \
  X("sgd-momentum", OWN, "") \
  X("lion-beta1", OWN, "") \
  X("lion-beta2", OWN, "") \
  X("exp-avg-dtype", OWN, "") \
  X("exp-avg-sq-dtype", OWN, "") \
  X("optimizer", OWN, "") \
  X("loss-scale", OWN, "") \
  X("initial-loss-scale", OWN, "") \
  X("loss-scale-window", OWN, "") \
  X("hysteresis", OWN, "") \
  X("min-loss-scale", OWN, "") \
  X("accumulate-allreduce-grads-in-fp32", OWN, "") \
  X("use-distributed-optimizer", OWN, "") \
  X("data-parallel-sharding-strategy", OWN, "") \
  X("use-megatron-fsdp", OWN, "") \
  X("use-custom-fsdp", OWN, "") \
  X("use-torch-fsdp2", OWN, "") \
  X("recompute-granularity", OWN, "") \
  X("recompute-activations", OWN, "") \
  X("recompute-method", OWN, "") \
  X("recompute-num-layers", OWN, "") \
  X("pipeline-model-parallel-size", KEY, "parallel.pipeline_model_parallel_size") \
  X("num-virtual-stages-per-pipeline-rank", OWN, "") \
  X("num-layers-per-virtual-pipeline-stage", OWN, "") \
  X("account-for-embedding-in-pipeline-split", OWN, "") \
  X("account-for-loss-in-pipeline-split", OWN, "") \
  X("decoder-first-pipeline-num-layers", OWN, "") \
  X("decoder-last-pipeline-num-layers", OWN, "") \
  X("microbatch-group-size-per-virtual-pipeline-stage", OWN, "") \
  X("context-parallel-size", OWN, "") \
  X("expert-model-parallel-size", OWN, "") \
  X("seed", OWN, "") \
  X("eval-interval", OWN, "") \
  X("eval-iters", OWN, "") \
  X("save", OWN, "") \
  X("load", OWN, "") \
  X("save-interval", OWN, "") \
  X("persistent-save-interval", OWN, "") \
  X("data-path", OWN, "") \
  X("train-data-path", OWN, "") \
  X("valid-data-path", OWN, "") \
  X("split", OWN, "") \
  X("tokenizer-type", OWN, "") \
  X("vocab-file", OWN, "") \
  X("merge-file", OWN, "") \
  X("position-embedding-type", OWN, "") \
  X("normalization", OWN, "") \
  X("overlap-grad-reduce", SAME, "zero_optimization.overlap_comm is true") \
  X("overlap-param-gather", SAME, "zero_optimization.overlap_comm is true") \
  X("use-mcore-models", NONE, "there is one implementation") \
  X("use-legacy-models", NONE, "there is one implementation") \
  X("transformer-impl", NONE, "there is one implementation") \
  X("use-flash-attn", NONE, "attention never stores its probabilities") \
  X("attention-backend", NONE, "training.attention chooses") \
  X("attention-softmax-in-fp32", NONE, "the softmax is always in fp32") \
  X("no-masked-softmax-fusion", NONE, "kernels are fused here as they are") \
  X("no-bias-gelu-fusion", NONE, "kernels are fused here as they are") \
  X("no-bias-dropout-fusion", NONE, "kernels are fused here as they are") \
  X("no-rope-fusion", NONE, "kernels are fused here as they are") \
  X("no-gradient-accumulation-fusion", NONE, "kernels are fused here as they are") \
  X("no-async-tensor-model-parallel-allreduce", NONE, "the order of communication is planned") \
  X("no-overlap-p2p-communication", NONE, "the order of communication is planned") \
  X("overlap-p2p-communication-warmup-flush", NONE, "the order of communication is planned") \
  X("use-ring-exchange-p2p", NONE, "the order of communication is planned") \
  X("deallocate-pipeline-outputs", NONE, "the memory planner ends every output's life at its last use") \
  X("tp-comm-overlap", NONE, "the order of communication is planned") \
  X("use-cpu-initialization", NONE, "initial weights are the same on every device") \
  X("perform-initialization", NONE, "weights are always initialized") \
  X("distributed-backend", NONE, "use training.collectives") \
  X("distributed-timeout-minutes", NONE, "use training.watchdog_timeout") \
  X("tensorboard-dir", NONE, "event files are in run.dir; run.tensorboard is true") \
  X("tensorboard-log-interval", NONE, "every step is written") \
  X("tensorboard-queue-size", NONE, "every step is written") \
  X("log-timers-to-tensorboard", NONE, "use training.trace_steps") \
  X("log-throughput", NONE, "the throughput is always shown") \
  X("log-params-norm", NONE, "not measured") \
  X("log-num-zeros-in-grad", NONE, "not measured") \
  X("log-memory-to-tensorboard", NONE, "zero3d plan shows the memory") \
  X("log-validation-ppl-to-tensorboard", NONE, "the validation loss is written") \
  X("log-progress", NONE, "metrics.jsonl has every step") \
  X("timing-log-level", NONE, "use training.trace_steps") \
  X("profile", NONE, "use training.trace_steps") \
  X("num-workers", NONE, "data is mapped, without worker processes") \
  X("no-create-attention-mask-in-dataloader", NONE, "there is no mask to make") \
  X("no-mmap-bin-files", NONE, "data is always mapped") \
  X("data-cache-path", NONE, "there is no index to cache") \
  X("dataloader-type", NONE, "there is one order of samples, from data.seed") \
  X("ckpt-format", NONE, "there is one format, and any number of ranks loads it") \
  X("dist-ckpt-format", NONE, "there is one format, and any number of ranks loads it") \
  X("use-dist-ckpt", NONE, "there is one format, and any number of ranks loads it") \
  X("ckpt-fully-parallel-save", NONE, "every rank always writes its part") \
  X("ckpt-fully-parallel-load", NONE, "every rank always reads its part") \
  X("no-ckpt-fully-parallel-save", NONE, "every rank always writes its part") \
  X("auto-detect-ckpt-format", NONE, "there is one format") \
  X("manual-gc", NONE, "there is no garbage collector") \
  X("manual-gc-interval", NONE, "there is no garbage collector") \
  X("exit-on-missing-checkpoint", NONE, "checkpoint.resume auto starts anew where there is none") \
  X("use-checkpoint-args", NONE, "the configuration is this file's") \
  X("zero-stage", OWN, "") \
  X("remote-device", OWN, "") \
  X("checkpoint-activations", OWN, "") \
  X("checkpoint-in-cpu", OWN, "") \
  X("no-pipeline-parallel", OWN, "") \
  X("no-position-embedding", OWN, "") \
  X("ds-sequence-parallel-size", OWN, "") \
  X("moe-expert-parallel-size", OWN, "") \
  X("num-distributed-optimizer-instances", OWN, "") \
  X("deepspeed", NONE, "--zero-stage says what is sharded") \
  X("deepspeed-config", LATER, "convert this file, too (--from-deepspeed), and add its settings") \
  X("deepspeed-activation-checkpointing", NONE, "it names the implementation; --checkpoint-activations and --recompute-granularity say what is recomputed") \
  X("contigious-checkpointing", NONE, "the memory planner packs everything") \
  X("synchronize-each-layer", NONE, "streams are ordered by the step program") \
  X("profile-backward", NONE, "use training.trace_steps") \
  X("zero-allgather-bucket-size", KEY, "zero_optimization.allgather_bucket_size") \
  X("zero-contigious-gradients", NONE, "gradients are always contiguous") \
  X("zero-reduce-scatter", NONE, "gradients are always reduce-scattered") \
  X("use-pin-memory", NONE, Z3D_CONFIG_PINNED) \
  X("DDP-impl", NONE, "there is one implementation") \
  X("no-contiguous-buffers-in-local-ddp", NONE, "gradients are always contiguous") \
  X("use-contiguous-buffers-in-local-ddp", NONE, "gradients are always contiguous") \
  X("scaled-upper-triang-masked-softmax-fusion", NONE, "kernels are fused here as they are") \
  X("scaled-masked-softmax-fusion", NONE, "kernels are fused here as they are") \
  X("no-bias-swiglu-fusion", NONE, "kernels are fused here as they are") \
  X("no-persist-layer-norm", NONE, "kernels are fused here as they are") \
  X("cross-entropy-loss-fusion", NONE, "kernels are fused here as they are") \
  X("cross-entropy-fusion-impl", NONE, "kernels are fused here as they are") \
  X("use-flash-attn-v2", NONE, "attention never stores its probabilities") \
  X("use-flash-attn-triton", NONE, "attention never stores its probabilities") \
  X("enable-cuda-graph", NONE, "use training.cuda_graph") \
  X("use-checkpoint-lr-scheduler", NONE, "the schedule is this file's") \
  X("use-checkpoint-opt-param-scheduler", NONE, "the schedule is this file's") \
  X("override-lr-scheduler", NONE, "the schedule is this file's") \
  X("override-opt-param-scheduler", NONE, "the schedule is this file's") \
  X("no-scatter-gather-tensors-in-pipeline", NONE, "tensor ranks always share the sends between stages") \
  X("lazy-mpu-init", NONE, "use zero3d-launch") \
  X("local-world-size", NONE, "use zero3d-launch -n") \
  X("data-impl", NONE, "data is always mapped") \
  X("mmap-warmup", NONE, "data is always mapped") \
  X("no-data-sharding", NONE, "there is one order of samples, from data.seed") \
  X("num-dataset-builder-threads", NONE, "there is no index to build") \
  X("no-check-for-nan-in-loss-and-grad", NONE, "every step is checked") \
  X("check-for-nan-in-loss-and-grad", NONE, "every step is checked") \
  X("empty-unused-memory-level", NONE, "the memory planner places everything") \
  X("log-loss-scale-to-tensorboard", NONE, "metrics.jsonl has every step") \
  X("log-learning-rate-to-tensorboard", NONE, "metrics.jsonl has every step") \
  X("log-batch-size-to-tensorboard", NONE, "metrics.jsonl has every step") \
  X("log-world-size-to-tensorboard", NONE, "metrics.jsonl has every step") \
  X("log-optimizer-states-to-tensorboard", NONE, "not measured") \
  X("log-straggler", NONE, "use training.trace_steps") \
  X("log-energy", NONE, "not measured") \
  X("logging-level", NONE, "there is one level of messages") \
  X("timing-log-option", NONE, "use training.trace_steps") \
  X("no-barrier-with-level-1-timing", NONE, "use training.trace_steps") \
  X("use-pytorch-profiler", NONE, "use training.trace_steps") \
  X("profile-step-start", NONE, "use training.trace_steps") \
  X("profile-step-end", NONE, "use training.trace_steps") \
  X("profile-ranks", NONE, "use training.trace_steps") \
  X("wandb-entity", NONE, "examples/follow.py --wandb sends metrics.jsonl there") \
  X("enable-one-logger", NONE, "metrics.jsonl in the run folder has every step") \
  X("no-one-logger", NONE, "metrics.jsonl in the run folder has every step") \
  X("one-logger-project", NONE, "metrics.jsonl in the run folder has every step") \
  X("one-logger-run-name", NONE, "metrics.jsonl in the run folder has every step") \
  X("ddp-num-buckets", NONE, "zero_optimization.reduce_bucket_size says how large a reduction is") \
  X("ddp-pad-buckets-for-high-nccl-busbw", NONE, "the memory planner lays buffers out") \
  X("ddp-average-in-collective", NONE, "the loss is scaled once, by the global batch") \
  X("align-grad-reduce", NONE, "the order of communication is planned") \
  X("no-align-grad-reduce", NONE, "the order of communication is planned") \
  X("align-param-gather", NONE, "the order of communication is planned") \
  X("no-align-param-gather", NONE, "the order of communication is planned") \
  X("overlap-param-gather-with-optimizer-step", NONE, "the order of communication is planned") \
  X("defer-embedding-wgrad-compute", NONE, "the order of communication is planned") \
  X("use-tp-pp-dp-mapping", NONE, "the order of ranks changes no result") \
  X("nccl-communicator-config-path", NONE, "use training.nccl") \
  X("deterministic-mode", SAME, "training.deterministic is true") \
  X("calculate-per-token-loss", SAME, "the loss is the mean over all tokens of a batch") \
  X("dist-ckpt-strictness", NONE, "a checkpoint is always checked whole") \
  X("ckpt-assume-constant-structure", NONE, "there is one format, and any number of ranks loads it") \
  X("ckpt-fully-parallel-save-deprecated", NONE, "every rank always writes its part") \
  X("no-query-key-layer-scaling", SAME, "attention scores are scaled once") \
  X("eod-mask-loss", LATER, "every token counts in the loss here: it is another run") \
  X("reset-position-ids", LATER, "positions count from the start of a sample: it is another run") \
  X("reset-attention-mask", LATER, "attention crosses the ends of documents: it is another run") \
  X("untie-embeddings-and-output-weights", OWN, "") \
  X("swiglu", OWN, "") \
  X("squared-relu", LATER, "the activation is gelu, or swiglu: it is another model") \
  X("openai-gelu", SAME, "gelu with tanh") \
  X("disable-bias-linear", OWN, "") \
  X("group-query-attention", OWN, "") \
  X("num-query-groups", OWN, "") \
  X("kv-channels", OWN, "") \
  X("ffn-hidden-size", OWN, "") \
  X("apply-layernorm-1p", LATER, "it is another norm: it is another model") \
  X("qk-layernorm", OWN, "") \
  X("use-rotary-position-embeddings", OWN, "") \
  X("rotary-percent", OWN, "") \
  X("rotary-base", OWN, "") \
  X("norm-epsilon", OWN, "") \
  X("add-qkv-bias", OWN, "") \
  X("use-rope-scaling", OWN, "") \
  X("rope-scaling-factor", OWN, "") \
  X("rotary-seq-len-interpolation-factor", OWN, "") \
  X("rotary-interleaved", LATER, "rotary positions turn the halves of a head: it is another model") \
  X("num-experts", LATER, "there are no experts: it is another model") \
  X("pipeline-model-parallel-layout", LATER, "write the units of each chunk in parallel.pipeline_partition, and the chunks per stage in parallel.virtual_pipeline_model_parallel_size") \
  X("pipeline-model-parallel-split-rank", LATER, "there is no encoder: it is another model") \
  X("standalone-embedding-stage", LATER, "write a 1 as the first number of parallel.pipeline_partition") \
  X("train-samples", OWN, "") \
  X("lr-decay-samples", OWN, "") \
  X("lr-warmup-samples", OWN, "") \
  X("lr-warmup-fraction", OWN, "") \
  X("lr-warmup-init", OWN, "") \
  X("lr-wsd-decay-style", OWN, "") \
  X("lr-wsd-decay-iters", OWN, "") \
  X("lr-wsd-decay-samples", OWN, "") \
  X("rampup-batch-size", LATER, "the batch size is fixed here: the first steps are another run") \
  X("start-weight-decay", OWN, "") \
  X("end-weight-decay", OWN, "") \
  X("weight-decay-incr-style", OWN, "") \
  X("fp8-format", LATER, "use --bf16") \
  X("cpu-offloading", LATER, "use activation_checkpointing.cpu_checkpointing") \
  X("optimizer-cpu-offload", OWN, "") \
  X("optimizer-offload-fraction", KEY, "zero_optimization.offload_optimizer.ratio") \
  X("overlap-cpu-optimizer-d2h-h2d", SAME, "copies always run beside the step") \
  X("use-torch-optimizer-for-cpu-offload", NONE, "the optimizers are built in") \
  X("use-precision-aware-optimizer", NONE, "--exp-avg-dtype and --exp-avg-sq-dtype say all") \
  X("no-pin-cpu-grads", NONE, Z3D_CONFIG_PINNED) \
  X("no-pin-cpu-params", NONE, Z3D_CONFIG_PINNED) \
  X("finetune", LATER, "use checkpoint.init_from") \
  X("pretrained-checkpoint", LATER, "use checkpoint.init_from") \
  X("no-load-optim", LATER, "use checkpoint.init_from, which takes only weights") \
  X("no-load-rng", LATER, "use checkpoint.init_from, which takes only weights") \
  X("no-save-optim", LATER, "checkpoints are whole; zero3d checkpoint export writes weights alone") \
  X("no-save-rng", NONE, "random numbers are counted, not stored") \
  X("exit-duration-in-mins", LATER, "use training.time_limit") \
  X("exit-interval", LATER, "use training.steps") \
  X("exit-signal-handler", SAME, "SIGTERM ends the run after a checkpoint") \
  X("wandb-project", NONE, "examples/follow.py --wandb sends metrics.jsonl there") \
  X("wandb-exp-name", NONE, "examples/follow.py --wandb sends metrics.jsonl there") \
  X("wandb-save-dir", NONE, "examples/follow.py --wandb sends metrics.jsonl there") \
  X("test-data-path", NONE, "there is no test at the end; zero3d evaluate does it") \
  X("mock-data", LATER, "write --data-path") \
  X("tokenizer-model", OWN, "") \
  X("nproc-per-node", NONE, "an argument of torchrun; use zero3d-launch -n") \
  X("nnodes", NONE, "an argument of torchrun; use zero3d-launch") \
  X("node-rank", NONE, "an argument of torchrun; use zero3d-launch") \
  X("master-addr", NONE, "an argument of torchrun; use zero3d-launch") \
  X("master-port", NONE, "an argument of torchrun; use zero3d-launch")
/* clang-format on */

typedef struct megatron_argument {
    const char *name, *text;
    megatron_kind kind;
} megatron_argument;

extern const megatron_argument megatron_arguments[];
extern const int megatron_argument_count;

enum { MEGATRON_GIVEN = 1024 };

/* "--name values": the values joined with spaces; a switch has "". */
typedef struct megatron_given {
    char *name, *values;
    z3d_data_list words; /* the single values, as in the shell or the file */
    const char *old;     /* the older name in the text; NULL: the text has `name` */
    bool unknown;        /* the value is a placeholder */
} megatron_given;

typedef struct megatron_text {
    megatron_given given[MEGATRON_GIVEN];
    int count;
    bool is_log; /* has every argument, most with their default */
} megatron_text;

/* Reads the arguments after the training script's name, or all words if they have no script.
 * source: for messages. ERR_DATA: no arguments, or not one command. ERR_MEMORY. */
z3d_status megatron_read_words(const char *const *words, int count, const char *source,
                               megatron_text *out);
/* The same from a file's text: a list, YAML with --names as keys, or the log of a run. Changes the
 * text. ERR_DATA also for a shell script. */
z3d_status megatron_read_text(char *text, const char *source, megatron_text *out);
/* Whether a log may have this argument (with any value, or with this one) although it changes
 * nothing here (megatron_log.c). */
bool megatron_is_printed(const char *name, const char *values);
void megatron_text_free(megatron_text *text);
/* The values of the last --name ("" for a switch); NULL: not given, or a placeholder. */
const char *megatron_value(const megatron_text *text, const char *name);
/* The same as single values. */
const z3d_data_list *megatron_words(const megatron_text *text, const char *name);
/* Makes files with weights from "0.3" "a" "0.7" "b", from "a" "b", or from one word with weights
 * and paths. ERR_DATA, ERR_MEMORY. */
z3d_status megatron_data_list(const z3d_data_list *words, z3d_data_list *out);
/* Whether the value is a placeholder, which no default replaces. */
bool megatron_is_unknown(const megatron_text *text, const char *name);
/* A conversion and its arguments. */
typedef struct megatron_converter {
    config_conversion v;
    megatron_text text;
} megatron_converter;

/* megatron_take.c. Whether an argument has a value; whether it has a value or a placeholder; its
 * value as a number (false: no value, or no number). */
bool megatron_has(const megatron_converter *m, const char *name);
bool megatron_is_given(const megatron_converter *m, const char *name);
bool megatron_number(const megatron_converter *m, const char *name, double *out);
/* Whether it is given and not 0. A log has 0 if another argument counts. */
bool megatron_counts(const megatron_converter *m, const char *name);

void megatron_row(megatron_converter *m, config_verdict verdict, const char *name,
                  const char *what);
void megatron_row_if_given(megatron_converter *m, config_verdict verdict, const char *name,
                           const char *what);
/* Sets our key to the argument's value, if it is given; to `text`, if that is not NULL; to the
 * default `text`, if the argument is neither given nor a placeholder. */
bool megatron_take(megatron_converter *m, const char *name, const char *path);
bool megatron_take_as(megatron_converter *m, const char *name, const char *path, const char *text);
void megatron_take_or_default(megatron_converter *m, const char *name, const char *path,
                              const char *text);
extern const char megatron_default[]; /* "Megatron-LM's default" */

/* Convert the arguments of the model, of pipelines, of steps and learning rate. The keys for tensor
 * ranks, layers and pipeline stages are set before. */
void megatron_convert_model(megatron_converter *m);
void megatron_convert_pipeline(megatron_converter *m);
void megatron_convert_schedule(megatron_converter *m);
/* Whether it is given by an older name. */
bool megatron_is_renamed(const megatron_text *text, const char *name);

#endif
