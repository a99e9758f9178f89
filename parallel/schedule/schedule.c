/* Passes, which stage runs which chunk, and a schedule's life. */
#include <stdio.h>
#include <stdlib.h>

#include "parallel/schedule/internal.h"

const char *z3d_pass_name(z3d_pass pass) {
    static const char *const names[] = {"forward", "backward", "backward_input", "backward_weight"};
    return (unsigned)pass < Z3D_PASS_COUNT ? names[pass] : "?";
}

z3d_task_text z3d_task_name(z3d_task task) {
    z3d_task_text out;
    snprintf(out.text, sizeof out.text, "%s of chunk %d, micro-batch %d", z3d_pass_name(task.pass),
             task.chunk, task.micro);
    return out;
}

int z3d_schedule_stage(z3d_schedule_kind kind, int stages, int chunk) {
    int at = chunk % stages;
    bool up = z3d_schedule_row_of(kind)->v && chunk / stages % 2 == 1;
    return up ? stages - 1 - at : at;
}

z3d_status z3d_schedule_check_sizes(z3d_schedule_kind kind, int stages, int chunks, int micros) {
    if ((unsigned)kind >= Z3D_SCHEDULE_COUNT)
        return Z3D_ERROR(Z3D_ERR_CONFIG, "there is no schedule number %d", (int)kind);
    if (stages < 1 || chunks < 1 || micros < 1)
        return Z3D_ERROR(Z3D_ERR_CONFIG,
                         "a schedule of %d pipeline stages, %d chunks and %d micro-batches: each "
                         "must be at least 1",
                         stages, chunks, micros);
    if (chunks > Z3D_MAX_CHUNKS)
        return Z3D_ERROR(Z3D_ERR_CONFIG,
                         "%d chunks are too many: all pipeline stages together may have %d", chunks,
                         Z3D_MAX_CHUNKS);
    if (chunks % stages != 0)
        return Z3D_ERROR(Z3D_ERR_CONFIG,
                         "%d chunks cannot be divided equally over %d pipeline stages; use a "
                         "multiple of %d",
                         chunks, stages, stages);
    int most = Z3D_MAX_SCHEDULE_TASKS / 3 / chunks;
    if (micros > most)
        return Z3D_ERROR(Z3D_ERR_CONFIG,
                         "a schedule of %d chunks may have %d micro-batches, not %d", chunks, most,
                         micros);
    return Z3D_OK;
}

z3d_status z3d_schedule_new(z3d_schedule_kind kind, int stages, int chunks, int micros,
                            z3d_schedule **out) {
    z3d_schedule *schedule;
    *out = NULL;
    Z3D_TRY(z3d_schedule_check_sizes(kind, stages, chunks, micros));
    Z3D_TRY(z3d_new(1, sizeof *schedule, "a schedule", &schedule));
    schedule->kind = kind;
    schedule->stages = stages;
    schedule->chunks = chunks;
    schedule->micros = micros;
    size_t tasks = (size_t)chunks * (size_t)micros * 3;
    z3d_status status = z3d_new((size_t)stages + 1, sizeof(int), "a schedule", &schedule->first);
    if (status == Z3D_OK) status = z3d_new(tasks, sizeof(z3d_task), "a schedule", &schedule->task);
    if (status == Z3D_OK)
        status = z3d_new((size_t)chunks, sizeof(int), "a schedule", &schedule->stage_of_chunk);
    if (status != Z3D_OK) {
        z3d_schedule_destroy(schedule);
        return status;
    }
    for (int chunk = 0; chunk < chunks; chunk++)
        schedule->stage_of_chunk[chunk] = z3d_schedule_stage(kind, stages, chunk);
    *out = schedule;
    return Z3D_OK;
}

void z3d_schedule_destroy(z3d_schedule *schedule) {
    if (!schedule) return;
    free(schedule->first);
    free(schedule->task);
    free(schedule->stage_of_chunk);
    free(schedule);
}
