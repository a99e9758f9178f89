/* The sums that decide the bits of a training step, and their order, read from the programs of a
 * configuration. Two configurations of one model compute equal bits if their sums are equal and all
 * else is (seed, data, learning rate, ...: src/plan/prove). For any world: nothing runs. Not
 * collective. Start reading at z3d_numerics, then numerics/read.c. */
#ifndef ZERO3D_ZERO_NUMERICS_H
#define ZERO3D_ZERO_NUMERICS_H

#include "zero/program/config.h"

typedef struct z3d_layout z3d_layout;

/* Sums as expressions. Each exists once and has a number, so equal sums have equal numbers.
 * Operands come before the terms that use them. */
typedef enum z3d_term_kind {
    Z3D_TERM_PART,   /* a unit's gradient, or the loss, of a micro-batch */
    Z3D_TERM_SHARE,  /* the same, of one data rank's samples */
    Z3D_TERM_ADD,    /* rounded sum of two, in any order */
    Z3D_TERM_INTO,   /* a unit's backward adds its gradient to a sum */
    Z3D_TERM_ROUND,  /* rounded to the wire's type */
    Z3D_TERM_REDUCE, /* over the data ranks, or a part of their axis, in the order of parallel.h */
    Z3D_TERM_COPIES, /* hybrid sharding: an all-reduce over the nodes */
    Z3D_TERM_TENSOR, /* over the tensor ranks, of partial gradients */
    Z3D_TERM_TWIN    /* the other pipeline stage's sum, not known yet */
} z3d_term_kind;

typedef struct z3d_term {
    z3d_term_kind kind;
    int64_t a, b,
        c; /* PART: number of the unit (z3d_unit_part), micro-batch. SHARE: number of the unit,
              first sample, their count. TWIN: group. ROUND: c is the type. Else the operands'
              numbers. REDUCE: b is the axes if they are a part of the data axis, else 0. REDUCE,
              COPIES, TENSOR: c is the wire's type (z3d_collective), fp32: none */
} z3d_term;

typedef struct z3d_terms {
    z3d_term *term;
    int64_t capacity;
    int count;
    int *place; /* hash table of numbers, -1: free */
    int places; /* a power of two */
    z3d_status status;
} z3d_terms;

/* Whether it is an addition of two terms. */
static inline bool z3d_term_adds(const z3d_term *term) {
    return term->kind == Z3D_TERM_ADD || term->kind == Z3D_TERM_INTO;
}
/* Finds or adds a term. Returns its number; 0 after a failure, which stays in status (ERR_MEMORY).
 * Zero-initialise `terms` first. */
int z3d_terms_find(z3d_terms *terms, z3d_term term);
void z3d_terms_release(z3d_terms *terms);

/* The sums of one configuration. */
typedef struct z3d_numerics {
    const z3d_model *model;
    z3d_mesh mesh;
    z3d_program_config config;
    z3d_layout *layout; /* of rank 0 */
    int *gradient;      /* by group: the term of its gradient before it is gathered */
    int loss;           /* its term, over all data ranks */
} z3d_numerics;

/* Builds and reads the training program of each pipeline stage. model and what config points to
 * must outlive it. Release it after a failure, too. Errors: as z3d_program_build. */
z3d_status z3d_numerics_read(z3d_terms *terms, const z3d_model *model, const z3d_mesh *mesh,
                             const z3d_program_config *config, z3d_numerics *out);
void z3d_numerics_release(z3d_numerics *numerics);

/* How a sum of one configuration compares with the other's. */
typedef enum z3d_agreement {
    Z3D_SUMS_EQUAL, /* to the bit */
    Z3D_SUMS_ALIKE, /* the same additions, but fp32 backwards add inside a matrix product or after
                       it: the rounding depends on the library and on sizes */
    Z3D_SUMS_DIFFERENT
} z3d_agreement;

/* Compares the orders of additions. `terms` has both configurations, which have the same model,
 * tensor size, sequence parallelism, tiling and types. Errors: ERR_MEMORY. */
z3d_status z3d_numerics_compare_gradient(z3d_terms *terms, const z3d_numerics *a,
                                         const z3d_numerics *b, int group, z3d_agreement *out);
z3d_status z3d_numerics_same_loss(z3d_terms *terms, const z3d_numerics *a, const z3d_numerics *b,
                                  bool *same);
/* Whether squares of gradients are added in the same order: by shard, then over ranks. */
bool z3d_numerics_same_norm(const z3d_numerics *a, const z3d_numerics *b);

/* "reduce_scatter(m0 += m1)": the sum of a group's gradient, or of the loss (group -1), for people.
 * mN: micro-batch N; x += y: backward of y adds to x; x + y: an addition after backward. */
void z3d_numerics_print(const z3d_terms *terms, const z3d_numerics *of, int group, z3d_string *out);
/* The number of a unit among those that use the group (-1: the loss), equal for all units of one
 * kind: the number of such units before the first of its kind. */
int z3d_unit_part(const z3d_model *model, int group, int unit);

#endif
