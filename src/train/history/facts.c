/* A run's facts in words. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "src/train/history/history.h"

typedef struct telling {
    const z3d_history *history;
    void (*take)(void *context, const char *name, const char *text);
    void *context;
    z3d_string text;
} telling;

/* Passes the text in t->text on as a fact. */
static void tell(telling *t, const char *name) {
    if (t->text.length && !t->text.failed) t->take(t->context, name, t->text.text);
    z3d_string_clear(&t->text);
}

/* ---- columns ---- */

static const double *column(const z3d_history *history, z3d_column c) {
    return history->steps.column[c];
}

/* The index of the first, the last or the extreme finite value; -1: none. */
static int64_t find_first(const z3d_history_table *table, z3d_column c) {
    for (int64_t i = 0; i < table->count; i++)
        if (isfinite(table->column[c][i])) return i;
    return -1;
}

static int64_t find_last(const z3d_history_table *table, z3d_column c) {
    for (int64_t i = table->count - 1; i >= 0; i--)
        if (isfinite(table->column[c][i])) return i;
    return -1;
}

static int64_t find_extreme(const z3d_history_table *table, z3d_column c, bool highest) {
    int64_t found = -1;
    for (int64_t i = 0; i < table->count; i++) {
        double value = table->column[c][i];
        if (!isfinite(value)) continue;
        if (found < 0 ||
            (highest ? value > table->column[c][found] : value < table->column[c][found]))
            found = i;
    }
    return found;
}

/* The sum of a column times `by` (NULL: 1), over the steps from `first` on that have both; *weight:
 * the sum of `by` over these steps. */
static double sum_from(const z3d_history *history, int64_t first, z3d_column c, const double *by,
                       double *weight) {
    double total = 0;
    *weight = 0;
    for (int64_t i = first; i < history->steps.count; i++) {
        double value = column(history, c)[i], w = by ? by[i] : 1;
        if (!isfinite(value) || !isfinite(w)) continue;
        total += value * w;
        *weight += w;
    }
    return total;
}

/* The first step includes warming up: it counts only if it is the only one. */
static double sum(const z3d_history *history, z3d_column c, const double *by, double *weight) {
    return sum_from(history, history->steps.count > 1, c, by, weight);
}

/* ---- facts ---- */

static const z3d_history_event *last_event(const z3d_history *history, const char *a,
                                           const char *b) {
    for (int i = history->events - 1; i >= 0; i--)
        if (strcmp(history->event[i].event, a) == 0 || strcmp(history->event[i].event, b) == 0)
            return &history->event[i];
    return NULL;
}

/* The device and type of the run, and from which step on they changed. */
static void tell_run(telling *t) {
    const char *before = NULL;
    for (int i = 0; i < t->history->events; i++) {
        const z3d_history_event *e = &t->history->event[i];
        if (strcmp(e->event, "start") != 0 && strcmp(e->event, "resume") != 0) continue;
        if (before && strcmp(before, e->detail) == 0) continue;
        if (before) z3d_string_append(&t->text, "; after step %lld: ", (long long)e->step);
        z3d_string_append(&t->text, "%s", e->detail);
        before = e->detail;
    }
    tell(t, "run");
}

static void tell_steps(telling *t) {
    double counted;
    const double *step = column(t->history, Z3D_COLUMN_STEP);
    int64_t count = t->history->steps.count;
    int64_t skipped = 0;
    if (count == 0) {
        z3d_string_append(&t->text, "none yet");
    } else {
        for (int64_t i = 0; i < count; i++)
            skipped += column(t->history, Z3D_COLUMN_SKIPPED)[i] == 1;
        z3d_string_append(&t->text, "%.0f to %.0f", step[0], step[count - 1]);
        if (skipped) z3d_string_append(&t->text, ", %lld skipped", (long long)skipped);
        double seconds = sum(t->history, Z3D_COLUMN_SECONDS, NULL, &counted);
        char each[32];
        z3d_string_append(&t->text, ", %s each",
                          z3d_format_seconds(seconds / counted, each, sizeof each));
    }
    tell(t, "steps");
}

