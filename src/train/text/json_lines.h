/* Texts in JSON: an object in each line of a file, or a file that is one array of objects. */
#ifndef ZERO3D_TRAIN_JSON_LINES_H
#define ZERO3D_TRAIN_JSON_LINES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/base.h"
#include "src/train/text/input.h"

/* ".jsonl" and ".ndjson", also packed, in capitals too. */
bool z3d_is_json_lines(const char *path);
/* ".json", likewise. */
bool z3d_is_json(const char *path);
/* Whether an open file has texts in JSON, whatever its name: its first lines that are not blank (up
 * to three) begin with {" and are JSON objects, or it begins as an array of objects does. */
z3d_status z3d_looks_like_json_lines(int fd, const char *path, bool *out);

/* Reads a file object by object, with as much memory as its longest one needs. A text in memory
 * is read likewise, as lines: z3d_json_lines_of. */
typedef struct z3d_json_lines {
    z3d_input *input;
    const char *path;
    const char *key;    /* of the text in each object; "data.text": in the object of another */
    const char *option; /* how messages name the key: "--json-key " before it; NULL: nothing */
    bool strict;        /* refuses what would be repaired */
    int64_t line;       /* on which the last object begins */
    bool bad;           /* the last ERR_DATA was about one object: the next one can be read */
    z3d_json_repairs repairs;
    z3d_json *object; /* of the last line, until the next call; NULL: it is none */
    /* Private. */
    enum { Z3D_LAYOUT_UNKNOWN, Z3D_LAYOUT_LINES, Z3D_LAYOUT_ARRAY } layout;
    char *buffer;
    size_t capacity, begin, end;
    int64_t newlines; /* that were used */
    int64_t elements; /* of an array, likewise */
    bool ended;
} z3d_json_lines;

/* Reads `text` (malloc'ed, taken over) instead of a file. */
void z3d_json_lines_of(z3d_json_lines *lines, char *text, size_t length);
/* The text of the next object; *text NULL: the file has ended. Valid until the next call. ERR_DATA
 * with "file:line: what": no JSON object, no string `key` in it, or one of more than 256 MiB.
 * ERR_IO, ERR_MEMORY. */
z3d_status z3d_json_lines_next(z3d_json_lines *lines, const char **text, size_t *length);
void z3d_json_lines_free(z3d_json_lines *lines);

#endif
