/* The list of points that a reproduction is. */
#include <stdlib.h>

#include "src/plan/paper/paper.h"

z3d_status z3d_points_add(z3d_points *points, const z3d_point *point) {
    if (points->count == points->capacity) {
        int capacity = points->capacity ? 2 * points->capacity : 64;
        z3d_point *bigger = realloc(points->point, (size_t)capacity * sizeof *bigger);
        if (!bigger) return Z3D_ERROR(Z3D_ERR_MEMORY, "%d points", capacity);
        points->point = bigger;
        points->capacity = capacity;
    }
    points->point[points->count++] = *point;
    return Z3D_OK;
}

void z3d_points_free(z3d_points *points) {
    free(points->point);
    *points = (z3d_points){0};
}
