/* The verifier of one rank's program: runs it symbolically against the naive step (verifier.h says
 * how values are named). One rule per class of instructions: what its operands must hold, and what
 * they hold then. It does not read the stage or overlap. From the configuration it reads what a
 * step means (number of micro-batches, one reduction or one each), from the layout which rows
 * persist. */
#include <string.h>

#include "zero/verify/verifier.h"

/* ---- the naive step ---- */

static const z3d_program_config *config_of(const z3d_flow *flow) {
    return &flow->program->config;
}

static bool trains(const z3d_flow *flow) {
    return flow->program->mode == Z3D_MODE_TRAIN;
}

static int micro_batches(const z3d_flow *flow) {
    return trains(flow) ? config_of(flow)->accumulation : 1;
}

/* Gradients are summed up on each rank and reduced this many times a step. */
static int sums(const z3d_flow *flow) {
    return config_of(flow)->reduce_per_step ? 1 : config_of(flow)->accumulation;
}

static int contributions(const z3d_flow *flow, int group, int use) {
    return flow->total[2 * group + use] * (config_of(flow)->accumulation / sums(flow));
}

static z3d_value output_of(int unit, int micro) {
    return (z3d_value){Z3D_VALUE_OUTPUT, unit, micro, 0, 0, 0};
}

static z3d_value output_gradient_of(int unit, int micro) {
    return (z3d_value){Z3D_VALUE_OUTPUT_GRADIENT, unit, micro, 0, 0, 0};
}

static z3d_value saved_of(int unit, int micro, bool half_done) {
    return (z3d_value){Z3D_VALUE_SAVED, unit, micro, half_done, 0, 0};
}

static z3d_value deferred_of(int unit, int micro) {
    return (z3d_value){Z3D_VALUE_DEFERRED, unit, micro, 0, 0, 0};
}

static z3d_value parameters_of(int group, bool stepped) {
    return (z3d_value){Z3D_VALUE_PARAMETERS, group, 0, stepped, 0, 0};
}

static z3d_value optimizer_of(int group, bool stepped) {
    return (z3d_value){Z3D_VALUE_OPTIMIZER, group, 0, stepped, 0, 0};
}

static z3d_value gradient_sum(int group, int use, int sum, int count) {
    return (z3d_value){Z3D_VALUE_GRADIENT_SUM, group, sum, count, 0, use};
}

/* What a reduction over the shard axes leaves in the own row: where the group has replica axes or
 * is used in two chunks, other gradients are still to be added. */
static z3d_value reduced(const z3d_flow *flow, int group, int use, int first_sum, int count) {
    const z3d_group_layout *g = &flow->program->layout->group[group];
    int pending = (g->replica_axes != Z3D_AXES_NONE ? Z3D_PENDING_REPLICAS : 0) |
                  (z3d_adds_two_sums(g) ? Z3D_PENDING_TWIN : 0);
    return (z3d_value){Z3D_VALUE_GRADIENT_REDUCED, group, first_sum, count, pending, use};
}

static z3d_value final_gradient(const z3d_flow *flow, int group) {
    return (z3d_value){Z3D_VALUE_GRADIENT_REDUCED, group, 0, sums(flow), 0, 0};
}

/* What the optimizer applies: with offload.delayed what the step before left. */
static z3d_value applied_gradient(const z3d_flow *flow, int group) {
    if (config_of(flow)->offload.delayed)
        return (z3d_value){Z3D_VALUE_GRADIENT_LATE, group, 0, 0, 0, 0};
    return final_gradient(flow, group);
}

static const z3d_value nothing = {Z3D_VALUE_NOTHING, 0, 0, 0, 0, 0};

/* ---- operands ---- */

static const z3d_instruction *entry(const z3d_flow *flow) {
    return &flow->program->instruction[flow->at];
}

static const z3d_opcode_info *info(const z3d_flow *flow) {
    return z3d_opcode_info_of(entry(flow)->opcode);
}

static z3d_buffer_operand operand(const z3d_flow *flow, int slot) {
    return z3d_instruction_operand(flow->program, entry(flow), slot);
}

static int64_t output_bytes(const z3d_flow *flow, int unit) {
    return z3d_program_output_bytes(flow->program, unit);
}

static int source_of(const z3d_flow *flow) {
    return z3d_instruction_source(flow->program, entry(flow));
}

/* Bytes of an own row's columns up to the operand's last, in each of the tensors. Those of one
 * begin where its share of the buffer does. */
static int64_t run_bytes(const z3d_flow *flow, const z3d_buffer_operand *o, int tensors,
                         z3d_dtype dtype) {
    int64_t columns = o->first + o->count - flow->program->buffer[o->buffer].first_column;
    return tensors * columns * (int64_t)z3d_dtype_size(dtype);
}

