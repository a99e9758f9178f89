/* Converts a DeepSpeed file to our configuration. Our reader reads it, because the names are the
 * same. Then DeepSpeed's defaults that change the training are written out. */
#include "src/base/config/convert/convert.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char theirs[] = "DeepSpeed's default";

/* Adds a row for each key that the file set. */
static void report_taken(config_conversion *v) {
    for (int i = 0; i < CONFIG_KEY_COUNT; i++) {
        z3d_string value = {0};
        if (v->config->origin->place[i].source < 0 || v->config->origin->is_auto[i]) continue;
        config_append_value(&value, v->config, &config_table[i], 2);
        config_report_add(&v->report, CONFIG_TAKEN, config_table[i].path, "%s",
                          value.text ? value.text + (value.text[0] == ' ') : "");
        z3d_string_free(&value);
    }
}

/* Sets keys that are auto as Hugging Face's Trainer does. False: no key is auto. */
static bool fill_autos(config_conversion *v) {
    bool any = false;
    for (int i = 0; i < CONFIG_KEY_COUNT; i++) {
        const char *path = config_table[i].path, *value = config_auto(path);
        if (!v->config->origin->is_auto[i]) continue;
        any = true;
        config_take_default(v, path, value, "the file says auto; the Trainer's default");
        if (!config_is_mentioned(v, path))
            config_report_add(&v->report, CONFIG_TAKEN, path, "%s%s, zero3d's default, is left out",
                              strcmp(value, "auto") == 0 ? "" : "auto: ", value);
    }
    return any;
}

/* Sets the type if the file leaves it to the script. */
static void fill_type(config_conversion *v, const char *type) {
    static const int keys[] = {CONFIG_KEY_bf16_enabled, CONFIG_KEY_fp16_enabled};
    char name[16];
    bool open = false;
    for (size_t i = 0; i < 2; i++) {
        const char *path = config_table[keys[i]].path;
        if (!v->config->origin->is_auto[keys[i]]) continue;
        open = true;
        config_report_remove(&v->report, CONFIG_TAKEN, path);
        snprintf(name, sizeof name, "--%.8s", type ? type : "");
        if (type && strncmp(path, type, strlen(type)) == 0) config_take(v, name, path, "true");
    }
    if (type &&
        !z3d_config_is_set(v->config, strcmp(type, "bf16") == 0 ? "bf16.enabled" : "fp16.enabled"))
        config_report_add(&v->report, CONFIG_REFUSED, "--bf16, --fp16",
                          "the file sets the type itself (not auto)");
    if (open && !type && !v->config->bf16_enabled && !v->config->fp16_enabled) {
        v->remark = "That file leaves bf16 and fp16 open (auto): this is fp32. If your script "
                    "passes one of them, convert with --bf16 or --fp16.";
        config_report_add(&v->report, CONFIG_DIFFERENT, "bf16, fp16",
                          "auto: your script chooses; this is fp32. If it passes bf16 or fp16, "
                          "convert with --bf16 or --fp16");
    }
}

static void fill(config_conversion *v, const char *path, const char *text) {
    if (!config_is_mentioned(v, path)) config_take_default(v, path, text, theirs);
}

/* Only DeepSpeed's Adam reads adam_w_mode; with AdamW the key has no effect. */
static void fill_adam_mode(config_conversion *v) {
    static const char path[] = "optimizer.params.adam_w_mode";
    if (v->config->optimizer_type == Z3D_OPTIMIZER_adam || v->config->optimizer_params_adam_w_mode)
        return;
    config_report_remove(&v->report, CONFIG_TAKEN, path);
    config_report_add(&v->report, CONFIG_NO_EFFECT, path, "only Adam reads it");
    config_unset(v->config, CONFIG_KEY_optimizer_params_adam_w_mode);
    v->config->optimizer_params_adam_w_mode = true;
}

