/* Computes the values that depend on the world size: the data-parallel size, the three batch keys,
 * and every `auto` that needs no measurement. Then returns all errors of a configuration. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "src/base/config/table.h"

int64_t z3d_config_model_ranks(const z3d_config *config) {
    int64_t ranks = 1;
#define X(AXIS, field, path)                                                                       \
    if (!z3d_mul_i64(ranks, config->field, &ranks)) return INT64_MAX;
    Z3D_CONFIG_AXES(X)
#undef X
    return ranks;
}

static bool sizes_sound(const config_checker *k) {
#define X(AXIS, field, path)                                                                       \
    if (!config_sound(k, path, NULL)) return false;
    Z3D_CONFIG_AXES(X)
#undef X
    return true;
}

const char *config_multiples(int64_t value, int64_t unit, char out[CONFIG_MULTIPLES]) {
    const int64_t below = value / unit * unit;
    char lower[28] = "";
    if (below > 0) snprintf(lower, sizeof lower, "%lld or ", (long long)below);
    snprintf(out, CONFIG_MULTIPLES, "%s%lld", lower, (long long)(below + unit));
    return out;
}

/* Refuses a world size that the ranks of one model do not divide. The error names the pipeline
 * size, or the tensor size if there is one pipeline stage. */
static void refuse_world(config_checker *k, int world_size, int64_t model) {
    static const char pipeline[] = "parallel.pipeline_model_parallel_size",
                      tensor[] = "parallel.tensor_model_parallel_size";
    const z3d_config *c = k->c;
    const int64_t stages = c->parallel_pipeline_model_parallel_size,
                  parts = c->parallel_tensor_model_parallel_size;
    const int64_t start = world_size < model ? model : world_size / model * model;
    char right[CONFIG_MULTIPLES], times[96] = "";
    if (stages > 1 && parts > 1)
        snprintf(times, sizeof times, " x %s %lld", tensor, (long long)parts);
    config_complain(k, stages > 1 ? pipeline : tensor,
                    "%lld%s needs a multiple of %lld ranks, but the run has %d; start %s ranks "
                    "(zero3d-launch -n %lld ...)",
                    (long long)(stages > 1 ? stages : parts), times, (long long)model, world_size,
                    config_multiples(world_size, model, right), (long long)start);
}

bool z3d_config_decays(const z3d_config *config) {
    return z3d_lr_schedule_reads((z3d_lr_schedule)config->scheduler_type, "total_num_steps");
}

int64_t z3d_config_warmup_steps(const z3d_config *config) {
    int64_t total = config->scheduler_params_total_num_steps;
    const double ratio = config->scheduler_params_warmup_ratio;
    if (total == Z3D_AUTO) total = config->training_steps;
    return ratio > 0 ? (int64_t)ceil((double)total * ratio)
                     : config->scheduler_params_warmup_num_steps;
}

z3d_accum z3d_config_grad_accum(const z3d_config *config) {
    const z3d_accum key = (z3d_accum)config->data_types_grad_accum_dtype;
    if (key != Z3D_ACCUM_AUTO) return key;
    if (config->fp16_enabled) return Z3D_ACCUM_FP16;
    if (!config->bf16_enabled) return Z3D_ACCUM_AUTO;
    return config->gradient_accumulation_steps > 1 ? Z3D_ACCUM_FP32 : Z3D_ACCUM_BF16;
}

bool z3d_config_resumes_path(const z3d_config *config) {
    return strcmp(config->checkpoint_resume, "auto") != 0 &&
           strcmp(config->checkpoint_resume, "never") != 0;
}

/* The data-parallel size; 0: not known, because of an error. */
static int64_t resolve_world(config_checker *k, int world_size) {
    z3d_config *c = k->c;
    int64_t model = z3d_config_model_ranks(c);
    if (world_size < 1) {
        (void)Z3D_ERROR(Z3D_ERR_CONFIG, "a world of %d ranks; expected 1 or more", world_size);
        config_errors_add(k->errors);
        return 0;
    }
    if (config_sound(k, "parallel.world_size", NULL) && c->parallel_world_size != Z3D_AUTO &&
        c->parallel_world_size != world_size && !c->parallel_elastic) {
        config_complain(k, "parallel.world_size",
                        "asks for %lld ranks, but the run was started with %d; start %lld, or "
                        "write auto",
                        (long long)c->parallel_world_size, world_size,
                        (long long)c->parallel_world_size);
        return 0;
    }
    if (!sizes_sound(k)) return 0;
    if (world_size % model != 0) {
        refuse_world(k, world_size, model);
        return 0;
    }
    c->parallel_world_size = world_size;
    return world_size / model;
}

/* Refuses a batch that is no multiple of factor x data samples. what: the name of the factor; NULL:
 * it is 1. */
