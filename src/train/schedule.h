/* The learning rate, as a pure function of the step. */
#ifndef ZERO3D_TRAIN_SCHEDULE_H
#define ZERO3D_TRAIN_SCHEDULE_H

#include <stdint.h>

#include "src/base/config.h"

/* Learning rate of step `step` (from 1) under scheduler.type, with peak = optimizer.params.lr, w =
 * warmup_num_steps, n = total_num_steps (auto: training.steps):
 *   all but constant: peak * step / w in steps 1 .. w;
 *   WarmupLR          then peak;
 *   WarmupDecayLR     then a straight line from peak at step w to min_lr at step n, min_lr after;
 *   WarmupCosineLR    then half a cosine between the same points.
 * These are DeepSpeed's schedules of those names (warmup_type linear), except that the first step
 * has no learning rate of 0.
 */
float z3d_learning_rate(const z3d_config *config, int64_t step);

#endif
