/* The verifier's simple checks: indices are in range, persistent buffers are as the layout says,
 * and buffers that are alive at the same time do not overlap. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/disk.h"
#include "zero/plan_memory/packer.h"
#include "zero/program/layout.h"
#include "zero/verify/verifier.h"

/* Refuses an entry as z3d_flow_fail does; there is no symbolic run yet. */
#define FAIL_ENTRY(p, index, ...)                                                                  \
    z3d_flow_fail(&(const z3d_flow){.program = (p), .at = (index)}, __VA_ARGS__)

static z3d_status bad_entry(const z3d_program *p, int index, const char *what, long long value,
                            long long limit) {
    return FAIL_ENTRY(p, index, "%s is %lld, but must be 0 to %lld", what, value, limit - 1);
}

static z3d_status check_columns(const z3d_program *p, int index) {
    const z3d_instruction *in = &p->instruction[index];
    int64_t shard = z3d_instruction_matrix(p, in).columns;
    if (in->first >= 0 && in->count > 0 && in->count <= shard && in->first <= shard - in->count)
        return Z3D_OK;
    return FAIL_ENTRY(p, index,
                      "it has %lld columns from column %lld, but its matrix has columns 0 to %lld",
                      (long long)in->count, (long long)in->first, (long long)shard - 1);
}

/* Whether `in` follows `before` in a joined collective: its columns follow the other's. */
static bool follows(const z3d_instruction *in, const z3d_instruction *before) {
    return in->opcode == before->opcode && in->phase == before->phase && in->axes == before->axes &&
           in->micro == before->micro && in->columns == before->columns &&
           in->column == before->column + before->count &&
           in->buffer[Z3D_SLOT_WORKSPACE] == before->buffer[Z3D_SLOT_WORKSPACE];
}

/* Entries of a joined collective follow each other; each has all columns of its own matrix. */
static z3d_status check_joined(const z3d_program *p, int index) {
    const z3d_instruction *in = &p->instruction[index];
    const bool first = in->column == 0, last = in->column + in->count == in->columns;
    if (in->column == 0 && in->columns == 0) return Z3D_OK;
    if (z3d_is_collective(in) && z3d_instruction_has_columns(in) &&
        in->count == z3d_instruction_matrix(p, in).columns && in->columns > 0 &&
        (first || (index > 0 && follows(in, in - 1))) &&
        (last || (index + 1 < p->num_instructions && follows(in + 1, in))))
        return Z3D_OK;
    return FAIL_ENTRY(
        p, index,
        "it has %lld columns from column %lld of %lld in a joined collective, but its "
        "neighbours or its own matrix do not fit",
        (long long)in->count, (long long)in->column, (long long)in->columns);
}

/* An entry moves one rank's part of a unit's input or of its gradient, or the whole. */
static z3d_status check_part(const z3d_program *p, int index) {
    const z3d_instruction *in = &p->instruction[index];
    const z3d_opcode_info *info = z3d_opcode_info_of(in->opcode);
    bool stays = info->rules == Z3D_CLASS_COPY && in->buffer[info->from] == in->buffer[info->to];
    if (z3d_instruction_source(p, in) < 0) return FAIL_ENTRY(p, index, "the unit has no input");
    bool gathers = z3d_is_collective(in) && !z3d_is_point_to_point(in);
    if (in->rows != Z3D_ROWS_OWN && (in->rows != Z3D_ROWS_ALL || gathers))
        return FAIL_ENTRY(p, index, "rows is %d, but must be Z3D_ROWS_OWN%s", (int)in->rows,
                          gathers ? "" : " or Z3D_ROWS_ALL");
    int64_t part = z3d_instruction_matrix(p, in).columns;
    if ((in->first == 0 && in->count == part) || (stays && in->count == 0)) return Z3D_OK;
    return FAIL_ENTRY(p, index,
                      "it moves %lld elements from element %lld, but the part has %lld elements",
                      (long long)in->count, (long long)in->first, (long long)part);
}

/* Fields that the instruction's class does not use have the builder's defaults: the executor may
 * read them. */
