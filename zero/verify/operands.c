/* Checks of operands: their buffers exist and are large enough; each holds or gets one value. */
#include "zero/verify/rules.h"

int64_t z3d_flow_group_bytes(const z3d_flow *flow, const z3d_buffer_operand *o, int tensors,
                             z3d_dtype dtype) {
    const z3d_buffer *b = &flow->program->buffer[o->buffer];
    int64_t elements = z3d_rows_elements(&flow->program->layout->group[o->group], b->rows);
    if (b->rows == Z3D_ROWS_OWN && z3d_instruction_has_columns(entry(flow)))
        elements = o->first + o->count - b->first_column; /* the buffer may be longer */
    return z3d_bytes_of(dtype, tensors * elements);
}

/* The bytes that a move's operand needs in its buffer. */
static int64_t matrix_bytes(const z3d_flow *flow, const z3d_buffer_operand *o) {
    const z3d_program *p = flow->program;
    if (o->buffer < 0 || info(flow)->moves == Z3D_MOVES_NONE) return 0;
    z3d_matrix m = z3d_instruction_matrix(p, entry(flow));
    if (o->group >= 0) return z3d_flow_group_bytes(flow, o, m.tensors, m.dtype);
    bool own = p->buffer[o->buffer].rows == Z3D_ROWS_OWN;
    bool pads = z3d_is_collective(entry(flow)) && !z3d_is_point_to_point(entry(flow));
    if (!own && !pads) /* the whole output, without padding */
        return output_bytes(flow, source_of(flow));
    return z3d_bytes_of(m.dtype, (own ? 1 : m.ranks) * m.columns * m.tensors);
}

z3d_status z3d_flow_moved_operand(const z3d_flow *flow, int slot, z3d_buffer_operand *out) {
    *out = operand(flow, slot);
    return z3d_flow_operand(flow, out, matrix_bytes(flow, out));
}

z3d_status z3d_flow_must_not_persist(const z3d_flow *flow, int slot) {
    const z3d_buffer *b = &flow->program->buffer[entry(flow)->buffer[slot]];
    if (!b->persistent) return Z3D_OK;
    return z3d_flow_fail(flow, "its %s would overwrite the persistent %s", z3d_slot_text(slot),
                         z3d_buffer_name(b).text);
}

z3d_status z3d_flow_read_plain(z3d_flow *flow, int slot, int64_t bytes, z3d_value value) {
    z3d_buffer_operand o = operand(flow, slot);
    Z3D_TRY(z3d_flow_operand(flow, &o, bytes));
    return z3d_flow_read(flow, o, value);
}

z3d_status z3d_flow_must_be_alone(const z3d_flow *flow, int slot) {
    for (int other = 0; other < entry(flow)->num_slots; other++) {
        if (other == slot || entry(flow)->buffer[other] != entry(flow)->buffer[slot]) continue;
        return z3d_flow_fail(flow, "its %s and its %s are the same buffer", z3d_slot_text(slot),
                             z3d_slot_text(other));
    }
    return Z3D_OK;
}

z3d_status z3d_flow_write_plain(z3d_flow *flow, int slot, int64_t bytes, z3d_value value) {
    z3d_buffer_operand o = operand(flow, slot);
    Z3D_TRY(z3d_flow_operand(flow, &o, bytes));
    Z3D_TRY(z3d_flow_must_not_persist(flow, slot));
    Z3D_TRY(z3d_flow_must_be_alone(flow, slot));
    return z3d_flow_write(flow, o, value);
}
