/* Published numbers and ours, side by side: the points of every figure, as text and as JSON. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/plan/paper/paper.h"

/* ---- figures ---- */

static z3d_status add_row(int index, const z3d_hardware *hardware, z3d_points *out) {
    const z3d_paper_row *row = &z3d_paper_rows[index];
    z3d_case *of;
    z3d_estimate e;
    Z3D_TRY(z3d_paper_case(row, 0, &of));
    z3d_status status = z3d_paper_estimate(row, of, hardware, &e);
    z3d_case_destroy(of);
    Z3D_TRY(status);
    z3d_point point = {.figure = row->figure,
                       .system = row->system,
                       .gpus = row->gpus,
                       .other = NAN,
                       .fitted = row->shows & PAPER_FITTED,
                       .row = index};
    snprintf(point.size, sizeof point.size, "%s", row->size);
    if (row->shows & PAPER_SPEED) {
        point.quantity = "tflops_per_gpu";
        point.published = row->speed;
        point.ours = e.tflops_96;
        point.other = e.tflops_72;
        Z3D_TRY(z3d_points_add(out, &point));
    }
    point.other = NAN;
    if (row->shows & PAPER_MEMORY) {
        point.quantity = "gb";
        point.published = row->memory;
        point.ours = ((double)e.memory.arena + e.memory.overhead) * 1e-9;
        Z3D_TRY(z3d_points_add(out, &point));
    }
    point.fitted = false;
    if (row->shows & PAPER_FITS) {
        point.quantity = "fits";
        point.published = row->fits;
        point.ours = e.memory.fits;
        Z3D_TRY(z3d_points_add(out, &point));
    }
    if (row->shows & PAPER_LARGEST) {
        int layers;
        point.quantity = "max_params";
        point.published = row->largest;
        Z3D_TRY(z3d_paper_largest(row, hardware, &layers, &point.ours));
        Z3D_TRY(z3d_points_add(out, &point));
    }
    return Z3D_OK;
}

z3d_status z3d_paper_figure(const char *figure, const z3d_hardware *hardware, z3d_points *out) {
    for (int i = 0; i < z3d_paper_row_count; i++)
        if (strcmp(z3d_paper_rows[i].figure, figure) == 0) Z3D_TRY(add_row(i, hardware, out));
    return Z3D_OK;
}

static const char *const figures[] = {"fig2", "fig3", "fig4", "fig6", "fig7", "fig8"};

z3d_status z3d_paper_check_name(const char *what) {
    static const char *const others[] = {"all", "table1", "table2"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(what, others[i]) == 0) return Z3D_OK;
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++)
        if (strcmp(what, figures[i]) == 0) return Z3D_OK;
    return Z3D_ERROR(
        Z3D_ERR_USAGE,
        "cannot reproduce '%.40s'; use table1, table2, fig2, fig3, fig4, fig6, fig7, fig8 or all",
        what);
}

z3d_status z3d_paper_reproduce(const char *what, const z3d_hardware *hardware, z3d_points *out) {
    bool all = strcmp(what, "all") == 0;
    Z3D_TRY(z3d_paper_check_name(what));
    if (all || strcmp(what, "table1") == 0) Z3D_TRY(z3d_paper_table1(out));
    if (all || strcmp(what, "table2") == 0) Z3D_TRY(z3d_paper_table2(hardware, out));
    for (size_t f = 0; f < sizeof figures / sizeof *figures; f++) {
        if (!all && strcmp(what, figures[f]) != 0) continue;
        Z3D_TRY(z3d_paper_figure(figures[f], hardware, out));
    }
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

static void print_point(const z3d_point *point, z3d_string *out) {
    z3d_string_append(out, "%-7s %-14s %-7s %5d  %-15s", point->figure, point->system, point->size,
                      point->gpus, point->quantity);
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
    else if (!isnan(point->other))
        z3d_string_append(out, "  %.2fB by the formula", point->other * 1e-9);
    z3d_string_append(out, "%s\n", point->fitted ? "  fitted" : "");
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Median and worst of the errors of speeds: of all points, of those the calibration fitted, of
 * those it never saw. */
typedef enum { ALL, FITTED, VALIDATION } choice;
static void print_errors(const z3d_points *points, choice which, z3d_string *out) {
    static const char *const names[] = {
        "all published points:", "points fitted on:", "points not fitted on:"};
    double *error;
    int count = 0;
    if (z3d_new((size_t)points->count + 1, sizeof *error, "errors", &error) != Z3D_OK) return;
    for (int i = 0; i < points->count; i++) {
        const z3d_point *p = &points->point[i];
        if (strcmp(p->quantity, "tflops_per_gpu") != 0 || isnan(p->published)) continue;
        if (which != ALL && p->fitted != (which == FITTED)) continue;
        error[count++] = fabs(p->ours / p->published - 1);
    }
    if (count > 0) {
        qsort(error, (size_t)count, sizeof *error, by_size);
        z3d_string_append(out,
                          "TFLOPS per GPU, %-25s %2d points: median error %.1f %%, worst %.1f %%\n",
                          names[which], count, 100 * error[count / 2], 100 * error[count - 1]);
    }
    free(error);
}

void z3d_points_print(const z3d_points *points, z3d_string *out) {
    const char *figure = "";
    for (int i = 0; i < points->count; i++) {
        const z3d_point *point = &points->point[i];
        if (strcmp(figure, point->figure) != 0) {
            figure = point->figure;
            z3d_string_append(out, "%s%-7s %-14s %-7s %5s  %-15s %12s %12s %9s  %s\n",
                              i > 0 ? "\n" : "", "figure", "system", "size", "GPUs", "quantity",
                              "published", "ours", "error", "by 72 B s l h^2");
        }
        print_point(point, out);
    }
    z3d_string_append(out, "\n");
    for (choice which = ALL; which <= VALIDATION; which++) print_errors(points, which, out);
    z3d_string_append(out, "paper-2019 has %d fitted constants.\n", z3d_paper_constants());
    z3d_string_append(out, "TFLOPS count the recomputed forward: 96 B s l h^2 (1 + s/6h + V/16lh); "
                           "the last column does not: 72 B s l h^2 (1 + s/6h + V/12lh).\n"
                           "(left out): not in our list of published numbers. fitted: the "
                           "calibration used it.\n"
                           "The sim device predicted our numbers from the step programs that "
                           "training runs; nothing was measured on V100s.\n");
}

/* ---- JSON ---- */

static void append_value(const char *quantity, double value, z3d_string *out) {
    if (strcmp(quantity, "fits") == 0)
        z3d_string_append(out, "%s", value != 0 ? "true" : "false");
    else
        z3d_string_append_number(out, value);
}

void z3d_points_json(const z3d_points *points, z3d_string *out) {
    z3d_string_append(out, "[");
    for (int i = 0; i < points->count; i++) {
        const z3d_point *p = &points->point[i];
        z3d_string_append(
            out,
            "%s\n{\"figure\": \"%s\", \"system\": \"%s\", \"size\": \"%s\", \"gpus\": "
            "%d, \"quantity\": \"%s\", \"published\": ",
            i ? "," : "", p->figure, p->system, p->size, p->gpus, p->quantity);
        append_value(p->quantity, p->published, out);
        z3d_string_append(out, ", \"ours\": ");
        append_value(p->quantity, p->ours, out);
        z3d_string_append(out, "}");
    }
    z3d_string_append(out, "\n]\n");
}