static void tell_loss(telling *t) {
    const z3d_history_table *table = &t->history->steps;
    int64_t first = find_first(table, Z3D_COLUMN_LOSS), last = find_last(table, Z3D_COLUMN_LOSS);
    int64_t least = find_extreme(table, Z3D_COLUMN_LOSS, false);
    if (first < 0) return;
    const double *loss = table->column[Z3D_COLUMN_LOSS];
    z3d_string_append(&t->text, "%.6f -> %.6f, lowest %.6f at step %.0f", loss[first], loss[last],
                      loss[least], table->column[Z3D_COLUMN_STEP][least]);
    tell(t, "loss");
}

static void tell_validation(telling *t) {
    const z3d_history_table *table = &t->history->validations;
    int64_t last = find_last(table, Z3D_COLUMN_VALIDATION);
    int64_t least = find_extreme(table, Z3D_COLUMN_VALIDATION, false);
    if (last < 0) return;
    const double *loss = table->column[Z3D_COLUMN_VALIDATION];
    const double *step = table->column[Z3D_COLUMN_STEP];
    z3d_string_append(&t->text, "%.6f at step %.0f, perplexity %.4g", loss[last], step[last],
                      exp(loss[last]));
    if (least != last)
        z3d_string_append(&t->text, "; lowest %.6f at step %.0f", loss[least], step[least]);
    tell(t, "validation");
}

static void tell_rate(telling *t) {
    int64_t last = find_last(&t->history->steps, Z3D_COLUMN_LR);
    int64_t most = find_extreme(&t->history->steps, Z3D_COLUMN_LR, true);
    if (last < 0) return;
    const double *lr = column(t->history, Z3D_COLUMN_LR);
    z3d_string_append(&t->text, "%.3g at last, %.3g at most", lr[last], lr[most]);
    tell(t, "learning rate");
}

static void tell_speed(telling *t) {
    double counted, weight;
    double tokens = sum(t->history, Z3D_COLUMN_TOKENS, NULL, &counted);
    double seconds = sum(t->history, Z3D_COLUMN_SECONDS, NULL, &counted);
    int64_t last = find_last(&t->history->steps, Z3D_COLUMN_TOTAL_TOKENS);
    char text[32];
    if (!(seconds > 0)) return;
    z3d_string_append(&t->text, "%s tokens/s",
                      z3d_format_count(tokens / seconds, text, sizeof text));
    double mfu = sum(t->history, Z3D_COLUMN_MFU, column(t->history, Z3D_COLUMN_SECONDS), &weight);
    if (weight > 0) z3d_string_append(&t->text, ", MFU %.1f %%", 100 * mfu / weight);
    if (last >= 0)
        z3d_string_append(
            &t->text, ", %s tokens in total",
            z3d_format_count(column(t->history, Z3D_COLUMN_TOTAL_TOKENS)[last], text, sizeof text));
    tell(t, "speed");
}

/* Shares of all steps, the first one included, as at the run's end and in summary.json. Lanes that
 * a run does not use are not told: a single rank communicates nothing. */
static void tell_exposed(telling *t) {
    static const struct {
        const char *name;
        z3d_column column;
    } lanes[] = {{"communication", Z3D_COLUMN_COMM},
                 {"host transfers", Z3D_COLUMN_TRANSFER},
                 {"disk", Z3D_COLUMN_DISK},
                 {"host step", Z3D_COLUMN_HOST_STEP}};
    double counted, seconds = sum_from(t->history, 0, Z3D_COLUMN_SECONDS, NULL, &counted);
    for (size_t l = 0; l < sizeof lanes / sizeof *lanes; l++) {
        double exposed = sum_from(t->history, 0, lanes[l].column, NULL, &counted);
        if (seconds > 0 && exposed > 0)
            z3d_string_append(&t->text, "%s%s %.2f %%", t->text.length ? ", " : "", lanes[l].name,
                              100 * exposed / seconds);
    }
    if (t->text.length) z3d_string_append(&t->text, " of the steps' time");
    tell(t, "exposed");
}

