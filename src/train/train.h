/* src/train: the trainer. Configuration -> mesh -> model -> engine -> run; data, learning-rate
 * schedule, metrics, generation. data/ reads token files, text/ makes them, report/ reports what a
 * run does, trace/ reads its timelines back. It may call every floor below it. Start reading at
 * trainer.c, then data.h. */
#ifndef ZERO3D_TRAIN_TRAIN_H
#define ZERO3D_TRAIN_TRAIN_H

#include "parallel/parallel.h"
#include "src/base/base.h"
#include "src/base/config.h"

/* Everything that `zero3d train` does after it has read the configuration: resolves it, checks data
 * and run folder, builds, trains, evaluates, generates, writes the run folder. Collective over the
 * world. The error is agreed: the same status on every rank. */
z3d_status z3d_train(z3d_world *world, z3d_config *config);
typedef struct z3d_train_options {
    /* A resumed run keeps its learning-rate schedule's end if training.steps is beyond it. */
    bool extend;
    const char *command; /* the command without --extend, for messages that say how to continue;
                            NULL: unknown */
} z3d_train_options;

/* The same. *unfinished: the run was asked to stop (a signal, training.time_limit) before its last
 * step and saved a checkpoint, so starting it again resumes from there. */
z3d_status z3d_train_part(z3d_world *world, z3d_config *config, const z3d_train_options *options,
                          bool *unfinished);

/* Generates text with a checkpoint's weights, on any number of ranks. `path`: a checkpoint, or a
 * folder of them. Uses the checkpoint's configuration with its generate section; the `count`
 * key=value texts override it. Appends the sample (prompt first) to *out on every rank. Collective;
 * agreed. */
z3d_status z3d_generate_from(z3d_world *world, const char *path, char *const *assignments,
                             int count, z3d_string *out);

/* Whether that configuration has a generate.prompt; an empty prompt from an assignment counts. Not
 * collective. */
z3d_status z3d_generate_has_prompt(const char *path, char *const *assignments, int count,
                                   bool *out);

#endif
