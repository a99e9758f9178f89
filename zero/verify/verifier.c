/* The verifier of one rank's program: runs it symbolically against the naive step (verifier.h says
 * how values are named). One function per opcode: what its operands must hold, and what they hold
 * then. It asks neither stage nor overlap; of the configuration it reads what a step means (number
 * of micro-batches, once reduced or each), and of the layout how many rows persist. */
#include <stdlib.h>

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

static int contributions(const z3d_flow *flow, int group) {
    return flow->total[group] * (config_of(flow)->accumulation / sums(flow));
}

static z3d_value output_of(int unit, int micro) {
    return (z3d_value){Z3D_VALUE_OUTPUT, unit, micro, 0};
}

static z3d_value output_gradient_of(int unit, int micro) {
    return (z3d_value){Z3D_VALUE_OUTPUT_GRADIENT, unit, micro, 0};
}

static z3d_value saved_of(int unit, int micro) {
    return (z3d_value){Z3D_VALUE_SAVED, unit, micro, 0};
}

static z3d_value parameters_of(int group, bool stepped) {
    return (z3d_value){Z3D_VALUE_PARAMETERS, group, 0, stepped};
}

static z3d_value optimizer_of(int group, bool stepped) {
    return (z3d_value){Z3D_VALUE_OPTIMIZER, group, 0, stepped};
}

static z3d_value gradient_sum(int group, int sum, int count) {
    return (z3d_value){Z3D_VALUE_GRADIENT_SUM, group, sum, count};
}

/* What a reduction over the data group leaves in the own row. In a sequence-parallel model some of
 * it is still this tensor rank's part, where the group has replicated parameters. */
static z3d_value reduced(const z3d_flow *flow, int group, int first_sum, int count) {
    const z3d_program *p = flow->program;
    bool part = p->model->sequence_parallel && z3d_layout_replicates(p->layout, group);
    return (z3d_value){part ? Z3D_VALUE_GRADIENT_PART : Z3D_VALUE_GRADIENT_REDUCED, group,
                       first_sum, count};
}

static z3d_value final_gradient(const z3d_flow *flow, int group) {
    return (z3d_value){Z3D_VALUE_GRADIENT_REDUCED, group, 0, sums(flow)};
}

static const z3d_value nothing = {Z3D_VALUE_NOTHING, 0, 0, 0};

/* ---- operands ---- */

static const z3d_instruction *entry(const z3d_flow *flow) {
    return &flow->program->instruction[flow->at];
}

static z3d_access plain(int slot) {
    return (z3d_access){slot, Z3D_ROWS_OWN, 0, 1};
}

static z3d_access matrix(const z3d_flow *flow, int slot, int rows, int group) {
    return (z3d_access){slot, rows, 0, flow->program->layout->group[group].shard};
}

static z3d_access bucket(const z3d_flow *flow, int slot, int rows) {
    return (z3d_access){slot, rows, entry(flow)->first, entry(flow)->count};
}

static int64_t matrix_bytes(const z3d_flow *flow, int group, z3d_dtype dtype) {
    return flow->program->layout->group[group].padded * (int64_t)z3d_dtype_size(dtype);
}

static int rows_of(const z3d_flow *flow, int group, z3d_group_part part) {
    return (int)flow->program->layout->group[group].kept[part].rows;
}

/* A slot that must hold the group's persistent buffer: the executor finds it by the group. */
static z3d_status must_be_kept(const z3d_flow *flow, int slot, int group, z3d_group_part part) {
    int index = entry(flow)->buffer[slot],
        must = z3d_program_group_buffer(flow->program, group, part);
    if (index == must) return Z3D_OK;
    return z3d_flow_fail(flow, "its %s is %s, but must be %s", z3d_slot_text(slot),
                         index >= 0 ? flow->program->buffer[index].name : "missing",
                         flow->program->buffer[must].name);
}

static z3d_status must_not_persist(const z3d_flow *flow, int slot) {
    const z3d_buffer *b = &flow->program->buffer[entry(flow)->buffer[slot]];
    if (!b->persistent) return Z3D_OK;
    return z3d_flow_fail(flow, "its %s would overwrite the persistent %s", z3d_slot_text(slot),
                         b->name);
}

/* ---- units ---- */

