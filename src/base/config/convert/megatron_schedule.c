/* Megatron-LM's steps and learning rates, which count samples or iterations. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "src/base/config/convert/megatron.h"

/* What only WSD reads. */
#define OF_STABLE "lr-wsd-decay-style lr-wsd-decay-iters lr-wsd-decay-samples"

/* --iterations, or --samples / global batch; false: not given, or not known. */
static bool steps_of(megatron_converter *m, const char *samples, const char *iterations,
                     double *out) {
    double count, batch;
    const bool ramps = megatron_has(m, "rampup-batch-size");
    if ((megatron_counts(m, iterations) || !megatron_counts(m, samples)) &&
        megatron_number(m, iterations, out))
        return true;
    if (!megatron_number(m, samples, &count)) return false;
    *out = 0;
    if (count == 0) return true;
    if (ramps || !megatron_number(m, "global-batch-size", &batch) || batch < 1) {
        char why[80];
        snprintf(why, sizeof why, "write --%s: %s", iterations,
                 ramps ? "the batch size is not one number" : "--global-batch-size is not given");
        megatron_row(m, CONFIG_REFUSED, samples, why);
        return false;
    }
    *out = floor(count / batch);
    return true;
}

/* Adds a row for an argument that repeats or contradicts `taken`. */
static void report_second(megatron_converter *m, const char *name, const char *taken, bool agrees) {
    char what[120];
    if (!megatron_has(m, name)) return;
    if (!megatron_counts(m, name))
        snprintf(what, sizeof what, "0, so --%s counts", taken);
    else if (agrees)
        snprintf(what, sizeof what, "the same as --%s", taken);
    else
        snprintf(what, sizeof what, "--%s %.40s says otherwise; leave one of them out", taken,
                 megatron_value(&m->text, taken));
    megatron_row(m, agrees || !megatron_counts(m, name) ? CONFIG_TAKEN : CONFIG_REFUSED, name,
                 what);
}

static void take_steps(megatron_converter *m, const char *samples, const char *iterations,
                       const char *path) {
    double steps, count = 0, batch = 0;
    char text[32], flag[80];
    if (megatron_counts(m, iterations) || !megatron_counts(m, samples)) {
        bool known = megatron_number(m, samples, &count) &&
                     megatron_number(m, iterations, &steps) &&
                     megatron_number(m, "global-batch-size", &batch) && batch >= 1;
        if (megatron_take(m, iterations, path))
            report_second(m, samples, iterations, known && floor(count / batch) == steps);
        return;
    }
    report_second(m, iterations, samples, false);
    if (!steps_of(m, samples, iterations, &steps)) return;
    snprintf(text, sizeof text, "%.0f", steps);
    snprintf(flag, sizeof flag, "--%.70s", samples);
    config_take(&m->v, flag, path, text);
}

/* Takes --lr-warmup-fraction (of the decay's iterations), else --lr-warmup-iters; false: no
 * warm-up. */
static bool convert_warmup(megatron_converter *m) {
    static const char key[] = "scheduler.params.warmup_num_steps";
    static const char *const beside[] = {"lr-warmup-iters", "lr-warmup-samples"};
    double fraction, iterations = 0;
    char text[24];
    if (!megatron_has(m, "lr-warmup-fraction")) {
        bool warms =
            steps_of(m, "lr-warmup-samples", "lr-warmup-iters", &iterations) && iterations > 0;
        if (warms) take_steps(m, "lr-warmup-samples", "lr-warmup-iters", key);
        for (size_t i = 0; !warms && i < 2; i++)
            if (!megatron_counts(m, beside[i]))
                megatron_rows(m, CONFIG_TAKEN, beside[i], "no warm-up, same as zero3d");
        return warms;
    }
    for (size_t i = 0; i < 2; i++) report_second(m, beside[i], "lr-warmup-fraction", false);
    bool known = steps_of(m, "lr-decay-samples", "lr-decay-iters", &iterations) ||
                 steps_of(m, "train-samples", "train-iters", &iterations);
    if (!known || !megatron_number(m, "lr-warmup-fraction", &fraction)) {
        megatron_row(m, CONFIG_REFUSED, "lr-warmup-fraction", "write --lr-warmup-iters");
        return false;
    }
    snprintf(text, sizeof text, "%.0f", floor(fraction * iterations));
    config_take(&m->v, "--lr-warmup-fraction", key, text);
    return strcmp(text, "0") != 0;
}

