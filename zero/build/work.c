/* The order of work in a step: for every micro-batch, forward through all units, then backward
 * through all. Each segment of recomputed units is recomputed from its activation checkpoint just
 * before its backward. */
#include <stdlib.h>

#include "zero/build/builder.h"

/* The last unit's backward follows its forward at once: recomputing it would only repeat what is
 * still there. */
bool z3d_builder_recomputes(const z3d_program *p, int unit) {
    return p->mode == Z3D_MODE_TRAIN && p->config.recompute && p->model->unit[unit].checkpoint &&
           !z3d_model_is_last(p->model, unit);
}

/* One unit in `checkpoint_every` of each stretch of recomputed ones keeps its input. */
static void place_checkpoints(struct builder *b) {
    const z3d_program *p = b->program;
    int every = p->config.checkpoint_every > 1 ? p->config.checkpoint_every : 1, kept = -1;
    for (int u = 0, stretch = 0; u < p->model->num_units; u++) {
        stretch = z3d_builder_recomputes(p, u) ? stretch + 1 : 0;
        if (stretch > 0 && (stretch - 1) % every == 0) kept = u;
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
    z3d_call call = Z3D_CALL_FORWARD;
    if (w.kind == WORK_BACKWARD) call = Z3D_CALL_BACKWARD;
    if (w.kind == WORK_RECOMPUTE && !z3d_builder_replays_output(b, w.unit))
        call = Z3D_CALL_RECOMPUTE;
    return z3d_traces_get(p->traces, p->mode, p->model->unit[w.unit].kind, call);
}

bool z3d_builder_reads_group(const struct builder *b, int step, int group) {
    if (step >= b->num_work) return false;
    const z3d_unit *unit = &b->program->model->unit[b->work[step].unit];
    const z3d_trace *trace = z3d_builder_trace(b, b->work[step]);
    for (int s = 0; s < unit->num_groups; s++)
        if (unit->group[s] == group && trace->reads_parameters[s]) return true;
    return false;
}

static void append(struct builder *b, enum work_kind kind, int unit, int micro) {
    b->work[b->num_work++] = (struct work){kind, unit, micro};
}

z3d_status z3d_builder_order(struct builder *b) {
    const z3d_program *p = b->program;
    bool train = p->mode == Z3D_MODE_TRAIN;
    int units = p->model->num_units, micros = train ? p->config.accumulation : 1;
    Z3D_TRY(
        z3d_new(3 * (size_t)units * (size_t)micros, sizeof *b->work, "order of work", &b->work));
    Z3D_TRY(z3d_new((size_t)units, sizeof *b->kept_from, "order of work", &b->kept_from));
    place_checkpoints(b);
    for (int m = 0; m < micros; m++) {
        for (int u = 0; u < units; u++) append(b, WORK_FORWARD, u, m);
        for (int last = units - 1; last >= 0 && train;) {
            int first = z3d_builder_recomputes(p, last) ? b->kept_from[last] : last;
            for (int u = first; u <= last && z3d_builder_recomputes(p, last); u++)
                append(b, WORK_RECOMPUTE, u, m);
            for (int u = last; u >= first; u--) append(b, WORK_BACKWARD, u, m);
            last = first - 1;
        }
    }
    return Z3D_OK;
}
