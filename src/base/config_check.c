/* Contradictions and options without effect that the configuration alone shows. Those that need the
 * world size are config_resolve.c's. Option values that are the default are no complaint: a pasted
 * block and a written resolved configuration name them all. */
#include "src/base/config_table.h"

#include <math.h>
#include <string.h>

/* Divisors of n nearest to `value` from below and above: what would be right. */
static int64_t divisor_below(int64_t n, int64_t value) {
    while (value > 1 && n % value != 0) value--;
    return value;
}

static int64_t divisor_above(int64_t n, int64_t value) {
    while (value < n && n % value != 0) value++;
    return value;
}

static z3d_status refuse_divisor(const z3d_config *c, const char *path, int64_t value, int64_t n,
                                 const char *what) {
    int64_t below = value < n ? divisor_below(n, value) : n;
    int64_t above = value < n ? divisor_above(n, value) : n;
    if (below == above) {
        return z3d_config_error(c, path, "%lld does not divide %s %lld; %lld would",
                                (long long)value, what, (long long)n, (long long)below);
    }
    return z3d_config_error(c, path, "%lld does not divide %s %lld; %lld or %lld would",
                            (long long)value, what, (long long)n, (long long)below,
                            (long long)above);
}

/* Parameters without padding: 12 h^2 + 13 h a block, embeddings, final norm. All their bytes (16
 * each) and activations are counted in int64_t, so a model beyond that is refused here. */
static z3d_status check_model_size(const z3d_config *c) {
    int64_t h = c->model_hidden_size, block, blocks, table, positions, total, unused;
    bool fits =
        z3d_mul_i64(12 * h + 13, h, &block) && z3d_mul_i64(block, c->model_num_layers, &blocks) &&
        z3d_mul_i64(c->model_vocab_size, h, &table) &&
        z3d_mul_i64(c->model_seq_length, h, &positions) && z3d_add_i64(blocks, table, &total) &&
        z3d_add_i64(total, positions, &total) && z3d_mul_i64(total, 1024, &unused);
    if (fits) return Z3D_OK;
    return z3d_config_error(c, "model.num_layers",
                            "%lld layers of hidden size %lld with %lld tokens are too large a "
                            "model for 64-bit sizes",
                            (long long)c->model_num_layers, (long long)h,
                            (long long)c->model_vocab_size);
}

static z3d_status check_model(const z3d_config *c) {
    if (c->model_hidden_size % c->model_num_attention_heads != 0) {
        return refuse_divisor(c, "model.num_attention_heads", c->model_num_attention_heads,
                              c->model_hidden_size, "model.hidden_size");
    }
    return check_model_size(c);
}

/* The sequence, not a micro-batch's tokens: generation has one sample. */
static z3d_status check_sequence(const z3d_config *c) {
    int64_t tensor = c->parallel_tensor_model_parallel_size, length = c->model_seq_length;
    int64_t below = length / tensor * tensor, above = below + tensor;
    if (!c->parallel_sequence_parallel) return Z3D_OK;
    if (tensor == 1) {
        return z3d_config_error(c, "parallel.sequence_parallel",
                                "true has no effect with tensor_model_parallel_size 1: there is "
                                "nobody to share a sequence with; leave it out");
    }
    if (below == length) return Z3D_OK;
    z3d_string right = {0};
    if (below > 0) z3d_string_append(&right, "%lld or ", (long long)below);
    z3d_string_append(&right, "%lld", (long long)above);
    z3d_status status =
        z3d_config_error(c, "model.seq_length",
                         "%lld cannot be shared out to %lld tensor ranks, as "
                         "parallel.sequence_parallel does; %s can",
                         (long long)length, (long long)tensor, right.failed ? "" : right.text);
    z3d_string_free(&right);
    return status;
}

static z3d_status check_parallel(const z3d_config *c) {
    int64_t tensor = c->parallel_tensor_model_parallel_size;
    if (c->parallel_pipeline_model_parallel_size != 1) {
        return z3d_config_error(c, "parallel.pipeline_model_parallel_size",
                                "%lld: pipeline parallelism is not supported yet; write 1",
                                (long long)c->parallel_pipeline_model_parallel_size);
    }
    if (c->model_num_attention_heads % tensor != 0) {
        return refuse_divisor(c, "parallel.tensor_model_parallel_size", tensor,
                              c->model_num_attention_heads, "model.num_attention_heads");
    }
    if (c->parallel_allow_tensor_across_nodes && tensor == 1) {
        return z3d_config_error(c, "parallel.allow_tensor_across_nodes",
                                "true has no effect with tensor_model_parallel_size 1; leave it "
                                "out");
    }
    return check_sequence(c);
}

