/* Orders numbers. */
#ifndef ZERO3D_BASE_SORT_H
#define ZERO3D_BASE_SORT_H

#include <stddef.h>

/* From the smallest to the largest. */
void z3d_sort_numbers(double *values, size_t count);

#endif