/* Bytes of the matrix in the operand's buffer, as far as the entry uses it. */
static int64_t matrix_bytes(const z3d_flow *flow, const z3d_buffer_operand *o) {
    const z3d_program *p = flow->program;
    if (o->buffer < 0 || info(flow)->moves == Z3D_MOVES_NONE) return 0;
    z3d_matrix m = z3d_instruction_matrix(p, entry(flow));
    bool own = p->buffer[o->buffer].rows == Z3D_ROWS_OWN;
    if (o->group >= 0 && own && z3d_instruction_has_columns(entry(flow)))
        return run_bytes(flow, o, m.tensors, m.dtype);
    bool pads = z3d_is_collective(entry(flow)) && !z3d_is_point_to_point(entry(flow));
    if (o->group < 0 && !own && !pads) /* without a part's padding */
        return output_bytes(flow, source_of(flow));
    return (own ? 1 : m.ranks) * m.columns * m.tensors * (int64_t)z3d_dtype_size(m.dtype);
}

/* The operand is there and large enough. */
static z3d_status moved_operand(const z3d_flow *flow, int slot, z3d_buffer_operand *out) {
    *out = operand(flow, slot);
    return z3d_flow_operand(flow, out, matrix_bytes(flow, out));
}

static z3d_status must_not_persist(const z3d_flow *flow, int slot) {
    const z3d_buffer *b = &flow->program->buffer[entry(flow)->buffer[slot]];
    if (!b->persistent) return Z3D_OK;
    return z3d_flow_fail(flow, "its %s would overwrite the persistent %s", z3d_slot_text(slot),
                         b->name);
}

/* ---- units ---- */

static z3d_status read_plain(z3d_flow *flow, int slot, int64_t bytes, z3d_value value) {
    z3d_buffer_operand o = operand(flow, slot);
    Z3D_TRY(z3d_flow_operand(flow, &o, bytes));
    return z3d_flow_read(flow, o, value);
}

/* Nothing else of a unit may lie in a buffer that it writes: it reads and writes in any order. */
static z3d_status must_be_alone(const z3d_flow *flow, int slot) {
    for (int other = 0; other < Z3D_SLOT_COUNT; other++) {
        if (other == slot || entry(flow)->buffer[other] != entry(flow)->buffer[slot]) continue;
        return z3d_flow_fail(flow, "its %s and its %s are the same buffer", z3d_slot_text(slot),
                             z3d_slot_text(other));
    }
    return Z3D_OK;
}

static z3d_status write_plain(z3d_flow *flow, int slot, int64_t bytes, z3d_value value) {
    z3d_buffer_operand o = operand(flow, slot);
    Z3D_TRY(z3d_flow_operand(flow, &o, bytes));
    Z3D_TRY(must_not_persist(flow, slot));
    Z3D_TRY(must_be_alone(flow, slot));
    return z3d_flow_write(flow, o, value);
}

/* The whole [N x shard] matrix of a unit's group. */
static z3d_status group_operand(const z3d_flow *flow, int slot, z3d_dtype dtype,
                                z3d_buffer_operand *out) {
    *out = operand(flow, slot);
    return z3d_flow_operand(flow, out,
                            flow->program->layout->group[out->group].padded *
                                (int64_t)z3d_dtype_size(dtype));
}

/* What the unit did when it was recorded is what it will do. */
static z3d_status check_children(const z3d_flow *flow, const z3d_trace *trace) {
    const z3d_instruction *in = entry(flow);
    if (in->num_children != trace->num_children) {
        return z3d_flow_fail(flow, "it lists %d inner collectives, but its recording has %d",
                             in->num_children, trace->num_children);
    }
    for (int c = 0; c < in->num_children; c++) {
        if (z3d_child_equal(&in->child[c], &trace->child[c])) continue;
        return z3d_flow_fail(flow, "its inner collective %d is not the recorded one (%s of %lld)",
                             c + 1, z3d_collective_name(trace->child[c].kind),
                             (long long)trace->child[c].count);
    }
    return Z3D_OK;
}

static z3d_status read_parameters(z3d_flow *flow, const z3d_trace *trace) {
    const z3d_unit *unit = &flow->program->model->unit[entry(flow)->unit];
    for (int s = 0; s < unit->num_groups; s++) {
        z3d_buffer_operand o;
        if (!trace->reads_parameters[s]) continue;
        Z3D_TRY(group_operand(flow, Z3D_SLOT_PARAMETERS + s, config_of(flow)->dtype, &o));
        Z3D_TRY(z3d_flow_read(flow, o, parameters_of(o.group, false)));
    }
    return Z3D_OK;
}

/* What every run of a unit has in common: its place in the step, collectives, parameters,
 * workspace.
 */
static z3d_status begin_unit(z3d_flow *flow, z3d_call call, const z3d_trace **out) {
    const z3d_program *p = flow->program;
    const z3d_trace *trace =
        z3d_traces_get(p->traces, p->mode, p->model->unit[entry(flow)->unit].kind, call);
    *out = trace;
    if (!trace->recorded) return z3d_flow_fail(flow, "its unit was never recorded like this");
    if (!z3d_layout_has_unit(p->layout, entry(flow)->unit))
        return z3d_flow_fail(flow, "its unit belongs to pipeline stage %d",
                             z3d_layout_stage_of(p->layout, entry(flow)->unit));
    if (!flow->begun) return z3d_flow_fail(flow, "the step has not begun");
    if (flow->ended) return z3d_flow_fail(flow, "the step's results have left this rank before it");
    Z3D_TRY(check_children(flow, trace));
    Z3D_TRY(read_parameters(flow, trace));
    if (trace->workspace == 0) return Z3D_OK;
    return write_plain(flow, Z3D_SLOT_WORKSPACE, trace->workspace, nothing);
}

