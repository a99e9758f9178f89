/* Private to src/plan/prove/: what was found. */
#ifndef ZERO3D_PLAN_PROVE_INTERNAL_H
#define ZERO3D_PLAN_PROVE_INTERNAL_H

#include "src/plan/prove/prove.h"
#include "zero/numerics.h"

/* Both sides are arrays of two: A, B. */
typedef struct z3d_comparison {
    z3d_config *config[2];
    z3d_plan *plan[2];
    z3d_terms terms;
    z3d_numerics numerics[2];
    z3d_string differences, unproved; /* lines of the text */
    bool prints_sums;
    bool apart; /* not of one model, type and cut into tensors: no sum of one is in the other */
    bool steps; /* keys, gradients or what a run decides: parameters may differ */
    bool loss, norm; /* their sums have other orders */
} z3d_comparison;

/* keys.c: all that is no sum. */
void z3d_prove_keys(z3d_comparison *c);
/* sums.c: the sums of both programs. */
z3d_status z3d_prove_sums(z3d_comparison *c);

#endif
