/* An entry of a step program, and what the table of instructions says of it. */
#ifndef ZERO3D_ZERO_INSTRUCTION_H
#define ZERO3D_ZERO_INSTRUCTION_H

#include "zero/program/opcodes.h"
#include "zero/program/states.h"
#include "zero/program/traces.h"

typedef struct z3d_program z3d_program;

/* What runs beside compute stands in the list twice: START makes it wait for compute's position,
 * WAIT makes compute wait for it. Both have the same ticket. */
typedef enum z3d_phase { Z3D_PHASE_WHOLE, Z3D_PHASE_START, Z3D_PHASE_WAIT } z3d_phase;

/* Roles of an instruction's buffers; a slot holds a buffer's index or -1. A unit's first parameter
 * group has the slots PARAMETERS and GRADIENTS, the others' two each follow from COUNT on. */
typedef enum z3d_slot {
    Z3D_SLOT_INPUT,
    Z3D_SLOT_OUTPUT,
    Z3D_SLOT_OUTPUT_GRADIENT,
    Z3D_SLOT_INPUT_GRADIENT,
    Z3D_SLOT_SAVED,
    Z3D_SLOT_WORKSPACE,
    Z3D_SLOT_DEFERRED, /* from the input half of backward to the weight half */
    Z3D_SLOT_CACHE,    /* of generation, from run to run */
    Z3D_SLOT_PARAMETERS,
    Z3D_SLOT_GRADIENTS,
    Z3D_SLOT_SHARD, /* kept gradients */
    Z3D_SLOT_OPTIMIZER,
    Z3D_SLOT_COUNT
} z3d_slot;

/* Slots of an instruction that runs a unit with so many groups; with 1, of every other one. */
static inline int z3d_slots_with(int groups) {
    return groups > 1 ? Z3D_SLOT_COUNT + 2 * (groups - 1) : Z3D_SLOT_COUNT;
}
/* Where the parameters of the unit's group number `place` are, and their gradients. */
static inline int z3d_slot_parameters(int place) {
    return place ? z3d_slots_with(place) : Z3D_SLOT_PARAMETERS;
}
static inline int z3d_slot_gradients(int place) {
    return place ? z3d_slots_with(place) + 1 : Z3D_SLOT_GRADIENTS;
}
/* Of a slot of any number: what is in it, and of which of the unit's groups. */
static inline z3d_slot z3d_slot_role(int slot) {
    if (slot < Z3D_SLOT_COUNT) return (z3d_slot)slot;
    return (slot - Z3D_SLOT_COUNT) % 2 ? Z3D_SLOT_GRADIENTS : Z3D_SLOT_PARAMETERS;
}
static inline int z3d_slot_place(int slot) {
    return slot < Z3D_SLOT_COUNT ? 0 : (slot - Z3D_SLOT_COUNT) / 2 + 1;
}

/* Whose data an instruction moves. */
typedef enum z3d_moves {
    Z3D_MOVES_NONE,
    Z3D_MOVES_PARAMETERS,
    Z3D_MOVES_GRADIENTS,
    Z3D_MOVES_STATES,              /* of the optimizer: all its tensors */
    Z3D_MOVES_ACTIVATIONS,         /* a unit's input */
    Z3D_MOVES_ACTIVATION_GRADIENTS /* its gradient */
} z3d_moves;

/* Whether what moves is a unit's input or that input's gradient. */
static inline bool z3d_moves_input(z3d_moves moves) {
    return moves >= Z3D_MOVES_ACTIVATIONS;
}

/* What an instruction does with the buffer in a slot. CLOBBER: what it leaves there is nobody's. */
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

/* Of an opcode out of range, too: a wrong program is described before it is refused. */
const z3d_opcode_info *z3d_opcode_info_of(z3d_opcode opcode);
const char *z3d_opcode_name(z3d_opcode opcode);
/* The ranks that its entries are about, of parameter group `group` (-1: none). */
z3d_axes z3d_opcode_axes(const z3d_layout *layout, z3d_opcode opcode, int group);