static z3d_status read_input(z3d_flow *flow) {
    int source = source_of(flow);
    if (source >= 0)
        return read_plain(flow, Z3D_SLOT_INPUT, output_bytes(flow, source),
                          output_of(source, entry(flow)->micro));
    return entry(flow)->buffer[Z3D_SLOT_INPUT] < 0
               ? Z3D_OK
               : z3d_flow_fail(flow, "it has an input, but no unit before it has an output");
}

/* The last unit's forward adds to the loss: once a micro-batch, in order (sums of floats depend on
 * it). */
static z3d_status add_loss(z3d_flow *flow) {
    const z3d_instruction *in = entry(flow);
    if (!z3d_model_is_last(flow->program->model, in->unit)) return Z3D_OK;
    if (in->micro != flow->losses) {
        return z3d_flow_fail(flow, "it adds the loss of micro-batch %d; the next to add is %d",
                             in->micro, flow->losses);
    }
    flow->losses++;
    return Z3D_OK;
}

/* A unit has one cache, which persists between the runs of generation. */
static z3d_status use_cache(const z3d_flow *flow, const z3d_trace *trace) {
    const z3d_program *p = flow->program;
    int unit = entry(flow)->unit, buffer = entry(flow)->buffer[Z3D_SLOT_CACHE];
    int own = trace->uses_cache ? z3d_program_cache_buffer(p, unit) : -1;
    if (buffer == own) return Z3D_OK;
    if (buffer < 0) return z3d_flow_fail(flow, "its cache is missing");
    return z3d_flow_fail(flow, "its cache would be buffer %d, %s", buffer,
                         buffer < p->num_buffers ? p->buffer[buffer].name : "which does not exist");
}

static z3d_status forward(z3d_flow *flow) {
    const z3d_instruction *in = entry(flow);
    const z3d_trace *trace;
    int64_t bytes = output_bytes(flow, in->unit);
    Z3D_TRY(begin_unit(flow, z3d_instruction_call(in), &trace));
    Z3D_TRY(read_input(flow));
    Z3D_TRY(use_cache(flow, trace));
    Z3D_TRY(add_loss(flow));
    if (in->need_output && bytes > 0) {
        Z3D_TRY(write_plain(flow, Z3D_SLOT_OUTPUT, bytes, output_of(in->unit, in->micro)));
    } else if (in->buffer[Z3D_SLOT_OUTPUT] >= 0) {
        return z3d_flow_fail(flow, "it has an output buffer, but no output");
    }
    if (trace->saved == 0) return Z3D_OK;
    return write_plain(flow, Z3D_SLOT_SAVED, trace->saved,
                       in->keep ? saved_of(in->unit, in->micro, false) : nothing);
}

static z3d_status add_gradients(z3d_flow *flow, const z3d_trace *trace) {
    const z3d_instruction *in = entry(flow);
    const z3d_unit *unit = &flow->program->model->unit[in->unit];
    bool once = sums(flow) == 1;
    for (int s = 0; s < Z3D_MAX_UNIT_GROUPS; s++) {
        z3d_buffer_operand o;
        if (s >= unit->num_groups || !trace->writes_gradients[s]) {
            if (in->buffer[Z3D_SLOT_GRADIENTS + s] < 0) continue;
            return z3d_flow_fail(flow, "it has a buffer for gradients that it does not write");
        }
        Z3D_TRY(group_operand(flow, Z3D_SLOT_GRADIENTS + s, config_of(flow)->grad_dtype, &o));
        Z3D_TRY(must_be_alone(flow, Z3D_SLOT_GRADIENTS + s));
        bool adds = o.access == Z3D_ACCESS_UPDATE;
        int use = z3d_layout_use(flow->program->layout, in->unit, o.group);
        int before = flow->place[in->unit * Z3D_MAX_UNIT_GROUPS + s] +
                     (once ? in->micro * flow->total[2 * o.group + use] : 0);
        if (adds != (before > 0)) {
            return z3d_flow_fail(
                flow, "it %s the gradients of %s, which have %d earlier contributions",
                adds ? "adds to" : "overwrites", flow->program->model->group[o.group].name, before);
        }
        int sum = once ? 0 : in->micro;
        if (adds) Z3D_TRY(z3d_flow_read(flow, o, gradient_sum(o.group, use, sum, before)));
        Z3D_TRY(z3d_flow_write(flow, o, gradient_sum(o.group, use, sum, before + 1)));
    }
    return Z3D_OK;
}

/* The gradient of the unit's output; the last unit makes it itself, from the loss. */
static z3d_status read_output_gradient(z3d_flow *flow) {
    const z3d_instruction *in = entry(flow);
    int64_t bytes = output_bytes(flow, in->unit);
    if (bytes > 0)
        return read_plain(flow, Z3D_SLOT_OUTPUT_GRADIENT, bytes,
                          output_gradient_of(in->unit, in->micro));
    return flow->losses > in->micro
               ? Z3D_OK
               : z3d_flow_fail(flow, "the loss of micro-batch %d was not computed", in->micro);
}

