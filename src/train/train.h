/* src/train: the trainer. Configuration -> topology -> model -> engine -> run; data, learning-rate
 * schedule, metrics, generation. data/ reads token files, text/ makes them, report/ tells what a
 * run does. It may call every floor below it. Start reading at trainer.c, then data.h. */
#ifndef ZERO3D_TRAIN_TRAIN_H
#define ZERO3D_TRAIN_TRAIN_H

#include "parallel/parallel.h"
#include "src/base/base.h"
#include "src/base/config.h"

/* Everything `zero3d train` does after the configuration was read: resolves it, checks data and run
 * folder, builds, trains, evaluates, generates, writes the run folder. Collective over the world.
 * The error is agreed: the same status on every rank. */
z3d_status z3d_train(z3d_world *world, z3d_config *config);
typedef struct z3d_train_options {
    /* A resumed run keeps its learning-rate schedule's end where training.steps is beyond it. */
    bool extend;
    const char *command; /* without --extend, for messages that show how to go on; NULL: unknown */
} z3d_train_options;

/* The same; *unfinished tells whether the run was asked to stop (a signal, training.time_limit)
 * before its last step and saved a checkpoint, so that starting it again resumes from there. */
z3d_status z3d_train_part(z3d_world *world, z3d_config *config, const z3d_train_options *options,
                          bool *unfinished);

/* Text from a checkpoint's weights, on any number of ranks. `path`: a checkpoint, or a folder of
 * them; its configuration holds, with its generate section and the `count` key=value texts over it.
 * The sample (prompt first) is appended to *out on every rank. Collective; agreed. */
z3d_status z3d_generate_from(z3d_world *world, const char *path, char *const *assignments,
                             int count, z3d_string *out);

/* Whether that configuration has a generate.prompt, an empty one that an assignment gives included.
 * Not collective. */
z3d_status z3d_generate_has_prompt(const char *path, char *const *assignments, int count,
                                   bool *out);

#endif