static bool refuse_batch(config_checker *k, int64_t data, const char *what, int64_t factor) {
    int64_t unit = data * factor, batch = k->c->train_batch_size, smaller = factor;
    char right[CONFIG_MULTIPLES], other[64] = "", times[64] = "";
    while (smaller > 1 && batch % (data * smaller) != 0) smaller--;
    if (what && batch % (data * smaller) == 0)
        snprintf(other, sizeof other, ", or %s %s of %lld", what[0] == 'a' ? "an" : "a", what,
                 (long long)smaller);
    if (what) snprintf(times, sizeof times, "%s %lld x ", what, (long long)factor);
    config_complain(k, "train_batch_size",
                    "%lld is %s %lld samples (%s%lld data rank%s); write %s%s", (long long)batch,
                    batch < unit ? "smaller than one step's" : "not a multiple of", (long long)unit,
                    times, (long long)data, z3d_plural(data), config_multiples(batch, unit, right),
                    other);
    return false;
}

/* The batch is micro-batch x accumulation x data ranks. */
static bool resolve_batch_size(config_checker *k, int64_t data) {
    z3d_config *c = k->c;
    int64_t micro = c->train_micro_batch_size_per_gpu, times = c->gradient_accumulation_steps;
    if (micro > 1000000 || times > 1000000 || micro * times > 1000000000 / data) {
        config_complain(
            k, micro > times ? "train_micro_batch_size_per_gpu" : "gradient_accumulation_steps",
            "micro-batch %lld x accumulation %lld x data-parallel size %lld is too much; at most "
            "10^6 for each of the first two, and 10^9 samples a step",
            (long long)micro, (long long)times, (long long)data);
        return false;
    }
    int64_t batch = micro * times * data;
    if (c->train_batch_size == Z3D_AUTO) c->train_batch_size = batch;
    if (c->train_batch_size == batch) return true;
    config_complain(k, "train_batch_size",
                    "%lld is not train_micro_batch_size_per_gpu %lld x "
                    "gradient_accumulation_steps %lld x data-parallel size %lld = %lld; leave one "
                    "of the three out",
                    (long long)c->train_batch_size, (long long)micro, (long long)times,
                    (long long)data, (long long)batch);
    return false;
}

static bool refuse_ranks(config_checker *k, int64_t batch, int64_t data) {
    int64_t fewer = data;
    while (batch % fewer != 0) fewer--;
    config_complain(k, "train_batch_size",
                    "%lld is not a multiple of %lld samples (%lld data ranks), and "
                    "parallel.elastic=true keeps this batch; start %lld ranks",
                    (long long)batch, (long long)data, (long long)data,
                    (long long)(fewer * z3d_config_model_ranks(k->c)));
    return false;
}

/* Keeps the batch; chooses the largest micro-batches that divide it and fit the schedule. False:
 * refused. */
static bool fit_elastic(config_checker *k, int64_t data) {
    z3d_config *c = k->c;
    const int64_t batch = c->train_batch_size, most = c->train_micro_batch_size_per_gpu;
    if (batch == Z3D_AUTO || most == Z3D_AUTO) {
        config_complain(k, "parallel.elastic",
                        "true needs train_batch_size, which stays, and "
                        "train_micro_batch_size_per_gpu, the most samples for a rank at a time");
        return false;
    }
    if (batch % data != 0) return refuse_ranks(k, batch, data);
    const int64_t share = batch / data;
    const int64_t round = z3d_schedule_round(z3d_config_pipeline_schedule(c),
                                             c->parallel_pipeline_model_parallel_size);
    int64_t micro = most < share ? most : share;
    while (micro > 1 && (share % micro != 0 || share / micro % round != 0)) micro--;
    c->train_micro_batch_size_per_gpu = micro;
    c->gradient_accumulation_steps = share / micro;
    return true;
}

/* False: refused. */
static bool resolve_batches(config_checker *k, int64_t data) {
    z3d_config *c = k->c;
    if (c->parallel_elastic && !fit_elastic(k, data)) return false;
    bool batch = c->train_batch_size != Z3D_AUTO;
    bool micro = c->train_micro_batch_size_per_gpu != Z3D_AUTO;
    bool times = c->gradient_accumulation_steps != Z3D_AUTO;
    if (!times && !(batch && micro)) c->gradient_accumulation_steps = 1;
    if (!micro && !batch) c->train_micro_batch_size_per_gpu = 1;
    if (batch && !micro) {
        int64_t unit = data * c->gradient_accumulation_steps;
        if (c->train_batch_size % unit != 0) {
            return refuse_batch(k, data, times ? "accumulation" : NULL, unit / data);
        }
        c->train_micro_batch_size_per_gpu = c->train_batch_size / unit;
    } else if (batch && !times) {
        int64_t unit = data * c->train_micro_batch_size_per_gpu;
        if (c->train_batch_size % unit != 0) {
            return refuse_batch(k, data, "micro-batch", unit / data);
        }
        c->gradient_accumulation_steps = c->train_batch_size / unit;
    }
    return resolve_batch_size(k, data);
}

