/* The rules of step_begin, step_control, the norm, the optimizer, and the results of a step. */
#include "zero/verify/rules.h"

z3d_status z3d_rule_begin_step(z3d_flow *flow) {
    if (flow->begun) return z3d_flow_fail(flow, "the step has already begun");
    flow->begun = true;
    return Z3D_OK;
}

static z3d_status end_step(z3d_flow *flow) {
    if (flow->ended) return z3d_flow_fail(flow, "the step has already ended");
    int last = flow->program->model->num_units - 1;
    if (flow->losses != micro_batches(flow) && z3d_layout_has_unit(flow->program->layout, last))
        return z3d_flow_fail(flow, "%d of %d micro-batches ran through the last unit", flow->losses,
                             micro_batches(flow));
    flow->ended = true;
    return Z3D_OK;
}

/* If gradients leave the device, their squares are added up once, before step_control. */
z3d_status z3d_rule_norm(z3d_flow *flow) {
    const int group = entry(flow)->group;
    z3d_buffer_operand gradient;
    if (flow->ended) return z3d_flow_fail(flow, "it must come before step_control");
    if (!is_stepped(flow, group)) return z3d_flow_fail(flow, "the group is frozen");
    if (!z3d_gradients_leave(flow->program->layout, group))
        return z3d_flow_fail(flow, "only step_control may add these");
    if (flow->squared[group]) return z3d_flow_fail(flow, "it would add the squares up again");
    Z3D_TRY(z3d_flow_moved_operand(flow, (int)info(flow)->from, &gradient));
    Z3D_TRY(z3d_flow_read(flow, gradient, final_gradient(flow, group)));
    flow->squared[group] = true;
    return Z3D_OK;
}

/* The entry reads the loss and, in training, this rank's row of each group's kept gradients (norm,
 * overflow), except of groups that square_grads has done. */
z3d_status z3d_rule_exchange(z3d_flow *flow) {
    const z3d_program *p = flow->program;
    Z3D_TRY(end_step(flow));
    for (int g = 0; g < p->model->num_groups; g++) {
        if (!is_stepped(flow, g) || !p->layout->group[g].held || flow->squared[g]) continue;
        if (z3d_gradients_leave(flow->program->layout, g))
            return z3d_flow_fail(flow, "nothing added up the squares of %s's gradients",
                                 p->model->group[g].name);
        Z3D_TRY(
            z3d_flow_expect(flow, g, Z3D_STATE_GRADIENT, Z3D_ROWS_OWN, final_gradient(flow, g)));
    }
    return Z3D_OK;
}

z3d_status z3d_rule_result(z3d_flow *flow) {
    int last = flow->program->model->num_units - 1;
    int64_t bytes = output_bytes(flow, last);
    Z3D_TRY(end_step(flow));
    if (z3d_layout_has_unit(flow->program->layout, last))
        return bytes > 0
                   ? z3d_flow_read_plain(flow, (int)info(flow)->from, bytes, output_of(last, 0))
                   : Z3D_OK;
    return z3d_flow_write_plain(flow, (int)info(flow)->to, bytes, output_of(last, 0));
}

/* The operand must be the group's persistent buffer: states stay there between steps. */
static z3d_status kept_operand(const z3d_flow *flow, int slot, z3d_state_role role,
                               z3d_buffer_operand *out) {
    const z3d_program *p = flow->program;
    *out = operand(flow, slot);
    int must = z3d_program_group_buffer(p, out->group, role);
    if (out->buffer == must) return Z3D_OK;
    return z3d_flow_fail(flow, "its %s is %s, but must be %s", z3d_slot_text(slot),
                         out->buffer >= 0 ? z3d_buffer_name(&p->buffer[out->buffer]).text
                                          : "missing",
                         z3d_buffer_name(&p->buffer[must]).text);
}

