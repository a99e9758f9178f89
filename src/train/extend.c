/* A resumed run with more steps, if the learning-rate schedule ends with the run: what `zero3d
 * train --extend` does, and the error without it. */
#include "src/train/trainer.h"

/* Steps beyond the schedule's end at learning rate 0 would change nothing. */
static bool learns_nothing(const z3d_config *config, int64_t end) {
    return config->training_steps > end && config->scheduler_params_min_lr == 0;
}

z3d_status z3d_trainer_refuse_extension(const z3d_trainer *trainer, const z3d_config *saved) {
    const z3d_config *config = trainer->config;
    long long end = (long long)saved->scheduler_params_total_num_steps;
    long long steps = (long long)config->training_steps;
    z3d_string way = {0};
    if (steps <= end)
        z3d_string_append(&way, "scheduler.params.total_num_steps=%lld keeps it", end);
    else if (learns_nothing(config, end))
        z3d_string_append(&way,
                          "its learning rate is 0 after step %lld; to train on with a schedule "
                          "that ends at step %lld, ",
                          end, steps);
    else
        z3d_string_append(&way, "to train on at the final learning rate (%g) after step %lld, ",
                          config->scheduler_params_min_lr, end);
    if (steps > end && trainer->options->command)
        z3d_string_append(&way, "run the same command with --extend: %s --extend",
                          trainer->options->command);
    else if (steps > end && learns_nothing(config, end))
        z3d_string_append(&way, "use zero3d train --extend");
    else if (steps > end)
        z3d_string_append(&way, "set it to %lld", end);
    z3d_status status = z3d_config_error(
        config, "scheduler.params.total_num_steps",
        "%lld here, %lld in the checkpoint: a resumed run must keep the end of its learning-rate "
        "schedule; %s",
        (long long)config->scheduler_params_total_num_steps, end, way.text ? way.text : "");
    z3d_string_free(&way);
    return status;
}

z3d_status z3d_trainer_extend(z3d_trainer *trainer, const z3d_config *saved) {
    z3d_config *config = trainer->config;
    int64_t *end = &config->scheduler_params_total_num_steps;
    long long steps = (long long)config->training_steps;
    if (!trainer->options->extend) return Z3D_OK;
    if (saved && z3d_config_decays(config) && saved->scheduler_params_total_num_steps == Z3D_AUTO)
        return Z3D_OK; /* an imported model, which no run can be resumed from */
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
