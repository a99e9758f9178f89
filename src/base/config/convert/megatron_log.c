/* Arguments in Megatron-LM's logs that change nothing here: numbers that follow from others, and
 * defaults of parts that such a run does not use. The argument that switches such a part on is not
 * in this list. */
#include "src/base/config/convert/megatron.h"

#include <string.h>

static const struct {
    const char *name, *value; /* value NULL: any */
} printed[] = {
    /* follow from other arguments */
    {"rank", NULL},
    {"world-size", NULL},
    {"data-parallel-size", NULL},
    {"transformer-pipeline-model-parallel-size", NULL},
    {"virtual-pipeline-model-parallel-size", NULL},
    {"padded-vocab-size", NULL},
    {"params-dtype", NULL},
    {"consumed-train-samples", NULL},
    {"consumed-valid-samples", NULL},
    {"skipped-train-samples", NULL},
    {"iteration", NULL},
    {"encoder-seq-length", NULL},
    {"encoder-num-layers", NULL},
    {"add-bias-linear", ""},
    {"add-position-embedding", ""},
    /* how a result is computed */
    {"bias-dropout-fusion", NULL},
    {"bias-gelu-fusion", NULL},
    {"bias-swiglu-fusion", NULL},
    {"masked-softmax-fusion", NULL},
    {"gradient-accumulation-fusion", NULL},
    {"gradient-reduce-div-fusion", NULL},
    {"apply-rope-fusion", NULL},
    {"async-tensor-model-parallel-allreduce", NULL},
    {"overlap-p2p-comm", NULL},
    {"batch-p2p-comm", NULL},
    {"scatter-gather-tensors-in-pipeline", NULL},
    {"barrier-with-L1-time", NULL},
    {"create-attention-mask-in-dataloader", NULL},
    {"mmap-bin-files", NULL},
    {"data-sharding", NULL},
    {"offset-sampling-seed-by-dp-rank", NULL},
    {"check-for-nan-in-loss-and-grad", NULL},
    {"ckpt-fully-parallel-save", NULL},
    {"dist-ckpt-workers", NULL},
    {"pin-cpu-grads", NULL},
    {"pin-cpu-params", NULL},
    {"enable-gloo-process-groups", NULL},
    {"high-priority-stream-groups", NULL},
    {"inference-batch-times-seqlen-threshold", "-1"},
    {"log-memory-interval", NULL},
    {"adlr-autoresume-interval", NULL},
    {"app-tag-run-version", NULL},
    {"use-layer-wise-param-layout", NULL},
    {"torch-fsdp2-reshard-after-forward", ""},
    {"outer-dp-sharding-strategy", "no_shard"},
    {"mid-level-dataset-surplus", NULL},
    {"cp-comm-type", "p2p"},
    {"refit-method", NULL},
    {"rerun-mode", NULL},
    /* states have these types here, too */
    {"exp-avg-dtype", "fp32"},
    {"exp-avg-sq-dtype", "fp32"},
    {"main-grads-dtype", "fp32"},
    {"main-params-dtype", "fp32"},
    {"megatron-fsdp-grad-comm-dtype", "auto"},
    {"megatron-fsdp-main-grads-dtype", "auto"},
    {"megatron-fsdp-main-params-dtype", "fp32"},
    {"megatron-fsdp-version", NULL},
    /* of other models, optimizers and tools */
    {"moe-layer-freq", NULL},
    {"moe-aux-loss-coeff", NULL},
    {"moe-router-load-balancing-type", NULL},
    {"moe-token-dispatcher-type", NULL},
    {"moe-router-topk", NULL},
    {"moe-router-score-function", NULL},
    {"moe-router-dtype", NULL},
    {"moe-upcycling-granularity", NULL},
    {"moe-shared-expert-intermediate-size", NULL},
    {"kv-lora-rank", NULL},
    {"qk-head-dim", NULL},
    {"qk-pos-emb-head-dim", NULL},
    {"v-head-dim", NULL},
    {"rotary-scaling-factor", NULL},
    {"mscale", NULL},
    {"mscale-all-dim", NULL},
    {"yarn-correction-range-round-to-int", NULL},
    {"relative-attention-max-distance", NULL},
    {"relative-attention-num-buckets", NULL},
    {"lion-beta1", "0.95"},
    {"lion-beta2", "0.98"},
    {"classes-fraction", "1.0"},
    {"data-per-class-fraction", "1.0"},
    {"head-lr-mult", "1.0"},
    {"img-h", NULL},
    {"img-w", NULL},
    {"iter-per-epoch", NULL},
    {"mask-factor", NULL},
    {"mask-prob", NULL},
    {"mask-type", NULL},
    {"max-tokens-to-oom", NULL},
    {"num-channels", NULL},
    {"num-classes", NULL},
    {"patch-dim", NULL},
    {"query-in-block-prob", NULL},
    {"sample-rate", "1.0"},
    {"short-seq-prob", NULL},
    {"spatial-merge-size", NULL},
    {"swin-backbone-type", NULL},
    {"vision-backbone-type", NULL},
    {"vision-pretraining-type", NULL},
    {"ft-num-warmup-iters", NULL},
    {"sft-tokenizer-prompt-format", NULL},
    /* 0: not used */
    {"dsa-indexer-loss-coeff", "0.0"},
    {"encoder-pipeline-model-parallel-size", "0"},
    {"encoder-tensor-model-parallel-size", "0"},
    {"error-injection-rate", "0"},
    {"fp8-margin", "0"},
    {"glu-linear-offset", "0.0"},
    {"hybrid-attention-ratio", "0.0"},
    {"hybrid-mlp-ratio", "0.0"},
    {"wgrad-deferral-limit", "0"},
};

/* Prefixes of parts that other programs use. */
static const char *const families[] = {
    "bert-",    "biencoder-", "dino-",  "retro-", "inference-", "inprocess-", "fim-",       "grpo-",
    "indexer-", "logits-",    "mamba-", "muon-",  "rl-",        "retriever-", "one-logger-"};

bool megatron_is_printed(const char *name, const char *values) {
    for (size_t i = 0; i < sizeof printed / sizeof *printed; i++)
        if (strcmp(printed[i].name, name) == 0)
            return !printed[i].value || strcmp(printed[i].value, values) == 0;
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (strncmp(name, families[i], strlen(families[i])) == 0)
            return values[0] != '\0' || strcmp(name, "bert-binary-head") == 0 ||
                   strcmp(name, "muon-split-qkv") == 0;
    return false;
}
