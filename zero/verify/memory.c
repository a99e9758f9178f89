/* The verifier's simple checks: indices are in range, persistent buffers are as the layout says,
 * and buffers that are alive at the same time do not overlap in a planned arena. */
#include <limits.h>
#include <search.h>
#include <stdlib.h>

#include "src/base/disk.h"
#include "zero/plan_memory/packer.h"
#include "zero/verify/rules.h"

/* Refuses an entry as z3d_flow_fail does; there is no symbolic run yet. */
#define FAIL_ENTRY(p, index, ...)                                                                  \
    z3d_flow_fail(&(const z3d_flow){.program = (p), .at = (index)}, __VA_ARGS__)

static z3d_status check_columns(const z3d_program *p, int index) {
    const z3d_instruction *in = &p->instruction[index];
    int64_t shard = z3d_instruction_matrix(p, in).columns;
    if (in->first >= 0 && in->count > 0 && in->count <= shard && in->first <= shard - in->count)
        return Z3D_OK;
    return FAIL_ENTRY(p, index,
                      "it has %lld columns from column %lld, but its matrix has columns 0 to %lld",
                      (long long)in->count, (long long)in->first, (long long)shard - 1);
}

/* Whether `in` is the part of a joined collective that comes after `before`. */
static bool follows(const z3d_instruction *in, const z3d_instruction *before) {
    return in->opcode == before->opcode && in->phase == before->phase && in->axes == before->axes &&
           in->micro == before->micro && in->columns == before->columns &&
           in->column == before->column + before->count &&
           in->buffer[Z3D_SLOT_WORKSPACE] == before->buffer[Z3D_SLOT_WORKSPACE];
}

/* The parts of a joined collective follow each other. Each has all columns of its own matrix. */
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
        "its part of a joined collective, %lld columns from column %lld of %lld, does not fit its "
        "neighbours or its own matrix",
        (long long)in->count, (long long)in->column, (long long)in->columns);
}

/* Moves of a unit's input or its gradient: one rank's part, or all. */
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
                      "it moves %lld elements from element %lld on, but its part has %lld elements",
                      (long long)in->count, (long long)in->first, (long long)part);
}

/* Entries that do not use the fields below must have the builder's defaults there: rules and
 * executor may read them all the same. */
