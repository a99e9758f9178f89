/* Collectives on parameter groups' matrices: one is cut into buckets, or several are joined. */
#include <string.h>

#include "zero/build/builder.h"

/* Bytes of the largest packed matrix: copies of a larger one cost as much as joining saves. */
enum { MOST_PACKED = 4 * Z3D_RING_SEGMENT };

z3d_axes z3d_builder_axes(const struct builder *b, int g, z3d_axes part) {
    return b->group[g].decided.in_parts ? part : b->program->layout->group[g].shard_axes;
}

static z3d_matrix matrix_of(const struct builder *b, const struct matrix_move *move) {
    const z3d_instruction whole = {
        .opcode = move->opcode, .group = move->group, .axes = move->axes};
    return z3d_instruction_matrix(b->program, &whole);
}

static bool reduces(const struct matrix_move *move) {
    return move->opcode == Z3D_OP_REDUCE_GRADS;
}

/* Columns of one collective, so that their elements in all rows fit in a bucket. */
static int64_t bucket_columns(const struct builder *b, const struct matrix_move *move, int ranks) {
    const z3d_program_config *c = &b->program->config;
    const int64_t columns = (reduces(move) ? c->reduce_bucket : c->gather_bucket) / ranks;
    return columns < 1 ? 1 : columns;
}

/* Refuses buckets so small that their entries would be too many. */
static void check_entries(struct builder *b, const struct matrix_move *move, int64_t buckets) {
    const z3d_program *p = b->program;
    if (b->status != Z3D_OK || p->num_instructions + buckets <= MAX_ENTRIES) return;
    const char *key = reduces(move) ? "reduce_bucket_size" : "allgather_bucket_size";
    b->status = Z3D_ERROR(
        Z3D_ERR_CONFIG,
        "the step program would have more than %d entries: zero_optimization.%s %lld cuts %s into "
        "%lld buckets; use a larger %s (the default is 1e12)",
        MAX_ENTRIES, key,
        (long long)(reduces(move) ? p->config.reduce_bucket : p->config.gather_bucket),
        p->model->group[move->group].name, (long long)buckets, key);
}

static z3d_instruction *emit_start(struct builder *b, const struct matrix_move *move, int64_t first,
                                   int64_t count) {
    int ticket;
    z3d_instruction *i =
        z3d_builder_emit_group(b, move->opcode, Z3D_PHASE_START, &ticket, move->group);
    i->axes = move->axes;
    i->micro = move->micro;
    i->first = first;
    i->count = count;
    i->buffer[z3d_opcode_info_of(move->opcode)->to] = move->buffer;
    i->buffer[Z3D_SLOT_INPUT] = move->from;
    return i;
}

static void start_alone(struct builder *b, const struct matrix_move *move) {
    const z3d_matrix m = matrix_of(b, move);
    const int64_t columns = bucket_columns(b, move, m.ranks);
    check_entries(b, move, (m.columns + columns - 1) / columns);
    *move->under_way = b->program->num_instructions;
    for (int64_t first = 0; first < m.columns && b->status == Z3D_OK; first += columns)
        emit_start(b, move, first, m.columns - first < columns ? m.columns - first : columns);
}

int z3d_builder_joined(const struct builder *b, const struct matrix_move *move, int count) {
    int64_t columns = 0;
    int joined = 0;
    for (; b->joins && joined < count && move[joined].axes == move->axes; joined++) {
        const z3d_matrix m = matrix_of(b, &move[joined]);
        columns += m.columns;
        if (m.ranks == 1 || columns > bucket_columns(b, move, m.ranks) ||
            z3d_bytes_of(m.dtype, columns) > Z3D_RING_SEGMENT ||
            z3d_bytes_of(m.dtype, m.ranks * columns) > MOST_PACKED)
            break;
    }
    return joined > 1 ? joined : 1;
}

static void start_joined(struct builder *b, const struct matrix_move *move, int count) {
    z3d_program *p = b->program;
    const z3d_matrix m = matrix_of(b, move);
    const int first = p->num_instructions;
    int64_t columns = 0, column = 0;
    for (int n = 0; n < count; n++) columns += matrix_of(b, &move[n]).columns;
    const int packed =
        z3d_builder_buffer(b, Z3D_CATEGORY_COMMUNICATION, z3d_bytes_of(m.dtype, m.ranks * columns),
                           "packed", p->model->group[move->group].name, move->micro);
    for (int n = 0; n < count; n++) {
        z3d_instruction *i = emit_start(b, &move[n], 0, matrix_of(b, &move[n]).columns);
        i->column = column;
        i->columns = columns;
        i->buffer[Z3D_SLOT_WORKSPACE] = packed;
        column += i->count;
        *move[n].under_way = first;
    }
}

void z3d_builder_start(struct builder *b, const struct matrix_move *move, int count) {
    if (count > 1)
        start_joined(b, move, count);
    else if (count == 1)
        start_alone(b, move);
}

/* Whether entry `index` is a start of the same move as entry `first`: another bucket, or another
 * group of a joined collective. */
static bool travels_with(const z3d_program *p, int first, int index) {
    const z3d_instruction *a = &p->instruction[first], *in = &p->instruction[index];
    if (index == first) return true;
    return in->phase == Z3D_PHASE_START && in->opcode == a->opcode &&
           (a->columns > 0 ? in->column > 0 : in->group == a->group && in->first > 0);
}

/* Resets the group's fields that hold entry `first`: that move is over. */
static void forget(struct builder *b, int g, int first) {
    struct group_state *group = &b->group[g];
    int *const under_way[] = {&group->widening,         &group->gathering,
                              &group->sharing,          &group->sum[0].reducing,
                              &group->sum[0].narrowing, &group->sum[1].reducing,
                              &group->sum[1].narrowing};
    for (size_t n = 0; n < sizeof under_way / sizeof *under_way; n++)
        if (*under_way[n] == first) *under_way[n] = -1;
}

void z3d_builder_wait(struct builder *b, int first) {
    const z3d_program *p = b->program;
    for (int n = first; n >= 0 && b->status == Z3D_OK && travels_with(p, first, n); n++) {
        int ticket = p->instruction[n].ticket;
        z3d_instruction *i = z3d_builder_emit(b, p->instruction[n].opcode, Z3D_PHASE_WAIT, &ticket);
        const z3d_instruction *start = &p->instruction[n];
        int *buffer = memcpy(i->buffer, start->buffer, (size_t)i->num_slots * sizeof *i->buffer);
        *i = *start;
        i->phase = Z3D_PHASE_WAIT;
        i->buffer = buffer;
        forget(b, i->group, first);
    }
}
