/* Finds contradictions and options without effect that depend on the configuration alone; resolve.c
 * finds those that depend on the world size. Default values are never errors, because pasted blocks
 * and a run's config.yaml name all keys. A check uses only keys without errors. */
#include "src/base/config/table.h"
#include "src/base/param_groups.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* If fp32 rounds beta to 1, the optimizer divides by 1 - beta^t = 0. */
static void check_below_one(config_checker *k, const char *path, double value) {
    char number[40];
    if (!config_sound(k, path, NULL) || (float)value < 1) return;
    config_complain(k, path, "%s is too close to 1 (in fp32 it is 1); write at most 0.9999999",
                    z3d_format_number(value, number, sizeof number));
}

static void check_numbers(config_checker *k) {
    const z3d_config *c = k->c;
    check_below_one(k, "optimizer.params.betas", c->optimizer_params_betas.value[0]);
    check_below_one(k, "optimizer.params.betas", c->optimizer_params_betas.value[1]);
    check_below_one(k, "optimizer.ema_decay", c->optimizer_ema_decay);
    if (config_sound(k, "optimizer.params.eps", NULL) && (float)c->optimizer_params_eps == 0) {
        config_complain(k, "optimizer.params.eps",
                        "%g is too close to 0 (in fp32 it is 0); write at least 1e-45",
                        c->optimizer_params_eps);
    }
}

static void check_param_groups(config_checker *k) {
    static const char path[] = "optimizer.param_groups";
    const z3d_data_list *list = &k->c->optimizer_param_groups;
    if (list->count > Z3D_PARAM_GROUPS)
        config_complain(k, path, "%d groups; write at most %d", list->count, Z3D_PARAM_GROUPS);
    for (int i = 0; i < list->count && config_sound(k, path, NULL); i++) {
        z3d_param_group group;
        if (z3d_param_group_parse(list->path[i], &group) != Z3D_OK)
            config_complain(k, path, "%s", z3d_error_message());
        else if (!isnan(group.lr) && k->c->optimizer_params_lr == 0 &&
                 config_sound(k, "optimizer.params.lr", NULL))
            config_complain(k, path, "lr %g, but optimizer.params.lr is 0; write a peak there",
                            group.lr);
    }
}

#define SQUARES_TYPE "optimizer.params.exp_avg_sq_dtype"

static void check_optimizer(config_checker *k) {
    const z3d_config *c = k->c;
    const z3d_optimizer optimizer = (z3d_optimizer)c->optimizer_type;
    static const char section[] = "optimizer.params.";
    char because[64];
    snprintf(because, sizeof because, "with optimizer.type %s", z3d_optimizer_name(optimizer));
    for (int i = 0; i < CONFIG_KEY_COUNT; i++) {
        const char *path = config_table[i].path;
        if (strncmp(path, section, strlen(section)) == 0 && !z3d_optimizer_reads(optimizer, path))
            config_refuse_idle(k, path, "optimizer.type", because, NULL);
    }
    if (z3d_optimizer_reads(optimizer, SQUARES_TYPE) &&
        c->optimizer_params_exp_avg_dtype != c->optimizer_params_exp_avg_sq_dtype &&
        config_sound(k, SQUARES_TYPE, "optimizer.params.exp_avg_dtype", NULL))
        config_complain(k, SQUARES_TYPE,
                        "this key and optimizer.params.exp_avg_dtype must be equal; write bf16 for "
                        "both, or for none");
}

static bool is_sound(void *checker, const char *key) {
    return config_sound(checker, key, NULL);
}

static void complain(void *checker, const char *key, const char *message) {
    config_complain(checker, key, "%s", message);
}

static void idle(void *checker, const char *key, const char *cause, const char *because) {
    config_refuse_idle(checker, key, cause, because, NULL);
}

static void check_model(config_checker *k) {
    if (!k->rules || !config_sound(k, "model.type", NULL)) return;
    k->rules->check(k->c, &(z3d_config_judge){k, is_sound, complain, idle, k->ranks});
}

#define TENSOR "parallel.tensor_model_parallel_size"

#define SPEEDS "parallel.device_speeds"

