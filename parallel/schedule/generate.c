/* Makes a schedule: refuses sizes that its kind cannot have, then calls the kind's generator for
 * the list of each stage. */
#include <limits.h>
#include <stdlib.h>

#include "parallel/schedule/internal.h"

static const struct {
    z3d_schedule_generator generator; /* NULL: a user's file */
    int least, most;                  /* chunks per stage */
} kinds[Z3D_SCHEDULE_COUNT] = {
    [Z3D_SCHEDULE_1F1B] = {z3d_schedule_1f1b, 1, 1},
    [Z3D_SCHEDULE_GPIPE] = {z3d_schedule_gpipe, 1, 1},
    [Z3D_SCHEDULE_INTERLEAVED] = {z3d_schedule_interleaved, 2, INT_MAX},
    [Z3D_SCHEDULE_ZB_H1] = {z3d_schedule_zb_h1, 1, 1},
    [Z3D_SCHEDULE_ZB_V] = {z3d_schedule_zb_v, 2, 2},
    [Z3D_SCHEDULE_FILE] = {NULL, 1, INT_MAX},
};

void z3d_task_list_add(z3d_task_list *list, z3d_pass pass, int chunk) {
    z3d_schedule *schedule = list->schedule;
    int micro = list->next[pass * schedule->chunks + chunk]++;
    if (micro >= schedule->micros) return;
    schedule->task[list->count++] = (z3d_task){pass, chunk, micro};
}

static void forward_only(z3d_task_list *list, int stage) {
    const z3d_schedule *schedule = list->schedule;
    for (int micro = 0; micro < schedule->micros; micro++) {
        for (int chunk = 0; chunk < schedule->chunks; chunk++) {
            if (schedule->stage_of_chunk[chunk] == stage)
                z3d_task_list_add(list, Z3D_PASS_FORWARD, chunk);
        }
    }
}

static z3d_status check_kind(const z3d_schedule *schedule) {
    const char *name = z3d_schedule_name(schedule->kind);
    int stages = schedule->stages, each = schedule->chunks / stages, micros = schedule->micros;
    int least = kinds[schedule->kind].least, most = kinds[schedule->kind].most;
    if (each > most)
        return Z3D_ERROR(Z3D_ERR_CONFIG, "schedule %s has %d chunk%s per pipeline stage, not %d%s",
                         name, most, most == 1 ? "" : "s", each,
                         most == 1 ? "; interleaved has several" : "");
    if (each < least)
        return Z3D_ERROR(Z3D_ERR_CONFIG, "schedule %s needs %s2 chunks per pipeline stage, not %d",
                         name, most == least ? "" : "at least ", each);
    if (schedule->kind != Z3D_SCHEDULE_INTERLEAVED || micros % stages == 0) return Z3D_OK;
    if (micros < stages)
        return Z3D_ERROR(Z3D_ERR_CONFIG,
                         "%d micro-batches are too few for schedule interleaved with %d pipeline "
                         "stages; use %d or a multiple of it",
                         micros, stages, stages);
    int below = micros / stages * stages;
    return Z3D_ERROR(Z3D_ERR_CONFIG,
                     "schedule interleaved needs a number of micro-batches that is a multiple of "
                     "the %d pipeline stages, not %d; use %d or %d",
                     stages, micros, below, below + stages);
}

static z3d_status fill(z3d_schedule *schedule, z3d_schedule_generator generator) {
    z3d_task_list list = {schedule, 0, NULL};
    size_t counters = (size_t)schedule->chunks * Z3D_PASS_COUNT;
    Z3D_TRY(z3d_new(counters, sizeof(int), "a schedule", &list.next));
    for (int stage = 0; stage < schedule->stages; stage++) {
        generator(&list, stage);
        schedule->first[stage + 1] = list.count;
    }
    free(list.next);
    return z3d_schedule_check(schedule);
}

z3d_status z3d_schedule_create(z3d_schedule_kind kind, int stages, int chunks, int micros,
                               z3d_schedule **out) {
    z3d_schedule *schedule;
    z3d_status status;
    *out = NULL;
    if (kind == Z3D_SCHEDULE_FILE)
        return Z3D_ERROR(Z3D_ERR_USAGE, "schedule file is read from its file, not generated");
    Z3D_TRY(z3d_schedule_new(kind, stages, chunks, micros, &schedule));
    Z3D_TRY_GOTO(status, check_kind(schedule), fail);
    Z3D_TRY_GOTO(status, fill(schedule, kinds[kind].generator), fail);
    *out = schedule;
    return Z3D_OK;
fail:
    z3d_schedule_destroy(schedule);
    return status;
}

z3d_status z3d_schedule_create_forward(z3d_schedule_kind kind, int stages, int chunks, int micros,
                                       z3d_schedule **out) {
    z3d_schedule *schedule;
    *out = NULL;
    Z3D_TRY(z3d_schedule_new(kind, stages, chunks, micros, &schedule));
    schedule->forward_only = true;
    z3d_status status = fill(schedule, forward_only);
    if (status == Z3D_OK)
        *out = schedule;
    else
        z3d_schedule_destroy(schedule);
    return status;
}
