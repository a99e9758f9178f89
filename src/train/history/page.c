/* Several runs on one page: a card of facts for each, and charts with the curves of all runs. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/page.h"
#include "src/train/history/history.h"

/* The charts, in their order. */
static const struct drawn {
    const char *title, *unit;
    z3d_column column, share_of; /* share_of: STEP: the column itself, else 100 x column / it */
    double scale;
    bool from_zero, logarithmic, varies; /* varies: draw it only if it is not constant */
} drawn[] = {
    {"loss", "nats per token, over steps", Z3D_COLUMN_LOSS, Z3D_COLUMN_STEP, 1, false, false,
     false},
    {"learning rate", "", Z3D_COLUMN_LR, Z3D_COLUMN_STEP, 1, true, false, false},
    {"throughput", "tokens/s", Z3D_COLUMN_RATE, Z3D_COLUMN_STEP, 1, true, false, false},
    {"MFU", "%", Z3D_COLUMN_MFU, Z3D_COLUMN_STEP, 100, true, false, false},
    {"exposed communication", "% of the step's time", Z3D_COLUMN_COMM, Z3D_COLUMN_SECONDS, 100,
     true, false, true},
    {"exposed host transfers", "% of the step's time", Z3D_COLUMN_TRANSFER, Z3D_COLUMN_SECONDS, 100,
     true, false, true},
    {"exposed disk", "% of the step's time", Z3D_COLUMN_DISK, Z3D_COLUMN_SECONDS, 100, true, false,
     true},
    {"host step", "% of the step's time", Z3D_COLUMN_HOST_STEP, Z3D_COLUMN_SECONDS, 100, true,
     false, true},
    {"gradient norm", "logarithmic", Z3D_COLUMN_GRAD_NORM, Z3D_COLUMN_STEP, 1, false, true, false},
    {"loss scale", "logarithmic", Z3D_COLUMN_LOSS_SCALE, Z3D_COLUMN_STEP, 1, false, true, true},
};

/* The runs, and memory for drawing them. */
typedef struct page {
    const z3d_history *history;
    int count;
    z3d_curve *curve; /* two of each run: steps, validations */
    z3d_marks *marks; /* three of each run: resumes, checkpoints, skipped steps */
    double **share;   /* for each run: a column as it is drawn */
    z3d_string *out;
} page;

/* ---- marks, which all charts have ---- */

/* Marks a run's events of this name; NULL: its skipped steps. */
static z3d_status find_marks(const z3d_history *run, int series, z3d_mark_kind kind,
                             const char *event, z3d_marks *marks) {
    double *x;
    *marks = (z3d_marks){.colour = series, .series = series, .kind = kind};
    Z3D_TRY(z3d_new((size_t)(run->events + run->steps.count) + 1, sizeof *x, "marks", &x));
    marks->x = x;
    for (int i = 0; i < run->events && event; i++)
        if (strcmp(run->event[i].event, event) == 0) x[marks->count++] = (double)run->event[i].step;
    for (int64_t i = 0; i < run->steps.count && !event; i++)
        if (run->steps.column[Z3D_COLUMN_SKIPPED][i] == 1)
            x[marks->count++] = run->steps.column[Z3D_COLUMN_STEP][i];
    return Z3D_OK;
}

static z3d_status prepare(page *p) {
    size_t runs = (size_t)p->count;
    Z3D_TRY(z3d_new(2 * runs, sizeof *p->curve, "curves", &p->curve));
    Z3D_TRY(z3d_new(3 * runs, sizeof *p->marks, "marks", &p->marks));
    Z3D_TRY(z3d_new(runs, sizeof *p->share, "curves", &p->share));
    for (int r = 0; r < p->count; r++) {
        const z3d_history *run = &p->history[r];
        z3d_marks *marks = &p->marks[3 * r];
        Z3D_TRY(find_marks(run, r, Z3D_MARK_LINE, "resume", &marks[0]));
        Z3D_TRY(find_marks(run, r, Z3D_MARK_BELOW, "checkpoint", &marks[1]));
        Z3D_TRY(find_marks(run, r, Z3D_MARK_ABOVE, NULL, &marks[2]));
        Z3D_TRY(z3d_new((size_t)run->steps.count + 1, sizeof **p->share, "a curve", &p->share[r]));
    }
    return Z3D_OK;
}

static void release(page *p) {
    for (int i = 0; i < 3 * p->count && p->marks; i++) free((void *)(uintptr_t)p->marks[i].x);
    for (int r = 0; r < p->count && p->share; r++) free(p->share[r]);
    free(p->share);
    free(p->curve);
    free(p->marks);
}

/* ---- charts ---- */

/* *first: the first number of all runs, NAN before the first call; *varies becomes true if a number
 * differs from it. */
