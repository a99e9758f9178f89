/* An entry of a step program, and the answers of the table of instructions about it. */
#ifndef ZERO3D_ZERO_INSTRUCTION_H
#define ZERO3D_ZERO_INSTRUCTION_H

#include "zero/program/opcodes.h"
#include "zero/program/states.h"
#include "zero/program/traces.h"

typedef struct z3d_program z3d_program;

/* Work beside compute is in the list twice: START waits for compute's position, WAIT makes compute
 * wait for the work. Both have the same ticket. */
typedef enum z3d_phase { Z3D_PHASE_WHOLE, Z3D_PHASE_START, Z3D_PHASE_WAIT } z3d_phase;

/* Roles of an instruction's buffers; a slot holds a buffer's index or -1. A unit's first parameter
 * group has the slots PARAMETERS and GRADIENTS; from COUNT on each other group has two. */
typedef enum z3d_slot {
    Z3D_SLOT_INPUT,
    Z3D_SLOT_OUTPUT,
    Z3D_SLOT_OUTPUT_GRADIENT,
    Z3D_SLOT_INPUT_GRADIENT,
    Z3D_SLOT_SAVED,
    Z3D_SLOT_WORKSPACE,
    Z3D_SLOT_DEFERRED,
    Z3D_SLOT_CACHE, /* of generation, persists */
    Z3D_SLOT_PARAMETERS,
    Z3D_SLOT_GRADIENTS,
    Z3D_SLOT_SHARD, /* kept gradients */
    Z3D_SLOT_OPTIMIZER,
    Z3D_SLOT_COUNT
} z3d_slot;

/* Number of slots of an instruction that runs a unit with so many groups; 1: of all others. */
static inline int z3d_slots_with(int groups) {
    return groups > 1 ? Z3D_SLOT_COUNT + 2 * (groups - 1) : Z3D_SLOT_COUNT;
}
/* The slots of the parameters and gradients of the unit's group number `place`. */
static inline int z3d_slot_parameters(int place) {
    return place ? z3d_slots_with(place) : Z3D_SLOT_PARAMETERS;
}
static inline int z3d_slot_gradients(int place) {
    return place ? z3d_slots_with(place) + 1 : Z3D_SLOT_GRADIENTS;
}
/* The role of any slot; the number of the unit's group in it. */
static inline z3d_slot z3d_slot_role(int slot) {
    if (slot < Z3D_SLOT_COUNT) return (z3d_slot)slot;
    return (slot - Z3D_SLOT_COUNT) % 2 ? Z3D_SLOT_GRADIENTS : Z3D_SLOT_PARAMETERS;
}
static inline int z3d_slot_place(int slot) {
    return slot < Z3D_SLOT_COUNT ? 0 : (slot - Z3D_SLOT_COUNT) / 2 + 1;
}

/* The kind of data that an instruction moves. */
typedef enum z3d_moves {
    Z3D_MOVES_NONE,
    Z3D_MOVES_PARAMETERS,
    Z3D_MOVES_GRADIENTS,
    Z3D_MOVES_STATES,              /* all tensors of the optimizer */
    Z3D_MOVES_ACTIVATIONS,         /* a unit's input */
    Z3D_MOVES_ACTIVATION_GRADIENTS /* its gradient */
} z3d_moves;

/* Whether a unit's input or its gradient moves. */
static inline bool z3d_moves_input(z3d_moves moves) {
    return moves >= Z3D_MOVES_ACTIVATIONS;
}

/* What an instruction does with the buffer in a slot. CLOBBER: leaves it undefined. */
typedef enum z3d_access {
    Z3D_ACCESS_NONE = 0,
    Z3D_ACCESS_READ = 1,
    Z3D_ACCESS_WRITE = 2,
    Z3D_ACCESS_UPDATE = Z3D_ACCESS_READ | Z3D_ACCESS_WRITE,
    Z3D_ACCESS_CLOBBER = 4
} z3d_access;

/* A row of the table of instructions (opcodes.h). */
typedef struct z3d_opcode_info {
    const char *name;
    z3d_opcode_class rules;
    z3d_opcode_subject subject;
    z3d_opcode_over over;
    z3d_moves moves;
    z3d_slot from, to;
    unsigned modes; /* bit m: mode m */
} z3d_opcode_info;

/* Also for an opcode out of range, for the text of an error. */
const z3d_opcode_info *z3d_opcode_info_of(z3d_opcode opcode);
const char *z3d_opcode_name(z3d_opcode opcode);
/* The axes of its entries' communication, for parameter group `group` (-1: none). */
z3d_axes z3d_opcode_axes(const z3d_layout *layout, z3d_opcode opcode, int group);

