/* The program as text, instructions' names for errors and traces, and a program's communication
 * volume. */
#include <stdio.h>
#include <string.h>

#include "zero/program.h"
#include "zero/program/layout.h"

static const char *phase_name(z3d_phase phase) {
    return phase == Z3D_PHASE_START ? "start" : phase == Z3D_PHASE_WAIT ? "wait" : "";
}

/* "block.3" of a unit or a parameter group, "" for neither. */
static const char *subject(const z3d_program *p, const z3d_instruction *in) {
    if (p->model == NULL) return "";
    if (in->unit >= 0 && in->unit < p->model->num_units) return p->model->unit[in->unit].name;
    if (in->group >= 0 && in->group < p->model->num_groups) return p->model->group[in->group].name;
    return "";
}

/* Wrong programs are described, too, so the sum may overflow. */
static void columns_text(const z3d_instruction *in, char *buf, size_t size) {
    uint64_t last = (uint64_t)in->first + (uint64_t)in->count - 1;
    snprintf(buf, size, "%lld-%lld", (long long)in->first, (long long)last);
}

/* Whether the collective is over one part of the data axis. */
static bool is_in_parts(const z3d_program *p, const z3d_instruction *in) {
    return z3d_is_collective(in) && in->group >= 0 && in->group < p->layout->num_groups &&
           in->axes != z3d_opcode_axes(p->layout, in->opcode, in->group);
}

const char *z3d_instruction_describe(const z3d_program *program, int index, char *buf,
                                     size_t size) {
    if (size == 0) return "";
    if (index < 0 || index >= program->num_instructions) {
        snprintf(buf, size, "the end of the program");
        return buf;
    }
    const z3d_instruction *in = &program->instruction[index];
    const char *phase = phase_name(in->phase), *name = subject(program, in);
    char columns[48] = "", micro[32] = "", peer[64] = "";
    if (name[0] && is_in_parts(program, in))
        snprintf(peer, sizeof peer, " over %s", z3d_axes_name(in->axes).text);
    if (in->peer >= 0)
        snprintf(peer, sizeof peer, " %s stage %d",
                 z3d_opcode_info_of(in->opcode)->rules == Z3D_CLASS_SEND ? "to" : "from", in->peer);
    if (in->count > 0) columns_text(in, columns, sizeof columns);
    if (in->micro >= 0) snprintf(micro, sizeof micro, "micro %d", in->micro);
    bool both = columns[0] != 0 && micro[0] != 0, either = columns[0] != 0 || micro[0] != 0;
    snprintf(buf, size, "%s%s%s%s%s%s%s%s%s%s%s%s", phase, phase[0] ? " " : "",
             z3d_opcode_name(in->opcode), name[0] ? " " : "", name, peer, either ? " (" : "", micro,
             both ? ", " : "", columns[0] ? "columns " : "", columns, either ? ")" : "");
    return buf;
}

/* ---- volume ---- */

int64_t z3d_instruction_volume(const z3d_program *program, int index, z3d_axes axes,
                               bool children) {
    const z3d_instruction *in = &program->instruction[index];
    const int size = z3d_mesh_size(&program->mesh, axes);
    int64_t volume = 0, first, count;
    if (in->phase == Z3D_PHASE_WAIT) return 0;
    z3d_instruction_columns(program, in, &first, &count);
    if (z3d_is_collective(in) && in->axes == axes)
        volume += z3d_collective_volume(z3d_instruction_kind(in), count, size);
    for (int c = 0; children && c < in->num_children; c++)
        if (in->child[c].axes == axes && !in->child[c].scalar)
            volume += z3d_collective_volume(in->child[c].kind, in->child[c].count, size);
    return volume;
}

int64_t z3d_program_volume(const z3d_program *program, z3d_axes axes, bool children) {
    int64_t volume = 0;
    for (int i = 0; i < program->num_instructions; i++)
        volume += z3d_instruction_volume(program, i, axes, children);
    return volume;
}

/* ---- print ---- */

static const char *slot_name(int slot, char *buf, size_t size) {
    static const char *const names[] = {"in",     "out",       "out_grad", "in_grad",
                                        "saved",  "workspace", "deferred", "cache",
                                        "params", "grads",     "shard",    "optimizer"};
    _Static_assert(sizeof names / sizeof *names == Z3D_SLOT_COUNT, "a name each");
    if (slot < Z3D_SLOT_COUNT) return names[slot];
    snprintf(buf, size, "%s.%d", names[z3d_slot_role(slot)], z3d_slot_place(slot));
    return buf;
}