/* With comms_logger: bytes that rank 0 sent, mean of the steps. */
static void tell_sent(telling *t) {
    const z3d_history *history = t->history;
    char inside[32], between[32];
    for (int kind = 0; kind < Z3D_COLLECTIVE_COUNT; kind++) {
        const double *sent = history->sent[kind], steps = (double)history->sent_steps;
        if (!(sent[0] + sent[1] > 0)) continue;
        z3d_string_append(&t->text, "%s%s %s inside a node, %s between nodes",
                          t->text.length ? "; " : "",
                          z3d_collective_name((z3d_collective_kind)kind),
                          z3d_format_bytes((int64_t)(sent[0] / steps), inside, sizeof inside),
                          z3d_format_bytes((int64_t)(sent[1] / steps), between, sizeof between));
    }
    tell(t, "sent a step");
}

static void tell_memory(telling *t) {
    char bytes[32];
    for (int m = 0; m < Z3D_HISTORY_MEMORIES; m++)
        if (t->history->memory[m] > 0)
            z3d_string_append(
                &t->text, "%s%s %s", t->text.length ? ", " : "", z3d_history_memory_name(m),
                z3d_format_bytes((int64_t)t->history->memory[m], bytes, sizeof bytes));
    tell(t, "memory");
}

static void tell_checkpoints(telling *t) {
    const z3d_history_event *last = last_event(t->history, "checkpoint", "checkpoint");
    char seconds[32];
    if (!last) return;
    z3d_string_append(&t->text, "%d, the last of step %lld in %s",
                      z3d_history_count(t->history, "checkpoint"), (long long)last->step,
                      z3d_format_seconds(last->seconds, seconds, sizeof seconds));
    tell(t, "checkpoints");
}

static void tell_ends(telling *t) {
    const z3d_history_event *start = last_event(t->history, "start", "resume");
    const z3d_history_event *end = last_event(t->history, "end", "stop");
    const z3d_history_event *failure = last_event(t->history, "failure", "failure");
    int resumes = z3d_history_count(t->history, "resume");
    char time[32];
    if (resumes)
        z3d_string_append(&t->text, "%d time%s, last after step %lld", resumes,
                          resumes == 1 ? "" : "s",
                          (long long)last_event(t->history, "resume", "resume")->step);
    tell(t, "resumed");
    if (failure && failure > end) end = failure;
    if (!start) return;
    if (!end || end < start) { /* the run still runs, or was killed */
        z3d_string_append(&t->text, "not ended: it runs, or it was killed");
    } else {
        z3d_string_append(&t->text, "%s at step %lld%s%s",
                          end == failure                   ? "failed"
                          : strcmp(end->event, "end") != 0 ? "stopped"
                          : *end->detail                   ? "ended early"
                                                           : "complete",
                          (long long)end->step, *end->detail ? ": " : "", end->detail);
        if (isfinite(end->time))
            z3d_string_append(&t->text, " (%.16s UTC)", z3d_history_time(end->time, time));
    }
    tell(t, "state");
}

void z3d_history_facts(const z3d_history *history,
                       void (*take)(void *context, const char *name, const char *text),
                       void *context) {
    telling t = {.history = history, .take = take, .context = context};
    tell_run(&t);
    tell_steps(&t);
    tell_loss(&t);
    tell_validation(&t);
    tell_rate(&t);
    tell_speed(&t);
    tell_exposed(&t);
    tell_sent(&t);
    tell_memory(&t);
    tell_checkpoints(&t);
    tell_ends(&t);
    z3d_string_free(&t.text);
}

/* ---- as text ---- */

/* Makes a text from a file one line without control characters. */
static void append_line(void *context, const char *name, const char *text) {
    z3d_string_append(context, "  %-14s ", name);
    for (const char *c = text; *c; c++)
        z3d_string_append(context, "%c", (unsigned char)*c < ' ' || *c == 0x7f ? ' ' : *c);
    z3d_string_append(context, "\n");
}

void z3d_history_text(const z3d_history *history, z3d_string *out) {
    z3d_string_append(out, "%s\n", history->name);
    z3d_history_facts(history, append_line, out);
}
