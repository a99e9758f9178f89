/* What a run's validation losses decide: which checkpoint is the best one, and an early end. */
#include <math.h>
#include <stdlib.h>

#include "src/train/trainer.h"

bool z3d_trainer_judge(z3d_trainer *trainer, int64_t step, double loss) {
    z3d_evaluations *e = &trainer->evaluations;
    const bool better = loss < (e->best_step > 0 ? e->best_loss : INFINITY);
    if (better)
        *e = (z3d_evaluations){.best_step = step, .best_loss = loss};
    else
        e->since++;
    return better;
}

bool z3d_trainer_ends_early(const z3d_trainer *trainer) {
    const int64_t patience = trainer->config->training_early_stopping_patience;
    return patience > 0 && trainer->evaluations.since >= patience;
}

/* Rank 0: whether the folder has the checkpoint of that step. */
static z3d_status has_step(const z3d_trainer *trainer, int64_t step, bool *has) {
    int64_t *steps;
    int count;
    *has = false;
    Z3D_TRY(z3d_checkpoint_list(trainer->checkpoint_dir, &steps, &count));
    for (int i = 0; i < count; i++) *has = *has || steps[i] == step;
    free(steps);
    return Z3D_OK;
}

z3d_status z3d_trainer_find_best(z3d_trainer *trainer) {
    const int64_t best = trainer->evaluations.best_step;
    bool has;
    if (!trainer->config->checkpoint_keep_best || best == 0) return Z3D_OK;
    z3d_status status = trainer->rank == 0 ? has_step(trainer, best, &has) : Z3D_OK;
    Z3D_TRY(z3d_trainer_agree(trainer, status));
    z3d_trainer_wait_place(trainer);
    Z3D_TRY(z3d_world_broadcast(trainer->world, &has, sizeof has, 0));
    if (has) return Z3D_OK;
    if (trainer->rank == 0)
        z3d_log(Z3D_LOG_INFO,
                "the checkpoint of the lowest validation loss so far, of step %lld, is not in %s: "
                "the best one is that of the steps from here on",
                (long long)best, trainer->checkpoint_dir);
    trainer->evaluations = (z3d_evaluations){0};
    return Z3D_OK;
}

const char *z3d_trainer_why_early(const z3d_trainer *trainer, int64_t step,
                                  char out[Z3D_EARLY_TEXT]) {
    const long long since = (long long)trainer->evaluations.since;
    if (!z3d_trainer_ends_early(trainer) || step >= trainer->config->training_steps) return NULL;
    snprintf(out, Z3D_EARLY_TEXT,
             "no lower validation loss in %lld evaluation%s since step %lld "
             "(training.early_stopping_patience)",
             since, since == 1 ? "" : "s", (long long)trainer->evaluations.best_step);
    return out;
}
