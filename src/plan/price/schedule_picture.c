/* The played timeline as an SVG picture: a row for each pipeline stage, time from left to right. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "src/plan/price/estimate.h"

/* In pixels. */
enum { WIDTH = 1280, LEFT = 64, RIGHT = 24, TOP = 108, PLOT = WIDTH - LEFT - RIGHT, SHADES = 4 };
static const double least = 0.25; /* narrower waits are left out, but counted */

enum work { FORWARD, BACKWARD, WEIGHT, OTHER, WORKS };
static const struct {
    const char *name, *shade[SHADES]; /* of a micro-batch: its number mod SHADES */
} works[WORKS] = {
    {"forward", {"#0072b2", "#3a93c7", "#74b3da", "#a9d2ec"}},
    {"backward, or its input half (with recompute)", {"#c25a00", "#d9782a", "#e89a5a", "#f3bd8d"}},
    {"weight half of backward", {"#00704f", "#2f9175", "#66b19b", "#9fd2c3"}},
    {"optimizer", {"#666666", "#666666", "#666666", "#666666"}},
};
static const char wait_colour[] = "#cc0044", bubble_colour[] = "#eeeeee";

/* A piece of work that is not drawn yet: units of one pass and micro-batch follow each other. */
typedef struct piece {
    enum work work;
    int micro, chunk;
    double begin, end;
    bool open;
} piece;

typedef struct picture {
    const z3d_simulation *simulation;
    const z3d_layout *layout;
    double scale, height;  /* pixels a second, of a row */
    piece *piece;          /* by stage */
    z3d_string work, wait; /* drawn: waits lie over work */
} picture;

static double x_of(const picture *p, double seconds) {
    return LEFT + seconds * p->scale;
}

static double y_of(const picture *p, int stage) {
    return TOP + stage * p->height;
}

/* ---- rectangles ---- */

static void draw_piece(picture *p, int stage) {
    piece *of = &p->piece[stage];
    double x = x_of(p, of->begin), width = x_of(p, of->end) - x, y = y_of(p, stage);
    if (!of->open) return;
    of->open = false;
    int shade = of->micro < 0 ? 0 : of->micro % SHADES;
    z3d_string_append(&p->work,
                      "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%.1f\" "
                      "fill=\"%s\"/>\n",
                      x, y + 1, width, p->height - 2, works[of->work].shade[shade]);
    if (of->micro >= 0 && width > 16 && p->height >= 24)
        z3d_string_append(&p->work, "<text x=\"%.1f\" y=\"%.1f\" fill=\"%s\">%d</text>\n",
                          x + width / 2, y + 0.3 * p->height + 5, shade < 2 ? "#fff" : "#111",
                          of->micro);
}

static bool work_of(z3d_opcode opcode, enum work *out) {
    switch (opcode) {
    case Z3D_OP_FORWARD:
        *out = FORWARD;
        return true;
    case Z3D_OP_RECOMPUTE:
    case Z3D_OP_BACKWARD:
    case Z3D_OP_BACKWARD_INPUT:
        *out = BACKWARD;
        return true;
    case Z3D_OP_BACKWARD_WEIGHT:
        *out = WEIGHT;
        return true;
    case Z3D_OP_OPTIMIZER_STEP:
        *out = OTHER;
        return true;
    default:
        return false;
    }
}

static void take_work(picture *p, const z3d_span *span) {
    const z3d_sim_entry *entry = &p->simulation->stage[span->stage].entry[span->instruction];
    piece *of = &p->piece[span->stage];
    enum work work;
    if (!work_of(entry->opcode, &work)) return;
    int chunk = entry->unit < 0 ? -1 : p->layout->chunk_of_unit[entry->unit];
    if (!of->open || of->work != work || of->micro != entry->micro || of->chunk != chunk) {
        draw_piece(p, span->stage);
        *of = (piece){work, entry->micro, chunk, span->begin, span->end, true};
    }
    of->end = span->end;
}

