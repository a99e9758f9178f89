/* The symbolic run of a program: values in runs of columns, and started entries that use them. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "zero/verify/rules.h"

/* Numbers the contributions to each gradient in the order of backward: last unit first. */
static void count_contributions(z3d_flow *flow) {
    const z3d_program *p = flow->program;
    for (int u = p->model->num_units - 1; u >= 0; u--) {
        const z3d_unit *unit = &p->model->unit[u];
        const z3d_trace *trace = z3d_traces_of(p->traces, p->mode, u, Z3D_CALL_BACKWARD);
        if (!z3d_layout_has_unit(p->layout, u)) continue;
        for (int s = 0; s < unit->num_groups; s++) {
            if (!trace->writes_gradients[s]) continue;
            int use = z3d_layout_use(p->layout, u, unit->group[s]);
            flow->place[u * Z3D_MAX_UNIT_GROUPS + s] = flow->total[2 * unit->group[s] + use]++;
        }
    }
}

z3d_status z3d_flow_create(const z3d_program *program, z3d_flow *out) {
    const z3d_model *model = program->model;
    size_t groups = (size_t)model->num_groups, units = (size_t)model->num_units;
    size_t buffers = (size_t)program->num_buffers;
    *out = (z3d_flow){.program = program};
    Z3D_TRY(z3d_new(2 * groups, sizeof *out->total, "verifier", &out->total));
    Z3D_TRY(z3d_new(units * Z3D_MAX_UNIT_GROUPS, sizeof *out->place, "verifier", &out->place));
    Z3D_TRY(z3d_new((size_t)program->num_tickets, sizeof *out->started, "verifier", &out->started));
    Z3D_TRY(z3d_new(groups, sizeof *out->squared, "verifier", &out->squared));
    for (int t = 0; t < program->num_tickets; t++) out->started[t] = -1;
    Z3D_TRY(z3d_new(buffers, sizeof *out->cells, "verifier", &out->cells));
    for (size_t b = 0; b < buffers; b++) {
        z3d_cells *c = &out->cells[b];
        Z3D_TRY(z3d_new(1, sizeof *c->cell, "verifier", &c->cell));
        c->count = c->capacity = 1;
        c->group = program->buffer[b].group;
        c->cell[0] = (z3d_cell){.end = INT64_MAX, .writer = {-1, -1, -1}};
    }
    count_contributions(out);
    return Z3D_OK;
}

void z3d_flow_release(z3d_flow *flow) {
    for (int b = 0; flow->cells != NULL && b < flow->program->num_buffers; b++)
        free(flow->cells[b].cell);
    free(flow->cells);
    free(flow->started);
    free(flow->squared);
    free(flow->total);
    free(flow->place);
}

/* ---- texts of errors ---- */

z3d_status z3d_flow_fail(const z3d_flow *flow, const char *format, ...) {
    char why[512], entry[160];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(why, sizeof why, format, arguments);
    va_end(arguments);
    z3d_instruction_describe(flow->program, flow->at, entry, sizeof entry);
    return Z3D_ERROR(Z3D_ERR_PROGRAM, "entry %d, %s: %s", flow->at, entry, why);
}

const char *z3d_slot_text(int slot) {
    static const char *const text[Z3D_SLOT_COUNT] = {
        "input",        "output",    "output gradient", "input gradient",
        "saved memory", "workspace", "deferred memory", "cache",
        "parameters",   "gradients", "kept gradients",  "optimizer state"};
    return text[z3d_slot_role(slot)];
}

const char *z3d_space_text(z3d_space space) {
    static const char *const text[] = {"on the device", "in host memory", "on the disk"};
    return (unsigned)space < Z3D_SPACE_COUNT ? text[space] : "nowhere";
}

