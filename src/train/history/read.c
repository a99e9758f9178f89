/* Reads metrics.jsonl and events.jsonl. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "src/train/history/history.h"

/* A run writes no larger numbers, and a chart's axes could not show them. */
static const int64_t MOST_STEPS = 1000000000000000;
static const double MOST_BYTES = 1e17, MOST_TIME = 1e11 /* the year 5138 */, MOST_TFLOPS = 1e6;

const char *z3d_history_memory_name(int memory) {
    if (memory < Z3D_CATEGORY_COUNT) return z3d_category_name((z3d_category)memory);
    return memory == Z3D_CATEGORY_COUNT ? "host" : "outside";
}

const char *z3d_history_time(double time, char out[32]) {
    const time_t second = isfinite(time) ? (time_t)time : 0;
    struct tm parts;
    out[0] = '\0';
    if (isfinite(time) && gmtime_r(&second, &parts)) strftime(out, 32, "%Y-%m-%d %H:%M:%S", &parts);
    return out;
}

int z3d_history_count(const z3d_history *history, const char *event) {
    int count = 0;
    for (int i = 0; i < history->events; i++) count += strcmp(history->event[i].event, event) == 0;
    return count;
}

/* ---- lines ---- */

static double number_of(const z3d_json *object, const char *key) {
    const z3d_json *value = z3d_json_member(object, key);
    if (value && value->type == Z3D_JSON_BOOL) return value->truth;
    return value && value->type == Z3D_JSON_NUMBER ? strtod(value->text, NULL) : NAN;
}

/* A number; NAN if it is missing or larger than `most`. */
static double number_up_to(const z3d_json *object, const char *key, double most) {
    double number = number_of(object, key);
    return number >= 0 && number <= most ? number : NAN;
}

static z3d_status grow(z3d_history_table *table) {
    int64_t capacity = 0;
    for (int c = 0; c < Z3D_COLUMN_COUNT; c++) {
        capacity = table->capacity;
        Z3D_TRY(z3d_grow(table->count, &capacity, sizeof(double), "a run's metrics",
                         &table->column[c]));
    }
    table->capacity = capacity;
    return Z3D_OK;
}

static void take_sent(z3d_history *history, const z3d_json *comms) {
    static const char *const ways[] = {"inside_node", "between_nodes"};
    history->sent_steps++;
    for (int kind = 0; kind < Z3D_COLLECTIVE_COUNT; kind++) {
        const z3d_json *sent =
            z3d_json_member(comms, z3d_collective_name((z3d_collective_kind)kind));
        for (int way = 0; way < 2 && sent; way++) {
            const double bytes = number_up_to(sent, ways[way], MOST_BYTES);
            if (isfinite(bytes)) history->sent[kind][way] += bytes;
        }
    }
}

static z3d_status take_metrics(z3d_history *history, const z3d_json *line) {
    static const char *const names[] = {
#define X(NAME, name) name,
        Z3D_COLUMN_MAP(X)
#undef X
    };
    bool validation = z3d_json_member(line, "validation_loss") != NULL;
    z3d_history_table *table = validation ? &history->validations : &history->steps;
    const z3d_json *memory = z3d_json_member(line, "memory"),
                   *comms = z3d_json_member(line, "comms");
    Z3D_TRY(grow(table));
    for (int c = 0; c < Z3D_COLUMN_COUNT; c++)
        table->column[c][table->count] = number_of(line, names[c]);
    table->count++;
    if (comms) take_sent(history, comms);
    for (int m = 0; m < Z3D_HISTORY_MEMORIES && memory; m++)
        history->memory[m] = number_up_to(memory, z3d_history_memory_name(m), MOST_BYTES);
    return Z3D_OK;
}

static z3d_status take_event(z3d_history *history, const z3d_json *line) {
    int64_t step;
    Z3D_TRY(z3d_grow(history->events, &history->events_capacity, sizeof *history->event,
                     "a run's events", &history->event));
    z3d_history_event *event = &history->event[history->events++];
    z3d_json_int(z3d_json_member(line, "step"), &step); /* the line has a step */
    *event = (z3d_history_event){.step = step,
                                 .time = number_up_to(line, "time", MOST_TIME),
                                 .seconds = number_of(line, "seconds"),
                                 .event = strdup(z3d_json_text(line, "event")),
                                 .detail = strdup(z3d_json_text(line, "detail")),
                                 .device = strdup(z3d_json_text(line, "device")),
                                 .type = strdup(z3d_json_text(line, "type")),
                                 .peak_tflops = number_up_to(line, "peak_tflops", MOST_TFLOPS)};
    return event->event && event->detail && event->device && event->type
               ? Z3D_OK
               : Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for an event");
}

