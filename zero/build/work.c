/* The order of work in a program: the schedule lists passes of chunks. A forward pass runs the
 * chunk's units in order, a backward pass in reverse order. Units are recomputed, from the
 * activation checkpoint before them, just before their backward. */
#include <stdlib.h>

#include "zero/build/builder.h"

bool z3d_builder_goes_back(const z3d_program *p, int unit) {
    return p->mode == Z3D_MODE_TRAIN && unit >= p->layout->first_trained;
}

/* A unit with groups, all of them frozen, has no second half. */
static bool has_weight_half(const z3d_program *p, int unit) {
    const z3d_unit *u = &p->model->unit[unit];
    bool frozen = u->num_groups > 0;
    for (int s = 0; s < u->num_groups; s++) frozen = frozen && p->layout->group[u->group[s]].frozen;
    return !frozen;
}

/* The last unit is not recomputed, because its backward mostly comes right after its forward. */
bool z3d_builder_recomputes(const z3d_program *p, int unit) {
    return z3d_builder_goes_back(p, unit) && p->config.recompute &&
           p->model->unit[unit].checkpoint && !z3d_model_is_last(p->model, unit);
}

/* Of successive recomputed units in a chunk, the first and every `checkpoint_every`-th after it
 * keep their inputs. */
static void place_checkpoints(struct builder *b) {
    const z3d_program *p = b->program;
    int every = p->config.checkpoint_every > 1 ? p->config.checkpoint_every : 1, kept = -1;
    for (int u = 0, length = 0; u < p->model->num_units; u++) {
        if (z3d_layout_begins_chunk(p->layout, u)) length = 0, kept = -1;
        length = z3d_builder_recomputes(p, u) ? length + 1 : 0;
        if (length > 0 && (length - 1) % every == 0) kept = u;
        b->kept_from[u] = kept;
    }
}

bool z3d_builder_keeps_input(const struct builder *b, int unit) {
    return b->kept_from[unit] == unit;
}

bool z3d_builder_replays_output(const struct builder *b, int unit) {
    const z3d_program *p = b->program;
    return p->config.replay_full ||
           (z3d_builder_recomputes(p, unit + 1) && !z3d_builder_keeps_input(b, unit + 1));
}

const z3d_trace *z3d_builder_trace(const struct builder *b, struct work w) {
    const z3d_program *p = b->program;
    const bool all = w.kind == Z3D_CALL_RECOMPUTE && z3d_builder_replays_output(b, w.unit);
    return z3d_traces_of(p->traces, p->mode, w.unit, all ? Z3D_CALL_FORWARD : w.kind);
}

bool z3d_builder_reads_group(const struct builder *b, int at, int group) {
    if (at >= b->num_work) return false;
    const z3d_unit *unit = &b->program->model->unit[b->work[at].unit];
    const z3d_trace *trace = z3d_builder_trace(b, b->work[at]);
    for (int s = 0; s < unit->num_groups; s++)
        if (unit->group[s] == group && trace->reads_parameters[s]) return true;
    return false;
}

static void append(struct builder *b, z3d_call kind, int unit, int micro, int task) {
    b->work[b->num_work++] = (struct work){kind, unit, micro, task};
}

static void append_backward(struct builder *b, z3d_call kind, int first, int last, int micro,
                            int task) {
    const z3d_program *p = b->program;
    while (last >= first) {
        int from = z3d_builder_recomputes(p, last) ? b->kept_from[last] : last;
        for (int u = from; u <= last && z3d_builder_recomputes(p, last); u++)
            append(b, Z3D_CALL_RECOMPUTE, u, micro, task);
        for (int u = last; u >= from; u--) append(b, kind, u, micro, task);
        last = from - 1;
    }
}

static void append_task(struct builder *b, int task) {
    z3d_task t = b->task[task];
    const z3d_layout *layout = b->program->layout;
    const int first = layout->first_unit[t.chunk], last = layout->first_unit[t.chunk + 1] - 1;
    /* Units before it have no backward. */
    const int backward_end = first < layout->first_trained ? layout->first_trained : first;
    if (t.pass == Z3D_PASS_BACKWARD)
        append_backward(b, Z3D_CALL_BACKWARD, backward_end, last, t.micro, task);
    if (t.pass == Z3D_PASS_BACKWARD_INPUT)
        append_backward(b, Z3D_CALL_BACKWARD_INPUT, backward_end, last, t.micro, task);
    for (int u = last; u >= backward_end && t.pass == Z3D_PASS_BACKWARD_WEIGHT; u--)
        if (has_weight_half(b->program, u)) append(b, Z3D_CALL_BACKWARD_WEIGHT, u, t.micro, task);
    for (int u = first; u <= last && t.pass == Z3D_PASS_FORWARD; u++)
        append(b, Z3D_CALL_FORWARD, u, t.micro, task);
}

/* A schedule with backward in halves needs units that have the halves. */
static z3d_status check_halves(const struct builder *b) {
    const z3d_program *p = b->program;
    bool halves = false;
    for (int task = 0; task < b->num_tasks; task++)
        halves = halves || b->task[task].pass == Z3D_PASS_BACKWARD_INPUT;
    for (int u = 0; u < p->model->num_units && halves; u++)
        if (!p->model->unit[u].ops->backward_halves)
            return Z3D_ERROR(Z3D_ERR_CONFIG,
                             "unit %s has no backward in halves, and this pipeline schedule "
                             "needs it; use %s",
                             p->model->unit[u].name, z3d_schedule_choices(0, true).text);
    return Z3D_OK;
}

z3d_status z3d_builder_order(struct builder *b) {
    const z3d_program *p = b->program;
    const z3d_timetables *all = p->config.pipeline.timetables;
    int units = p->model->num_units, stage = p->layout->stage;
    int64_t runs = 4 * (int64_t)units * p->config.accumulation;
    if (!all) Z3D_TRY(z3d_timetables_create(&p->config, p->layout->stages, &b->timetables));
    if (!all) all = b->timetables;
    b->timetable = p->mode == Z3D_MODE_TRAIN ? &all->train : &all->forward;
    const z3d_schedule *schedule = b->timetable->schedule;
    b->task = schedule->task + schedule->first[stage];
    b->num_tasks = schedule->first[stage + 1] - schedule->first[stage];
    Z3D_TRY(check_halves(b));
    Z3D_TRY(z3d_new((size_t)runs, sizeof *b->work, "order of work", &b->work));
    Z3D_TRY(z3d_new((size_t)units, sizeof *b->kept_from, "order of work", &b->kept_from));
    place_checkpoints(b);
    for (int task = 0; task < b->num_tasks; task++) append_task(b, task);
    return z3d_builder_list_transfers(b);
}