static void check_speeds(config_checker *k) {
    static const double least = 1e-3, most = 1e3;
    int count;
    double *speed = NULL;
    if (!config_sound(k, SPEEDS, NULL)) return;
    if (z3d_config_device_speeds(k->c, NULL, 0, &count) != Z3D_SPEEDS_LIST) return;
    if (z3d_new((size_t)count, sizeof *speed, "speeds", &speed) != Z3D_OK) {
        config_errors_add(k->errors);
        return;
    }
    (void)z3d_config_device_speeds(k->c, speed, count, &count);
    int wrong = 0;
    while (wrong < count && speed[wrong] >= least && speed[wrong] <= most) wrong++;
    if (wrong < count)
        config_complain(k, SPEEDS, "rank %d's speed is %g; write a number from %g to %g", wrong,
                        speed[wrong], least, most);
    free(speed);
}

bool config_check_ranks_speeds(config_checker *k, int ranks) {
    int count;
    if (!config_sound(k, SPEEDS, NULL)) return true;
    if (z3d_config_device_speeds(k->c, NULL, 0, &count) != Z3D_SPEEDS_LIST) return true;
    if (count == ranks) return true;
    config_complain(k, SPEEDS,
                    "the list has %d number%s, but there are %d ranks; write one number per rank, "
                    "or measured",
                    count, z3d_plural(count), ranks);
    return false;
}

static void check_parallel(config_checker *k) {
    config_check_pipeline(k);
    check_speeds(k);
    config_check_sharding(k);
    if (k->c->parallel_tensor_model_parallel_size > 1) return;
    config_refuse_idle(k, "parallel.sequence_parallel", TENSOR,
                       "with " TENSOR " 1: only tensor ranks share a sequence", NULL);
    config_refuse_idle(k, "parallel.allow_tensor_across_nodes", TENSOR, "with " TENSOR " 1", NULL);
}

#define DYNAMIC_SCALE                                                                              \
    "fp16.initial_scale_power fp16.loss_scale_window fp16.hysteresis fp16.min_loss_scale"

static void check_precision(config_checker *k) {
    const z3d_config *c = k->c;
    if (!config_sound(k, "fp16.enabled", "bf16.enabled", NULL)) return;
    if (c->fp16_enabled && c->bf16_enabled) {
        config_complain(k, "bf16.enabled",
                        "fp16.enabled and bf16.enabled are both true; set one of them, or none "
                        "for fp32");
        return;
    }
    if (!c->fp16_enabled) {
        /* A pasted block with enabled: false is fine; a block without `enabled` is a mistake. */
        config_note_idle(k, DYNAMIC_SCALE " fp16.loss_scale", "fp16.enabled",
                         "while fp16.enabled is false", "set fp16.enabled to true",
                         config_is_written(c, "fp16.enabled"));
        return;
    }
    if (c->fp16_loss_scale != 0) {
        config_refuse_idle(k, DYNAMIC_SCALE, "fp16.loss_scale", "with a fixed fp16.loss_scale",
                           "set fp16.loss_scale to 0 (dynamic)");
        return;
    }
    if (config_sound(k, "fp16.min_loss_scale", "fp16.initial_scale_power", NULL) &&
        c->fp16_min_loss_scale > ldexp(1, (int)c->fp16_initial_scale_power)) {
        config_complain(k, "fp16.min_loss_scale",
                        "%g is above the first loss scale, 2^%lld; write at most that",
                        c->fp16_min_loss_scale, (long long)c->fp16_initial_scale_power);
    }
}

/* The number of activation checkpoints for `asked`: one for each run of `every` blocks. */
static int64_t checkpoints_given(int64_t layers, int64_t asked) {
    int64_t every = (layers + asked - 1) / asked;
    return (layers + every - 1) / every;
}

static void check_checkpoint_number(config_checker *k) {
    static const char key[] = "activation_checkpointing.number_checkpoints";
    const z3d_config *c = k->c;
    int64_t asked = c->activation_checkpointing_number_checkpoints, layers = c->model_num_layers;
    if (asked == Z3D_AUTO || !config_sound(k, key, "model.num_layers", NULL)) return;
    if (asked > layers) {
        config_complain(k, key, "%lld is more than the %lld blocks; write auto", (long long)asked,
                        (long long)layers);
        return;
    }
    int64_t given = checkpoints_given(layers, asked), above = asked;
    if (given == asked) return;
    while (checkpoints_given(layers, above) != above) above++;
    config_complain(k, key, "%lld cannot be spread evenly over %lld blocks; write %lld or %lld",
                    (long long)asked, (long long)layers, (long long)given, (long long)above);
}

