/* Whether a resumed run keeps the keys that it must (z3d_config_resume), and the error if it
 * changes one. */
#include <stdlib.h>
#include <string.h>

#include "src/train/trainer.h"

z3d_accum z3d_trainer_saved_accum(const z3d_config *saved) {
    const z3d_accum key = (z3d_accum)saved->data_types_grad_accum_dtype;
    if (key != Z3D_ACCUM_AUTO) return key;
    return saved->fp16_enabled   ? Z3D_ACCUM_FP16
           : saved->bf16_enabled ? Z3D_ACCUM_BF16
                                 : Z3D_ACCUM_AUTO;
}

static bool must_keep(const z3d_config *config, z3d_config_resume resume) {
    if (resume == Z3D_RESUME_PENDING)
        return config->zero_optimization_offload_optimizer_delayed_param_update;
    if (resume == Z3D_RESUME_END) return z3d_config_decays(config);
    return resume != Z3D_RESUME_FREE;
}

#define SCHEDULE_END "scheduler.params.total_num_steps"
#define WARMUP_STEPS "scheduler.params.warmup_num_steps"
#define WARMUP_RATIO "scheduler.params.warmup_ratio"

/* A key's values, as text. */
typedef struct values {
    z3d_string here, there;
    bool differ; /* false also where there is no memory for them */
} values;

static values read_values(const z3d_config *here, const z3d_config *there, const char *path) {
    values v = {0};
    z3d_config_value_to_compare(here, path, &v.here);
    z3d_config_value_to_compare(there, path, &v.there);
    v.differ = !v.here.failed && !v.there.failed && strcmp(v.here.text, v.there.text) != 0;
    return v;
}

static void free_values(values *v) {
    z3d_string_free(&v->here);
    z3d_string_free(&v->there);
}

/* The keys that a resumed run had to keep and has changed. */
typedef struct differences {
    const z3d_config *config; /* the run's */
    int64_t step;             /* the checkpoint's */
    z3d_string lines;
    int count;
    unsigned kinds; /* bits: z3d_config_resume of these keys */
    bool warmup;    /* warmup_num_steps is among them, which this run computes from warmup_ratio */
} differences;

static void add_difference(differences *d, const z3d_config_meaning *key, const values *v) {
    (void)z3d_config_error(d->config, key->path, "%s here, %s in the checkpoint of step %lld",
                           v->here.text, v->there.text, (long long)d->step);
    z3d_string_append(&d->lines, "%s%s", d->count ? ";\n" : "", z3d_error_message());
    d->count++;
    d->kinds |= 1U << key->resume;
    d->warmup = d->warmup || (strcmp(key->path, WARMUP_STEPS) == 0 &&
                              z3d_config_is_set(d->config, WARMUP_RATIO));
}

static void find_differences(const z3d_config *here, const z3d_config *there, bool any_schedule,
                             differences *d) {
    for (int i = 0; i < Z3D_CONFIG_KEY_COUNT; i++) {
        const z3d_config_meaning *key = &z3d_config_meanings[i];
        if (!must_keep(here, key->resume)) continue;
        if (any_schedule && key->resume == Z3D_RESUME_END) continue;
        values v = read_values(here, there, key->path);
        if (v.differ) add_difference(d, key, &v);
        free_values(&v);
    }
}

z3d_status z3d_trainer_read_saved(const char *text, z3d_config **out) {
    Z3D_TRY(z3d_config_create(out));
    return z3d_config_read_text(*out, text, strlen(text), "the checkpoint's config");
}

/* The weights with which a run with other adapters can begin; "": there are none, the checkpoint's
 * run began with random weights. */
static const char *base_of(const z3d_checkpoint_info *info, const z3d_config *there) {
    return info->base.folder ? info->base.folder : there->checkpoint_init_from;
}

/* The first key of an adapter's scale that differs. */
static z3d_status compare_scales(const z3d_config *here, const z3d_config *there,
                                 const char *base) {
    z3d_status status = Z3D_OK;
    for (int i = 0; i < Z3D_CONFIG_KEY_COUNT && status == Z3D_OK; i++) {
        const z3d_config_meaning *key = &z3d_config_meanings[i];
        if (key->resume != Z3D_RESUME_SCALE) continue;
        values v = read_values(here, there, key->path);
        if (v.differ)
            status = z3d_config_error(
                here, key->path, "%s here, %s in the checkpoint; write %s%s%s", v.here.text,
                v.there.text, v.there.text,
                *base ? ", or begin with its base: checkpoint.init_from=" : "", base);
        free_values(&v);
    }
    return status;
}