/* Bytes that an entry moves: of a matrix, the columns of all members; 0: it moves nothing. */
static int64_t moved_bytes(const z3d_program *p, const z3d_instruction *in) {
    bool matrix = z3d_is_collective(in) && !z3d_is_point_to_point(in) &&
                  z3d_instruction_kind(in) != Z3D_COLLECTIVE_ALL_REDUCE;
    bool copy = z3d_opcode_info_of(in->opcode)->rules == Z3D_CLASS_COPY;
    int64_t first, count;
    if (!z3d_is_collective(in) && !copy) return 0;
    z3d_instruction_columns(p, in, &first, &count);
    const z3d_dtype wire = z3d_instruction_wire(p, in);
    return (matrix ? z3d_mesh_size(&p->mesh, in->axes) : 1) *
           z3d_bytes_of(wire == Z3D_F32 ? z3d_instruction_dtype(p, in) : wire, count);
}

const char *z3d_mode_name(z3d_mode mode) {
    static const char *const names[Z3D_MODE_COUNT] = {"train", "evaluate", "prefill",
                                                      "prefill_short", "decode"};
    return names[mode];
}

static void print_header(const z3d_program *p, z3d_string *out) {
    const z3d_program_config *c = &p->config;
    const z3d_mesh *t = &p->mesh;
    char a[32], b[32], h[32];
    z3d_string_append(out, "step program: %s, ZeRO stage %d, %s", z3d_mode_name(p->mode), c->stage,
                      z3d_dtype_name(c->dtype));
    const bool other = c->grad_dtype != c->dtype, encoded = c->wire != Z3D_F32;
    if (other || encoded)
        z3d_string_append(out, " (gradients %s%s%s%s)", other ? z3d_dtype_name(c->grad_dtype) : "",
                          other && encoded ? ", " : "", encoded ? z3d_dtype_name(c->wire) : "",
                          encoded ? " on the wire" : "");
    z3d_string_append(out, ", %lld samples x %d micro-batches, gradients reduced %s%s%s\n",
                      (long long)c->micro_batch, c->accumulation,
                      c->reduce_per_step ? "once a step" : "every micro-batch",
                      c->recompute ? (c->replay_full ? ", full recompute" : ", recompute") : "",
                      c->overlap ? ", overlapped" : "");
    if (c->offload.delayed && p->mode == Z3D_MODE_TRAIN)
        z3d_string_append(out, "delayed parameter update: the host steps the gradients of the step "
                               "before; parameters change for the next step\n");
    if (z3d_model_splits_rows(p->model, p->mode))
        z3d_string_append(out,
                          "sequence parallel: between its tensor-parallel layers a unit works on "
                          "1/%d of the rows; inputs and activation checkpoints are such parts "
                          "without partition_activations\n",
                          p->layout->tensor_size);
    z3d_string_append(out, "rank %d of %d", t->rank, z3d_mesh_size(t, Z3D_AXES_WORLD));
    z3d_axes axes[Z3D_AXIS_COUNT];
    const int count = z3d_mesh_axes(t, axes);
    for (int i = 0; i < count; i++)
        z3d_string_append(out, "%s %s %d/%d", i ? "," : ":", z3d_axes_name(axes[i]).text,
                          z3d_mesh_index(t, axes[i], t->rank), z3d_mesh_size(t, axes[i]));
    z3d_string_append(out, "\n");
    z3d_string_append(out, "%d instructions, %d buffers; device arena %s (bound %s), host arena %s",
                      p->num_instructions, p->num_buffers,
                      z3d_format_bytes(p->arena[Z3D_SPACE_DEVICE], a, sizeof a),
                      z3d_format_bytes(p->bound[Z3D_SPACE_DEVICE], b, sizeof b),
                      z3d_format_bytes(p->arena[Z3D_SPACE_HOST], h, sizeof h));
    if (p->arena[Z3D_SPACE_DISK] > 0)
        z3d_string_append(out, ", on the disk %s",
                          z3d_format_bytes(p->arena[Z3D_SPACE_DISK], h, sizeof h));
    z3d_string_append(out, "\n");
    z3d_string_append(
        out,
        "\nlegend: start X .. wait X: X runs beside compute; columns: of the group's [%d x shard] "
        "matrix;\n"
        "  bytes: of those columns on all members; slot=buffer@offset in the arena (h: host, d: "
        "disk), + "
        "added to, > kept;\n  indented: collectives inside a unit, in order\n\n",
        p->layout->group[0].rows);
}

/* Whether the instruction adds to the gradients in the slot. */
static bool is_added_to(const z3d_instruction *in, int slot) {
    const z3d_opcode_info *info = z3d_opcode_info_of(in->opcode);
    bool sum = info->rules == Z3D_CLASS_SUM && slot == (int)info->to;
    bool of_unit = info->subject == Z3D_SUBJECT_UNIT && z3d_slot_role(slot) == Z3D_SLOT_GRADIENTS;
    return (sum || of_unit) && z3d_instruction_access(in, slot) == Z3D_ACCESS_UPDATE;
}