static void fill_optimizer(config_conversion *v) {
    const z3d_optimizer optimizer = (z3d_optimizer)v->config->optimizer_type;
    const bool adagrad = optimizer == Z3D_OPTIMIZER_adagrad;
    bool given =
        config_is_mentioned(v, "optimizer.type") || config_is_mentioned(v, "optimizer.params.lr");
    if (!given) {
        config_report_add(&v->report, CONFIG_DIFFERENT, "optimizer",
                          "not in the file, so your script makes the optimizer: write its lr, "
                          "betas, eps and weight_decay in optimizer.params");
        return;
    }
    fill_adam_mode(v);
    fill(v, "optimizer.params.lr", adagrad ? "1e-2" : "1e-3");
    if (adagrad) fill(v, "optimizer.params.eps", "1e-10");
    if (z3d_optimizer_reads(optimizer, "betas")) fill(v, "optimizer.params.betas", "[0.9, 0.999]");
    if (z3d_optimizer_reads(optimizer, "momentum")) fill(v, "optimizer.params.momentum", "0");
    fill(v, "optimizer.params.weight_decay", "0");
    if (v->config->optimizer_params_weight_decay > 0)
        config_report_add(&v->report, CONFIG_DIFFERENT, "optimizer.params.weight_decay",
                          "for matrices only; DeepSpeed decays biases and norms too, unless your "
                          "script has groups without it");
}

static void fill_clipping(config_conversion *v) {
    if (config_is_mentioned(v, "gradient_clipping")) return;
    fill(v, "gradient_clipping", "1");
    if (config_is_doubted(v, "gradient_clipping")) return;
    config_report_add(&v->report, CONFIG_DIFFERENT, "gradient_clipping",
                      "before June 2026 DeepSpeed's default was 0 (off); if your version is older, "
                      "write 0");
}

/* The scheduler's peak replaces the optimizer's rate. */
static void fill_peak(config_conversion *v) {
    z3d_config *c = v->config;
    const config_peer *peak = &c->origin->peer[CONFIG_PEER_WARMUP_MAX_LR];
    char number[40];
    if (peak->place.source >= 0) {
        if (z3d_config_is_set(c, "optimizer.params.lr") && c->optimizer_params_lr != peak->value) {
            config_report_add(&v->report, CONFIG_NO_EFFECT, "optimizer.params.lr",
                              "the scheduler sets the rate: warmup_max_lr %s",
                              z3d_format_number(peak->value, number, sizeof number));
        }
        config_unset(c, CONFIG_KEY_optimizer_params_lr);
    } else if (config_is_mentioned(v, "scheduler.params.warmup_max_lr")) {
        return;
    } else if (c->scheduler_type == Z3D_LR_WARMUP) {
        config_report_add(&v->report, CONFIG_DIFFERENT, "scheduler.params.warmup_max_lr",
                          "not in the file, so it is optimizer.params.lr, as in DeepSpeed since "
                          "June 2025; before, it was 1e-3");
    } else {
        config_unset(c, CONFIG_KEY_optimizer_params_lr);
        config_take_default(v, "optimizer.params.lr", "1e-3",
                            "DeepSpeed's default of scheduler.params.warmup_max_lr");
    }
}

static void fill_scheduler(config_conversion *v) {
    z3d_config *c = v->config;
    char number[40];
    if (c->scheduler_type == Z3D_LR_CONSTANT || c->scheduler_type >= Z3D_LR_LINEAR)
        return; /* not a schedule of DeepSpeed */
    fill(v, "scheduler.params.warmup_num_steps", "1000");
    if (c->scheduler_params_warmup_num_steps > 0)
        config_report_add(&v->report, CONFIG_DIFFERENT, "scheduler.params.warmup_num_steps",
                          "the first rate is peak / warmup_num_steps; DeepSpeed's first two are 0, "
                          "and its peak is two steps later");
    if (!config_is_mentioned(v, "scheduler.params.warmup_type")) {
        config_report_add(&v->report, CONFIG_DIFFERENT, "scheduler.params.warmup_type",
                          "DeepSpeed's default is log; the warm-up here is linear");
    }
    if (c->scheduler_type != Z3D_LR_WARMUP_COSINE) {
        fill_peak(v);
    } else if (!config_is_mentioned(v, "scheduler.params.cos_min_ratio")) {
        double end = 1e-4 * c->optimizer_params_lr;
        fill(v, "scheduler.params.min_lr", z3d_format_number(end, number, sizeof number));
    }
}

/* Leaves communication_data_type out, with a row that says why. */
static void leave_wire(config_conversion *v, config_verdict verdict, const char *why) {
    static const char key[] = "communication_data_type";
    config_report_remove(&v->report, CONFIG_TAKEN, key);
    config_report_add(&v->report, verdict, key, "%s", why);
    config_unset(v->config, CONFIG_KEY_communication_data_type);
}

/* communication_data_type fp32 means fp32 gradients here. The type of a bf16 run's gradients
 * depends on the number of micro-batches, which may be unknown. */
