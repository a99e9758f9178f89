/* The verifier's rules for activation checkpoints: what save_input and load_input move, between
 * which memories, and what holds the input meanwhile. Knows what a partitioned or offloaded
 * checkpoint is, not when the builder moves it. */
#include "zero/verify/verifier.h"

static const z3d_instruction *entry(const z3d_flow *flow) {
    return &flow->program->instruction[flow->at];
}

static z3d_access plain(int slot) {
    return (z3d_access){.slot = slot, .rows = Z3D_ROWS_OWN, .first = 0, .count = 1};
}

static int source_of(const z3d_flow *flow) {
    return z3d_instruction_source(flow->program, entry(flow));
}

/* Of the input: the whole, or this rank's part. */
static z3d_value value_of(const z3d_flow *flow, bool part) {
    return (z3d_value){.kind = part ? Z3D_VALUE_OUTPUT_PART : Z3D_VALUE_OUTPUT,
                       .of = source_of(flow),
                       .micro = entry(flow)->micro};
}

static z3d_value kept_value(const z3d_flow *flow) {
    return value_of(flow, flow->program->config.partition_activations);
}

static z3d_value input_value(const z3d_flow *flow) {
    return value_of(flow, false);
}

static int64_t parts(const z3d_flow *flow) {
    const z3d_program *p = flow->program;
    return p->config.partition_activations ? z3d_mesh_size(&p->mesh, Z3D_AXES_TENSOR) : 1;
}

static int64_t part_bytes(const z3d_flow *flow) {
    int64_t elements = z3d_program_output_elements(flow->program, source_of(flow));
    return (elements + parts(flow) - 1) / parts(flow) *
           (int64_t)z3d_dtype_size(flow->program->config.dtype);
}

static int64_t input_bytes(const z3d_flow *flow) {
    return z3d_program_output_bytes(flow->program, source_of(flow));
}

/* From start to wait the source may be read by others, the destination by nobody. */
static z3d_status move_beside(z3d_flow *flow, bool start, z3d_value from, z3d_value to) {
    z3d_access source = plain(Z3D_SLOT_INPUT), destination = plain(Z3D_SLOT_OUTPUT);
    bool in_place = entry(flow)->buffer[Z3D_SLOT_INPUT] == entry(flow)->buffer[Z3D_SLOT_OUTPUT];
    if (start) {
        Z3D_TRY(z3d_flow_read(flow, source, from));
        if (!in_place) Z3D_TRY(z3d_flow_lock(flow, source, false));
        return z3d_flow_lock(flow, destination, true);
    }
    if (!in_place) Z3D_TRY(z3d_flow_unlock(flow, source, false));
    Z3D_TRY(z3d_flow_unlock(flow, destination, true));
    return z3d_flow_write(flow, destination, to);
}

static z3d_status check_count(z3d_flow *flow) {
    int64_t elements = part_bytes(flow) / (int64_t)z3d_dtype_size(flow->program->config.dtype);
    if (entry(flow)->count == elements && entry(flow)->first == 0) return Z3D_OK;
    return z3d_flow_fail(flow, "it moves elements %lld to %lld, but the part has %lld elements",
                         (long long)entry(flow)->first,
                         (long long)(entry(flow)->first + entry(flow)->count - 1),
                         (long long)elements);
}

/* Where nothing is moved, the entries only mark that the input stays. */
static z3d_status stay(z3d_flow *flow) {
    if (entry(flow)->phase != Z3D_PHASE_WHOLE || entry(flow)->space != Z3D_SPACE_DEVICE)
        return z3d_flow_fail(flow, "this configuration leaves checkpoints where they are");
    Z3D_TRY(z3d_flow_operand(flow, Z3D_SLOT_INPUT, input_bytes(flow)));
    Z3D_TRY(z3d_flow_read(flow, plain(Z3D_SLOT_INPUT), input_value(flow)));
    if (entry(flow)->buffer[Z3D_SLOT_OUTPUT] == entry(flow)->buffer[Z3D_SLOT_INPUT]) return Z3D_OK;
    return z3d_flow_fail(flow, "it would move the input to another buffer");
}

static z3d_status save(z3d_flow *flow, bool start) {
    bool offload = flow->program->config.offload_activations;
    z3d_space to = offload ? Z3D_SPACE_HOST : Z3D_SPACE_DEVICE;
    if (entry(flow)->space != to || (entry(flow)->phase == Z3D_PHASE_WHOLE) == offload)
        return z3d_flow_fail(flow, "in this configuration checkpoints %s",
                             offload ? "go to host memory beside compute" : "stay on the device");
    Z3D_TRY(z3d_flow_operand(flow, Z3D_SLOT_INPUT, input_bytes(flow)));
    Z3D_TRY(z3d_flow_operand_in(flow, Z3D_SLOT_OUTPUT, part_bytes(flow), to));
    if (offload) return move_beside(flow, start, input_value(flow), kept_value(flow));
    Z3D_TRY(z3d_flow_read(flow, plain(Z3D_SLOT_INPUT), input_value(flow)));
    return z3d_flow_write(flow, plain(Z3D_SLOT_OUTPUT), kept_value(flow));
}

/* From host memory, as it was kept. */
static z3d_status load(z3d_flow *flow, bool start) {
    if (entry(flow)->phase == Z3D_PHASE_WHOLE || entry(flow)->space != Z3D_SPACE_HOST ||
        !flow->program->config.offload_activations)
        return z3d_flow_fail(flow, "in this configuration no checkpoint comes from host memory");
    Z3D_TRY(z3d_flow_operand_in(flow, Z3D_SLOT_INPUT, part_bytes(flow), Z3D_SPACE_HOST));
    Z3D_TRY(z3d_flow_operand(flow, Z3D_SLOT_OUTPUT, parts(flow) * part_bytes(flow)));
    return move_beside(flow, start, kept_value(flow), kept_value(flow));
}

/* From the tensor group's parts to the whole. */
static z3d_status gather(z3d_flow *flow, bool start) {
    if (!flow->program->config.partition_activations)
        return z3d_flow_fail(flow, "in this configuration no checkpoint is partitioned");
    Z3D_TRY(z3d_flow_operand(flow, Z3D_SLOT_INPUT, part_bytes(flow)));
    Z3D_TRY(z3d_flow_operand(flow, Z3D_SLOT_OUTPUT, parts(flow) * part_bytes(flow)));
    return move_beside(flow, start, kept_value(flow), input_value(flow));
}

z3d_status z3d_verify_move_input(z3d_flow *flow, bool start) {
    const z3d_program_config *c = &flow->program->config;
    if (source_of(flow) < 0) return z3d_flow_fail(flow, "the unit has no input");
    if (!c->partition_activations && !c->offload_activations) return stay(flow);
    Z3D_TRY(check_count(flow));
    if (z3d_is_collective(entry(flow))) return gather(flow, start);
    return entry(flow)->opcode == Z3D_OP_SAVE_INPUT ? save(flow, start) : load(flow, start);
}
