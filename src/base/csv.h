/* Tables in CSV files: a header that names columns, then a line for each row. Fields are cut at
 * commas, but not within double quotes, which go; spaces around a field go, too. Empty lines and
 * lines that begin with `#` say nothing. */
#ifndef ZERO3D_BASE_CSV_H
#define ZERO3D_BASE_CSV_H

#include <stdbool.h>

#include "src/base/status.h"

enum { Z3D_CSV_COLUMNS = 32 };

typedef struct z3d_csv {
    const char *path;
    int line; /* of the header or the latest row, from 1 */
    int columns;
    const char *column[Z3D_CSV_COLUMNS]; /* its name; the caller may set another one */
    char *field[Z3D_CSV_COLUMNS];        /* of the latest row */
    char *text, *next;
} z3d_csv;

/* Reads the file and its header; `path` must outlive it. Fields and names live until
 * z3d_csv_close. Errors: ERR_IO; ERR_CONFIG with path and line. After an error nothing is open. */
z3d_status z3d_csv_open(const char *path, z3d_csv *out);
/* The next row, if there is one. Errors: ERR_CONFIG: not as many fields as columns. */
z3d_status z3d_csv_next(z3d_csv *csv, bool *found);
void z3d_csv_close(z3d_csv *csv);
/* The field of a column in the latest row; NULL: there is no such column. */
const char *z3d_csv_field(const z3d_csv *csv, const char *column);
/* ERR_CONFIG: "path, line 3: WHAT: TEXT". text: NULL: none. */
z3d_status z3d_csv_refuse(const z3d_csv *csv, const char *what, const char *text);
/* ERR_CONFIG if two columns have one name. */
z3d_status z3d_csv_refuse_twins(const z3d_csv *csv);

#endif
