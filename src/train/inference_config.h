/* The configuration of what uses a checkpoint's weights without training: generation and
 * evaluation. */
#ifndef ZERO3D_TRAIN_INFERENCE_CONFIG_H
#define ZERO3D_TRAIN_INFERENCE_CONFIG_H

#include "src/base/base.h"
#include "src/base/config.h"

/* The configuration in the checkpoint that a user's path means, for `ranks` ranks, with `count`
 * key=value texts over it: one sample per rank and step, no pipeline stages, stage 3, and tensor
 * size 1 or with `tensor` the largest that ranks and model allow. Not yet settled. *out may be
 * there after an error, too; the caller destroys it. Errors: those of the checkpoint, ERR_CONFIG.
 */
z3d_status z3d_inference_config(const char *path, int ranks, bool tensor, char *const *assignments,
                                int count, z3d_config **out);
/* Whether one of the assignments is to this key. */
bool z3d_is_assigned(char *const *assignments, int count, const char *key);

#endif