static int64_t output_bytes(const z3d_flow *flow, int unit) {
    return z3d_program_output_bytes(flow->program, unit);
}

static z3d_status read_plain(z3d_flow *flow, int slot, int64_t bytes, z3d_value value) {
    Z3D_TRY(z3d_flow_operand(flow, slot, bytes));
    return z3d_flow_read(flow, plain(slot), value);
}

/* Nothing else of the entry may lie in a buffer that it writes. */
static z3d_status write_plain(z3d_flow *flow, int slot, int64_t bytes, z3d_value value) {
    Z3D_TRY(z3d_flow_operand(flow, slot, bytes));
    Z3D_TRY(must_not_persist(flow, slot));
    for (int other = 0; other < Z3D_SLOT_COUNT; other++) {
        if (other == slot || entry(flow)->buffer[other] != entry(flow)->buffer[slot]) continue;
        return z3d_flow_fail(flow, "its %s and its %s are the same buffer", z3d_slot_text(slot),
                             z3d_slot_text(other));
    }
    return z3d_flow_write(flow, plain(slot), value);
}

static bool same_child(const z3d_child *a, const z3d_child *b) {
    return a->kind == b->kind && a->op == b->op && a->dtype == b->dtype && a->axis == b->axis &&
           a->count == b->count && a->scalar == b->scalar;
}

/* What the unit did when it was recorded is what it will do. */
static z3d_status check_children(const z3d_flow *flow, const z3d_trace *trace) {
    const z3d_instruction *in = entry(flow);
    if (in->num_children != trace->num_children) {
        return z3d_flow_fail(flow, "it lists %d inner collectives, but its recording has %d",
                             in->num_children, trace->num_children);
    }
    for (int c = 0; c < in->num_children; c++) {
        if (same_child(&in->child[c], &trace->child[c])) continue;
        return z3d_flow_fail(flow, "its inner collective %d is not the recorded one (%s of %lld)",
                             c + 1, z3d_collective_name(trace->child[c].kind),
                             (long long)trace->child[c].count);
    }
    return Z3D_OK;
}