static void fill_share(const z3d_history *run, const struct drawn *what, double *share,
                       double *first, bool *varies) {
    const double *value = run->steps.column[what->column];
    const double *whole =
        what->share_of == Z3D_COLUMN_STEP ? NULL : run->steps.column[what->share_of];
    for (int64_t i = 0; i < run->steps.count; i++) {
        share[i] = what->scale * value[i] / (whole ? whole[i] : 1);
        if (!isfinite(share[i])) continue;
        if (isnan(*first)) *first = share[i];
        *varies = *varies || share[i] != *first;
    }
}

static void draw(page *p, const struct drawn *what) {
    bool loss = what->column == Z3D_COLUMN_LOSS, varies = false;
    double first = NAN;
    bool marked = loss || what->column == Z3D_COLUMN_LOSS_SCALE;
    int curves = 0;
    for (int r = 0; r < p->count; r++) {
        const z3d_history *run = &p->history[r];
        fill_share(run, what, p->share[r], &first, &varies);
        p->curve[curves++] = (z3d_curve){.colour = r,
                                         .series = r,
                                         .count = run->steps.count,
                                         .x = run->steps.column[Z3D_COLUMN_STEP],
                                         .y = p->share[r]};
        if (loss && run->validations.count)
            p->curve[curves++] = (z3d_curve){.colour = r,
                                             .series = r,
                                             .style = Z3D_CURVE_DASHED,
                                             .count = run->validations.count,
                                             .x = run->validations.column[Z3D_COLUMN_STEP],
                                             .y = run->validations.column[Z3D_COLUMN_VALIDATION]};
    }
    if (what->varies && !varies) return;
    z3d_chart chart = {.title = what->title,
                       .unit = what->unit,
                       .x_name = "steps",
                       .from_zero = what->from_zero,
                       .logarithmic = what->logarithmic,
                       .curves = curves,
                       .curve = p->curve,
                       .num_marks = marked ? 3 * p->count : 0,
                       .marks = p->marks};
    z3d_page_chart(p->out, &chart);
}

/* ---- memory ---- */

static double memory_of(const z3d_history *run) {
    double bytes = 0;
    for (int m = 0; m < Z3D_HISTORY_MEMORIES; m++)
        if (run->memory[m] > 0) bytes += run->memory[m];
    return bytes;
}

/* Draws a bar for each run, divided into categories. */
static void draw_memory(page *p) {
    double most = 0;
    char text[32];
    for (int r = 0; r < p->count; r++) most = fmax(most, memory_of(&p->history[r]));
    if (most <= 0) return;
    z3d_string_append(p->out,
                      "<h2>Memory</h2>\n<p class=\"note\">The highest use of each category, "
                      "measured on rank 0; host: its arena in host memory; outside: memory outside "
                      "the plan (MPI, libraries, the program).</p>\n<p>");
    for (int m = 0; m < Z3D_HISTORY_MEMORIES; m++) {
        bool any = false;
        for (int r = 0; r < p->count; r++) any = any || p->history[r].memory[m] > 0;
        if (any)
            z3d_string_append(p->out, "<span class=\"key %s\">%s</span> ", z3d_page_colour(m),
                              z3d_history_memory_name(m));
    }
    z3d_string_append(p->out, "</p>\n");
    for (int r = 0; r < p->count; r++) {
        const z3d_history *run = &p->history[r];
        z3d_string_append(p->out, "<div class=\"s%d\">", r);
        z3d_page_text(p->out, run->name);
        z3d_string_append(p->out, " <small>%s</small><div class=\"bar\">",
                          z3d_format_bytes((int64_t)memory_of(run), text, sizeof text));
        for (int m = 0; m < Z3D_HISTORY_MEMORIES; m++)
            if (run->memory[m] > 0)
                z3d_string_append(
                    p->out, "<span class=\"%s\" style=\"width:%.3f%%\" title=\"%s %s\"></span>",
                    z3d_page_colour(m), 100 * run->memory[m] / most, z3d_history_memory_name(m),
                    z3d_format_bytes((int64_t)run->memory[m], text, sizeof text));
        z3d_string_append(p->out, "</div></div>\n");
    }
}

/* ---- runs ---- */

static void append_fact(void *context, const char *name, const char *text) {
    z3d_string *out = context;
    z3d_string_append(out, "<dt>%s</dt><dd>", name);
    z3d_page_text(out, text);
    z3d_string_append(out, "</dd>\n");
}

