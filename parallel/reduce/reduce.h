/* Private to parallel/: the arithmetic of reductions. */
#ifndef ZERO3D_PARALLEL_REDUCE_H
#define ZERO3D_PARALLEL_REDUCE_H

#include "parallel/parallel.h"

/* to[i] = a[i] op b[i] for `count` elements, each rounded once to the type (nearest even); a NaN on
 * either side gives a NaN, in Z3D_MAX too. `to` may be `a` or `b`. Equal operands give equal bits
 * in every build and on every CPU, NaN payloads excepted. */
typedef void (*z3d_reduce_function)(void *to, const void *a, const void *b, int64_t count);

/* The fastest one that this CPU runs; NULL: the type has no such reduction. */
z3d_reduce_function z3d_reduce_find(z3d_dtype dtype, z3d_reduce_op op);
/* The one without instruction-set extensions: what tests compare the others with. */
z3d_reduce_function z3d_reduce_find_plain(z3d_dtype dtype, z3d_reduce_op op);

#endif
