/* A resumed run with more steps, where the learning-rate schedule ends with the run: what
 * `zero3d train --extend` does, and what a resume without it is told. */
#include "src/train/trainer.h"

static bool decays(const z3d_config *config) {
    return config->scheduler_type == Z3D_SCHEDULE_WARMUP_DECAY ||
           config->scheduler_type == Z3D_SCHEDULE_WARMUP_COSINE;
}

/* Steps beyond the schedule's end at learning rate 0 would change nothing. */
static bool learns_nothing(const z3d_config *config, int64_t end) {
    return config->training_steps > end && config->scheduler_params_min_lr == 0;
}

/* The only way on is a new run with a schedule of its own. */
static void append_new_run(const z3d_trainer *trainer, z3d_string *out) {
    const z3d_config *config = trainer->config;
    if (!trainer->command) {
        z3d_string_append(out, "start a new run with checkpoint.init_from: %s",
                          trainer->checkpoint_dir);
        return;
    }
    z3d_string_append(out,
                      "start a new run from these weights: %s checkpoint.init_from=%s "
                      "run.dir=%s-extended",
                      trainer->command, trainer->checkpoint_dir, config->run_dir);
    if (config->checkpoint_dir && *config->checkpoint_dir)
        z3d_string_append(out, " checkpoint.dir=%s-extended", config->checkpoint_dir);
}

static z3d_status refuse_nothing(const z3d_trainer *trainer, int64_t end) {
    z3d_string way = {0};
    append_new_run(trainer, &way);
    z3d_status status = z3d_config_error(
        trainer->config, "training.steps",
        "%lld, but the checkpoint's learning-rate schedule ends at step %lld with learning rate 0 "
        "(scheduler.params.min_lr): the steps after it would change nothing; %s",
        (long long)trainer->config->training_steps, (long long)end, way.text ? way.text : "");
    z3d_string_free(&way);
    return status;
}

z3d_status z3d_trainer_refuse_extension(const z3d_trainer *trainer, const z3d_config *saved) {
    const z3d_config *config = trainer->config;
    int64_t end = saved->scheduler_params_total_num_steps;
    z3d_string way = {0};
    if (learns_nothing(config, end)) return refuse_nothing(trainer, end);
    if (trainer->command)
        z3d_string_append(&way, "run the same command with --extend: %s --extend",
                          trainer->command);
    else
        z3d_string_append(&way, "set it to %lld", (long long)end);
    z3d_status status = z3d_config_error(
        config, "scheduler.params.total_num_steps",
        "%lld here, %lld in the checkpoint: a resumed run must keep the end of its learning-rate "
        "schedule; to train on at the final learning rate (%g) after step %lld, %s",
        (long long)config->scheduler_params_total_num_steps, (long long)end,
        config->scheduler_params_min_lr, (long long)end, way.text ? way.text : "");
    z3d_string_free(&way);
    return status;
}

z3d_status z3d_trainer_extend(z3d_trainer *trainer, const z3d_config *saved) {
    z3d_config *config = trainer->config;
    int64_t *end = &config->scheduler_params_total_num_steps;
    long long steps = (long long)config->training_steps;
    if (!trainer->extend) return Z3D_OK;
    if (saved && saved->scheduler_params_total_num_steps == Z3D_AUTO)
        return Z3D_OK; /* an imported model, which no run can be resumed from */
    if (!saved || !decays(config) || saved->scheduler_params_total_num_steps == *end) {
        z3d_log(Z3D_LOG_INFO, "--extend has no effect: %s",
                !saved           ? "there is no checkpoint to resume from"
                : decays(config) ? "the learning-rate schedule ends where the checkpoint's does"
                                 : "the learning-rate schedule has no end");
        return Z3D_OK;
    }
    *end = saved->scheduler_params_total_num_steps;
    if (learns_nothing(config, *end)) return refuse_nothing(trainer, *end);
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
