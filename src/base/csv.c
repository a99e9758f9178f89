/* Reading CSV files. */
#include "src/base/csv.h"

#include <stdlib.h>
#include <string.h>

#include "src/base/strings.h"

enum { FILE_LIMIT = 1 << 20 };

z3d_status z3d_csv_refuse(const z3d_csv *csv, const char *what, const char *text) {
    char shown[Z3D_SHOWN + 1];
    return Z3D_ERROR(Z3D_ERR_CONFIG, "%.200s, line %d: %s%s%s", csv->path, csv->line, what,
                     text ? ": " : "", text ? z3d_shown(text, shown) : "");
}

z3d_status z3d_csv_refuse_twins(const z3d_csv *csv) {
    for (int i = 0; i < csv->columns; i++)
        for (int other = 0; other < i; other++)
            if (strcmp(csv->column[i], csv->column[other]) == 0)
                return z3d_csv_refuse(csv, "two columns mean the same", csv->column[i]);
    return Z3D_OK;
}

/* Cuts the spaces off the end of a field. */
static char *end_field(const char *field, char *end) {
    while (end > field && strchr(" \t", end[-1])) end--;
    *end = '\0';
    return end + 1;
}

/* Returns the number of fields; Z3D_CSV_COLUMNS + 1: too many. */
static int split(char *text, char *field[Z3D_CSV_COLUMNS]) {
    int count = 0;
    bool quoted = false;
    char *to = text;
    field[count++] = to;
    for (const char *from = text; *from; from++) {
        if (*from == '"') {
            quoted = !quoted;
        } else if (*from == ',' && !quoted) {
            to = end_field(field[count - 1], to);
            if (count == Z3D_CSV_COLUMNS) return Z3D_CSV_COLUMNS + 1;
            field[count++] = to;
        } else if (*from != '\r' && !(strchr(" \t", *from) && to == field[count - 1])) {
            *to++ = *from;
        }
    }
    end_field(field[count - 1], to);
    return count;
}

/* The next line that is neither empty nor a comment; NULL: the text has ended. */
static char *next_line(z3d_csv *csv) {
    for (char *at = csv->next; at; at = csv->next) {
        csv->next = strchr(at, '\n');
        if (csv->next) *csv->next++ = '\0';
        csv->line++;
        if (at[strspn(at, " \t\r")] != '\0' && *at != '#') return at;
    }
    return NULL;
}

static z3d_status read_header(z3d_csv *csv) {
    char *line = next_line(csv);
    if (!line) return z3d_csv_refuse(csv, "no header", NULL);
    csv->columns = split(line, csv->field);
    if (csv->columns > Z3D_CSV_COLUMNS) return z3d_csv_refuse(csv, "more than 32 columns", NULL);
    for (int i = 0; i < csv->columns; i++) csv->column[i] = csv->field[i];
    return Z3D_OK;
}

z3d_status z3d_csv_open(const char *path, z3d_csv *out) {
    static const char byte_order_mark[] = "\xef\xbb\xbf";
    const size_t mark = sizeof byte_order_mark - 1;
    size_t length;
    *out = (z3d_csv){.path = path};
    Z3D_TRY(z3d_read_file(path, FILE_LIMIT, &out->text, &length));
    out->next = strncmp(out->text, byte_order_mark, mark) == 0 ? out->text + mark : out->text;
    z3d_status status =
        memchr(out->text, 0, length)
            ? Z3D_ERROR(Z3D_ERR_CONFIG, "%.200s: not a text file: it has a zero byte", path)
            : read_header(out);
    if (status != Z3D_OK) z3d_csv_close(out);
    return status;
}

z3d_status z3d_csv_next(z3d_csv *csv, bool *found) {
    char *line = next_line(csv);
    *found = line != NULL;
    if (line && split(line, csv->field) != csv->columns)
        return z3d_csv_refuse(csv, "not as many fields as the header has columns", NULL);
    return Z3D_OK;
}

const char *z3d_csv_field(const z3d_csv *csv, const char *column) {
    for (int i = 0; i < csv->columns; i++)
        if (strcmp(csv->column[i], column) == 0) return csv->field[i];
    return NULL;
}

void z3d_csv_close(z3d_csv *csv) {
    free(csv->text);
    csv->text = csv->next = NULL;
}
