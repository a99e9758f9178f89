/* The verifier of one rank's program: runs it symbolically against the naive step (rules.h says
 * how values are named), with a rule for every class of instructions. It reads neither ZeRO's stage
 * nor overlap. The configuration says what a step means (micro-batches, reductions, types). The
 * layout says what this rank keeps, and where. */
#include <string.h>

#include "zero/verify/rules.h"

/* ---- starts and waits ---- */

static bool same_move(const z3d_instruction *a, const z3d_instruction *b) {
    bool same = a->opcode == b->opcode && a->unit == b->unit && a->micro == b->micro &&
                a->group == b->group && a->axes == b->axes && a->rows == b->rows &&
                a->peer == b->peer && a->first == b->first && a->count == b->count &&
                a->column == b->column && a->columns == b->columns;
    return same && a->num_slots == b->num_slots &&
           memcmp(a->buffer, b->buffer, (size_t)a->num_slots * sizeof *a->buffer) == 0;
}

/* *start: the entry is a start. A wait needs an earlier start that no other wait has ended. */
static z3d_status enter_phase(z3d_flow *flow, bool *start) {
    const z3d_instruction *in = entry(flow);
    *start = in->phase == Z3D_PHASE_START;
    if (in->phase == Z3D_PHASE_WHOLE) return Z3D_OK;
    int *started = &flow->started[in->ticket];
    if (*start != (*started < 0))
        return z3d_flow_fail(flow, *start ? "an earlier start with the same ticket has no wait yet"
                                          : "it waits for an entry that was not started, or that "
                                            "another wait has ended");
    if (!*start && !same_move(&flow->program->instruction[*started], in))
        return z3d_flow_fail(flow, "it waits for entry %d, which is another move", *started);
    *started = *start ? flow->at : -1;
    return Z3D_OK;
}

/* ---- the program ---- */

/* Phase, axes, inner collectives and mode are as opcodes.h says. */
static z3d_status check_kind(z3d_flow *flow) {
    const z3d_instruction *in = entry(flow);
    const z3d_opcode_info *info = z3d_opcode_info_of(in->opcode);
    bool unit = info->rules >= Z3D_CLASS_FORWARD && info->rules <= Z3D_CLASS_BACKWARD_WEIGHT;
    if (z3d_is_collective(in) && in->phase == Z3D_PHASE_WHOLE)
        return z3d_flow_fail(flow, "it must be started and waited for");
    if (!z3d_is_collective(in) && info->rules != Z3D_CLASS_COPY && in->phase != Z3D_PHASE_WHOLE)
        return z3d_flow_fail(flow,
                             "only entries that run beside compute can be started and waited for");
    const z3d_axes axes = z3d_opcode_axes(flow->program->layout, in->opcode, in->group);
    const bool halves = info->over == Z3D_OVER_SHARD && in->group >= 0 &&
                        flow->program->layout->group[in->group].block > 1;
    if (halves ? in->axes != Z3D_ROLE_BLOCKS && in->axes != Z3D_ROLE_NODES : in->axes != axes)
        return z3d_flow_fail(flow, "it uses the %s group, but must use %sthe %s group%s",
                             z3d_axes_name(in->axes).text, halves ? "one half of " : "",
                             z3d_axes_name(axes).text,
                             halves ? ", between nodes or inside a node" : "");
    if (!unit && in->num_children != 0)
        return z3d_flow_fail(flow, "it lists %d inner collectives, but only units may have them",
                             in->num_children);
    if (!(info->modes >> flow->program->mode & 1))
        return z3d_flow_fail(flow, "a program of this mode must not have this instruction");
    return Z3D_OK;
}

static z3d_status perform(z3d_flow *flow) {
    bool start;
    Z3D_TRY(check_kind(flow));
    Z3D_TRY(enter_phase(flow, &start));
    switch (info(flow)->rules) {
    case Z3D_CLASS_MARK:
        return z3d_rule_mark(flow);
    case Z3D_CLASS_BEGIN:
        return z3d_rule_begin_step(flow);
    case Z3D_CLASS_EXCHANGE:
        return z3d_rule_exchange(flow);
    case Z3D_CLASS_RESULT:
        return z3d_rule_result(flow);
    case Z3D_CLASS_FORWARD:
        return z3d_rule_forward(flow);
    case Z3D_CLASS_BACKWARD:
    case Z3D_CLASS_BACKWARD_INPUT:
    case Z3D_CLASS_BACKWARD_WEIGHT:
        return z3d_rule_backward(flow);
    case Z3D_CLASS_NORM:
        return z3d_rule_norm(flow);
    case Z3D_CLASS_OPTIMIZER:
        return z3d_rule_optimizer(flow);
    case Z3D_CLASS_HOST_OPTIMIZER:
        return z3d_rule_host_optimizer(flow);
    case Z3D_CLASS_SEND:
    case Z3D_CLASS_RECV:
        return z3d_rule_cross(flow, start);
    default:
        return z3d_rule_move(flow, start);
    }
}

