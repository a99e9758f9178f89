/* The reader's lower half: checks the text, fetches libyaml's events, and adds the place to every
 * error. Only src/base/config/ includes this. */
#ifndef ZERO3D_BASE_CONFIG_YAML_H
#define ZERO3D_BASE_CONFIG_YAML_H

#include "src/base/config/table.h"

#include <yaml.h>

enum { CONFIG_FILE_LIMIT = 1 << 20, CONFIG_DEPTH_LIMIT = 64, CONFIG_ERROR_LIMIT = 500 };

/* A path that this text has set already, and where. */
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
    int depth;   /* of mappings and lists that are open */
    bool broken; /* reading ends here: a syntax error, or too many errors */
    seen_path *seen;
    int seen_count;
} config_reader;

config_place reader_place(const config_reader *r, yaml_mark_t mark);

/* ERR_CONFIG "file:line:column: ...". */
z3d_status reader_refuse(const config_reader *r, yaml_mark_t mark, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Puts place and key in front of a message that a value's reader has stored. */
z3d_status reader_refuse_stored(config_reader *r, yaml_mark_t mark, const char *path,
                                z3d_status status);

/* Keys without a field (convert/notes.c). Each reads the value, whose first event is `value`. */
z3d_status reader_peer(config_reader *r, int index, config_place place, const yaml_event_t *value);
z3d_status reader_accepted(config_reader *r, const config_note *note, config_place place,
                           const yaml_event_t *value);
z3d_status reader_later(config_reader *r, const config_note *note, yaml_mark_t mark,
                        const yaml_event_t *value);
/* "zero_optimization.offload_param.device=none" and the like. *known: `path` is such a key. */
z3d_status reader_below_note(config_reader *r, const char *path, config_place place,
                             yaml_mark_t mark, const yaml_event_t *value, bool *known);
/* Reads a mapping of optimizer.param_groups, whose first event was read, and appends it to the list
 * as one text. */
z3d_status reader_param_group(config_reader *r, const config_key *key, z3d_data_list *list);
/* A section that was given a value. */
z3d_status reader_refuse_section(config_reader *r, const char *path, const yaml_event_t *value);
z3d_status reader_unknown(config_reader *r, yaml_mark_t mark, const char *path);

/* Refuses a text that is too large, is not UTF-8, or has control characters, before libyaml reads
 * it. */
z3d_status reader_check_text(const config_reader *r);

/* The next event; anchors, aliases and tags are refused. The caller deletes it, also after a
 * failure. */
z3d_status reader_next(config_reader *r, yaml_event_t *event);
/* Reads the rest of a node whose first event is `first`. */
z3d_status reader_skip(config_reader *r, const yaml_event_t *first);
/* Refuses control characters except line breaks and tabs, so that every value can be written
 * again. */
z3d_status reader_check_value(const config_reader *r, yaml_mark_t mark, const char *text,
                              size_t length);
/* A scalar event's text, without control characters. */
z3d_status reader_scalar(const config_reader *r, const yaml_event_t *event, config_scalar *out);
/* *out: the name of a member of an item in a key's list. If it is not in `known`, the error says
 * what to do: `way`. */
z3d_status reader_field(config_reader *r, const config_key *key, const yaml_event_t *name,
                        const char *known, const char *way, const char **out);

#endif
