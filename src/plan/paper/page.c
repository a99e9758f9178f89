/* The paper's figures redrawn as one self-contained HTML page: bars are ours, rings are published.
 * Every number also stands in a table below its figure. */
#include <math.h>
#include <string.h>

#include "src/plan/paper/paper.h"

enum { WIDTH = 960, HEIGHT = 300, LEFT = 52, RIGHT = 12, TOP = 28, BOTTOM = 56 };

static const struct figure {
    const char *name, *quantity, *title, *unit;
    double scale; /* of the values as drawn */
} figures[] = {
    {"fig2", "tflops_per_gpu", "Figure 2: ZeRO-100B against Megatron, up to 400 GPUs",
     "TFLOPS a GPU", 1},
    {"fig3", "tflops_per_gpu", "Figure 3: a model of 60B on 64 to 400 GPUs, super-linear",
     "PFLOPS in all", 1},
    {"fig4", "tflops_per_gpu", "Figure 4: data parallelism only, 128 GPUs", "TFLOPS a GPU", 1},
    {"fig6", "max_params", "Figure 6: largest model by configuration", "10^9 parameters", 1e-9},
    {"fig7", "gb", "Figure 7: memory cached at most", "GB", 1},
    {"fig8", "tflops_per_gpu", "Figure 8: speed by configuration (170B: only C5 fits)",
     "TFLOPS a GPU", 1},
};

static bool belongs(const z3d_point *point, const struct figure *figure) {
    return strcmp(point->figure, figure->name) == 0 &&
           strcmp(point->quantity, figure->quantity) == 0;
}

/* The first step of 1, 2, 5 x 10^n that gives at most six lines. */
static double grid_step(double top) {
    double step = pow(10, floor(log10(top > 0 ? top : 1)) - 1);
    static const double next[] = {2, 2.5, 2};
    for (int i = 0; top / step > 6; i++) step *= next[i % 3];
    return step;
}

static double height_of(double value, double top) {
    return (HEIGHT - TOP - BOTTOM) * value / top;
}

static void open_chart(const char *title, const char *unit, double top, z3d_string *out) {
    double step = grid_step(top), base = HEIGHT - BOTTOM;
    z3d_string_append(out, "<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"%s\">\n", WIDTH,
                      HEIGHT, title);
    for (int i = 0; i * step <= top * 1.0001; i++) {
        double value = i * step, y = base - height_of(value, top);
        z3d_string_append(out,
                          "<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>"
                          "<text class=\"tick\" x=\"%d\" y=\"%.1f\">%g</text>\n",
                          LEFT, WIDTH - RIGHT, y, y, LEFT - 6, y + 4, value);
    }
    z3d_string_append(out, "<text class=\"unit\" x=\"4\" y=\"11\">%s</text>\n", unit);
}

static void ring(double x, double y, z3d_string *out) {
    z3d_string_append(out, "<circle class=\"published\" cx=\"%.1f\" cy=\"%.1f\" r=\"5\"/>\n", x, y);
}

static const char *class_of(const char *system) {
    static const char *const names[] = {"zero", "megatron", "ddp", "C1", "C2", "C3", "C4", "C5"};
    static const char *const classes[] = {"s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7"};
    for (int i = 0; i < 8; i++)
        if (strcmp(names[i], system) == 0) return classes[i];
    return "s0";
}

/* ---- bars ---- */

static void bar(const z3d_point *p, const struct figure *figure, double x, double width, double top,
                z3d_string *out) {
    double base = HEIGHT - BOTTOM, tall = height_of(p->ours * figure->scale, top);
    z3d_string_append(out,
                      "<rect class=\"%s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>"
                      "<text class=\"value\" x=\"%.1f\" y=\"%.1f\">%.3g</text>\n",
                      class_of(p->system), x, base - tall, width, tall, x + width / 2, base + 13,
                      p->ours * figure->scale);
    z3d_string_append(out,
                      "<text class=\"name\" x=\"%.1f\" y=\"%.1f\">%s</text>"
                      "<text class=\"name\" x=\"%.1f\" y=\"%.1f\">%s</text>\n",
                      x + width / 2, base + 28, p->size, x + width / 2, base + 42, p->system);
    if (!isnan(p->published))
        ring(x + width / 2, base - height_of(p->published * figure->scale, top), out);
}