static z3d_status read_parameters(z3d_flow *flow, const z3d_trace *trace) {
    const z3d_unit *unit = &flow->program->model->unit[entry(flow)->unit];
    for (int s = 0; s < unit->num_groups; s++) {
        int slot = Z3D_SLOT_PARAMETERS + s, group = unit->group[s];
        if (!trace->reads_parameters[s]) continue;
        Z3D_TRY(z3d_flow_operand(flow, slot, matrix_bytes(flow, group, config_of(flow)->dtype)));
        Z3D_TRY(z3d_flow_read(flow, matrix(flow, slot, Z3D_ROWS_ALL, group),
                              parameters_of(group, false)));
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
    if (!flow->begun) return z3d_flow_fail(flow, "the step has not begun");
    if (flow->controlled) return z3d_flow_fail(flow, "it must come before step_control");
    Z3D_TRY(check_children(flow, trace));
    Z3D_TRY(read_parameters(flow, trace));
    if (trace->workspace == 0) return Z3D_OK;
    return write_plain(flow, Z3D_SLOT_WORKSPACE, trace->workspace, nothing);
}

static int source_of(const z3d_flow *flow) {
    return z3d_instruction_source(flow->program, entry(flow));
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
    if (in->opcode == Z3D_OP_RECOMPUTE) {
        return z3d_flow_fail(flow, "the last unit would add its loss a second time");
    }
    if (in->micro != flow->losses) {
        return z3d_flow_fail(flow, "it adds the loss of micro-batch %d; the next to add is %d",
                             in->micro, flow->losses);
    }
    flow->losses++;
    return Z3D_OK;
}

static z3d_status forward(z3d_flow *flow) {
    const z3d_instruction *in = entry(flow);
    const z3d_trace *trace;
    bool again = in->opcode == Z3D_OP_RECOMPUTE;
    bool wanted = in->need_output;
    bool may_lack = again && !config_of(flow)->replay_full &&
                    flow->program->model->unit[in->unit].checkpoint; /* else it is not recorded */
    int64_t bytes = output_bytes(flow, in->unit);
    Z3D_TRY(begin_unit(flow, wanted ? Z3D_CALL_FORWARD : Z3D_CALL_RECOMPUTE, &trace));
    Z3D_TRY(read_input(flow));
    Z3D_TRY(add_loss(flow));
    if (!wanted && !may_lack) {
        return z3d_flow_fail(flow, "its output must be computed");
    }
    if (wanted && bytes > 0) {
        Z3D_TRY(write_plain(flow, Z3D_SLOT_OUTPUT, bytes, output_of(in->unit, in->micro)));
    } else if (in->buffer[Z3D_SLOT_OUTPUT] >= 0) {
        return z3d_flow_fail(flow, "it has an output buffer, but no output");
    }
    if (trace->saved == 0) return Z3D_OK;
    return write_plain(flow, Z3D_SLOT_SAVED, trace->saved,
                       in->keep ? saved_of(in->unit, in->micro) : nothing);
}

static z3d_status add_gradients(z3d_flow *flow, const z3d_trace *trace) {
    const z3d_instruction *in = entry(flow);
    const z3d_unit *unit = &flow->program->model->unit[in->unit];
    for (int s = 0; s < unit->num_groups; s++) {
        if (!trace->writes_gradients[s]) continue;
        int slot = Z3D_SLOT_GRADIENTS + s, group = unit->group[s];
        bool once = sums(flow) == 1, adds = in->accumulate >> s & 1;
        int before = flow->place[in->unit * Z3D_MAX_UNIT_GROUPS + s] +
                     (once ? in->micro * flow->total[group] : 0);
        z3d_access access = matrix(flow, slot, Z3D_ROWS_ALL, group);
        Z3D_TRY(
            z3d_flow_operand(flow, slot, matrix_bytes(flow, group, config_of(flow)->grad_dtype)));
        if (flow->program->buffer[in->buffer[slot]].persistent) {
            Z3D_TRY(must_be_kept(flow, slot, group, Z3D_PART_GRADIENTS));
        }
        if (adds != (before > 0)) {
            return z3d_flow_fail(
                flow, "it %s the gradients of %s, which have %d earlier contributions",
                adds ? "adds to" : "overwrites", flow->program->model->group[group].name, before);
        }
        int sum = once ? 0 : in->micro;
        if (adds) Z3D_TRY(z3d_flow_read(flow, access, gradient_sum(group, sum, before)));
        Z3D_TRY(z3d_flow_write(flow, access, gradient_sum(group, sum, before + 1)));
    }
    return Z3D_OK;
}

static z3d_status backward(z3d_flow *flow) {
    const z3d_instruction *in = entry(flow);
    const z3d_trace *trace;
    Z3D_TRY(begin_unit(flow, Z3D_CALL_BACKWARD, &trace));
    if (trace->reads_input) Z3D_TRY(read_input(flow));
    if (trace->saved > 0) {
        Z3D_TRY(read_plain(flow, Z3D_SLOT_SAVED, trace->saved, saved_of(in->unit, in->micro)));
        Z3D_TRY(write_plain(flow, Z3D_SLOT_SAVED, trace->saved, nothing)); /* may work in place */
    }
    int64_t bytes = output_bytes(flow, in->unit);
    if (bytes > 0) {
        Z3D_TRY(read_plain(flow, Z3D_SLOT_OUTPUT_GRADIENT, bytes,
                           output_gradient_of(in->unit, in->micro)));
    } else if (flow->losses <= in->micro) {
        return z3d_flow_fail(flow, "the loss of micro-batch %d was not computed", in->micro);
    }
    Z3D_TRY(add_gradients(flow, trace));
    int source = source_of(flow);
    if (source < 0) return Z3D_OK;
    return write_plain(flow, Z3D_SLOT_INPUT_GRADIENT, output_bytes(flow, source),
                       output_gradient_of(source, in->micro));
}

/* ---- parameters ---- */

static z3d_status gather_source(z3d_flow *flow, bool start) {
    const z3d_instruction *in = entry(flow);
    z3d_access own = bucket(flow, Z3D_SLOT_PARAMETERS, Z3D_ROWS_OWN);
    z3d_access from = bucket(flow, Z3D_SLOT_INPUT, Z3D_ROWS_OWN);
    z3d_value value = parameters_of(in->group, flow->stepped[in->group]);
    Z3D_TRY(z3d_flow_operand(flow, Z3D_SLOT_PARAMETERS,
                             matrix_bytes(flow, in->group, config_of(flow)->dtype)));
    if (in->buffer[Z3D_SLOT_INPUT] < 0) {
        Z3D_TRY(must_be_kept(flow, Z3D_SLOT_PARAMETERS, in->group, Z3D_PART_PARAMETERS));
        if (start) Z3D_TRY(z3d_flow_read(flow, own, value));
        return start ? z3d_flow_lock(flow, own, false) : z3d_flow_unlock(flow, own, false);
    }
    Z3D_TRY(must_be_kept(flow, Z3D_SLOT_INPUT, in->group, Z3D_PART_PARAMETERS));
    Z3D_TRY(must_not_persist(flow, Z3D_SLOT_PARAMETERS));
    if (!start) {
        Z3D_TRY(z3d_flow_unlock(flow, from, false));
        return z3d_flow_unlock(flow, own, true);
    }
    Z3D_TRY(z3d_flow_read(flow, from, value));
    Z3D_TRY(z3d_flow_lock(flow, from, false));
    Z3D_TRY(z3d_flow_write(flow, own, value));
    return z3d_flow_lock(flow, own, true);
}

static z3d_status gather_parameters(z3d_flow *flow, bool start) {
    const z3d_instruction *in = entry(flow);
    z3d_access others = bucket(flow, Z3D_SLOT_PARAMETERS, Z3D_ROWS_OTHERS);
    Z3D_TRY(gather_source(flow, start));
    if (start) return z3d_flow_lock(flow, others, true);
    Z3D_TRY(z3d_flow_unlock(flow, others, true));
    return z3d_flow_write(flow, others, parameters_of(in->group, flow->stepped[in->group]));
}

static z3d_status release_parameters(z3d_flow *flow) {
    int group = entry(flow)->group;
    z3d_access all = matrix(flow, Z3D_SLOT_PARAMETERS, Z3D_ROWS_ALL, group);
    Z3D_TRY(z3d_flow_operand(flow, Z3D_SLOT_PARAMETERS, 0));
    Z3D_TRY(must_not_persist(flow, Z3D_SLOT_PARAMETERS));
    Z3D_TRY(z3d_flow_read(flow, all, parameters_of(group, flow->stepped[group])));
    return z3d_flow_write(flow, all, nothing);
}

/* ---- gradients ---- */

/* The sum that a reduction of group g in micro-batch m is about. */
static int sum_of(const z3d_flow *flow) {
    return sums(flow) == 1 ? 0 : entry(flow)->micro;
}

static z3d_status reduce_gradients(z3d_flow *flow, bool start) {
    const z3d_instruction *in = entry(flow);
    z3d_access all = bucket(flow, Z3D_SLOT_GRADIENTS, Z3D_ROWS_ALL);
    Z3D_TRY(z3d_flow_operand(flow, Z3D_SLOT_GRADIENTS,
                             matrix_bytes(flow, in->group, config_of(flow)->grad_dtype)));
    if (start) {
        int count = contributions(flow, in->group);
        Z3D_TRY(z3d_flow_read(flow, all, gradient_sum(in->group, sum_of(flow), count)));
        return z3d_flow_lock(flow, all, true);
    }
    Z3D_TRY(z3d_flow_unlock(flow, all, true));
    Z3D_TRY(z3d_flow_write(flow, bucket(flow, Z3D_SLOT_GRADIENTS, Z3D_ROWS_OTHERS), nothing));
    return z3d_flow_write(flow, bucket(flow, Z3D_SLOT_GRADIENTS, Z3D_ROWS_OWN),
                          reduced(flow, in->group, sum_of(flow), 1));
}

static z3d_status keep_shard(z3d_flow *flow) {
    const z3d_instruction *in = entry(flow);
    int sum = sum_of(flow);
    z3d_access from = matrix(flow, Z3D_SLOT_GRADIENTS, Z3D_ROWS_OWN, in->group);
    z3d_access to = matrix(flow, Z3D_SLOT_SHARD, Z3D_ROWS_OWN, in->group);
    Z3D_TRY(z3d_flow_operand(flow, Z3D_SLOT_GRADIENTS,
                             matrix_bytes(flow, in->group, config_of(flow)->grad_dtype)));
    Z3D_TRY(must_not_persist(flow, Z3D_SLOT_GRADIENTS));
    Z3D_TRY(must_be_kept(flow, Z3D_SLOT_SHARD, in->group, Z3D_PART_GRADIENTS));
    if (flow->controlled) return z3d_flow_fail(flow, "it must come before step_control");
    Z3D_TRY(z3d_flow_read(flow, from, reduced(flow, in->group, sum, 1)));
    if ((in->accumulate != 0) != (sum > 0)) {
        return z3d_flow_fail(flow, "it %s the kept gradients, but micro-batch %d must %s",
                             in->accumulate ? "adds to" : "overwrites", sum,
                             sum > 0 ? "add" : "overwrite");
    }
    if (sum > 0) Z3D_TRY(z3d_flow_read(flow, to, reduced(flow, in->group, 0, sum)));
    return z3d_flow_write(flow, to, reduced(flow, in->group, 0, sum + 1));
}

/* After the last reduction, once a step: the parts of all tensor ranks are added. Which columns
 * these are is the layout's, and not the same for all data ranks: the entry stands for the whole
 * row. */
static z3d_status sum_replicated(z3d_flow *flow, bool start) {
    int group = entry(flow)->group;
    z3d_access own = matrix(flow, Z3D_SLOT_SHARD, Z3D_ROWS_OWN, group);
    Z3D_TRY(must_be_kept(flow, Z3D_SLOT_SHARD, group, Z3D_PART_GRADIENTS));
    if (start) {
        z3d_value part = {Z3D_VALUE_GRADIENT_PART, group, 0, sums(flow)};
        Z3D_TRY(z3d_flow_read(flow, own, part));
        return z3d_flow_lock(flow, own, true);
    }
    Z3D_TRY(z3d_flow_unlock(flow, own, true));
    return z3d_flow_write(flow, own, final_gradient(flow, group));
}

static z3d_status gather_gradients(z3d_flow *flow, bool start) {
    const z3d_instruction *in = entry(flow);
    z3d_access own = bucket(flow, Z3D_SLOT_SHARD, Z3D_ROWS_OWN);
    z3d_access others = bucket(flow, Z3D_SLOT_SHARD, Z3D_ROWS_OTHERS);
    Z3D_TRY(must_be_kept(flow, Z3D_SLOT_SHARD, in->group, Z3D_PART_GRADIENTS));
    Z3D_TRY(z3d_flow_operand(flow, Z3D_SLOT_SHARD,
                             matrix_bytes(flow, in->group, config_of(flow)->grad_dtype)));
    if (start) {
        Z3D_TRY(z3d_flow_read(flow, own, final_gradient(flow, in->group)));
        Z3D_TRY(z3d_flow_lock(flow, own, false));
        return z3d_flow_lock(flow, others, true);
    }
    Z3D_TRY(z3d_flow_unlock(flow, own, false));
    Z3D_TRY(z3d_flow_unlock(flow, others, true));
    return z3d_flow_write(flow, others, final_gradient(flow, in->group));
}

/* ---- the step ---- */

static z3d_status begin_step(z3d_flow *flow) {
    if (flow->begun) return z3d_flow_fail(flow, "the step has already begun");
    flow->begun = true;
    return Z3D_OK;
}

/* It reads every group's own row of the kept gradients (norm, overflow) and the loss. */
static z3d_status control_step(z3d_flow *flow) {
    const z3d_program *p = flow->program;
    if (flow->controlled) return z3d_flow_fail(flow, "there is already one");
    if (flow->losses != micro_batches(flow)) {
        return z3d_flow_fail(flow, "%d of %d micro-batches added their loss", flow->losses,
                             micro_batches(flow));
    }
    for (int g = 0; g < p->model->num_groups; g++) {
        Z3D_TRY(z3d_flow_expect(flow, z3d_program_group_buffer(p, g, Z3D_PART_GRADIENTS),
                                Z3D_ROWS_OWN, final_gradient(flow, g)));
    }
    flow->controlled = true;
    return Z3D_OK;
}

static z3d_status step_optimizer(z3d_flow *flow) {
    int group = entry(flow)->group, rows = rows_of(flow, group, Z3D_PART_OPTIMIZER);
    z3d_access parameters = matrix(flow, Z3D_SLOT_PARAMETERS, rows, group);
    z3d_access states = matrix(flow, Z3D_SLOT_OPTIMIZER, rows, group);
    if (!flow->controlled) return z3d_flow_fail(flow, "it must come after step_control");
    Z3D_TRY(must_be_kept(flow, Z3D_SLOT_PARAMETERS, group, Z3D_PART_PARAMETERS));
    Z3D_TRY(must_be_kept(flow, Z3D_SLOT_OPTIMIZER, group, Z3D_PART_OPTIMIZER));
    Z3D_TRY(must_be_kept(flow, Z3D_SLOT_SHARD, group, Z3D_PART_GRADIENTS));
    Z3D_TRY(z3d_flow_read(flow, matrix(flow, Z3D_SLOT_SHARD, rows, group),
                          final_gradient(flow, group)));
    Z3D_TRY(z3d_flow_read(flow, parameters, parameters_of(group, false)));
    Z3D_TRY(z3d_flow_read(flow, states, optimizer_of(group, false)));
    Z3D_TRY(z3d_flow_write(flow, parameters, parameters_of(group, true)));
    Z3D_TRY(z3d_flow_write(flow, states, optimizer_of(group, true)));
    flow->stepped[group] = true;
    return Z3D_OK;
}

static z3d_status hand_over(z3d_flow *flow) {
    int last = flow->program->model->num_units - 1;
    int64_t bytes = output_bytes(flow, last);
    if (flow->handed_over) return z3d_flow_fail(flow, "there is already one");
    if (flow->losses != 1) return z3d_flow_fail(flow, "the last unit has not run");
    if (bytes > 0) Z3D_TRY(read_plain(flow, Z3D_SLOT_INPUT, bytes, output_of(last, 0)));
    flow->handed_over = true;
    return Z3D_OK;
}

/* ---- starts and waits ---- */

/* A wait finds its start by what it moves: that must not be in flight twice, not even between
 * different buffers. */
static z3d_status check_not_in_flight(const z3d_flow *flow) {
    int other = z3d_in_flight_overlap(&flow->pending, flow->at);
    if (other < 0) return Z3D_OK;
    return z3d_flow_fail(flow, "entry %d moves the same columns and is still in flight", other);
}

/* Whether the entry is a start (or the one wait for a start that came before). */
static z3d_status enter_phase(z3d_flow *flow, bool *start) {
    const z3d_instruction *in = entry(flow);
    *start = in->phase == Z3D_PHASE_START;
    if (in->phase == Z3D_PHASE_WHOLE) return Z3D_OK;
    if (*start) {
        Z3D_TRY(check_not_in_flight(flow));
        z3d_in_flight_add(&flow->pending, flow->at);
        return Z3D_OK;
    }
    int started = z3d_in_flight_find(&flow->pending, flow->at, true);
    if (started < 0)
        return z3d_flow_fail(
            flow, "it waits for an entry that was not started, or that another wait finished");
    z3d_in_flight_remove(&flow->pending, started);
    return Z3D_OK;
}

static z3d_status collective(z3d_flow *flow) {
    bool start;
    Z3D_TRY(enter_phase(flow, &start));
    switch (entry(flow)->opcode) {
    case Z3D_OP_GATHER_PARAMS:
        return gather_parameters(flow, start);
    case Z3D_OP_GATHER_INPUT:
        return z3d_verify_move_input(flow, start);
    case Z3D_OP_REDUCE_GRADS:
        return reduce_gradients(flow, start);
    case Z3D_OP_SUM_REPLICATED:
        return sum_replicated(flow, start);
    default:
        return gather_gradients(flow, start);
    }
}

static z3d_status move_input(z3d_flow *flow) {
    bool start;
    Z3D_TRY(enter_phase(flow, &start));
    return z3d_verify_move_input(flow, start);
}

/* ---- the program ---- */

/* What the table says of the entry's kind. */
static z3d_status check_kind(z3d_flow *flow) {
    const z3d_instruction *in = entry(flow);
    const z3d_opcode_info *info = z3d_opcode_info_of(in->opcode);
    if (z3d_is_collective(in) && in->phase == Z3D_PHASE_WHOLE)
        return z3d_flow_fail(flow, "it must be started and waited for");
    if (!z3d_is_collective(in) && info->rules != Z3D_CLASS_COPY && in->phase != Z3D_PHASE_WHOLE)
        return z3d_flow_fail(flow,
                             "only entries that run beside compute can be started and waited for");
    if (z3d_communicates(in) && in->axis != info->axis)
        return z3d_flow_fail(flow, "it uses the %s group, but must use the %s group",
                             z3d_axis_name(in->axis), z3d_axis_name(info->axis));
    if (info->rules != Z3D_CLASS_UNIT && in->num_children != 0)
        return z3d_flow_fail(flow, "it lists %d inner collectives, but only units may have them",
                             in->num_children);
    if (!(info->modes >> flow->program->mode & 1))
        return z3d_flow_fail(flow, "a program of this mode must not have it");
    return Z3D_OK;
}

static z3d_status perform(z3d_flow *flow) {
    Z3D_TRY(check_kind(flow));
    switch (entry(flow)->opcode) {
    case Z3D_OP_STEP_BEGIN:
        return begin_step(flow);
    case Z3D_OP_FORWARD:
    case Z3D_OP_RECOMPUTE:
        return forward(flow);
    case Z3D_OP_BACKWARD:
        return backward(flow);
    case Z3D_OP_SAVE_INPUT:
    case Z3D_OP_LOAD_INPUT:
        return move_input(flow);
    case Z3D_OP_RELEASE_PARAMS:
        return release_parameters(flow);
    case Z3D_OP_KEEP_SHARD:
        return keep_shard(flow);
    case Z3D_OP_STEP_CONTROL:
        return control_step(flow);
    case Z3D_OP_OPTIMIZER_STEP:
        return step_optimizer(flow);
    case Z3D_OP_SUM_LOSS:
    case Z3D_OP_GATHER_OUTPUT:
        return hand_over(flow);
    default:
        return collective(flow);
    }
}

/* Every rank keeps its own rows. Those of the others are as new as its own where it steps them
 * itself or they were gathered since; otherwise they are those of the step before. */
static z3d_status set_start(z3d_flow *flow) {
    const z3d_program *p = flow->program;
    for (int g = 0; g < p->model->num_groups; g++) {
        int rows = rows_of(flow, g, Z3D_PART_OPTIMIZER);
        int parameter_rows = p->config.gathered ? rows_of(flow, g, Z3D_PART_PARAMETERS) : rows;
        Z3D_TRY(z3d_flow_set(flow, z3d_program_group_buffer(p, g, Z3D_PART_PARAMETERS),
                             parameter_rows, parameters_of(g, false)));
        Z3D_TRY(z3d_flow_set(flow, z3d_program_group_buffer(p, g, Z3D_PART_OPTIMIZER), rows,
                             optimizer_of(g, false)));
    }
    return Z3D_OK;
}

static z3d_status check_end(z3d_flow *flow) {
    const z3d_program *p = flow->program;
    if (flow->pending.count > 0) {
        flow->at = z3d_in_flight_first(&flow->pending);
        return z3d_flow_fail(flow, "nothing waits for it");
    }
    flow->at = p->num_instructions; /* "the end of the program" */
    if (!trains(flow) && !flow->handed_over)
        return z3d_flow_fail(flow, "its last entry, which hands over the result, is missing");
    if (trains(flow) && !flow->controlled) return z3d_flow_fail(flow, "step_control is missing");
    for (int g = 0; g < p->model->num_groups; g++) {
        int rows = rows_of(flow, g, Z3D_PART_OPTIMIZER);
        Z3D_TRY(z3d_flow_expect(flow, z3d_program_group_buffer(p, g, Z3D_PART_PARAMETERS), rows,
                                parameters_of(g, trains(flow))));
        Z3D_TRY(z3d_flow_expect(flow, z3d_program_group_buffer(p, g, Z3D_PART_OPTIMIZER), rows,
                                optimizer_of(g, trains(flow))));
        if (!trains(flow)) continue;
        Z3D_TRY(z3d_flow_expect(flow, z3d_program_group_buffer(p, g, Z3D_PART_GRADIENTS),
                                Z3D_ROWS_OWN, final_gradient(flow, g)));
    }
    return Z3D_OK;
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
