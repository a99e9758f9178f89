/* Reads texts from JSON: from a file with an object in each line, or a file that is one array of
 * objects. */
#ifndef ZERO3D_TRAIN_JSON_LINES_H
#define ZERO3D_TRAIN_JSON_LINES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/base.h"
#include "src/train/text/input.h"

/* Whether the name ends with .jsonl or .ndjson, also before .gz or .zst; case does not matter. */
bool z3d_is_json_lines(const char *path);
/* The same for .json. */
bool z3d_is_json(const char *path);
static inline bool z3d_json_is_white(int c) {
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}
/* The length of the byte order mark with which some editors begin a file, or 0. */
size_t z3d_json_mark_length(const char *text, size_t length);
/* Appends some keys of an object: "a, b, c.d". c.d is key d of the object at key c, as --json-key
 * names it. */
void z3d_json_append_keys(const z3d_json *object, z3d_string *keys);

/* The kind of a file, found by its first bytes (up to 1 MiB), not by its name. The file is
 * JSON if its first three values, or the first three elements of its array, are JSON. */
typedef enum z3d_json_look {
    Z3D_LOOK_TEXT,  /* no JSON, or unreadable */
    Z3D_LOOK_VALUE, /* JSON without records: an object over several lines, an array of numbers */
    Z3D_LOOK_LIST   /* each line is an object, or the file is an array with texts */
} z3d_json_look;
z3d_json_look z3d_look_for_json(const char *path);
/* The same for an open file; rewinds it first. */
z3d_json_look z3d_look_at_input(z3d_input *input);
/* Returns ERR_USAGE: raw JSON is no text to train on. The error names the keys of the file and the
 * keys of the formats. */
z3d_status z3d_refuse_raw_json(const char *path);

/* Reads a file object by object; its memory is that of the longest object. Set path, key, option
 * and strict, then call z3d_json_lines_open, _take, or _of for a text in memory. */
typedef struct z3d_json_lines {
    const char *path;
    const char *key; /* key of the text in each object; "data.text": the member text of the member
                        data. z3d_json_lines_next_object only names it in errors */
    const char *option; /* stands before the key in messages: "--json-key "; NULL: nothing */
    bool strict;        /* faults that are repaired otherwise are errors */
    int64_t line;       /* where the last object begins */
    bool bad;           /* the last ERR_DATA was about one object: the next one can be read */
    z3d_json_repairs repairs;
    z3d_json *object; /* the last object, valid until the next call; NULL: the line is none */
    z3d_input input;
    /* Private. */
    enum { Z3D_LAYOUT_UNKNOWN, Z3D_LAYOUT_LINES, Z3D_LAYOUT_ARRAY } layout;
    char *buffer;
    size_t capacity, begin, end;
    int64_t newlines; /* in the lines used so far */
    int64_t elements; /* of an array, used so far */
    bool ended;
} z3d_json_lines;

/* Opens the file. Free also after a failure. ERR_IO, ERR_MEMORY. */
z3d_status z3d_json_lines_open(z3d_json_lines *lines);
/* Reads the open file *input from its beginning. Takes it: z3d_json_lines_free closes it. Free also
 * after a failure. ERR_MEMORY. */
z3d_status z3d_json_lines_take(z3d_json_lines *lines, z3d_input *input);
/* Reads the lines of `text` instead of a file; it is malloc'ed, z3d_json_lines_free frees it. */
void z3d_json_lines_of(z3d_json_lines *lines, char *text, size_t length);
/* The text of the next object, valid until the next call; *text NULL: the file has ended. ERR_DATA
 * with "file:line: ...": no JSON object, no string `key` in it, or an object of more than 256 MiB.
 * ERR_IO, ERR_MEMORY. */
z3d_status z3d_json_lines_next(z3d_json_lines *lines, const char **text, size_t *length);
/* Sets lines->object to the next object; NULL: the file has ended. Errors as above, except those
 * about `key`. `bad` stays true after success, so the caller may report an error about the object
 * as one that can be skipped. */
z3d_status z3d_json_lines_next_object(z3d_json_lines *lines);
/* The text `key` of the last object. Errors: those of z3d_json_lines_next about the key, without
 * the place. */
z3d_status z3d_json_lines_text(const z3d_json_lines *lines, const char **text, size_t *length);
/* Returns ERR_DATA, without the place: the last object has no `key`; the error names the keys that
 * it has. */
z3d_status z3d_json_lines_refuse_key(const z3d_json_lines *lines, const char *option,
                                     const char *key);
/* Writes the place of the last object: "FILE:3", in an array "FILE:3 (element 2)". */
void z3d_json_lines_place(const z3d_json_lines *lines, char *out, size_t size);
/* Puts the place of the last object before the text of an error. Returns `status`. */
z3d_status z3d_json_lines_context(const z3d_json_lines *lines, z3d_status status);
void z3d_json_lines_free(z3d_json_lines *lines);

#endif
