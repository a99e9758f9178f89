/* Activation checkpoints: where a recomputed unit's input is kept (ZeRO paper, section 5: P_a,
 * P_a+cpu), and how it comes back. Without options the checkpoint is the input's own memory. With
 * P_a each tensor rank keeps 1/tp of it, and an all-gather restores it. With cpu it is copied to
 * host memory, and comes back beside compute, one checkpoint ahead of its use. With nvme it goes
 * from host memory to the disk; its read from the disk starts two checkpoints ahead. */
#include "src/base/disk.h"
#include "zero/build/builder.h"

static z3d_rows kept_rows(const z3d_program *p) {
    return p->config.partition_activations ? Z3D_ROWS_OWN : Z3D_ROWS_ALL;
}

/* The matrix of a unit's input whose rows are kept. */
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

/* A buffer for a unit's kept input. Disk transfers use whole blocks. */
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

static struct unit_state *state_of(const struct builder *b, struct work w) {
    return z3d_builder_state(b, w.unit, w.micro);
}

static struct kept_input *kept_of(const struct builder *b, struct work w) {
    return &b->input[state_of(b, w)->kept];
}

/* ---- saving ---- */

/* Waits for the transfer to the disk. If the input's load has begun, its buffer in host memory
 * stays in use. */
static void finish_store(struct builder *b) {
    if (b->storing.unit < 0) return;
    z3d_builder_advance(b, &kept_of(b, b->storing)->save, ARRIVED);
    if (!kept_of(b, b->storing)->loads) state_of(b, b->storing)->in_host = -1;
    b->storing.unit = -1;
}

void z3d_builder_save_input(struct builder *b, struct work w) {
    const z3d_program *p = b->program;
    struct unit_state *unit = state_of(b, w);
    const int input = z3d_builder_input(b, w.unit, w.micro);
    if (input < 0 || !z3d_builder_keeps_input(b, w.unit)) return;
    const int kept = moves(p) ? kept_buffer(b, w, p->config.checkpoint_space, "checkpoint") : input;
    const int64_t count = moves(p) ? matrix(p, w.unit).columns : 0;
    const struct subject subject = {w.unit, w.micro, -1, kept_rows(p), 0, count};
    struct kept_input *of = z3d_builder_keep(b, unit);
    of->save = z3d_builder_route(subject, leaves_device(p) ? input : kept);
    if (!leaves_device(p)) {
        z3d_builder_move(b, Z3D_OP_SAVE_INPUT, Z3D_PHASE_WHOLE, NULL, of->save.subject, input,
                         kept);
        return;
    }
    unit->in_host = on_disk(p) ? kept_buffer(b, w, Z3D_SPACE_HOST, "leaving") : kept;
    z3d_builder_extend(&of->save, Z3D_OP_SAVE_INPUT, unit->in_host);
    z3d_builder_extend(&of->save, Z3D_OP_SAVE_INPUT, kept);
    z3d_builder_advance(b, &of->save, of->save.left - 1);
    b->saving = w;
    if (p->config.overlap) return;
    z3d_builder_finish_saves(b);
    finish_store(b);
}

/* A copy to the host may take as long as the next unit's forward; after it its source is free. A
 * transfer to the disk may take until the next such transfer starts. */
void z3d_builder_finish_saves(struct builder *b) {
    const struct work saved = b->saving;
    if (saved.unit < 0) return;
    struct route *save = &kept_of(b, saved)->save;
    z3d_builder_advance(b, save, save->left - 1);
    b->saving.unit = -1;
    if (!on_disk(b->program)) return;
    finish_store(b);
    z3d_builder_advance(b, save, ON_LAST_LEG);
    b->storing = saved;
}

/* ---- loading ---- */

