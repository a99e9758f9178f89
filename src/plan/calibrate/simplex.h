/* The smallest value of a function of a few numbers between 0 and 1: a simplex search (Nelder and
 * Mead, 1965). */
#ifndef ZERO3D_PLAN_CALIBRATE_SIMPLEX_H
#define ZERO3D_PLAN_CALIBRATE_SIMPLEX_H

enum { Z3D_SIMPLEX_MOST = 16 }; /* numbers */

typedef struct z3d_minimum {
    int count;                                       /* of numbers */
    double (*value)(void *context, const double *x); /* x may be out of bounds: return a high value
                                                        then */
    void *context;
} z3d_minimum;

/* Starts at x with steps of `size`; ends after `steps` moves, or when all values are equally good.
 * Leaves the best point in x and returns its value. */
double z3d_simplex(const z3d_minimum *of, double *x, double size, int steps);

#endif