/* Refuses all arguments of a schedule whose form is not known. */
static void report_open_schedule(megatron_converter *m) {
    megatron_rows(m, CONFIG_REFUSED,
                  "min-lr lr-warmup-iters lr-warmup-samples lr-decay-iters lr-decay-samples "
                  "lr-warmup-fraction " OF_STABLE,
                  "the schedule is not known; write scheduler.type and scheduler.params");
}

static const char wsd[] = "warmup_stable_decay";

/* The value of scheduler.type; NULL: not known. */
static const char *form_of(megatron_converter *m) {
    static const char *const forms[][2] = {{"linear", "WarmupDecayLR"},
                                           {"cosine", "WarmupCosineLR"},
                                           {"constant", "constant"},
                                           {"WSD", wsd}};
    static const char style[] = "lr-decay-style";
    const char *form = megatron_choice(m, style, forms, sizeof forms / sizeof *forms);
    if (form) return form;
    if (megatron_has(m, style))
        megatron_row(m, CONFIG_REFUSED, style, "write constant, linear, cosine or WSD");
    else if (!megatron_is_unknown(&m->text, style))
        config_take_default(&m->v, "scheduler.type", forms[0][1], megatron_default);
    return z3d_config_is_set(m->v.config, "scheduler.type") ? forms[0][1] : NULL;
}

/* The decay of Megatron-LM's WSD; we do not have its default form, exponential. */
static void convert_stable(megatron_converter *m) {
    static const char *const forms[][2] = {
        {"linear", "linear"}, {"cosine", "cosine"}, {"minus_sqrt", "1-sqrt"}};
    static const char flag[] = "lr-wsd-decay-style", path[] = "scheduler.params.decay_type";
    const char *form = megatron_choice(m, flag, forms, sizeof forms / sizeof *forms);
    if (form)
        config_take(&m->v, "--lr-wsd-decay-style", path, form);
    else
        megatron_row(m, CONFIG_REFUSED, flag,
                     "its default is exponential; write linear, cosine or minus_sqrt");
    take_steps(m, "lr-wsd-decay-samples", "lr-wsd-decay-iters", "scheduler.params.num_decay_steps");
}

void megatron_convert_schedule(megatron_converter *m) {
    config_conversion *v = &m->v;
    const char *form = form_of(m);
    take_steps(m, "train-samples", "train-iters", "training.steps");
    if (!form) return report_open_schedule(m);
    const bool warms = convert_warmup(m), constant = strcmp(form, "constant") == 0;
    const bool stable = strcmp(form, wsd) == 0;
    if (warms && (!stable || megatron_counts(m, "min-lr")))
        config_report_add(&v->report, CONFIG_DIFFERENT, "scheduler.params.warmup_num_steps",
                          stable ? "the first rate is min_lr; Megatron-LM's is 0"
                                 : "the first rate is peak / warmup_num_steps; Megatron-LM's is 0, "
                                   "and its peak is one step later");
    if (megatron_has(m, "lr-decay-style"))
        config_take(v, "--lr-decay-style", "scheduler.type", constant && warms ? "WarmupLR" : form);
    if (stable)
        convert_stable(m);
    else
        megatron_rows(m, CONFIG_NO_EFFECT, OF_STABLE, "--lr-decay-style is not WSD");
    if (constant)
        return megatron_rows(m, CONFIG_NO_EFFECT, "min-lr lr-decay-iters lr-decay-samples",
                             "a constant rate never decays");
    megatron_take(m, "min-lr", "scheduler.params.min_lr");
    take_steps(m, "lr-decay-samples", "lr-decay-iters", "scheduler.params.total_num_steps");
}
