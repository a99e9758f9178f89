/* Compares keys whose values may decide bits, by their class (z3d_config_bits). */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "src/plan/prove/internal.h"

#define TWO_METHODS "two methods, which may round alike"

/* The rule of each class: the consequence of two different values. */
static const struct {
    enum { NEVER, ON_GPUS, ALWAYS } compared; /* by value */
    bool everywhere;                          /* every sum differs */
    const char *why_open;                     /* NULL: "may change bits, or none" */
} classes[] = {
    [Z3D_BITS_NONE] = {NEVER, false, NULL},
    [Z3D_BITS_SUM] = {NEVER, false, NULL},
    [Z3D_BITS_DECIDE] = {ALWAYS, false, NULL},
    [Z3D_BITS_DECIDE_SUMS] = {ALWAYS, true, NULL},
    [Z3D_BITS_ROUND_SUMS] = {ALWAYS, true, "its two kinds of reductions may round alike"},
    [Z3D_BITS_BOUND] = {ALWAYS, false, "decides bits only in steps that reach it"},
    [Z3D_BITS_FILES] = {ALWAYS, false, "prove does not read files"},
    [Z3D_BITS_METHOD] = {ALWAYS, false, TWO_METHODS},
    [Z3D_BITS_METHOD_ON_GPUS] = {ON_GPUS, false, TWO_METHODS},
    [Z3D_BITS_DECIDE_ON_GPUS] = {ON_GPUS, false, NULL},
    [Z3D_BITS_UPDATE] = {ALWAYS, false, NULL},
    [Z3D_BITS_WEIGHTS] = {ALWAYS, false, NULL},
    [Z3D_BITS_WEIGHTS_SUMS] = {ALWAYS, true, NULL},
    [Z3D_BITS_DIFFER] = {ALWAYS, false, NULL},
    [Z3D_BITS_DIFFER_SUMS] = {ALWAYS, true, NULL},
};

static bool is_cuda(const z3d_comparison *c) {
    return c->config[0]->training_device == Z3D_TRAINING_CUDA;
}

static const char *gemm_key(const z3d_comparison *c) {
    static const char *const key[] = {[Z3D_F32] = "training.gemm.fp32",
                                      [Z3D_BF16] = "training.gemm.bf16",
                                      [Z3D_F16] = "training.gemm.fp16"};
    return key[c->plan[0]->program_config.dtype];
}

/* Whether a key's values do not matter: a product method of another type; checkpoint.resume without
 * a path; the end of a schedule, unless both rates decay (if only one does, scheduler.type
 * differs). */
static bool is_idle(const z3d_comparison *c, const char *path, z3d_config_bits bits) {
    if (bits == Z3D_BITS_METHOD)
        return !is_cuda(c) &&
               (c->plan[0]->program_config.dtype != c->plan[1]->program_config.dtype ||
                strcmp(path, gemm_key(c)) != 0);
    if (strcmp(path, "checkpoint.resume") == 0)
        return !z3d_config_resumes_path(c->config[0]) && !z3d_config_resumes_path(c->config[1]);
    return strcmp(path, "scheduler.params.total_num_steps") == 0 &&
           !(z3d_config_decays(c->config[0]) && z3d_config_decays(c->config[1]));
}

static bool is_compared(const z3d_comparison *c, const char *path, z3d_config_bits bits) {
    if (classes[bits].compared == NEVER || is_idle(c, path, bits)) return false;
    return classes[bits].compared == ALWAYS || is_cuda(c);
}

/* Rounding may hide smaller differences. */
static bool is_far(double x, double y) {
    return fabs(x - y) > 0.01 * fmax(fabs(x), fabs(y));
}

/* Whether both schedules have the same form, and at least one step after the warm-up. Unknown in
 * fp16, which may skip steps. */
static bool rates_are_alike(const z3d_config *a, const z3d_config *b) {
    const int64_t warmup = a->scheduler_params_warmup_num_steps, first = warmup > 1 ? warmup : 1;
    if (a->scheduler_params_num_decay_steps != b->scheduler_params_num_decay_steps ||
        a->scheduler_params_num_cycles != b->scheduler_params_num_cycles ||
        a->scheduler_params_decay_type != b->scheduler_params_decay_type ||
        a->scheduler_params_power != b->scheduler_params_power)
        return false;
    return !a->fp16_enabled && !b->fp16_enabled && a->scheduler_type == b->scheduler_type &&
           warmup == b->scheduler_params_warmup_num_steps &&
           a->scheduler_params_min_lr == b->scheduler_params_min_lr && a->training_steps > first &&
           b->training_steps > first &&
           (!z3d_config_decays(a) ||
            (a->scheduler_params_total_num_steps > first &&
             a->scheduler_params_total_num_steps == b->scheduler_params_total_num_steps));
}

static bool is_adam(const z3d_config *config) {
    return config->optimizer_type == Z3D_OPTIMIZER_adamw ||
           config->optimizer_type == Z3D_OPTIMIZER_adam;
}

/* Whether different values may give equal updates: without weight decay Adam is AdamW; other betas
 * may not change the signs of Lion's updates; parameter groups may have their own rates. */
