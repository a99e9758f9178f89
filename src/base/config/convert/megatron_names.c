/* What becomes of each of Megatron-LM's arguments. */
#include "src/base/config/convert/megatron.h"

#include <fnmatch.h>
#include <string.h>

const megatron_argument megatron_arguments[] = {
    {MEGATRON_KEY, "model.num_layers", "num-layers"},
    {MEGATRON_KEY, "model.hidden_size", "hidden-size"},
    {MEGATRON_KEY, "model.num_attention_heads", "num-attention-heads"},
    {MEGATRON_KEY, "model.seq_length", "seq-length"},
    {MEGATRON_KEY, "model.vocab_size", "vocab-size"},
    {MEGATRON_KEY, "model.make_vocab_size_divisible_by", "make-vocab-size-divisible-by"},
    {MEGATRON_KEY, "model.attention_dropout", "attention-dropout"},
    {MEGATRON_KEY, "model.init_method_std", "init-method-std"},
    {MEGATRON_KEY, "parallel.tensor_model_parallel_size", "tensor-model-parallel-size"},
    {MEGATRON_KEY, "train_micro_batch_size_per_gpu", "micro-batch-size"},
    {MEGATRON_KEY, "train_batch_size", "global-batch-size"},
    {MEGATRON_KEY, "optimizer.params.lr", "lr"},
    {MEGATRON_KEY, "optimizer.params.weight_decay", "weight-decay"},
    {MEGATRON_KEY, "gradient_clipping", "clip-grad"},
    {MEGATRON_KEY, "training.log_interval", "log-interval"},
    {MEGATRON_KEY, "zero_optimization.reduce_bucket_size", "ddp-bucket-size"},
    {MEGATRON_TRUE, "bf16.enabled", "bf16"},
    {MEGATRON_TRUE, "fp16.enabled", "fp16"},
    {MEGATRON_TRUE, "checkpoint.async", "async-save"},
    {MEGATRON_KEY, "parallel.pipeline_model_parallel_size", "pipeline-model-parallel-size"},
    {MEGATRON_KEY, "zero_optimization.allgather_bucket_size", "zero-allgather-bucket-size"},
    {MEGATRON_KEY, "zero_optimization.offload_optimizer.ratio", "optimizer-offload-fraction"},
    {MEGATRON_OWN, NULL,
     "hidden-dropout train-iters sequence-parallel distribute-saved-activations "
     "max-position-embeddings min-lr lr-decay-style lr-warmup-iters lr-decay-iters adam-beta1 "
     "adam-beta2 adam-eps sgd-momentum lion-beta1 lion-beta2 exp-avg-dtype exp-avg-sq-dtype "
     "optimizer loss-scale initial-loss-scale loss-scale-window hysteresis min-loss-scale "
     "accumulate-allreduce-grads-in-fp32 use-distributed-optimizer "
     "data-parallel-sharding-strategy use-megatron-fsdp use-custom-fsdp use-torch-fsdp2 "
     "recompute-granularity recompute-activations recompute-method recompute-num-layers "
     "num-virtual-stages-per-pipeline-rank num-layers-per-virtual-pipeline-stage "
     "account-for-embedding-in-pipeline-split account-for-loss-in-pipeline-split "
     "decoder-first-pipeline-num-layers decoder-last-pipeline-num-layers "
     "microbatch-group-size-per-virtual-pipeline-stage context-parallel-size "
     "expert-model-parallel-size seed eval-interval eval-iters save load save-interval "
     "persistent-save-interval data-path train-data-path valid-data-path split tokenizer-type "
     "vocab-file merge-file position-embedding-type normalization zero-stage remote-device "
     "checkpoint-activations checkpoint-in-cpu no-pipeline-parallel no-position-embedding "
     "ds-sequence-parallel-size moe-expert-parallel-size num-distributed-optimizer-instances "
     "untie-embeddings-and-output-weights swiglu disable-bias-linear group-query-attention "
     "num-query-groups kv-channels ffn-hidden-size qk-layernorm use-rotary-position-embeddings "
     "rotary-percent rotary-base norm-epsilon add-qkv-bias use-rope-scaling rope-scaling-factor "
     "rotary-seq-len-interpolation-factor train-samples lr-decay-samples lr-warmup-samples "
     "lr-warmup-fraction lr-warmup-init lr-wsd-decay-style lr-wsd-decay-iters "
     "lr-wsd-decay-samples start-weight-decay end-weight-decay weight-decay-incr-style "
     "optimizer-cpu-offload tokenizer-model"},
    {MEGATRON_SAME, "zero_optimization.overlap_comm is true",
     "overlap-grad-reduce overlap-param-gather"},
    {MEGATRON_SAME, "training.deterministic is true", "deterministic-mode"},
    {MEGATRON_SAME, "the loss is the mean over all tokens of a batch", "calculate-per-token-loss"},
    {MEGATRON_SAME, "attention scores are scaled once", "no-query-key-layer-scaling"},
    {MEGATRON_SAME, "gelu with tanh", "openai-gelu"},
    {MEGATRON_SAME, "copies always run beside the step", "overlap-cpu-optimizer-d2h-h2d"},
    {MEGATRON_SAME, "SIGTERM ends the run after a checkpoint", "exit-signal-handler"},
    {MEGATRON_LATER, "convert that file too (--from-deepspeed), and add what it sets",
     "deepspeed-config"},
    {MEGATRON_LATER,
     "predictions after a document's end count: the run differs; data.samples documents has none",
     "eod-mask-loss"},
    {MEGATRON_LATER,
     "positions go through a window: the run differs; those of data.samples documents begin anew",
     "reset-position-ids"},
    {MEGATRON_LATER,
     "attention crosses documents: the run differs; that of data.samples documents does not",
     "reset-attention-mask"},
    {MEGATRON_LATER, "the activation is gelu, or swiglu: the model differs", "squared-relu"},
    {MEGATRON_LATER, "there is no such norm: the model differs", "apply-layernorm-1p"},
    {MEGATRON_LATER, "rotary positions turn the halves of a head: the model differs",
     "rotary-interleaved"},
    {MEGATRON_LATER, "there are no experts: the model differs", "num-experts"},
    {MEGATRON_LATER,
     "write the units of each chunk in parallel.pipeline_partition, and the chunks per stage in "
     "parallel.virtual_pipeline_model_parallel_size",
     "pipeline-model-parallel-layout"},
    {MEGATRON_LATER, "there is no encoder: the model differs",
     "pipeline-model-parallel-split-rank"},
    {MEGATRON_LATER, "write a 1 as the first number of parallel.pipeline_partition",
     "standalone-embedding-stage"},
    {MEGATRON_LATER, "the batch size is fixed here: the first steps differ", "rampup-batch-size"},
    {MEGATRON_LATER, "use --bf16", "fp8-format"},
    {MEGATRON_LATER, "use activation_checkpointing.cpu_checkpointing", "cpu-offloading"},
    {MEGATRON_LATER, "use checkpoint.init_from", "finetune pretrained-checkpoint"},
    {MEGATRON_LATER, "use checkpoint.init_from, which takes only weights",
     "no-load-optim no-load-rng"},
    {MEGATRON_LATER, "checkpoints are whole; zero3d checkpoint export writes weights alone",
     "no-save-optim"},
    {MEGATRON_LATER, "use training.time_limit", "exit-duration-in-mins"},
    {MEGATRON_LATER, "use training.steps", "exit-interval"},
    {MEGATRON_LATER, "write --data-path", "mock-data"},
    {MEGATRON_NONE, "there is one implementation",
     "use-mcore-models use-legacy-models transformer-impl DDP-impl"},
    {MEGATRON_NONE, "training.attention chooses", "use-flash-attn* attention-backend"},
    {MEGATRON_NONE, "the softmax is always in fp32", "attention-softmax-in-fp32"},
    {MEGATRON_NONE, "the fusion of kernels is fixed",
     "*-fusion *-fusion-impl no-persist-layer-norm"},
    {MEGATRON_NONE, "the order of communication is planned",
     "*async-tensor-model-parallel-allreduce *overlap-p2p-comm* batch-p2p-comm "
     "use-ring-exchange-p2p tp-comm-overlap *align-grad-reduce *align-param-gather "
     "overlap-param-gather-with-optimizer-step defer-embedding-wgrad-compute"},
    {MEGATRON_NONE, "tensor ranks always share the sends between stages",
     "*scatter-gather-tensors-in-pipeline"},
    {MEGATRON_NONE, "the memory planner places everything",
     "deallocate-pipeline-outputs contigious-checkpointing empty-unused-memory-level "
     "zero-contigious-gradients *-contiguous-buffers-in-local-ddp "
     "ddp-pad-buckets-for-high-nccl-busbw"},
    {MEGATRON_NONE, "streams are ordered by the step program", "synchronize-each-layer"},
    {MEGATRON_NONE, "gradients are always reduce-scattered", "zero-reduce-scatter"},
    {MEGATRON_NONE, "zero_optimization.reduce_bucket_size says how large a reduction is",
     "ddp-num-buckets"},
    {MEGATRON_NONE, "the loss is scaled once, by the global batch", "ddp-average-in-collective"},
    {MEGATRON_NONE, "initial weights are the same on every device",
     "use-cpu-initialization perform-initialization"},
    {MEGATRON_NONE, "the order of ranks changes no result", "use-tp-pp-dp-mapping"},
    {MEGATRON_NONE, "use training.collectives", "distributed-backend"},
    {MEGATRON_NONE, "use training.watchdog_timeout", "distributed-timeout-minutes"},
    {MEGATRON_NONE, "use training.nccl", "nccl-communicator-config-path"},
    {MEGATRON_NONE, "use training.cuda_graph", "enable-cuda-graph"},
    {MEGATRON_NONE, "use training.trace_steps",
     "profile profile-* timing-log-* log-timers-to-tensorboard log-straggler use-pytorch-profiler "
     "no-barrier-with-level-1-timing barrier-with-L1-time"},
    {MEGATRON_NONE, "event files are in run.dir; run.tensorboard is true", "tensorboard-*"},
    {MEGATRON_NONE, "metrics.jsonl in the run folder has every step",
     "log-* *-one-logger one-logger-*"},
    {MEGATRON_NONE, "examples/follow.py --wandb sends metrics.jsonl there", "wandb-*"},
    {MEGATRON_NONE, "there is one level of messages", "logging-level"},
    {MEGATRON_NONE, "every step is checked", "*check-for-nan-in-loss-and-grad"},
    {MEGATRON_NONE, "data is always mapped, in one order of samples from data.seed",
     "data-impl mmap-warmup *mmap-bin-files data-cache-path dataloader-type num-workers "
     "num-dataset-builder-threads *data-sharding *create-attention-mask-in-dataloader"},
    {MEGATRON_NONE, "there is no test at the end; use zero3d evaluate", "test-data-path"},
    {MEGATRON_NONE, "there is one format; each rank writes its part",
     "ckpt-format auto-detect-ckpt-format dist-ckpt-* use-dist-ckpt *ckpt-fully-parallel-* "
     "ckpt-assume-constant-structure"},
    {MEGATRON_NONE, "without a checkpoint checkpoint.resume auto starts a new run",
     "exit-on-missing-checkpoint"},
    {MEGATRON_NONE, "configuration and schedule come from this file",
     "use-checkpoint-args use-checkpoint-*-scheduler override-*-scheduler"},
    {MEGATRON_NONE, "random numbers have no state to save", "no-save-rng"},
    {MEGATRON_NONE, "there is no garbage collector", "manual-gc*"},
    {MEGATRON_NONE, "the stage is in --zero-stage", "deepspeed"},
    {MEGATRON_NONE, "blocks are recomputed with --checkpoint-activations",
     "deepspeed-activation-checkpointing"},
    {MEGATRON_NONE, "the optimizers are built in", "use-torch-optimizer-for-cpu-offload"},
    {MEGATRON_NONE, "the types are in --exp-avg-dtype and --exp-avg-sq-dtype",
     "use-precision-aware-optimizer"},
    {MEGATRON_NONE, Z3D_CONFIG_PINNED, "use-pin-memory *pin-cpu-grads *pin-cpu-params"},
    {MEGATRON_NONE, "an argument of the launcher; use zero3d-launch -n",
     "nproc-per-node nnodes node-rank master-addr master-port local-world-size lazy-mpu-init"},
    /* These follow from others, or say how a run is computed. */
    {MEGATRON_PRINTED, "nothing here reads it",
     "rank world-size data-parallel-size transformer-pipeline-model-parallel-size "
     "virtual-pipeline-model-parallel-size padded-vocab-size params-dtype consumed-train-samples "
     "consumed-valid-samples skipped-train-samples iteration add-bias-linear= "
     "add-position-embedding= offset-sampling-seed-by-dp-rank enable-gloo-process-groups "
     "high-priority-stream-groups adlr-autoresume-interval app-tag-run-version "
     "use-layer-wise-param-layout torch-fsdp2-reshard-after-forward= "
     "outer-dp-sharding-strategy=no_shard mid-level-dataset-surplus cp-comm-type=p2p refit-method "
     "rerun-mode main-grads-dtype=fp32 main-params-dtype=fp32 megatron-fsdp-grad-comm-dtype=auto "
     "megatron-fsdp-main-grads-dtype=auto megatron-fsdp-main-params-dtype=fp32 "
     "megatron-fsdp-version"},
    /* Defaults of parts that a run of this kind does not use; arguments that are not in this table
     * switch them on. */
    {MEGATRON_PRINTED, "nothing here reads it",
     "moe-layer-freq moe-aux-loss-coeff moe-router-load-balancing-type moe-token-dispatcher-type "
     "moe-router-topk moe-router-score-function moe-router-dtype moe-upcycling-granularity "
     "moe-shared-expert-intermediate-size kv-lora-rank qk-head-dim qk-pos-emb-head-dim v-head-dim "
     "rotary-scaling-factor mscale mscale-all-dim yarn-correction-range-round-to-int "
     "relative-attention-max-distance relative-attention-num-buckets classes-fraction=1.0 "
     "data-per-class-fraction=1.0 head-lr-mult=1.0 img-h img-w iter-per-epoch mask-factor "
     "mask-prob mask-type max-tokens-to-oom num-channels num-classes patch-dim "
     "query-in-block-prob sample-rate=1.0 short-seq-prob spatial-merge-size swin-backbone-type "
     "vision-backbone-type vision-pretraining-type ft-num-warmup-iters "
     "sft-tokenizer-prompt-format dsa-indexer-loss-coeff=0.0 "
     "encoder-pipeline-model-parallel-size=0 encoder-tensor-model-parallel-size=0 "
     "error-injection-rate=0 fp8-margin=0 glu-linear-offset=0.0 hybrid-attention-ratio=0.0 "
     "hybrid-mlp-ratio=0.0 wgrad-deferral-limit=0 bert-binary-head muon-split-qkv bert-*=?* "
     "biencoder-*=?* dino-*=?* retro-*=?* inference-*=?* inprocess-*=?* fim-*=?* grpo-*=?* "
     "indexer-*=?* logits-*=?* mamba-*=?* muon-*=?* rl-*=?* retriever-*=?*"},
};
const int megatron_argument_count = sizeof megatron_arguments / sizeof *megatron_arguments;

static bool is_among(const char *names, const char *name, const char *values) {
    char pattern[80];
    while (z3d_next_word(&names, pattern, sizeof pattern)) {
        char *value = strchr(pattern, '=');
        if (value) *value++ = '\0';
        if (fnmatch(pattern, name, 0) == 0 && (!value || fnmatch(value, values, 0) == 0))
            return true;
    }
    return false;
}

const megatron_argument *megatron_find(const megatron_text *text, const megatron_given *given) {
    for (int i = 0; i < megatron_argument_count; i++) {
        const megatron_argument *row = &megatron_arguments[i];
        if ((row->kind != MEGATRON_PRINTED || text->is_log) &&
            is_among(row->names, given->name, given->values))
            return row;
    }
    return NULL;
}
