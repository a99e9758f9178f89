/* Proves from step programs and keys alone that two configurations train equally to the bit. */
#ifndef ZERO3D_PLAN_PROVE_H
#define ZERO3D_PLAN_PROVE_H

#include "src/plan/plan.h"

typedef struct z3d_prove_side {
    z3d_config *config; /* z3d_prove resolves it */
    int ranks;          /* 0: as in z3d_plan_create */
    const char *name;   /* its file, for the text */
} z3d_prove_side;

/* Which numbers are proved equal to the bit in every step, for two runs of one build, on machines
 * of one kind, with the same start. */
typedef struct z3d_proof {
    bool losses, norms, parameters;
    bool open; /* not equal, but nothing is known to differ */
    z3d_string text;
} z3d_proof;

static inline bool z3d_proof_is_equal(const z3d_proof *proof) {
    return proof->losses && proof->norms && proof->parameters;
}

/* proof->text names everything that is not proved: keys with both values, sums with both orders.
 * Free the text, also after a failure. Not collective, runs nothing. Errors: as z3d_plan_create. */
z3d_status z3d_prove(const z3d_prove_side *a, const z3d_prove_side *b, z3d_proof *proof);

#endif