/* The operand must exist and be large enough for `tensors` matrices. */
static z3d_status check_host_operand(const z3d_flow *flow, const z3d_buffer_operand *o, int tensors,
                                     z3d_dtype dtype) {
    return z3d_flow_operand(flow, o,
                            o->buffer >= 0 ? z3d_flow_group_bytes(flow, o, tensors, dtype) : 0);
}

z3d_status z3d_rule_optimizer(z3d_flow *flow) {
    int group = entry(flow)->group;
    z3d_buffer_operand parameters, states, gradient;
    if (!flow->ended) return z3d_flow_fail(flow, "it must come after step_control");
    if (!flow->program->layout->group[group].held)
        return z3d_flow_fail(flow, "this pipeline stage does not have the group");
    if (!is_stepped(flow, group)) return z3d_flow_fail(flow, "the group is frozen");
    Z3D_TRY(kept_operand(flow, Z3D_SLOT_PARAMETERS, Z3D_STATE_VALUE, &parameters));
    Z3D_TRY(kept_operand(flow, Z3D_SLOT_OPTIMIZER, Z3D_STATE_OPTIMIZER, &states));
    Z3D_TRY(kept_operand(flow, Z3D_SLOT_SHARD, Z3D_STATE_GRADIENT, &gradient));
    Z3D_TRY(z3d_flow_read(flow, gradient, final_gradient(flow, group)));
    Z3D_TRY(z3d_flow_read(flow, parameters, parameters_of(group, false)));
    Z3D_TRY(z3d_flow_read(flow, states, optimizer_of(group, false)));
    Z3D_TRY(z3d_flow_write(flow, parameters, parameters_of(group, true)));
    return z3d_flow_write(flow, states, optimizer_of(group, true));
}

/* A delayed update precedes step_control, which overwrites results that it needs. */
static z3d_status check_control(const z3d_flow *flow) {
    if (flow->ended != config_of(flow)->offload.delayed) return Z3D_OK;
    return z3d_flow_fail(flow, flow->ended
                                   ? "it must come before step_control, which overwrites the "
                                     "results that it needs"
                                   : "it must come after step_control");
}

/* The optimizer on columns of a group, in host memory. Parameters are written, not read. */
z3d_status z3d_rule_host_optimizer(z3d_flow *flow) {
    const z3d_program *p = flow->program;
    const int group = entry(flow)->group;
    const z3d_state *state = p->layout->group[group].state;
    const int tensors = z3d_count_kinds(state[Z3D_STATE_OPTIMIZER].kinds);
    z3d_buffer_operand gradient = operand(flow, Z3D_SLOT_INPUT);
    z3d_buffer_operand states = operand(flow, Z3D_SLOT_OPTIMIZER);
    z3d_buffer_operand parameters = operand(flow, Z3D_SLOT_PARAMETERS);
    Z3D_TRY(check_control(flow));
    if (!is_stepped(flow, group)) return z3d_flow_fail(flow, "the group is frozen");
    if (entry(flow)->rows != z3d_state_rows(p->layout, group, Z3D_STATE_OPTIMIZER))
        return z3d_flow_fail(flow, "this rank steps different rows");
    if (state[Z3D_STATE_OPTIMIZER].at.space == Z3D_SPACE_DEVICE)
        return z3d_flow_fail(flow, "the group's states are on the device, which steps them");
    Z3D_TRY(check_host_operand(flow, &gradient, 1, p->config.grad_dtype));
    Z3D_TRY(check_host_operand(flow, &states, tensors, Z3D_F32));
    Z3D_TRY(check_host_operand(flow, &parameters, 1, p->config.dtype));
    Z3D_TRY(z3d_flow_read(flow, gradient, applied_gradient(flow, group)));
    Z3D_TRY(z3d_flow_read(flow, states, optimizer_of(group, false)));
    Z3D_TRY(z3d_flow_write(flow, parameters, parameters_of(group, true)));
    return z3d_flow_write(flow, states, optimizer_of(group, true));
}
