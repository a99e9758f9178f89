/* Rows of tables as configurations; measured steps, read from a CSV file. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/plan/calibrate/calibrate.h"
#include "src/plan/choose/choose.h"

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
               {"micro_batch", "train_micro_batch_size_per_gpu"},
               {"intermediate_size", "model.intermediate_size"},
               {"num_key_value_heads", "model.num_key_value_heads"}};

z3d_status z3d_row_name_keys(z3d_csv *csv) {
    for (int i = 0; i < csv->columns; i++)
        for (size_t c = 0; c < sizeof columns / sizeof *columns; c++)
            if (strcmp(csv->column[i], columns[c].name) == 0) csv->column[i] = columns[c].key;
    return z3d_csv_refuse_twins(csv);
}

z3d_status z3d_row_context(const z3d_csv *csv, z3d_status status) {
    if (status == Z3D_OK) return status;
    return z3d_error_context(status, "%.200s, line %d", csv->path, csv->line);
}

z3d_status z3d_row_assign(const z3d_csv *csv, int column, z3d_config *config) {
    enum { LONGEST = 192 };
    char assignment[LONGEST];
    const char *field = csv->field[column];
    if (field[0] == '\0') return Z3D_OK;
    int length = snprintf(assignment, sizeof assignment, "%s=%s", csv->column[column], field);
    if (length >= LONGEST) return z3d_csv_refuse(csv, "a long field", field);
    return z3d_row_context(csv, z3d_config_override(config, assignment));
}

z3d_status z3d_row_ranks(const z3d_csv *csv, int column, int *out) {
    int64_t ranks;
    if (z3d_parse_int(csv->field[column], &ranks) != Z3D_OK || ranks < 1 || ranks > 1000000)
        return z3d_csv_refuse(csv, "ranks is no number from 1 to 1000000", csv->field[column]);
    *out = (int)ranks;
    return Z3D_OK;
}

/* ---- measured steps ---- */

typedef struct reader {
    z3d_csv csv;
    z3d_string config; /* the keys that differ from their defaults: each row begins with them */
    const z3d_hardware *hardware;
    z3d_measured_steps *to;
} reader;

#define HEADER                                                                                     \
    "expected a header such as layers,hidden,heads,sequence,tensor,pipeline,batch,micro_batch,"    \
    "ranks,seconds; every other column is a key of the configuration"

static z3d_status check_header(z3d_csv *csv) {
    Z3D_TRY(z3d_row_name_keys(csv));
    const bool ranks = z3d_csv_field(csv, "ranks") != NULL;
    if (ranks && z3d_csv_field(csv, "seconds")) return Z3D_OK;
    return z3d_csv_refuse(
        csv, ranks ? "there is no column seconds; " HEADER : "there is no column ranks; " HEADER,
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

static z3d_status read_fields(reader *r, z3d_config *config) {
    const z3d_csv *csv = &r->csv;
    int ranks = 0;
    double seconds = 0;
    Z3D_TRY(z3d_config_read_text(config, r->config.text, r->config.length, "the configuration"));
    for (int i = 0; i < csv->columns; i++) {
        if (strcmp(csv->column[i], "ranks") == 0)
            Z3D_TRY(z3d_row_ranks(csv, i, &ranks));
        else if (strcmp(csv->column[i], "seconds") != 0)
            Z3D_TRY(z3d_row_assign(csv, i, config));
        else if (z3d_parse_float(csv->field[i], &seconds) != Z3D_OK)
            return z3d_csv_refuse(csv, "seconds is no number", csv->field[i]);
    }
    return z3d_row_context(csv, z3d_measured_steps_add(config, r->hardware, ranks, seconds, r->to));
}

static z3d_status read_step(reader *r) {
    z3d_config *config;
    Z3D_TRY(z3d_config_create(&config));
    z3d_status status = read_fields(r, config);
    z3d_config_destroy(config);
    return status;
}

static z3d_status read_rows(reader *r) {
    bool found;
    Z3D_TRY(check_header(&r->csv));
    for (;;) {
        Z3D_TRY(z3d_csv_next(&r->csv, &found));
        if (!found) return Z3D_OK;
        Z3D_TRY(read_step(r));
    }
}

void z3d_measured_steps_free(z3d_measured_steps *steps) {
    for (int i = 0; i < steps->count; i++) z3d_case_destroy(steps->step[i].of);
    free(steps->step);
    *steps = (z3d_measured_steps){0};
}

z3d_status z3d_measured_steps_read(const z3d_config *config, const z3d_hardware *hardware,
                                   const char *path, z3d_measured_steps *to) {
    reader r = {.hardware = hardware, .to = to};
    Z3D_TRY(z3d_csv_open(path, &r.csv));
    z3d_config_write_changed(config, (const char *const[]){NULL}, &r.config);
    const z3d_status status =
        r.config.failed ? Z3D_ERROR(Z3D_ERR_MEMORY, "not enough memory for a configuration")
                        : read_rows(&r);
    z3d_csv_close(&r.csv);
    z3d_string_free(&r.config);
    return status;
}
