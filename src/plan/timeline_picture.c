#include "src/plan/timeline_picture.h"

#include <stdio.h>
#include <stdlib.h>

#include "src/base/page.h"

/* In pixels. */
enum { WIDTH = 1280, LEFT = 108, RIGHT = 24, TOP = 108, PLOT = WIDTH - LEFT - RIGHT, SHADES = 4 };
static const double least = 0.25; /* narrower waits are not drawn, but counted */

enum { WORKS = Z3D_TIMELINE_EXPOSED }; /* the kinds before it are work */
static const struct {
    const char *name, *tip;    /* tip: the text for one piece of work */
    const char *shade[SHADES]; /* by the micro-batch's number mod SHADES */
} works[WORKS] = {
    [Z3D_TIMELINE_FORWARD] = {"forward", "forward", {"#0072b2", "#3a93c7", "#74b3da", "#a9d2ec"}},
    [Z3D_TIMELINE_BACKWARD] = {"backward, or its input half (with recompute)",
                               "backward",
                               {"#c25a00", "#d9782a", "#e89a5a", "#f3bd8d"}},
    [Z3D_TIMELINE_WEIGHT] = {"weight half of backward",
                             "weight half",
                             {"#00704f", "#2f9175", "#66b19b", "#9fd2c3"}},
    [Z3D_TIMELINE_OPTIMIZER] = {"optimizer",
                                "optimizer",
                                {"#666666", "#666666", "#666666", "#666666"}},
};
static const char wait_colour[] = "#cc0044", bubble_colour[] = "#eeeeee";

/* Work that is not drawn yet. */
typedef struct piece {
    z3d_timeline_span span;
    bool open;
} piece;

struct z3d_timeline_picture {
    int rows;
    double seconds, scale, height; /* scale: pixels a second; height: of a row */
    bool has[WORKS];
    piece *piece;          /* by row */
    z3d_string work, wait; /* drawn text: waits are drawn over work */
};

bool z3d_timeline_kind_of(z3d_opcode opcode, z3d_timeline_kind *out) {
    static const struct {
        z3d_opcode opcode;
        z3d_timeline_kind kind;
    } drawn[] = {{Z3D_OP_FORWARD, Z3D_TIMELINE_FORWARD},
                 {Z3D_OP_RECOMPUTE, Z3D_TIMELINE_BACKWARD},
                 {Z3D_OP_BACKWARD, Z3D_TIMELINE_BACKWARD},
                 {Z3D_OP_BACKWARD_INPUT, Z3D_TIMELINE_BACKWARD},
                 {Z3D_OP_BACKWARD_WEIGHT, Z3D_TIMELINE_WEIGHT},
                 {Z3D_OP_OPTIMIZER_STEP, Z3D_TIMELINE_OPTIMIZER},
                 {Z3D_OP_HOST_STEP, Z3D_TIMELINE_OPTIMIZER}};
    for (size_t i = 0; i < sizeof drawn / sizeof *drawn; i++) {
        *out = drawn[i].kind;
        if (drawn[i].opcode == opcode) return true;
    }
    return false;
}

void z3d_timeline_title(const z3d_model *model, const z3d_mesh *mesh,
                        const z3d_program_config *program, z3d_string *out) {
    z3d_string_append(out, "%s, %s, ZeRO-%d, %s, micro-batch %lld x %d",
                      z3d_model_parameters_text(model).text, z3d_mesh_name(mesh).text,
                      program->stage, z3d_dtype_name(program->dtype),
                      (long long)program->micro_batch, program->accumulation);
    if (z3d_mesh_size(mesh, Z3D_ROLE_STAGES) > 1)
        z3d_string_append(out, ", %s", z3d_schedule_name(program->pipeline.schedule));
}

/* The gap between rows, if they are high enough. */
static double gap_of(const z3d_timeline_picture *p) {
    return p->height < 12 ? 0 : 1;
}

/* ---- rectangles ---- */

static double x_of(const z3d_timeline_picture *p, double seconds) {
    return LEFT + seconds * p->scale;
}

static double y_of(const z3d_timeline_picture *p, int row) {
    return TOP + row * p->height;
}

