/* Collects errors and reports them together, one line each. */
#ifndef ZERO3D_BASE_PROBLEMS_H
#define ZERO3D_BASE_PROBLEMS_H

#include "src/base/status.h"
#include "src/base/strings.h"

typedef struct z3d_problems {
    const char *where; /* "config.json": put before each line; NULL: nothing */
    z3d_status status; /* of the first error */
    int count;
    z3d_string text;
} z3d_problems;

/* Adds this thread's error if `status` is an error. */
void z3d_problems_add(z3d_problems *problems, z3d_status status);
/* Returns OK if there were no errors; else the first one's status, with the lines of the first 20
 * as the error text. Frees the errors. */
z3d_status z3d_problems_end(z3d_problems *problems);

#endif
