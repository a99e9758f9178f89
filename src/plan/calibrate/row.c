/* Rows of a table as configurations. */
#include "src/plan/calibrate/row.h"

#include <stdio.h>
#include <string.h>

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

z3d_status z3d_row_assign(const z3d_csv *csv, int column, z3d_config *config) {
    enum { LONGEST = 192 };
    char assignment[LONGEST];
    const char *field = csv->field[column];
    if (field[0] == '\0') return Z3D_OK;
    int length = snprintf(assignment, sizeof assignment, "%s=%s", csv->column[column], field);
    if (length >= LONGEST) return z3d_csv_refuse(csv, "a long field", field);
    z3d_status status = z3d_config_override(config, assignment);
    return status == Z3D_OK ? Z3D_OK
                            : z3d_error_context(status, "%.200s, line %d", csv->path, csv->line);
}

z3d_status z3d_row_ranks(const z3d_csv *csv, int column, int *out) {
    int64_t ranks;
    if (z3d_parse_int(csv->field[column], &ranks) != Z3D_OK || ranks < 1 || ranks > 1000000)
        return z3d_csv_refuse(csv, "ranks is no number from 1 to 1000000", csv->field[column]);
    *out = (int)ranks;
    return Z3D_OK;
}
