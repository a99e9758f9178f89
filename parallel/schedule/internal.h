/* Private to parallel/schedule: the list that generators fill, sizes and checks. */
#ifndef ZERO3D_PARALLEL_SCHEDULE_INTERNAL_H
#define ZERO3D_PARALLEL_SCHEDULE_INTERNAL_H

#include "parallel/schedule/schedule.h"

/* A stage's list while it is made. Passes of a chunk are in ascending order of micro-batch, so a
 * generator gives only pass and chunk, and the list adds the next micro-batch. After the last
 * micro-batch it adds nothing, so a generator needs no special case for few micro-batches. */
typedef struct z3d_task_list {
    z3d_schedule *schedule;
    int count; /* tasks of all stages so far */
    int *next; /* micro-batch, by pass and chunk */
} z3d_task_list;

void z3d_task_list_add(z3d_task_list *list, z3d_pass pass, int chunk);

typedef void (*z3d_schedule_generator)(z3d_task_list *list, int stage);
void z3d_schedule_gpipe(z3d_task_list *list, int stage);
void z3d_schedule_1f1b(z3d_task_list *list, int stage);
void z3d_schedule_interleaved(z3d_task_list *list, int stage);
void z3d_schedule_zb_h1(z3d_task_list *list, int stage);
void z3d_schedule_zb_v(z3d_task_list *list, int stage);

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
