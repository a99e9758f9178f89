/* Which keys a resumed run must keep, and the error if it changes one. */
#include <stdlib.h>
#include <string.h>

#include "src/train/trainer.h"

static bool says(const char *value, const char *word) {
    return strcmp(value, word) == 0;
}

/* Paths, or sections with their point. What is not here may change: topology, stage, precision, how
 * the batch is cut, where files lie, how long the run is. */
static const char *const kept[] = {"model.",          "train_batch_size",    "gradient_clipping",
                                   "optimizer.",      "scheduler.",          "data.seed",
                                   "data.samples",    "data.too_long",       "training.seed",
                                   "lora.r",          "lora.lora_alpha",     "lora.lora_dropout",
                                   "lora.use_rslora", "lora.target_modules", "lora.modules_to_save",
                                   "training.freeze"};

/* The precision of gradients that wait for the next step. */
static bool is_gradients_type(const char *path) {
    return says(path, "data_types.grad_accum_dtype") || says(path, "fp16.enabled") ||
           says(path, "bf16.enabled");
}

z3d_accum z3d_trainer_saved_accum(const z3d_config *saved) {
    const z3d_accum key = (z3d_accum)saved->data_types_grad_accum_dtype;
    if (key != Z3D_ACCUM_AUTO) return key;
    return saved->fp16_enabled   ? Z3D_ACCUM_FP16
           : saved->bf16_enabled ? Z3D_ACCUM_BF16
                                 : Z3D_ACCUM_AUTO;
}

static bool must_keep(const z3d_config *config, const char *path) {
    if (config->zero_optimization_offload_optimizer_delayed_param_update && is_gradients_type(path))
        return true;
    if (says(path, "model.make_vocab_size_divisible_by") || says(path, "model.tiling"))
        return false;                                   /* neither padding nor tiles are stored */
    if (says(path, "scheduler.params.total_num_steps")) /* where it has no effect */
        return z3d_config_decays(config);
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        size_t length = strlen(kept[i]);
        if (kept[i][length - 1] == '.' ? strncmp(path, kept[i], length) == 0 : says(path, kept[i]))
            return true;
    }
    return false;
}

/* Values as text, by the types of the key table. */
static void text_INT(const char *rule, const int64_t *value, z3d_string *out) {
    (void)rule;
    if (*value == Z3D_AUTO)
        z3d_string_append(out, "auto");
    else
        z3d_string_append(out, "%lld", (long long)*value);
}
static void text_FLOAT(const char *rule, const double *value, z3d_string *out) {
    (void)rule;
    z3d_string_append_number(out, *value);
}
static void text_FLOAT2(const char *rule, const z3d_config_FLOAT2 *value, z3d_string *out) {
    (void)rule;
    z3d_string_append_number(out, value->value[0]);
    z3d_string_append(out, ", ");
    z3d_string_append_number(out, value->value[1]);
}
static void text_BOOL(const char *rule, const bool *value, z3d_string *out) {
    (void)rule;
    z3d_string_append(out, "%s", *value ? "true" : "false");
}
static void text_ENUM(const char *rule, const int *value, z3d_string *out) {
    for (int i = 0; i < *value && strchr(rule, '|'); i++) rule = strchr(rule, '|') + 1;
    z3d_string_append(out, "%.*s", (int)strcspn(rule, "|"), rule);
}
static void text_STRING(const char *rule, const char *const *value, z3d_string *out) {
    (void)rule;
    z3d_string_append(out, "%s", *value ? *value : "");
}
/* Files may have moved; how many there are and their shares may not change. */
static void text_LIST(const char *rule, const z3d_data_list *value, z3d_string *out) {
    for (int i = 0; rule[0] && i < value->count; i++)
        z3d_string_append(out, "%s%s", i ? ", " : "", value->path[i]);
    if (rule[0]) z3d_string_append(out, "%s", value->count ? "" : "none");
    if (rule[0]) return;
    z3d_string_append(out, "%d file%s with weights", value->count, value->count == 1 ? "" : "s");
    for (int i = 0; i < value->count; i++) {
        z3d_string_append(out, " ");
        z3d_string_append_number(out, value->weight[i]);
    }
}

#define SCHEDULE_END "scheduler.params.total_num_steps"
#define WARMUP_STEPS "scheduler.params.warmup_num_steps"
#define WARMUP_RATIO "scheduler.params.warmup_ratio"

/* Those that decide what an adapter computes, and which layers have one. */
static bool is_scale(const char *path) {
    return says(path, "lora.r") || says(path, "lora.lora_alpha") || says(path, "lora.use_rslora");
}
static bool is_adapter(const char *path) {
    return is_scale(path) || says(path, "lora.target_modules");
}

/* Keys that had to stay and did not. */
typedef struct differences {
    const z3d_config *config; /* the run's */
    int64_t step;             /* the checkpoint's */
    z3d_string here, there;   /* of the key that is looked at */
    z3d_string lines;
    int count;
    bool sizes;    /* of the model: its weights are of no use here */
    bool adapters; /* the base's weights are of use, the adapters' are not */
    bool schedule; /* the schedule's end is among them */
    bool warmup;   /* the steps of warm-up are, which warmup_ratio made of the schedule's */
} differences;

static bool is_size(const char *path) {
    static const char *const sizes[] = {"model.type",
                                        "model.num_layers",
                                        "model.hidden_size",
                                        "model.num_attention_heads",
                                        "model.head_dim",
                                        "model.seq_length",
                                        "model.num_key_value_heads",
                                        "model.intermediate_size",
                                        "model.vocab_size"};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (says(path, sizes[i])) return true;
    return false;
}

