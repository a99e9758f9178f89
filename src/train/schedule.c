/* Learning-rate schedules. */
#include "src/train/schedule.h"

#include <math.h>

float z3d_learning_rate(const z3d_config *config, int64_t step) {
    const double pi = 3.14159265358979323846;
    double peak = config->optimizer_params_lr, least = config->scheduler_params_min_lr;
    int64_t warmup = config->scheduler_params_warmup_num_steps;
    if (warmup < 1) warmup = 1;
    int64_t total = config->scheduler_params_total_num_steps;
    if (total == Z3D_AUTO) total = config->training_steps;
    if (config->scheduler_type == Z3D_LR_CONSTANT) return (float)peak;
    if (step < warmup) return (float)(peak * ((double)step / (double)warmup));
    if (config->scheduler_type == Z3D_LR_WARMUP) return (float)peak;
    if (step > total) return (float)least;
    double progress = (double)(step - warmup) / (double)(total - warmup + 1);
    double rest = config->scheduler_type == Z3D_LR_WARMUP_COSINE ? 0.5 * (1.0 + cos(pi * progress))
                                                                 : 1.0 - progress;
    return (float)(least + (peak - least) * rest);
}