static bool may_be_alike(const z3d_config *a, const z3d_config *b, const char *path) {
    if (a->optimizer_param_groups.count > 0 || b->optimizer_param_groups.count > 0) return true;
    return strcmp(path, "optimizer.type") == 0 ? is_adam(a) && is_adam(b)
                                               : strcmp(path, "optimizer.params.betas") == 0 &&
                                                     a->optimizer_type == Z3D_OPTIMIZER_lion;
}

static bool updates_differ(const z3d_comparison *c, const char *path) {
    const z3d_config *a = c->config[0], *b = c->config[1];
    const double x = a->optimizer_params_lr, y = b->optimizer_params_lr, least = 1e-6;
    const double *beta = a->optimizer_params_betas.value, *other = b->optimizer_params_betas.value;
    if (!rates_are_alike(a, b) || may_be_alike(a, b, path)) return false;
    if (strcmp(path, "optimizer.params.lr") == 0) return fmax(x, y) >= least && is_far(x, y);
    if (strcmp(path, "optimizer.params.betas") == 0 && !is_far(beta[0], other[0]) &&
        !is_far(beta[1], other[1]))
        return false;
    return fmin(x, y) >= least;
}

static bool weights_differ(const z3d_comparison *c, const char *path) {
    for (int side = 0; side < 2; side++) {
        const z3d_config *config = c->config[side];
        if (config->checkpoint_init_from[0] || z3d_config_resumes_path(config)) return false;
    }
    return strcmp(path, "training.seed") == 0 ||
           is_far(c->config[0]->model_init_method_std, c->config[1]->model_init_method_std);
}

/* Whether these two values cannot give equal bits. */
static bool surely_differ(const z3d_comparison *c, const z3d_config_meaning *key, const char *a,
                          const char *b) {
    switch (key->bits) {
    case Z3D_BITS_UPDATE:
        return updates_differ(c, key->path);
    case Z3D_BITS_WEIGHTS:
    case Z3D_BITS_WEIGHTS_SUMS:
        return weights_differ(c, key->path);
    case Z3D_BITS_DIFFER:
    case Z3D_BITS_DIFFER_SUMS:
        return strcmp(a, "auto") != 0 && strcmp(b, "auto") != 0;
    default:
        return false;
    }
}

static void append(z3d_comparison *c, z3d_string *out, const char *what, const char *why,
                   const char *a, const char *b) {
    z3d_string_append(out, "  %s%s%s\n    A: %s\n    B: %s\n", what, why[0] ? ": " : "", why, a, b);
    c->steps = true;
}

static const char *why_open(z3d_config_bits bits, const char *a, const char *b) {
    if (classes[bits].why_open) return classes[bits].why_open;
    if (strcmp(a, "auto") == 0 || strcmp(b, "auto") == 0) return "auto may be the same value";
    return "may change bits, or none";
}

static void compare_values(z3d_comparison *c, const z3d_config_meaning *key, const char *a,
                           const char *b) {
    if (strcmp(a, b) == 0) return;
    if (surely_differ(c, key, a, b))
        append(c, &c->differences, key->path, "", a, b);
    else
        append(c, &c->unproved, key->path, why_open(key->bits, a, b), a, b);
    c->apart = c->apart || classes[key->bits].everywhere;
}

/* A key's values, as text. */
typedef struct values {
    z3d_string a, b;
    bool failed;
} values;

static values read_values(const z3d_comparison *c, const char *path) {
    values out = {0};
    z3d_config_value(c->config[0], path, &out.a);
    z3d_config_value(c->config[1], path, &out.b);
    out.failed = out.a.failed || out.b.failed;
    return out;
}

static void free_values(values *of) {
    z3d_string_free(&of->a);
    z3d_string_free(&of->b);
}

static void compare_key(z3d_comparison *c, const z3d_config_meaning *key) {
    if (!is_compared(c, key->path, key->bits)) return;
    values v = read_values(c, key->path);
    if (v.failed)
        c->differences.failed = true;
    else
        compare_values(c, key, v.a.text, v.b.text);
    free_values(&v);
}

/* Compares numbers of tiles, not values of model.tiling: auto may mean the same number. */
static void compare_tiles(z3d_comparison *c) {
    int tiles[2];
    char text[2][16];
    for (int side = 0; side < 2; side++) {
        tiles[side] = z3d_model_part_units(c->plan[side]->model);
        snprintf(text[side], sizeof text[side], "%d", tiles[side] > 1 ? tiles[side] - 1 : 1);
    }
    if (tiles[0] == tiles[1]) return;
    append(c, &c->differences, "model.tiling", "", text[0], text[1]);
    c->apart = true;
}

static void leave_open(z3d_comparison *c, bool open, const char *line) {
    if (!open) return;
    z3d_string_append(&c->unproved, "  %s\n", line);
    c->steps = true;
}

static bool is_other(const z3d_comparison *c, const char *path) {
    values v = read_values(c, path);
    const bool other = v.failed || strcmp(v.a.text, v.b.text) != 0;
    free_values(&v);
    return other;
}

