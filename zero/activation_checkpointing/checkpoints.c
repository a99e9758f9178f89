/* Activation checkpoints: where a recomputed unit's input is kept (ZeRO paper, section 5: P_a,
 * P_a+cpu), and how it comes back. Without options the checkpoint is the input's own memory. With
 * P_a each tensor rank keeps 1/tp of it, and an all-gather restores it. With cpu it moves to host
 * memory and returns beside compute, one checkpoint ahead. With nvme it goes from there to the
 * disk, and leaves the disk two checkpoints ahead. */
#include "src/base/disk.h"
#include "zero/build/builder.h"

static z3d_rows kept_rows(const z3d_program *p) {
    return p->config.partition_activations ? Z3D_ROWS_OWN : Z3D_ROWS_ALL;
}

/* What is kept of a unit's input: rows of this matrix. */
static z3d_matrix matrix(const z3d_program *p, int unit) {
    const z3d_instruction in = {.opcode = Z3D_OP_SAVE_INPUT, .unit = unit, .rows = kept_rows(p)};
    return z3d_instruction_matrix(p, &in);
}

static bool leaves_device(const z3d_program *p) {
    return p->config.checkpoint_space != Z3D_SPACE_DEVICE;
}

static bool on_disk(const z3d_program *p) {
    return p->config.checkpoint_space == Z3D_SPACE_DISK;
}

static bool moves(const z3d_program *p) {
    return p->config.partition_activations || leaves_device(p);
}