/* A key of a part that is off: set by the user to what is not the default. */
typedef struct idle_key {
    const char *path;
    bool differs;
} idle_key;

static z3d_status refuse_idle(const z3d_config *c, const idle_key *keys, int count,
                              const char *because) {
    for (int i = 0; i < count; i++) {
        if (keys[i].differs && z3d_config_is_set(c, keys[i].path)) {
            return z3d_config_error(c, keys[i].path, "has no effect %s; leave it out", because);
        }
    }
    return Z3D_OK;
}

static z3d_status check_precision(const z3d_config *c) {
    const idle_key keys[] = {
        {"fp16.initial_scale_power", c->fp16_initial_scale_power != 16},
        {"fp16.loss_scale_window", c->fp16_loss_scale_window != 1000},
        {"fp16.hysteresis", c->fp16_hysteresis != 2},
        {"fp16.min_loss_scale", c->fp16_min_loss_scale != 1},
        {"fp16.loss_scale", c->fp16_loss_scale != 0},
    };
    enum { ALL = sizeof keys / sizeof *keys, DYNAMIC_ONLY = ALL - 1 };
    if (c->fp16_enabled && c->bf16_enabled) {
        return z3d_config_error(c, "bf16.enabled",
                                "fp16.enabled and bf16.enabled are both true; a run has one, or "
                                "none for fp32");
    }
    if (!c->fp16_enabled) {
        return refuse_idle(c, keys, ALL, "while fp16.enabled is false: set that to true");
    }
    if (c->fp16_loss_scale != 0) {
        return refuse_idle(c, keys, DYNAMIC_ONLY,
                           "with a fixed fp16.loss_scale: write 0 there for a dynamic one");
    }
    if (c->fp16_min_loss_scale > ldexp(1, (int)c->fp16_initial_scale_power)) {
        return z3d_config_error(c, "fp16.min_loss_scale",
                                "%g is above the first loss scale, 2^%lld; write at most that",
                                c->fp16_min_loss_scale, (long long)c->fp16_initial_scale_power);
    }
    return Z3D_OK;
}

/* How many activation checkpoints there are when `asked` for: one in every so many blocks. */
static int64_t checkpoints_given(int64_t layers, int64_t asked) {
    int64_t every = (layers + asked - 1) / asked;
    return (layers + every - 1) / every;
}

static z3d_status check_checkpoint_number(const z3d_config *c) {
    static const char key[] = "activation_checkpointing.number_checkpoints";
    int64_t asked = c->activation_checkpointing_number_checkpoints, layers = c->model_num_layers;
    if (asked == Z3D_AUTO) return Z3D_OK;
    if (asked > layers) {
        return z3d_config_error(c, key, "%lld is more than one in each of %lld blocks; write auto",
                                (long long)asked, (long long)layers);
    }
    int64_t given = checkpoints_given(layers, asked), above = asked;
    if (given == asked) return Z3D_OK;
    while (checkpoints_given(layers, above) != above) above++;
    return z3d_config_error(
        c, key, "%lld cannot be spread evenly over %lld blocks; %lld or %lld can", (long long)asked,
        (long long)layers, (long long)given, (long long)above);
}

static z3d_status check_activation(const z3d_config *c) {
    bool full = c->activation_checkpointing_granularity == Z3D_GRANULARITY_FULL;
    const idle_key keys[] = {
        {"activation_checkpointing.partition_activations",
         c->activation_checkpointing_partition_activations},
        {"activation_checkpointing.cpu_checkpointing",
         c->activation_checkpointing_cpu_checkpointing == Z3D_OFFLOAD_ON},
        {"activation_checkpointing.number_checkpoints",
         c->activation_checkpointing_number_checkpoints != Z3D_AUTO},
    };
    const idle_key hardware = {"training.hardware", c->training_hardware[0] != '\0'};
    if (c->activation_checkpointing_cpu_checkpointing != Z3D_OFFLOAD_AUTO) {
        Z3D_TRY(refuse_idle(c, &hardware, 1,
                            "unless activation_checkpointing.cpu_checkpointing is auto, which is "
                            "what it decides"));
    }
    if (!full) {
        Z3D_TRY(refuse_idle(c, keys, 3,
                            "unless activation_checkpointing.granularity is full: only then are "
                            "there activation checkpoints"));
    }
    Z3D_TRY(check_checkpoint_number(c));
    if (c->activation_checkpointing_partition_activations &&
        c->parallel_tensor_model_parallel_size == 1) {
        return z3d_config_error(c, "activation_checkpointing.partition_activations",
                                "true has no effect with parallel.tensor_model_parallel_size 1: "
                                "there is nobody to share a checkpoint with; write false");
    }
    if (c->activation_checkpointing_granularity != Z3D_GRANULARITY_FULL &&
        c->activation_checkpointing_replay != Z3D_REPLAY_MINIMAL) {
        return z3d_config_error(c, "activation_checkpointing.replay",
                                "full has no effect with activation_checkpointing.granularity "
                                "%s; write granularity: full",
                                c->activation_checkpointing_granularity == Z3D_GRANULARITY_NONE
                                    ? "none, which replays nothing"
                                    : "selective, which never replays a block whole");
    }
    return Z3D_OK;
}