static void compare_texts(differences *d, const char *path) {
    const char *a = d->here.text ? d->here.text : "", *b = d->there.text ? d->there.text : "";
    if (says(a, b)) return;
    (void)z3d_config_error(d->config, path, "%s here, %s in the checkpoint of step %lld", a, b,
                           (long long)d->step);
    z3d_string_append(&d->lines, "%s%s", d->count ? ";\n" : "", z3d_error_message());
    d->count++;
    d->sizes = d->sizes || is_size(path);
    d->adapters = d->adapters || is_adapter(path);
    d->schedule = d->schedule || says(path, SCHEDULE_END);
    d->warmup =
        d->warmup || (says(path, WARMUP_STEPS) && z3d_config_is_set(d->config, WARMUP_RATIO));
}

static void find_differences(const z3d_config *here, const z3d_config *there, bool any_schedule,
                             differences *d) {
#define X(field, path, type, bits, standard, rule, help)                                           \
    if ((must_keep(here, path) && !(any_schedule && says(path, SCHEDULE_END))) ||                  \
        says(path, "data.train")) {                                                                \
        z3d_string_clear(&d->here);                                                                \
        z3d_string_clear(&d->there);                                                               \
        text_##type(rule, &here->field, &d->here);                                                 \
        text_##type(rule, &there->field, &d->there);                                               \
        compare_texts(d, path);                                                                    \
    }
    Z3D_CONFIG_KEYS(X)
#undef X
}

z3d_status z3d_trainer_read_saved(const char *text, z3d_config **out) {
    Z3D_TRY(z3d_config_create(out));
    return z3d_config_read_text(*out, text, strlen(text), "the checkpoint's config");
}

/* Where a run with other adapters can begin; "": it began with random weights. */
static const char *base_of(const z3d_checkpoint_info *info, const z3d_config *there) {
    return info->base.folder ? info->base.folder : there->checkpoint_init_from;
}

/* The first key of an adapter's scale that differs. */
static z3d_status compare_scales(const z3d_config *here, const z3d_config *there,
                                 const char *base) {
    z3d_string a = {0}, b = {0};
    z3d_status status = Z3D_OK;
#define X(field, path, type, bits, standard, rule, help)                                           \
    if (status == Z3D_OK && is_scale(path)) {                                                      \
        z3d_string_clear(&a);                                                                      \
        z3d_string_clear(&b);                                                                      \
        text_##type(rule, &here->field, &a);                                                       \
        text_##type(rule, &there->field, &b);                                                      \
        if (a.text && b.text && !says(a.text, b.text))                                             \
            status = z3d_config_error(                                                             \
                here, path, "%s here, %s in the checkpoint; write %s%s%s", a.text, b.text, b.text, \
                *base ? ", or begin with its base: checkpoint.init_from=" : "", base);             \
    }
    Z3D_CONFIG_KEYS(X)
#undef X
    z3d_string_free(&a);
    z3d_string_free(&b);
    return status;
}

z3d_status z3d_trainer_compare_adapters(const z3d_trainer *trainer,
                                        const z3d_checkpoint_info *info) {
    const z3d_config *here = trainer->config;
    z3d_config *there;
    z3d_status status = z3d_trainer_read_saved(info->config, &there);
    const bool both = status == Z3D_OK && here->lora_r > 0 && there->lora_r > 0;
    if (both) status = compare_scales(here, there, base_of(info, there));
    z3d_config_destroy(there);
    return status;
}

void z3d_trainer_name_sizes(const z3d_config *here, const z3d_config *there, z3d_string *out) {
    z3d_string a = {0}, b = {0};
#define X(field, path, type, bits, standard, rule, help)                                           \
    if (is_size(path)) {                                                                           \
        z3d_string_clear(&a);                                                                      \
        z3d_string_clear(&b);                                                                      \
        text_##type(rule, &here->field, &a);                                                       \
        text_##type(rule, &there->field, &b);                                                      \
        if (a.text && b.text && !says(a.text, b.text))                                             \
            z3d_string_append(out, "%s%s=%s", out->length ? " " : "", path, b.text);               \
    }
    Z3D_CONFIG_KEYS(X)
#undef X
    z3d_string_free(&a);
    z3d_string_free(&b);
}

static void append_way(differences *d, const char *base) {
    z3d_string_append(&d->lines, "to change %s, start a new run ", d->count == 1 ? "it" : "them");
    if (d->sizes || (d->adapters && !*base))
        z3d_string_append(&d->lines, "in another run.dir");
    else if (d->adapters)
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
    /* --extend moves the schedule's end, and where no step is left it does not matter. */
    bool any_schedule =
        trainer->options->extend || info->engine.step >= trainer->config->training_steps;
    z3d_status status = z3d_trainer_read_saved(info->config, &there);
    if (status == Z3D_OK) there->data_types_grad_accum_dtype = z3d_trainer_saved_accum(there);
    if (status == Z3D_OK) find_differences(trainer->config, there, any_schedule, &d);
    if (d.count == 1 && d.schedule)
        status = z3d_trainer_refuse_extension(trainer, there);
    else if (d.count > 0)
        status = refuse(&d, there, base_of(info, there));
    z3d_string_free(&d.here);
    z3d_string_free(&d.there);
    z3d_string_free(&d.lines);
    z3d_config_destroy(there);
    return status;
}