/* Refuses sizes that overflow int64_t: a micro-batch's largest tensors, the tokens of a run. */
static bool check_sizes(config_checker *k) {
    const z3d_config *c = k->c;
    int64_t tokens, bytes, run, width = k->rules ? k->rules->width(c) : 0;
    bool fits = z3d_mul_i64(c->train_micro_batch_size_per_gpu, c->model_seq_length, &tokens) &&
                z3d_mul_i64(tokens, width, &bytes) && z3d_mul_i64(bytes, 1024, &bytes);
    if (!fits) {
        config_complain(k, "train_micro_batch_size_per_gpu",
                        "%lld samples of %lld tokens at width %lld are too large a tensor for "
                        "64-bit sizes",
                        (long long)c->train_micro_batch_size_per_gpu,
                        (long long)c->model_seq_length, (long long)width);
        return false;
    }
    if (c->training_steps == Z3D_AUTO) return true;
    fits = z3d_mul_i64(c->training_steps, c->train_batch_size, &run) &&
           z3d_mul_i64(run, c->model_seq_length + 1, &run);
    if (fits) return true;
    config_complain(k, "training.steps",
                    "%lld steps of %lld samples of %lld tokens are beyond 64-bit integers",
                    (long long)c->training_steps, (long long)c->train_batch_size,
                    (long long)c->model_seq_length);
    return false;
}

/* checkpoint.interval auto. A shorter run saves at its end. */
enum { AUTO_SAVE_STEPS = 1000 };

static void resolve_into(config_checker *k, int world_size, int *data_parallel_size) {
    z3d_config *c = k->c;
    int64_t data = resolve_world(k, world_size);
    if (data == 0 || !config_sound(k, "train_batch_size", "train_micro_batch_size_per_gpu",
                                   "gradient_accumulation_steps", NULL))
        return;
    if (!config_check_partition(k, data) || !resolve_batches(k, data) ||
        !config_check_micro_batches(k, data) || !config_check_ranks_speeds(k, world_size) ||
        !config_resolve_epochs(k) || !check_sizes(k))
        return;
    config_check_wire(k);
    if (z3d_config_decays(c) && c->scheduler_params_total_num_steps == Z3D_AUTO) {
        c->scheduler_params_total_num_steps = c->training_steps; /* or still auto */
    }
    c->scheduler_params_warmup_num_steps = z3d_config_warmup_steps(c);
    c->scheduler_params_warmup_ratio = 0;
    if (c->zero_optimization_stage3_param_persistence_threshold == Z3D_AUTO)
        c->zero_optimization_stage3_param_persistence_threshold = 10 * c->model_hidden_size;
    if (c->checkpoint_interval == Z3D_AUTO) c->checkpoint_interval = AUTO_SAVE_STEPS;
    *data_parallel_size = (int)data;
}

/* ---- all errors ---- */

/* Returns the errors of reading, then of the checks (`check`) and of resolving (`data`). */
static z3d_status examine(z3d_config *config, const z3d_config_rules *rules, bool check,
                          bool trains, int world_size, int *data) {
    config_checker k;
    config_errors all = config->origin->errors;
    all.text = (z3d_string){0};
    if (all.total) z3d_string_append(&all.text, "%s", config->origin->errors.text.text);
    config_checker_begin(&k, config, rules, &all);
    k.ranks = world_size;
    k.trains = trains;
    if (!config->origin->cut) {
        if (check) config_check_into(&k);
        if (data) resolve_into(&k, world_size, data);
    }
    z3d_status status = config_errors_status(&all); /* logged after the notes */
    z3d_config_tell(config);
    z3d_string_free(&all.text);
    return status;
}

z3d_status z3d_config_check(z3d_config *config, const z3d_config_rules *rules) {
    return examine(config, rules, true, false, 0, NULL);
}

z3d_status z3d_config_check_training(z3d_config *config, const z3d_config_rules *rules) {
    return examine(config, rules, true, true, 0, NULL);
}

z3d_status z3d_config_resolve(z3d_config *config, const z3d_config_rules *rules, int world_size,
                              int *data_parallel_size) {
    return examine(config, rules, false, false, world_size, data_parallel_size);
}

z3d_status z3d_config_settle(z3d_config *config, const z3d_config_rules *rules, int world_size,
                             int *data_parallel_size) {
    return examine(config, rules, true, false, world_size, data_parallel_size);
}
