/* What the table of instructions says, for whoever reads a program. */
#include "zero/program.h"

enum {
    MODES_TRAIN = 1 << Z3D_MODE_TRAIN,
    MODES_EVALUATE = 1 << Z3D_MODE_EVALUATE,
    MODES_GENERATE = 1 << Z3D_MODE_GENERATE,
    MODES_ANY = MODES_TRAIN | MODES_EVALUATE | MODES_GENERATE,
    GROUP_SLOTS = (1 << Z3D_MAX_UNIT_GROUPS) - 1,
    Z3D_WRITES_FORWARD = 1 << Z3D_SLOT_OUTPUT | 1 << Z3D_SLOT_SAVED,
    Z3D_WRITES_BACKWARD = 1 << Z3D_SLOT_INPUT_GRADIENT | GROUP_SLOTS << Z3D_SLOT_GRADIENTS,
    Z3D_WRITES_SHARD = 1 << Z3D_SLOT_SHARD,
    Z3D_WRITES_STEP = 1 << Z3D_SLOT_OPTIMIZER | 1 << Z3D_SLOT_PARAMETERS,
};

static const z3d_opcode_info table[] = {
#define X(NAME, name, rules, subject, axis, moves, slot, writes, modes)                            \
    {#name,           Z3D_CLASS_##rules, Z3D_SUBJECT_##subject,                                    \
     Z3D_AXES_##axis, Z3D_MOVES_##moves, Z3D_SLOT_##slot,                                          \
     writes,          MODES_##modes},
    Z3D_OPCODE_MAP(X)
#undef X
};

const z3d_opcode_info *z3d_opcode_info_of(z3d_opcode opcode) {
    static const z3d_opcode_info unknown = {.name = "?", .slot = Z3D_SLOT_COUNT};
    return (unsigned)opcode < Z3D_OPCODE_COUNT ? &table[opcode] : &unknown;
}

const char *z3d_opcode_name(z3d_opcode opcode) {
    return z3d_opcode_info_of(opcode)->name;
}

bool z3d_is_collective(const z3d_instruction *in) {
    return z3d_opcode_info_of(in->opcode)->rules >= Z3D_CLASS_ALL_GATHER;
}

bool z3d_communicates(const z3d_instruction *in) {
    return z3d_is_collective(in) || z3d_opcode_info_of(in->opcode)->rules == Z3D_CLASS_EXCHANGE;
}

z3d_collective_kind z3d_instruction_kind(const z3d_instruction *in) {
    switch (z3d_opcode_info_of(in->opcode)->rules) {
    case Z3D_CLASS_ALL_GATHER:
        return Z3D_COLLECTIVE_ALL_GATHER;
    case Z3D_CLASS_REDUCE_SCATTER:
        return Z3D_COLLECTIVE_REDUCE_SCATTER;
    default:
        return Z3D_COLLECTIVE_ALL_REDUCE;
    }
}

z3d_dtype z3d_instruction_dtype(const z3d_program *program, const z3d_instruction *in) {
    switch (z3d_opcode_info_of(in->opcode)->moves) {
    case Z3D_MOVES_PARAMETERS:
    case Z3D_MOVES_ACTIVATIONS:
        return program->config.dtype;
    case Z3D_MOVES_GRADIENTS:
        return program->config.grad_dtype;
    default:
        return Z3D_F64; /* the control vector */
    }
}

void z3d_instruction_columns(const z3d_program *program, const z3d_instruction *in, int64_t *first,
                             int64_t *count) {
    *first = in->first;
    *count = in->count;
    switch (z3d_opcode_info_of(in->opcode)->rules) {
    case Z3D_CLASS_ALL_REDUCE: /* in the flat buffer */
        z3d_layout_replicated_part(program->layout, in->group, first, count);
        break;
    case Z3D_CLASS_EXCHANGE:
        *count = z3d_control_count(program);
        break;
    default:
        break;
    }
}

int z3d_control_count(const z3d_program *program) {
    if (program->mode == Z3D_MODE_GENERATE) return 0;
    return Z3D_CONTROL_FIXED + (program->mode == Z3D_MODE_TRAIN ? program->model->num_groups : 0);
}

int64_t z3d_program_output_elements(const z3d_program *program, int unit) {
    int64_t samples = program->mode == Z3D_MODE_GENERATE ? 1 : program->config.micro_batch;
    return samples * program->model->unit[unit].output_elements[program->mode];
}

int64_t z3d_program_output_bytes(const z3d_program *program, int unit) {
    return z3d_program_output_elements(program, unit) *
           (int64_t)z3d_dtype_size(program->config.dtype);
}

int z3d_instruction_source(const z3d_program *program, const z3d_instruction *in) {
    return z3d_model_input(program->model, in->unit, program->mode);
}