z3d_status z3d_trainer_compare_adapters(void *trainer, const z3d_checkpoint_info *info) {
    const z3d_config *here = ((const z3d_trainer *)trainer)->config;
    z3d_config *there;
    z3d_status status = z3d_trainer_read_saved(info->config, &there);
    const bool both = status == Z3D_OK && here->lora_r > 0 && there->lora_r > 0;
    if (both) status = compare_scales(here, there, base_of(info, there));
    z3d_config_destroy(there);
    return status;
}

void z3d_trainer_name_sizes(const z3d_config *here, const z3d_config *there, z3d_string *out) {
    for (int i = 0; i < Z3D_CONFIG_KEY_COUNT; i++) {
        const z3d_config_meaning *key = &z3d_config_meanings[i];
        if (key->resume != Z3D_RESUME_SIZE) continue;
        values v = read_values(here, there, key->path);
        if (v.differ)
            z3d_string_append(out, "%s%s=%s", out->length ? " " : "", key->path, v.there.text);
        free_values(&v);
    }
}

static void append_way(differences *d, const char *base) {
    /* With other sizes no weights can be used; with other adapters only the base's. */
    const bool sizes = d->kinds >> Z3D_RESUME_SIZE & 1,
               adapters = d->kinds & (1U << Z3D_RESUME_SCALE | 1U << Z3D_RESUME_ADAPTED);
    z3d_string_append(&d->lines, "to change %s, start a new run ", d->count == 1 ? "it" : "them");
    if (sizes || (adapters && !*base))
        z3d_string_append(&d->lines, "in another run.dir");
    else if (adapters)
        z3d_string_append(&d->lines,
                          "from the base's weights (checkpoint.init_from=%s) in another run.dir",
                          base);
    else
        z3d_string_append(&d->lines, "from the checkpoint's weights (checkpoint.init_from) in "
                                     "another run.dir");
}

static z3d_status refuse(differences *d, const z3d_config *there, const char *base) {
    bool one = d->count == 1;
    z3d_string_append(&d->lines, "%sa resumed run must keep %s; ", one ? ": " : ";\n",
                      one ? "this value" : "these values");
    if (d->warmup && z3d_config_decays(there))
        z3d_string_append(&d->lines,
                          WARMUP_RATIO " is a share of the schedule's steps: " SCHEDULE_END
                                       "=%lld keeps the warm-up; ",
                          (long long)there->scheduler_params_total_num_steps);
    else if (d->warmup)
        z3d_string_append(&d->lines,
                          WARMUP_RATIO " is a share of the run's steps: " WARMUP_STEPS
                                       "=%lld in its place keeps the warm-up; ",
                          (long long)there->scheduler_params_warmup_num_steps);
    append_way(d, base);
    if (d->lines.failed) return Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for a message");
    return z3d_error_set_lines(Z3D_ERR_CONFIG, __FILE__, __LINE__, d->lines.text);
}

z3d_status z3d_trainer_compare_configs(const z3d_trainer *trainer,
                                       const z3d_checkpoint_info *info) {
    z3d_config *there;
    differences d = {.config = trainer->config, .step = info->engine.step};
    /* Keys of the schedule's end may differ with --extend, and if no step is left. */
    bool any_schedule =
        trainer->options->extend || info->engine.step >= trainer->config->training_steps;
    z3d_status status = z3d_trainer_read_saved(info->config, &there);
    if (status == Z3D_OK) there->data_types_grad_accum_dtype = z3d_trainer_saved_accum(there);
    if (status == Z3D_OK) find_differences(trainer->config, there, any_schedule, &d);
    if (d.count == 1 && d.kinds == 1U << Z3D_RESUME_END)
        status = z3d_trainer_refuse_extension(trainer, there);
    else if (d.count > 0)
        status = refuse(&d, there, base_of(info, there));
    z3d_string_free(&d.lines);
    z3d_config_destroy(there);
    return status;
}
