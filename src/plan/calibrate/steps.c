/* Measured steps, read from a CSV file. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/plan/calibrate/calibrate.h"
#include "src/plan/choose/choose.h"

enum { FILE_LIMIT = 1 << 20, COLUMNS = 32, PATH = 96 };

/* Columns with a name that is shorter than their key's. */
static const struct column {
    const char *name, *key;
} columns[] = {{"layers", "model.num_layers"},
               {"hidden", "model.hidden_size"},
               {"heads", "model.num_attention_heads"},
               {"sequence", "model.seq_length"},
               {"tensor", "parallel.tensor_model_parallel_size"},
               {"pipeline", "parallel.pipeline_model_parallel_size"},
               {"batch", "train_batch_size"},
               {"micro_batch", "train_micro_batch_size_per_gpu"}};

typedef struct reader {
    const char *path;
    int line; /* from 1 */
    z3d_string config;
    const z3d_hardware *hardware;
    int columns;
    char *key[COLUMNS];
    z3d_measured_steps *to;
} reader;

static z3d_status refuse(const reader *r, const char *what, const char *text) {
    char shown[Z3D_SHOWN + 1];
    return Z3D_ERROR(Z3D_ERR_CONFIG, "%.200s, line %d: %s%s%s", r->path, r->line, what,
                     text ? ": " : "", text ? z3d_shown(text, shown) : "");
}

/* Ends a field where its last spaces begin. */
static char *end_field(const char *field, char *end) {
    while (end > field && strchr(" \t", end[-1])) end--;
    *end = '\0';
    return end + 1;
}

/* Cuts `text` at its commas, but not within double quotes, which go. Spaces around a field go, too.
 * Returns the number of fields, COLUMNS + 1: more than there may be. */
static int split(char *text, char *field[COLUMNS]) {
    int count = 0;
    bool quoted = false;
    char *to = text;
    field[count++] = to;
    for (const char *from = text; *from; from++) {
        if (*from == '"') {
            quoted = !quoted;
        } else if (*from == ',' && !quoted) {
            to = end_field(field[count - 1], to);
            if (count == COLUMNS) return COLUMNS + 1;
            field[count++] = to;
        } else if (*from != '\r' && !(strchr(" \t", *from) && to == field[count - 1])) {
            *to++ = *from;
        }
    }
    end_field(field[count - 1], to);
    return count;
}

static z3d_status read_header(reader *r, char *text) {
    bool ranks = false, seconds = false;
    r->columns = split(text, r->key);
    if (r->columns > COLUMNS) return refuse(r, "more than 32 columns", NULL);
    for (int i = 0; i < r->columns; i++) {
        for (size_t c = 0; c < sizeof columns / sizeof *columns; c++)
            if (strcmp(r->key[i], columns[c].name) == 0)
                r->key[i] = (char *)(uintptr_t)columns[c].key;
        for (int other = 0; other < i; other++)
            if (strcmp(r->key[i], r->key[other]) == 0)
                return refuse(r, "two columns mean the same", r->key[i]);
        ranks |= strcmp(r->key[i], "ranks") == 0;
        seconds |= strcmp(r->key[i], "seconds") == 0;
    }
    if (ranks && seconds) return Z3D_OK;
    return refuse(r,
                  "expected a header such as layers,hidden,heads,sequence,tensor,pipeline,batch,"
                  "micro_batch,ranks,seconds; every other column is a key of the configuration",
                  NULL);
}

z3d_status z3d_measured_steps_add(z3d_config *config, const z3d_hardware *hardware, int ranks,
                                  double seconds, z3d_measured_steps *to) {
    if (!(seconds >= 1e-6 && seconds <= 1e6))
        return Z3D_ERROR(Z3D_ERR_CONFIG, "seconds of a step: %g: expected 1e-6 to 1e6", seconds);
    if (!to->step) Z3D_TRY(z3d_new(Z3D_STEPS_MOST, sizeof *to->step, "measured steps", &to->step));
    if (to->count == Z3D_STEPS_MOST)
        return Z3D_ERROR(Z3D_ERR_CONFIG, "more than %d measured steps", Z3D_STEPS_MOST);
    z3d_measured_step *step = &to->step[to->count];
    step->seconds = seconds;
    Z3D_TRY(z3d_choose_nodes(config, (int64_t)hardware->devices));
    Z3D_TRY(z3d_case_create(config, ranks, 0, z3d_case_node(config, hardware), &step->of));
    to->count++;
    return Z3D_OK;
}

