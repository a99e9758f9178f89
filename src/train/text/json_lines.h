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
static inline bool z3d_json_is_white(int c) {
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}
/* The length of the byte order mark with which some editors begin a file, or 0. */
size_t z3d_json_mark_length(const char *text, size_t length);
/* "a, b, c.d": some keys of an object; those of an object within it as --json-key names them. */
void z3d_json_append_keys(const z3d_json *object, z3d_string *keys);

/* What an open file is, whatever its name, by its beginning (up to 1 MiB): JSON if its first three
 * values, or items of an array, are. */
typedef enum z3d_json_look {
    Z3D_LOOK_TEXT,  /* no JSON, or it cannot be read */
    Z3D_LOOK_VALUE, /* JSON without records: an object over several lines, an array of numbers */
    Z3D_LOOK_LIST   /* each line is an object, or it is an array that has texts */
} z3d_json_look;
z3d_json_look z3d_look_for_json(int fd, const char *path);
/* ERR_USAGE: raw JSON is no text to train on; its keys, and those of the formats. */
z3d_status z3d_refuse_raw_json(const char *path);

/* Reads a file object by object, with as much memory as its longest one needs. A text in memory
 * is read likewise, as lines: z3d_json_lines_of. */
typedef struct z3d_json_lines {
    z3d_input *input;
    const char *path;
    const char *key;    /* of the text in each object; "data.text": in the object of another; not
                           for _next_object */
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
/* The next object, in lines->object; NULL: the file has ended. The same errors, but the key's.
 * `bad` stays set, for errors of whoever reads the object. */
z3d_status z3d_json_lines_next_object(z3d_json_lines *lines);
/* The text `key` of the last object; the errors of z3d_json_lines_next. */
z3d_status z3d_json_lines_text(const z3d_json_lines *lines, const char **text, size_t *length);
/* ERR_DATA: the object has no `key`, and which ones it has. */
z3d_status z3d_json_lines_refuse_key(const z3d_json_lines *lines, const char *option,
                                     const char *key);
/* Where the last object is: "FILE:3", in an array "FILE:3 (element 2)". */
void z3d_json_lines_place(const z3d_json_lines *lines, char *out, size_t size);
void z3d_json_lines_free(z3d_json_lines *lines);

#endif
