/* Writes self-contained HTML pages: head and style (dark and light, also for phones), text, and
 * charts of curves. A page refers to nothing outside of it and has no scripts. */
#ifndef ZERO3D_BASE_PAGE_H
#define ZERO3D_BASE_PAGE_H

#include <stdint.h>

#include "src/base/strings.h"

/* Classes c0 ... c9 of the style set an element's colour, var(--c); ct sets the text's colour. */
enum { Z3D_PAGE_COLOURS = 10, Z3D_PAGE_TEXT = -1 };

/* Appends everything up to the first heading; style: CSS to add to the common style. z3d_page_close
 * ends the page. */
void z3d_page_open(z3d_string *out, const char *title, const char *style);
void z3d_page_close(z3d_string *out);
/* Appends a text; escapes the special characters of HTML and SVG. */
void z3d_page_text(z3d_string *out, const char *text);
/* The class of a colour: "c3" for 3 (modulo Z3D_PAGE_COLOURS), "ct" for Z3D_PAGE_TEXT. */
const char *z3d_page_colour(int colour);

typedef enum z3d_curve_style { Z3D_CURVE_LINE, Z3D_CURVE_DASHED, Z3D_CURVE_POINTS } z3d_curve_style;

/* y over x; x ascends. A y that is not finite leaves a gap. */
typedef struct z3d_curve {
    int colour, series; /* series: the curve has the class s<series> */
    z3d_curve_style style;
    int64_t count;
    const double *x, *y;
} z3d_curve;

typedef enum z3d_mark_kind { Z3D_MARK_LINE, Z3D_MARK_BELOW, Z3D_MARK_ABOVE } z3d_mark_kind;

/* Vertical strokes at places of x: over the whole height, at the lower or at the upper edge. */
typedef struct z3d_marks {
    int colour, series;
    z3d_mark_kind kind;
    int64_t count;
    const double *x;
} z3d_marks;

typedef struct z3d_chart {
    const char *title, *unit, *x_name; /* may be "" */
    bool from_zero;                    /* the y axis begins at 0, else at the lowest value */
    bool logarithmic;
    int curves, num_marks;
    const z3d_curve *curve;
    const z3d_marks *marks;
} z3d_chart;

/* Appends a chart as <figure>, as wide as the page. A curve of more than 500 points is cut into 250
 * buckets: the line joins their means, and a paler area shows the lowest to the highest value of
 * each. Writes nothing if no point is finite. */
void z3d_page_chart(z3d_string *out, const z3d_chart *chart);

/* The distance of ticks: 1, 2 or 5 times a power of ten, about range / parts. range > 0. */
double z3d_axis_step(double range, int parts);

#endif
