/* Sorts numbers. */
#ifndef ZERO3D_BASE_SORT_H
#define ZERO3D_BASE_SORT_H

#include <stddef.h>

/* Sorts in place, from the smallest to the largest; NANs must not be among them. */
void z3d_sort_numbers(double *values, size_t count);

#endif