bool z3d_config_wants_checkpoints(const z3d_config *c) {
    return c->activation_checkpointing_partition_activations ||
           c->activation_checkpointing_cpu_checkpointing == Z3D_OFFLOAD_ON ||
           c->activation_checkpointing_cpu_checkpointing == Z3D_OFFLOAD_NVME ||
           c->activation_checkpointing_number_checkpoints != Z3D_AUTO ||
           c->activation_checkpointing_replay != Z3D_REPLAY_MINIMAL;
}

#define GRANULARITY "activation_checkpointing.granularity"
#define PARTITION "activation_checkpointing.partition_activations"
#define CPU "activation_checkpointing.cpu_checkpointing"
#define FOLDER "activation_checkpointing.nvme_path"
#define NUMBER "activation_checkpointing.number_checkpoints"

static void check_activation_parts(config_checker *k) {
    const z3d_config *c = k->c;
    const int cpu = c->activation_checkpointing_cpu_checkpointing;
    static const char whole[] = "set it to full", full[] = "unless " GRANULARITY " is full";
    if (c->activation_checkpointing_granularity == Z3D_GRANULARITY_FULL ||
        c->activation_checkpointing_granularity == Z3D_GRANULARITY_AUTO)
        return;
    config_refuse_idle(k,
                       cpu == Z3D_OFFLOAD_AUTO   ? PARTITION " " NUMBER
                       : cpu == Z3D_OFFLOAD_NVME ? PARTITION " " CPU " " FOLDER " " NUMBER
                                                 : PARTITION " " CPU " " NUMBER,
                       GRANULARITY, full, whole);
    config_refuse_idle(k, "activation_checkpointing.replay", GRANULARITY,
                       c->activation_checkpointing_granularity == Z3D_GRANULARITY_NONE
                           ? "with " GRANULARITY " none, which replays nothing"
                           : "with " GRANULARITY " selective, which never replays a whole block",
                       whole);
}

/* training.hardware describes the machine for three keys that may be auto. Without one of them it
 * has no effect. The causes are the overridden keys that do not want it: then it is a note. */
static void check_hardware(config_checker *k) {
    const z3d_config *c = k->c;
    const bool wants[] = {
        c->activation_checkpointing_cpu_checkpointing == Z3D_OFFLOAD_AUTO,
        c->zero_optimization_stage == 3,
        c->parallel_pipeline_model_parallel_size > 1,
        c->zero_optimization_pipeline_gather == Z3D_PIPELINE_GATHER_AUTO,
        c->zero_optimization_offload_optimizer_device != Z3D_OFFLOAD_DEVICE_NONE,
        z3d_is_auto(c->zero_optimization_offload_optimizer_ratio),
    };
    static const char *const keys[] = {CPU,
                                       "zero_optimization.stage",
                                       "parallel.pipeline_model_parallel_size",
                                       "zero_optimization.pipeline_gather",
                                       "zero_optimization.offload_optimizer.device",
                                       "zero_optimization.offload_optimizer.ratio"};
    char causes[256] = CPU;
    size_t length = strlen(causes);
    if (wants[0] || (wants[1] && wants[2] && wants[3]) || (wants[4] && wants[5])) return;
    for (size_t i = 1; i < sizeof keys / sizeof *keys; i++)
        if (!wants[i] && config_is_overridden(c, keys[i]))
            length += (size_t)snprintf(causes + length, sizeof causes - length, " %s", keys[i]);
    config_refuse_idle(
        k, "training.hardware", causes,
        "unless a key that it decides is auto: " CPU ", zero_optimization.pipeline_gather (stage 3 "
        "with pipeline stages) or zero_optimization.offload_optimizer.ratio (with offload)",
        NULL);
}

static void check_activation(config_checker *k) {
    check_hardware(k);
    check_activation_parts(k);
    config_check_checkpoint_folder(k);
    check_checkpoint_number(k);
    if (k->c->parallel_tensor_model_parallel_size == 1)
        config_refuse_idle(k, PARTITION, TENSOR,
                           "with " TENSOR " 1: only tensor ranks share a checkpoint", NULL);
}