/* "  grads=gradients wte@1200+" if the slot is in use. */
static void print_buffer(const z3d_program *p, const z3d_instruction *in, int slot,
                         z3d_string *out) {
    int index = in->buffer[slot];
    char name[32];
    if (index < 0 || index >= p->num_buffers) return;
    const z3d_buffer *b = &p->buffer[index];
    bool kept = slot == Z3D_SLOT_SAVED && in->keep;
    z3d_string_append(out, "  %s=%s@%s%llx%s%s", slot_name(slot, name, sizeof name),
                      z3d_buffer_name(b).text, (const char *const[]){"", "h", "d"}[b->space],
                      (unsigned long long)b->offset, is_added_to(in, slot) ? "+" : "",
                      kept ? ">" : "");
}

static void print_buffers(const z3d_program *p, const z3d_instruction *in, z3d_string *out) {
    for (int role = 0; role < Z3D_SLOT_COUNT; role++) {
        print_buffer(p, in, role, out);
        for (int slot = Z3D_SLOT_COUNT; slot < in->num_slots; slot++)
            if (z3d_slot_role(slot) == (z3d_slot)role) print_buffer(p, in, slot, out);
    }
}

/* Runs of equal collectives on one line: "2 x all_reduce tensor 65536 x bf16". */
static void print_children(const z3d_instruction *in, z3d_string *out) {
    for (int c = 0; c < in->num_children;) {
        const z3d_child *child = &in->child[c];
        int run = 1;
        while (c + run < in->num_children && z3d_child_equal(child, &in->child[c + run])) run++;
        z3d_string_append(out, "%12s%d x %s%s %s %lld x %s%s\n", "", run,
                          z3d_collective_name(child->kind), child->op == Z3D_MAX ? " (max)" : "",
                          z3d_axes_name(child->axes).text, (long long)child->count,
                          z3d_dtype_name(child->dtype), child->scalar ? " (scalar)" : "");
        c += run;
    }
}

/* Without the padding after the last column in use. */
static void append_trimmed(z3d_string *out, const char *line) {
    size_t length = strlen(line);
    while (length > 0 && line[length - 1] == ' ') length--;
    z3d_string_append_bytes(out, line, length);
}

/* Widths of the columns that depend on the program. */
typedef struct widths {
    int opcode, subject;
} widths;

static widths find_widths(const z3d_program *p) {
    widths out = {14, 10};
    for (int i = 0; i < p->num_instructions; i++) {
        int opcode = (int)strlen(z3d_opcode_name(p->instruction[i].opcode));
        int length = (int)strlen(subject(p, &p->instruction[i]));
        if (opcode > out.opcode) out.opcode = opcode;
        if (length > out.subject) out.subject = length;
    }
    return out;
}

static void print_instruction(const z3d_program *p, int index, widths width, z3d_string *out) {
    const z3d_instruction *in = &p->instruction[index];
    char columns[48] = "", bytes[32] = "", micro[16] = "";
    z3d_string line = {0};
    if (in->count > 0) columns_text(in, columns, sizeof columns);
    int64_t moved = moved_bytes(p, in);
    if (moved > 0) z3d_format_bytes(moved, bytes, sizeof bytes);
    if (in->micro >= 0) snprintf(micro, sizeof micro, "%d", in->micro);
    z3d_string_append(&line, "%6d  %-5s %-*s  %-*s  %5s  %17s  %10s", index, phase_name(in->phase),
                      width.opcode, z3d_opcode_name(in->opcode), width.subject, subject(p, in),
                      micro, columns, bytes);
    if (in->peer >= 0) z3d_string_append(&line, "  stage %d", in->peer);
    if (is_in_parts(p, in)) z3d_string_append(&line, "  over %s", z3d_axes_name(in->axes).text);
    if (in->columns > 0)
        z3d_string_append(&line, "  joined, from column %lld of %lld", (long long)in->column,
                          (long long)in->columns);
    print_buffers(p, in, &line);
    if (z3d_opcode_info_of(in->opcode)->rules == Z3D_CLASS_FORWARD && !in->need_output)
        z3d_string_append(&line, "  (without output)");
    append_trimmed(out, line.text ? line.text : "");
    z3d_string_append(out, "\n");
    out->failed |= line.failed;
    z3d_string_free(&line);
    print_children(in, out);
}

void z3d_program_print(const z3d_program *program, z3d_string *out) {
    widths width = find_widths(program);
    print_header(program, out);
    z3d_string_append(out, "%6s  %-5s %-*s  %-*s  %5s  %17s  %10s  %s\n", "#", "", width.opcode,
                      "instruction", width.subject, "subject", "micro", "columns", "bytes",
                      "buffers");
    for (int i = 0; i < program->num_instructions; i++) print_instruction(program, i, width, out);
}
