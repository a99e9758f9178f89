/* Reads a rank's timeline. zero/execute/trace.c writes it: a line for each event. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/train/trace/trace.h"

enum { LINE = 4096 }; /* bytes; longer than any line of a timeline */

typedef struct reader {
    const char *path;
    FILE *file;
    char line[LINE];
    int64_t number;
    z3d_trace_head *head;
    bool has_head;
    int64_t step;   /* the present or the last training step; 0: none */
    int next_entry; /* its next entry; the number of entries: the step is complete */
    double last;    /* when the last instruction began */
} reader;

static z3d_status refuse(const reader *r, const char *why) {
    return Z3D_ERROR(Z3D_ERR_DATA, "%.300s:%lld: %s", r->path, (long long)r->number, why);
}

/* ---- members ---- */

/* *out is unchanged if the member is missing. */
static bool get_int(const z3d_json *object, const char *key, int low, int *out) {
    const z3d_json *value = z3d_json_member(object, key);
    int64_t number;
    if (!value) return true;
    if (!z3d_json_int(value, &number) || number < low || number > INT32_MAX) return false;
    *out = (int)number;
    return true;
}

/* Microseconds to seconds; at most a century. */
static bool get_seconds(const z3d_json *object, const char *key, double *out) {
    const z3d_json *value = z3d_json_member(object, key);
    if (!value || value->type != Z3D_JSON_NUMBER) return false;
    *out = 1e-6 * strtod(value->text, NULL);
    return *out >= 0 && *out < 3e9;
}

/* ---- the first event ---- */

static bool read_run(const z3d_json *args, z3d_trace_head *head) {
    const char *run = z3d_json_text(args, "run");
    if (!*run || strlen(run) >= sizeof head->run) return false;
    for (const char *c = run; *c; c++)
        if (*c < ' ' || *c > '~') return false;
    snprintf(head->run, sizeof head->run, "%s", run);
    return true;
}

static z3d_status read_head(reader *r, const z3d_json *json) {
    z3d_trace_head *head = r->head;
    const z3d_json *args = z3d_json_member(json, "args");
    if (strcmp(z3d_json_text(json, "name"), "zero3d") != 0)
        return refuse(r, "the first event does not say which run it is of: this is no timeline of "
                         "`zero3d train --trace`, or of an older version");
    *head = (z3d_trace_head){
        .mesh = {.size[Z3D_AXIS_DATA_OUTER] = 1, .rank = -1}, .node = -1, .entries = -1};
    bool good = read_run(args, head) && get_int(json, "pid", 0, &head->mesh.rank) &&
                get_int(args, "node", 0, &head->node) &&
                get_int(args, "entries", 0, &head->entries) &&
                get_int(args, "data", 1, &head->mesh.size[Z3D_AXIS_DATA_INNER]);
#define X(NAME, name) good = good && get_int(args, #name, 1, &head->mesh.size[Z3D_AXIS_##NAME]);
    Z3D_AXIS_MAP(X)
#undef X
    if (!good || head->node < 0 || head->entries < 0)
        return refuse(r, "the first event does not have the run, its sizes and its node");
    if (z3d_mesh_check(&head->mesh) != Z3D_OK) return refuse(r, z3d_error_message());
    r->has_head = true;
    return Z3D_OK;
}

/* ---- events ---- */

static bool opcode_of(const char *name, z3d_opcode *out) {
    for (int o = 0; o < Z3D_OPCODE_COUNT; o++) {
        *out = (z3d_opcode)o;
        if (strcmp(z3d_opcode_name(*out), name) == 0) return true;
    }
    return false;
}

static bool read_about(const z3d_json *json, z3d_trace_event *e) {
    const z3d_json *args = z3d_json_member(json, "args");
    const char *phase = z3d_json_text(args, "phase");
    *e = (z3d_trace_event){
        .step = -1, .entry = -1, .chunk = -1, .micro = -1, .ticket = -1, .peer = -1};
    e->wait = strcmp(z3d_json_text(json, "cat"), "wait") == 0;
    e->phase = strcmp(phase, "start") == 0  ? Z3D_PHASE_START
               : strcmp(phase, "wait") == 0 ? Z3D_PHASE_WAIT
                                            : Z3D_PHASE_WHOLE;
    return (e->wait || opcode_of(z3d_json_text(json, "cat"), &e->opcode)) &&
           z3d_json_int(z3d_json_member(args, "step"), &e->step) &&
           get_int(args, "entry", 0, &e->entry) && get_int(args, "chunk", 0, &e->chunk) &&
           get_int(args, "micro", 0, &e->micro) && get_int(args, "ticket", 0, &e->ticket) &&
           get_int(args, "peer", 0, &e->peer);
}

