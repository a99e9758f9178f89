/* Private to the verifier: the naive step's values, and the rules of the classes: what operands
 * must hold before an entry, and hold after it. Errors: ERR_PROGRAM, ERR_MEMORY. */
#ifndef ZERO3D_ZERO_VERIFY_RULES_H
#define ZERO3D_ZERO_VERIFY_RULES_H

#include "zero/program/layout.h"
#include "zero/verify/verifier.h"

/* ---- the naive step ---- */

static inline const z3d_program_config *config_of(const z3d_flow *flow) {
    return &flow->program->config;
}

static inline bool trains(const z3d_flow *flow) {
    return flow->program->mode == Z3D_MODE_TRAIN;
}

/* Whether the optimizer steps the group. */
static inline bool is_stepped(const z3d_flow *flow, int group) {
    return trains(flow) && !flow->program->layout->group[group].frozen;
}

static inline int micro_batches(const z3d_flow *flow) {
    return trains(flow) ? config_of(flow)->accumulation : 1;
}

/* A step's sums of gradients: one in all, or one for each micro-batch. Each is reduced once. */
static inline int sums(const z3d_flow *flow) {
    return config_of(flow)->reduce_per_step ? 1 : config_of(flow)->accumulation;
}

static inline int contributions(const z3d_flow *flow, int group, int use) {
    return flow->total[2 * group + use] * (config_of(flow)->accumulation / sums(flow));
}

static inline z3d_value output_of(int unit, int micro) {
    return (z3d_value){Z3D_VALUE_OUTPUT, unit, micro, 0, 0, 0};
}

static inline z3d_value output_gradient_of(int unit, int micro) {
    return (z3d_value){Z3D_VALUE_OUTPUT_GRADIENT, unit, micro, 0, 0, 0};
}

static inline z3d_value saved_of(int unit, int micro, bool half_done) {
    return (z3d_value){Z3D_VALUE_SAVED, unit, micro, half_done, 0, 0};
}

static inline z3d_value deferred_of(int unit, int micro) {
    return (z3d_value){Z3D_VALUE_DEFERRED, unit, micro, 0, 0, 0};
}

static inline z3d_value parameters_of(int group, bool stepped) {
    return (z3d_value){Z3D_VALUE_PARAMETERS, group, 0, stepped, 0, 0};
}

static inline z3d_value optimizer_of(int group, bool stepped) {
    return (z3d_value){Z3D_VALUE_OPTIMIZER, group, 0, stepped, 0, 0};
}

static inline z3d_value gradient_sum(int group, int use, int sum, int count) {
    return (z3d_value){Z3D_VALUE_GRADIENT_SUM, group, sum, count, 0, use};
}

/* The value of the own row after a reduction over the shard axes. Gradients are still to be added
 * to it if the group has replica axes or copies, or is used in two chunks. */
static inline z3d_value reduced(const z3d_flow *flow, int group, int use, int first_sum,
                                int count) {
    const z3d_group_layout *g = &flow->program->layout->group[group];
    int partial = g->replica_axes | g->copy_axes | (z3d_adds_two_sums(g) ? Z3D_PARTIAL_TWIN : 0);
    return (z3d_value){Z3D_VALUE_GRADIENT_REDUCED, group, first_sum, count, partial, use};
}

static inline z3d_value final_gradient(const z3d_flow *flow, int group) {
    return (z3d_value){Z3D_VALUE_GRADIENT_REDUCED, group, 0, sums(flow), 0, 0};
}

/* The gradient that the optimizer applies; with offload.delayed the previous step's. */
static inline z3d_value applied_gradient(const z3d_flow *flow, int group) {
    if (config_of(flow)->offload.delayed)
        return (z3d_value){Z3D_VALUE_GRADIENT_LATE, group, 0, 0, 0, 0};
    return final_gradient(flow, group);
}

static const z3d_value nothing = {Z3D_VALUE_NOTHING, 0, 0, 0, 0, 0};

/* ---- the current entry ---- */

static inline const z3d_instruction *entry(const z3d_flow *flow) {
    return &flow->program->instruction[flow->at];
}

static inline const z3d_opcode_info *info(const z3d_flow *flow) {
    return z3d_opcode_info_of(entry(flow)->opcode);
}

static inline z3d_buffer_operand operand(const z3d_flow *flow, int slot) {
    return z3d_instruction_operand(flow->program, entry(flow), slot);
}

static inline int64_t output_bytes(const z3d_flow *flow, int unit) {
    return z3d_program_output_bytes(flow->program, unit);
}

static inline int source_of(const z3d_flow *flow) {
    return z3d_instruction_source(flow->program, entry(flow));
}

/* ---- operands.c ---- */

/* Bytes of the buffer up to the operand's last column, if it has `tensors` own rows. */
int64_t z3d_flow_run_bytes(const z3d_flow *flow, const z3d_buffer_operand *o, int tensors,
                           z3d_dtype dtype);
/* A move's operand. It must exist and be large enough. */
z3d_status z3d_flow_moved_operand(const z3d_flow *flow, int slot, z3d_buffer_operand *out);
z3d_status z3d_flow_must_not_persist(const z3d_flow *flow, int slot);
/* No other slot may have this buffer: an entry may read and write in any order. */
z3d_status z3d_flow_must_be_alone(const z3d_flow *flow, int slot);
/* The slot's buffer has at least `bytes`. It must hold one value (read), or gets one (write). */
z3d_status z3d_flow_read_plain(z3d_flow *flow, int slot, int64_t bytes, z3d_value value);
z3d_status z3d_flow_write_plain(z3d_flow *flow, int slot, int64_t bytes, z3d_value value);

/* ---- units.c ---- */

z3d_status z3d_rule_forward(z3d_flow *flow);
/* Backward, or one of its halves. */
z3d_status z3d_rule_backward(z3d_flow *flow);

/* ---- moves.c. start: the entry only starts the move; another one waits for it ---- */

z3d_status z3d_rule_move(z3d_flow *flow, bool start);
z3d_status z3d_rule_cross(z3d_flow *flow, bool start);
z3d_status z3d_rule_mark(z3d_flow *flow);

/* ---- step.c ---- */

z3d_status z3d_rule_begin_step(z3d_flow *flow);
z3d_status z3d_rule_exchange(z3d_flow *flow);
z3d_status z3d_rule_result(z3d_flow *flow);
z3d_status z3d_rule_norm(z3d_flow *flow);
z3d_status z3d_rule_optimizer(z3d_flow *flow);
z3d_status z3d_rule_host_optimizer(z3d_flow *flow);

#endif