/* ---- files ---- */

typedef z3d_status (*taker)(z3d_history *history, const z3d_json *line);

static z3d_status read_line(z3d_history *history, const char *text, size_t length, const char *path,
                            int64_t number, taker take) {
    z3d_json *line;
    int64_t step;
    Z3D_TRY(z3d_json_parse_line(text, length, path, number, NULL, &line));
    z3d_status status = Z3D_OK;
    if (!z3d_json_int(z3d_json_member(line, "step"), &step) || step < 0 || step > MOST_STEPS)
        status = Z3D_ERROR(Z3D_ERR_DATA, "%s:%lld: this line has no step", path, (long long)number);
    if (status == Z3D_OK) status = take(history, line);
    z3d_json_free(line);
    return status;
}

/* A run writes whole lines. Only the last one may be incomplete: the run was killed, or writes the
 * line now. */
static z3d_status read_lines(z3d_history *history, FILE *file, const char *path, taker take) {
    char *text = NULL;
    size_t capacity = 0;
    int64_t number = 0;
    z3d_status status = Z3D_OK;
    errno = 0;
    for (ssize_t length; status == Z3D_OK && (length = getline(&text, &capacity, file)) > 0;) {
        bool whole = text[length - 1] == '\n';
        number++;
        status = read_line(history, text, (size_t)(length - whole), path, number, take);
        if (status != Z3D_ERR_DATA || whole) continue;
        z3d_log(Z3D_LOG_WARN, "%s:%lld: the last line is incomplete: it is left out", path,
                (long long)number);
        status = Z3D_OK;
    }
    if (status == Z3D_OK && ferror(file))
        status = Z3D_ERROR(Z3D_ERR_IO, "%s: cannot read it: %s", path, strerror(errno));
    free(text);
    return status;
}

/* needed: the end of the error if the file is missing; NULL: it may be missing. */
static z3d_status read_file(z3d_history *history, const char *path, const char *needed,
                            taker take) {
    FILE *file = fopen(path, "re");
    if (!file && !needed && errno == ENOENT) return Z3D_OK;
    if (!file)
        return Z3D_ERROR(Z3D_ERR_IO, "cannot open %s: %s%s", path, strerror(errno),
                         needed ? needed : "");
    z3d_status status = read_lines(history, file, path, take);
    fclose(file);
    return status;
}

static z3d_status begin(const char *path, z3d_history *out) {
    *out = (z3d_history){.name = strdup(path)};
    for (int m = 0; m < Z3D_HISTORY_MEMORIES; m++) out->memory[m] = NAN;
    return out->name ? Z3D_OK : Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for a file's name");
}

static z3d_status read_events(const char *folder, z3d_history *out) {
    char *path;
    Z3D_TRY(z3d_join_path(folder, "events.jsonl", &path));
    z3d_status status = read_file(out, path, NULL, take_event);
    free(path);
    return status;
}

z3d_status z3d_history_read_events(const char *folder, z3d_history *out) {
    Z3D_TRY(begin(folder, out));
    return read_events(folder, out);
}

z3d_status z3d_history_read(const char *path, z3d_history *out) {
    z3d_string metrics = {0};
    Z3D_TRY(begin(path, out));
    bool folder = z3d_is_folder(path);
    z3d_string_append(&metrics, "%s%s", path, folder ? "/metrics.jsonl" : "");
    z3d_status status =
        metrics.failed
            ? Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for a file's name")
            : read_file(out, metrics.text, "; expected a run's folder (run.dir)", take_metrics);
    if (status == Z3D_OK && folder) status = read_events(path, out);
    z3d_string_free(&metrics);
    return status;
}

void z3d_history_release(z3d_history *history) {
    for (int c = 0; c < Z3D_COLUMN_COUNT; c++) {
        free(history->steps.column[c]);
        free(history->validations.column[c]);
    }
    for (int i = 0; i < history->events; i++) {
        free(history->event[i].event);
        free(history->event[i].detail);
        free(history->event[i].device);
        free(history->event[i].type);
    }
    free(history->event);
    free(history->name);
    *history = (z3d_history){.name = NULL};
}
