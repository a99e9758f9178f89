/* Checks whether lists of passes are a schedule: each pass once, on its stage, in an order that can
 * run. */
#include <stdlib.h>

#include "parallel/schedule/internal.h"

/* The next micro-batch of each pass of a chunk. Passes come in ascending order, so all smaller
 * micro-batches are done. A whole backward counts as both halves. */
typedef struct progress {
    int forward, input, weight;
} progress;

static z3d_status check_ends(const z3d_schedule *schedule) {
    int most = schedule->chunks * schedule->micros * 3, last = 0;
    for (int stage = 0; stage <= schedule->stages; stage++) {
        int first = schedule->first[stage];
        if (first < last || first > most || (stage == 0 && first != 0))
            return Z3D_ERROR(
                Z3D_ERR_CONFIG,
                "the list before pipeline stage %d ends at task %d, not between %d and %d", stage,
                first, last, stage == 0 ? 0 : most);
        last = first;
    }
    for (int chunk = 0; chunk < schedule->chunks; chunk++) {
        int stage = z3d_schedule_stage(schedule->kind, schedule->stages, chunk);
        if (schedule->stage_of_chunk[chunk] != stage)
            return Z3D_ERROR(
                Z3D_ERR_CONFIG, "chunk %d is on pipeline stage %d; schedule %s puts it on stage %d",
                chunk, schedule->stage_of_chunk[chunk], z3d_schedule_name(schedule->kind), stage);
    }
    return Z3D_OK;
}

/* Checks one task of a stage's list. done: by chunk; NULL: the check does not need it. */
typedef z3d_status (*check)(const z3d_schedule *schedule, int stage, z3d_task task, progress *done);

static z3d_status check_range(const z3d_schedule *schedule, int stage, z3d_task task,
                              progress *done) {
    (void)stage, (void)done;
    if ((unsigned)task.pass >= Z3D_PASS_COUNT)
        return Z3D_ERROR(Z3D_ERR_CONFIG, "there is no pass number %d", (int)task.pass);
    if (task.chunk < 0 || task.chunk >= schedule->chunks)
        return Z3D_ERROR(Z3D_ERR_CONFIG, "%s: there is no such chunk; chunks are 0 to %d",
                         z3d_task_name(task).text, schedule->chunks - 1);
    if (task.micro < 0 || task.micro >= schedule->micros)
        return Z3D_ERROR(Z3D_ERR_CONFIG,
                         "%s: there is no such micro-batch; micro-batches are 0 to %d",
                         z3d_task_name(task).text, schedule->micros - 1);
    return Z3D_OK;
}

static z3d_status refuse(z3d_task task, const char *why) {
    return Z3D_ERROR(Z3D_ERR_CONFIG, "%s %s", z3d_task_name(task).text, why);
}

static z3d_status check_place(const z3d_schedule *schedule, int stage, z3d_task task,
                              progress *done) {
    (void)done;
    bool half = task.pass == Z3D_PASS_BACKWARD_INPUT || task.pass == Z3D_PASS_BACKWARD_WEIGHT;
    int right = schedule->stage_of_chunk[task.chunk];
    if (right != stage)
        return Z3D_ERROR(Z3D_ERR_CONFIG, "%s: chunk %d runs on stage %d", z3d_task_name(task).text,
                         task.chunk, right);
    if (schedule->forward_only && task.pass != Z3D_PASS_FORWARD)
        return refuse(task, "is in a schedule that has only forwards");
    if (half && !z3d_schedule_row_of(schedule->kind)->halves)
        return Z3D_ERROR(Z3D_ERR_CONFIG, "%s: schedule %s has whole backwards, not halves",
                         z3d_task_name(task).text, z3d_schedule_name(schedule->kind));
    return Z3D_OK;
}

static z3d_status take_turn(z3d_task task, int *next) {
    if (task.micro < *next)
        return refuse(task, task.pass == Z3D_PASS_FORWARD
                                ? "comes a second time"
                                : "comes a second time (a whole backward is both halves)");
    if (task.micro > *next)
        return Z3D_ERROR(Z3D_ERR_CONFIG,
                         "%s comes before that of micro-batch %d; a chunk's micro-batches are in "
                         "ascending order",
                         z3d_task_name(task).text, *next);
    ++*next;
    return Z3D_OK;
}