/* Checks that no instruction of training is missing. */
static z3d_status follow(reader *r, const z3d_trace_event *e) {
    int entries = r->head->entries;
    bool next = r->step == 0 || r->next_entry == entries; /* a new step must begin */
    char text[192];
    if (next ? e->entry == 0 && e->step > r->step
             : e->entry == r->next_entry && e->step == r->step) {
        r->step = e->step;
        r->next_entry = e->entry + 1;
        return Z3D_OK;
    }
    snprintf(text, sizeof text,
             "instruction %d of step %lld follows instruction %d of step %lld, which has %d: lines "
             "are missing",
             e->entry, (long long)e->step, r->next_entry - 1, (long long)r->step, entries);
    return refuse(r, text);
}

static z3d_status read_event(reader *r, const z3d_json *json, z3d_trace_event *e, bool *training) {
    const char *program = z3d_json_text(z3d_json_member(json, "args"), "program");
    double seconds;
    if (!read_about(json, e) || !get_seconds(json, "ts", &e->begin) ||
        !get_seconds(json, "dur", &seconds))
        return refuse(r, "this is no event of `zero3d train --trace`");
    e->end = e->begin + seconds;
    *training = e->wait || strcmp(program, "train") == 0;
    if (e->begin < (e->wait ? 0 : r->last))
        return refuse(r, "the event begins before the last one");
    if (e->wait) return Z3D_OK;
    r->last = e->begin;
    return *training ? follow(r, e) : Z3D_OK;
}

static z3d_status take_line(reader *r, const z3d_json *json, z3d_trace_taker take, void *context) {
    z3d_trace_event event;
    z3d_trace_line line = {.json = json};
    bool training = false, named = strcmp(z3d_json_text(json, "ph"), "M") == 0;
    int rank = -1;
    if (!r->has_head) return read_head(r, json);
    if (!get_int(json, "pid", 0, &rank) || rank != r->head->mesh.rank)
        return refuse(r, "the event is of another rank than the first one");
    if (!named) Z3D_TRY(read_event(r, json, &event, &training));
    if (training) line.event = &event;
    if (!named) line.begin = event.begin;
    return take(context, &line);
}

/* ---- lines ---- */

/* The next line, without its end. *length 0: the file has ended; an incomplete last line does not
 * count. */
static z3d_status next_line(reader *r, size_t *length) {
    errno = 0;
    r->number++;
    bool more = fgets(r->line, LINE, r->file) != NULL;
    if (ferror(r->file)) return Z3D_ERROR(Z3D_ERR_IO, "%.300s: %s", r->path, strerror(errno));
    *length = more ? strlen(r->line) : 0;
    if (!more) return Z3D_OK;
    if (*length > 0 && r->line[*length - 1] != '\n' && !feof(r->file))
        return refuse(r, "the line is too long for an event of `zero3d train --trace`");
    if (*length == 0 || r->line[*length - 1] != '\n') {
        *length = 0;
        return Z3D_OK;
    }
    r->line[--*length] = '\0';
    return Z3D_OK;
}

/* Reads to the last line; if the run still runs or was killed, to the end of the file. */
static z3d_status read_lines(reader *r, z3d_trace_taker take, void *context) {
    size_t length;
    Z3D_TRY(next_line(r, &length));
    if (strcmp(r->line, "[") != 0 || length == 0)
        return refuse(r, "expected '[' alone: this is no timeline of `zero3d train --trace`");
    for (;;) {
        z3d_json *json;
        Z3D_TRY(next_line(r, &length));
        if (length == 0 || strcmp(r->line, "{}]") == 0) break;
        if (r->line[length - 1] == ',') length--;
        Z3D_TRY(z3d_json_parse_line(r->line, length, r->path, r->number, NULL, &json));
        z3d_status status = take_line(r, json, take, context);
        z3d_json_free(json);
        Z3D_TRY(status);
    }
    return r->has_head ? Z3D_OK : refuse(r, "the file has no event");
}

static z3d_status missing(const z3d_trace_run *run, int rank) {
    if (rank == 0)
        return Z3D_ERROR(Z3D_ERR_DATA,
                         "%.300s has no trace-rank0.json; train with --trace (or "
                         "training.trace_steps=N) writes a timeline of each rank into its run.dir",
                         run->folder);
    return Z3D_ERROR(Z3D_ERR_DATA,
                     "%.300s/trace-rank%d.json is missing: the run had %d ranks; copy the file of "
                     "each rank into this folder",
                     run->folder, rank, run->count);
}

z3d_status z3d_trace_read_rank(const z3d_trace_run *run, int rank, z3d_trace_head *head,
                               z3d_trace_taker take, void *context) {
    z3d_string path = {0};
    reader r = {.head = head};
    z3d_string_append(&path, "%s/trace-rank%d.json", run->folder, rank);
    if (path.failed) return Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for a file's name");
    r.path = path.text;
    r.file = fopen(path.text, "r");
    const int reason = errno;
    z3d_status status;
    if (r.file)
        status = read_lines(&r, take, context);
    else if (access(path.text, F_OK) != 0)
        status = missing(run, rank);
    else
        status = Z3D_ERROR(Z3D_ERR_IO, "%.300s: %s", path.text, strerror(reason));
    if (r.file) fclose(r.file);
    z3d_string_free(&path);
    return status;
}
