/* Activation checkpoints: where a recomputed unit's input is kept (ZeRO paper, section 5: P_a,
 * P_a+cpu), and how it comes back. Plain, the checkpoint is the input's own memory. Partitioned
 * over the tensor group, each rank keeps 1/tp of it, and an all-gather brings it back. In host
 * memory, it leaves and returns beside compute, one checkpoint ahead of need. */
#include "zero/build/builder.h"

/* Elements of one rank's part: equal parts, the last one padded. */
static int64_t part_elements(const z3d_program *p, int unit) {
    int64_t elements = z3d_program_output_elements(p, z3d_model_input(p->model, unit, p->mode));
    int64_t ranks = p->config.partition_activations ? z3d_mesh_size(&p->mesh, Z3D_AXES_TENSOR) : 1;
    return (elements + ranks - 1) / ranks;
}

static bool moves(const z3d_program *p) {
    return p->config.partition_activations || p->config.offload_activations;
}

/* One entry that moves a unit's input or parts of it. */
static z3d_instruction *emit(struct builder *b, z3d_opcode opcode, z3d_phase phase, struct work w,
                             int from, int to) {
    z3d_instruction *i = z3d_builder_emit(b, opcode, phase);
    i->unit = w.unit;
    i->micro = w.micro;
    i->count = moves(b->program) ? part_elements(b->program, w.unit) : 0;
    i->buffer[Z3D_SLOT_INPUT] = from;
    i->buffer[Z3D_SLOT_OUTPUT] = to;
    return i;
}

static void emit_transfer(struct builder *b, z3d_opcode opcode, z3d_phase phase, struct work w,
                          int from, int to) {
    emit(b, opcode, phase, w, from, to)->space = Z3D_SPACE_HOST;
}

void z3d_builder_save_input(struct builder *b, struct work w) {
    const z3d_program *p = b->program;
    struct unit_state *unit = &b->unit[w.unit];
    int input = z3d_builder_input(b, w.unit);
    if (input < 0 || !z3d_builder_keeps_input(b, w.unit)) return;
    unit->loaded = -1;
    unit->checkpoint = input;
    if (!moves(p)) {
        emit(b, Z3D_OP_SAVE_INPUT, Z3D_PHASE_WHOLE, w, input, input);
        return;
    }
    int64_t bytes = part_elements(p, w.unit) * (int64_t)z3d_dtype_size(p->config.dtype);
    unit->checkpoint = z3d_builder_buffer(b, Z3D_CATEGORY_ACTIVATIONS, bytes, "checkpoint",
                                          p->model->unit[w.unit].name, w.micro);
    if (b->status != Z3D_OK) return;
    if (!p->config.offload_activations) {
        emit(b, Z3D_OP_SAVE_INPUT, Z3D_PHASE_WHOLE, w, input, unit->checkpoint);
        return;
    }
    b->program->buffer[unit->checkpoint].space = Z3D_SPACE_HOST;
    emit_transfer(b, Z3D_OP_SAVE_INPUT, Z3D_PHASE_START, w, input, unit->checkpoint);
    b->saving = w.unit;
    if (!p->config.overlap)
        z3d_builder_finish_saves(b, (struct work){WORK_BACKWARD, w.unit, w.micro});
}

/* A transfer may take as long as the next unit's forward: then its source is free. */
void z3d_builder_finish_saves(struct builder *b, struct work w) {
    int u = b->saving;
    if (u < 0 || (w.kind == WORK_FORWARD && u >= w.unit)) return;
    emit_transfer(b, Z3D_OP_SAVE_INPUT, Z3D_PHASE_WAIT, (struct work){WORK_FORWARD, u, w.micro},
                  z3d_builder_input(b, u), b->unit[u].checkpoint);
    b->saving = -1;
}

/* Makes room for what comes back and starts its first leg. */
static void start_load(struct builder *b, struct work w) {
    const z3d_program *p = b->program;
    struct unit_state *unit = &b->unit[w.unit];
    int64_t ranks = p->config.partition_activations ? z3d_mesh_size(&p->mesh, Z3D_AXES_TENSOR) : 1;
    int64_t bytes = ranks * part_elements(p, w.unit) * (int64_t)z3d_dtype_size(p->config.dtype);
    unit->loaded = z3d_builder_buffer(b, Z3D_CATEGORY_ACTIVATIONS, bytes, "loaded",
                                      p->model->unit[w.unit].name, w.micro);
    if (p->config.offload_activations) {
        emit_transfer(b, Z3D_OP_LOAD_INPUT, Z3D_PHASE_START, w, unit->checkpoint, unit->loaded);
        unit->fetching = true;
    } else {
        emit(b, Z3D_OP_GATHER_INPUT, Z3D_PHASE_START, w, unit->checkpoint, unit->loaded);
        unit->gathering = true;
    }
}

/* The leg from the host is over; what was split is gathered from here. */
static void finish_fetch(struct builder *b, struct work w) {
    struct unit_state *unit = &b->unit[w.unit];
    if (!unit->fetching) return;
    emit_transfer(b, Z3D_OP_LOAD_INPUT, Z3D_PHASE_WAIT, w, unit->checkpoint, unit->loaded);
    unit->fetching = false;
    if (!b->program->config.partition_activations) return;
    emit(b, Z3D_OP_GATHER_INPUT, Z3D_PHASE_START, w, unit->loaded, unit->loaded);
    unit->gathering = true;
}

static void finish_load(struct builder *b, struct work w) {
    struct unit_state *unit = &b->unit[w.unit];
    finish_fetch(b, w);
    if (unit->gathering)
        emit(b, Z3D_OP_GATHER_INPUT, Z3D_PHASE_WAIT, w,
             b->program->config.offload_activations ? unit->loaded : unit->checkpoint,
             unit->loaded);
    unit->gathering = false;
}

/* Brings unit w.unit's input back to where its recompute reads it. */
void z3d_builder_load_input(struct builder *b, struct work w) {
    struct unit_state *unit = &b->unit[w.unit];
    int source = z3d_model_input(b->program->model, w.unit, b->program->mode);
    if (source < 0 || !z3d_builder_keeps_input(b, w.unit)) return;
    if (!moves(b->program)) {
        emit(b, Z3D_OP_LOAD_INPUT, Z3D_PHASE_WHOLE, w, unit->checkpoint, unit->checkpoint);
        b->unit[source].output = unit->checkpoint;
        return;
    }
    if (unit->loaded < 0) start_load(b, w);
    finish_load(b, w);
    b->unit[source].output = unit->loaded;
}

/* Before a piece of backward work: the next checkpoint below it sets out; its second leg begins
 * before the last backward above it, so that the first has all the work in between. */
void z3d_builder_prefetch_input(struct builder *b, struct work w) {
    if (!moves(b->program) || !b->program->config.overlap) return;
    int from = z3d_builder_recomputes(b->program, w.unit) ? b->kept_from[w.unit] : w.unit;
    int below = from > 0 ? b->kept_from[from - 1] : -1;
    if (below <= 0) return;
    struct work next = {WORK_RECOMPUTE, below, w.micro};
    if (b->unit[below].loaded < 0)
        start_load(b, next);
    else if (b->program->config.partition_activations && w.kind == WORK_BACKWARD &&
             z3d_builder_keeps_input(b, w.unit))
        finish_fetch(b, next);
}