static z3d_status check_schedule(const z3d_config *c) {
    int64_t total = c->scheduler_params_total_num_steps;
    bool decays = c->scheduler_type == Z3D_SCHEDULE_WARMUP_DECAY ||
                  c->scheduler_type == Z3D_SCHEDULE_WARMUP_COSINE;
    const idle_key keys[] = {
        {"scheduler.params.total_num_steps", total != Z3D_AUTO && total != c->training_steps},
        {"scheduler.params.min_lr", c->scheduler_params_min_lr != 0},
        {"scheduler.params.warmup_num_steps", c->scheduler_params_warmup_num_steps != 0},
    };
    if (c->scheduler_type == Z3D_SCHEDULE_CONSTANT) {
        return refuse_idle(c, keys, 3,
                           "with scheduler.type constant: choose WarmupLR, WarmupDecayLR or "
                           "WarmupCosineLR");
    }
    if (!decays) {
        return refuse_idle(c, keys, 2,
                           "with scheduler.type WarmupLR, which never decays: choose "
                           "WarmupDecayLR or WarmupCosineLR");
    }
    if (c->scheduler_params_min_lr > c->optimizer_params_lr) {
        return z3d_config_error(c, "scheduler.params.min_lr",
                                "%g is above the peak optimizer.params.lr %g; write at most that",
                                c->scheduler_params_min_lr, c->optimizer_params_lr);
    }
    if (total == Z3D_AUTO) total = c->training_steps;
    if (c->scheduler_params_warmup_num_steps > total) {
        return z3d_config_error(c, "scheduler.params.warmup_num_steps",
                                "%lld is beyond the end of the decay, total_num_steps %lld; write "
                                "at most that",
                                (long long)c->scheduler_params_warmup_num_steps, (long long)total);
    }
    return Z3D_OK;
}

static z3d_status check_checkpoint(const z3d_config *c) {
    const idle_key keys[] = {
        {"checkpoint.keep", c->checkpoint_keep != 3},
        {"checkpoint.async", c->checkpoint_async},
    };
    const idle_key verify = {"checkpoint.verify", c->checkpoint_verify != 0};
    bool never = strcmp(c->checkpoint_resume, "never") == 0;
    bool from_path = strcmp(c->checkpoint_resume, "auto") != 0 && !never;
    if (c->checkpoint_resume[0] == '\0')
        return z3d_config_error(c, "checkpoint.resume",
                                "is empty; want auto, never or the path of a checkpoint");
    if (from_path && c->checkpoint_init_from[0] != '\0')
        return z3d_config_error(c, "checkpoint.init_from",
                                "has no effect with checkpoint.resume from a path: a run goes on "
                                "or begins anew; leave one out");
    if (never && c->checkpoint_init_from[0] == '\0')
        Z3D_TRY(refuse_idle(c, &verify, 1,
                            "with checkpoint.resume never and no checkpoint.init_from: nothing is "
                            "loaded"));
    if (c->checkpoint_interval > 0) return Z3D_OK;
    return refuse_idle(c, keys, 2, "while checkpoint.interval is 0: say every how many steps");
}

/* Matrices of one type are multiplied in a run, and fp32 gradients accumulate in fp32 anyway. */
static z3d_status check_types(const z3d_config *c) {
    bool fp32 = !c->fp16_enabled && !c->bf16_enabled;
    const idle_key accumulation = {"data_types.grad_accum_dtype",
                                   fp32 && c->data_types_grad_accum_dtype == Z3D_ACCUM_FP32};
    const idle_key gemm[] = {
        {"training.gemm.fp32", !fp32 && c->training_gemm_fp32 != 0},
        {"training.gemm.bf16", !c->bf16_enabled && c->training_gemm_bf16 != 0},
        {"training.gemm.fp16", !c->fp16_enabled && c->training_gemm_fp16 != 0},
    };
    Z3D_TRY(refuse_idle(c, &accumulation, 1,
                        "in an fp32 run, whose gradients are fp32: set bf16.enabled or "
                        "fp16.enabled to true"));
    return refuse_idle(c, gemm, 3,
                       c->bf16_enabled   ? "in a bf16 run: training.gemm.bf16 has"
                       : c->fp16_enabled ? "in an fp16 run: training.gemm.fp16 has"
                                         : "in an fp32 run: training.gemm.fp32 has");
}

