/* The configuration of generation and evaluation, which use a checkpoint's weights and do not
 * train. */
#ifndef ZERO3D_TRAIN_INFERENCE_CONFIG_H
#define ZERO3D_TRAIN_INFERENCE_CONFIG_H

#include "src/base/base.h"
#include "src/base/config.h"

/* Reads the configuration of the checkpoint that a user's path means, and changes it for `ranks`
 * ranks: one sample per rank and step, no pipeline stages, stage 3, tensor size 1 (with `tensor`:
 * the largest that ranks and model allow). `count` key=value texts override it. It is not yet
 * settled. The caller destroys *out, also after an error. Errors: those of the checkpoint,
 * ERR_CONFIG. */
z3d_status z3d_inference_config(const char *path, int ranks, bool tensor, char *const *assignments,
                                int count, z3d_config **out);
/* Whether one of the assignments is to this key. */
bool z3d_is_assigned(char *const *assignments, int count, const char *key);

#endif
