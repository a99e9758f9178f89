/* The paper's figures redrawn as one self-contained HTML page: bars are ours, rings are published.
 * Every number also stands in a table below its figure. */
#include <math.h>
#include <string.h>

#include "src/base/page.h"
#include "src/plan/paper/paper.h"

static const struct figure {
    const char *name, *quantity, *title, *unit;
    double scale; /* of the drawn values */
} figures[] = {
    {"fig2", "tflops_per_gpu", "Figure 2: ZeRO-100B against Megatron, up to 400 GPUs",
     "TFLOPS a GPU", 1},
    {"fig3", "tflops_per_gpu", "Figure 3: a model of 60B on 64 to 400 GPUs, super-linear",
     "PFLOPS in all", 1},
    {"fig4", "tflops_per_gpu", "Figure 4: data parallelism only, 128 GPUs", "TFLOPS a GPU", 1},
    {"fig6", "max_params", "Figure 6: largest model by configuration", "10<sup>9</sup> parameters",
     1e-9},
    {"fig7", "gb", "Figure 7: memory cached at most", "GB", 1},
    {"fig8", "tflops_per_gpu", "Figure 8: speed by configuration (170B: only C5 fits)",
     "TFLOPS a GPU", 1},
};

static bool belongs(const z3d_point *point, const struct figure *figure) {
    return !point->paper && strcmp(point->figure, figure->name) == 0 &&
           strcmp(point->quantity, figure->quantity) == 0;
}

static const struct {
    const char *system, *shown;
    int colour;
} systems[] = {{"zero", "ZeRO", 0},       {"megatron", "Megatron", 1},
               {"ddp", "PyTorch DDP", 8}, {"C1", "C1", 5},
               {"C2", "C2", 0},           {"C3", "C3", 2},
               {"C4", "C4", 4},           {"C5", "C5", 6}};

static int system_of(const char *name) {
    for (int i = 0; i < (int)(sizeof systems / sizeof *systems); i++)
        if (strcmp(systems[i].system, name) == 0) return i;
    return 0;
}

/* ---- bars, grouped by size ---- */

static double highest(const z3d_points *points, const struct figure *figure) {
    double top = 0;
    for (int i = 0; i < points->count; i++)
        if (belongs(&points->point[i], figure))
            top =
                fmax(top, figure->scale * fmax(points->point[i].ours, points->point[i].published));
    return 1.03 * top; /* a ring at the end must be inside */
}

static void bar(const z3d_point *p, const struct figure *figure, double top, z3d_string *out) {
    int system = system_of(p->system);
    z3d_string_append(out,
                      "<span>%s <small>%d GPUs</small></span><span class=\"track\"><span "
                      "class=\"fill %s\" style=\"width:%.2f%%\"></span>",
                      systems[system].shown, p->gpus, z3d_page_colour(systems[system].colour),
                      100 * figure->scale * p->ours / top);
    if (!isnan(p->published))
        z3d_string_append(out, "<span class=\"ring\" style=\"left:%.2f%%\"></span>",
                          100 * figure->scale * p->published / top);
    z3d_string_append(out, "</span><span>%.3g ", figure->scale * p->ours);
    if (isnan(p->published))
        z3d_string_append(out, "<small>published: left out</small></span>\n");
    else
        z3d_string_append(out, "<small>published %.3g, %+.0f %%</small></span>\n",
                          figure->scale * p->published,
                          round(100 * (p->ours / p->published - 1)) + 0.0); /* no "-0" */
}

static bool is_first_of_size(const z3d_points *points, const struct figure *figure, int at) {
    for (int i = 0; i < at; i++)
        if (belongs(&points->point[i], figure) &&
            strcmp(points->point[i].size, points->point[at].size) == 0)
            return false;
    return true;
}

static void draw_bars(const z3d_points *points, const struct figure *figure, z3d_string *out) {
    double top = highest(points, figure);
    if (top <= 0) return;
    z3d_string_append(out, "<p class=\"note\">%s</p>\n<div class=\"bars\">\n", figure->unit);
    for (int i = 0; i < points->count; i++) {
        const z3d_point *p = &points->point[i];
        if (!belongs(p, figure) || !is_first_of_size(points, figure, i)) continue;
        z3d_string_append(out, "<b>%s</b>\n", p->size);
        for (int k = i; k < points->count; k++)
            if (belongs(&points->point[k], figure) && strcmp(points->point[k].size, p->size) == 0)
                bar(&points->point[k], figure, top, out);
    }
    z3d_string_append(out, "</div>\n");
}

/* ---- figure 3: all GPUs together, and a straight line from the first point ---- */