static z3d_status check_idle_fields(const z3d_program *p, int index, bool columns) {
    const z3d_instruction *in = &p->instruction[index];
    z3d_opcode_class rules = z3d_opcode_info_of(in->opcode)->rules;
    bool adds =
        rules == Z3D_CLASS_BACKWARD || rules == Z3D_CLASS_BACKWARD_WEIGHT || rules == Z3D_CLASS_SUM;
    bool forward = rules == Z3D_CLASS_FORWARD;
    const char *what = NULL;
    if (!z3d_is_point_to_point(in) && in->peer != -1) what = "a peer";
    if (!columns && (in->first != 0 || in->count != 0)) what = "columns";
    if (!adds && in->accumulate != 0) what = "gradients to add to";
    if (!forward && (in->keep || in->need_output)) what = "an output or saved memory to keep";
    return what ? FAIL_ENTRY(p, index, "it cannot have %s", what) : Z3D_OK;
}

/* An entry that runs a unit has slots for all its groups. */
static z3d_status check_slots(const z3d_program *p, int index) {
    const z3d_instruction *in = &p->instruction[index];
    const z3d_opcode_info *info = z3d_opcode_info_of(in->opcode);
    const bool runs = info->subject == Z3D_SUBJECT_UNIT && info->moves == Z3D_MOVES_NONE;
    const int slots = z3d_slots_with(runs ? p->model->unit[in->unit].num_groups : 1);
    if (in->num_slots == slots) return Z3D_OK;
    return FAIL_ENTRY(p, index, "it has %d slots, but must have %d", in->num_slots, slots);
}

static z3d_status check_entry(const z3d_program *p, int index) {
    const z3d_instruction *in = &p->instruction[index];
    const z3d_opcode_info *info = z3d_opcode_info_of(in->opcode);
    bool unit = info->subject == Z3D_SUBJECT_UNIT, group = info->subject == Z3D_SUBJECT_GROUP;
    bool matrix = z3d_instruction_has_columns(in);
    int units = p->model->num_units, groups = p->model->num_groups;
    int micros = p->mode == Z3D_MODE_TRAIN ? p->config.accumulation : 1;
    if ((unsigned)in->opcode >= Z3D_OPCODE_COUNT)
        return bad_entry(p, index, "the opcode", in->opcode, Z3D_OPCODE_COUNT);
    if ((unsigned)in->phase > Z3D_PHASE_WAIT) return bad_entry(p, index, "phase", in->phase, 3);
    if (z3d_communicates(in) && !z3d_axes_have_group(&p->mesh, in->axes))
        return FAIL_ENTRY(p, index, "no process group is over axes %s",
                          z3d_axes_name(in->axes).text);
    if (in->phase != Z3D_PHASE_WHOLE && (in->ticket < 0 || in->ticket >= p->num_tickets))
        return bad_entry(p, index, "ticket", in->ticket, p->num_tickets);
    if (unit && (in->unit < 0 || in->unit >= units))
        return bad_entry(p, index, "unit", in->unit, units);
    if (group && (in->group < 0 || in->group >= groups))
        return bad_entry(p, index, "group", in->group, groups);
    if (z3d_is_point_to_point(in) && (in->peer < 0 || in->peer >= p->layout->stages))
        return bad_entry(p, index, "peer", in->peer, p->layout->stages);
    if (unit && (in->micro < 0 || in->micro >= micros))
        return bad_entry(p, index, "micro-batch", in->micro, micros);
    Z3D_TRY(check_slots(p, index));
    for (int s = 0; s < in->num_slots; s++) {
        if (in->buffer[s] < -1 || in->buffer[s] >= p->num_buffers)
            return FAIL_ENTRY(p, index, "its %s is buffer %d, but must be -1 (none) to %d",
                              z3d_slot_text(s), in->buffer[s], p->num_buffers - 1);
        if (in->buffer[s] >= 0 && z3d_instruction_access(in, s) == Z3D_ACCESS_NONE)
            return FAIL_ENTRY(p, index, "it cannot have a buffer for its %s", z3d_slot_text(s));
    }
    Z3D_TRY(check_idle_fields(p, index, matrix || z3d_moves_input(info->moves)));
    Z3D_TRY(check_joined(p, index));
    if (z3d_moves_input(info->moves)) return check_part(p, index);
    return matrix ? check_columns(p, index) : Z3D_OK;
}

