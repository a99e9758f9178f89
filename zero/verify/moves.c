/* The rules of moves: within a rank, between ranks, between pipeline stages. */
#include "zero/verify/rules.h"

/* Whether the entry may move `v`: the right kind, of its group or of the unit whose output its unit
 * reads. */
static bool is_moved(const z3d_flow *flow, z3d_value v) {
    switch (info(flow)->moves) {
    case Z3D_MOVES_PARAMETERS:
        return v.kind == Z3D_VALUE_PARAMETERS && v.of == entry(flow)->group;
    case Z3D_MOVES_GRADIENTS:
        return v.kind >= Z3D_VALUE_GRADIENT_SUM && v.of == entry(flow)->group;
    case Z3D_MOVES_STATES:
        return v.kind == Z3D_VALUE_OPTIMIZER && v.of == entry(flow)->group;
    case Z3D_MOVES_ACTIVATION_GRADIENTS:
        return v.kind == Z3D_VALUE_OUTPUT_GRADIENT && v.of == source_of(flow);
    default:
        return v.kind == Z3D_VALUE_OUTPUT && v.of == source_of(flow);
    }
}

/* Whether the value is incomplete or differs by rank: an addend of a sum over ranks or chunks, or
 * an output (or its gradient) whose rows tensor ranks share out. */
static bool differs_by_rank(const z3d_flow *flow, z3d_value v) {
    bool activation = v.kind == Z3D_VALUE_OUTPUT || v.kind == Z3D_VALUE_OUTPUT_GRADIENT;
    return v.kind == Z3D_VALUE_GRADIENT_SUM || v.partial != 0 ||
           (activation && z3d_model_splits_rows(flow->program->model, flow->program->mode));
}

/* What `to` holds after `held` has moved there; refuses values that must not move. */
static z3d_status moved_value(const z3d_flow *flow, const z3d_buffer_operand *from, z3d_value held,
                              z3d_value *out) {
    const char *must = NULL;
    const int axes = entry(flow)->axes;
    bool is_sum = held.kind == Z3D_VALUE_GRADIENT_SUM;
    *out = held;
    if (!is_moved(flow, held))
        return z3d_flow_mismatch(flow, from, "a value that the entry may move", held);
    switch (info(flow)->rules) {
    case Z3D_CLASS_ALL_GATHER:
        if (differs_by_rank(flow, held)) must = "a complete value, equal on all ranks";
        break;
    case Z3D_CLASS_REDUCE_SCATTER:
        if (is_sum ? held.count != contributions(flow, held.of, held.use)
                   : (held.partial & axes) != axes)
            must = "a complete sum of gradients";
        if (is_sum) {
            *out = reduced(flow, held.of, held.use, held.micro, 1);
            out->partial |= flow->program->layout->group[held.of].shard_axes;
        }
        out->partial &= ~axes;
        break;
    case Z3D_CLASS_ALL_REDUCE: /* marks the whole row, even if only some columns are summed */
        if ((held.partial & axes) != axes || held.partial & Z3D_PARTIAL_TWIN)
            must = "parts of a sum";
        out->partial &= ~axes;
        break;
    case Z3D_CLASS_SUM:
        if (is_sum) must = "reduced gradients";
        if (held.kind == Z3D_VALUE_GRADIENT_TWIN && !entry(flow)->accumulate)
            must = "gradients of its own stage";
        break;
    default:
        break;
    }
    return must ? z3d_flow_mismatch(flow, from, must, held) : Z3D_OK;
}

/* The operands of a move. Without a source buffer of its own it works in `to`: an all-gather reads
 * this rank's rows and writes the others; a copy only reads; others read and write all. A sum must
 * have a source buffer. */
