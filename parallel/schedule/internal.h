/* Private to parallel/schedule: making an empty schedule, and its checks. */
#ifndef ZERO3D_PARALLEL_SCHEDULE_INTERNAL_H
#define ZERO3D_PARALLEL_SCHEDULE_INTERNAL_H

#include "parallel/schedule/schedule.h"

/* ERR_CONFIG for numbers of stages, chunks and micro-batches that no schedule has. */
z3d_status z3d_schedule_check_sizes(z3d_schedule_kind kind, int stages, int chunks, int micros);
/* Makes a schedule with empty lists, space for all tasks, and every chunk on its stage. Errors:
 * ERR_CONFIG, ERR_MEMORY. */
z3d_status z3d_schedule_new(z3d_schedule_kind kind, int stages, int chunks, int micros,
                            z3d_schedule **out);

/* "backward of chunk 1, micro-batch 3" */
typedef struct z3d_task_text {
    char text[96];
} z3d_task_text;
z3d_task_text z3d_task_name(z3d_task task);

/* ERR_CONFIG unless sizes, the ends of the lists and all indices are in range. *task: the index of
 * the wrong task, or -1. */
z3d_status z3d_schedule_check_ranges(const z3d_schedule *schedule, int *task);
/* z3d_schedule_check; *task: the index of the wrong task, or -1. */
z3d_status z3d_schedule_check_task(const z3d_schedule *schedule, int *task);

#endif
