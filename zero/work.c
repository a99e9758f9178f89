/* The order of work in a step: for every micro-batch forward through all units, then backward
 * through all, each stretch of recomputed units replayed from its checkpoint just before its
 * backward. */
#include <stdlib.h>

#include "zero/builder.h"

/* The last unit's backward follows its forward at once: recomputing it would only repeat what is
 * still there. */
bool z3d_builder_recomputes(const z3d_program *p, int unit) {
    return p->mode == Z3D_MODE_TRAIN && p->config.recompute && p->model->unit[unit].checkpoint &&
           unit != p->model->num_units - 1;
}

bool z3d_builder_keeps_input(const z3d_program *p, int unit) {
    int first = unit, every = p->config.checkpoint_every > 1 ? p->config.checkpoint_every : 1;
    if (!z3d_builder_recomputes(p, unit)) return false;
    while (first > 0 && z3d_builder_recomputes(p, first - 1)) first--;
    return (unit - first) % every == 0;
}

bool z3d_builder_replays_output(const z3d_program *p, int unit) {
    return p->config.replay_full ||
           (z3d_builder_recomputes(p, unit + 1) && !z3d_builder_keeps_input(p, unit + 1));
}

const z3d_trace *z3d_builder_trace(const z3d_program *p, struct work w) {
    z3d_call call = Z3D_CALL_FORWARD;
    if (w.kind == WORK_BACKWARD) call = Z3D_CALL_BACKWARD;
    if (w.kind == WORK_RECOMPUTE && !z3d_builder_replays_output(p, w.unit))
        call = Z3D_CALL_RECOMPUTE;
    return z3d_traces_get(p->traces, p->mode, p->model->unit[w.unit].kind, call);
}

bool z3d_builder_reads_group(const struct builder *b, int step, int group) {
    if (step >= b->num_work) return false;
    const z3d_unit *unit = &b->program->model->unit[b->work[step].unit];
    const z3d_trace *trace = z3d_builder_trace(b->program, b->work[step]);
    for (int s = 0; s < unit->num_groups; s++)
        if (unit->group[s] == group && trace->reads_parameters[s]) return true;
    return false;
}

int64_t z3d_builder_output_bytes(const z3d_program *p, int unit) {
    int64_t samples = p->mode == Z3D_MODE_GENERATE ? 1 : p->config.micro_batch;
    return samples * p->model->unit[unit].output_elements[p->mode] *
           (int64_t)z3d_dtype_size(p->config.dtype);
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
    for (int m = 0; m < micros; m++) {
        for (int u = 0; u < units; u++) append(b, WORK_FORWARD, u, m);
        for (int last = units - 1; last >= 0 && train;) {
            int first = last;
            if (z3d_builder_recomputes(p, last))
                while (!z3d_builder_keeps_input(p, first)) first--;
            for (int u = first; u <= last && z3d_builder_recomputes(p, last); u++)
                append(b, WORK_RECOMPUTE, u, m);
            for (int u = last; u >= first; u--) append(b, WORK_BACKWARD, u, m);
            last = first - 1;
        }
    }
    return Z3D_OK;
}
