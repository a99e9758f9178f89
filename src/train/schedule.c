/* Learning-rate schedules. */
#include "src/train/schedule.h"

#include <math.h>

static const double pi = 3.14159265358979323846;

/* The remaining part of a decay of which the part `over` is done; both from 0 to 1. */
static double left_of(const z3d_config *config, double over) {
    static const int forms[] = {[Z3D_DECAY_COSINE] = Z3D_LR_COSINE,
                                [Z3D_DECAY_LINEAR] = Z3D_LR_LINEAR,
                                [Z3D_DECAY_1_SQRT] = Z3D_LR_WARMUP_STABLE_DECAY};
    int form = config->scheduler_type;
    if (form == Z3D_LR_WARMUP_STABLE_DECAY) form = forms[config->scheduler_params_decay_type];
    switch (form) {
    case Z3D_LR_WARMUP_COSINE:
    case Z3D_LR_COSINE:
        return 0.5 * (1.0 + cos(pi * over));
    case Z3D_LR_COSINE_WITH_RESTARTS:
        return 0.5 *
               (1.0 + cos(pi * fmod((double)config->scheduler_params_num_cycles * over, 1.0)));
    case Z3D_LR_POLYNOMIAL:
        return pow(1.0 - over, config->scheduler_params_power);
    case Z3D_LR_WARMUP_STABLE_DECAY:
        return 1.0 - sqrt(over);
    default:
        return 1.0 - over;
    }
}

/* The step at which the decay of warmup_stable_decay begins. */
static int64_t stable_end(const z3d_config *config, int64_t warmup, int64_t total) {
    int64_t steps = config->scheduler_params_num_decay_steps;
    if (steps == Z3D_AUTO) steps = total / 10 + (total % 10 > 0);
    return total - steps > warmup ? total - steps : warmup;
}

/* transformers' schedules: the rate of the step after `done` steps. */
static double rate_after(const z3d_config *config, int64_t done, int64_t warmup, int64_t total) {
    const double peak = config->optimizer_params_lr, least = config->scheduler_params_min_lr;
    const double w = (double)warmup, scale = warmup > 0 ? w : 10000.0;
    const bool stable = config->scheduler_type == Z3D_LR_WARMUP_STABLE_DECAY;
    const double first = stable ? least : 0.0;
    if (done < warmup) return first + (peak - first) * ((double)done / w);
    if (config->scheduler_type == Z3D_LR_CONSTANT_WITH_WARMUP) return peak;
    if (config->scheduler_type == Z3D_LR_INVERSE_SQRT)
        return peak / sqrt(((double)done + scale - w) / scale);
    if (done >= total) return least;
    const int64_t start = stable ? stable_end(config, warmup, total) : warmup;
    if (done <= start) return peak;
    return least +
           (peak - least) * left_of(config, (double)(done - start) / (double)(total - start));
}

float z3d_learning_rate(const z3d_config *config, int64_t step) {
    const double peak = config->optimizer_params_lr, least = config->scheduler_params_min_lr;
    int64_t warmup = config->scheduler_params_warmup_num_steps;
    int64_t total = config->scheduler_params_total_num_steps;
    if (total == Z3D_AUTO) total = config->training_steps;
    if (config->scheduler_type == Z3D_LR_CONSTANT) return (float)peak;
    if (config->scheduler_type >= Z3D_LR_LINEAR)
        return (float)rate_after(config, step - 1, warmup, total);
    if (warmup < 1) warmup = 1;
    if (step < warmup) return (float)(peak * ((double)step / (double)warmup));
    if (config->scheduler_type == Z3D_LR_WARMUP) return (float)peak;
    if (step > total) return (float)least;
    const double over = (double)(step - warmup) / (double)(total - warmup + 1);
    return (float)(least + (peak - least) * left_of(config, over));
}