static z3d_status moved_operands(const z3d_flow *flow, z3d_buffer_operand *from,
                                 z3d_buffer_operand *to) {
    bool gathers = info(flow)->rules == Z3D_CLASS_ALL_GATHER;
    bool apart = z3d_moves_apart(entry(flow)) || info(flow)->rules == Z3D_CLASS_SUM;
    Z3D_TRY(z3d_flow_moved_operand(flow, (int)info(flow)->to, to));
    *from = *to;
    if (apart) Z3D_TRY(z3d_flow_moved_operand(flow, (int)info(flow)->from, from));
    if (gathers) from->rows = z3d_instruction_own_rows(flow->program, entry(flow));
    if (gathers && !apart) to->rows &= ~from->rows;
    return Z3D_OK;
}

/* *value: in: what is added; out: what `to` then holds. It adds the same chunk's next sums or,
 * after all of these, the other chunk's sum. */
static z3d_status add_sums(z3d_flow *flow, const z3d_buffer_operand *to, z3d_value *value) {
    z3d_value before;
    Z3D_TRY(z3d_flow_take(flow, *to, &before));
    if (value->kind == Z3D_VALUE_GRADIENT_TWIN || value->use != before.use) {
        Z3D_TRY(z3d_flow_read(flow, *to, reduced(flow, value->of, 0, 0, sums(flow))));
        bool all = value->kind == Z3D_VALUE_GRADIENT_TWIN || value->count == sums(flow);
        if (!all) return z3d_flow_fail(flow, "the sum of the group's second chunk is not complete");
        *value = before;
        value->partial &= ~Z3D_PARTIAL_TWIN;
        return Z3D_OK;
    }
    if (before.kind != value->kind || before.of != value->of || before.partial != value->partial ||
        before.micro + before.count != value->micro)
        return z3d_flow_mismatch(flow, to, "the sums just before those that it adds", before);
    value->micro = before.micro;
    value->count += before.count;
    return Z3D_OK;
}

/* A copy beside compute must be from or to host memory. */
static z3d_status check_way(const z3d_flow *flow, const z3d_buffer_operand *from,
                            const z3d_buffer_operand *to) {
    const z3d_buffer *buffer = flow->program->buffer;
    const z3d_space a = buffer[from->buffer].space, b = buffer[to->buffer].space;
    bool copies = info(flow)->rules == Z3D_CLASS_COPY && entry(flow)->phase != Z3D_PHASE_WHOLE;
    if (!copies || from->buffer == to->buffer || a == Z3D_SPACE_HOST || b == Z3D_SPACE_HOST)
        return Z3D_OK;
    return z3d_flow_fail(flow, "its %s is %s, and its %s is %s: one of them must be in host memory",
                         z3d_slot_text(from->slot), z3d_space_text(a), z3d_slot_text(to->slot),
                         z3d_space_text(b));
}

/* Between a start and its wait no other entry may use these columns of the joined collective's
 * matrix. */
static z3d_status check_packed(z3d_flow *flow, bool start) {
    const z3d_instruction *in = entry(flow);
    if (in->columns == 0) return Z3D_OK;
    const z3d_buffer_operand o = operand(flow, Z3D_SLOT_WORKSPACE);
    const z3d_matrix m = z3d_instruction_matrix(flow->program, in);
    Z3D_TRY(z3d_flow_operand(flow, &o, z3d_bytes_of(m.dtype, m.ranks * in->columns)));
    if (!start) return z3d_flow_unlock(flow, o, true);
    Z3D_TRY(z3d_flow_must_not_persist(flow, o.slot));
    Z3D_TRY(z3d_flow_must_be_alone(flow, o.slot));
    Z3D_TRY(z3d_flow_write(flow, o, nothing));
    return z3d_flow_lock(flow, o, true);
}

