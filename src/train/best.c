/* Decisions by a run's validation losses: which checkpoint is the best one, and whether the run
 * ends early. */
#include <math.h>
#include <stdlib.h>

#include "src/train/trainer.h"

bool z3d_trainer_judge(z3d_trainer *trainer, int64_t step, double loss) {
    z3d_evaluations *e = &trainer->evaluations;
    const bool better = loss < (e->best_step > 0 ? e->best_loss : INFINITY);
    if (better)
        *e = (z3d_evaluations){.best_step = step, .best_loss = loss, .data = e->data};
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

/* Rank 0: whether the folder has the checkpoint of the lowest loss; another run's checkpoint of
 * that step does not count. */
static z3d_status has_best(const z3d_trainer *trainer, bool *has) {
    const z3d_evaluations *e = &trainer->evaluations;
    z3d_checkpoint *checkpoint = NULL;
    char *folder;
    Z3D_TRY(has_step(trainer, e->best_step, has));
    if (!*has) return Z3D_OK;
    Z3D_TRY(z3d_checkpoint_path(trainer->checkpoint_dir, e->best_step, &folder));
    z3d_status status = z3d_checkpoint_open(folder, &checkpoint);
    *has = false;
    if (status == Z3D_OK) {
        const z3d_evaluations *there = &z3d_checkpoint_get_info(checkpoint)->evaluations;
        /* A checkpoint does not know its own loss if a stop came before its validation (due). */
        *has = there->due || (there->best_step == e->best_step && there->best_loss == e->best_loss);
        z3d_checkpoint_close(checkpoint);
    }
    free(folder);
    return status == Z3D_ERR_DATA ? Z3D_OK : status; /* a damaged checkpoint does not count */
}

/* Found by rank 0 and sent to all ranks. */
typedef struct found {
    int64_t data;
    bool has_best;
} found;

static z3d_status look(const z3d_trainer *trainer, found *out) {
    *out = (found){.has_best = true};
    if (trainer->validation) Z3D_TRY(z3d_trainer_digest_validation(trainer, &out->data));
    if (trainer->config->checkpoint_keep_best && trainer->evaluations.best_step > 0)
        return has_best(trainer, &out->has_best);
    return Z3D_OK;
}

z3d_status z3d_trainer_take_evaluations(z3d_trainer *trainer) {
    static const char anew[] = "the lowest loss and the count of training.early_stopping_patience "
                               "start again";
    z3d_evaluations *e = &trainer->evaluations;
    const z3d_config *config = trainer->config;
    const bool tells = trainer->rank == 0 && (e->best_step > 0 || e->since > 0) &&
                       (config->checkpoint_keep_best || config->training_early_stopping_patience);
    found found;
    z3d_trainer_place(trainer, "start-up: looking for the best checkpoint");
    z3d_status status = trainer->rank == 0 ? look(trainer, &found) : Z3D_OK;
    Z3D_TRY(z3d_trainer_take_from_root(trainer, status, &found, sizeof found));
    if (!trainer->validation) return Z3D_OK;
    const bool other = e->data != 0 && e->data != found.data;
    if (other && tells)
        z3d_log(Z3D_LOG_INFO,
                "the validation losses so far are for other samples or weights (data.validation, "
                "training.eval_steps): %s",
                anew);
    else if (!found.has_best && tells)
        z3d_log(Z3D_LOG_INFO,
                "the checkpoint of the lowest validation loss so far, of step %lld, is not in %s: "
                "%s",
                (long long)e->best_step, trainer->checkpoint_dir, anew);
    if (other || !found.has_best) *e = (z3d_evaluations){.due = e->due};
    e->data = found.data;
    return Z3D_OK;
}

const char *z3d_trainer_why_early(const z3d_trainer *trainer, char out[Z3D_EARLY_TEXT]) {
    const z3d_evaluations *e = &trainer->evaluations;
    char begin[48] = "";
    if (!z3d_trainer_ends_early(trainer)) return NULL;
    if (e->best_step > 0)
        snprintf(begin, sizeof begin, " since step %lld", (long long)e->best_step);
    snprintf(out, Z3D_EARLY_TEXT,
             "no %s validation loss in %lld evaluation%s%s (training.early_stopping_patience)",
             e->best_step > 0 ? "lower" : "finite", (long long)e->since, e->since == 1 ? "" : "s",
             begin);
    return out;
}