#define TOTAL_STEPS "scheduler.params.total_num_steps"

/* If the command line ends a run or a decay early, the warm-up ends there, too. whole: the
 * warm-up may also stay, since another run may continue this one. */
static void cut_warmup(config_checker *k, const char *end, int64_t steps, bool whole) {
    static const char path[] = "scheduler.params.warmup_num_steps";
    const int64_t warmup = k->c->scheduler_params_warmup_num_steps;
    char keep[96], why[224];
    if (!config_sound(k, path, end, NULL) || config_is_overridden(k->c, path) ||
        !config_is_overridden(k->c, end) || steps == Z3D_AUTO || warmup <= steps)
        return;
    snprintf(keep, sizeof keep, "; to keep it, write %s=%lld there too", path, (long long)warmup);
    snprintf(why, sizeof why, "%lld steps: the command line sets %s%s", (long long)steps, end,
             whole ? keep : "");
    config_tell(k->c, k->c->origin->place[config_find(path)], path, "is cut to", why);
    k->c->scheduler_params_warmup_num_steps = steps;
}

/* The decay of warmup_stable_decay, in the last steps. */
static void check_last_steps(config_checker *k, const char *end, int64_t total) {
    static const char path[] = "scheduler.params.num_decay_steps";
    const z3d_config *c = k->c;
    const int64_t warmup = z3d_config_warmup_steps(c), steps = c->scheduler_params_num_decay_steps;
    if (!config_sound(k, path, "scheduler.params.warmup_ratio", NULL) || steps <= total - warmup ||
        steps == Z3D_AUTO)
        return;
    char way[64] = "shorten the warm-up";
    if (total > warmup)
        snprintf(way, sizeof way, "write at most %lld", (long long)(total - warmup));
    config_complain(k, path, "%lld steps and %lld of warm-up are more than %s %lld; %s",
                    (long long)steps, (long long)warmup, end, (long long)total, way);
}

void config_check_warmup(config_checker *k, const char *given) {
    const z3d_config *c = k->c;
    int64_t total = c->scheduler_params_total_num_steps;
    const char *end = TOTAL_STEPS;
    if (c->scheduler_type == Z3D_LR_CONSTANT) return;
    cut_warmup(k, given, c->training_steps, !z3d_config_decays(c) || total != Z3D_AUTO);
    if (total != Z3D_AUTO) {
        cut_warmup(k, TOTAL_STEPS, total, false);
    } else {
        total = c->training_steps;
        end = "training.steps";
    }
    if (!z3d_config_decays(c) || total == Z3D_AUTO ||
        !config_sound(k, "scheduler.params.warmup_num_steps", TOTAL_STEPS, end, NULL))
        return;
    if (c->scheduler_params_warmup_num_steps > total)
        config_complain(k, "scheduler.params.warmup_num_steps",
                        "%lld is beyond the end of the decay, %s %lld; write at most that",
                        (long long)c->scheduler_params_warmup_num_steps, end, (long long)total);
    else
        check_last_steps(k, end, total);
}

static void check_decay(config_checker *k) {
    const z3d_config *c = k->c;
    if (config_sound(k, "scheduler.params.min_lr", "optimizer.params.lr", NULL) &&
        c->scheduler_params_min_lr > c->optimizer_params_lr) {
        config_complain(k, "scheduler.params.min_lr",
                        "%g is above the peak optimizer.params.lr %g; write at most that",
                        c->scheduler_params_min_lr, c->optimizer_params_lr);
    }
}

/* The names of all schedules that read a key. */
static void append_readers(z3d_string *out, const char *path) {
    for (int i = 0; i < Z3D_LR_COUNT; i++)
        if (z3d_lr_schedule_reads((z3d_lr_schedule)i, path))
            z3d_string_append(out, "%s%s", out->length ? ", " : "choose ",
                              z3d_lr_schedule_name((z3d_lr_schedule)i));
}