/* The text that a browser shows under the pointer. */
static void append_tip(z3d_string *out, const z3d_timeline_span *span) {
    z3d_string_append(out, "<title>%s", works[span->kind].tip);
    if (span->micro >= 0) z3d_string_append(out, ", micro-batch %d", span->micro);
    if (span->chunk >= 0) z3d_string_append(out, ", chunk %d", span->chunk);
    z3d_string_append(out, ": %s</title>", z3d_seconds_text(span->end - span->begin).text);
}

static void draw_piece(z3d_timeline_picture *p, int row) {
    const z3d_timeline_span *of = &p->piece[row].span;
    double x = x_of(p, of->begin), width = x_of(p, of->end) - x, y = y_of(p, row);
    if (!p->piece[row].open) return;
    p->piece[row].open = false;
    int shade = of->micro < 0 ? 0 : of->micro % SHADES;
    z3d_string_append(
        &p->work, "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%.1f\" fill=\"%s\">", x,
        y + gap_of(p), width, p->height - 2 * gap_of(p), works[of->kind].shade[shade]);
    append_tip(&p->work, of);
    z3d_string_append(&p->work, "</rect>\n");
    if (of->micro >= 0 && width > 16 && p->height >= 24)
        z3d_string_append(&p->work, "<text x=\"%.1f\" y=\"%.1f\" fill=\"%s\">%d</text>\n",
                          x + width / 2, y + 0.3 * p->height + 5, shade < 2 ? "#fff" : "#111",
                          of->micro);
}

static void take_work(z3d_timeline_picture *p, const z3d_timeline_span *span) {
    piece *of = &p->piece[span->row];
    p->has[span->kind] = true;
    if (!of->open || of->span.kind != span->kind || of->span.micro != span->micro ||
        of->span.chunk != span->chunk) {
        draw_piece(p, span->row);
        *of = (piece){*span, true};
    }
    of->span.end = span->end;
}

void z3d_timeline_picture_take(z3d_timeline_picture *p, const z3d_timeline_span *span) {
    double x = x_of(p, span->begin), width = x_of(p, span->end) - x;
    bool exposed = span->kind == Z3D_TIMELINE_EXPOSED; /* the work under it stays visible */
    double above = exposed ? 0.6 * p->height : gap_of(p);
    if ((int)span->kind < WORKS)
        take_work(p, span);
    else if (width >= least)
        z3d_string_append(&p->wait,
                          "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%.1f\" "
                          "fill=\"%s\"/>\n",
                          x, y_of(p, span->row) + above, width, p->height - gap_of(p) - above,
                          exposed ? wait_colour : bubble_colour);
}

/* ---- texts and axes ---- */

void z3d_picture_text(z3d_string *out, double x, double y, const char *anchor, const char *text) {
    z3d_string_append(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">", x, y, anchor);
    for (const char *c = text; *c; c++) {
        bool shown = *c != '<' && *c != '>' && *c != '&' && (unsigned char)*c >= ' ' && *c != 0x7f;
        z3d_string_append_bytes(out, shown ? c : "_", 1);
    }
    z3d_string_append(out, "</text>\n");
}

static double legend_item(z3d_string *out, double x, double y, const char *const *shade, int shades,
                          const char *text) {
    for (int i = 0; i < shades; i++)
        z3d_string_append(out,
                          "<rect x=\"%.1f\" y=\"%.1f\" width=\"12\" height=\"12\" fill=\"%s\"/>\n",
                          x + 12 * i, y - 11, shade[i]);
    z3d_picture_text(out, x + 12 * shades + 6, y, "start", text);
    double width = 0;
    for (const char *c = text; *c; c++) width += 6.6;
    return x + 12 * shades + 24 + width;
}

/* The kinds of work, then the kinds of waits, as shares of all rows' time. */
static void draw_legend(const z3d_timeline_picture *p, const z3d_timeline_head *head,
                        const z3d_timeline_shares *shares, z3d_string *out) {
    static const char *const waits[] = {wait_colour}, *const bubbles[] = {bubble_colour};
    double all = shares->compute + shares->exposed + shares->bubble + shares->outside, x = LEFT;
    char text[160], outside[64] = "";
    for (int w = 0; w < WORKS; w++)
        if (w != Z3D_TIMELINE_WEIGHT || p->has[w])
            x = legend_item(out, x, 62, works[w].shade, w == Z3D_TIMELINE_OPTIMIZER ? 1 : SHADES,
                            works[w].name);
    snprintf(text, sizeof text, "exposed communication %.2f %%", 100 * shares->exposed / all);
    x = legend_item(out, LEFT, 86, waits, 1, text);
    snprintf(text, sizeof text, "bubble %.2f %%", 100 * shares->bubble / all);
    x = legend_item(out, x, 86, bubbles, 1, text);
    if (head->stage)
        snprintf(outside, sizeof outside, ", outside of instructions %.2f %%",
                 100 * shares->outside / all);
    snprintf(text, sizeof text, "compute %.2f %%%s of all %s' time; shades: micro-batch mod %d",
             100 * shares->compute / all, outside, head->stage ? "ranks" : "stages", SHADES);
    z3d_picture_text(out, x, 86, "start", text);
}

