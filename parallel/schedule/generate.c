/* Makes a schedule: refuses sizes that its kind cannot have, then calls the kind's generator for
 * the list of each stage. */
#include <stdlib.h>

#include "parallel/schedule/internal.h"

static const z3d_schedule_generator generators[Z3D_SCHEDULE_FILE] = {
    [Z3D_SCHEDULE_1F1B] = z3d_schedule_1f1b,
    [Z3D_SCHEDULE_GPIPE] = z3d_schedule_gpipe,
    [Z3D_SCHEDULE_INTERLEAVED] = z3d_schedule_interleaved,
    [Z3D_SCHEDULE_ZB_H1] = z3d_schedule_zb_h1,
    [Z3D_SCHEDULE_ZB_V] = z3d_schedule_zb_v,
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
    const z3d_schedule_kind kind = schedule->kind;
    const int stages = schedule->stages, each = schedule->chunks / stages;
    const int round = (int)z3d_schedule_round(kind, stages), micros = schedule->micros;
    if (!z3d_schedule_has_chunks(kind, each))
        return Z3D_ERROR(Z3D_ERR_CONFIG, "%s, not %d", z3d_schedule_chunks_text(kind).text, each);
    if (micros % round == 0) return Z3D_OK;
    return Z3D_ERROR(Z3D_ERR_CONFIG, "%s, not %d", z3d_schedule_round_text(kind, stages).text,
                     micros);
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
    Z3D_TRY_GOTO(status, fill(schedule, generators[kind]), fail);
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
