/* The layout of one rank: parameter groups as flat buffers and shards, the states that it keeps,
 * and the units of its pipeline stage. */
#ifndef ZERO3D_ZERO_LAYOUT_H
#define ZERO3D_ZERO_LAYOUT_H

#include "zero/program/states.h"

/* Elements of a shard with the same weight decay, the same counting in norms and the same sums over
 * the tensor group. At most six a shard. */
typedef struct z3d_range {
    int64_t first, count; /* in the group's flat local buffer */
    bool weight_decay, replicated;
    bool partial; /* replicated, and each tensor rank's gradient is a part of a sum */
} z3d_range;

typedef struct z3d_group_layout {
    z3d_axes shard_axes;   /* states may be sharded over these: a row of the matrix each */
    z3d_axes replica_axes; /* reduced gradients of the partial ranges are summed over these; NONE:
                              no such range */
    z3d_axes copy_axes;    /* equal states are kept along these, and reduced gradients summed; NONE:
                              one copy */
    int rows, own;         /* of the matrix: ranks along the shard axes; this rank's number */
    int block;             /* rows of a block; 1: the shard axes are not cut */
    int chunk[2];          /* chunks of the pipeline that use it; -1: none */
    bool frozen;           /* not trained: only its value is kept */
    bool held;             /* a unit of this pipeline stage uses it; else nothing is kept */
    bool counts;           /* this stage is the first that holds it: counts its norm, saves it */
    /* Trained and used in two chunks: each has a sum of gradients; both are added in the end. */
    int twin;         /* the other pipeline stage that holds it; -1: none */
    int second_chunk; /* the later one if both are this stage's, else -1 */
    int64_t *offset;  /* first element of each parameter in the flat local buffer */
    int64_t elements; /* of the parameters, without padding */
    int64_t padded;   /* = rows x shard, counted by P */
    int64_t shard;    /* elements of one rank's shard; a multiple of Z3D_SHARD_ALIGN */
    int num_ranges;
    z3d_range range[6]; /* of the whole flat buffer, in order, without padding; a shard has the
                           intersections */
    z3d_state state[Z3D_MAX_STATES];
} z3d_group_layout;

/* Whether this stage adds two sums of gradients at the end of a step. */
static inline bool z3d_adds_two_sums(const z3d_group_layout *group) {
    return group->twin >= 0 || group->second_chunk >= 0;
}

enum {
    Z3D_SHARD_ALIGN = 64,
    Z3D_OFFLOAD_ALIGN = 2048 /* columns: whole disk blocks in every type */
};

typedef struct z3d_layout {
    int num_groups;
    z3d_mesh mesh;
    int tensor_size, tensor_index; /* of the group over which parameters are split */
    int stages, stage;             /* of the pipeline; this rank's */
    int num_chunks;                /* of all stages */
    int *first_unit;               /* of each chunk, then the number of units */
    int *stage_of_chunk, *chunk_of_unit;
    int first_trained;    /* unit: the units before it have no backward (z3d_model_first_trained) */
    int64_t padded_total; /* P: sum of `padded` of all groups that this stage holds */
    z3d_group_layout *group;
    int64_t *offset; /* memory of all groups' `offset` */
} z3d_layout;

/* config: decides states (z3d_states_decide) and the units of stages; NULL: all zero, if only
 * places and sizes matter, with one stage. Errors: ERR_MEMORY, ERR_CONFIG: also for chunks that are
 * not all units in order, and for a group that units of more than two chunks use. */
z3d_status z3d_layout_create(const z3d_model *model, const z3d_mesh *mesh,
                             const z3d_program_config *config, z3d_layout **out);
void z3d_layout_destroy(z3d_layout *layout);
int z3d_layout_stage_of(const z3d_layout *layout, int unit);
/* The sum of gradients that the unit adds to: 1 for the group's second chunk, else 0. */
int z3d_layout_use(const z3d_layout *layout, int unit, int group);
/* Whether this pipeline stage runs the unit; whether the unit is the first of its chunk. */
bool z3d_layout_has_unit(const z3d_layout *layout, int unit);
bool z3d_layout_begins_chunk(const z3d_layout *layout, int unit);
/* Whether a trained unit needs the gradient of this unit's input, the output of the unit before. */
static inline bool z3d_layout_wants_input_gradient(const z3d_layout *layout, int unit) {
    return unit > layout->first_trained;
}
/* Intersection of range r of group g with this rank's shard; false: empty. first is in the flat
 * buffer. */
bool z3d_layout_shard_range(const z3d_layout *layout, int group, int range, z3d_range *out);
/* Elements of the largest group, padding included: larger buckets change nothing. */
int64_t z3d_layout_largest(const z3d_layout *layout);
/* The partial gradients in this rank's shard (first is in the flat buffer; count 0: none). */
void z3d_layout_partial_part(const z3d_layout *layout, int group, int64_t *first, int64_t *count);

/* Of a group's state: its rows, OWN, BLOCK or ALL; whether they are all; elements of one tensor. */
z3d_rows z3d_state_rows(const z3d_layout *layout, int group, z3d_state_role role);
bool z3d_state_is_whole(const z3d_layout *layout, int group, z3d_state_role role);
int64_t z3d_state_elements(const z3d_layout *layout, int group, z3d_state_role role);
/* The elements of these rows (OWN, BLOCK or ALL); the first in the group's flat buffer. */
int64_t z3d_rows_elements(const z3d_group_layout *group, z3d_rows rows);
int64_t z3d_rows_first(const z3d_group_layout *group, z3d_rows rows);
/* Of a group's state: the first element in the group's flat buffer; bytes of all tensors. */
int64_t z3d_state_first(const z3d_layout *layout, int group, z3d_state_role role);
int64_t z3d_state_bytes(const z3d_layout *layout, int group, z3d_state_role role);
static inline z3d_space z3d_state_space(const z3d_layout *layout, int group, z3d_state_role role) {
    return layout->group[group].state[role].at.space;
}
/* Gradients leave the device as soon as they are reduced. */
static inline bool z3d_gradients_leave(const z3d_layout *layout, int group) {
    return z3d_state_space(layout, group, Z3D_STATE_GRADIENT) != Z3D_SPACE_DEVICE;
}
/* The number of the state's tensor of this kind; -1: none. */
int z3d_state_index(const z3d_layout *layout, int group, z3d_state_role role, z3d_tensor_kind kind);
/* The share of offloaded groups in the trained elements that this stage holds. */
double z3d_offloaded_share(const z3d_layout *layout);
/* Whether every rank keeps whole gradients, although it steps only its own rows: for people. */
bool z3d_keeps_whole_gradients(const z3d_layout *layout);

#endif