static z3d_status check_unused_fields(const z3d_program *p, int index, bool columns) {
    const z3d_instruction *in = &p->instruction[index];
    const z3d_opcode_info *info = z3d_opcode_info_of(in->opcode);
    z3d_opcode_class rules = info->rules;
    bool adds =
        rules == Z3D_CLASS_BACKWARD || rules == Z3D_CLASS_BACKWARD_WEIGHT || rules == Z3D_CLASS_SUM;
    bool forward = rules == Z3D_CLASS_FORWARD;
    const char *what = NULL;
    if (info->subject != Z3D_SUBJECT_UNIT && in->unit != -1) what = "a unit";
    if (info->subject != Z3D_SUBJECT_GROUP && in->group != -1) what = "a parameter group";
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

z3d_status z3d_verify_fields(const z3d_program *p, int index) {
    const z3d_instruction *in = &p->instruction[index];
    const z3d_opcode_subject subject = z3d_opcode_info_of(in->opcode)->subject;
    const bool unit = subject == Z3D_SUBJECT_UNIT, group = subject == Z3D_SUBJECT_GROUP;
    const struct number {
        const char *what;
        bool used;
        int is, limit;
    } numbers[] = {
        {"the opcode", true, (int)in->opcode, Z3D_OPCODE_COUNT},
        {"phase", true, (int)in->phase, Z3D_PHASE_WAIT + 1},
        {"ticket", in->phase != Z3D_PHASE_WHOLE, in->ticket, p->num_tickets},
        {"unit", unit, in->unit, p->model->num_units},
        {"group", group, in->group, p->model->num_groups},
        {"peer", z3d_is_point_to_point(in), in->peer, p->layout->stages},
        {"micro-batch", unit, in->micro, p->mode == Z3D_MODE_TRAIN ? p->config.accumulation : 1},
    };
    for (size_t n = 0; n < sizeof numbers / sizeof *numbers; n++)
        if (numbers[n].used && (numbers[n].is < 0 || numbers[n].is >= numbers[n].limit))
            return FAIL_ENTRY(p, index, "%s is %d, but must be 0 to %d", numbers[n].what,
                              numbers[n].is, numbers[n].limit - 1);
    if (z3d_communicates(in) && !z3d_axes_have_group(&p->mesh, in->axes))
        return FAIL_ENTRY(p, index, "no process group is over axes %s",
                          z3d_axes_name(in->axes).text);
    return Z3D_OK;
}

static z3d_status check_entry(const z3d_program *p, int index) {
    const z3d_instruction *in = &p->instruction[index];
    const z3d_opcode_info *info = z3d_opcode_info_of(in->opcode);
    bool matrix = z3d_instruction_has_columns(in);
    Z3D_TRY(z3d_verify_fields(p, index));
    Z3D_TRY(check_slots(p, index));
    for (int s = 0; s < in->num_slots; s++) {
        if (in->buffer[s] < -1 || in->buffer[s] >= p->num_buffers)
            return FAIL_ENTRY(p, index, "its %s is buffer %d, but must be -1 (none) to %d",
                              z3d_slot_text(s), in->buffer[s], p->num_buffers - 1);
        if (in->buffer[s] >= 0 && z3d_instruction_access(in, s) == Z3D_ACCESS_NONE)
            return FAIL_ENTRY(p, index, "it cannot have a buffer for its %s", z3d_slot_text(s));
    }
    Z3D_TRY(check_unused_fields(p, index, matrix || z3d_moves_input(info->moves)));
    Z3D_TRY(check_joined(p, index));
    if (z3d_moves_input(info->moves)) return check_part(p, index);
    return matrix ? check_columns(p, index) : Z3D_OK;
}

z3d_status z3d_verify_entries(const z3d_program *program) {
    for (int i = 0; i < program->num_instructions; i++) Z3D_TRY(check_entry(program, i));
    return Z3D_OK;
}

/* ---- persistent buffers ---- */

static const char *rows_text(z3d_rows rows) {
    return rows == Z3D_ROWS_ALL     ? "all rows"
           : rows == Z3D_ROWS_BLOCK ? "the rows of this rank's block"
                                    : "this rank's row";
}

static z3d_status check_persistent(const z3d_program *p, int index, const char *what, int group,
                                   z3d_rows rows, z3d_space space, int64_t bytes) {
    const z3d_buffer *b = &p->buffer[index];
    const bool persists =
        b->persistent && b->first == 0 && b->last == INT_MAX && b->first_column == 0;
    if (persists && b->bytes == bytes && b->space == space && b->group == group && b->rows == rows)
        return Z3D_OK;
    return Z3D_ERROR(Z3D_ERR_PROGRAM,
                     "buffer %d, %s, must be %s: persistent, %s, with %lld bytes, %s of parameter "
                     "group %d (-1: none); but it is %s, %s, with %lld bytes, %s of group %d",
                     index, z3d_buffer_name(b).text, what, z3d_space_text(space), (long long)bytes,
                     rows_text(rows), group,
                     persists ? "persistent" : "not so for all entries and columns",
                     z3d_space_text(b->space), (long long)b->bytes, rows_text(b->rows), b->group);
}

/* The same for a buffer that is not a parameter group's state. */
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
                         "the program has %d buffers, but its persistent buffers alone are %d",
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
        Z3D_TRY(check_plain(p, z3d_program_cache_buffer(p, u), "a cache",
                            z3d_program_cache_bytes(p, u)));
    for (int i = needed; i < p->num_buffers; i++)
        if (p->buffer[i].persistent)
            return Z3D_ERROR(Z3D_ERR_PROGRAM,
                             "buffer %d, %s, is persistent, but it is not one of the buffers that "
                             "all programs have",
                             i, z3d_buffer_name(&p->buffer[i]).text);
    return Z3D_OK;
}

/* ---- addresses ---- */

static z3d_status check_lifetimes(const z3d_program *p) {
    for (int i = 0; i < p->num_buffers; i++) {
        const z3d_buffer *b = &p->buffer[i];
        bool rows = b->rows == Z3D_ROWS_OWN || b->rows == Z3D_ROWS_BLOCK || b->rows == Z3D_ROWS_ALL;
        if (!rows || b->bytes < 0 || (unsigned)b->space >= Z3D_SPACE_COUNT)
            return Z3D_ERROR(Z3D_ERR_PROGRAM,
                             "buffer %d, %s: it has %lld bytes, rows %d and space %d; one of these "
                             "numbers is not possible",
                             i, z3d_buffer_name(b).text, (long long)b->bytes, (int)b->rows,
                             (int)b->space);
        if (b->persistent) continue;
        if (b->first < 0 || b->first > b->last || b->last >= p->num_instructions)
            return Z3D_ERROR(
                Z3D_ERR_PROGRAM,
                "buffer %d, %s, lives from entry %d to %d, but the program has entries "
                "0 to %d",
                i, z3d_buffer_name(b).text, b->first, b->last, p->num_instructions - 1);
    }
    return Z3D_OK;
}

