/* The rules of units: forward, backward and its halves. */
#include "zero/verify/rules.h"

/* The whole [N x shard] matrix of a unit's group. */
static z3d_status group_operand(const z3d_flow *flow, int slot, z3d_dtype dtype,
                                z3d_buffer_operand *out) {
    *out = operand(flow, slot);
    return z3d_flow_operand(flow, out,
                            z3d_bytes_of(dtype, flow->program->layout->group[out->group].padded));
}

/* The entry's inner collectives are the recorded ones. */
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
        Z3D_TRY(group_operand(flow, z3d_slot_parameters(s), config_of(flow)->dtype, &o));
        Z3D_TRY(z3d_flow_read(flow, o, parameters_of(o.group, false)));
    }
    return Z3D_OK;
}

/* The rules of every run of a unit: its place in the step, collectives, parameters, workspace. */
static z3d_status begin_unit(z3d_flow *flow, z3d_call call, const z3d_trace **out) {
    const z3d_program *p = flow->program;
    const z3d_trace *trace = z3d_traces_of(p->traces, p->mode, entry(flow)->unit, call);
    *out = trace;
    if (!trace->recorded) return z3d_flow_fail(flow, "this call of its unit was not recorded");
    if (!z3d_layout_has_unit(p->layout, entry(flow)->unit))
        return z3d_flow_fail(flow, "its unit belongs to pipeline stage %d",
                             z3d_layout_stage_of(p->layout, entry(flow)->unit));
    if (!flow->begun) return z3d_flow_fail(flow, "the step has not begun");
    if (flow->ended) return z3d_flow_fail(flow, "it comes after the end of the step");
    Z3D_TRY(check_children(flow, trace));
    Z3D_TRY(read_parameters(flow, trace));
    if (trace->workspace == 0) return Z3D_OK;
    return z3d_flow_write_plain(flow, Z3D_SLOT_WORKSPACE, trace->workspace, nothing);
}

static z3d_status read_input(z3d_flow *flow) {
    int source = source_of(flow);
    if (source >= 0)
        return z3d_flow_read_plain(flow, Z3D_SLOT_INPUT, output_bytes(flow, source),
                                   output_of(source, entry(flow)->micro));
    return entry(flow)->buffer[Z3D_SLOT_INPUT] < 0
               ? Z3D_OK
               : z3d_flow_fail(flow, "it has an input, but no unit before it has an output");
}

/* The last unit's forward adds to the loss once a micro-batch, in order: the order decides the
 * bits. */
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

/* A unit has one cache, which persists between runs. */
static z3d_status use_cache(const z3d_flow *flow, const z3d_trace *trace) {
    const z3d_program *p = flow->program;
    int unit = entry(flow)->unit, buffer = entry(flow)->buffer[Z3D_SLOT_CACHE];
    int own = trace->uses_cache ? z3d_program_cache_buffer(p, unit) : -1;
    if (buffer == own) return Z3D_OK;
    if (buffer < 0) return z3d_flow_fail(flow, "its cache is missing");
    return z3d_flow_fail(flow, "its cache may not be buffer %d, %s", buffer,
                         z3d_buffer_name(&p->buffer[buffer]).text);
}

z3d_status z3d_rule_forward(z3d_flow *flow) {
    const z3d_instruction *in = entry(flow);
    const z3d_trace *trace;
    int64_t bytes = output_bytes(flow, in->unit);
    Z3D_TRY(begin_unit(flow, z3d_instruction_call(in), &trace));
    Z3D_TRY(read_input(flow));
    Z3D_TRY(use_cache(flow, trace));
    Z3D_TRY(add_loss(flow));
    if (in->need_output && bytes > 0)
        Z3D_TRY(z3d_flow_write_plain(flow, Z3D_SLOT_OUTPUT, bytes, output_of(in->unit, in->micro)));
    else if (in->buffer[Z3D_SLOT_OUTPUT] >= 0)
        return z3d_flow_fail(flow, "it has an output buffer, but no output");
    if (trace->saved == 0) return Z3D_OK;
    return z3d_flow_write_plain(flow, Z3D_SLOT_SAVED, trace->saved,
                                in->keep ? saved_of(in->unit, in->micro, false) : nothing);
}

static z3d_status add_gradients(z3d_flow *flow, const z3d_trace *trace) {
    const z3d_instruction *in = entry(flow);
    const z3d_unit *unit = &flow->program->model->unit[in->unit];
    bool once = sums(flow) == 1;
    for (int s = 0; s == 0 || s < unit->num_groups; s++) {
        z3d_buffer_operand o;
        if (s >= unit->num_groups || !trace->writes_gradients[s]) {
            if (in->buffer[z3d_slot_gradients(s)] < 0) continue;
            return z3d_flow_fail(flow, "it has a buffer for gradients that it does not write");
        }
        Z3D_TRY(group_operand(flow, z3d_slot_gradients(s), config_of(flow)->grad_dtype, &o));
        Z3D_TRY(z3d_flow_must_be_alone(flow, z3d_slot_gradients(s)));
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

/* The gradient of the unit's output; the last unit computes it from the loss. */
static z3d_status read_output_gradient(z3d_flow *flow) {
    const z3d_instruction *in = entry(flow);
    int64_t bytes = output_bytes(flow, in->unit);
    if (bytes > 0)
        return z3d_flow_read_plain(flow, Z3D_SLOT_OUTPUT_GRADIENT, bytes,
                                   output_gradient_of(in->unit, in->micro));
    return flow->losses > in->micro
               ? Z3D_OK
               : z3d_flow_fail(flow, "the loss of micro-batch %d was not computed", in->micro);
}

/* Backward may change saved memory in place; its first half keeps it for the second. */
static z3d_status use_saved(z3d_flow *flow, const z3d_trace *trace, z3d_call call) {
    const z3d_instruction *in = entry(flow);
    bool first = call == Z3D_CALL_BACKWARD_INPUT, second = call == Z3D_CALL_BACKWARD_WEIGHT;
    if (trace->saved > 0) {
        Z3D_TRY(z3d_flow_read_plain(flow, Z3D_SLOT_SAVED, trace->saved,
                                    saved_of(in->unit, in->micro, second)));
        Z3D_TRY(z3d_flow_write_plain(flow, Z3D_SLOT_SAVED, trace->saved,
                                     first ? saved_of(in->unit, in->micro, true) : nothing));
    }
    if (trace->deferred == 0) return Z3D_OK;
    if (second)
        Z3D_TRY(z3d_flow_read_plain(flow, Z3D_SLOT_DEFERRED, trace->deferred,
                                    deferred_of(in->unit, in->micro)));
    return z3d_flow_write_plain(flow, Z3D_SLOT_DEFERRED, trace->deferred,
                                first ? deferred_of(in->unit, in->micro) : nothing);
}

z3d_status z3d_rule_backward(z3d_flow *flow) {
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
    if (!z3d_layout_wants_input_gradient(flow->program->layout, in->unit))
        return in->buffer[Z3D_SLOT_INPUT_GRADIENT] < 0
                   ? Z3D_OK
                   : z3d_flow_fail(flow,
                                   "it cannot have an input gradient: no earlier unit is trained");
    return z3d_flow_write_plain(flow, Z3D_SLOT_INPUT_GRADIENT, output_bytes(flow, source),
                                output_gradient_of(source, in->micro));
}