/* Whether both runs have the same number of ranks and the same values of all keys that matter. Then
 * they make the same choices by memory and sizes. */
static bool are_alike(const z3d_comparison *c) {
    bool alike = z3d_mesh_size(&c->plan[0]->mesh, Z3D_AXES_WORLD) ==
                 z3d_mesh_size(&c->plan[1]->mesh, Z3D_AXES_WORLD);
    for (int i = 0; i < Z3D_CONFIG_KEY_COUNT; i++)
        alike = alike && (z3d_config_meanings[i].bits == Z3D_BITS_NONE ||
                          !is_other(c, z3d_config_meanings[i].path));
    return alike;
}

/* On GPUs a 16-bit product computes gelu before it rounds its result; a recomputation computes it
 * from the rounded result. */
static void compare_activation(z3d_comparison *c) {
    static const char key[] = "activation_checkpointing.recompute_activation";
    const z3d_dtype dtype = c->plan[0]->program_config.dtype;
    if (!is_cuda(c) || dtype == Z3D_F32 || dtype != c->plan[1]->program_config.dtype) return;
    values v = read_values(c, key);
    if (v.failed)
        c->unproved.failed = true;
    else if (strcmp(v.a.text, "auto") == 0 || strcmp(v.b.text, "auto") == 0)
        leave_open(c, !are_alike(c),
                   "activation_checkpointing.recompute_activation is auto: a run decides by its "
                   "ranks' memory; write true in both, or the value in the run's config.yaml");
    else if (strcmp(v.a.text, v.b.text) != 0)
        append(c, &c->unproved, key, "kept values may be rounded differently from recomputed ones",
               v.a.text, v.b.text);
    free_values(&v);
}

/* A GPU and its host add in different orders; the groups of each depend on pipeline stages. */
static void compare_hosts(z3d_comparison *c) {
    const z3d_config *config = c->config[0];
    const double ratio = config->zero_optimization_offload_optimizer_ratio;
    if (!is_cuda(c) || ratio == 1 ||
        config->zero_optimization_offload_optimizer_device == Z3D_OFFLOAD_DEVICE_NONE)
        return;
    leave_open(c, !are_alike(c),
               "zero_optimization.offload_optimizer.ratio: the GPU steps some groups; which ones "
               "depends on pipeline stages and states; write 1 in both");
}

/* Whether a side chooses its method of products by timing at the start. */
static bool is_measured(const z3d_comparison *c, int side) {
    z3d_string value = {0};
    z3d_config_value(c->config[side], gemm_key(c), &value);
    const bool measured = value.failed || strcmp(value.text, "measured") == 0;
    z3d_string_free(&value);
    return measured;
}

/* Choices that each run makes by measuring. */
static void find_choices(z3d_comparison *c) {
    bool speeds = false, any_order = false, timed = false, measured = false;
    for (int side = 0; side < 2; side++) {
        const z3d_config *config = c->config[side];
        int unused;
        bool alone = z3d_mesh_size(&c->plan[side]->mesh, Z3D_AXES_WORLD) == 1;
        speeds = speeds || (!alone && z3d_config_device_speeds(config, NULL, 0, &unused) ==
                                          Z3D_SPEEDS_MEASURED);
        any_order = any_order || !config->training_deterministic;
        timed = timed || z3d_config_cuda_gemm(config) == Z3D_CUDA_GEMM_TIMED;
        measured = measured || is_measured(c, side);
    }
    leave_open(c, speeds,
               "parallel.device_speeds is measured: a run measures the shares of its ranks; write "
               "a list in both");
    leave_open(c, any_order && is_cuda(c),
               "training.deterministic is false: cuDNN adds in any order; write true in both");
    leave_open(c, timed && is_cuda(c),
               "training.gemm.cuda is timed: a run chooses the fastest products; write heuristic "
               "in both, or the value in the run's config.yaml");
    leave_open(c, measured && !is_cuda(c),
               "training.gemm is measured: a run chooses the fastest method; write auto in both, "
               "or the value in the run's config.yaml");
}

/* NCCL chooses the order of its sums by sizes and ranks. */
static void compare_nccl(z3d_comparison *c) {
    char text[2][160];
    for (int side = 0; side < 2; side++)
        snprintf(text[side], sizeof text[side], "%s, pieces of %lld elements",
                 z3d_mesh_name(&c->plan[side]->mesh).text,
                 (long long)c->config[side]->zero_optimization_reduce_bucket_size);
    if (is_cuda(c) && c->config[0]->training_collectives != Z3D_COLLECTIVES_HOST &&
        strcmp(text[0], text[1]) != 0)
        append(c, &c->unproved, "the order of NCCL's sums", "it depends on ranks and sizes",
               text[0], text[1]);
}

void z3d_prove_keys(z3d_comparison *c) {
    for (int i = 0; i < Z3D_CONFIG_KEY_COUNT; i++) compare_key(c, &z3d_config_meanings[i]);
    compare_tiles(c);
    if (!c->apart) compare_nccl(c);
    compare_hosts(c);
    compare_activation(c);
    find_choices(c);
}
