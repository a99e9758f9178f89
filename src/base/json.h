/* Reads JSON (RFC 8259) into a tree. Safe for any bytes. */
#ifndef ZERO3D_BASE_JSON_H
#define ZERO3D_BASE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/status.h"

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
    const char *key;  /* of a member, else NULL */
    const char *text; /* of a string, as UTF-8 with a NUL behind; of a number, as it was written */
    size_t length;    /* of a string: it may have NULs where repairs are made */
    bool truth;
    int64_t line;                  /* on which it ends in the text, from 1 */
    int64_t count;                 /* of an array or object */
    struct z3d_json *first, *next; /* members; the next sibling */
} z3d_json;

/* Parses a whole text. ERR_DATA with "name:LINE: byte N: what". Strings with a NUL character and
 * more than 64 levels are refused. Free with z3d_json_free. */
z3d_status z3d_json_parse(const char *text, size_t length, const char *name, z3d_json **out);
/* What collected texts contain although strict readers refuse it. */
typedef struct z3d_json_repairs {
    int64_t surrogates; /* halves of surrogate pairs, which became U+FFFD */
    int64_t nuls;       /* \u0000 in strings, kept; in keys they are refused */
} z3d_json_repairs;

/* The same for one line of a file; `line` is its number, from 1. Repairs are counted in *repairs;
 * NULL: refuses instead. */
z3d_status z3d_json_parse_line(const char *text, size_t length, const char *name, int64_t line,
                               z3d_json_repairs *repairs, z3d_json **out);
void z3d_json_free(z3d_json *json);

/* NULL if it is not an object or has no such member. The last of several with one name, as other
 * readers (Python's json) take it. */
const z3d_json *z3d_json_member(const z3d_json *object, const char *key);
/* A member of the given kind, or ERR_DATA naming it. int: 0 <= value <= 2^63-1. */
z3d_status z3d_json_get(const z3d_json *object, const char *key, z3d_json_type type,
                        const z3d_json **out);
z3d_status z3d_json_get_int(const z3d_json *object, const char *key, int64_t *out);
z3d_status z3d_json_get_float(const z3d_json *object, const char *key, double *out);
z3d_status z3d_json_get_text(const z3d_json *object, const char *key, const char **out);
/* This value as an integer >= 0; false if it is not one. */
bool z3d_json_int(const z3d_json *value, int64_t *out);

/* False for NULL, too. */
bool z3d_json_is_text(const z3d_json *value, const char *text);
bool z3d_json_is_number(const z3d_json *value, double number);
/* Not there, or null. */
bool z3d_json_is_none(const z3d_json *value);
/* A boolean member; `missing` if there is none. */
bool z3d_json_flag(const z3d_json *object, const char *key, bool missing);

#endif
