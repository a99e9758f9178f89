/* Rows of a table as configurations: a column is a key, or a short name of one. */
#ifndef ZERO3D_PLAN_CALIBRATE_ROW_H
#define ZERO3D_PLAN_CALIBRATE_ROW_H

#include "src/base/config.h"
#include "src/base/csv.h"

/* Short names of columns become those of their keys. ERR_CONFIG if two columns mean the same. */
z3d_status z3d_row_name_keys(z3d_csv *csv);
/* Sets the key of a column to its value in the current row; an empty field changes nothing. */
z3d_status z3d_row_assign(const z3d_csv *csv, int column, z3d_config *config);
/* Reads the number of ranks in this column. */
z3d_status z3d_row_ranks(const z3d_csv *csv, int column, int *out);

#endif