typedef struct z3d_instruction {
    z3d_opcode opcode;
    z3d_phase phase;
    int ticket;             /* equal for a start and its wait; WHOLE: -1 */
    int unit, micro, group; /* -1: none */
    int peer;               /* send and receive: the other pipeline stage; else -1 */
    z3d_axes axes;        /* of its collective, or of the parts that it copies (z3d_opcode_axes) */
    z3d_rows rows;        /* of moved activations: OWN: this rank's part; ALL: all */
    int64_t first, count; /* collectives: columns of z3d_instruction_matrix; activation checkpoints:
                             elements of one rank's part */
    /* Joined collectives follow each other, starts and waits: their columns begin at `column` of a
     * packed matrix of `columns` columns, in the slot WORKSPACE; the first at 0, the last one ends
     * there. columns 0: it travels alone. */
    int64_t column, columns;
    int *buffer;         /* by slot; in z3d_program.slot */
    int num_slots;       /* z3d_slots_with */
    bool keep;           /* forward: saved memory is for backward */
    bool need_output;    /* recompute: false: only what backward reads */
    uint64_t accumulate; /* backward: bit s: adds to the gradients of the unit's group s; sums: 1:
                            adds */
    int num_children;    /* inner collectives */
    const z3d_child *child; /* in the traces; not owned */
} z3d_instruction;

/* One operand: rows and columns of a buffer. A buffer that is no group's matrix has all columns. */
typedef struct z3d_buffer_operand {
    int slot, buffer, group; /* group: of its matrix, -1: none */
    unsigned access;         /* z3d_access, together */
    z3d_rows rows;
    int64_t first, count; /* columns */
    int64_t columns;      /* of the matrix: a shard's, or a block's; 0: the entry takes all of the
                             buffer, in any cut of rows */
} z3d_buffer_operand;

/* The matrix that an instruction moves: `ranks` rows, this rank's is number `own`. A parameter
 * group's is [rows x shard]; a collective over one part of the data axis has its blocks, or the
 * rows of this rank's block. */
typedef struct z3d_matrix {
    int ranks, own;
    int64_t columns;
    int64_t base; /* first element in the group's flat buffer */
    z3d_dtype dtype;
    int tensors; /* such matrices, one after the other: the optimizer's; else 1 */
} z3d_matrix;

/* The unit whose output this entry's unit reads, -1: none. */
int z3d_instruction_source(const z3d_program *program, const z3d_instruction *in);

/* The call of an entry's unit. */
z3d_call z3d_instruction_call(const z3d_instruction *in);
/* From the table: a collective that is started and waited for; of these a send or a receive; a
 * collective or an exchange; the kind and type. */
bool z3d_is_collective(const z3d_instruction *in);
bool z3d_is_point_to_point(const z3d_instruction *in);
bool z3d_communicates(const z3d_instruction *in);
z3d_collective_kind z3d_instruction_kind(const z3d_instruction *in);
z3d_dtype z3d_instruction_dtype(const z3d_program *program, const z3d_instruction *in);
/* The wire's type (z3d_collective): for sums of gradients the configuration's, else fp32. */
z3d_dtype z3d_instruction_wire(const z3d_program *program, const z3d_instruction *in);
/* Whether it moves data from one buffer to another, not in place. */
bool z3d_moves_apart(const z3d_instruction *in);
/* Whether first and count are columns of its group's matrix. */
bool z3d_instruction_has_columns(const z3d_instruction *in);
/* The use of a slot's buffer (z3d_access, together), and the part of the buffer that is used. */
unsigned z3d_instruction_access(const z3d_instruction *in, int slot);
z3d_buffer_operand z3d_instruction_operand(const z3d_program *program, const z3d_instruction *in,
                                           int slot);
/* The rows that this rank brings to a collective of a group, or has of its result: its own, or its
 * block. */
z3d_rows z3d_instruction_own_rows(const z3d_program *program, const z3d_instruction *in);
/* The matrix of an instruction of a group, or one that moves a unit's input. */
z3d_matrix z3d_instruction_matrix(const z3d_program *program, const z3d_instruction *in);
/* Elements that each member brings, and the first one (all-reduce: in the group's flat buffer). */
void z3d_instruction_columns(const z3d_program *program, const z3d_instruction *in, int64_t *first,
                             int64_t *count);

/* Its part of z3d_program_volume. */
int64_t z3d_instruction_volume(const z3d_program *program, int index, z3d_axes axes, bool children);

/* "reduce_grads block.3 (micro 0, columns 0-4095)": for errors, the watchdog, traces. */
const char *z3d_instruction_describe(const z3d_program *program, int index, char *buf, size_t size);

#endif