z3d_status z3d_verify_indices(const z3d_program *program) {
    for (int i = 0; i < program->num_instructions; i++) Z3D_TRY(check_entry(program, i));
    return Z3D_OK;
}

/* ---- persistent buffers ---- */

static const char *rows_text(z3d_rows rows) {
    return rows == Z3D_ROWS_ALL ? "all rows" : rows == Z3D_ROWS_BLOCK ? "its block" : "the own row";
}

static z3d_status check_persistent(const z3d_program *p, int index, const char *what, int group,
                                   z3d_rows rows, z3d_space space, int64_t bytes) {
    const z3d_buffer *b = &p->buffer[index];
    if (b->persistent && b->first == 0 && b->last == INT_MAX && b->bytes == bytes &&
        b->space == space && b->first_column == 0 && b->group == group && b->rows == rows)
        return Z3D_OK;
    return Z3D_ERROR(Z3D_ERR_PROGRAM,
                     "buffer %d, %s, has %lld bytes (%s) of group %d, but must be %s: persistent, "
                     "%s, with %lld bytes (%s) of group %d",
                     index, z3d_buffer_name(b).text, (long long)b->bytes, rows_text(b->rows),
                     b->group, what, z3d_space_text(space), (long long)bytes, rows_text(rows),
                     group);
}

/* The same for a buffer on the device that is no state. */
static z3d_status check_plain(const z3d_program *p, int index, const char *what, int64_t bytes) {
    return check_persistent(p, index, what, -1, Z3D_ROWS_ALL, Z3D_SPACE_DEVICE, bytes);
}

static z3d_status check_group_buffers(const z3d_program *p, int group) {
    for (int role = 0; role < z3d_state_classes(&p->config); role++)
        Z3D_TRY(check_persistent(p, z3d_program_group_buffer(p, group, (z3d_state_role)role),
                                 z3d_state_class_of(&p->config, role)->name, group,
                                 z3d_state_rows(p->layout, group, (z3d_state_role)role),
                                 p->layout->group[group].state[role].at.space,
                                 z3d_state_bytes(p->layout, group, (z3d_state_role)role)));
    return Z3D_OK;
}

static z3d_status check_persistents(const z3d_program *p) {
    int groups = p->model->num_groups, fields = p->model->num_fields;
    int needed = z3d_program_cache_buffer(p, z3d_mode_generates(p->mode) ? p->model->num_units : 0);
    if (p->num_buffers < needed) {
        return Z3D_ERROR(Z3D_ERR_PROGRAM,
                         "the program has %d buffers, but needs at least its %d persistent ones",
                         p->num_buffers, needed);
    }
    Z3D_TRY(check_plain(p, Z3D_BUFFER_STATE, "the step state", sizeof(z3d_step_state)));
    Z3D_TRY(check_plain(p, Z3D_BUFFER_CONTROL, "the control vector",
                        8 * z3d_control_capacity(p->layout)));
    Z3D_TRY(check_plain(p, Z3D_BUFFER_SCRATCH, "the kernels' scratch",
                        z3d_traces_scratch(p->traces, p->model, p->layout)));
    for (int m = 0; m < p->config.accumulation; m++)
        for (int f = 0; f < fields; f++)
            Z3D_TRY(check_plain(p, z3d_program_batch_buffer(p, m, f), "the batch",
                                z3d_program_batch_bytes(p, m, f)));
    for (int g = 0; g < groups; g++) Z3D_TRY(check_group_buffers(p, g));
    for (int u = 0; u < p->model->num_units && z3d_mode_generates(p->mode); u++)
        Z3D_TRY(check_plain(p, z3d_program_cache_buffer(p, u), "its cache",
                            z3d_program_cache_bytes(p, u)));
    for (int i = needed; i < p->num_buffers; i++)
        if (p->buffer[i].persistent)
            return Z3D_ERROR(Z3D_ERR_PROGRAM,
                             "buffer %d, %s, is persistent, but no state is kept in it", i,
                             z3d_buffer_name(&p->buffer[i]).text);
    return Z3D_OK;
}