static void draw_scaling(const z3d_points *points, const struct figure *figure, z3d_string *out) {
    enum { MOST = 32 };
    double gpus[MOST], ours[MOST], published[MOST], straight[MOST];
    int count = 0;
    for (int i = 0; i < points->count && count < MOST; i++) {
        const z3d_point *p = &points->point[i];
        if (!belongs(p, figure)) continue;
        gpus[count] = p->gpus;
        ours[count] = 1e-3 * p->gpus * p->ours;
        published[count] = 1e-3 * p->gpus * p->published;
        straight[count] = ours[0] / gpus[0] * gpus[count];
        count++;
    }
    const z3d_curve curves[] = {
        {Z3D_PAGE_TEXT, 0, Z3D_CURVE_DASHED, count, gpus, straight},
        {0, 0, Z3D_CURVE_LINE, count, gpus, ours},
        {0, 0, Z3D_CURVE_POINTS, count, gpus, ours},
        {Z3D_PAGE_TEXT, 0, Z3D_CURVE_POINTS, count, gpus, published},
    };
    const z3d_chart chart = {.title = "60B",
                             .unit = "PFLOPS over GPUs; dashed: linear from the first; points: "
                                     "ours, and published",
                             .x_name = "GPUs",
                             .from_zero = true,
                             .curves = sizeof curves / sizeof *curves,
                             .curve = curves};
    z3d_page_chart(out, &chart);
}

/* ---- tables ---- */

static void cell(const z3d_point *p, double value, z3d_string *out) {
    if (isnan(value))
        z3d_string_append(out, "<td>left out</td>");
    else if (strcmp(p->quantity, "fits") == 0)
        z3d_string_append(out, "<td>%s</td>", value != 0 ? "fits" : "out of memory");
    else if (strcmp(p->quantity, "max_params") == 0)
        z3d_string_append(out, "<td>%.1f B</td>", value * 1e-9);
    else
        z3d_string_append(out, "<td>%.5g</td>", value);
}

static void row(const z3d_point *p, z3d_string *out) {
    z3d_string_append(out, "<tr><td>");
    z3d_page_text(out, p->system);
    z3d_string_append(out, "</td><td>");
    z3d_page_text(out, p->size);
    z3d_string_append(out, "</td><td>%d</td><td>%s</td>", p->gpus, p->quantity);
    cell(p, p->published, out);
    cell(p, p->ours, out);
    if (isnan(p->published) || strcmp(p->quantity, "fits") == 0)
        z3d_string_append(out, "<td>%s</td>",
                          p->published == p->ours ? "as published"
                          : isnan(p->published)   ? ""
                                                  : "differs");
    else
        z3d_string_append(out, "<td>%+.1f %%</td>", 100 * (p->ours / p->published - 1));
    z3d_string_append(out, "<td>%s</td></tr>\n", p->fitted ? "fitted" : "");
}

/* Whether a point is a row of a figure: of those exactly as published, or of the others. */
static bool is_row(const z3d_point *point, const z3d_point *of, bool exact) {
    return z3d_points_same_table(point, of) && (point->published == point->ours) == exact;
}

static int count_rows(const z3d_points *points, const z3d_point *of, bool exact) {
    int count = 0;
    for (int i = 0; i < points->count; i++) count += is_row(&points->point[i], of, exact);
    return count;
}

static void rows(const z3d_points *points, const z3d_point *of, bool exact, z3d_string *out) {
    z3d_string_append(out, "<div class=\"wide\"><table>\n<tr><th>system</th><th>size</th>"
                           "<th>GPUs</th><th>quantity</th><th>published</th><th>ours</th>"
                           "<th>error</th><th></th></tr>\n");
    for (int i = 0; i < points->count; i++)
        if (is_row(&points->point[i], of, exact)) row(&points->point[i], out);
    z3d_string_append(out, "</table></div>\n");
}

/* Rows that are exactly as published are folded; a figure's others, too: bars show them. */
static void table(const z3d_points *points, const z3d_point *of, bool drawn, z3d_string *out) {
    int exact = count_rows(points, of, true), others = count_rows(points, of, false);
    if (others && drawn) z3d_string_append(out, "<details><summary>%d numbers</summary>\n", others);
    if (others) rows(points, of, false, out);
    if (others && drawn) z3d_string_append(out, "</details>\n");
    if (exact) {
        z3d_string_append(out, "<details><summary>%d number%s exactly as published</summary>\n",
                          exact, z3d_plural(exact));
        rows(points, of, true, out);
        z3d_string_append(out, "</details>\n");
    }
}

/* ---- the page ---- */

static const char style[] =
    "body{max-width:900px}.bars{display:grid;grid-template-columns:max-content 1fr max-content;"
    "gap:.1rem .6rem;align-items:center;font-size:13px}.bars b{grid-column:1/-1;margin-top:.4rem}"
    ".track{position:relative;height:1rem;background:var(--card)}"
    ".fill{position:absolute;height:100%;background:var(--c)}"
    ".ring{position:absolute;top:.15rem;width:.5rem;height:.5rem;margin-left:-.35rem;"
    "border:2px solid var(--fg);border-radius:50%;background:var(--bg)}"
    "dl{display:grid;grid-template-columns:auto 1fr;gap:.1rem .8rem}dt{font-weight:600}dd{margin:0}"
    "@media(max-width:600px){.bars small{display:block;line-height:1.1}}";

