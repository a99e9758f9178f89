/* Published numbers and ours, side by side: the points of every figure, as text and as JSON. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "src/plan/paper/paper.h"

/* ---- figures ---- */

static z3d_status add(const z3d_paper_row *row, const char *quantity, double published, double ours,
                      double other, bool fitted, z3d_points *out) {
    const z3d_point point = {.figure = row->figure,
                             .system = row->system,
                             .size = row->size,
                             .gpus = row->gpus,
                             .quantity = quantity,
                             .published = published,
                             .ours = ours,
                             .other = other,
                             .fitted = fitted};
    return z3d_points_add(out, &point);
}

static z3d_status add_row(const z3d_paper_row *row, const z3d_hardware *hardware, z3d_points *out) {
    const bool fitted = row->shows & PAPER_FITTED;
    z3d_case *of;
    z3d_estimate e;
    Z3D_TRY(z3d_paper_case(row, 0, &of));
    z3d_status status = z3d_paper_estimate(row, of, hardware, &e);
    z3d_case_destroy(of);
    Z3D_TRY(status);
    const double gb = ((double)e.memory.arena + e.memory.overhead) * 1e-9;
    if (row->shows & PAPER_SPEED)
        Z3D_TRY(add(row, "tflops_per_gpu", row->speed, e.tflops_96, e.tflops_72, fitted, out));
    if (row->shows & PAPER_MEMORY) Z3D_TRY(add(row, "gb", row->memory, gb, NAN, fitted, out));
    if (row->shows & PAPER_FITS)
        Z3D_TRY(add(row, "fits", row->fits, e.memory.fits, NAN, false, out));
    if (row->shows & PAPER_LARGEST) {
        double parameters;
        Z3D_TRY(z3d_paper_largest(row, hardware, &parameters));
        Z3D_TRY(add(row, "max_params", row->largest, parameters, NAN, false, out));
    }
    return Z3D_OK;
}

static z3d_status figure_points(const char *figure, const z3d_hardware *hardware, z3d_points *out) {
    for (int i = 0; i < z3d_paper_row_count; i++)
        if (strcmp(z3d_paper_rows[i].figure, figure) == 0)
            Z3D_TRY(add_row(&z3d_paper_rows[i], hardware, out));
    return Z3D_OK;
}

#define FIGURES "fig2 fig3 fig4 fig6 fig7 fig8"

bool z3d_paper_has(const char *what) {
    return z3d_has_word("zero table1 table2 " FIGURES, what);
}

z3d_status z3d_paper_reproduce(const char *what, const z3d_hardware *hardware, z3d_points *out) {
    bool all = strcmp(what, "all") == 0 || strcmp(what, "zero") == 0;
    if (all || strcmp(what, "table1") == 0) Z3D_TRY(z3d_paper_table1(out));
    if (all || strcmp(what, "table2") == 0) Z3D_TRY(z3d_paper_table2(hardware, out));
    const char *figures = FIGURES;
    for (char figure[8]; z3d_next_word(&figures, figure, sizeof figure);)
        if (all || strcmp(what, figure) == 0) Z3D_TRY(figure_points(figure, hardware, out));
    return Z3D_OK;
}

/* ---- text ---- */

static void print_value(const z3d_point *point, double value, z3d_string *out) {
    if (isnan(value))
        z3d_string_append(out, " %12s", "(left out)");
    else if (strcmp(point->quantity, "fits") == 0)
        z3d_string_append(out, " %12s", value != 0 ? "fits" : "out of mem.");
    else if (strcmp(point->quantity, "max_params") == 0)
        z3d_string_append(out, " %11.1fB", value * 1e-9);
    else
        z3d_string_append(out, " %12.5g", value);
}

#define FORM "%-6s %-24s %-7s %5s  %-24s"

static void print_point(const z3d_point *point, z3d_string *out) {
    char gpus[16];
    snprintf(gpus, sizeof gpus, "%d", point->gpus);
    z3d_string_append(out, FORM, point->paper ? "" : point->figure, point->system, point->size,
                      gpus, point->quantity);
    print_value(point, point->published, out);
    print_value(point, point->ours, out);
    if (strcmp(point->quantity, "fits") == 0)
        z3d_string_append(out, " %9s", point->published == point->ours ? "agrees" : "DIFFERS");
    else if (!isnan(point->published))
        z3d_string_append(out, " %+8.1f%%", 100 * (point->ours / point->published - 1));
    else
        z3d_string_append(out, " %9s", "");
    if (!isnan(point->other) && strcmp(point->quantity, "tflops_per_gpu") == 0)
        z3d_string_append(out, "  %6.2f", point->other);
    else if (!isnan(point->other) && point->paper)
        z3d_string_append(out, "  %.4g zero3d's own", point->other);
    else if (!isnan(point->other))
        z3d_string_append(out, "  %.2fB by the formula", point->other * 1e-9);
    z3d_string_append(out, "%s\n", point->fitted ? "  fitted" : "");
}

