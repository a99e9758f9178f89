/* Activation checkpoints: where a recomputed unit's input is kept (ZeRO paper, section 5: P_a,
 * P_a+cpu), and how it comes back. Without options the checkpoint is the input's own memory. With
 * P_a each tensor rank keeps 1/tp of it, and an all-gather restores it. With cpu it moves to host
 * memory and returns beside compute, one checkpoint ahead. */
#include "zero/build/builder.h"

static z3d_rows kept_rows(const z3d_program *p) {
    return p->config.partition_activations ? Z3D_ROWS_OWN : Z3D_ROWS_ALL;
}

/* What is kept of a unit's input: rows of this matrix. */
static z3d_matrix matrix(const z3d_program *p, int unit) {
    const z3d_instruction in = {.opcode = Z3D_OP_SAVE_INPUT, .unit = unit, .rows = kept_rows(p)};
    return z3d_instruction_matrix(p, &in);
}

static bool moves(const z3d_program *p) {
    return p->config.partition_activations || p->config.offload_activations;
}

/* One entry that moves a unit's input or parts of it. */
static void emit(struct builder *b, z3d_opcode opcode, z3d_phase phase, int *ticket, struct work w,
                 int from, int to) {
    z3d_instruction *i = z3d_builder_emit(b, opcode, phase, ticket);
    i->unit = w.unit;
    i->micro = w.micro;
    i->rows = kept_rows(b->program);
    i->count = moves(b->program) ? matrix(b->program, w.unit).columns : 0;
    i->buffer[Z3D_SLOT_INPUT] = from;
    i->buffer[Z3D_SLOT_OUTPUT] = to;
}

void z3d_builder_save_input(struct builder *b, struct work w) {
    const z3d_program *p = b->program;
    struct unit_state *unit = z3d_builder_state(b, w.unit, w.micro);
    int input = z3d_builder_input(b, w.unit, w.micro);
    if (input < 0 || !z3d_builder_keeps_input(b, w.unit)) return;
    unit->loaded = -1;
    unit->checkpoint = input;
    if (!moves(p)) {
        emit(b, Z3D_OP_SAVE_INPUT, Z3D_PHASE_WHOLE, NULL, w, input, input);
        return;
    }
    z3d_matrix m = matrix(p, w.unit);
    int64_t bytes = m.columns * (int64_t)z3d_dtype_size(m.dtype);
    unit->checkpoint = z3d_builder_buffer(b, Z3D_CATEGORY_ACTIVATIONS, bytes, "checkpoint",
                                          p->model->unit[w.unit].name, w.micro);
    if (b->status != Z3D_OK) return;
    b->program->buffer[unit->checkpoint].rows = kept_rows(p);
    if (!p->config.offload_activations) {
        emit(b, Z3D_OP_SAVE_INPUT, Z3D_PHASE_WHOLE, NULL, w, input, unit->checkpoint);
        return;
    }
    b->program->buffer[unit->checkpoint].space = Z3D_SPACE_HOST;
    emit(b, Z3D_OP_SAVE_INPUT, Z3D_PHASE_START, &unit->saving, w, input, unit->checkpoint);
    b->saving = w;
    if (!p->config.overlap) z3d_builder_finish_saves(b);
}

/* A transfer may take as long as the next unit's forward: then its source is free. */
void z3d_builder_finish_saves(struct builder *b) {
    struct work saved = b->saving;
    if (saved.unit < 0) return;
    struct unit_state *unit = z3d_builder_state(b, saved.unit, saved.micro);
    emit(b, Z3D_OP_SAVE_INPUT, Z3D_PHASE_WAIT, &unit->saving, saved,
         z3d_builder_input(b, saved.unit, saved.micro), unit->checkpoint);
    b->saving.unit = -1;
}

/* Makes room for what comes back and starts its first leg. */
static void start_load(struct builder *b, struct work w) {
    const z3d_program *p = b->program;
    struct unit_state *unit = z3d_builder_state(b, w.unit, w.micro);
    z3d_matrix m = matrix(p, w.unit);
    int64_t bytes = m.ranks * m.columns * (int64_t)z3d_dtype_size(m.dtype);
    unit->loaded = z3d_builder_buffer(b, Z3D_CATEGORY_ACTIVATIONS, bytes, "loaded",
                                      p->model->unit[w.unit].name, w.micro);
    if (p->config.offload_activations) {
        emit(b, Z3D_OP_LOAD_INPUT, Z3D_PHASE_START, &unit->fetching, w, unit->checkpoint,
             unit->loaded);
    } else {
        emit(b, Z3D_OP_GATHER_INPUT, Z3D_PHASE_START, &unit->gathering, w, unit->checkpoint,
             unit->loaded);
    }
}

/* The leg from the host is over; what was split is gathered from here. */
static void finish_fetch(struct builder *b, struct work w) {
    struct unit_state *unit = z3d_builder_state(b, w.unit, w.micro);
    if (unit->fetching < 0) return;
    emit(b, Z3D_OP_LOAD_INPUT, Z3D_PHASE_WAIT, &unit->fetching, w, unit->checkpoint, unit->loaded);
    unit->fetching = -1;
    if (!b->program->config.partition_activations) return;
    emit(b, Z3D_OP_GATHER_INPUT, Z3D_PHASE_START, &unit->gathering, w, unit->loaded, unit->loaded);
}

static void finish_load(struct builder *b, struct work w) {
    struct unit_state *unit = z3d_builder_state(b, w.unit, w.micro);
    finish_fetch(b, w);
    if (unit->gathering >= 0)
        emit(b, Z3D_OP_GATHER_INPUT, Z3D_PHASE_WAIT, &unit->gathering, w,
             b->program->config.offload_activations ? unit->loaded : unit->checkpoint,
             unit->loaded);
    unit->gathering = -1;
}

/* Brings unit w.unit's input back to where its recompute reads it. */
void z3d_builder_load_input(struct builder *b, struct work w) {
    struct unit_state *unit = z3d_builder_state(b, w.unit, w.micro);
    int source = z3d_model_input(b->program->model, w.unit, b->program->mode);
    if (source < 0 || !z3d_builder_keeps_input(b, w.unit)) return;
    if (!moves(b->program)) {
        emit(b, Z3D_OP_LOAD_INPUT, Z3D_PHASE_WHOLE, NULL, w, unit->checkpoint, unit->checkpoint);
        z3d_builder_state(b, source, w.micro)->output = unit->checkpoint;
        return;
    }
    if (unit->loaded < 0) start_load(b, w);
    finish_load(b, w);
    z3d_builder_state(b, source, w.micro)->output = unit->loaded;
}

/* Before a piece of backward work: the next checkpoint below it sets out; its second leg begins
 * before the last backward above it, so that the first has all the work in between. */
void z3d_builder_prefetch_input(struct builder *b, struct work w) {
    if (!moves(b->program) || !b->program->config.overlap) return;
    int from = z3d_builder_recomputes(b->program, w.unit) ? b->kept_from[w.unit] : w.unit;
    const z3d_program *p = b->program;
    int below = z3d_layout_begins_chunk(p->layout, from) ? -1 : b->kept_from[from - 1];
    if (below < 0 || z3d_model_input(p->model, below, p->mode) < 0) return;
    struct work next = {WORK_RECOMPUTE, below, w.micro, w.task};
    if (z3d_builder_state(b, below, w.micro)->loaded < 0)
        start_load(b, next);
    else if (b->program->config.partition_activations && w.kind != WORK_RECOMPUTE &&
             z3d_builder_keeps_input(b, w.unit))
        finish_fetch(b, next);
}
