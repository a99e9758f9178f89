/* Self-contained HTML pages: head and style (dark and light, for phones, too), text, and charts of
 * curves. Nothing in a page refers to anything outside of it, and no script runs in it. */
#ifndef ZERO3D_BASE_PAGE_H
#define ZERO3D_BASE_PAGE_H

#include <stdint.h>

#include "src/base/strings.h"

/* Classes c0 ... c9 of the style give an element the colour var(--c); ct that of the text. */
enum { Z3D_PAGE_COLOURS = 10, Z3D_PAGE_TEXT = -1 };

/* Everything up to the first heading; `style`: CSS beside the common one. A page ends with
 * z3d_page_close. */
void z3d_page_open(z3d_string *out, const char *title, const char *style);
void z3d_page_close(z3d_string *out);
/* A text, with what is special in HTML and SVG escaped. */
void z3d_page_text(z3d_string *out, const char *text);
/* "c3" of colour 3, modulo Z3D_PAGE_COLOURS; "ct" of Z3D_PAGE_TEXT. */
const char *z3d_page_colour(int colour);

typedef enum z3d_curve_style { Z3D_CURVE_LINE, Z3D_CURVE_DASHED, Z3D_CURVE_POINTS } z3d_curve_style;

/* y over x, which ascends. A y that is not finite leaves a gap. */
typedef struct z3d_curve {
    int colour, series; /* series: the curve is of class s<series> */
    z3d_curve_style style;
    int64_t count;
    const double *x, *y;
} z3d_curve;

typedef enum z3d_mark_kind { Z3D_MARK_LINE, Z3D_MARK_BELOW, Z3D_MARK_ABOVE } z3d_mark_kind;

/* Upright strokes at places of x: over the whole height, at the lower or at the upper edge. */
typedef struct z3d_marks {
    int colour, series;
    z3d_mark_kind kind;
    int64_t count;
    const double *x;
} z3d_marks;

typedef struct z3d_chart {
    const char *title, *unit, *x_name; /* may be "" */
    bool from_zero;                    /* of y; else from its lowest value */
    bool logarithmic;
    int curves, num_marks;
    const z3d_curve *curve;
    const z3d_marks *marks;
} z3d_chart;

/* A chart as <figure>. It is as wide as there is room. A curve of more than 500 points is cut into
 * 250 buckets: it leads through their means, and behind it is what lies between the lowest and the
 * highest value of each. Without a finite point nothing is written. */
void z3d_page_chart(z3d_string *out, const z3d_chart *chart);

/* 1, 2 or 5 times a power of ten, so that about `parts` of it are the range (> 0). */
double z3d_axis_step(double range, int parts);

#endif