/* The route back: from the input's place through host memory to the device; P_a adds a gather. */
static void begin_load(struct builder *b, struct work w) {
    const z3d_program *p = b->program;
    struct unit_state *unit = state_of(b, w);
    struct kept_input *of = kept_of(b, w);
    const z3d_matrix m = matrix(p, w.unit);
    const bool from_disk = on_disk(p) && unit->in_host < 0;
    if (of->loads) return;
    if (from_disk) unit->in_host = kept_buffer(b, w, Z3D_SPACE_HOST, "coming");
    of->load = z3d_builder_route(of->save.subject, from_disk || !leaves_device(p)
                                                       ? z3d_builder_end(&of->save)
                                                       : unit->in_host);
    const int loaded =
        z3d_builder_buffer(b, Z3D_CATEGORY_ACTIVATIONS, z3d_bytes_of(m.dtype, m.ranks * m.columns),
                           "loaded", p->model->unit[w.unit].name, w.micro);
    if (leaves_device(p)) {
        z3d_builder_extend(&of->load, Z3D_OP_LOAD_INPUT, unit->in_host);
        z3d_builder_extend(&of->load, Z3D_OP_LOAD_INPUT, loaded);
    }
    if (p->config.partition_activations) z3d_builder_extend(&of->load, Z3D_OP_GATHER_INPUT, loaded);
    of->loads = true;
}

/* The starts and waits that a load still has while its copy to the device (without offload: its
 * gather) is under way. */
static int under_way(const z3d_program *p) {
    return p->config.partition_activations && leaves_device(p) ? ON_LEG_BEFORE : ON_LAST_LEG;
}

/* Starts the copy from the disk, unless the input is still in host memory. */
static void stage(struct builder *b, struct work w) {
    if (!on_disk(b->program) || state_of(b, w)->in_host >= 0) return;
    begin_load(b, w);
    z3d_builder_advance(b, &kept_of(b, w)->load, under_way(b->program) + 2);
}

void z3d_builder_load_input(struct builder *b, struct work w) {
    struct kept_input *of = kept_of(b, w);
    int source = z3d_model_input(b->program->model, w.unit, b->program->mode);
    if (source < 0 || !z3d_builder_keeps_input(b, w.unit)) return;
    struct unit_state *read = z3d_builder_state(b, source, w.micro);
    if (!moves(b->program)) {
        read->output = z3d_builder_end(&of->save);
        z3d_builder_move(b, Z3D_OP_LOAD_INPUT, Z3D_PHASE_WHOLE, NULL, of->save.subject,
                         read->output, read->output);
        return;
    }
    begin_load(b, w);
    z3d_builder_advance(b, &of->load, ARRIVED);
    if (b->storing.unit == w.unit && b->storing.micro == w.micro) finish_store(b);
    read->output = z3d_builder_end(&of->load);
}

/* The last unit before `from`, in its chunk, that keeps its input and has one; -1: none. */
static int kept_below(const struct builder *b, int from) {
    const z3d_program *p = b->program;
    int below = z3d_layout_begins_chunk(p->layout, from) ? -1 : b->kept_from[from - 1];
    return below < 0 || z3d_model_input(p->model, below, p->mode) < 0 ? -1 : below;
}

/* Before backward work: starts the load of the checkpoint before this unit's. Its last leg starts
 * before the last backward that comes before its use. The others have all the work until then. */
void z3d_builder_prefetch_input(struct builder *b, struct work w) {
    const z3d_program *p = b->program;
    if (!moves(p) || !p->config.overlap) return;
    int from = z3d_builder_recomputes(p, w.unit) ? b->kept_from[w.unit] : w.unit;
    struct work next = {Z3D_CALL_RECOMPUTE, kept_below(b, from), w.micro, w.task}, second = next;
    if (next.unit < 0) return;
    struct kept_input *of = kept_of(b, next);
    if (!of->loads && on_disk(p) && state_of(b, next)->in_host < 0) {
        stage(b, next);
    } else {
        const bool last = of->loads && of->load.left <= under_way(p) &&
                          w.kind != Z3D_CALL_RECOMPUTE && z3d_builder_keeps_input(b, w.unit);
        begin_load(b, next);
        z3d_builder_advance(b, &of->load, last ? ON_LAST_LEG : under_way(p));
    }
    second.unit = kept_below(b, next.unit);
    if (second.unit >= 0) stage(b, second);
}
