/* training.epochs in place of training.steps. */
#include "src/base/config/table.h"

#include <math.h>

#define STEPS "training.steps"
#define EPOCHS "training.epochs"

void z3d_config_set_epoch(z3d_config *config, int64_t samples) {
    config->origin->epoch_samples = samples;
}

/* If both keys are given, the one on the command line counts; else they are refused. */
static void refuse_both(config_checker *k) {
    z3d_config *c = k->c;
    const bool steps = config_is_overridden(c, STEPS), epochs = config_is_overridden(c, EPOCHS);
    const char *idle = steps ? EPOCHS : STEPS;
    const int key = steps ? CONFIG_KEY_training_epochs : CONFIG_KEY_training_steps;
    if (steps == epochs) {
        config_complain(k, EPOCHS,
                        "this key and " STEPS " say how long the run is; leave one of them "
                        "out");
        return;
    }
    if (!config_is_standard(c, idle)) /* a run's config.yaml has all keys */
        config_tell(c, c->origin->place[key], idle, "has no effect:",
                    steps ? "the command line gives " STEPS : "the command line gives " EPOCHS);
    config_unset(c, key);
}

static void refuse_interval(config_checker *k, const char *path, int64_t interval) {
    if (interval != Z3D_EPOCH || k->c->training_epochs > 0 || !config_sound(k, path, EPOCHS, NULL))
        return;
    config_complain(k, path,
                    "epoch needs " EPOCHS ", which counts passes over the data; set it, or write a "
                    "number of steps");
}

void config_check_epochs(config_checker *k) {
    z3d_config *c = k->c;
    if (!config_sound(k, STEPS, EPOCHS, NULL)) return;
    const bool given = z3d_config_is_set(c, STEPS) && c->training_steps != Z3D_AUTO;
    if (c->training_epochs > 0 && given) refuse_both(k);
    if (c->training_epochs == 0 && c->training_steps == Z3D_AUTO)
        config_complain(k, STEPS, "auto needs " EPOCHS "; write a number");
    if (c->training_epochs > 0) c->training_steps = Z3D_AUTO;
    refuse_interval(k, "training.eval_interval", c->training_eval_interval);
    refuse_interval(k, "checkpoint.interval", c->checkpoint_interval);
}

/* The steps of `epochs` passes, rounded up; the factor absorbs rounding: 0.1 x 30 samples are 3. */
static double steps_of(const z3d_config *c, double epochs) {
    const double samples = (double)c->origin->epoch_samples;
    return fmax(1, ceil(epochs * samples / (double)c->train_batch_size * (1 - 1e-12)));
}

bool config_resolve_epochs(config_checker *k) {
    z3d_config *c = k->c;
    const int64_t samples = c->origin->epoch_samples;
    if (c->training_steps != Z3D_AUTO || samples == 0 || !config_sound(k, EPOCHS, NULL))
        return true;
    const double steps = steps_of(c, c->training_epochs);
    if (steps > 1e12) {
        config_complain(k, EPOCHS, "%g passes over %lld samples are more than 1e12 steps",
                        c->training_epochs, (long long)samples);
        return false;
    }
    c->training_steps = (int64_t)steps;
    if (c->training_eval_interval == Z3D_EPOCH) c->training_eval_interval = (int64_t)steps_of(c, 1);
    if (c->checkpoint_interval == Z3D_EPOCH) c->checkpoint_interval = (int64_t)steps_of(c, 1);
    c->training_epochs = 0;
    config_check_warmup(k, EPOCHS);
    return true;
}
