/* The arenas over a training step as an SVG picture: every buffer is a rectangle from its first
 * instruction to its last, from its first byte to its last. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "src/base/page.h"
#include "src/plan/memory.h"
#include "src/plan/timeline_picture.h"

/* In pixels. */
enum { WIDTH = 1280, LEFT = 96, RIGHT = 24, TOP = 118, PLOT = WIDTH - LEFT - RIGHT, BELOW = 58 };
static const double panel_height[] = {460, 170, 170}; /* device, host, disk */
static const double least_size = 0.15;                /* smaller rectangles are left out */

/* People with colour-blindness can distinguish them, too (Okabe and Ito's palette). */
static const char *const colours[Z3D_CATEGORY_COUNT] = {"#0072b2", "#e69f00", "#56b4e9", "#009e73",
                                                        "#f0e442", "#cc79a7", "#d55e00"};

typedef struct panel {
    const z3d_program *program;
    z3d_space space;
    double top, height;
    int64_t bytes; /* full scale */
    z3d_string *out;
} panel;

static double x_of(const panel *p, double instruction) {
    return LEFT + PLOT * instruction / p->program->num_instructions;
}

static double y_of(const panel *p, double bytes) {
    return p->top + p->height * (1 - bytes / (double)p->bytes);
}

static void scale_bytes(int64_t bytes, double *unit, const char **name) {
    static const char *const names[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
    int k = 0;
    for (*unit = 1; k < 4 && (double)bytes >= 2 * 1024 * *unit; k++) *unit *= 1024;
    *name = names[k];
}

static void draw_axes(const panel *p) {
    double unit, bottom = p->top + p->height;
    const char *name;
    char text[64];
    scale_bytes(p->bytes, &unit, &name);
    double step = z3d_axis_step((double)p->bytes / unit, 6);
    for (int k = 0; k * step * unit <= (double)p->bytes; k++) {
        double v = k * step, y = y_of(p, v * unit);
        z3d_string_append(p->out, "<path d=\"M%d %.1fh-5\"/>\n", LEFT, y);
        snprintf(text, sizeof text, "%g", v);
        z3d_picture_text(p->out, LEFT - 9, y + 4, "end", text);
    }
    step = fmax(1, z3d_axis_step(p->program->num_instructions, 6));
    for (int k = 0; k * step <= p->program->num_instructions; k++) {
        double n = k * step;
        z3d_string_append(p->out, "<path d=\"M%.1f %.1fv5\"/>\n", x_of(p, n), bottom);
        snprintf(text, sizeof text, "%g", n);
        z3d_picture_text(p->out, x_of(p, n), bottom + 19, "middle", text);
    }
    z3d_string_append(p->out,
                      "<rect x=\"%d\" y=\"%.1f\" width=\"%d\" height=\"%.1f\" fill=\"none\"/>\n"
                      "<text transform=\"translate(24 %.1f) rotate(-90)\" text-anchor=\"middle\">"
                      "offset in the %s arena, %s</text>\n",
                      LEFT, p->top, PLOT, p->height, p->top + p->height / 2,
                      p->space == Z3D_SPACE_DEVICE ? "device" : "host", name);
    z3d_picture_text(p->out, LEFT + PLOT / 2.0, bottom + 40, "middle",
                     "instruction of the training step (its number in --print-program)");
}

/* The phase of an instruction: a phase is a run of one kind of work; its name is drawn if it has
 * enough space. */
static const char *phase_of(const z3d_instruction *i) {
    static const char *const names[] = {[Z3D_TIMELINE_FORWARD] = "forward",
                                        [Z3D_TIMELINE_BACKWARD] = "backward",
                                        [Z3D_TIMELINE_WEIGHT] = "backward",
                                        [Z3D_TIMELINE_OPTIMIZER] = "optimizer"};
    z3d_timeline_kind kind;
    if (i->opcode == Z3D_OP_STEP_CONTROL) return names[Z3D_TIMELINE_OPTIMIZER];
    return z3d_timeline_kind_of(i->opcode, &kind) ? names[kind] : NULL;
}

static void draw_phase(const panel *p, int first, int end, const char *phase) {
    double x = x_of(p, first), width = x_of(p, end) - x;
    z3d_string_append(p->out, "<path d=\"M%.1f %.1fV%.1f\"/>\n", x, p->top, p->top - 16);
    if (phase && width > 60) z3d_picture_text(p->out, x + width / 2, p->top - 5, "middle", phase);
}

/* An instruction without a phase belongs to the phase before it. */
static void draw_phases(const panel *p) {
    const char *phase = NULL;
    int first = 0, end = p->program->num_instructions;
    for (int n = 0; n < end; n++) {
        const char *next = phase_of(&p->program->instruction[n]);
        if (next && phase && next != phase) {
            draw_phase(p, first, n, phase);
            first = n;
        }
        if (next) phase = next;
    }
    draw_phase(p, first, end, phase);
}

/* Returns the number of buffers that are too small to see. */
static int draw_buffers(const panel *p) {
    const z3d_program *program = p->program;
    int left_out = 0;
    for (int i = 0; i < program->num_buffers; i++) {
        const z3d_buffer *b = &program->buffer[i];
        if (b->space != p->space) continue;
        int first = b->persistent ? 0 : b->first;
        int end = b->persistent ? program->num_instructions : b->last + 1;
        double x = x_of(p, first), width = x_of(p, end) - x;
        double y = y_of(p, (double)(b->offset + b->bytes)), height = y_of(p, (double)b->offset) - y;
        if (width < least_size || height < least_size) {
            left_out++;
            continue;
        }
        z3d_string_append(p->out,
                          "<rect class=\"t%d\" x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" "
                          "height=\"%.2f\"><title>%s: %s, %s, ",
                          (int)b->category, x, y, width, height, z3d_buffer_name(b).text,
                          z3d_category_name(b->category), z3d_bytes_text(b->bytes).text);
        if (b->persistent)
            z3d_string_append(p->out, "persists</title></rect>\n");
        else
            z3d_string_append(p->out, "%d to %d</title></rect>\n", b->first, b->last);
    }
    return left_out;
}

/* Draws the sum of live bytes, and its highest value as a line over the whole width. */
static z3d_status draw_bound(const panel *p) {
    int64_t *live, most = 0;
    Z3D_TRY(z3d_plan_live_bytes(p->program, p->space, &live));
    z3d_string_append(p->out, "<path class=\"live\" d=\"M%d %.1f", LEFT, y_of(p, 0));
    for (int n = 0; n < p->program->num_instructions; n++) {
        if (live[n] > most) most = live[n];
        if (n == 0 || live[n] != live[n - 1])
            z3d_string_append(p->out, "H%.1fV%.1f", x_of(p, n), y_of(p, (double)live[n]));
    }
    free(live);
    z3d_string_append(p->out,
                      "H%d\"/>\n<path d=\"M%d %.1fh%d\" stroke=\"#000\" "
                      "stroke-dasharray=\"7 5\"/>\n",
                      LEFT + PLOT, LEFT, y_of(p, (double)most), PLOT);
    return Z3D_OK;
}

static void draw_legend(const z3d_plan *plan, z3d_string *out) {
    char text[96];
    double x = LEFT;
    for (int category = 0; category < Z3D_CATEGORY_COUNT; category++) {
        int64_t peak = 0;
        for (int space = 0; space < Z3D_SPACE_COUNT; space++)
            peak += plan->ledger[Z3D_MODE_TRAIN][space].peak[category];
        snprintf(text, sizeof text, "%s, %s", z3d_category_name((z3d_category)category),
                 z3d_bytes_text(peak).text);
        z3d_string_append(out,
                          "<rect class=\"t%d\" x=\"%.0f\" y=\"58\" width=\"13\" height=\"13\"/>\n",
                          category, x);
        z3d_picture_text(out, x + 19, 69, "start", text);
        x += PLOT / (double)Z3D_CATEGORY_COUNT;
    }
}

static void draw_head(const z3d_plan *plan, double height, z3d_string *out) {
    const z3d_program_config *c = &plan->program_config;
    const z3d_mesh *t = &plan->mesh;
    char text[320];
    z3d_string_append(out,
                      "%sxmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %.0f\" "
                      "width=\"%d\" height=\"%.0f\" font-family=\"sans-serif\" font-size=\"13\">\n"
                      "<style>rect,path{stroke:#333;stroke-width:.6}path{fill:none}"
                      "text{fill:#111}.live{stroke:#000;stroke-width:1.6}",
                      z3d_output_picture.begins, WIDTH, height, WIDTH, height);
    for (int category = 0; category < Z3D_CATEGORY_COUNT; category++)
        z3d_string_append(out, ".t%d{fill:%s;stroke:#fff;stroke-width:.25}", category,
                          colours[category]);
    z3d_string_append(out, "</style>\n<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\" "
                           "style=\"stroke:none\"/>\n<g font-size=\"16\">\n");
    snprintf(text, sizeof text,
             "Memory of rank %d over a training step: %s, %s, ZeRO-%d, "
             "%s, micro-batch %lld x %d%s%s%s",
             t->rank, z3d_model_parameters_text(plan->model).text, z3d_mesh_name(t).text, c->stage,
             z3d_dtype_name(c->dtype), (long long)c->micro_batch, c->accumulation,
             c->recompute ? ", full recompute" : "", c->partition_activations ? ", P_a" : "",
             (const char *const[]){"", "+cpu", "+nvme"}[c->checkpoint_space]);
    z3d_picture_text(out, LEFT, 34, "start", text);
    z3d_string_append(out, "</g>\n");
    draw_legend(plan, out);
}

static z3d_status draw_panel(panel *p) {
    draw_phases(p);
    int left_out = draw_buffers(p);
    Z3D_TRY(draw_bound(p));
    draw_axes(p);
    if (left_out > 0) {
        char text[96];
        snprintf(text, sizeof text, "%d buffers too small to draw", left_out);
        z3d_picture_text(p->out, LEFT + PLOT, p->top + p->height + 40, "end", text);
    }
    return Z3D_OK;
}

z3d_status z3d_plan_picture(const z3d_plan *plan, z3d_string *out) {
    const z3d_program *program = plan->set.program[Z3D_MODE_TRAIN];
    panel panels[Z3D_SPACE_COUNT];
    int count = 0;
    double top = TOP;
    for (int space = 0; space < Z3D_SPACE_COUNT; space++) {
        int64_t bytes = program->arena[space];
        if (bytes == 0) continue;
        panels[count++] = (panel){program, (z3d_space)space, top, panel_height[space], bytes, out};
        top += panel_height[space] + BELOW + 30;
    }
    draw_head(plan, top - 16, out);
    z3d_picture_text(
        out, LEFT, 91, "start",
        "black line: sum of live bytes; dashed: its highest value, which no placement can be "
        "below");
    for (int k = 0; k < count; k++) Z3D_TRY(draw_panel(&panels[k]));
    z3d_string_append(out, "</svg>\n");
    return Z3D_OK;
}
