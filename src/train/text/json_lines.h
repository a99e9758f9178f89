/* JSON lines: a text in each line of a file. */
#ifndef ZERO3D_TRAIN_JSON_LINES_H
#define ZERO3D_TRAIN_JSON_LINES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/base.h"

/* ".jsonl" and ".ndjson", in capitals too. */
bool z3d_is_json_lines(const char *path);
/* Whether an open file has JSON lines, whatever its name: its first lines that are not blank (up to
 * three) begin with {" and are JSON objects. */
z3d_status z3d_looks_like_json_lines(int fd, const char *path, bool *out);

/* Reads an open file line by line, with as much memory as its longest line needs. A text in memory
 * is read likewise: z3d_json_lines_of. */
typedef struct z3d_json_lines {
    int fd;
    const char *path, *key; /* key: of the text in each line's object */
    const char *option;     /* how messages name the key: "--json-key " before it; NULL: nothing */
    bool strict;            /* refuses what would be repaired */
    int64_t line;           /* lines read */
    int64_t offset;         /* bytes read and used */
    z3d_json_repairs repairs;
    z3d_json *object; /* of the last line, until the next call; NULL: it is none */
    /* Private. */
    char *buffer;
    size_t capacity, begin, end;
    bool ended;
} z3d_json_lines;

/* Reads `text` (malloc'ed, taken over) instead of a file. */
void z3d_json_lines_of(z3d_json_lines *lines, char *text, size_t length);
/* The text of the next line that is not blank; *text NULL: the file has ended. Valid until the next
 * call. After ERR_DATA of a line's content it may be called again, for the next line. ERR_DATA with
 * "file:line: what": no JSON object, no string `key` in it, or a line of more than 256 MiB. ERR_IO,
 * ERR_MEMORY. */
z3d_status z3d_json_lines_next(z3d_json_lines *lines, const char **text, size_t *length);
void z3d_json_lines_free(z3d_json_lines *lines);

#endif
