/* Reads a user's own schedule from a CSV file and checks it; writes such files. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "parallel/schedule/internal.h"

enum { MAX_FILE_BYTES = 256 << 20, COLUMNS = 4 };
static const char header[] = "stage,pass,chunk,micro";

typedef struct row {
    int stage, line;
    z3d_task task;
} row;

typedef struct reader {
    const char *path;
    int stages, line; /* line: 1-based */
    bool has_header;
    row *row;
    int count, most;
} reader;

static char *trim(char *text) {
    static const char blanks[] = " \t\r";
    text += strspn(text, blanks);
    size_t length = strlen(text);
    while (length > 0 && strchr(blanks, text[length - 1])) length--;
    text[length] = '\0';
    return text;
}

/* Digits only: at most nine, so that they fit into an int. */
static z3d_status read_index(const char *what, const char *text, int *out) {
    char shown[Z3D_SHOWN + 1];
    size_t length = strlen(text);
    if (length == 0 || length > 9 || strspn(text, "0123456789") != length)
        return Z3D_ERROR(Z3D_ERR_CONFIG, "%s '%s' is not a number from 0 to 999999999", what,
                         z3d_shown(text, shown));
    *out = atoi(text);
    return Z3D_OK;
}

static z3d_status read_pass(const char *text, z3d_pass *out) {
    char shown[Z3D_SHOWN + 1];
    for (int pass = 0; pass < Z3D_PASS_COUNT; pass++) {
        *out = (z3d_pass)pass;
        if (strcmp(text, z3d_pass_name(*out)) == 0) return Z3D_OK;
    }
    return Z3D_ERROR(Z3D_ERR_CONFIG,
                     "there is no pass '%s'; use forward, backward, backward_input or "
                     "backward_weight",
                     z3d_shown(text, shown));
}

static z3d_status read_header(reader *r, const char *text) {
    char shown[Z3D_SHOWN + 1];
    r->has_header = true;
    if (strcmp(text, header) == 0) return Z3D_OK;
    return Z3D_ERROR(Z3D_ERR_CONFIG, "expected the header '%s', not '%s'", header,
                     z3d_shown(text, shown));
}

static z3d_status read_row(reader *r, char *text) {
    char *column[COLUMNS] = {text}, shown[Z3D_SHOWN + 1];
    int count = 1;
    z3d_shown(text, shown);
    for (char *at = text; (at = strchr(at, ',')) != NULL; count++) {
        *at++ = '\0';
        if (count < COLUMNS) column[count] = at;
    }
    if (count != COLUMNS)
        return Z3D_ERROR(Z3D_ERR_CONFIG, "expected %d columns (%s), not '%s'", COLUMNS, header,
                         shown);
    if (r->count == r->most)
        return Z3D_ERROR(Z3D_ERR_CONFIG,
                         "more rows than passes of all chunks and micro-batches (%d)", r->most);
    row *out = &r->row[r->count++];
    out->line = r->line;
    Z3D_TRY(read_index("stage", trim(column[0]), &out->stage));
    Z3D_TRY(read_pass(trim(column[1]), &out->task.pass));
    Z3D_TRY(read_index("chunk", trim(column[2]), &out->task.chunk));
    Z3D_TRY(read_index("micro-batch", trim(column[3]), &out->task.micro));
    if (out->stage >= r->stages)
        return Z3D_ERROR(Z3D_ERR_CONFIG, "there is no pipeline stage %d; stages are 0 to %d",
                         out->stage, r->stages - 1);
    return Z3D_OK;
}

static z3d_status read_line(reader *r, char *text, size_t length) {
    if (strlen(text) != length)
        return Z3D_ERROR(Z3D_ERR_CONFIG, "the line has a byte 0; expected text");
    text = trim(text);
    if (*text == '\0' || *text == '#') return Z3D_OK;
    return r->has_header ? read_row(r, text) : read_header(r, text);
}

