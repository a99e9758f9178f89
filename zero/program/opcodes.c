/* Answers about an instruction, from the table. */
#include "zero/program.h"
#include "zero/program/layout.h"

enum {
    MODES_TRAIN = 1 << Z3D_MODE_TRAIN,
    MODES_EVALUATE = 1 << Z3D_MODE_EVALUATE,
    MODES_GENERATE = 1 << Z3D_MODE_PREFILL | 1 << Z3D_MODE_PREFILL_SHORT | 1 << Z3D_MODE_DECODE,
    MODES_ANY = MODES_TRAIN | MODES_EVALUATE | MODES_GENERATE,
};

static const z3d_opcode_info table[] = {
#define X(NAME, name, rules, subject, over, moves, from, to, modes)                                \
    {                                                                                              \
        #name,           Z3D_CLASS_##rules, Z3D_SUBJECT_##subject,                                 \
        Z3D_OVER_##over, Z3D_MOVES_##moves, Z3D_SLOT_##from,                                       \
        Z3D_SLOT_##to,   MODES_##modes},
    Z3D_OPCODE_MAP(X)
#undef X
};

const z3d_opcode_info *z3d_opcode_info_of(z3d_opcode opcode) {
    static const z3d_opcode_info unknown = {
        .name = "?", .from = Z3D_SLOT_COUNT, .to = Z3D_SLOT_COUNT};
    return (unsigned)opcode < Z3D_OPCODE_COUNT ? &table[opcode] : &unknown;
}

const char *z3d_opcode_name(z3d_opcode opcode) {
    return z3d_opcode_info_of(opcode)->name;
}

z3d_axes z3d_opcode_axes(const z3d_layout *layout, z3d_opcode opcode, int group) {
    z3d_opcode_over over = z3d_opcode_info_of(opcode)->over;
    if (over == Z3D_OVER_PARTS) return Z3D_ROLE_PARTS;
    if (over == Z3D_OVER_STAGES) return Z3D_ROLE_STAGES;
    if (over == Z3D_OVER_WORLD) return Z3D_AXES_WORLD;
    if (over == Z3D_OVER_NONE || group < 0) return Z3D_AXES_NONE;
    const z3d_group_layout *g = &layout->group[group];
    return over == Z3D_OVER_SHARD  ? g->shard_axes
           : over == Z3D_OVER_COPY ? g->copy_axes
                                   : g->replica_axes;
}

bool z3d_is_collective(const z3d_instruction *in) {
    return z3d_opcode_info_of(in->opcode)->rules >= Z3D_CLASS_ALL_GATHER;
}

bool z3d_is_point_to_point(const z3d_instruction *in) {
    return z3d_opcode_info_of(in->opcode)->rules >= Z3D_CLASS_SEND;
}

bool z3d_communicates(const z3d_instruction *in) {
    z3d_opcode_class rules = z3d_opcode_info_of(in->opcode)->rules;
    return z3d_is_collective(in) || rules == Z3D_CLASS_EXCHANGE || rules == Z3D_CLASS_RESULT;
}

z3d_collective_kind z3d_instruction_kind(const z3d_instruction *in) {
    /* All others: 0, which is ALL_REDUCE. */
    static const z3d_collective_kind kinds[Z3D_CLASS_COUNT] = {
        [Z3D_CLASS_ALL_GATHER] = Z3D_COLLECTIVE_ALL_GATHER,
        [Z3D_CLASS_REDUCE_SCATTER] = Z3D_COLLECTIVE_REDUCE_SCATTER,
        [Z3D_CLASS_SEND] = Z3D_COLLECTIVE_SEND,
        [Z3D_CLASS_RECV] = Z3D_COLLECTIVE_RECV,
        [Z3D_CLASS_RESULT] = Z3D_COLLECTIVE_BROADCAST};
    return kinds[z3d_opcode_info_of(in->opcode)->rules];
}

z3d_dtype z3d_instruction_dtype(const z3d_program *program, const z3d_instruction *in) {
    const z3d_opcode_info *info = z3d_opcode_info_of(in->opcode);
    if (info->moves == Z3D_MOVES_GRADIENTS) return program->config.grad_dtype;
    if (info->moves == Z3D_MOVES_STATES) return Z3D_F32;
    const bool control = info->moves == Z3D_MOVES_NONE && info->rules != Z3D_CLASS_RESULT;
    return control ? Z3D_F64 : program->config.dtype;
}

z3d_dtype z3d_instruction_wire(const z3d_program *program, const z3d_instruction *in) {
    const z3d_opcode_info *info = z3d_opcode_info_of(in->opcode);
    const bool sums =
        info->rules == Z3D_CLASS_REDUCE_SCATTER || info->rules == Z3D_CLASS_ALL_REDUCE;
    return sums && info->moves == Z3D_MOVES_GRADIENTS ? program->config.wire : Z3D_F32;
}

/* ---- operands ---- */

z3d_call z3d_instruction_call(const z3d_instruction *in) {
    switch (z3d_opcode_info_of(in->opcode)->rules) {
    case Z3D_CLASS_BACKWARD:
        return Z3D_CALL_BACKWARD;
    case Z3D_CLASS_BACKWARD_INPUT:
        return Z3D_CALL_BACKWARD_INPUT;
    case Z3D_CLASS_BACKWARD_WEIGHT:
        return Z3D_CALL_BACKWARD_WEIGHT;
    default:
        return in->need_output ? Z3D_CALL_FORWARD : Z3D_CALL_RECOMPUTE;
    }
}

static unsigned unit_access(const z3d_instruction *in, int slot) {
    z3d_call call = z3d_instruction_call(in);
    bool backward = call >= Z3D_CALL_BACKWARD, first = call == Z3D_CALL_BACKWARD_INPUT;
    bool second = call == Z3D_CALL_BACKWARD_WEIGHT;
    if (slot == Z3D_SLOT_WORKSPACE) return Z3D_ACCESS_CLOBBER;
    if (slot == Z3D_SLOT_CACHE) return backward ? Z3D_ACCESS_NONE : Z3D_ACCESS_UPDATE;
    if (slot == Z3D_SLOT_INPUT) return Z3D_ACCESS_READ;
    if (z3d_slot_role(slot) == Z3D_SLOT_PARAMETERS) return Z3D_ACCESS_READ;
    if (slot == Z3D_SLOT_SAVED && !backward)
        return in->keep ? Z3D_ACCESS_WRITE : Z3D_ACCESS_CLOBBER;
    if (!backward) return slot == Z3D_SLOT_OUTPUT ? Z3D_ACCESS_WRITE : Z3D_ACCESS_NONE;
    if (slot == Z3D_SLOT_DEFERRED && (first || second))
        return first ? Z3D_ACCESS_WRITE : Z3D_ACCESS_READ | Z3D_ACCESS_CLOBBER;
    if (slot == Z3D_SLOT_SAVED) /* works in place */
        return first ? Z3D_ACCESS_UPDATE : Z3D_ACCESS_READ | Z3D_ACCESS_CLOBBER;
    if (slot == Z3D_SLOT_OUTPUT_GRADIENT) return Z3D_ACCESS_READ;
    if (slot == Z3D_SLOT_INPUT_GRADIENT) return second ? Z3D_ACCESS_NONE : Z3D_ACCESS_WRITE;
    if (first || z3d_slot_role(slot) != Z3D_SLOT_GRADIENTS) return Z3D_ACCESS_NONE;
    return in->accumulate >> z3d_slot_place(slot) & 1 ? Z3D_ACCESS_UPDATE : Z3D_ACCESS_WRITE;
}

/* Both read the gradients and update the states. The host writes parameters only. */
static unsigned optimizer_access(int slot, bool host) {
    if (slot == (host ? Z3D_SLOT_INPUT : Z3D_SLOT_SHARD)) return Z3D_ACCESS_READ;
    if (slot == Z3D_SLOT_PARAMETERS && host) return Z3D_ACCESS_WRITE;
    const bool updated = slot == Z3D_SLOT_PARAMETERS || slot == Z3D_SLOT_OPTIMIZER;
    return updated ? Z3D_ACCESS_UPDATE : Z3D_ACCESS_NONE;
}

bool z3d_moves_apart(const z3d_instruction *in) {
    const z3d_opcode_info *info = z3d_opcode_info_of(in->opcode);
    return info->from < Z3D_SLOT_COUNT && info->to < Z3D_SLOT_COUNT &&
           in->buffer[info->from] >= 0 && in->buffer[info->from] != in->buffer[info->to];
}

static unsigned to_access(const z3d_instruction *in, const z3d_opcode_info *info) {
    bool apart = z3d_moves_apart(in);
    switch (info->rules) {
    case Z3D_CLASS_MARK:
        return Z3D_ACCESS_CLOBBER;
    case Z3D_CLASS_SUM:
        return in->accumulate ? Z3D_ACCESS_UPDATE : Z3D_ACCESS_WRITE;
    case Z3D_CLASS_RECV:
    case Z3D_CLASS_RESULT:
        return Z3D_ACCESS_WRITE;
    case Z3D_CLASS_COPY: /* in place: the input is kept alive */
        return apart ? Z3D_ACCESS_WRITE : Z3D_ACCESS_READ;
    default:
        return apart ? Z3D_ACCESS_WRITE : Z3D_ACCESS_UPDATE;
    }
}

unsigned z3d_instruction_access(const z3d_instruction *in, int slot) {
    const z3d_opcode_info *info = z3d_opcode_info_of(in->opcode);
    if (info->subject == Z3D_SUBJECT_UNIT && info->moves == Z3D_MOVES_NONE)
        return unit_access(in, slot);
    if (info->rules == Z3D_CLASS_OPTIMIZER) return optimizer_access(slot, false);
    if (info->rules == Z3D_CLASS_HOST_OPTIMIZER) return optimizer_access(slot, true);
    if (slot == Z3D_SLOT_WORKSPACE && in->columns > 0) return Z3D_ACCESS_CLOBBER;
    if (slot == (int)info->to) return to_access(in, info);
    return slot == (int)info->from ? Z3D_ACCESS_READ : Z3D_ACCESS_NONE;
}

/* The group whose matrix is in the slot. */
static int group_of(const z3d_program *p, const z3d_instruction *in, int slot) {
    z3d_opcode_subject subject = z3d_opcode_info_of(in->opcode)->subject;
    if (subject == Z3D_SUBJECT_GROUP) return in->group;
    z3d_slot role = z3d_slot_role(slot);
    int place = z3d_slot_place(slot);
    bool matrix = role == Z3D_SLOT_PARAMETERS || role == Z3D_SLOT_GRADIENTS;
    if (subject != Z3D_SUBJECT_UNIT || !matrix || place >= p->model->unit[in->unit].num_groups)
        return -1;
    return p->model->unit[in->unit].group[place];
}

/* The rows of the matrix of a group's collective. */
static z3d_rows matrix_rows(const z3d_instruction *in) {
    return in->group >= 0 && in->axes == Z3D_ROLE_NODES ? Z3D_ROWS_BLOCK : Z3D_ROWS_ALL;
}

z3d_rows z3d_instruction_own_rows(const z3d_program *p, const z3d_instruction *in) {
    if (in->group < 0 || in->axes != Z3D_ROLE_BLOCKS) return Z3D_ROWS_OWN;
    return p->layout->group[in->group].block > 1 ? Z3D_ROWS_BLOCK : Z3D_ROWS_OWN;
}

static z3d_rows rows_of(const z3d_program *p, const z3d_instruction *in, int slot) {
    const z3d_opcode_info *info = z3d_opcode_info_of(in->opcode);
    switch (info->rules) {
    case Z3D_CLASS_OPTIMIZER:
        return z3d_state_rows(p->layout, in->group, Z3D_STATE_OPTIMIZER);
    case Z3D_CLASS_ALL_GATHER:
        return slot == (int)info->to ? matrix_rows(in) : z3d_instruction_own_rows(p, in);
    case Z3D_CLASS_REDUCE_SCATTER:
        return matrix_rows(in);
    case Z3D_CLASS_SUM:
    case Z3D_CLASS_NORM:
    case Z3D_CLASS_ALL_REDUCE:
        return Z3D_ROWS_OWN;
    case Z3D_CLASS_COPY:
    case Z3D_CLASS_SEND:
    case Z3D_CLASS_RECV:
    case Z3D_CLASS_HOST_OPTIMIZER:
        return in->rows;
    default:
        return Z3D_ROWS_ALL;
    }
}

bool z3d_instruction_has_columns(const z3d_instruction *in) {
    const z3d_opcode_info *info = z3d_opcode_info_of(in->opcode);
    if (info->subject != Z3D_SUBJECT_GROUP) return false;
    if (z3d_is_collective(in)) return info->rules != Z3D_CLASS_ALL_REDUCE;
    return info->rules == Z3D_CLASS_COPY || info->rules == Z3D_CLASS_HOST_OPTIMIZER;
}

z3d_buffer_operand z3d_instruction_operand(const z3d_program *program, const z3d_instruction *in,
                                           int slot) {
    z3d_buffer_operand o = {.slot = slot,
                            .buffer = in->buffer[slot],
                            .group = group_of(program, in, slot),
                            .access = z3d_instruction_access(in, slot),
                            .rows = rows_of(program, in, slot),
                            .count = INT64_MAX};
    if (in->columns > 0 && slot == Z3D_SLOT_WORKSPACE) {
        o.group = -1;
        o.rows = Z3D_ROWS_ALL;
        o.first = in->column;
        o.count = in->count;
    }
    if (o.group < 0) return o;
    const z3d_opcode_info *info = z3d_opcode_info_of(in->opcode);
    o.count = program->layout->group[o.group].shard;
    if (info->subject == Z3D_SUBJECT_UNIT || info->rules == Z3D_CLASS_MARK) return o;
    o.columns = z3d_instruction_matrix(program, in).columns;
    if (z3d_instruction_has_columns(in)) {
        o.first = in->first;
        o.count = in->count;
    }
    return o;
}

/* A group's matrix in a collective over these axes. */
static z3d_matrix group_matrix(const z3d_group_layout *g, z3d_axes axes) {
    const int block = g->block;
    if (block > 1 && axes == Z3D_ROLE_BLOCKS)
        return (z3d_matrix){g->rows / block, g->own / block, g->shard * block, 0, Z3D_U8, 1};
    if (block > 1 && axes == Z3D_ROLE_NODES)
        return (z3d_matrix){
            block, g->own % block, g->shard, z3d_rows_first(g, Z3D_ROWS_BLOCK), Z3D_U8, 1};
    return (z3d_matrix){g->rows, g->own, g->shard, 0, Z3D_U8, 1};
}

z3d_matrix z3d_instruction_matrix(const z3d_program *program, const z3d_instruction *in) {
    const z3d_layout *layout = program->layout;
    z3d_dtype dtype = z3d_instruction_dtype(program, in);
    if (!z3d_moves_input(z3d_opcode_info_of(in->opcode)->moves)) {
        const z3d_group_layout *g = &layout->group[in->group];
        z3d_matrix matrix = group_matrix(g, in->axes);
        bool states = z3d_opcode_info_of(in->opcode)->moves == Z3D_MOVES_STATES;
        matrix.dtype = dtype;
        if (states) matrix.tensors = z3d_count_kinds(g->state[Z3D_STATE_OPTIMIZER].kinds);
        return matrix;
    }
    int64_t elements = z3d_program_output_elements(program, z3d_instruction_source(program, in));
    if (in->rows == Z3D_ROWS_ALL) return (z3d_matrix){1, 0, elements, 0, dtype, 1};
    int64_t ranks = layout->tensor_size; /* equal parts, the last one padded */
    return (z3d_matrix){
        layout->tensor_size, layout->tensor_index, (elements + ranks - 1) / ranks, 0, dtype, 1};
}

void z3d_instruction_columns(const z3d_program *program, const z3d_instruction *in, int64_t *first,
                             int64_t *count) {
    const z3d_opcode_info *info = z3d_opcode_info_of(in->opcode);
    *first = in->first;
    *count = in->count;
    if (info->rules == Z3D_CLASS_EXCHANGE) *count = z3d_control_count(program);
    if (info->rules == Z3D_CLASS_RESULT)
        *count = z3d_program_output_elements(program, program->model->num_units - 1);
    if (info->rules != Z3D_CLASS_ALL_REDUCE) return;
    if (info->over == Z3D_OVER_COPY) { /* in the flat buffer */
        *first = z3d_rows_first(&program->layout->group[in->group], Z3D_ROWS_OWN);
        *count = program->layout->group[in->group].shard;
    } else {
        z3d_layout_partial_part(program->layout, in->group, first, count);
    }
}

void z3d_program_buckets(const z3d_program *p, int64_t bucket[Z3D_AXES_COUNT]) {
    for (int i = 0; i < p->num_instructions; i++) {
        const z3d_instruction *in = &p->instruction[i];
        int64_t first, count;
        const z3d_opcode_class rules = z3d_opcode_info_of(in->opcode)->rules;
        if (rules != Z3D_CLASS_REDUCE_SCATTER && rules != Z3D_CLASS_ALL_GATHER) continue;
        const z3d_matrix m = z3d_instruction_matrix(p, in);
        z3d_instruction_columns(p, in, &first, &count);
        const int64_t bytes = z3d_bytes_of(m.dtype, m.ranks * count);
        if (count < m.columns && bytes > bucket[in->axes]) bucket[in->axes] = bytes;
    }
}

int z3d_instruction_source(const z3d_program *program, const z3d_instruction *in) {
    return z3d_model_input(program->model, in->unit, program->mode);
}