static void take(void *context, const z3d_span *span) {
    picture *p = context;
    double x = x_of(p, span->begin), width = x_of(p, span->end) - x;
    if (span->kind == Z3D_SPAN_INSTRUCTION) take_work(p, span);
    if (span->kind != Z3D_SPAN_WAIT && span->kind != Z3D_SPAN_BUBBLE) return;
    if (width < least) return;
    bool wait = span->kind == Z3D_SPAN_WAIT; /* its work stays visible */
    double above = wait ? 0.6 * p->height : 1;
    z3d_string_append(&p->wait,
                      "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%.1f\" "
                      "fill=\"%s\"/>\n",
                      x, y_of(p, span->stage) + above, width, p->height - 1 - above,
                      wait ? wait_colour : bubble_colour);
}

/* ---- around them ---- */

static void text_at(z3d_string *out, double x, double y, const char *anchor, const char *text) {
    z3d_string_append(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s</text>\n", x, y,
                      anchor, text);
}

static double legend_item(z3d_string *out, double x, double y, const char *const *shade, int shades,
                          const char *text) {
    for (int i = 0; i < shades; i++)
        z3d_string_append(out,
                          "<rect x=\"%.1f\" y=\"%.1f\" width=\"12\" height=\"12\" "
                          "fill=\"%s\"/>\n",
                          x + 12 * i, y - 11, shade[i]);
    text_at(out, x + 12 * shades + 6, y, "start", text);
    double width = 0;
    for (const char *c = text; *c; c++) width += 6.6;
    return x + 12 * shades + 24 + width;
}

static bool has_halves(const picture *p) {
    for (int s = 0; s < p->simulation->stages; s++)
        for (int i = 0; i < p->simulation->stage[s].num_entries; i++)
            if (p->simulation->stage[s].entry[i].opcode == Z3D_OP_BACKWARD_WEIGHT) return true;
    return false;
}

/* What compute does, then what it waits for, as shares of all stages' time. */
static void draw_legend(const picture *p, z3d_string *out) {
    const z3d_simulation *simulation = p->simulation;
    static const char *const waits[] = {wait_colour}, *const bubbles[] = {bubble_colour};
    double seconds = 0, compute = 0, unused, x = LEFT;
    double bubble = z3d_simulation_bubble(simulation, &unused);
    char text[96];
    for (int s = 0; s < simulation->stages; s++) {
        const z3d_step_time *t = &simulation->stage[s].time;
        seconds += t->seconds;
        compute += t->compute;
    }
    for (int w = 0; w < WORKS; w++)
        if (w != WEIGHT || has_halves(p))
            x = legend_item(out, x, 62, works[w].shade, w == OTHER ? 1 : SHADES, works[w].name);
    snprintf(text, sizeof text, "exposed communication %.2f %%",
             100 * (1 - compute / seconds - bubble));
    x = legend_item(out, LEFT, 86, waits, 1, text);
    snprintf(text, sizeof text, "bubble %.2f %%", 100 * bubble);
    x = legend_item(out, x, 86, bubbles, 1, text);
    snprintf(text, sizeof text, "compute %.2f %% of all stages' time; shades: micro-batch mod %d",
             100 * compute / seconds, SHADES);
    text_at(out, x, 86, "start", text);
}

/* 1, 2 or 5 times a power of ten, about an eighth of the range. */
static double step_of(double range) {
    double power = pow(10, floor(log10(range / 8))), share = range / 8 / power;
    return power * (share < 1.5 ? 1 : share < 3.5 ? 2 : share < 7.5 ? 5 : 10);
}

