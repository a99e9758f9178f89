/* Whether two configurations train equally to the bit, from their step programs and keys alone. */
#ifndef ZERO3D_PLAN_PROVE_H
#define ZERO3D_PLAN_PROVE_H

#include "src/plan/plan.h"

typedef struct z3d_prove_side {
    z3d_config *config; /* is resolved */
    int ranks;          /* 0: as z3d_plan_create finds them */
    const char *name;   /* for the text: its file */
} z3d_prove_side;

/* What is proved of two runs of one build on machines of one kind, that begin alike: equal to the
 * bit in every step. */
typedef struct z3d_proof {
    bool losses, norms, parameters;
    bool open; /* not equal, but nothing is known to differ */
    z3d_string text;
} z3d_proof;

static inline bool z3d_proof_is_equal(const z3d_proof *proof) {
    return proof->losses && proof->norms && proof->parameters;
}

/* What is not proved is named in proof->text: keys with both values, sums with both orders. Free
 * the text, also after a failure. Not collective, runs nothing. Errors: as z3d_plan_create. */
z3d_status z3d_prove(const z3d_prove_side *a, const z3d_prove_side *b, z3d_proof *proof);

#endif