static z3d_status check_order(const z3d_schedule *schedule, int stage, z3d_task task,
                              progress *done) {
    (void)schedule, (void)stage;
    progress *chunk = &done[task.chunk];
    if (task.pass == Z3D_PASS_FORWARD) return take_turn(task, &chunk->forward);
    if (task.micro >= chunk->forward) return refuse(task, "has no forward before it");
    if (task.pass == Z3D_PASS_BACKWARD_WEIGHT && task.micro >= chunk->input)
        return refuse(task, "has no backward_input before it");
    if (task.pass != Z3D_PASS_BACKWARD_WEIGHT) Z3D_TRY(take_turn(task, &chunk->input));
    if (task.pass != Z3D_PASS_BACKWARD_INPUT) Z3D_TRY(take_turn(task, &chunk->weight));
    return Z3D_OK;
}

/* *task: the index of the first wrong task, or -1. */
static z3d_status check_each(const z3d_schedule *schedule, check check_task, progress *done,
                             int *task) {
    for (int stage = 0; stage < schedule->stages; stage++)
        for (int i = schedule->first[stage]; i < schedule->first[stage + 1]; i++) {
            *task = i;
            z3d_status status = check_task(schedule, stage, schedule->task[i], done);
            if (status != Z3D_OK) return z3d_error_context(status, "pipeline stage %d", stage);
        }
    *task = -1;
    return Z3D_OK;
}

z3d_status z3d_schedule_check_ranges(const z3d_schedule *schedule, int *task) {
    *task = -1;
    Z3D_TRY(z3d_schedule_check_sizes(schedule->kind, schedule->stages, schedule->chunks,
                                     schedule->micros));
    Z3D_TRY(check_ends(schedule));
    return check_each(schedule, check_range, NULL, task);
}

static z3d_status check_complete(const z3d_schedule *schedule, const progress *done) {
    int micros = schedule->micros;
    for (int chunk = 0; chunk < schedule->chunks; chunk++) {
        const progress *at = &done[chunk];
        z3d_task missing = {Z3D_PASS_COUNT, chunk, 0};
        if (at->forward < micros)
            missing = (z3d_task){Z3D_PASS_FORWARD, chunk, at->forward};
        else if (schedule->forward_only)
            continue;
        else if (at->input < micros)
            missing = (z3d_task){Z3D_PASS_BACKWARD, chunk, at->input};
        else if (at->weight < micros)
            missing = (z3d_task){Z3D_PASS_BACKWARD_WEIGHT, chunk, at->weight};
        else
            continue;
        return Z3D_ERROR(Z3D_ERR_CONFIG, "pipeline stage %d: there is no %s",
                         schedule->stage_of_chunk[chunk], z3d_task_name(missing).text);
    }
    return Z3D_OK;
}

static z3d_status check_lists(const z3d_schedule *schedule, int *task) {
    progress *done;
    Z3D_TRY(z3d_schedule_check_ranges(schedule, task));
    /* Before the order: a pass on a wrong stage is missing on its own stage, and the message must
     * name the wrong one. */
    Z3D_TRY(check_each(schedule, check_place, NULL, task));
    Z3D_TRY(z3d_new((size_t)schedule->chunks, sizeof *done, "the check of a schedule", &done));
    z3d_status status = check_each(schedule, check_order, done, task);
    if (status == Z3D_OK) status = check_complete(schedule, done);
    free(done);
    return status;
}

/* Plays the schedule, which finds a circular wait. */
static z3d_status check_waits(const z3d_schedule *schedule) {
    static const double cost[Z3D_PASS_COUNT] = {1, 1, 1, 1};
    double *end;
    size_t tasks = (size_t)schedule->first[schedule->stages];
    Z3D_TRY(z3d_new(tasks, sizeof *end, "the check of a schedule", &end));
    z3d_status status = z3d_schedule_times(schedule, cost, 0, end);
    free(end);
    return status;
}

z3d_status z3d_schedule_check_task(const z3d_schedule *schedule, int *task) {
    Z3D_TRY(check_lists(schedule, task));
    return check_waits(schedule);
}

z3d_status z3d_schedule_check(const z3d_schedule *schedule) {
    int task;
    return z3d_schedule_check_task(schedule, &task);
}
