/* Published numbers and ours as tables for docs. */
#include <math.h>
#include <string.h>

#include "src/plan/paper/paper.h"

static void value(const z3d_point *p, double number, z3d_string *out) {
    if (isnan(number))
        z3d_string_append(out, " left out |");
    else if (strcmp(p->quantity, "fits") == 0)
        z3d_string_append(out, " %s |", number != 0 ? "yes" : "no");
    else if (strcmp(p->quantity, "max_params") == 0)
        z3d_string_append(out, " %.1f B |", number * 1e-9);
    else
        z3d_string_append(out, fabs(number) >= 1000 ? " %.0f |" : " %.4g |", number);
}

static void error(const z3d_point *p, z3d_string *out) {
    double percent = round(100 * (p->ours / p->published - 1));
    if (isnan(p->published))
        z3d_string_append(out, " |\n");
    else if (strcmp(p->quantity, "fits") == 0)
        z3d_string_append(out, " %s |\n", p->published == p->ours ? "as published" : "**differs**");
    else if (percent == 0)
        z3d_string_append(out, " 0 %% |\n");
    else
        z3d_string_append(out, " %+.0f %% |\n", percent);
}

static z3d_status begin(const z3d_points *points, int index, z3d_string *out) {
    const z3d_point *p = &points->point[index], *before = index > 0 ? p - 1 : NULL;
    const char *title = p->paper ? p->title : "The ZeRO paper";
    z3d_errors errors;
    if (!before || strcmp(title, before->paper ? before->title : "The ZeRO paper") != 0)
        z3d_string_append(out, "%s## %s\n", before ? "\n" : "", title);
    Z3D_TRY(z3d_points_errors(points, z3d_points_same_table, p, &errors));
    z3d_string_append(out, "\n%s", p->figure);
    if (errors.count > 0)
        z3d_string_append(out, ": median error %.0f %%, worst %+.0f %%", 100 * errors.median,
                          100 * errors.worst);
    z3d_string_append(out, "\n\n| run | size | GPUs | quantity | published | predicted | error |\n"
                           "|-|-|-|-|-|-|-|\n");
    return Z3D_OK;
}

z3d_status z3d_points_markdown(const z3d_points *points, z3d_string *out) {
    z3d_string_append(
        out,
        "# Published numbers and ours\n\n"
        "Written by `zero3d reproduce papers --markdown`. The sim device predicted our numbers "
        "from the step\nprograms that training runs; nothing was measured. Rows, assumptions "
        "and sources are files of\n`configs/published`; [reproducing the "
        "papers](../reproducing-the-paper.md#other-papers) explains\nthem, and [where the "
        "clock must not be trusted](clock-published.md#where-the-clock-must-not-be-trusted)\n"
        "what is wrong. In brackets: memory of zero3d's own program, without what only the "
        "published software\nkeeps.\n\n");
    for (int i = 0; i < points->count; i++) {
        const z3d_point *p = &points->point[i];
        if (z3d_points_begin_table(points, i)) Z3D_TRY(begin(points, i, out));
        z3d_string_append(out, "| %s | %s | %d | `%s` |", p->system, p->size, p->gpus, p->quantity);
        value(p, p->published, out);
        value(p, p->ours, out);
        if (p->paper && !isnan(p->other)) {
            out->length -= 2; /* go on in the same cell */
            z3d_string_append(out, " (%.4g) |", p->other);
        }
        error(p, out);
    }
    return Z3D_OK;
}
