/* The sums that decide the bits of a training step, and their order, read from the programs of a
 * configuration. What two configurations of one model compute is equal to the bit if their sums are
 * equal and all else is (seed, data, learning rate, ...: src/plan/prove). May be called for any
 * world: nothing runs. Start reading at z3d_numerics, then numerics/read.c. */
#ifndef ZERO3D_ZERO_NUMERICS_H
#define ZERO3D_ZERO_NUMERICS_H

#include "zero/program/config.h"

typedef struct z3d_layout z3d_layout;

/* Sums as expressions: each is there once and has a number, so equal sums have equal numbers.
 * Operands come before what is made of them. */
typedef enum z3d_term_kind {
    Z3D_TERM_PART,   /* what a unit gives for a micro-batch: a gradient, or the loss */
    Z3D_TERM_SHARE,  /* the same, for the data rank that has these samples */
    Z3D_TERM_ADD,    /* rounded sum of two; their order does not matter */
    Z3D_TERM_INTO,   /* a unit's backward adds its gradient to a sum */
    Z3D_TERM_ROUND,  /* rounded to the type in which it travels */
    Z3D_TERM_REDUCE, /* over the data ranks, or over a part of their axis, in the order of
                        parallel.h */
    Z3D_TERM_COPIES, /* hybrid sharding: an all-reduce over the nodes */
    Z3D_TERM_TENSOR, /* over the tensor ranks, in its partial part */
    Z3D_TERM_TWIN    /* the group's sum on the other pipeline stage, not known yet */
} z3d_term_kind;

typedef struct z3d_term {
    z3d_term_kind kind;
    int64_t a, b, c; /* PART: which of the group's units (z3d_unit_part), micro-batch. SHARE: which
                        unit, first sample, their number. TWIN: group. ROUND: c is the type. Else
                        the operands' numbers; REDUCE: b is the axes where these are a part of the
                        data axis, else 0; REDUCE, COPIES, TENSOR: c is the wire's type
                        (z3d_collective), fp32: none */
} z3d_term;

typedef struct z3d_terms {
    z3d_term *term;
    int count, capacity;
    int *place; /* hash table of numbers, -1: free */
    int places; /* a power of two */
    z3d_status status;
} z3d_terms;

/* Zero-initialise. The number of a term; 0 after a failure, which stays in status (ERR_MEMORY). */
int z3d_terms_find(z3d_terms *terms, z3d_term term);
void z3d_terms_release(z3d_terms *terms);

/* Of one configuration. */
typedef struct z3d_numerics {
    const z3d_model *model;
    z3d_mesh mesh;
    z3d_program_config config;
    z3d_layout *layout; /* of rank 0: where groups and their shards are */
    int *gradient;      /* by group: the term of its finished gradient, before it is gathered */
    int loss;           /* of one data rank */
} z3d_numerics;

/* Builds and reads the training programs of all pipeline stages; ranks of a stage have the same
 * one. model, and what config points to, must outlive it. Release it after a failure, too. Errors:
 * as z3d_program_build. */
z3d_status z3d_numerics_read(z3d_terms *terms, const z3d_model *model, const z3d_mesh *mesh,
                             const z3d_program_config *config, z3d_numerics *out);
void z3d_numerics_release(z3d_numerics *numerics);

/* How a sum of one is to that of the other. */
typedef enum z3d_agreement {
    Z3D_SUMS_EQUAL, /* to the bit */
    Z3D_SUMS_ALIKE, /* the same additions, but in fp32 a backward does them inside of a matrix
                       product or not: whether that rounds alike depends on the library and on sizes
                     */
    Z3D_SUMS_DIFFERENT
} z3d_agreement;

/* Compares the orders of additions. Terms are those of both; both have the same model, tensor size,
 * sequence parallelism, tiling and types. Errors: ERR_MEMORY. */
z3d_status z3d_numerics_compare_gradient(z3d_terms *terms, const z3d_numerics *a,
                                         const z3d_numerics *b, int group, z3d_agreement *out);
z3d_status z3d_numerics_same_loss(z3d_terms *terms, const z3d_numerics *a, const z3d_numerics *b,
                                  bool *same);
/* Squares of gradients: by shard, then over ranks. */
bool z3d_numerics_same_norm(const z3d_numerics *a, const z3d_numerics *b);

/* "reduce_scatter(m0 += m1)": the sum of a group's gradient, or of the loss (group -1), for people.
 * mN: micro-batch N; x += y: backward of y adds to x; x + y: added afterwards. */
void z3d_numerics_print(const z3d_terms *terms, const z3d_numerics *of, int group, z3d_string *out);
/* Which of the units of a group (-1: of the loss) it is, those of one kind being alike: the number
 * of units before the first of its kind that use the group. */
int z3d_unit_part(const z3d_model *model, int group, int unit);

#endif
