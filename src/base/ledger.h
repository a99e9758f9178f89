/* The categories of memory. The memory planner plans each one, the arena measures each one. */
#ifndef ZERO3D_BASE_LEDGER_H
#define ZERO3D_BASE_LEDGER_H

#include <stdint.h>

/* X(NAME, name): the first three persist between steps. */
#define Z3D_CATEGORY_MAP(X)                                                                        \
    X(PARAMETERS, parameters)                                                                      \
    X(GRADIENTS, gradients)                                                                        \
    X(OPTIMIZER, optimizer)                                                                        \
    X(ACTIVATIONS, activations)                                                                    \
    X(CACHE, cache) /* keys and values of generation */                                            \
    X(TEMPORARY, temporary)                                                                        \
    X(COMMUNICATION, communication)

typedef enum z3d_category {
#define X(NAME, name) Z3D_CATEGORY_##NAME,
    Z3D_CATEGORY_MAP(X)
#undef X
        Z3D_CATEGORY_COUNT
} z3d_category;

const char *z3d_category_name(z3d_category category);

/* Bytes live now and their highest value, by category. */
typedef struct z3d_ledger {
    int64_t live[Z3D_CATEGORY_COUNT];
    int64_t peak[Z3D_CATEGORY_COUNT];
    int64_t total_live, total_peak;
} z3d_ledger;

void z3d_ledger_add(z3d_ledger *ledger, z3d_category category,
                    int64_t bytes); /* negative: released */

#endif
