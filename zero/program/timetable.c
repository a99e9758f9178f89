/* The schedule of all pipeline stages, and when its passes end. All stages' programs are made from
 * it, so transfers have one order over all ranks. */
#include <stdlib.h>

#include "zero/program/pipeline.h"

/* Only training has backward passes. */
static z3d_status make_schedule(const z3d_program_config *config, int stages, bool train,
                                z3d_timetable *out) {
    const z3d_pipeline_config *c = &config->pipeline;
    int chunks = stages * z3d_chunks_of_stage(c);
    bool file = train && c->schedule == Z3D_SCHEDULE_FILE;
    if (file && (!c->file || c->file->stages != stages || c->file->chunks != chunks ||
                 c->file->micros != config->accumulation))
        return Z3D_ERROR(Z3D_ERR_CONFIG,
                         "the schedule of the file must be of %d stages, %d chunks and %d "
                         "micro-batches",
                         stages, chunks, config->accumulation);
    if (train && !file)
        Z3D_TRY(z3d_schedule_create(c->schedule, stages, chunks, config->accumulation, &out->made));
    if (!train) Z3D_TRY(z3d_schedule_create_forward(c->schedule, stages, chunks, 1, &out->made));
    out->schedule = file ? c->file : out->made;
    return Z3D_OK;
}

static z3d_status find_ends(z3d_timetable *t) {
    /* Backward takes twice as long as forward. Only ratios matter, and that transfers take some
     * time: then data that is needed at once comes before other data. */
    static const double transfer = 1;
    static const double cost[Z3D_PASS_COUNT] = {[Z3D_PASS_FORWARD] = 16,
                                                [Z3D_PASS_BACKWARD] = 32,
                                                [Z3D_PASS_BACKWARD_INPUT] = 16,
                                                [Z3D_PASS_BACKWARD_WEIGHT] = 16};
    const z3d_schedule *s = t->schedule;
    size_t tasks = (size_t)s->first[s->stages], passes = (size_t)s->chunks * (size_t)s->micros;
    double *by_task = NULL;
    z3d_status status = z3d_new(tasks, sizeof *by_task, "pipeline schedule", &by_task);
    if (status == Z3D_OK)
        status = z3d_new(passes, sizeof(double), "pipeline schedule", &t->forward_end);
    if (status == Z3D_OK)
        status = z3d_new(passes, sizeof(double), "pipeline schedule", &t->gradient_end);
    if (status == Z3D_OK) status = z3d_schedule_times(s, cost, transfer, by_task);
    for (size_t i = 0; i < tasks && status == Z3D_OK; i++) {
        z3d_task task = s->task[i];
        double *end = task.pass == Z3D_PASS_FORWARD ? t->forward_end : t->gradient_end;
        if (task.pass != Z3D_PASS_BACKWARD_WEIGHT)
            end[task.chunk * s->micros + task.micro] = by_task[i];
    }
    free(by_task);
    return status;
}

z3d_status z3d_timetables_create(const z3d_program_config *config, int stages,
                                 z3d_timetables **out) {
    z3d_timetables *made;
    *out = NULL;
    Z3D_TRY(z3d_new(1, sizeof *made, "pipeline schedule", &made));
    z3d_status status = Z3D_OK;
    for (int train = 0; train < 2 && status == Z3D_OK; train++) {
        z3d_timetable *t = train ? &made->train : &made->forward;
        status = make_schedule(config, stages, train, t);
        if (status == Z3D_OK && stages > 1) status = find_ends(t);
    }
    if (status == Z3D_OK)
        *out = made;
    else
        z3d_timetables_destroy(made);
    return status;
}

static void release(z3d_timetable *t) {
    z3d_schedule_destroy(t->made);
    free(t->forward_end);
    free(t->gradient_end);
}

void z3d_timetables_destroy(z3d_timetables *timetables) {
    if (!timetables) return;
    release(&timetables->train);
    release(&timetables->forward);
    free(timetables);
}