/* Disk and host memory exchange whole blocks of the disk. */
static z3d_status check_place(const z3d_program *p, int index) {
    const z3d_buffer *b = &p->buffer[index];
    const bool blocks = b->space != Z3D_SPACE_DEVICE && p->arena[Z3D_SPACE_DISK] > 0;
    const int align = blocks ? Z3D_DISK_ALIGN : Z3D_PACK_ALIGN;
    const int64_t bytes = blocks ? z3d_round_up(b->bytes, align) : b->bytes;
    const int64_t arena = p->arena[b->space];
    if (b->offset >= 0 && b->offset % align == 0 && bytes <= arena && b->offset <= arena - bytes)
        return Z3D_OK;
    return Z3D_ERROR(Z3D_ERR_PROGRAM,
                     "buffer %d, %s: %lld bytes at %lld; the arena has %lld bytes, and offsets "
                     "must be multiples of %d",
                     index, z3d_buffer_name(b).text, (long long)bytes, (long long)b->offset,
                     (long long)arena, align);
}

/* The birth or the death of a buffer. */
typedef struct event {
    int64_t time; /* 2 * entry, + 1 for a death: in one entry births come before deaths */
    const z3d_buffer *buffer;
} event;

static int by_time(const void *a, const void *b) {
    const event *x = a, *y = b;
    if (x->time != y->time) return x->time < y->time ? -1 : 1;
    return (x->buffer > y->buffer) - (x->buffer < y->buffer);
}

/* Overlapping buffers compare equal; living ones never overlap, so the order is total. */
static int by_address(const void *a, const void *b) {
    const z3d_buffer *x = a, *y = b;
    return x->offset + x->bytes <= y->offset ? -1 : y->offset + y->bytes <= x->offset;
}

/* living: a search tree; inserting a buffer finds one that overlaps it. */
static z3d_status change_living(const z3d_program *p, const event *change, void **living) {
    const z3d_buffer *b = change->buffer;
    if (change->time % 2 != 0) {
        tdelete(b, living, by_address);
        return Z3D_OK;
    }
    const z3d_buffer *const *found = tsearch(b, living, by_address);
    if (!found) return Z3D_ERROR(Z3D_ERR_MEMORY, "not enough memory to verify a program's buffers");
    const z3d_buffer *other = *found;
    if (other == b) return Z3D_OK;
    return Z3D_ERROR(Z3D_ERR_PROGRAM,
                     "buffers %d, %s, and %d, %s, are both alive at entry %d and share addresses "
                     "(%lld bytes at %lld, %lld at %lld)",
                     (int)(other - p->buffer), z3d_buffer_name(other).text, (int)(b - p->buffer),
                     z3d_buffer_name(b).text, b->first, (long long)other->bytes,
                     (long long)other->offset, (long long)b->bytes, (long long)b->offset);
}

static void keep_buffer(void *buffer) {
    (void)buffer;
}

static z3d_status check_addresses(const z3d_program *p, z3d_space space) {
    event *events = NULL;
    void *living = NULL;
    int count = 0;
    z3d_status status =
        z3d_new(2 * (size_t)p->num_buffers + 1, sizeof *events, "verifier", &events);
    for (int i = 0; status == Z3D_OK && i < p->num_buffers; i++) {
        const z3d_buffer *b = &p->buffer[i];
        if (b->space != space || b->bytes == 0) continue;
        status = check_place(p, i);
        events[count++] = (event){2 * (int64_t)b->first, b};
        events[count++] = (event){2 * (int64_t)b->last + 1, b};
    }
    if (status == Z3D_OK) qsort(events, (size_t)count, sizeof *events, by_time);
    for (int i = 0; status == Z3D_OK && i < count; i++)
        status = change_living(p, &events[i], &living);
    tdestroy(living, keep_buffer);
    free(events);
    return status;
}

z3d_status z3d_verify_memory(const z3d_program *program) {
    Z3D_TRY(check_persistents(program));
    Z3D_TRY(check_lifetimes(program));
    for (int space = 0; space < Z3D_SPACE_COUNT; space++)
        if (program->arena[space] > 0) Z3D_TRY(check_addresses(program, (z3d_space)space));
    return Z3D_OK;
}
