/* Private to src/base/config/: the reader's lower half. It checks the text, makes nodes of
 * libyaml's events and gives each error its place. Functions return ERR_CONFIG or ERR_MEMORY. */
#ifndef ZERO3D_BASE_CONFIG_YAML_H
#define ZERO3D_BASE_CONFIG_YAML_H

#include "src/base/config/table.h"

#include <yaml.h>

enum { CONFIG_DEPTH_LIMIT = 64, CONFIG_NODE_LIMIT = 1 << 17, CONFIG_ERROR_LIMIT = 500 };

/* A path that this text has set already, and its place. */
typedef struct seen_path {
    char *path;
    config_place place;
} seen_path;

/* A scalar, list or mapping. The nodes in it follow it in the reader's array: a list's items; a
 * mapping's keys and values in turn. After the whole document comes a node of type
 * YAML_STREAM_END_EVENT, or YAML_DOCUMENT_START_EVENT if there is a second document. A node of
 * type YAML_NO_EVENT is the last one, too: a syntax error, too many levels or too many nodes. If it
 * is in a key, no value comes after the key: look at all nodes of a key (reader_skip), or see that
 * it is a scalar, before you read its value. */
typedef struct config_node {
    yaml_event_t event;
    int64_t size;   /* of the node and all nodes in it: node + node->size comes after it */
    int64_t parent; /* index; -1: none */
    int depth;      /* number of lists and mappings around it */
} config_node;

typedef struct config_reader {
    z3d_config *config;
    yaml_parser_t parser;
    const char *text;
    size_t length;
    int source;
    bool is_override;
    config_node *node; /* in the order of the text */
    int64_t nodes;
    bool broken; /* the rest cannot be read: a syntax error, or too many errors, levels or nodes */
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

/* Keys without a field (convert/notes.c). Each function reads the whole value; mark: the key's
 * place.
 */
z3d_status reader_peer(config_reader *r, int index, yaml_mark_t mark, const config_node *value);
z3d_status reader_note(config_reader *r, const config_note *note, yaml_mark_t mark,
                       const config_node *value);
/* The same for a key below such a key, which an override may name. *known: `path` is one. */
z3d_status reader_below_note(config_reader *r, const char *path, yaml_mark_t mark,
                             const config_node *value, bool *known);
z3d_status reader_refuse_section(config_reader *r, const char *path, const config_node *value);
z3d_status reader_unknown(config_reader *r, yaml_mark_t mark, const char *path);

/* Refuses a text that is too large, is no UTF-8, or has control characters, before libyaml sees it.
 */
z3d_status reader_check_text(const config_reader *r);

/* Makes the nodes of the text, up to a syntax error or a limit. Free them with reader_free_nodes,
 * also after an error. */
z3d_status reader_make_nodes(config_reader *r);
void reader_free_nodes(config_reader *r);

/* Refuses a node that has an anchor or a tag, or is an alias or YAML_NO_EVENT. Call it before the
 * node is used; the nodes in it are not checked. */
z3d_status reader_look(config_reader *r, const config_node *node);
/* Looks at the node and all nodes in it; refuses more than CONFIG_DEPTH_LIMIT levels. quiet: only
 * errors that end the reading. */
z3d_status reader_skip(config_reader *r, const config_node *node, bool quiet);
/* Refuses control characters except line breaks and tabs, so that every value can be written again.
 */
z3d_status reader_check_value(const config_reader *r, yaml_mark_t mark, const char *text,
                              size_t length);
/* Gets a scalar's text; refuses control characters. */
z3d_status reader_scalar(const config_reader *r, const config_node *node, config_scalar *out);
/* Gets the name of a mapping's field, and looks at its value, the next node. Refuses a name that is
 * not in `known`; `way` says what to write. */
z3d_status reader_field(config_reader *r, const config_key *key, const config_node *name,
                        const char *known, const char *way, const char **field);

#endif
