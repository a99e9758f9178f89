#include "src/base/sort.h"

#include <stdlib.h>

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void z3d_sort_numbers(double *values, size_t count) {
    qsort(values, count, sizeof *values, by_value);
}