/* What looks at every instruction runs every instruction. */
static z3d_status check_graph(const z3d_config *c) {
    const char *looks = c->training_digest            ? "training.digest"
                        : c->training_trace_steps > 0 ? "training.trace_steps"
                                                      : NULL;
    if (c->training_cuda_graph != Z3D_CUDA_GRAPH_ON || !looks) return Z3D_OK;
    return z3d_config_error(c, "training.cuda_graph",
                            "on is not possible with %s, which looks at every instruction, where a "
                            "graph is one; write auto, or leave that out",
                            looks);
}

/* Keys of one device with the other. */
static z3d_status check_device(const z3d_config *c) {
    bool fp32 = !c->fp16_enabled && !c->bf16_enabled, cudnn = c->training_attention == 1;
    const idle_key cuda[] = {
        {"training.collectives", c->training_collectives == Z3D_COLLECTIVES_NCCL},
        {"training.attention", c->training_attention != 0},
        {"training.tf32", c->training_tf32},
        {"training.deterministic", !c->training_deterministic},
        {"training.cuda_graph", c->training_cuda_graph != Z3D_CUDA_GRAPH_AUTO},
    };
    const idle_key cpu[] = {
        {"training.gemm.fp32", c->training_gemm_fp32 != 0},
        {"training.gemm.bf16", c->training_gemm_bf16 != 0},
        {"training.gemm.fp16", c->training_gemm_fp16 != 0},
    };
    const idle_key tf32 = {"training.tf32", c->training_tf32 && !fp32};
    const idle_key any_order = {"training.deterministic", !c->training_deterministic};
    if (c->training_device == Z3D_TRAINING_CPU)
        return refuse_idle(c, cuda, 5, "on the cpu device: set training.device to cuda");
    Z3D_TRY(refuse_idle(c, cpu, 3, "on the cuda device, whose products are cuBLASLt's"));
    Z3D_TRY(refuse_idle(c, &tf32, 1, "in a 16-bit run"));
    Z3D_TRY(check_graph(c));
    if (fp32 || c->training_attention == 2)
        Z3D_TRY(refuse_idle(c, &any_order, 1, "where cuDNN does not compute attention"));
    if (cudnn && (fp32 || c->model_attention_dropout > 0))
        return z3d_config_error(c, "training.attention",
                                "cudnn computes attention in bf16 and fp16 without dropout on the "
                                "probabilities; write auto");
    return Z3D_OK;
}

/* What is done with files or a prompt that are not given. */
static z3d_status check_unused_parts(const z3d_config *c) {
    const idle_key validation[] = {
        {"training.eval_interval", c->training_eval_interval != 100},
        {"training.eval_steps", c->training_eval_steps != 10},
    };
    const idle_key generate[] = {
        {"generate.tokens", c->generate_tokens != 200},
        {"generate.temperature", c->generate_temperature != 0.8},
        {"generate.top_k", c->generate_top_k != 40},
        {"generate.seed", c->generate_seed != 1},
    };
    if (c->data_validation.count == 0)
        Z3D_TRY(refuse_idle(c, validation, 2, "without data.validation: give a file there"));
    if (!c->generate_prompt || !*c->generate_prompt)
        return refuse_idle(c, generate, 4, "without generate.prompt: give a text there");
    return Z3D_OK;
}

static z3d_status check_rest(const z3d_config *c) {
    const idle_key files[] = {{"data.vocab", c->data_vocab[0] != '\0'},
                              {"data.merges", c->data_merges[0] != '\0'}};
    if (c->data_tokenizer != Z3D_TOKENIZER_GPT2)
        Z3D_TRY(refuse_idle(c, files, 2, "with data.tokenizer bytes: write gpt2 there"));
    if (c->run_dir[0] == '\0') {
        return z3d_config_error(c, "run.dir", "is empty; want a folder to write to");
    }
    return Z3D_OK;
}

z3d_status z3d_config_check(const z3d_config *config) {
    Z3D_TRY(check_model(config));
    Z3D_TRY(check_parallel(config));
    Z3D_TRY(check_precision(config));
    Z3D_TRY(check_activation(config));
    Z3D_TRY(check_schedule(config));
    Z3D_TRY(check_checkpoint(config));
    Z3D_TRY(check_types(config));
    Z3D_TRY(check_device(config));
    Z3D_TRY(check_unused_parts(config));
    return check_rest(config);
}