static void fill_wire(config_conversion *v) {
    static const char accum[] = "data_types.grad_accum_dtype";
    const z3d_config *c = v->config;
    const z3d_accum wire = (z3d_accum)c->communication_data_type;
    const z3d_accum gradients = z3d_config_grad_accum(c);
    const bool narrow = gradients == Z3D_ACCUM_BF16 || gradients == Z3D_ACCUM_FP16;
    if (wire == Z3D_ACCUM_AUTO) return;
    if (wire == Z3D_ACCUM_FP32) {
        if (narrow && config_is_mentioned(v, accum))
            leave_wire(v, CONFIG_DIFFERENT, "gradients of 16 bits travel in 16 bits here");
        else if (narrow)
            config_take_default(v, accum, "fp32", "communication_data_type fp32");
    } else if (narrow && (c->fp16_enabled || c->gradient_accumulation_steps != Z3D_AUTO)) {
        leave_wire(v, CONFIG_NO_EFFECT, "the gradients already have 16 bits");
    } else if (c->training_device == Z3D_TRAINING_CUDA &&
               c->training_collectives != Z3D_COLLECTIVES_HOST) {
        leave_wire(v, CONFIG_DIFFERENT,
                   "not built for NCCL, which sums gradients in their own type; on CPUs, or with "
                   "training.collectives host, write the key yourself");
    }
}

/* The logger's verbosity changes no run, so it is only a row. */
static void quiet_logger(config_conversion *v) {
    static const int loud[] = {CONFIG_PEER_COMMS_VERBOSE, CONFIG_PEER_COMMS_DEBUG};
    for (size_t i = 0; i < sizeof loud / sizeof *loud; i++) {
        const char *path = config_peer_key[loud[i]].path;
        config_place *place = &v->config->origin->peer[loud[i]].place;
        if (place->source < 0) continue;
        place->source = -1;
        config_report_remove(&v->report, CONFIG_TAKEN, path);
        config_report_add(&v->report, CONFIG_NO_EFFECT, path,
                          "training.trace_steps writes a timeline of each collective");
    }
}

/* PipelineModule's default partition. */
static void fill_pipeline(config_conversion *v) {
    const config_peer *stages = &v->config->origin->peer[CONFIG_PEER_PIPELINE_STAGES];
    if (stages->place.source >= 0 && stages->value > 1)
        fill(v, "parallel.pipeline_partition", "parameters");
}

static void convert(config_conversion *v, const char *type) {
    config_settle_optimizer(v->config);
    report_taken(v);
    const bool trainer = fill_autos(v);
    fill_type(v, type);
    fill(v, "zero_optimization.stage", "0");
    fill_clipping(v);
    fill_optimizer(v);
    fill_scheduler(v);
    if (trainer && !config_is_mentioned(v, "scheduler.type"))
        config_take_default(v, "scheduler.type", "WarmupDecayLR",
                            "not in the file; the Trainer's default");
    fill_pipeline(v);
    config_take_device(v);
    fill_wire(v);
    quiet_logger(v);
    if (!config_is_mentioned(v, "activation_checkpointing.granularity"))
        config_report_add(&v->report, CONFIG_DIFFERENT, "activation_checkpointing.granularity",
                          "DeepSpeed leaves this to the model's code; auto, the default here, "
                          "recomputes blocks if memory is short; none stores all activations");
    config_report_add(
        &v->report, CONFIG_DIFFERENT, "model, data, training",
        "not in a DeepSpeed file: add model.*, data.train and training.steps (or epochs)");
}

static z3d_status refuse_file(const char *path) {
    char *text;
    size_t length;
    Z3D_TRY(z3d_read_file(path, CONFIG_FILE_LIMIT, &text, &length));
    z3d_status status = config_refuse_format(text, path, "--from-deepspeed");
    free(text);
    return status;
}

z3d_status z3d_config_from_deepspeed(const char *path, const char *type,
                                     const z3d_config_rules *rules, z3d_string *yaml,
                                     z3d_string *table, bool *complete) {
    config_conversion v;
    Z3D_TRY(refuse_file(path));
    z3d_status status = config_conversion_begin(&v, path, "DeepSpeed");
    if (status == Z3D_OK) status = z3d_config_read_file(v.config, path);
    if (status == Z3D_OK) {
        convert(&v, type);
        status = config_conversion_finish(&v, rules, yaml, table, complete);
    }
    config_conversion_end(&v);
    return status;
}