static void draw_bars(const z3d_points *points, const struct figure *figure, z3d_string *out) {
    int count = 0, place = 0;
    double top = 0;
    for (int i = 0; i < points->count; i++) {
        const z3d_point *p = &points->point[i];
        if (!belongs(p, figure)) continue;
        count++;
        top =
            fmax(top, 1.08 * figure->scale * fmax(p->ours, isnan(p->published) ? 0 : p->published));
    }
    if (count == 0 || top <= 0) return;
    open_chart(figure->title, figure->unit, top, out);
    double room = (double)(WIDTH - LEFT - RIGHT) / count;
    for (int i = 0; i < points->count; i++)
        if (belongs(&points->point[i], figure))
            bar(&points->point[i], figure, LEFT + room * place++ + 0.15 * room, 0.7 * room, top,
                out);
    z3d_string_append(out, "</svg>\n");
}

/* ---- figure 3: all GPUs together, against a straight line from the first point ---- */

static void draw_scaling(const z3d_points *points, const struct figure *figure, z3d_string *out) {
    double base = HEIGHT - BOTTOM, first = 0, top = 0, most = 0;
    z3d_string line = {0};
    for (int i = 0; i < points->count; i++) {
        const z3d_point *p = &points->point[i];
        if (!belongs(p, figure)) continue;
        if (first == 0) first = p->ours;
        most = fmax(most, p->gpus);
        top = fmax(top, 1.1e-3 * p->gpus * p->ours);
    }
    if (most <= 0 || top <= 0) return;
    double per_gpu = (WIDTH - LEFT - RIGHT - 60) / most;
    open_chart(figure->title, figure->unit, top, out);
    z3d_string_append(
        out, "<line class=\"linear\" x1=\"%d\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n", LEFT, base,
        LEFT + per_gpu * most, base - height_of(1e-3 * first * most, top));
    for (int i = 0; i < points->count; i++) {
        const z3d_point *p = &points->point[i];
        if (!belongs(p, figure)) continue;
        double x = LEFT + per_gpu * p->gpus, y = base - height_of(1e-3 * p->ours * p->gpus, top);
        z3d_string_append(&line, "%.1f,%.1f ", x, y);
        z3d_string_append(out,
                          "<rect class=\"s0\" x=\"%.1f\" y=\"%.1f\" width=\"8\" height=\"8\"/>"
                          "<text class=\"value\" x=\"%.1f\" y=\"%.1f\">%.3g (%.1f a GPU)</text>"
                          "<text class=\"name\" x=\"%.1f\" y=\"%.1f\">%d GPUs</text>\n",
                          x - 4, y - 4, x - 62, y - 4, 1e-3 * p->ours * p->gpus, p->ours, x,
                          base + 16, p->gpus);
        if (!isnan(p->published))
            ring(x, base - height_of(1e-3 * p->published * p->gpus, top), out);
    }
    z3d_string_append(out, "<polyline class=\"path\" points=\"%s\"/>\n</svg>\n",
                      line.text ? line.text : "");
    out->failed |= line.failed;
    z3d_string_free(&line);
}

/* ---- tables ---- */

static void cell(const z3d_point *p, double value, z3d_string *out) {
    if (isnan(value))
        z3d_string_append(out, "<td class=\"left\">left out</td>");
    else if (strcmp(p->quantity, "fits") == 0)
        z3d_string_append(out, "<td>%s</td>", value != 0 ? "fits" : "out of memory");
    else if (strcmp(p->quantity, "max_params") == 0)
        z3d_string_append(out, "<td>%.1f B</td>", value * 1e-9);
    else
        z3d_string_append(out, "<td>%.5g</td>", value);
}