typedef struct z3d_instruction {
    z3d_opcode opcode;
    z3d_phase phase;
    int ticket;             /* the same of a start and its wait; WHOLE: -1 */
    int unit, micro, group; /* -1: not about one */
    int peer;               /* send and receive: the other pipeline stage; else -1 */
    z3d_axes axes;          /* z3d_opcode_axes: of its collective, of the parts that it copies */
    z3d_rows rows;          /* of activations that move: OWN: the part of this rank among those of
                               the axes; ALL: whole */
    int64_t first, count;   /* collectives: columns of z3d_instruction_matrix; moved activation
                               checkpoints: elements of one rank's part */
    /* Collectives that travel as one follow each other, starts and waits: the first start's columns
     * begin at `column` 0 of a packed matrix of so many columns, in the slot WORKSPACE, and the
     * last one's end there. columns 0: it travels alone. */
    int64_t column, columns;
    int *buffer;            /* by slot; the program's memory */
    int num_slots;          /* z3d_slots_with */
    bool keep;              /* forward: saved is for backward */
    bool need_output;       /* recompute: false leaves out what only leads to the output */
    uint64_t accumulate;    /* backward: bit s set: gradients of the unit's group s are added to;
                               sums: 1: the gradients are added to */
    int num_children;       /* inner collectives */
    const z3d_child *child; /* of the traces; not owned */
} z3d_instruction;

/* One operand: what an instruction does with some rows and columns of a buffer. What is not a
 * parameter group's matrix has all columns that there are. */
typedef struct z3d_buffer_operand {
    int slot, buffer, group; /* group: whose matrix, -1: none */
    unsigned access;         /* z3d_access, together */
    z3d_rows rows;
    int64_t first, count; /* columns */
    int64_t columns;      /* of the matrix: the shard's, or a block's; 0: the entry takes all of the
                             buffer, however its rows are cut */
} z3d_buffer_operand;

/* The matrix that an instruction moves: `ranks` rows, of which this rank's is number `own`. Of a
 * parameter group it is [rows x shard]; for a collective over one part of the data axis, its
 * blocks, or the rows of this rank's block. */
typedef struct z3d_matrix {
    int ranks, own;
    int64_t columns;
    int64_t base; /* its first element in the group's flat buffer */
    z3d_dtype dtype;
    int tensors; /* such matrices, one behind the other: the optimizer's; else 1 */
} z3d_matrix;

/* The unit whose output this entry's unit reads, -1: none. */
int z3d_instruction_source(const z3d_program *program, const z3d_instruction *in);

/* The recording of what an entry's unit does. */
z3d_call z3d_instruction_call(const z3d_instruction *in);
/* What the table says of an entry: a collective that is started and waited for; that, or an
 * exchange; its kind and type. */
bool z3d_is_collective(const z3d_instruction *in);
bool z3d_is_point_to_point(const z3d_instruction *in); /* of collectives: a send or a receive */
bool z3d_communicates(const z3d_instruction *in);
z3d_collective_kind z3d_instruction_kind(const z3d_instruction *in);
z3d_dtype z3d_instruction_dtype(const z3d_program *program, const z3d_instruction *in);
/* z3d_collective's: of those that sum gradients the configuration's, else fp32. */
z3d_dtype z3d_instruction_wire(const z3d_program *program, const z3d_instruction *in);
/* Whether it moves from one buffer to another, not in place. */
bool z3d_moves_apart(const z3d_instruction *in);
/* Whether it is about some columns of its group's matrix: first, count. */
bool z3d_instruction_has_columns(const z3d_instruction *in);
/* What the instruction does with a slot's buffer (z3d_access, together); with how much of it. */
unsigned z3d_instruction_access(const z3d_instruction *in, int slot);
z3d_buffer_operand z3d_instruction_operand(const z3d_program *program, const z3d_instruction *in,
                                           int slot);
/* Of a collective about a group: the rows that this rank brings to it, or has of its result: its
 * own, or its block. */
z3d_rows z3d_instruction_own_rows(const z3d_program *program, const z3d_instruction *in);
/* The matrix of an instruction about a group, or that moves a unit's input. */
z3d_matrix z3d_instruction_matrix(const z3d_program *program, const z3d_instruction *in);
/* Elements that each member brings, and the first of them (of an all-reduce: in the group's flat
 * buffer). */
void z3d_instruction_columns(const z3d_program *program, const z3d_instruction *in, int64_t *first,
                             int64_t *count);

/* Its part of z3d_program_volume. */
int64_t z3d_instruction_volume(const z3d_program *program, int index, z3d_axes axes, bool children);

/* "reduce_grads block.3 (micro 0, columns 0-4095)": for errors, the watchdog, traces. */
const char *z3d_instruction_describe(const z3d_program *program, int index, char *buf, size_t size);

#endif