static const char *describe_value(const z3d_program *p, z3d_value v, char *buf, size_t size) {
    bool unit = v.kind >= Z3D_VALUE_OUTPUT && v.kind <= Z3D_VALUE_DEFERRED;
    const char *name = v.kind == Z3D_VALUE_NOTHING ? ""
                       : unit                      ? p->model->unit[v.of].name
                                                   : p->model->group[v.of].name;
    static const char *const unit_words[] = {"output", "output gradient", "saved memory",
                                             "deferred memory"};
    if (unit) {
        snprintf(buf, size, "%s of %s, micro-batch %d%s", unit_words[v.kind - Z3D_VALUE_OUTPUT],
                 name, v.micro, v.count > 0 ? ", after backward_input" : "");
    } else if (v.kind == Z3D_VALUE_PARAMETERS || v.kind == Z3D_VALUE_OPTIMIZER) {
        snprintf(buf, size, "%s of %s %s the optimizer step",
                 v.kind == Z3D_VALUE_OPTIMIZER ? "optimizer state" : "parameters", name,
                 v.count > 0 ? "after" : "before");
    } else if (v.kind == Z3D_VALUE_GRADIENT_SUM) {
        snprintf(buf, size, "%d contributions to gradient sum %d of %s, not reduced", v.count,
                 v.micro, name);
    } else if (v.kind == Z3D_VALUE_GRADIENT_REDUCED || v.kind == Z3D_VALUE_GRADIENT_TWIN) {
        bool twin = v.kind == Z3D_VALUE_GRADIENT_TWIN;
        snprintf(buf, size, "reduced gradients of %s%s, sums %d to %d%s%s", name,
                 twin    ? " of the other pipeline stage"
                 : v.use ? " in its second chunk"
                         : "",
                 v.micro, v.micro + v.count - 1,
                 v.partial & Z3D_AXES_WORLD ? ", without other ranks' addends" : "",
                 v.partial & Z3D_PARTIAL_TWIN ? ", without the other chunk's sum" : "");
    } else if (v.kind == Z3D_VALUE_GRADIENT_LATE) {
        snprintf(buf, size, "gradients of %s from the step before", name);
    } else if (v.kind == Z3D_VALUE_ADDED) {
        snprintf(buf, size, "%s of %s", z3d_state_class_of(&p->config, v.count)->name, name);
    } else {
        snprintf(buf, size, "nothing defined");
    }
    return buf;
}

/* ---- cells ---- */

static bool same_value(z3d_value a, z3d_value b) {
    return a.kind == b.kind && a.of == b.of && a.micro == b.micro && a.count == b.count &&
           a.partial == b.partial && a.use == b.use;
}

static bool same_cell(const z3d_cell *a, const z3d_cell *b) {
    for (int row = 0; row < Z3D_ROW_KINDS; row++)
        if (!same_value(a->value[row], b->value[row]) || a->writer[row] != b->writer[row] ||
            a->readers[row] != b->readers[row])
            return false;
    return true;
}

static z3d_cell *cell_at(const z3d_cells *c, int index) {
    return &c->cell[index < c->gap ? index : index + c->capacity - c->count];
}

/* Moves the free space to the place before cell `index`. */
static void move_gap(z3d_cells *c, int index) {
    int64_t room = c->capacity - c->count;
    int low = index < c->gap ? index : c->gap;
    size_t bytes = sizeof *c->cell * (size_t)abs(c->gap - index);
    z3d_cell *front = c->cell + low, *back = c->cell + low + room;
    if (index < c->gap)
        memmove(back, front, bytes);
    else
        memmove(front, back, bytes);
    c->gap = index;
}

/* Cuts a cell if needed, so that one begins at `column`; *index: that cell. */
static z3d_status cut(z3d_cells *c, int64_t column, int *index) {
    int low = 0, high = c->count;
    while (low < high) { /* the first cell that ends after the column */
        int middle = low + (high - low) / 2;
        if (cell_at(c, middle)->end > column)
            high = middle;
        else
            low = middle + 1;
    }
    *index = low;
    if (column == (low > 0 ? cell_at(c, low - 1)->end : 0)) return Z3D_OK;
    if (c->count == c->capacity) move_gap(c, c->count); /* growing adds room at the end */
    Z3D_TRY(z3d_grow(c->count, &c->capacity, sizeof *c->cell, "the verifier's cells", &c->cell));
    move_gap(c, low);
    c->cell[low] = *cell_at(c, low);
    c->cell[low].end = column;
    c->gap++;
    c->count++;
    *index = low + 1;
    return Z3D_OK;
}

/* Joins equal neighbours among cells `from` to `to`: finished buckets become one cell. */
static void join(z3d_cells *c, int from, int to) {
    int kept = from;
    move_gap(c, to + 1);
    for (int i = from + 1; i <= to; i++)
        if (same_cell(&c->cell[kept], &c->cell[i]))
            c->cell[kept].end = c->cell[i].end;
        else
            c->cell[++kept] = c->cell[i];
    c->gap = kept + 1;
    c->count -= to - kept;
}

typedef enum action { READ, WRITE, LOCK, UNLOCK } action;