/* The configurations of figures 6 to 8 (the paper's table 3). */
static const char configurations[] =
    "<h2>C1 to C5</h2>\n<dl>\n"
    "<dt>C1</dt><dd>Each data rank keeps a part of the optimizer states (P_os: ZeRO stage "
    "1).</dd>\n"
    "<dt>C2</dt><dd>C1, and each tensor rank keeps a part of the activation checkpoints "
    "(P_a).</dd>\n"
    "<dt>C3</dt><dd>C1, and each data rank keeps a part of the gradients (P_os+g: stage 2).</dd>\n"
    "<dt>C4</dt><dd>C3 with the activation checkpoints of C2 (P_os+g, P_a).</dd>\n"
    "<dt>C5</dt><dd>C4, with its activation checkpoints in host memory (P_a+cpu).</dd>\n"
    "</dl>\n<p class=\"note\">All five have buffers of constant size and memory without fragments "
    "(CB, MD).</p>\n";

static void append_tables(const z3d_points *points, z3d_string *out) {
    static const char *const tables[] = {"table1", "table2"};
    static const char *const titles[] = {"Table 1: GB of model states a device",
                                         "Table 2: largest model, by formula and as it fits here"};
    for (int t = 0; t < 2; t++) {
        const z3d_point of = {.figure = tables[t]};
        if (!count_rows(points, &of, true) && !count_rows(points, &of, false)) continue;
        z3d_string_append(out,
                          "<h2>%s</h2>\n<p class=\"note\">base: plain data parallelism; os, os+g, "
                          "os+g+p: ZeRO stages 1, 2, 3.</p>\n",
                          titles[t]);
        table(points, &of, false, out);
    }
}

static void append_figures(const z3d_points *points, z3d_string *out) {
    bool explained = false;
    for (size_t f = 0; f < sizeof figures / sizeof *figures; f++) {
        const struct figure *figure = &figures[f];
        const z3d_point of = {.figure = figure->name};
        if (!count_rows(points, &of, true) && !count_rows(points, &of, false)) continue;
        if (strcmp(figure->name, "fig6") >= 0 && !explained)
            z3d_string_append(out, "%s", configurations);
        explained = explained || strcmp(figure->name, "fig6") >= 0;
        z3d_string_append(out, "<h2>%s</h2>\n", figure->title);
        if (strcmp(figure->name, "fig3") == 0)
            draw_scaling(points, figure, out);
        else
            draw_bars(points, figure, out);
        table(points, &of, true, out);
    }
}

static z3d_status append_papers(const z3d_points *points, z3d_string *out) {
    for (int i = 0; i < points->count; i++) {
        const z3d_point *p = &points->point[i];
        z3d_errors errors;
        if (!p->paper || !z3d_points_begin_table(points, i)) continue;
        z3d_string_append(out, "<h2>");
        z3d_page_text(out, p->title);
        z3d_string_append(out, ": ");
        z3d_page_text(out, p->figure);
        z3d_string_append(out, "</h2>\n");
        Z3D_TRY(z3d_points_errors(points, z3d_points_same_table, p, &errors));
        if (errors.count > 0)
            z3d_string_append(out, "<p class=\"note\">Median error %.0f %%, worst %+.0f %%.</p>\n",
                              100 * errors.median, 100 * errors.worst);
        table(points, p, false, out);
    }
    return Z3D_OK;
}

z3d_status z3d_points_page(const z3d_points *points, const z3d_hardware *hardware,
                           z3d_string *out) {
    const bool zero = points->count > 0 && !points->point[0].paper;
    z3d_page_open(out, "Published and ours", style);
    z3d_string_append(out, "<h1>%s, published and ours</h1>\n<p class=\"note\">",
                      zero ? "The ZeRO paper's figures" : "Papers");
    if (zero) {
        z3d_string_append(out, "arXiv 1910.02054. Bars: ours, predicted by the sim device from the "
                               "step programs that training runs, on ");
        z3d_page_text(out, hardware->name);
        z3d_string_append(out,
                          ". Rings: published; left out: not in our list of published numbers. ");
    }
    z3d_string_append(out, "TFLOPS count the recomputed forward: 96 B s l "
                           "h<sup>2</sup> (1 + s/6h + V/16lh).</p>\n");
    append_figures(points, out);
    append_tables(points, out);
    Z3D_TRY(append_papers(points, out));
    z3d_page_close(out);
    return Z3D_OK;
}