static void refuse_unread(config_checker *k) {
    static const char section[] = "scheduler.params.";
    const z3d_config *c = k->c;
    const z3d_lr_schedule schedule = (z3d_lr_schedule)c->scheduler_type;
    /* total_num_steps is fine if warmup_ratio is a share of it, or if it equals training.steps. */
    const bool any_end = c->scheduler_params_warmup_ratio > 0 ||
                         c->scheduler_params_total_num_steps == c->training_steps;
    char because[64];
    snprintf(because, sizeof because, "with scheduler.type %s", z3d_lr_schedule_name(schedule));
    for (int i = 0; i < CONFIG_KEY_COUNT; i++) {
        const char *path = config_table[i].path;
        z3d_string readers = {0};
        if (strncmp(path, section, strlen(section)) != 0 || z3d_lr_schedule_reads(schedule, path) ||
            (any_end && strcmp(path, TOTAL_STEPS) == 0))
            continue;
        append_readers(&readers, path);
        config_refuse_idle(k, path, "scheduler.type", because, readers.text);
        z3d_string_free(&readers);
    }
}

static void check_schedule(config_checker *k) {
    static const char ratio[] = "scheduler.params.warmup_ratio";
    const z3d_config *c = k->c;
    if (!config_sound(k, "scheduler.type", NULL)) return;
    refuse_unread(k);
    if (c->scheduler_type == Z3D_LR_CONSTANT) return;
    if (c->scheduler_params_warmup_ratio > 0 && c->scheduler_params_warmup_num_steps > 0 &&
        config_sound(k, ratio, "scheduler.params.warmup_num_steps", NULL))
        config_complain(k, ratio,
                        "%g, but scheduler.params.warmup_num_steps %lld also sets the warm-up; "
                        "leave one of them out",
                        c->scheduler_params_warmup_ratio,
                        (long long)c->scheduler_params_warmup_num_steps);
    config_check_warmup(k, "training.steps");
    if (z3d_config_decays(c)) check_decay(k);
}

static void check_checkpoint(config_checker *k) {
    const z3d_config *c = k->c;
    bool never = strcmp(c->checkpoint_resume, "never") == 0;
    bool from_path = z3d_config_resumes_path(c);
    if (c->checkpoint_resume[0] == '\0') {
        config_complain(k, "checkpoint.resume",
                        "is empty; write auto, never or the path of a checkpoint");
    } else if (from_path) {
        config_refuse_idle(k, "checkpoint.init_from", "checkpoint.resume",
                           "with checkpoint.resume from a path: a run resumes or starts from other "
                           "weights, not both",
                           NULL);
    }
    if (never && c->checkpoint_init_from[0] == '\0')
        config_refuse_idle(
            k, "checkpoint.verify", "checkpoint.resume checkpoint.init_from",
            "with checkpoint.resume never and no checkpoint.init_from: nothing is loaded", NULL);
    if (c->checkpoint_interval == 0)
        config_refuse_idle(k, "checkpoint.keep checkpoint.async checkpoint.keep_best",
                           "checkpoint.interval", "while checkpoint.interval is 0",
                           "set checkpoint.interval");
}

#define GRADIENTS "data_types.grad_accum_dtype"

/* Gradients have the model's type, or fp32. */
static void check_gradients(config_checker *k) {
    const z3d_config *c = k->c;
    const bool bf16 = c->data_types_grad_accum_dtype == Z3D_ACCUM_BF16,
               fp16 = c->data_types_grad_accum_dtype == Z3D_ACCUM_FP16;
    if (!config_sound(k, GRADIENTS, "bf16.enabled", "fp16.enabled", NULL)) return;
    if ((bf16 && !c->bf16_enabled) || (fp16 && !c->fp16_enabled))
        config_complain(k, GRADIENTS, "%s needs %s.enabled true; write auto",
                        bf16 ? "bf16" : "fp16", bf16 ? "bf16" : "fp16");
}

#define WIRE "communication_data_type"

static const char *accum_name(z3d_accum type) {
    return type == Z3D_ACCUM_FP16 ? "fp16" : type == Z3D_ACCUM_BF16 ? "bf16" : "fp32";
}

