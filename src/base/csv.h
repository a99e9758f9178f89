/* Reads tables from CSV files: a header with the names of the columns, then one line for each row.
 * Commas separate fields, except inside double quotes; the quotes and the spaces around a field are
 * removed. Empty lines and lines that begin with `#` are skipped. */
#ifndef ZERO3D_BASE_CSV_H
#define ZERO3D_BASE_CSV_H

#include <stdbool.h>

#include "src/base/status.h"

enum { Z3D_CSV_COLUMNS = 32 };

typedef struct z3d_csv {
    const char *path;
    int line; /* line number of the header or the latest row, from 1 */
    int columns;
    const char *column[Z3D_CSV_COLUMNS]; /* names of the columns; the caller may replace a name */
    char *field[Z3D_CSV_COLUMNS];        /* fields of the latest row */
    char *text, *next;
} z3d_csv;

/* Reads the file and its header; `path` must outlive *out. Fields and names are valid until
 * z3d_csv_close. Errors: ERR_IO; ERR_CONFIG with path and line. After an error nothing is open. */
z3d_status z3d_csv_open(const char *path, z3d_csv *out);
/* Reads the next row; *found false: the file has ended. ERR_CONFIG: the number of fields is not the
 * number of columns. */
z3d_status z3d_csv_next(z3d_csv *csv, bool *found);
void z3d_csv_close(z3d_csv *csv);
/* The field of a column in the latest row; NULL: no such column. */
const char *z3d_csv_field(const z3d_csv *csv, const char *column);
/* Returns ERR_CONFIG, "path, line 3: WHAT: TEXT"; text may be NULL. */
z3d_status z3d_csv_refuse(const z3d_csv *csv, const char *what, const char *text);
/* ERR_CONFIG if two columns have the same name. */
z3d_status z3d_csv_refuse_twins(const z3d_csv *csv);

#endif