static z3d_status check_free(const z3d_flow *flow, const char *what, const z3d_cell *cell, int row,
                             bool write) {
    char entry[160];
    if (cell->writer[row] >= 0) {
        return z3d_flow_fail(
            flow, "its %s is being written by entry %d, %s", what, cell->writer[row],
            z3d_instruction_describe(flow->program, cell->writer[row], entry, sizeof entry));
    }
    if (write && cell->readers[row] > 0) {
        return z3d_flow_fail(flow, "its %s is being read by a started entry", what);
    }
    return Z3D_OK;
}

z3d_status z3d_flow_mismatch(const z3d_flow *flow, const z3d_buffer_operand *operand,
                             const char *must, z3d_value holds) {
    char is[192];
    return z3d_flow_fail(flow, "its %s must hold %s, but holds %s", z3d_slot_text(operand->slot),
                         must, describe_value(flow->program, holds, is, sizeof is));
}

static z3d_status act(z3d_flow *flow, const char *what, z3d_cell *cell, int row, action action,
                      bool write, z3d_value value) {
    char is[192], must[192];
    if (action == UNLOCK) {
        if (write)
            cell->writer[row] = -1;
        else
            cell->readers[row]--;
        return Z3D_OK;
    }
    Z3D_TRY(check_free(flow, what, cell, row, write));
    if (action == READ && !same_value(cell->value[row], value)) {
        return z3d_flow_fail(flow, "its %s must hold %s, but holds %s%s", what,
                             describe_value(flow->program, value, must, sizeof must),
                             describe_value(flow->program, cell->value[row], is, sizeof is),
                             row > 0 ? " (rows of other ranks)" : "");
    }
    if (action == WRITE) cell->value[row] = value;
    if (action == LOCK && write) cell->writer[row] = flow->at;
    if (action == LOCK && !write) cell->readers[row]++;
    return Z3D_OK;
}

/* Gives the buffer's rows the operand's number of columns, if the comment at z3d_cells allows it.
 */
static z3d_status use_rows_of(const z3d_flow *flow, const char *what, z3d_cells *c,
                              const z3d_buffer_operand *o) {
    if (o->columns == 0 || o->columns == c->columns) return Z3D_OK;
    const bool known = c->columns != 0;
    const z3d_cell *first = cell_at(c, 0);
    bool whole = same_value(first->value[0], first->value[1]);
    for (int i = 0; i < c->count && known; i++) {
        const z3d_cell *cell = cell_at(c, i);
        if (i > 0 && cell_at(c, i - 1)->end >= c->columns) break;
        for (int row = 0; row < Z3D_ROW_KINDS; row++)
            whole = whole && same_value(cell->value[row], first->value[row]) &&
                    cell->writer[row] < 0 && cell->readers[row] == 0;
    }
    if (known && !whole)
        return z3d_flow_fail(flow,
                             "rows of its %s have %lld columns, but had %lld before; this change "
                             "needs one value in this rank's block, one in all other rows, and no "
                             "started entry that uses them",
                             what, (long long)o->columns, (long long)c->columns);
    if (known) {
        c->cell[0] = *first;
        c->cell[0].end = INT64_MAX;
        c->count = c->gap = 1;
    }
    c->columns = o->columns;
    return Z3D_OK;
}

static z3d_status apply(z3d_flow *flow, const char *what, z3d_buffer_operand o, action action,
                        bool write, z3d_value value) {
    z3d_cells *c = &flow->cells[o.buffer];
    int from, to;
    if (write && action != UNLOCK && c->group != o.group) { /* all values become undefined */
        c->group = o.group;
        const z3d_buffer_operand all = {
            .buffer = o.buffer, .group = o.group, .rows = Z3D_ROWS_ALL, .count = INT64_MAX};
        Z3D_TRY(apply(flow, what, all, WRITE, true, nothing));
    }
    Z3D_TRY(use_rows_of(flow, what, c, &o));
    if (o.columns == 0 && o.group >= 0) o.count = c->columns > 0 ? c->columns : INT64_MAX;
    Z3D_TRY(cut(c, o.first, &from));
    Z3D_TRY(cut(c, o.first + o.count, &to));
    for (int row = 0; row < Z3D_ROW_KINDS; row++) {
        if (!((int)o.rows & (1 << row))) continue;
        for (int i = from; i < to; i++)
            Z3D_TRY(act(flow, what, cell_at(c, i), row, action, write, value));
    }
    join(c, from > 0 ? from - 1 : 0, to < c->count ? to : c->count - 1);
    return Z3D_OK;
}