/* Saved memory may be worked on in place; the halves of backward hand it on. */
static z3d_status use_saved(z3d_flow *flow, const z3d_trace *trace, z3d_call call) {
    const z3d_instruction *in = entry(flow);
    bool first = call == Z3D_CALL_BACKWARD_INPUT, second = call == Z3D_CALL_BACKWARD_WEIGHT;
    if (trace->saved > 0) {
        Z3D_TRY(
            read_plain(flow, Z3D_SLOT_SAVED, trace->saved, saved_of(in->unit, in->micro, second)));
        Z3D_TRY(write_plain(flow, Z3D_SLOT_SAVED, trace->saved,
                            first ? saved_of(in->unit, in->micro, true) : nothing));
    }
    if (trace->deferred == 0) return Z3D_OK;
    if (second)
        Z3D_TRY(
            read_plain(flow, Z3D_SLOT_DEFERRED, trace->deferred, deferred_of(in->unit, in->micro)));
    return write_plain(flow, Z3D_SLOT_DEFERRED, trace->deferred,
                       first ? deferred_of(in->unit, in->micro) : nothing);
}

/* Backward, or one of its halves. */
static z3d_status backward(z3d_flow *flow) {
    const z3d_instruction *in = entry(flow);
    const z3d_trace *trace;
    z3d_call call = z3d_instruction_call(in);
    Z3D_TRY(begin_unit(flow, call, &trace));
    if (trace->reads_input) Z3D_TRY(read_input(flow));
    Z3D_TRY(use_saved(flow, trace, call));
    if (call != Z3D_CALL_BACKWARD_WEIGHT || trace->reads_output_gradient)
        Z3D_TRY(read_output_gradient(flow));
    if (call != Z3D_CALL_BACKWARD_INPUT) Z3D_TRY(add_gradients(flow, trace));
    int source = source_of(flow);
    if (source < 0 || call == Z3D_CALL_BACKWARD_WEIGHT) return Z3D_OK;
    return write_plain(flow, Z3D_SLOT_INPUT_GRADIENT, output_bytes(flow, source),
                       output_gradient_of(source, in->micro));
}

/* ---- what moves ---- */

/* The entry moves values of its own kind, group and unit only: their type and size are its own. */
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

/* It means something else on every rank: a part of a sum, or a unit's output where each tensor rank
 * has the rows of its own part of the sequence. */
static bool differs_by_rank(const z3d_flow *flow, z3d_value v) {
    bool activation = v.kind == Z3D_VALUE_OUTPUT || v.kind == Z3D_VALUE_OUTPUT_GRADIENT;
    return v.kind == Z3D_VALUE_GRADIENT_SUM || v.pending != 0 ||
           (activation && z3d_model_splits_rows(flow->program->model, flow->program->mode));
}