/* The configuration with what the line says; an empty field says nothing. */
static z3d_status read_fields(reader *r, char *const *field, z3d_config *config) {
    int64_t ranks = 0;
    double seconds = 0;
    Z3D_TRY(z3d_config_read_text(config, r->config.text, r->config.length, "the configuration"));
    for (int i = 0; i < r->columns; i++) {
        if (strcmp(r->key[i], "ranks") == 0) {
            if (z3d_parse_int(field[i], &ranks) != Z3D_OK || ranks < 1 || ranks > 1000000)
                return refuse(r, "ranks is no number from 1 to 1000000", field[i]);
        } else if (strcmp(r->key[i], "seconds") == 0) {
            if (z3d_parse_float(field[i], &seconds) != Z3D_OK)
                return refuse(r, "seconds is no number", field[i]);
        } else if (field[i][0] != '\0') {
            char assignment[PATH * 2];
            int length = snprintf(assignment, sizeof assignment, "%s=%s", r->key[i], field[i]);
            if (length >= (int)sizeof assignment) return refuse(r, "a long field", field[i]);
            z3d_status status = z3d_config_override(config, assignment);
            if (status != Z3D_OK)
                return z3d_error_context(status, "%.200s, line %d", r->path, r->line);
        }
    }
    z3d_status status = z3d_measured_steps_add(config, r->hardware, (int)ranks, seconds, r->to);
    return status == Z3D_OK ? Z3D_OK
                            : z3d_error_context(status, "%.200s, line %d", r->path, r->line);
}

static z3d_status read_step(reader *r, char *text) {
    char *field[COLUMNS];
    z3d_config *config;
    int count = split(text, field);
    if (count != r->columns) return refuse(r, "not as many fields as the header has columns", NULL);
    Z3D_TRY(z3d_config_create(&config));
    z3d_status status = read_fields(r, field, config);
    z3d_config_destroy(config);
    return status;
}

static z3d_status read_lines(reader *r, char *text) {
    static const char byte_order_mark[] = "\xef\xbb\xbf";
    const size_t mark = sizeof byte_order_mark - 1;
    if (strncmp(text, byte_order_mark, mark) == 0) text += mark;
    for (char *at = text, *next; at; at = next) {
        next = strchr(at, '\n');
        if (next) *next++ = '\0';
        r->line++;
        if (at[strspn(at, " \t\r")] == '\0' || *at == '#') continue;
        Z3D_TRY(r->columns == 0 ? read_header(r, at) : read_step(r, at));
    }
    return r->columns == 0 ? refuse(r, "no header", NULL) : Z3D_OK;
}

void z3d_measured_steps_free(z3d_measured_steps *steps) {
    for (int i = 0; i < steps->count; i++) z3d_case_destroy(steps->step[i].of);
    free(steps->step);
    *steps = (z3d_measured_steps){0};
}

z3d_status z3d_measured_steps_read(const z3d_config *config, const z3d_hardware *hardware,
                                   const char *path, z3d_measured_steps *to) {
    reader r = {.path = path, .hardware = hardware, .to = to};
    char *text;
    size_t length;
    Z3D_TRY(z3d_read_file(path, FILE_LIMIT, &text, &length));
    z3d_config_write_changed(config, (const char *const[]){NULL}, &r.config);
    z3d_status status = Z3D_OK;
    if (r.config.failed)
        status = Z3D_ERROR(Z3D_ERR_MEMORY, "not enough memory for a configuration");
    else if (memchr(text, 0, length))
        status = Z3D_ERROR(Z3D_ERR_CONFIG, "%.200s: not a text file: it has a zero byte", path);
    if (status == Z3D_OK) status = read_lines(&r, text);
    free(text);
    z3d_string_free(&r.config);
    return status;
}
