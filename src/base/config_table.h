/* The inside of the configuration reader: the key table as an array, and where each key was set.
 * Only src/base/config_*.c include this. */
#ifndef ZERO3D_BASE_CONFIG_TABLE_H
#define ZERO3D_BASE_CONFIG_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/config.h"

typedef enum config_type {
    CONFIG_INT,
    CONFIG_FLOAT,
    CONFIG_BOOL,
    CONFIG_STRING,
    CONFIG_ENUM,
    CONFIG_FLOAT2,
    CONFIG_LIST
} config_type;

typedef struct config_key {
    const char *path, *standard, *rule, *help;
    config_type type;
    size_t offset; /* of the field in z3d_config */
} config_key;

enum {
#define X(field, path, type, standard, rule, help) CONFIG_KEY_##field,
    Z3D_CONFIG_KEYS(X)
#undef X
        CONFIG_KEY_COUNT
};

extern const config_key config_table[CONFIG_KEY_COUNT];

/* Keys without a field: accepted without effect, or of a later version. */
typedef struct config_note {
    const char *path, *why;
    const char *off; /* later: the plain values, with | between, that ask for nothing */
} config_note;

extern const config_note config_accepted[];
extern const int config_accepted_count;
extern const config_note config_later[];
extern const int config_later_count;

/* Where something was written. source indexes the origin's names; -1: nowhere, it is the default.
 * line 0: an override, which has a text but no lines. */
typedef struct config_place {
    int source, line, column;
} config_place;

struct z3d_config_origin {
    config_place place[CONFIG_KEY_COUNT];
    char **name; /* of files, and the texts of overrides */
    int name_count;
};

/* Keeps a copy of the name; *source is its index. */
z3d_status config_add_source(z3d_config *config, const char *name, int *source);
/* "run.yaml:12:3" or "override model.num_layers=3". */
void config_format_place(const z3d_config *config, config_place place, z3d_string *out);

/* Index of a key / an accepted key / a later key with exactly this path, -1: none. */
int config_find(const char *path);
int config_find_accepted(const char *path);
int config_find_later(const char *path);
/* Whether some key's path (of any of the three tables) begins with "path." */
bool config_is_section(const char *path);
/* The key or section a user may have meant, also by its name elsewhere ("global_batch_size"), NULL
 * if none is near; in buf. */
const char *config_nearest(const char *path, char *buf, size_t size);
/* The option of "a|b|c" nearest to text, NULL if none is near; in buf. */
const char *config_nearest_option(const char *options, const char *text, char *buf, size_t size);

/* Interval of a number's rule. */
typedef struct config_range {
    bool low_open, high_open, allow_auto;
    double low, high;
    int64_t low_int, high_int;
} config_range;

z3d_status config_parse_range(const config_key *key, config_range *out);

/* What would be right: "an integer from 1 to 65536 or auto". */
void config_expected(const config_key *key, z3d_string *out);
/* A type's name for people: "integer". */
const char *config_type_name(config_type type);
/* Option `index` of "a|b|c" into buf; false if there are fewer. */
bool config_option(const char *options, int index, char *buf, size_t size);

/* One scalar as it stands in the file. quoted: between quotes or a block scalar. */
typedef struct config_scalar {
    const char *text;
    bool quoted;
} config_scalar;

/* Sets a key from a scalar. On failure the message says what is wrong and what would be right,
 * without place and key. */
z3d_status config_set_scalar(z3d_config *config, const config_key *key, config_scalar scalar);
/* A FLOAT2's element; a data list's weight. */
z3d_status config_parse_element(const config_key *key, config_scalar scalar, double *out);
z3d_status config_parse_weight(config_scalar scalar, double *out);
/* Whether a plain scalar says "no value": empty, ~ or null. */
bool config_is_null(config_scalar scalar);

z3d_status config_list_append(z3d_data_list *list, const char *path, double weight);
void config_list_free(z3d_data_list *list);

static inline void *config_field(const z3d_config *config, const config_key *key) {
    return (char *)(uintptr_t)config + key->offset;
}

#endif
