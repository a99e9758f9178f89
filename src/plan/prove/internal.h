/* Private to src/plan/prove/: the findings of a comparison. */
#ifndef ZERO3D_PLAN_PROVE_INTERNAL_H
#define ZERO3D_PLAN_PROVE_INTERNAL_H

#include "src/plan/prove/prove.h"
#include "zero/numerics.h"

/* Arrays of two: sides A and B. */
typedef struct z3d_comparison {
    z3d_config *config[2];
    z3d_plan *plan[2];
    z3d_terms terms;
    z3d_numerics numerics[2];
    z3d_string differences, unproved; /* text lines */
    bool prints_sums;
    bool apart;      /* models, types or tensor sizes differ, so no sums can be compared */
    bool steps;      /* parameters may differ, because of keys, gradients or choices of a run */
    bool loss, norm; /* the orders of its sums differ */
} z3d_comparison;

/* keys.c: compares keys and choices. */
void z3d_prove_keys(z3d_comparison *c);
/* sums.c: compares the sums of both programs. Errors: as z3d_numerics_read. */
z3d_status z3d_prove_sums(z3d_comparison *c);

#endif