static void draw_axes(const picture *p, double seconds, z3d_string *out) {
    int stages = p->simulation->stages, every = p->height < 12 ? 4 : 1;
    double bottom = y_of(p, stages), step = step_of(seconds);
    char text[64];
    for (int s = 0; s < stages; s += every) {
        snprintf(text, sizeof text, "%d", s);
        text_at(out, LEFT - 8, y_of(p, s) + p->height / 2 + 4, "end", text);
    }
    for (int k = 0; k * step <= seconds; k++) {
        z3d_string_append(out, "<path d=\"M%.1f %.1fv5\" stroke=\"#333\"/>\n", x_of(p, k * step),
                          bottom);
        snprintf(text, sizeof text, "%g", k * step);
        text_at(out, x_of(p, k * step), bottom + 18, "middle", text);
    }
    text_at(out, LEFT + PLOT / 2.0, bottom + 38, "middle", "seconds (predicted)");
    z3d_string_append(out,
                      "<text transform=\"translate(18 %.1f) rotate(-90)\" "
                      "text-anchor=\"middle\">pipeline stage</text>\n",
                      (TOP + bottom) / 2);
}

static void draw_head(const z3d_case *of, const z3d_hardware *hardware, double height,
                      z3d_string *out) {
    const z3d_mesh *mesh = &of->mesh;
    char text[320], parameters[32];
    z3d_string_append(out,
                      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %.0f\" "
                      "width=\"%d\" height=\"%.0f\" font-family=\"sans-serif\" font-size=\"12\" "
                      "fill=\"#111\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n"
                      "<g font-size=\"15\">\n",
                      WIDTH, height, WIDTH, height);
    snprintf(
        text, sizeof text, "%s parameters, %s, ZeRO-%d, %s, micro-batch %lld x %d, %s on ",
        z3d_format_count((double)z3d_model_parameter_count(of->model), parameters,
                         sizeof parameters),
        z3d_sizes_name(z3d_mesh_size(mesh, Z3D_AXES_TENSOR), z3d_mesh_size(mesh, Z3D_AXES_PIPELINE),
                       z3d_mesh_size(mesh, Z3D_AXES_DATA))
            .text,
        of->program.stage, z3d_dtype_name(of->program.dtype), (long long)of->program.micro_batch,
        of->program.accumulation, z3d_schedule_name(of->program.pipeline.schedule));
    z3d_string_append(out, "<text x=\"%d\" y=\"32\">%s", LEFT, text);
    for (const char *c = hardware->device; *c; c++) /* a name from a file */
        z3d_string_append(out, *c == '<' || *c == '>' || *c == '&' ? "_" : "%c", *c);
    z3d_string_append(out, "</text>\n</g>\n");
}

z3d_status z3d_schedule_picture(const z3d_case *of, const z3d_hardware *hardware, z3d_string *out) {
    const z3d_simulation *simulation = of->simulation;
    int stages = simulation->stages;
    z3d_step_time time;
    Z3D_TRY(z3d_simulation_play(simulation, hardware, 0, NULL, &time));
    picture p = {.simulation = simulation,
                 .layout = z3d_engine_layout(simulation->engine),
                 .scale = PLOT / time.seconds,
                 .height = stages <= 24   ? 30
                           : stages <= 64 ? 14
                                          : 900.0 / stages};
    Z3D_TRY(z3d_new((size_t)stages, sizeof *p.piece, "a picture", &p.piece));
    z3d_spans spans = {take, &p};
    z3d_status status = z3d_simulation_play(simulation, hardware, 0, &spans, &time);
    for (int s = 0; s < stages; s++) draw_piece(&p, s);
    if (status == Z3D_OK && (p.work.failed || p.wait.failed))
        status = Z3D_ERROR(Z3D_ERR_MEMORY, "not enough memory for the picture of a schedule");
    if (status == Z3D_OK) {
        draw_head(of, hardware, TOP + stages * p.height + 52, out);
        draw_legend(&p, out);
        z3d_string_append(out, "<g text-anchor=\"middle\" font-size=\"11\">\n%s</g>\n%s",
                          p.work.text ? p.work.text : "", p.wait.text ? p.wait.text : "");
        draw_axes(&p, time.seconds, out);
        z3d_string_append(out, "</svg>\n");
    }
    z3d_string_free(&p.work);
    z3d_string_free(&p.wait);
    free(p.piece);
    return status;
}