static void draw_axes(const z3d_timeline_picture *p, const z3d_timeline_head *head,
                      z3d_string *out) {
    int every = p->height < 12 ? 4 : 1;
    double bottom = y_of(p, p->rows), step = z3d_axis_step(p->seconds, 8);
    char text[64];
    for (int r = 0; r < p->rows; r += every) {
        snprintf(text, sizeof text, head->stage ? "%d, stage %d" : "%d", r,
                 head->stage ? head->stage[r] : 0);
        z3d_picture_text(out, LEFT - 8, y_of(p, r) + p->height / 2 + 4, "end", text);
    }
    for (int k = 0; k * step <= p->seconds; k++) {
        z3d_string_append(out, "<path d=\"M%.1f %.1fv5\" stroke=\"#333\"/>\n", x_of(p, k * step),
                          bottom);
        snprintf(text, sizeof text, "%g", k * step);
        z3d_picture_text(out, x_of(p, k * step), bottom + 18, "middle", text);
    }
    z3d_picture_text(out, LEFT + PLOT / 2.0, bottom + 38, "middle", head->clock);
    z3d_string_append(out,
                      "<text transform=\"translate(18 %.1f) rotate(-90)\" "
                      "text-anchor=\"middle\">%s</text>\n",
                      (TOP + bottom) / 2, head->rows);
}

static void draw(const z3d_timeline_picture *p, const z3d_timeline_head *head,
                 const z3d_timeline_shares *shares, z3d_string *out) {
    double height = TOP + p->rows * p->height + 52;
    z3d_string_append(out,
                      "%sxmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %.0f\" "
                      "width=\"%d\" height=\"%.0f\" font-family=\"sans-serif\" font-size=\"12\" "
                      "fill=\"#111\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n"
                      "<g font-size=\"15\">\n",
                      z3d_output_picture.begins, WIDTH, height, WIDTH, height);
    z3d_picture_text(out, LEFT, 32, "start", head->title);
    z3d_string_append(out, "</g>\n");
    draw_legend(p, head, shares, out);
    z3d_string_append(out, "<g text-anchor=\"middle\" font-size=\"11\">\n%s</g>\n%s",
                      p->work.text ? p->work.text : "", p->wait.text ? p->wait.text : "");
    draw_axes(p, head, out);
    z3d_string_append(out, "</svg>\n");
}

/* ---- public functions ---- */

z3d_status z3d_timeline_picture_create(int rows, double seconds, z3d_timeline_picture **out) {
    z3d_timeline_picture *p;
    *out = NULL;
    Z3D_TRY(z3d_new(1, sizeof *p, "a picture", &p));
    *p = (z3d_timeline_picture){
        .rows = rows,
        .seconds = seconds,
        .scale = PLOT / seconds,
        .height = rows <= 24   ? 30
                  : rows <= 64 ? 14
                               : 900.0 / rows,
    };
    z3d_status status = z3d_new((size_t)rows, sizeof *p->piece, "a picture", &p->piece);
    if (status == Z3D_OK)
        *out = p;
    else
        free(p);
    return status;
}

z3d_status z3d_timeline_picture_finish(z3d_timeline_picture *p, const z3d_timeline_head *head,
                                       const z3d_timeline_shares *shares, z3d_string *out) {
    if (!p) return Z3D_OK;
    for (int r = 0; r < p->rows && out; r++) draw_piece(p, r);
    bool failed = p->work.failed || p->wait.failed;
    if (out && !failed) draw(p, head, shares, out);
    z3d_string_free(&p->work);
    z3d_string_free(&p->wait);
    free(p->piece);
    free(p);
    if (!failed && (!out || !out->failed)) return Z3D_OK;
    return Z3D_ERROR(Z3D_ERR_MEMORY, "not enough memory for the picture of a step");
}