static z3d_status read_lines(reader *r, char *text, size_t length) {
    char *end = text + length;
    for (char *at = text, *next; at < end; at = next) {
        char *newline = memchr(at, '\n', (size_t)(end - at));
        if (!newline) newline = end; /* the NUL after the text */
        next = newline + 1;
        *newline = '\0';
        r->line++;
        z3d_status status = read_line(r, at, (size_t)(newline - at));
        if (status != Z3D_OK) return z3d_error_context(status, "%s, line %d", r->path, r->line);
    }
    if (r->has_header) return Z3D_OK;
    return Z3D_ERROR(Z3D_ERR_CONFIG,
                     "%s: expected a schedule with the header '%s'; the file has no line with text",
                     r->path, header);
}

/* Sorts rows by stage, in the order of the file, and notes the line of each task. */
static void place_rows(const reader *r, z3d_schedule *schedule, int *line) {
    int *first = schedule->first; /* until the rows are placed, first[s + 1] belongs to stage s */
    for (int i = 0; i < r->count; i++) first[r->row[i].stage + 1]++;
    for (int stage = 0; stage < r->stages; stage++) first[stage + 1] += first[stage];
    for (int i = r->count; i-- > 0;) {
        int at = --first[r->row[i].stage + 1];
        schedule->task[at] = r->row[i].task;
        line[at] = r->row[i].line;
    }
    for (int stage = 0; stage < r->stages; stage++) first[stage] = first[stage + 1];
    first[r->stages] = r->count;
}

static z3d_status check_file(const reader *r, const z3d_schedule *schedule, const int *line) {
    int task;
    z3d_status status = z3d_schedule_check_task(schedule, &task);
    if (status == Z3D_OK) return Z3D_OK;
    if (task >= 0) return z3d_error_context(status, "%s, line %d", r->path, line[task]);
    return z3d_error_context(status, "%s", r->path);
}

z3d_status z3d_schedule_read(const char *path, int stages, int chunks, int micros,
                             z3d_schedule **out) {
    reader r = {.path = path, .stages = stages};
    z3d_schedule *schedule;
    z3d_status status;
    char *text = NULL;
    size_t length;
    int *line = NULL;
    *out = NULL;
    Z3D_TRY(z3d_schedule_new(Z3D_SCHEDULE_FILE, stages, chunks, micros, &schedule));
    r.most = chunks * micros * 3;
    Z3D_TRY_GOTO(status, z3d_read_file(path, MAX_FILE_BYTES, &text, &length), end);
    Z3D_TRY_GOTO(status, z3d_new((size_t)r.most, sizeof *r.row, "a schedule", &r.row), end);
    Z3D_TRY_GOTO(status, z3d_new((size_t)r.most, sizeof *line, "a schedule", &line), end);
    Z3D_TRY_GOTO(status, read_lines(&r, text, length), end);
    place_rows(&r, schedule, line);
    status = check_file(&r, schedule, line);
end:
    free(text);
    free(r.row);
    free(line);
    if (status == Z3D_OK)
        *out = schedule;
    else
        z3d_schedule_destroy(schedule);
    return status;
}

z3d_status z3d_schedule_write(const z3d_schedule *schedule, const char *path) {
    FILE *file = fopen(path, "we");
    if (!file) return Z3D_ERROR(Z3D_ERR_IO, "cannot open %s: %s", path, strerror(errno));
    fprintf(file, "# schedule %s: %d pipeline stages, %d chunks, %d micro-batches\n%s\n",
            z3d_schedule_name(schedule->kind), schedule->stages, schedule->chunks, schedule->micros,
            header);
    for (int stage = 0; stage < schedule->stages; stage++) {
        for (int i = schedule->first[stage]; i < schedule->first[stage + 1]; i++) {
            z3d_task task = schedule->task[i];
            fprintf(file, "%d,%s,%d,%d\n", stage, z3d_pass_name(task.pass), task.chunk, task.micro);
        }
    }
    bool failed = ferror(file) != 0;
    if (fclose(file) == 0 && !failed) return Z3D_OK;
    return Z3D_ERROR(Z3D_ERR_IO, "cannot write %s: %s", path, strerror(errno));
}
