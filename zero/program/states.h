/* The states of a parameter group, which persist between steps, and their rows on each rank.
 * states.c is the one file that reads ZeRO's stage. */
#ifndef ZERO3D_ZERO_STATES_H
#define ZERO3D_ZERO_STATES_H

#include "zero/program/config.h"

/* Rows of a group's [rows x shard] matrix: OWN: this rank's; NEAR: the others of its block (the
 * ranks at its place in other nodes); FAR: all others. The rows of a block follow each other. */
typedef enum z3d_rows {
    Z3D_ROWS_OWN = 1,
    Z3D_ROWS_NEAR = 2,
    Z3D_ROWS_FAR = 4,
    Z3D_ROWS_BLOCK = Z3D_ROWS_OWN | Z3D_ROWS_NEAR,
    Z3D_ROWS_ALL = Z3D_ROWS_BLOCK | Z3D_ROWS_FAR
} z3d_rows;

/* What of a parameter group persists between steps. Roles from Z3D_STATE_COUNT on are those of the
 * classes that a configuration adds (z3d_state_class). */
typedef enum z3d_state_role {
    Z3D_STATE_VALUE,     /* the parameters */
    Z3D_STATE_SECONDARY, /* hpZ: their block, gathered once after a change of the parameters */
    Z3D_STATE_GRADIENT,
    Z3D_STATE_OPTIMIZER,
    Z3D_STATE_COUNT,
    Z3D_MAX_STATES = Z3D_STATE_COUNT + 4
} z3d_state_role;

/* The place of a state on each rank. */
typedef struct z3d_placement {
    z3d_axes sharded; /* its rows are divided over these; NONE: each rank has all. ROWS means the
                         group's shard axes, which in hybrid sharding are those of a block */
    z3d_space space;
    z3d_dtype codec;
} z3d_placement;

/* A state is a matrix for each kind of tensor, in the kinds' order. The optimizer state of 16-bit
 * or offloaded parameters begins with an fp32 master copy (Z3D_TENSOR_PARAMETER); the optimizer's
 * own tensors follow. Other fp32 parameters are their own master copy. */
typedef struct z3d_state {
    z3d_placement at;
    unsigned kinds; /* of z3d_tensor_kind; 0: the group does not have the state */
} z3d_state;

/* A class of states: a state of each parameter group. A configuration may add classes; zero/ gives
 * each state its memory and keeps it, and never reads or writes it. The bytes are undefined until
 * the caller writes them. A checkpoint does not have them, a replay has. */
typedef struct z3d_state_class {
    const char *name; /* of its buffers: "optimizer" */
    z3d_category category;
    /* Of an added class: sharded is NONE, Z3D_ROLE_ROWS or Z3D_ROLE_BLOCKS; kinds has a bit for
     * each of its tensors. */
    z3d_state state;
    bool of_all; /* also frozen groups have it, and runs that do not train */
} z3d_state_class;

/* The number of classes, which are the roles of a configuration; the class of a role. config may be
 * NULL for a role of zero/. */
int z3d_state_classes(const z3d_program_config *config);
const z3d_state_class *z3d_state_class_of(const z3d_program_config *config, int role);
/* ERR_CONFIG for too many classes, for one without a name, and for one whose axes, space or
 * category cannot be. */
z3d_status z3d_states_check(const z3d_program_config *config);

/* The states of a parameter group of so many elements, which may be sharded over `axes`. offloaded:
 * config.offload holds for it. frozen: it is not trained. */
void z3d_states_decide(const z3d_program_config *config, z3d_axes axes, int64_t elements,
                       bool offloaded, bool frozen, z3d_state state[Z3D_MAX_STATES]);
/* The kinds of tensors that a run's state has, and so a checkpoint. A frozen group has only
 * parameters. */
unsigned z3d_state_kinds(const z3d_program_config *config);
/* Whether it is best to reduce gradients once a step: ranks keep all rows between micro-batches. */
bool z3d_states_reduce_per_step(int stage);

#endif
