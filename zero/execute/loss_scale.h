/* Private to zero/: the loss scale's state from step to step. */
#ifndef ZERO3D_ZERO_LOSS_SCALE_H
#define ZERO3D_ZERO_LOSS_SCALE_H

#include "zero/zero.h"

typedef struct z3d_loss_scale {
    float scale;
    int64_t good_steps; /* since the last overflow */
    int64_t hysteresis_left;
} z3d_loss_scale;

/* After a step: halves or doubles a dynamic scale (DeepSpeed's rules). */
void z3d_loss_scale_update(const z3d_loss_scaler *scaler, z3d_loss_scale *now, bool overflow);

#endif
