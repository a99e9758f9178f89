/* A resumed run with more steps than its learning-rate schedule: the effect of `zero3d train
 * --extend`, and the error without it. */
#include "src/train/trainer.h"

/* Steps beyond the schedule's end at learning rate 0 would change nothing. */
static bool learns_nothing(const z3d_config *config, int64_t end) {
    return config->training_steps > end && config->scheduler_params_min_lr == 0;
}

z3d_status z3d_trainer_refuse_extension(const z3d_trainer *trainer, const z3d_config *saved) {
    const z3d_config *config = trainer->config;
    const long long end = (long long)saved->scheduler_params_total_num_steps;
    const long long here = (long long)config->scheduler_params_total_num_steps;
    if (config->training_steps <= end)
        return Z3D_ERROR(Z3D_ERR_CONFIG,
                         "the checkpoint's learning-rate schedule ends at step %lld, this run's at "
                         "step %lld; scheduler.params.total_num_steps=%lld keeps it",
                         end, here, end);
    if (learns_nothing(config, end))
        return Z3D_ERROR(Z3D_ERR_CONFIG,
                         "add --extend to the command: the checkpoint's learning-rate schedule "
                         "ends at step %lld with the rate 0; --extend moves its end to step %lld",
                         end, (long long)config->training_steps);
    return Z3D_ERROR(Z3D_ERR_CONFIG,
                     "add --extend to the command: the checkpoint's learning-rate schedule ends at "
                     "step %lld; --extend trains on at its final rate, %g",
                     end, config->scheduler_params_min_lr);
}

z3d_status z3d_trainer_extend(z3d_trainer *trainer, const z3d_config *saved) {
    z3d_config *config = trainer->config;
    int64_t *end = &config->scheduler_params_total_num_steps;
    long long steps = (long long)config->training_steps;
    if (!trainer->options->extend) return Z3D_OK;
    if (saved && z3d_config_decays(config) && saved->scheduler_params_total_num_steps == Z3D_AUTO)
        return Z3D_OK; /* an imported model: no run can resume from it */
    if (!saved || !z3d_config_decays(config) || saved->scheduler_params_total_num_steps == *end) {
        z3d_log(Z3D_LOG_INFO, "--extend has no effect: %s",
                !saved ? "there is no checkpoint to resume from"
                : z3d_config_decays(config)
                    ? "the learning-rate schedule ends where the checkpoint's does"
                    : "the learning-rate schedule has no end");
        return Z3D_OK;
    }
    *end = saved->scheduler_params_total_num_steps;
    if (learns_nothing(config, *end)) {
        z3d_log(Z3D_LOG_INFO,
                "--extend: the learning-rate schedule ended at step %lld with learning rate 0; it "
                "now ends at step %lld",
                (long long)*end, steps);
        *end = steps;
        return Z3D_OK;
    }
    if (steps > *end)
        z3d_log(Z3D_LOG_INFO,
                "--extend: the learning-rate schedule still ends at step %lld; steps %lld to %lld "
                "train at its final learning rate, %g",
                (long long)*end, (long long)*end + 1, steps, config->scheduler_params_min_lr);
    else
        z3d_log(Z3D_LOG_INFO, "--extend: the learning-rate schedule still ends at step %lld",
                (long long)*end);
    return Z3D_OK;
}