static void table(const z3d_points *points, const char *figure, z3d_string *out) {
    z3d_string_append(out,
                      "<details><summary>All numbers</summary><table><tr><th>system<th>size<th>"
                      "GPUs<th>quantity<th>published<th>ours<th>error<th></tr>\n");
    for (int i = 0; i < points->count; i++) {
        const z3d_point *p = &points->point[i];
        if (strcmp(p->figure, figure) != 0) continue;
        z3d_string_append(out, "<tr><td>%s</td><td>%s</td><td>%d</td><td>%s</td>", p->system,
                          p->size, p->gpus, p->quantity);
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
    z3d_string_append(out, "</table></details>\n");
}

static bool has(const z3d_points *points, const char *figure) {
    for (int i = 0; i < points->count; i++)
        if (strcmp(points->point[i].figure, figure) == 0) return true;
    return false;
}

/* A text of the user's within HTML. */
static void append_escaped(const char *text, z3d_string *out) {
    for (; *text; text++)
        if (*text == '<' || *text == '>' || *text == '&' || *text == '"')
            z3d_string_append(out, "&#%d;", *text);
        else
            z3d_string_append_bytes(out, text, 1);
}

static const char style[] =
    "body{font:15px/1.5 system-ui,sans-serif;max-width:1000px;margin:2rem auto;padding:0 1rem;"
    "color:#1b1f24;background:#fff}h1{font-size:1.5rem}h2{font-size:1.1rem;margin:2rem 0 .3rem}"
    "svg{width:100%;height:auto}.grid{stroke:#d9dde2}.tick{text-anchor:end}.unit,.tick,.value,.name"
    "{font-size:11px;fill:#57606a}.name{font-size:9.5px!important}.value,.name{text-anchor:middle}."
    "value{fill:#1b1f24}"
    ".published{fill:#fff;stroke:#1b1f24;stroke-width:2}.linear{stroke:#8c959f;stroke-dasharray:5 "
    "4}"
    ".path{fill:none;stroke:#0b6bcb;stroke-width:2}.s0{fill:#0b6bcb}.s1{fill:#d1690e}"
    ".s2{fill:#7a869a}.s3{fill:#9bb8d9}.s4{fill:#6f9fd0}.s5{fill:#4a86c5}.s6{fill:#0b6bcb}"
    ".s7{fill:#084f96}table{border-collapse:collapse;font-size:13px}td,th{padding:.15rem .7rem;"
    "text-align:right;border-bottom:1px solid "
    "#e4e7eb}td:first-child,th:first-child{text-align:left}"
    ".left{color:#8c959f}.note{color:#57606a}"
    "@media(prefers-color-scheme:dark){body{background:#14171a;color:#e6e8ea}.value{fill:#e6e8ea}"
    ".grid{stroke:#31363c}.published{fill:#14171a;stroke:#e6e8ea}.unit,.tick,.name,.note{fill:#"
    "9aa4ae;"
    "color:#9aa4ae}td,th{border-color:#31363c}}";

void z3d_points_page(const z3d_points *points, const z3d_hardware *hardware, z3d_string *out) {
    z3d_string_append(out,
                      "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta "
                      "name=\"viewport\" content=\"width=device-width\"><title>ZeRO, published and "
                      "ours</title><style>%s</style>\n<h1>The ZeRO paper's figures, published and "
                      "ours</h1>\n",
                      style);
    z3d_string_append(out, "<p class=\"note\">arXiv 1910.02054. Bars: ours, predicted by the sim "
                           "device from the step programs that training runs, on ");
    append_escaped(hardware->name, out);
    z3d_string_append(out, ". Rings: published. TFLOPS count the recomputed forward: 96 B s l "
                           "h<sup>2</sup> (1 + s/6h + V/16lh).</p>\n");
    for (size_t f = 0; f < sizeof figures / sizeof *figures; f++) {
        if (!has(points, figures[f].name)) continue;
        z3d_string_append(out, "<h2>%s</h2>\n", figures[f].title);
        if (strcmp(figures[f].name, "fig3") == 0)
            draw_scaling(points, &figures[f], out);
        else
            draw_bars(points, &figures[f], out);
        table(points, figures[f].name, out);
    }
    static const char *const tables[] = {"table1", "table2"};
    static const char *const titles[] = {"Table 1: GB of model states a device",
                                         "Table 2: largest model, by formula and as it fits here"};
    for (int t = 0; t < 2; t++) {
        if (!has(points, tables[t])) continue;
        z3d_string_append(out, "<h2>%s</h2>\n", titles[t]);
        table(points, tables[t], out);
    }
    z3d_string_append(out, "</html>\n");
}
