/* The learning rate, as a pure function of the step. */
#ifndef ZERO3D_TRAIN_SCHEDULE_H
#define ZERO3D_TRAIN_SCHEDULE_H

#include <stdint.h>

#include "src/base/config.h"

/* Learning rate of step `step` (from 1) under scheduler.type, with peak = optimizer.params.lr, w =
 * warmup_num_steps (of the resolved configuration), n = total_num_steps (auto: training.steps).
 * DeepSpeed's names, with w at least 1:
 *   all:              peak * step / w in steps 1 .. w;
 *   WarmupLR          then peak;
 *   WarmupDecayLR     then a straight line from peak at step w to min_lr at step n + 1, min_lr
 *                     after;
 *   WarmupCosineLR    then half a cosine between the same points.
 * So each of the steps 1 .. n trains, also with min_lr 0. The types with transformers' names give
 * the numbers that transformers gives, and min_lr after step n: docs/learning-rate.md. */
float z3d_learning_rate(const z3d_config *config, int64_t step);

#endif
