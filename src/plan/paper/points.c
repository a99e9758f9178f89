/* The list of points of a reproduction, and their errors. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "src/plan/paper/paper.h"

z3d_status z3d_points_add(z3d_points *points, const z3d_point *point) {
    Z3D_TRY(z3d_grow(points->count, &points->capacity, sizeof *point, "points", &points->point));
    points->point[points->count++] = *point;
    return Z3D_OK;
}

z3d_status z3d_points_keep(z3d_points *points, const char *text, const char **out) {
    Z3D_TRY(z3d_grow(points->texts, &points->texts_capacity, sizeof *points->text,
                     "texts of points", &points->text));
    char *copy = strdup(text);
    if (!copy) return Z3D_ERROR(Z3D_ERR_MEMORY, "a text of a point");
    points->text[points->texts++] = copy;
    *out = copy;
    return Z3D_OK;
}

void z3d_points_free(z3d_points *points) {
    for (int i = 0; i < points->texts; i++) free(points->text[i]);
    free(points->text);
    free(points->point);
    *points = (z3d_points){0};
}

/* ---- tables and errors ---- */

bool z3d_points_same_table(const z3d_point *point, const void *context) {
    const z3d_point *other = context;
    const char *paper = point->paper ? point->paper : "",
               *others = other->paper ? other->paper : "";
    return strcmp(paper, others) == 0 && strcmp(point->figure, other->figure) == 0;
}

bool z3d_points_begin_table(const z3d_points *points, int index) {
    return index == 0 || !z3d_points_same_table(&points->point[index], &points->point[index - 1]);
}

static int by_size(const void *a, const void *b) {
    double x = fabs(*(const double *)a), y = fabs(*(const double *)b);
    return (x > y) - (x < y);
}

z3d_status z3d_points_errors(const z3d_points *points, z3d_point_filter *belongs,
                             const void *context, z3d_errors *out) {
    double *error;
    int count = 0;
    *out = (z3d_errors){0};
    Z3D_TRY(z3d_new((size_t)points->count + 1, sizeof *error, "errors", &error));
    for (int i = 0; i < points->count; i++) {
        const z3d_point *p = &points->point[i];
        if (strcmp(p->quantity, "fits") == 0 || isnan(p->published) || !belongs(p, context))
            continue;
        error[count++] = p->ours / p->published - 1;
    }
    if (count > 0) {
        qsort(error, (size_t)count, sizeof *error, by_size);
        const double median = (fabs(error[(count - 1) / 2]) + fabs(error[count / 2])) / 2;
        *out = (z3d_errors){count, median, error[count - 1]};
    }
    free(error);
    return Z3D_OK;
}