/* Room for what is kept of a unit's input. To a disk and back go whole blocks. */
static int kept_buffer(struct builder *b, struct work w, z3d_space space, const char *what) {
    z3d_program *p = b->program;
    const z3d_matrix m = matrix(p, w.unit);
    const int64_t bytes = z3d_bytes_of(m.dtype, m.columns);
    const int buffer = z3d_builder_buffer(b, Z3D_CATEGORY_ACTIVATIONS,
                                          z3d_round_up(bytes, on_disk(p) ? Z3D_DISK_ALIGN : 1),
                                          what, p->model->unit[w.unit].name, w.micro);
    if (buffer < 0) return buffer;
    p->buffer[buffer].rows = kept_rows(p);
    p->buffer[buffer].space = space;
    return buffer;
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

/* ---- there ---- */

/* What is on its way to the disk is there: unless it is on its way back, too, host memory is done
 * with it. */
static void finish_store(struct builder *b) {
    const struct work stored = b->storing;
    if (stored.unit < 0) return;
    struct unit_state *unit = z3d_builder_state(b, stored.unit, stored.micro);
    emit(b, Z3D_OP_SAVE_INPUT, Z3D_PHASE_WAIT, &unit->saving, stored, unit->in_host,
         unit->checkpoint);
    if (unit->loaded < 0) unit->in_host = -1;
    b->storing.unit = -1;
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
    unit->checkpoint = kept_buffer(b, w, p->config.checkpoint_space, "checkpoint");
    if (!leaves_device(p)) {
        emit(b, Z3D_OP_SAVE_INPUT, Z3D_PHASE_WHOLE, NULL, w, input, unit->checkpoint);
        return;
    }
    unit->in_host = on_disk(p) ? kept_buffer(b, w, Z3D_SPACE_HOST, "leaving") : unit->checkpoint;
    emit(b, Z3D_OP_SAVE_INPUT, Z3D_PHASE_START, &unit->saving, w, input, unit->in_host);
    b->saving = w;
    if (p->config.overlap) return;
    z3d_builder_finish_saves(b);
    finish_store(b);
}

/* A transfer may take as long as the next unit's forward: then its source is free. The one to the
 * disk may take until the next one follows. */
void z3d_builder_finish_saves(struct builder *b) {
    const struct work saved = b->saving;
    if (saved.unit < 0) return;
    struct unit_state *unit = z3d_builder_state(b, saved.unit, saved.micro);
    emit(b, Z3D_OP_SAVE_INPUT, Z3D_PHASE_WAIT, &unit->saving, saved,
         z3d_builder_input(b, saved.unit, saved.micro), unit->in_host);
    b->saving.unit = -1;
    if (!on_disk(b->program)) return;
    finish_store(b);
    emit(b, Z3D_OP_SAVE_INPUT, Z3D_PHASE_START, &unit->saving, saved, unit->in_host,
         unit->checkpoint);
    b->storing = saved;
}

/* ---- and back ---- */

/* The leg from the disk, unless it is still in host memory. */
static void stage(struct builder *b, struct work w) {
    struct unit_state *unit = z3d_builder_state(b, w.unit, w.micro);
    if (!on_disk(b->program) || unit->in_host >= 0) return;
    unit->in_host = kept_buffer(b, w, Z3D_SPACE_HOST, "coming");
    emit(b, Z3D_OP_LOAD_INPUT, Z3D_PHASE_START, &unit->fetching, w, unit->checkpoint,
         unit->in_host);
}

/* Makes room for it on the device, and starts the leg to there. */
static void start_load(struct builder *b, struct work w) {
    const z3d_program *p = b->program;
    struct unit_state *unit = z3d_builder_state(b, w.unit, w.micro);
    z3d_matrix m = matrix(p, w.unit);
    int64_t bytes = z3d_bytes_of(m.dtype, m.ranks * m.columns);
    stage(b, w);
    if (unit->fetching >= 0)
        emit(b, Z3D_OP_LOAD_INPUT, Z3D_PHASE_WAIT, &unit->fetching, w, unit->checkpoint,
             unit->in_host);
    unit->loaded = z3d_builder_buffer(b, Z3D_CATEGORY_ACTIVATIONS, bytes, "loaded",
                                      p->model->unit[w.unit].name, w.micro);
    if (leaves_device(p)) {
        emit(b, Z3D_OP_LOAD_INPUT, Z3D_PHASE_START, &unit->fetching, w, unit->in_host,
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
    emit(b, Z3D_OP_LOAD_INPUT, Z3D_PHASE_WAIT, &unit->fetching, w, unit->in_host, unit->loaded);
    unit->fetching = -1;
    if (!b->program->config.partition_activations) return;
    emit(b, Z3D_OP_GATHER_INPUT, Z3D_PHASE_START, &unit->gathering, w, unit->loaded, unit->loaded);
}

static void finish_load(struct builder *b, struct work w) {
    struct unit_state *unit = z3d_builder_state(b, w.unit, w.micro);
    finish_fetch(b, w);
    if (unit->gathering >= 0)
        emit(b, Z3D_OP_GATHER_INPUT, Z3D_PHASE_WAIT, &unit->gathering, w,
             leaves_device(b->program) ? unit->loaded : unit->checkpoint, unit->loaded);
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
    if (b->storing.unit == w.unit && b->storing.micro == w.micro) finish_store(b);
    z3d_builder_state(b, source, w.micro)->output = unit->loaded;
}

/* The next unit below `from` of its chunk whose input is kept, -1: none. */
static int kept_below(const struct builder *b, int from) {
    const z3d_program *p = b->program;
    int below = z3d_layout_begins_chunk(p->layout, from) ? -1 : b->kept_from[from - 1];
    return below < 0 || z3d_model_input(p->model, below, p->mode) < 0 ? -1 : below;
}

/* Before a piece of backward work: the next checkpoint below it sets out; its last leg begins
 * before the last backward above it, so that the others have all the work in between. */
void z3d_builder_prefetch_input(struct builder *b, struct work w) {
    const z3d_program *p = b->program;
    if (!moves(p) || !p->config.overlap) return;
    int from = z3d_builder_recomputes(p, w.unit) ? b->kept_from[w.unit] : w.unit;
    struct work next = {WORK_RECOMPUTE, kept_below(b, from), w.micro, w.task}, second = next;
    if (next.unit < 0) return;
    const struct unit_state *unit = z3d_builder_state(b, next.unit, w.micro);
    if (unit->loaded >= 0) {
        if (p->config.partition_activations && w.kind != WORK_RECOMPUTE &&
            z3d_builder_keeps_input(b, w.unit))
            finish_fetch(b, next);
    } else if (on_disk(p) && unit->in_host < 0) {
        stage(b, next);
    } else {
        start_load(b, next);
    }
    second.unit = kept_below(b, next.unit);
    if (second.unit >= 0) stage(b, second);
}
