/* Reads JSON (RFC 8259) into a tree. Safe for any bytes. */
#ifndef ZERO3D_BASE_JSON_H
#define ZERO3D_BASE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/strings.h"

typedef enum z3d_json_type {
    Z3D_JSON_NULL,
    Z3D_JSON_BOOL,
    Z3D_JSON_NUMBER,
    Z3D_JSON_STRING,
    Z3D_JSON_ARRAY,
    Z3D_JSON_OBJECT
} z3d_json_type;

typedef struct z3d_json {
    z3d_json_type type;
    const char *key;  /* of a member of an object; else NULL */
    const char *text; /* of a string: UTF-8, NUL-terminated; of a number: as the file writes it */
    size_t length;    /* of a string, which may have NULs if repairs are allowed */
    bool truth;
    int64_t line;                  /* where the value ends in the text, from 1 */
    int64_t count;                 /* of an array or object */
    struct z3d_json *first, *next; /* members; the next sibling */
} z3d_json;

/* Parses a whole text. ERR_DATA with "name:LINE: byte N: what". Strings with a NUL character and
 * more than 64 levels are refused. Free with z3d_json_free. */
z3d_status z3d_json_parse(const char *text, size_t length, const char *name, z3d_json **out);
/* Reads a file (at most `limit` bytes) and parses it. Errors: those of both. */
z3d_status z3d_json_read(const char *path, size_t limit, z3d_json **out);
/* Faults that strict readers refuse but collected texts contain. */
typedef struct z3d_json_repairs {
    int64_t surrogates; /* halves of surrogate pairs; they become U+FFFD */
    int64_t nuls;       /* \u0000 in strings, which are kept; in keys they are refused */
} z3d_json_repairs;

/* The same for one line of a file; `line` is its number, from 1. Counts repairs in *repairs; NULL:
 * refuses the faults. */
z3d_status z3d_json_parse_line(const char *text, size_t length, const char *name, int64_t line,
                               z3d_json_repairs *repairs, z3d_json **out);
void z3d_json_free(z3d_json *json);

/* The member `key`; NULL if `object` is no object or has no such member. Of several with one name
 * the last, as in other readers (Python's json). */
const z3d_json *z3d_json_member(const z3d_json *object, const char *key);
/* The member `key`, of the given type; otherwise ERR_DATA with its name. int: 0 <= value <= 2^63-1.
 */
z3d_status z3d_json_get(const z3d_json *object, const char *key, z3d_json_type type,
                        const z3d_json **out);
z3d_status z3d_json_get_int(const z3d_json *object, const char *key, int64_t *out);
z3d_status z3d_json_get_float(const z3d_json *object, const char *key, double *out);
z3d_status z3d_json_get_text(const z3d_json *object, const char *key, const char **out);
/* The value as an integer >= 0; false if it is none. */
bool z3d_json_int(const z3d_json *value, int64_t *out);

/* Whether the value is this text, or this number; false for NULL. */
bool z3d_json_is_text(const z3d_json *value, const char *text);
bool z3d_json_is_number(const z3d_json *value, double number);
/* The text of the member `key`; "" if it is missing or no text. */
const char *z3d_json_text(const z3d_json *object, const char *key);
/* Whether the value is missing (NULL) or null. */
bool z3d_json_is_none(const z3d_json *value);
/* The boolean member `key`; `missing` if there is none. */
bool z3d_json_flag(const z3d_json *object, const char *key, bool missing);

/* Appends the value as JSON on one line, numbers as the file writes them. space: the text after
 * each comma and colon. */
void z3d_json_append(const z3d_json *value, const char *space, z3d_string *out);

#endif
