/* Keys: the learning rate. src/base/config/keys.h says what a row is. */
#ifndef ZERO3D_BASE_CONFIG_KEYS_SCHEDULER_H
#define ZERO3D_BASE_CONFIG_KEYS_SCHEDULER_H

#include "src/base/lr_schedules.h"

/* clang-format off */
#define Z3D_CONFIG_SCHEDULER_KEYS(X) \
    X(scheduler_type, "scheduler.type", \
      ENUM, "constant", Z3D_LR_SCHEDULE_RULE, DECIDE, KEPT, STAYS, \
      "learning-rate schedule: DeepSpeed's names, or transformers' names and rates " \
      "(docs/learning-rate.md)") \
    X(scheduler_params_warmup_num_steps, "scheduler.params.warmup_num_steps", \
      INT, "0", "[0,1e12]", DECIDE, KEPT, STAYS, \
      "steps of linear warm-up") \
    X(scheduler_params_warmup_ratio, "scheduler.params.warmup_ratio", \
      FLOAT, "0", "[0,1]", DECIDE, KEPT, STAYS, \
      "instead of warmup_num_steps: this share of total_num_steps, rounded up") \
    X(scheduler_params_total_num_steps, "scheduler.params.total_num_steps", \
      INT, "auto", "[1,1e12] auto", DECIDE, END, STAYS, \
      "step at which the decay ends; auto: training.steps") \
    X(scheduler_params_num_decay_steps, "scheduler.params.num_decay_steps", \
      INT, "auto", "[1,1e12] auto", DECIDE, KEPT, STAYS, \
      "warmup_stable_decay: steps of the decay, which ends at total_num_steps; auto: a tenth of " \
      "total_num_steps, rounded up") \
    X(scheduler_params_decay_type, "scheduler.params.decay_type", \
      ENUM, "cosine", "cosine|linear|1-sqrt", DECIDE, KEPT, STAYS, \
      "warmup_stable_decay: the form of the decay; 1-sqrt: 1 - the square root of the part of " \
      "the decay that is done") \
    X(scheduler_params_num_cycles, "scheduler.params.num_cycles", \
      INT, "1", "[1,1e6]", DECIDE, KEPT, STAYS, \
      "cosine_with_restarts: number of decays from the peak, one after the other, up to " \
      "total_num_steps") \
    X(scheduler_params_power, "scheduler.params.power", \
      FLOAT, "1", "(0,100]", DECIDE, KEPT, STAYS, \
      "polynomial: the power of the part of the decay that is left") \
    X(scheduler_params_min_lr, "scheduler.params.min_lr", \
      FLOAT, "0", "[0,1e6]", DECIDE, KEPT, STAYS, \
      "learning rate at the end of the decay")
/* clang-format on */

#endif