/* Shows only the latest events: readers look for these. */
static void append_events(const z3d_history *run, z3d_string *out) {
    enum { SHOWN = 200 };
    int first = run->events > SHOWN ? run->events - SHOWN : 0;
    char text[32];
    if (run->events == 0) return;
    z3d_string_append(out, "<details><summary>%d events%s</summary><div class=\"wide\"><table>\n",
                      run->events, first ? ", the latest 200" : "");
    for (int i = run->events - 1; i >= first; i--) {
        const z3d_history_event *event = &run->event[i];
        z3d_string_append(out, "<tr><td>%lld</td><td>%s</td><td>", (long long)event->step,
                          z3d_history_time(event->time, text));
        z3d_page_text(out, event->event);
        z3d_string_append(out, "</td><td>");
        z3d_page_text(out, event->detail);
        if (!*event->detail && isfinite(event->seconds))
            z3d_string_append(out, "in %s", z3d_format_seconds(event->seconds, text, sizeof text));
        z3d_string_append(out, "</td></tr>\n");
    }
    z3d_string_append(out, "</table></div></details>\n");
}

static void append_run(const z3d_history *run, int series, z3d_string *out) {
    z3d_string_append(out, "<section class=\"run %s\">\n<h3>", z3d_page_colour(series));
    z3d_page_text(out, run->name);
    z3d_string_append(out, "</h3>\n<dl>\n");
    z3d_history_facts(run, append_fact, out);
    z3d_string_append(out, "</dl>\n");
    append_events(run, out);
    z3d_string_append(out, "</section>\n");
}

/* Each run has a check box that hides the run in all charts. */
static void append_legend(const page *p) {
    z3d_string_append(p->out, "<div class=\"legend\">\n");
    for (int r = 0; r < p->count; r++) {
        z3d_string_append(p->out,
                          "<label class=\"%s\"><input type=\"checkbox\" id=\"r%d\" checked> ",
                          z3d_page_colour(r), r);
        z3d_page_text(p->out, p->history[r].name);
        z3d_string_append(p->out, "</label>\n");
    }
    z3d_string_append(p->out, "</div>\n");
}

static const char style[] =
    ".runs{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,340px),1fr));"
    "gap:.8rem;align-items:start}.run{background:var(--card);border-radius:8px;padding:.7rem .9rem;"
    "min-width:0;border-left:5px solid var(--c)}h3{font-size:1rem;margin:0}"
    ".legend{position:sticky;top:0;z-index:1;background:var(--bg);padding:.3rem 0;display:flex;"
    "flex-wrap:wrap;gap:.2rem 1rem}label{border-left:5px solid var(--c);padding-left:.3rem}"
    "input{accent-color:var(--c)}dl{display:grid;grid-template-columns:auto 1fr;gap:.1rem .8rem;"
    "margin:.5rem 0;font-size:13.5px}dt{color:var(--soft)}dd{margin:0}"
    ".bar{display:flex;height:1.1rem;background:var(--card);margin:0 0 .6rem}"
    ".bar span{background:var(--c)}.key{display:inline-block;margin-right:.8rem}"
    ".key::before{content:\"\";display:inline-block;width:.8rem;height:.8rem;background:var(--c);"
    "margin-right:.35rem}";

static z3d_status write(page *p) {
    z3d_string rules = {0};
    z3d_string_append(&rules, "%s", style);
    for (int r = 0; r < p->count; r++)
        z3d_string_append(&rules, "body:has(#r%d:not(:checked)) .s%d{display:none}", r, r);
    z3d_page_open(p->out, p->count == 1 ? p->history[0].name : "Runs",
                  rules.text ? rules.text : "");
    p->out->failed |= rules.failed;
    z3d_string_free(&rules);
    z3d_string_append(p->out, "<h1>Training of %d run%s</h1>\n", p->count,
                      p->count == 1 ? "" : "s");
    append_legend(p);
    z3d_string_append(p->out,
                      "<p class=\"note\">A long curve joins means; the paler area shows the "
                      "lowest to the highest value. Loss: the dashed curve is validation. "
                      "Dotted lines are resumes, strokes at the lower edge checkpoints, "
                      "at the upper edge skipped steps.</p>\n<div class=\"charts\">\n");
    for (size_t d = 0; d < sizeof drawn / sizeof *drawn; d++) draw(p, &drawn[d]);
    z3d_string_append(p->out, "</div>\n");
    draw_memory(p);
    z3d_string_append(p->out, "<h2>Runs</h2>\n<div class=\"runs\">\n");
    for (int r = 0; r < p->count; r++) append_run(&p->history[r], r, p->out);
    z3d_string_append(p->out, "</div>\n");
    z3d_page_close(p->out);
    return p->out->failed ? Z3D_ERROR(Z3D_ERR_MEMORY, "not enough memory for the page") : Z3D_OK;
}

z3d_status z3d_history_page(const z3d_history *history, int count, z3d_string *out) {
    page p = {.history = history, .count = count, .out = out};
    z3d_status status = prepare(&p);
    if (status == Z3D_OK) status = write(&p);
    release(&p);
    return status;
}
