/* Private to parallel/: the arithmetic of reductions. */
#ifndef ZERO3D_PARALLEL_REDUCE_H
#define ZERO3D_PARALLEL_REDUCE_H

#include "parallel/parallel.h"

/* to[i] = a[i] op b[i] for `count` elements, each rounded once to the type (nearest even). A NaN in
 * one operand gives a NaN, also with Z3D_MAX. `to` may be `a` or `b`. Equal operands give equal
 * bits in every build and on every CPU, except for the payloads of NaNs. */
typedef void (*z3d_reduce_function)(void *to, const void *a, const void *b, int64_t count);

/* The fastest function that this CPU can run; NULL: the type has no such reduction. */
z3d_reduce_function z3d_reduce_find(z3d_dtype dtype, z3d_reduce_op op);
/* The function without instruction-set extensions: tests compare the others with it. */
z3d_reduce_function z3d_reduce_find_plain(z3d_dtype dtype, z3d_reduce_op op);

#endif
