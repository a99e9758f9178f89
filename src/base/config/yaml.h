/* Private to src/base/config/: the reader's lower half. It checks the text, fetches libyaml's
 * events and gives each error its place. Functions return ERR_CONFIG or ERR_MEMORY. */
#ifndef ZERO3D_BASE_CONFIG_YAML_H
#define ZERO3D_BASE_CONFIG_YAML_H

#include "src/base/config/table.h"

#include <yaml.h>

enum { CONFIG_DEPTH_LIMIT = 64, CONFIG_ERROR_LIMIT = 500 };

/* A path that this text has set already, and its place. */
typedef struct seen_path {
    char *path;
    config_place place;
} seen_path;

typedef struct config_reader {
    z3d_config *config;
    yaml_parser_t parser;
    const char *text;
    size_t length;
    int source;
    bool is_override;
    int depth;   /* number of open mappings and lists */
    bool broken; /* the rest cannot be read: a syntax error, or too many errors or levels */
    seen_path *seen;
    int seen_count;
} config_reader;

config_place reader_place(const config_reader *r, yaml_mark_t mark);

/* Returns ERR_CONFIG "file:line:column: ...". */
z3d_status reader_refuse(const config_reader *r, yaml_mark_t mark, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Puts place and key in front of the stored message. */
z3d_status reader_refuse_stored(config_reader *r, yaml_mark_t mark, const char *path,
                                z3d_status status);

/* Keys without a field (convert/notes.c). Each function reads the whole value; `value` is its first
 * event. */
z3d_status reader_peer(config_reader *r, int index, config_place place, const yaml_event_t *value);
z3d_status reader_accepted(config_reader *r, const config_note *note, config_place place,
                           const yaml_event_t *value);
z3d_status reader_later(config_reader *r, const config_note *note, yaml_mark_t mark,
                        const yaml_event_t *value);
/* The same for a key below such a key, which an override may name. *known: `path` is one. */
z3d_status reader_below_note(config_reader *r, const char *path, config_place place,
                             yaml_mark_t mark, const yaml_event_t *value, bool *known);
/* Adds a mapping of optimizer.param_groups to the list as a text. Its start was read. */
z3d_status reader_param_group(config_reader *r, const config_key *key, z3d_data_list *list);
z3d_status reader_refuse_section(config_reader *r, const char *path, const yaml_event_t *value);
z3d_status reader_unknown(config_reader *r, yaml_mark_t mark, const char *path);

/* Refuses a text that is too large, is no UTF-8, or has control characters, before libyaml sees it.
 */
z3d_status reader_check_text(const config_reader *r);

/* The next event; anchors, aliases and tags are refused. The caller deletes it, also after a
 * failure. */
z3d_status reader_next(config_reader *r, yaml_event_t *event);
/* Skips one event; refuses more than CONFIG_DEPTH_LIMIT levels below `depth`. */
z3d_status reader_drop(config_reader *r, int depth);
/* Reads the rest of the node that begins with the event `first`. */
z3d_status reader_skip(config_reader *r, const yaml_event_t *first);
/* Refuses control characters except line breaks and tabs, so that every value can be written again.
 */
z3d_status reader_check_value(const config_reader *r, yaml_mark_t mark, const char *text,
                              size_t length);
/* Gets a scalar event's text; refuses control characters. */
z3d_status reader_scalar(const config_reader *r, const yaml_event_t *event, config_scalar *out);

/* Reads a list after its start: `take` gets each item's first event, and reads the rest. */
typedef z3d_status reader_item(config_reader *r, const config_key *key, const yaml_event_t *event,
                               void *out);
z3d_status reader_list(config_reader *r, const config_key *key, reader_item *take, void *out);
/* The same for a mapping: `take` gets each field's name and the first event of its value. Refuses
 * a name that is not in `known`; `way` says what to write. */
typedef z3d_status reader_field(config_reader *r, const config_key *key, const char *field,
                                const yaml_event_t *event, void *out);
z3d_status reader_fields(config_reader *r, const config_key *key, const char *known,
                         const char *way, reader_field *take, void *out);

#endif
