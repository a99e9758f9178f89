/* Errors that are collected and then reported together, one line each. */
#ifndef ZERO3D_BASE_PROBLEMS_H
#define ZERO3D_BASE_PROBLEMS_H

#include "src/base/status.h"
#include "src/base/strings.h"

typedef struct z3d_problems {
    const char *where; /* "config.json", comes before each line; NULL: nothing */
    z3d_status status; /* of the first one */
    int count;
    z3d_string text;
} z3d_problems;

/* Keeps this thread's error if `status` is one. */
void z3d_problems_add(z3d_problems *problems, z3d_status status);
/* OK if there were none; else the first one's status, with the lines of the first 20. Frees them.
 */
z3d_status z3d_problems_end(z3d_problems *problems);

#endif
