/* The table of learning-rate schedules. A new one is a row here and its rate in
 * src/train/schedule.c. */
#ifndef ZERO3D_BASE_LR_SCHEDULES_H
#define ZERO3D_BASE_LR_SCHEDULES_H

#include <stdbool.h>

#define Z3D_WARMS "warmup_num_steps warmup_ratio"
#define Z3D_DECAYS Z3D_WARMS " total_num_steps min_lr"

/* X(_, ID, name, reads). name: the value of scheduler.type; reads: the keys of scheduler.params
 * that it reads. _ is passed through. From linear on the schedules have transformers' names and
 * values. */
#define Z3D_LR_SCHEDULES(X, _)                                                                     \
    X(_, CONSTANT, "constant", "")                                                                 \
    X(_, WARMUP, "WarmupLR", Z3D_WARMS)                                                            \
    X(_, WARMUP_DECAY, "WarmupDecayLR", Z3D_DECAYS)                                                \
    X(_, WARMUP_COSINE, "WarmupCosineLR", Z3D_DECAYS)                                              \
    X(_, LINEAR, "linear", Z3D_DECAYS)                                                             \
    X(_, COSINE, "cosine", Z3D_DECAYS)                                                             \
    X(_, COSINE_WITH_RESTARTS, "cosine_with_restarts", Z3D_DECAYS " num_cycles")                   \
    X(_, CONSTANT_WITH_WARMUP, "constant_with_warmup", Z3D_WARMS)                                  \
    X(_, INVERSE_SQRT, "inverse_sqrt", Z3D_WARMS)                                                  \
    X(_, POLYNOMIAL, "polynomial", Z3D_DECAYS " power")                                            \
    X(_, WARMUP_STABLE_DECAY, "warmup_stable_decay", Z3D_DECAYS " num_decay_steps decay_type")

typedef enum z3d_lr_schedule {
#define X(_, ID, name, reads) Z3D_LR_##ID,
    Z3D_LR_SCHEDULES(X, )
#undef X
        Z3D_LR_COUNT
} z3d_lr_schedule;

/* The rule of scheduler.type: "constant|...". */
#define Z3D_LR_SCHEDULE_OPTION(_, ID, name, reads) "|" name
#define Z3D_LR_SCHEDULE_RULE (&(Z3D_LR_SCHEDULES(Z3D_LR_SCHEDULE_OPTION, ))[1])

const char *z3d_lr_schedule_name(z3d_lr_schedule schedule);
/* The value of scheduler.type that another framework calls `text`; `text` itself if none. */
const char *z3d_lr_schedule_named(const char *text);
/* Whether the schedule reads this key: "min_lr" or "scheduler.params.min_lr". */
bool z3d_lr_schedule_reads(z3d_lr_schedule schedule, const char *key);

#endif