/* Calls `check` for the states of added classes: z3d_flow_set at the start, z3d_flow_expect at the
 * end. No entry may write them. */
static z3d_status keep_added(z3d_flow *flow, int group,
                             z3d_status (*check)(z3d_flow *flow, int group, z3d_state_role role,
                                                 z3d_rows rows, z3d_value value)) {
    const z3d_program *p = flow->program;
    for (int r = Z3D_STATE_COUNT; r < z3d_state_classes(&p->config); r++)
        Z3D_TRY(check(flow, group, (z3d_state_role)r,
                      z3d_state_rows(p->layout, group, (z3d_state_role)r),
                      (z3d_value){Z3D_VALUE_ADDED, group, 0, r, 0, 0}));
    return Z3D_OK;
}

/* Parameters are up to date in the rows that this rank steps; with config.gathered, in all
 * rows that it keeps. Other rows may be old: here they are undefined. */
static z3d_status set_start(z3d_flow *flow) {
    const z3d_program *p = flow->program;
    for (int g = 0; g < p->model->num_groups; g++) {
        if (!p->layout->group[g].held) continue;
        z3d_rows rows = z3d_state_rows(p->layout, g, Z3D_STATE_OPTIMIZER);
        z3d_rows parameter_rows =
            p->config.gathered ? z3d_state_rows(p->layout, g, Z3D_STATE_VALUE) : rows;
        Z3D_TRY(z3d_flow_set(flow, g, Z3D_STATE_VALUE, parameter_rows, parameters_of(g, false)));
        Z3D_TRY(z3d_flow_set(flow, g, Z3D_STATE_OPTIMIZER, rows, optimizer_of(g, false)));
        Z3D_TRY(keep_added(flow, g, z3d_flow_set));
        if (p->config.gathered)
            Z3D_TRY(z3d_flow_set(flow, g, Z3D_STATE_SECONDARY, Z3D_ROWS_BLOCK,
                                 parameters_of(g, false)));
        if (is_stepped(flow, g) && p->config.offload.delayed)
            Z3D_TRY(z3d_flow_set(flow, g, Z3D_STATE_GRADIENT, rows, applied_gradient(flow, g)));
    }
    return Z3D_OK;
}

/* A program that does not train leaves gathered parameters to runs with config.gathered. */
static z3d_status check_gathered(z3d_flow *flow) {
    const z3d_program *p = flow->program;
    for (int u = 0; u < p->model->num_units && !trains(flow); u++) {
        const z3d_unit *unit = &p->model->unit[u];
        if (!z3d_layout_has_unit(p->layout, u)) continue;
        const z3d_trace *trace = z3d_traces_of(p->traces, p->mode, u, Z3D_CALL_FORWARD);
        for (int s = 0; s < unit->num_groups; s++) {
            int g = unit->group[s];
            if (!trace->reads_parameters[s]) continue;
            Z3D_TRY(z3d_flow_expect(flow, g, Z3D_STATE_VALUE,
                                    z3d_state_rows(p->layout, g, Z3D_STATE_VALUE),
                                    parameters_of(g, false)));
            if (p->layout->group[g].state[Z3D_STATE_SECONDARY].kinds == 0) continue;
            Z3D_TRY(z3d_flow_expect(flow, g, Z3D_STATE_SECONDARY, Z3D_ROWS_BLOCK,
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
    flow->at = p->num_instructions; /* in messages: the end of the program */
    if (!flow->ended)
        return z3d_flow_fail(flow, "%s is missing",
                             trains(flow) ? "step_control" : "the entry that gives the result");
    for (int g = 0; g < p->model->num_groups; g++) {
        const bool stepped = is_stepped(flow, g);
        z3d_rows rows = z3d_state_rows(p->layout, g, Z3D_STATE_OPTIMIZER);
        if (!p->layout->group[g].held) continue;
        Z3D_TRY(z3d_flow_expect(flow, g, Z3D_STATE_VALUE, rows, parameters_of(g, stepped)));
        Z3D_TRY(z3d_flow_expect(flow, g, Z3D_STATE_OPTIMIZER, rows, optimizer_of(g, stepped)));
        Z3D_TRY(keep_added(flow, g, z3d_flow_expect));
        if (!stepped) continue;
        Z3D_TRY(z3d_flow_expect(flow, g, Z3D_STATE_GRADIENT,
                                p->config.offload.delayed ? rows : Z3D_ROWS_OWN,
                                final_gradient(flow, g)));
    }
    return check_gathered(flow);
}

z3d_status z3d_program_verify(const z3d_program *program) {
    z3d_flow flow;
    Z3D_TRY(z3d_verify_entries(program));
    Z3D_TRY(z3d_verify_memory(program));
    z3d_status status = z3d_flow_create(program, &flow);
    if (status == Z3D_OK) status = set_start(&flow);
    for (; status == Z3D_OK && flow.at < program->num_instructions; flow.at++)
        status = perform(&flow);
    if (status == Z3D_OK) status = check_end(&flow);
    z3d_flow_release(&flow);
    return status;
}