/* ---- addresses ---- */

static z3d_status check_lifetimes(const z3d_program *p) {
    for (int i = 0; i < p->num_buffers; i++) {
        const z3d_buffer *b = &p->buffer[i];
        bool lives = b->persistent
                         ? b->first == 0 && b->last == INT_MAX
                         : b->first >= 0 && b->first <= b->last && b->last < p->num_instructions;
        bool rows = b->rows == Z3D_ROWS_OWN || b->rows == Z3D_ROWS_BLOCK || b->rows == Z3D_ROWS_ALL;
        if (!lives || !rows || b->bytes < 0 || (unsigned)b->space >= Z3D_SPACE_COUNT) {
            return Z3D_ERROR(Z3D_ERR_PROGRAM,
                             "buffer %d, %s: %lld bytes, alive from entry %d to %d; the program "
                             "has entries 0 to %d",
                             i, z3d_buffer_name(b).text, (long long)b->bytes, b->first, b->last,
                             p->num_instructions - 1);
        }
    }
    return Z3D_OK;
}

/* The disk and host memory exchange whole blocks. */
static int alignment(const z3d_program *p, z3d_space space) {
    bool blocks = space != Z3D_SPACE_DEVICE && p->arena[Z3D_SPACE_DISK] > 0;
    return blocks ? Z3D_DISK_ALIGN : Z3D_PACK_ALIGN;
}

static int64_t extent(const z3d_program *p, const z3d_buffer *b) {
    int align = alignment(p, b->space);
    return align == Z3D_DISK_ALIGN ? z3d_round_up(b->bytes, align) : b->bytes;
}

static z3d_status check_place(const z3d_program *p, int index) {
    const z3d_buffer *b = &p->buffer[index];
    const int64_t arena = p->arena[b->space], bytes = extent(p, b);
    const int align = alignment(p, b->space);
    if (b->offset >= 0 && b->offset % align == 0 && bytes <= arena && b->offset <= arena - bytes)
        return Z3D_OK;
    return Z3D_ERROR(Z3D_ERR_PROGRAM,
                     "buffer %d, %s: %lld bytes at %lld; the arena has %lld bytes, and offsets "
                     "must be multiples of %d",
                     index, z3d_buffer_name(b).text, (long long)bytes, (long long)b->offset,
                     (long long)arena, align);
}

/* Buffers in the orders of birth, of death and of addresses. `alive` is a tree over the order of
 * addresses: a node says whether a buffer below it is alive at the moment. */
typedef struct sweep {
    const z3d_program *program;
    int *birth, *death, *address; /* buffers in these orders */
    int *place;                   /* by buffer: its place in `address` */
    bool *alive;                  /* the tree: node 1 is the root, leaves begin at `leaves` */
    int count, dead, leaves;
} sweep;

typedef enum key { BIRTH, DEATH, ADDRESS } key;

typedef struct sorting {
    const z3d_buffer *buffer;
    key by;
} sorting;

static int64_t key_of(const z3d_buffer *b, key by) {
    return by == BIRTH ? b->first : by == DEATH ? b->last : b->offset;
}

static int in_order(const void *a, const void *b, void *context) {
    const sorting *of = context;
    const int x = *(const int *)a, y = *(const int *)b;
    const int64_t p = key_of(&of->buffer[x], of->by), q = key_of(&of->buffer[y], of->by);
    return p != q ? (p > q) - (p < q) : (x > y) - (x < y);
}

static void set_alive(sweep *s, int index, bool alive) {
    int node = s->leaves + s->place[index];
    for (s->alive[node] = alive; node > 1; node /= 2)
        s->alive[node / 2] = s->alive[node] || s->alive[node ^ 1];
}