/* ---- operands of the current entry ---- */

z3d_status z3d_flow_operand(const z3d_flow *flow, const z3d_buffer_operand *o, int64_t bytes) {
    const z3d_instruction *in = &flow->program->instruction[flow->at];
    const char *what = z3d_slot_text(o->slot);
    if (o->buffer < 0) return z3d_flow_fail(flow, "its %s is missing", what);
    const z3d_buffer *b = &flow->program->buffer[o->buffer];
    z3d_opcode_class rules = z3d_opcode_info_of(in->opcode)->rules;
    bool anywhere = rules == Z3D_CLASS_COPY && in->phase != Z3D_PHASE_WHOLE;
    z3d_space must = rules == Z3D_CLASS_HOST_OPTIMIZER ? Z3D_SPACE_HOST : Z3D_SPACE_DEVICE;
    if (b->space != must && !anywhere)
        return z3d_flow_fail(flow, "its %s, %s, is %s, but must be %s", what,
                             z3d_buffer_name(b).text, z3d_space_text(b->space),
                             z3d_space_text(must));
    if (flow->at < b->first || flow->at > b->last)
        return z3d_flow_fail(flow, "its %s, %s, lives only from entry %d to %d", what,
                             z3d_buffer_name(b).text, b->first, b->last);
    if (b->persistent && b->group < 0)
        return z3d_flow_fail(flow, "its %s may not be the persistent %s", what,
                             z3d_buffer_name(b).text);
    if (o->rows & ~(unsigned)b->rows)
        return z3d_flow_fail(flow, "its %s, %s, does not have the rows of other ranks", what,
                             z3d_buffer_name(b).text);
    if (o->first < b->first_column)
        return z3d_flow_fail(flow, "its %s, %s, has no columns before %lld", what,
                             z3d_buffer_name(b).text, (long long)b->first_column);
    if (b->bytes < bytes)
        return z3d_flow_fail(flow, "its %s, %s, has %lld bytes, but needs %lld", what,
                             z3d_buffer_name(b).text, (long long)b->bytes, (long long)bytes);
    return Z3D_OK;
}

z3d_status z3d_flow_take(z3d_flow *flow, z3d_buffer_operand o, z3d_value *out) {
    z3d_cells *c = &flow->cells[o.buffer];
    int at;
    Z3D_TRY(cut(c, o.first, &at));
    *out = cell_at(c, at)->value[o.rows & Z3D_ROWS_OWN ? 0 : o.rows & Z3D_ROWS_NEAR ? 1 : 2];
    return z3d_flow_read(flow, o, *out);
}

z3d_status z3d_flow_read(z3d_flow *flow, z3d_buffer_operand o, z3d_value value) {
    return apply(flow, z3d_slot_text(o.slot), o, READ, false, value);
}

z3d_status z3d_flow_write(z3d_flow *flow, z3d_buffer_operand o, z3d_value value) {
    return apply(flow, z3d_slot_text(o.slot), o, WRITE, true, value);
}

z3d_status z3d_flow_lock(z3d_flow *flow, z3d_buffer_operand o, bool write) {
    return apply(flow, z3d_slot_text(o.slot), o, LOCK, write, (z3d_value){0});
}

z3d_status z3d_flow_unlock(z3d_flow *flow, z3d_buffer_operand o, bool write) {
    return apply(flow, z3d_slot_text(o.slot), o, UNLOCK, write, (z3d_value){0});
}

/* ---- states of groups, for entries without slots ---- */

static z3d_status apply_to_state(z3d_flow *flow, int group, z3d_state_role role, z3d_rows rows,
                                 action action, z3d_value value) {
    const int buffer = z3d_program_group_buffer(flow->program, group, role);
    const z3d_buffer_operand o = {
        .buffer = buffer, .group = group, .rows = rows, .count = INT64_MAX};
    return apply(flow, z3d_buffer_name(&flow->program->buffer[buffer]).text, o, action,
                 action == WRITE, value);
}

z3d_status z3d_flow_set(z3d_flow *flow, int group, z3d_state_role role, z3d_rows rows,
                        z3d_value value) {
    return apply_to_state(flow, group, role, rows, WRITE, value);
}

z3d_status z3d_flow_expect(z3d_flow *flow, int group, z3d_state_role role, z3d_rows rows,
                           z3d_value value) {
    return apply_to_state(flow, group, role, rows, READ, value);
}