/* Between a start and its wait no entry may write the source or use the destination. */
z3d_status z3d_rule_move(z3d_flow *flow, bool start) {
    z3d_buffer_operand from, to;
    z3d_value value;
    Z3D_TRY(moved_operands(flow, &from, &to));
    Z3D_TRY(check_way(flow, &from, &to));
    Z3D_TRY(check_packed(flow, start));
    bool waits = entry(flow)->phase == Z3D_PHASE_WAIT;
    bool reads = from.buffer != to.buffer || from.rows != to.rows;
    if (waits && reads) Z3D_TRY(z3d_flow_unlock(flow, from, false));
    if (waits) Z3D_TRY(z3d_flow_unlock(flow, to, true));
    Z3D_TRY(z3d_flow_take(flow, from, &value));
    Z3D_TRY(moved_value(flow, &from, value, &value));
    if (to.access == Z3D_ACCESS_READ) /* a copy in place */
        return start || waits ? z3d_flow_fail(flow, "it moves nothing") : Z3D_OK;
    if (start && reads) Z3D_TRY(z3d_flow_lock(flow, from, false));
    if (start) return z3d_flow_lock(flow, to, true);
    if (info(flow)->rules == Z3D_CLASS_SUM && to.access == Z3D_ACCESS_UPDATE)
        Z3D_TRY(add_sums(flow, &to, &value));
    if (info(flow)->rules == Z3D_CLASS_REDUCE_SCATTER) {
        Z3D_TRY(z3d_flow_write(flow, to, nothing));
        to.rows = z3d_instruction_own_rows(flow->program, entry(flow));
    }
    return z3d_flow_write(flow, to, value);
}

/* ---- transfers between pipeline stages ---- */

/* The value that is sent or received. world.c compares both ends. */
static z3d_value crossing_value(const z3d_flow *flow) {
    const z3d_instruction *in = entry(flow);
    if (info(flow)->moves == Z3D_MOVES_ACTIVATIONS) return output_of(source_of(flow), in->micro);
    if (info(flow)->moves == Z3D_MOVES_ACTIVATION_GRADIENTS)
        return output_gradient_of(source_of(flow), in->micro);
    return reduced(flow, in->group, 0, 0, sums(flow));
}

/* The peer must be the stage of the unit at the other end, or of the group's other holder. */
static z3d_status check_peer(z3d_flow *flow, bool send) {
    const z3d_instruction *in = entry(flow);
    const z3d_layout *layout = flow->program->layout;
    int must = -1;
    if (in->unit >= 0) {
        bool forward = info(flow)->moves == Z3D_MOVES_ACTIVATIONS;
        int here = send == forward ? source_of(flow) : in->unit; /* the unit of this side */
        int there = here == in->unit ? source_of(flow) : in->unit;
        if (z3d_layout_has_unit(layout, here)) must = z3d_layout_stage_of(layout, there);
    } else {
        must = layout->group[in->group].twin;
    }
    if (in->peer == must && must != layout->stage && must >= 0) return Z3D_OK;
    return z3d_flow_fail(flow, "it %s pipeline stage %d, which is not the other end",
                         send ? "sends to" : "receives from", in->peer);
}

/* Between its start and its wait a send reads its source, and a receive writes its destination. */
z3d_status z3d_rule_cross(z3d_flow *flow, bool start) {
    bool send = info(flow)->rules == Z3D_CLASS_SEND;
    z3d_value value = crossing_value(flow);
    z3d_buffer_operand o;
    Z3D_TRY(check_peer(flow, send));
    Z3D_TRY(z3d_flow_moved_operand(flow, (int)(send ? info(flow)->from : info(flow)->to), &o));
    if (!send) Z3D_TRY(z3d_flow_must_not_persist(flow, o.slot));
    if (!start) Z3D_TRY(z3d_flow_unlock(flow, o, !send));
    if (send) Z3D_TRY(z3d_flow_read(flow, o, value));
    if (start) return z3d_flow_lock(flow, o, !send);
    if (send) return Z3D_OK;
    if (entry(flow)->group >= 0) value.kind = Z3D_VALUE_GRADIENT_TWIN, value.partial = 0;
    return z3d_flow_write(flow, o, value);
}

z3d_status z3d_rule_mark(z3d_flow *flow) {
    z3d_buffer_operand gone;
    Z3D_TRY(z3d_flow_moved_operand(flow, (int)info(flow)->to, &gone));
    Z3D_TRY(z3d_flow_must_not_persist(flow, gone.slot));
    return z3d_flow_write(flow, gone, nothing);
}