/* The living buffer at the nearest address below (side 0) or above (side 1) this one; -1: none. */
static int neighbour(const sweep *s, int index, int side) {
    int node = s->leaves + s->place[index];
    while (node > 1 && (node % 2 != 1 - side || !s->alive[node ^ 1])) node /= 2;
    if (node <= 1) return -1;
    for (node ^= 1; node < s->leaves;) {
        int nearer = 2 * node + 1 - side;
        node = s->alive[nearer] ? nearer : nearer ^ 1;
    }
    return s->address[node - s->leaves];
}

/* Living buffers do not overlap each other. If the new one overlaps some, one is a neighbour. */
static z3d_status bring_alive(sweep *s, int index) {
    const z3d_buffer *buffers = s->program->buffer, *b = &buffers[index];
    while (s->dead < s->count && buffers[s->death[s->dead]].last < b->first)
        set_alive(s, s->death[s->dead++], false);
    for (int side = 0; side < 2; side++) {
        int near = neighbour(s, index, side);
        const z3d_buffer *other = near >= 0 ? &buffers[near] : NULL;
        if (other && other->offset < b->offset + extent(s->program, b) &&
            b->offset < other->offset + extent(s->program, other)) {
            return Z3D_ERROR(Z3D_ERR_PROGRAM,
                             "buffers %d, %s, and %d, %s, are both alive at entry %d and share "
                             "addresses (%lld bytes at %lld, %lld at %lld)",
                             near, z3d_buffer_name(other).text, index, z3d_buffer_name(b).text,
                             b->first, (long long)other->bytes, (long long)other->offset,
                             (long long)b->bytes, (long long)b->offset);
        }
    }
    set_alive(s, index, true);
    return Z3D_OK;
}

static z3d_status reserve(sweep *s) {
    size_t buffers = (size_t)s->program->num_buffers + 1;
    for (s->leaves = 1; s->leaves < s->program->num_buffers; s->leaves *= 2) {
    }
    Z3D_TRY(z3d_new(buffers, sizeof *s->birth, "verifier", &s->birth));
    Z3D_TRY(z3d_new(buffers, sizeof *s->death, "verifier", &s->death));
    Z3D_TRY(z3d_new(buffers, sizeof *s->address, "verifier", &s->address));
    Z3D_TRY(z3d_new(buffers, sizeof *s->place, "verifier", &s->place));
    return z3d_new(2 * (size_t)s->leaves, sizeof *s->alive, "verifier", &s->alive);
}

static void sort(sweep *s) {
    int *const list[] = {[BIRTH] = s->birth, [DEATH] = s->death, [ADDRESS] = s->address};
    for (key by = BIRTH; by <= ADDRESS; by++) {
        sorting of = {s->program->buffer, by};
        if (by != BIRTH) memcpy(list[by], s->birth, (size_t)s->count * sizeof **list);
        qsort_r(list[by], (size_t)s->count, sizeof **list, in_order, &of);
    }
    for (int i = 0; i < s->count; i++) s->place[s->address[i]] = i;
}

static z3d_status check_addresses(const z3d_program *p, z3d_space space) {
    sweep s = {.program = p};
    z3d_status status = reserve(&s);
    for (int i = 0; status == Z3D_OK && i < p->num_buffers; i++) {
        if (p->buffer[i].space != space || p->buffer[i].bytes == 0) continue;
        status = check_place(p, i);
        s.birth[s.count++] = i;
    }
    if (status == Z3D_OK) sort(&s);
    for (int i = 0; status == Z3D_OK && i < s.count; i++) status = bring_alive(&s, s.birth[i]);
    free(s.birth);
    free(s.death);
    free(s.address);
    free(s.place);
    free(s.alive);
    return status;
}

z3d_status z3d_verify_memory(const z3d_program *program) {
    Z3D_TRY(check_persistents(program));
    Z3D_TRY(check_lifetimes(program));
    for (int space = 0; space < Z3D_SPACE_COUNT; space++)
        if (program->arena[space] > 0) Z3D_TRY(check_addresses(program, (z3d_space)space));
    return Z3D_OK;
}