void config_check_wire(config_checker *k) {
    const z3d_config *c = k->c;
    const z3d_accum wire = (z3d_accum)c->communication_data_type;
    const z3d_accum gradients = z3d_config_grad_accum(c);
    const bool wide = gradients == Z3D_ACCUM_AUTO || gradients == Z3D_ACCUM_FP32;
    if (wire == Z3D_ACCUM_AUTO || !config_sound(k, WIRE, GRADIENTS, "bf16.enabled", "fp16.enabled",
                                                "training.device", "training.collectives", NULL))
        return;
    if (!wide && wire == Z3D_ACCUM_FP32)
        config_complain(k, WIRE,
                        "fp32 is wider than the gradients, which are %s; set " GRADIENTS
                        " to fp32, or leave this key out",
                        accum_name(gradients));
    else if (!wide && !(c->parallel_elastic && c->data_types_grad_accum_dtype == Z3D_ACCUM_AUTO))
        config_complain(k, WIRE,
                        "%s has no effect: the gradients are %s already; set " GRADIENTS
                        " to fp32, or leave this key out",
                        accum_name(wire), accum_name(gradients));
    else if (wire != Z3D_ACCUM_FP32 && c->training_device == Z3D_TRAINING_CUDA &&
             c->training_collectives != Z3D_COLLECTIVES_HOST)
        config_complain(k, WIRE,
                        "%s is not built for NCCL, which adds in the type it sends; set "
                        "training.collectives to host, or leave this key out",
                        accum_name(wire));
}

/* A run multiplies matrices of one type; fp32 gradients always accumulate in fp32. */
static void check_types(config_checker *k) {
    const z3d_config *c = k->c;
    bool fp32 = !c->fp16_enabled && !c->bf16_enabled;
    static const char types[] = "bf16.enabled fp16.enabled";
    if (fp32 && c->data_types_grad_accum_dtype == Z3D_ACCUM_FP32)
        config_refuse_idle(k, GRADIENTS, types, "in an fp32 run, whose gradients are fp32",
                           "set bf16.enabled or fp16.enabled to true");
    check_gradients(k);
    if (c->training_device != Z3D_TRAINING_CPU) return;
    static const struct {
        const char *others, *because, *remedy;
    } kinds[] = {
        {"training.gemm.bf16 training.gemm.fp16", "in an fp32 run", "use training.gemm.fp32"},
        {"training.gemm.fp32 training.gemm.fp16", "in a bf16 run", "use training.gemm.bf16"},
        {"training.gemm.fp32 training.gemm.bf16", "in an fp16 run", "use training.gemm.fp16"},
    };
    const int kind = c->bf16_enabled ? 1 : c->fp16_enabled ? 2 : 0;
    config_refuse_idle(k, kinds[kind].others, types, kinds[kind].because, kinds[kind].remedy);
}

/* A graph launches the step as a whole: nothing can look at single instructions. */
static void check_graph(config_checker *k) {
    const z3d_config *c = k->c;
    const char *looks = c->training_digest            ? "training.digest"
                        : c->training_trace_steps > 0 ? "training.trace_steps"
                                                      : NULL;
    if (c->training_cuda_graph != Z3D_CUDA_GRAPH_ON || !looks) return;
    config_complain(k, "training.cuda_graph",
                    "on is not possible with %s, which looks at every instruction; write auto, or "
                    "leave %s out",
                    looks, looks);
}

static void refuse_on_cpu(config_checker *k, const char *keys) {
    config_refuse_idle(k, keys, "training.device", "on the cpu device",
                       "set training.device to cuda");
}

static void check_nccl(config_checker *k) {
    const z3d_config *c = k->c;
    static const char windows[] = "training.nccl.windows";
    if (c->training_device == Z3D_TRAINING_CPU)
        refuse_on_cpu(k, windows);
    else if (c->training_collectives == Z3D_COLLECTIVES_HOST)
        config_refuse_idle(k, windows, "training.collectives", "with training.collectives host",
                           "set training.collectives to nccl");
}

static void check_cpu_device(config_checker *k) {
    const z3d_config *c = k->c;
    if (c->training_collectives == Z3D_COLLECTIVES_NCCL) refuse_on_cpu(k, "training.collectives");
    refuse_on_cpu(k, "training.attention training.tf32 training.deterministic training.cuda_graph");
    if (z3d_config_cuda_gemm(c) != Z3D_CUDA_GEMM_HEURISTIC) refuse_on_cpu(k, "training.gemm.cuda");
}