/* Speeds of the ZeRO paper: all points, those for calibration, those for validation. */
typedef enum { ALL, FITTED, VALIDATION } choice;
static bool is_chosen(const z3d_point *point, const void *context) {
    const choice which = *(const choice *)context;
    return !point->paper && strcmp(point->quantity, "tflops_per_gpu") == 0 &&
           (which == ALL || point->fitted == (which == FITTED));
}

static z3d_status print_zero_errors(const z3d_points *points, z3d_string *out) {
    static const char *const names[] = {
        "all published points:", "points fitted on:", "points not fitted on:"};
    for (choice which = ALL; which <= VALIDATION; which++) {
        z3d_errors errors;
        Z3D_TRY(z3d_points_errors(points, is_chosen, &which, &errors));
        if (errors.count == 0) continue;
        z3d_string_append(
            out, "TFLOPS per GPU, %-25s %2d points: median error %.1f %%, worst %.1f %%\n",
            names[which], errors.count, 100 * errors.median, 100 * fabs(errors.worst));
    }
    z3d_string_append(out, "paper-2019 has %d fitted constants.\n", z3d_paper_constants());
    z3d_string_append(out, "TFLOPS count the recomputed forward: 96 B s l h^2 (1 + s/6h + V/16lh); "
                           "the last column does not count it: 72 B s l h^2 (1 + s/6h + V/12lh).\n"
                           "(left out): not in our list of published numbers. fitted: the "
                           "calibration used it.\n"
                           "The sim device predicted our numbers from the step programs that "
                           "training runs; nothing was measured on V100s.\n");
    return Z3D_OK;
}

static z3d_status print_paper_errors(const z3d_points *points, z3d_string *out) {
    for (int i = 0; i < points->count; i++) {
        const z3d_point *p = &points->point[i];
        z3d_errors errors;
        if (!p->paper || !z3d_points_begin_table(points, i)) continue;
        Z3D_TRY(z3d_points_errors(points, z3d_points_same_table, p, &errors));
        if (errors.count == 0) continue;
        z3d_string_append(out, "%-14s %-30s %2d points: median error %.1f %%, worst %+.1f %%\n",
                          p->paper, p->figure, errors.count, 100 * errors.median,
                          100 * errors.worst);
    }
    return Z3D_OK;
}

static void print_heading(const z3d_points *points, int index, z3d_string *out) {
    const z3d_point *p = &points->point[index];
    if (index > 0) z3d_string_append(out, "\n");
    if (p->paper) z3d_string_append(out, "%s, %s\n", p->title, p->figure);
    z3d_string_append(out, FORM " %12s %12s %9s  %s\n", p->paper ? "" : "figure", "system", "size",
                      "GPUs", "quantity", "published", "ours", "error",
                      p->paper ? "" : "by 72 B s l h^2");
}

z3d_status z3d_points_print(const z3d_points *points, z3d_string *out) {
    bool zero = false, others = false;
    for (int i = 0; i < points->count; i++) {
        if (z3d_points_begin_table(points, i)) print_heading(points, i, out);
        print_point(&points->point[i], out);
        zero |= !points->point[i].paper;
        others |= points->point[i].paper != NULL;
    }
    z3d_string_append(out, "\n");
    if (zero) Z3D_TRY(print_zero_errors(points, out));
    if (others) Z3D_TRY(print_paper_errors(points, out));
    return Z3D_OK;
}

/* ---- JSON ---- */

static void append_value(const z3d_point *point, const char *name, double value, z3d_string *out) {
    if (strcmp(point->quantity, "fits") == 0)
        z3d_string_append(out, ", \"%s\": %s", name, value != 0 ? "true" : "false");
    else
        z3d_string_append_member(out, name, value);
}

void z3d_points_json(const z3d_points *points, z3d_string *out) {
    z3d_string_append(out, "[");
    for (int i = 0; i < points->count; i++) {
        const z3d_point *p = &points->point[i];
        z3d_string_append(out, "%s\n{", i ? "," : "");
        z3d_string_append_member_text(out, "figure", p->figure);
        z3d_string_append_member_text(out, "system", p->system);
        z3d_string_append_member_text(out, "size", p->size);
        z3d_string_append_member(out, "gpus", p->gpus);
        z3d_string_append_member_text(out, "quantity", p->quantity);
        append_value(p, "published", p->published, out);
        append_value(p, "ours", p->ours, out);
        z3d_string_append_member_text(out, "paper", p->paper ? p->paper : "zero");
        z3d_string_append(out, "}");
    }
    z3d_string_append(out, "\n]\n");
}
