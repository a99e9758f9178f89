/* training.epochs in place of training.steps. */
#include "src/base/config/table.h"

#include <math.h>

#define STEPS "training.steps"
#define EPOCHS "training.epochs"

void z3d_config_set_epoch(z3d_config *config, int64_t samples) {
    config->origin->epoch_samples = samples;
}

/* Of two that are given the command line's is meant. */
static void refuse_both(config_checker *k) {
    z3d_config *c = k->c;
    const bool steps = config_is_overridden(c, STEPS), epochs = config_is_overridden(c, EPOCHS);
    const char *idle = steps ? EPOCHS : STEPS;
    const int key = steps ? CONFIG_KEY_training_epochs : CONFIG_KEY_training_steps;
    if (steps == epochs) {
        config_complain(k, EPOCHS,
                        "this and " STEPS " say how long the run is; leave one of them "
                        "out");
        return;
    }
    config_tell(c, c->origin->place[key], idle, "has no effect:",
                steps ? "the command line gives " STEPS : "the command line gives " EPOCHS);
    config_unset(c, key);
}

void config_check_epochs(config_checker *k) {
    z3d_config *c = k->c;
    if (!config_sound(k, STEPS, EPOCHS, NULL)) return;
    const bool given = z3d_config_is_set(c, STEPS) && c->training_steps != Z3D_AUTO;
    if (c->training_epochs > 0 && given) refuse_both(k);
    if (c->training_epochs == 0 && c->training_steps == Z3D_AUTO)
        config_complain(k, STEPS, "auto needs " EPOCHS "; write a number");
    if (c->training_epochs > 0) c->training_steps = Z3D_AUTO;
}

bool config_resolve_epochs(config_checker *k) {
    z3d_config *c = k->c;
    const double samples = (double)c->origin->epoch_samples;
    if (c->training_steps != Z3D_AUTO || samples == 0 || !config_sound(k, EPOCHS, NULL))
        return true;
    const double exact = c->training_epochs * samples / (double)c->train_batch_size;
    const double steps = ceil(exact * (1 - 1e-12)); /* 0.1 x 30 samples are 3 */
    if (steps > 1e12) {
        config_complain(k, EPOCHS, "%g passes over %.0f samples are more than 1e12 steps",
                        c->training_epochs, samples);
        return false;
    }
    c->training_steps = steps < 1 ? 1 : (int64_t)steps;
    c->training_epochs = 0;
    config_check_warmup(k, EPOCHS);
    return true;
}