static void check_cuda_device(config_checker *k) {
    const z3d_config *c = k->c;
    bool fp32 = !c->fp16_enabled && !c->bf16_enabled,
         cudnn = c->training_attention == Z3D_CONFIG_ATTENTION_CUDNN;
    config_refuse_idle(k, "training.gemm.fp32 training.gemm.bf16 training.gemm.fp16",
                       "training.device", "on the cuda device, which uses cuBLASLt", NULL);
    if (!fp32)
        config_refuse_idle(k, "training.tf32", "bf16.enabled fp16.enabled", "in a 16-bit run",
                           NULL);
    if (z3d_config_cuda_gemm(c) == Z3D_CUDA_GEMM_LIST &&
        !strstr(c->training_gemm_cuda.path[0], ", cuBLASLt "))
        config_complain(k, "training.gemm.cuda",
                        "'%.80s' is not a list of choices; write heuristic, timed, or the list in "
                        "the config.yaml of a timed run",
                        c->training_gemm_cuda.path[0]);
    check_graph(k);
    if (fp32 || c->training_attention == Z3D_CONFIG_ATTENTION_OWN)
        config_refuse_idle(k, "training.deterministic",
                           "training.attention bf16.enabled fp16.enabled",
                           "where cuDNN does not compute attention", NULL);
    if (cudnn && (fp32 || c->model_attention_dropout > 0)) {
        config_complain(k, "training.attention",
                        "cudnn computes attention only in bf16 and fp16, and without dropout on "
                        "the probabilities; write auto");
    }
}

/* Keys whose files, prompt or mode are not set. */
static void check_unused_parts(config_checker *k) {
    const z3d_config *c = k->c;
    if (c->data_samples == Z3D_SAMPLES_WINDOWS)
        config_refuse_idle(k, "data.too_long", "data.samples", "with data.samples windows",
                           "set data.samples to documents");
    if (c->data_validation.count == 0)
        config_refuse_idle(k,
                           "training.eval_interval training.eval_steps "
                           "training.early_stopping_patience checkpoint.keep_best",
                           "data.validation", "without data.validation", "set data.validation");
    else if (c->training_eval_interval == 0)
        config_refuse_idle(k, "training.early_stopping_patience checkpoint.keep_best",
                           "training.eval_interval",
                           "while training.eval_interval is 0: one validation loss, at the end",
                           "set training.eval_interval");
    if (!z3d_config_has_prompts(c))
        config_refuse_idle(k,
                           "generate.tokens generate.temperature generate.top_k generate.seed "
                           "generate.top_p generate.repetition_penalty generate.stop "
                           "generate.ignore_eos generate.batch generate.every",
                           "generate.prompt generate.prompts",
                           "without generate.prompt and generate.prompts", "set one of them");
    if (c->data_tokenizer == Z3D_TOKENIZER_BYTES)
        config_refuse_idle(k, "data.vocab data.merges", "data.tokenizer",
                           "with data.tokenizer bytes",
                           "set data.tokenizer to gpt2 or huggingface");
    if (c->data_tokenizer == Z3D_TOKENIZER_HUGGINGFACE)
        config_refuse_idle(k, "data.merges", "data.tokenizer",
                           "with data.tokenizer huggingface: tokenizer.json has its own", NULL);
}

bool z3d_config_has_prompts(const z3d_config *c) {
    return (c->generate_prompt && *c->generate_prompt) || c->generate_prompts.count > 0;
}

static void check_prompts(config_checker *k) {
    enum { MOST = 16 };
    if (k->c->generate_prompts.count > MOST)
        config_complain(k, "generate.prompts",
                        "%d texts; write at most %d, or give generate --prompts a file",
                        k->c->generate_prompts.count, MOST);
}

void config_check_into(config_checker *k) {
    config_settle_peers(k);
    config_check_epochs(k);
    check_numbers(k);
    check_optimizer(k);
    check_param_groups(k);
    check_parallel(k);
    config_check_offload(k);
    if (k->trains) config_check_offload_alone(k);
    check_model(k);
    check_precision(k);
    check_activation(k);
    check_schedule(k);
    check_checkpoint(k);
    check_types(k);
    if (k->c->training_device == Z3D_TRAINING_CPU) {
        check_cpu_device(k);
    } else {
        check_cuda_device(k);
    }
    check_nccl(k);
    check_unused_parts(k);
    check_prompts(k);
    config_check_comms(k);
    if (k->c->run_dir[0] == '\0') {
        config_complain(k, "run.dir", "is empty; write a folder to write to");
    }
}