/* What `to` holds once `held` has moved there; refuses what must not move. */
static z3d_status moved_value(const z3d_flow *flow, const z3d_buffer_operand *from, z3d_value held,
                              z3d_value *out) {
    const char *must = NULL;
    bool is_sum = held.kind == Z3D_VALUE_GRADIENT_SUM;
    *out = held;
    if (!is_moved(flow, held)) return z3d_flow_mismatch(flow, from, "what it moves", held);
    switch (info(flow)->rules) {
    case Z3D_CLASS_ALL_GATHER:
        if (differs_by_rank(flow, held)) must = "what all ranks have finished";
        break;
    case Z3D_CLASS_REDUCE_SCATTER:
        if (!is_sum || held.count != contributions(flow, held.of, held.use))
            must = "a complete sum of gradients";
        *out = reduced(flow, held.of, held.use, held.micro, 1);
        break;
    case Z3D_CLASS_ALL_REDUCE: /* it stands for the whole row, whichever columns the layout says */
        if (held.pending != Z3D_PENDING_REPLICAS) must = "parts of a sum";
        out->pending = 0;
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

/* From where and to where the entry moves. Without a source of its own it works in place: an
 * all-gather from the own row to the others, the rest on all of `to`. */
static z3d_status moved_operands(const z3d_flow *flow, z3d_buffer_operand *from,
                                 z3d_buffer_operand *to) {
    bool gathers = info(flow)->rules == Z3D_CLASS_ALL_GATHER;
    bool apart = z3d_moves_apart(entry(flow));
    Z3D_TRY(moved_operand(flow, (int)info(flow)->to, to));
    *from = *to;
    if (apart) Z3D_TRY(moved_operand(flow, (int)info(flow)->from, from));
    if (gathers) from->rows = Z3D_ROWS_OWN;
    if (gathers && !apart) to->rows = Z3D_ROWS_OTHERS;
    return Z3D_OK;
}

/* Adds what follows the sums that `to` holds, or to all of them those of the other chunk. */
static z3d_status add_sums(z3d_flow *flow, const z3d_buffer_operand *to, z3d_value *value) {
    z3d_value before;
    Z3D_TRY(z3d_flow_take(flow, *to, &before));
    if (value->kind == Z3D_VALUE_GRADIENT_TWIN || value->use != before.use) {
        Z3D_TRY(z3d_flow_read(flow, *to, reduced(flow, value->of, 0, 0, sums(flow))));
        bool all = value->kind == Z3D_VALUE_GRADIENT_TWIN || value->count == sums(flow);
        if (!all) return z3d_flow_fail(flow, "the sum of the group's second chunk is not complete");
        *value = before;
        value->pending &= ~Z3D_PENDING_TWIN;
        return Z3D_OK;
    }
    if (before.kind != value->kind || before.of != value->of ||
        before.micro + before.count != value->micro)
        return z3d_flow_mismatch(flow, to, "the sums before those that are added", before);
    value->micro = before.micro;
    value->count += before.count;
    return Z3D_OK;
}

/* Only host memory is beside the device, the disk and itself. */
static z3d_status check_way(const z3d_flow *flow, const z3d_buffer_operand *from,
                            const z3d_buffer_operand *to) {
    const z3d_buffer *buffer = flow->program->buffer;
    const z3d_space a = buffer[from->buffer].space, b = buffer[to->buffer].space;
    bool copies = info(flow)->rules == Z3D_CLASS_COPY && entry(flow)->phase != Z3D_PHASE_WHOLE;
    if (!copies || from->buffer == to->buffer || a == Z3D_SPACE_HOST || b == Z3D_SPACE_HOST)
        return Z3D_OK;
    return z3d_flow_fail(flow, "its %s is %s, and its %s %s: one of them must be in host memory",
                         z3d_slot_text(from->slot), z3d_space_text(a), z3d_slot_text(to->slot),
                         a == b ? "too" : z3d_space_text(b));
}

/* From its start to its wait nobody may write what it reads, or touch what it writes. */
static z3d_status move(z3d_flow *flow, bool start) {
    z3d_buffer_operand from, to;
    z3d_value value;
    Z3D_TRY(moved_operands(flow, &from, &to));
    Z3D_TRY(check_way(flow, &from, &to));
    bool waits = entry(flow)->phase == Z3D_PHASE_WAIT;
    bool reads = from.buffer != to.buffer || from.rows != to.rows;
    if (waits && reads) Z3D_TRY(z3d_flow_unlock(flow, from, false));
    if (waits) Z3D_TRY(z3d_flow_unlock(flow, to, true));
    Z3D_TRY(z3d_flow_take(flow, from, &value));
    Z3D_TRY(moved_value(flow, &from, value, &value));
    if (to.access == Z3D_ACCESS_READ) /* a copy in place: it stays */
        return start || waits ? z3d_flow_fail(flow, "it moves nothing") : Z3D_OK;
    if (start && reads) Z3D_TRY(z3d_flow_lock(flow, from, false));
    if (start) return z3d_flow_lock(flow, to, true);
    if (info(flow)->rules == Z3D_CLASS_SUM && to.access == Z3D_ACCESS_UPDATE)
        Z3D_TRY(add_sums(flow, &to, &value));
    if (info(flow)->rules == Z3D_CLASS_REDUCE_SCATTER) {
        Z3D_TRY(z3d_flow_write(flow, to, nothing));
        to.rows = Z3D_ROWS_OWN;
    }
    return z3d_flow_write(flow, to, value);
}

/* ---- what crosses pipeline stages ---- */

/* What one end has and the other gets: that the ends belong together, the play of all ranks checks.
 */
static z3d_value crossing_value(const z3d_flow *flow) {
    const z3d_instruction *in = entry(flow);
    if (info(flow)->moves == Z3D_MOVES_ACTIVATIONS) return output_of(source_of(flow), in->micro);
    if (info(flow)->moves == Z3D_MOVES_ACTIVATION_GRADIENTS)
        return output_gradient_of(source_of(flow), in->micro);
    return reduced(flow, in->group, 0, 0, sums(flow));
}

/* The unit is on one side of the border and the unit before it on the other; a group is on both. */
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
    return z3d_flow_fail(flow, "it %s pipeline stage %d, which %s",
                         send ? "sends to" : "receives from", in->peer, "is not the other end");
}

/* From its start to its wait a send reads its source, and a receive writes its destination. */
static z3d_status cross(z3d_flow *flow, bool start) {
    bool send = info(flow)->rules == Z3D_CLASS_SEND;
    z3d_value value = crossing_value(flow);
    z3d_buffer_operand o;
    Z3D_TRY(check_peer(flow, send));
    Z3D_TRY(moved_operand(flow, (int)(send ? info(flow)->from : info(flow)->to), &o));
    if (!send) Z3D_TRY(must_not_persist(flow, o.slot));
    if (!start) Z3D_TRY(z3d_flow_unlock(flow, o, !send));
    if (send) Z3D_TRY(z3d_flow_read(flow, o, value));
    if (start) return z3d_flow_lock(flow, o, !send);
    if (send) return Z3D_OK;
    if (entry(flow)->group >= 0) value.kind = Z3D_VALUE_GRADIENT_TWIN, value.pending = 0;
    return z3d_flow_write(flow, o, value);
}

static z3d_status mark(z3d_flow *flow) {
    z3d_buffer_operand gone;
    Z3D_TRY(moved_operand(flow, (int)info(flow)->to, &gone));
    Z3D_TRY(must_not_persist(flow, gone.slot));
    return z3d_flow_write(flow, gone, nothing);
}

/* ---- the step ---- */

static z3d_status begin_step(z3d_flow *flow) {
    if (flow->begun) return z3d_flow_fail(flow, "the step has already begun");
    flow->begun = true;
    return Z3D_OK;
}

static z3d_status end_step(z3d_flow *flow) {
    if (flow->ended) return z3d_flow_fail(flow, "there is already one");
    int last = flow->program->model->num_units - 1;
    if (flow->losses != micro_batches(flow) && z3d_layout_has_unit(flow->program->layout, last))
        return z3d_flow_fail(flow, "%d of %d micro-batches ran through the last unit", flow->losses,
                             micro_batches(flow));
    flow->ended = true;
    return Z3D_OK;
}

static bool gradients_leave(const z3d_flow *flow, int group) {
    return flow->program->layout->group[group].kept[Z3D_PART_GRADIENTS].space != Z3D_SPACE_DEVICE;
}

/* The squares of gradients that leave the device are added up once, before they are exchanged. */
static z3d_status norm(z3d_flow *flow) {
    const int group = entry(flow)->group;
    z3d_buffer_operand gradient;
    if (flow->ended) return z3d_flow_fail(flow, "it must come before step_control");
    if (!gradients_leave(flow, group))
        return z3d_flow_fail(flow, "step_control adds these squares up");
    if (flow->squared[group]) return z3d_flow_fail(flow, "it would add the squares up again");
    Z3D_TRY(moved_operand(flow, (int)info(flow)->from, &gradient));
    Z3D_TRY(z3d_flow_read(flow, gradient, final_gradient(flow, group)));
    flow->squared[group] = true;
    return Z3D_OK;
}

/* It reads the loss and, in training, every group's own row of the kept gradients (norm, overflow),
 * unless its squares were added up before. */
static z3d_status exchange(z3d_flow *flow) {
    const z3d_program *p = flow->program;
    Z3D_TRY(end_step(flow));
    for (int g = 0; g < p->model->num_groups && trains(flow); g++) {
        if (!p->layout->group[g].held || flow->squared[g]) continue;
        if (gradients_leave(flow, g))
            return z3d_flow_fail(flow, "nothing added up the squares of %s's gradients",
                                 p->model->group[g].name);
        Z3D_TRY(z3d_flow_expect(flow, z3d_program_group_buffer(p, g, Z3D_PART_GRADIENTS),
                                Z3D_ROWS_OWN, final_gradient(flow, g)));
    }
    return Z3D_OK;
}

static z3d_status result(z3d_flow *flow) {
    int last = flow->program->model->num_units - 1;
    int64_t bytes = output_bytes(flow, last);
    Z3D_TRY(end_step(flow));
    if (z3d_layout_has_unit(flow->program->layout, last))
        return bytes > 0 ? read_plain(flow, (int)info(flow)->from, bytes, output_of(last, 0))
                         : Z3D_OK;
    return write_plain(flow, (int)info(flow)->to, bytes, output_of(last, 0));
}

/* An operand that must be the group's persistent buffer: the executor finds it by the group. */
static z3d_status kept_operand(const z3d_flow *flow, int slot, z3d_group_part part,
                               z3d_buffer_operand *out) {
    const z3d_program *p = flow->program;
    *out = operand(flow, slot);
    int must = z3d_program_group_buffer(p, out->group, part);
    if (out->buffer == must) return Z3D_OK;
    return z3d_flow_fail(flow, "its %s is %s, but must be %s", z3d_slot_text(slot),
                         out->buffer >= 0 ? p->buffer[out->buffer].name : "missing",
                         p->buffer[must].name);
}

static int64_t host_bytes(const z3d_flow *flow, const z3d_buffer_operand *o, int tensors,
                          z3d_dtype dtype) {
    bool own = flow->program->buffer[o->buffer].rows == Z3D_ROWS_OWN;
    int64_t padded = flow->program->layout->group[o->group].padded;
    return own ? run_bytes(flow, o, tensors, dtype)
               : tensors * padded * (int64_t)z3d_dtype_size(dtype);
}

static z3d_status optimizer(z3d_flow *flow) {
    int group = entry(flow)->group;
    z3d_buffer_operand parameters, states, gradient;
    if (!flow->ended) return z3d_flow_fail(flow, "it must come after step_control");
    if (!flow->program->layout->group[group].held)
        return z3d_flow_fail(flow, "this pipeline stage does not have the group");
    Z3D_TRY(kept_operand(flow, Z3D_SLOT_PARAMETERS, Z3D_PART_PARAMETERS, &parameters));
    Z3D_TRY(kept_operand(flow, Z3D_SLOT_OPTIMIZER, Z3D_PART_OPTIMIZER, &states));
    Z3D_TRY(kept_operand(flow, Z3D_SLOT_SHARD, Z3D_PART_GRADIENTS, &gradient));
    Z3D_TRY(z3d_flow_read(flow, gradient, final_gradient(flow, group)));
    Z3D_TRY(z3d_flow_read(flow, parameters, parameters_of(group, false)));
    Z3D_TRY(z3d_flow_read(flow, states, optimizer_of(group, false)));
    Z3D_TRY(z3d_flow_write(flow, parameters, parameters_of(group, true)));
    return z3d_flow_write(flow, states, optimizer_of(group, true));
}

/* Before step_control there is what it decided in the step before. */
static z3d_status check_control(const z3d_flow *flow) {
    if (flow->ended != config_of(flow)->offload.delayed) return Z3D_OK;
    return z3d_flow_fail(flow, flow->ended ? "it must come before step_control, which forgets what "
                                             "it decided for these gradients"
                                           : "it must come after step_control");
}

/* The same on columns of it, in host memory. Parameters follow from the master copy. */
static z3d_status host_optimizer(z3d_flow *flow) {
    const z3d_program *p = flow->program;
    const int group = entry(flow)->group;
    const z3d_kept *kept = p->layout->group[group].kept;
    const int tensors = z3d_count_kinds(kept[Z3D_PART_OPTIMIZER].kinds);
    z3d_buffer_operand gradient = operand(flow, Z3D_SLOT_INPUT);
    z3d_buffer_operand states = operand(flow, Z3D_SLOT_OPTIMIZER);
    z3d_buffer_operand parameters = operand(flow, Z3D_SLOT_PARAMETERS);
    Z3D_TRY(check_control(flow));
    if (entry(flow)->rows != kept[Z3D_PART_OPTIMIZER].rows)
        return z3d_flow_fail(flow, "its rows are not those that this rank steps");
    if (gradient.buffer < 0 || states.buffer < 0 || parameters.buffer < 0)
        return z3d_flow_fail(flow, "it needs gradients, states and parameters");
    Z3D_TRY(
        z3d_flow_operand(flow, &gradient, host_bytes(flow, &gradient, 1, p->config.grad_dtype)));
    Z3D_TRY(z3d_flow_operand(flow, &states, host_bytes(flow, &states, tensors, Z3D_F32)));
    Z3D_TRY(z3d_flow_operand(flow, &parameters, host_bytes(flow, &parameters, 1, p->config.dtype)));
    Z3D_TRY(z3d_flow_read(flow, gradient, applied_gradient(flow, group)));
    Z3D_TRY(z3d_flow_read(flow, states, optimizer_of(group, false)));
    Z3D_TRY(z3d_flow_write(flow, parameters, parameters_of(group, true)));
    return z3d_flow_write(flow, states, optimizer_of(group, true));
}

/* ---- starts and waits ---- */

static bool same_move(const z3d_instruction *a, const z3d_instruction *b) {
    bool same = a->opcode == b->opcode && a->unit == b->unit && a->micro == b->micro &&
                a->group == b->group && a->axes == b->axes && a->rows == b->rows &&
                a->peer == b->peer && a->first == b->first && a->count == b->count;
    return same && memcmp(a->buffer, b->buffer, sizeof a->buffer) == 0;
}

/* Whether the entry is a start (or the one wait for a start that came before). */
static z3d_status enter_phase(z3d_flow *flow, bool *start) {
    const z3d_instruction *in = entry(flow);
    *start = in->phase == Z3D_PHASE_START;
    if (in->phase == Z3D_PHASE_WHOLE) return Z3D_OK;
    int *started = &flow->started[in->ticket];
    if (*start != (*started < 0))
        return z3d_flow_fail(flow, *start ? "nothing has waited for the entry before it with its "
                                            "ticket"
                                          : "it waits for an entry that was not started, or that "
                                            "another wait finished");
    if (!*start && !same_move(&flow->program->instruction[*started], in))
        return z3d_flow_fail(flow, "it waits for entry %d, which moves something else", *started);
    *started = *start ? flow->at : -1;
    return Z3D_OK;
}

/* ---- the program ---- */

/* What the table says of the entry's kind. */
static z3d_status check_kind(z3d_flow *flow) {
    const z3d_instruction *in = entry(flow);
    const z3d_opcode_info *info = z3d_opcode_info_of(in->opcode);
    bool unit = info->rules >= Z3D_CLASS_FORWARD && info->rules <= Z3D_CLASS_BACKWARD_WEIGHT;
    if (z3d_is_collective(in) && in->phase == Z3D_PHASE_WHOLE)
        return z3d_flow_fail(flow, "it must be started and waited for");
    if (!z3d_is_collective(in) && info->rules != Z3D_CLASS_COPY && in->phase != Z3D_PHASE_WHOLE)
        return z3d_flow_fail(flow,
                             "only entries that run beside compute can be started and waited for");
    z3d_axes axes = z3d_opcode_axes(flow->program->layout, in->opcode, in->group);
    if (in->axes != axes)
        return z3d_flow_fail(flow, "it uses the %s group, but must use the %s group",
                             z3d_axes_name(in->axes).text, z3d_axes_name(axes).text);
    if (!unit && in->num_children != 0)
        return z3d_flow_fail(flow, "it lists %d inner collectives, but only units may have them",
                             in->num_children);
    if (!(info->modes >> flow->program->mode & 1))
        return z3d_flow_fail(flow, "a program of this mode must not have it");
    return Z3D_OK;
}

static z3d_status perform(z3d_flow *flow) {
    bool start;
    Z3D_TRY(check_kind(flow));
    Z3D_TRY(enter_phase(flow, &start));
    switch (info(flow)->rules) {
    case Z3D_CLASS_MARK:
        return mark(flow);
    case Z3D_CLASS_BEGIN:
        return begin_step(flow);
    case Z3D_CLASS_EXCHANGE:
        return exchange(flow);
    case Z3D_CLASS_RESULT:
        return result(flow);
    case Z3D_CLASS_FORWARD:
        return forward(flow);
    case Z3D_CLASS_BACKWARD:
    case Z3D_CLASS_BACKWARD_INPUT:
    case Z3D_CLASS_BACKWARD_WEIGHT:
        return backward(flow);
    case Z3D_CLASS_NORM:
        return norm(flow);
    case Z3D_CLASS_OPTIMIZER:
        return optimizer(flow);
    case Z3D_CLASS_HOST_OPTIMIZER:
        return host_optimizer(flow);
    case Z3D_CLASS_SEND:
    case Z3D_CLASS_RECV:
        return cross(flow, start);
    default:
        return move(flow, start);
    }
}

/* Every rank keeps its own rows. Those of the others are as new as its own where it steps them
 * itself or they were gathered since; otherwise they are those of the step before. */
static z3d_status set_start(z3d_flow *flow) {
    const z3d_program *p = flow->program;
    for (int g = 0; g < p->model->num_groups; g++) {
        const z3d_kept *kept = p->layout->group[g].kept;
        if (!p->layout->group[g].held) continue;
        z3d_rows rows = kept[Z3D_PART_OPTIMIZER].rows;
        z3d_rows parameter_rows = p->config.gathered ? kept[Z3D_PART_PARAMETERS].rows : rows;
        Z3D_TRY(z3d_flow_set(flow, z3d_program_group_buffer(p, g, Z3D_PART_PARAMETERS),
                             parameter_rows, parameters_of(g, false)));
        Z3D_TRY(z3d_flow_set(flow, z3d_program_group_buffer(p, g, Z3D_PART_OPTIMIZER), rows,
                             optimizer_of(g, false)));
        if (!trains(flow) || !p->config.offload.delayed) continue;
        Z3D_TRY(z3d_flow_set(flow, z3d_program_group_buffer(p, g, Z3D_PART_GRADIENTS), rows,
                             applied_gradient(flow, g)));
    }
    return Z3D_OK;
}

/* What a program that only reads parameters has gathered stays for the next run of its mode
 * (config.gathered). */
static z3d_status check_gathered(z3d_flow *flow) {
    const z3d_program *p = flow->program;
    for (int u = 0; u < p->model->num_units && !trains(flow); u++) {
        const z3d_unit *unit = &p->model->unit[u];
        if (!z3d_layout_has_unit(p->layout, u)) continue;
        const z3d_trace *trace = z3d_traces_get(p->traces, p->mode, unit->kind, Z3D_CALL_FORWARD);
        for (int s = 0; s < unit->num_groups; s++) {
            int g = unit->group[s];
            if (!trace->reads_parameters[s]) continue;
            Z3D_TRY(z3d_flow_expect(flow, z3d_program_group_buffer(p, g, Z3D_PART_PARAMETERS),
                                    p->layout->group[g].kept[Z3D_PART_PARAMETERS].rows,
                                    parameters_of(g, false)));
        }
    }
    return Z3D_OK;
}

static z3d_status check_end(z3d_flow *flow) {
    const z3d_program *p = flow->program;
    for (int t = 0; t < p->num_tickets; t++) {
        if (flow->started[t] < 0) continue;
        flow->at = flow->started[t];
        return z3d_flow_fail(flow, "nothing waits for it");
    }
    flow->at = p->num_instructions; /* "the end of the program" */
    if (!flow->ended)
        return z3d_flow_fail(flow, "%s is missing",
                             trains(flow) ? "step_control" : "the entry that gives the result");
    for (int g = 0; g < p->model->num_groups; g++) {
        z3d_rows rows = p->layout->group[g].kept[Z3D_PART_OPTIMIZER].rows;
        if (!p->layout->group[g].held) continue;
        Z3D_TRY(z3d_flow_expect(flow, z3d_program_group_buffer(p, g, Z3D_PART_PARAMETERS), rows,
                                parameters_of(g, trains(flow))));
        Z3D_TRY(z3d_flow_expect(flow, z3d_program_group_buffer(p, g, Z3D_PART_OPTIMIZER), rows,
                                optimizer_of(g, trains(flow))));
        if (!trains(flow)) continue;
        Z3D_TRY(z3d_flow_expect(flow, z3d_program_group_buffer(p, g, Z3D_PART_GRADIENTS),
                                p->config.offload.delayed ? rows : Z3D_ROWS_OWN,
                                final_gradient(flow, g)));
    }
    return check_gathered(flow);
}

z3d_status z3d_program_verify(const z3d_program *program) {
    z3d_flow flow;
    Z3D_TRY(z3d_verify_indices(program));
    Z3D_TRY(z3d_verify_memory(program));
    z3d_status status = z3d_flow_create(program, &flow);
    if (status == Z3D_OK) status = set_start(&flow);
    for (; status == Z3D_OK && flow.at < program->num_instructions; flow.at++) {
        status = perform(&flow);
    }
    if (status == Z3D_OK) status = check_end(&flow);
    z3d_flow_release(&flow);
    return status;
}
