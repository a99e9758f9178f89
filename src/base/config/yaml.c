/* Checks a configuration's text before libyaml reads it, and makes nodes of libyaml's events. */
#include "src/base/config/yaml.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

config_place reader_place(const config_reader *r, yaml_mark_t mark) {
    if (r->is_override) return (config_place){r->source, 0, 0};
    return (config_place){r->source, (int)mark.line + 1, (int)mark.column + 1};
}

z3d_status reader_refuse(const config_reader *r, yaml_mark_t mark, const char *format, ...) {
    char message[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    return config_error_at(r->config, reader_place(r, mark), message);
}

z3d_status reader_refuse_stored(config_reader *r, yaml_mark_t mark, const char *path,
                                z3d_status status) {
    if (status != Z3D_ERR_CONFIG) return status;
    return reader_refuse(r, mark, "%s: %s", path, z3d_error_message());
}

/* ---- the text before YAML ---- */

/* The place of a byte, of which all bytes before it are UTF-8. Counts lines as libyaml does. */
static yaml_mark_t mark_of(const config_reader *r, size_t byte) {
    yaml_mark_t mark = {0, 0, 0};
    while (mark.index < byte && mark.index < r->length) {
        const char *at = r->text + mark.index;
        const size_t left = r->length - mark.index;
        const bool carriage_return = at[0] == '\r' && !(left > 1 && at[1] == '\n');
        const bool ends_line = at[0] == '\n' || carriage_return;
        mark.index += z3d_utf8_length(at, left);
        mark.line += ends_line;
        mark.column = ends_line ? 0 : mark.column + 1;
    }
    return mark;
}

z3d_status reader_check_text(const config_reader *r) {
    if (r->length > CONFIG_FILE_LIMIT) {
        return reader_refuse(r, mark_of(r, 0),
                             "%zu bytes are too many for a configuration; at most 1 MiB",
                             r->length);
    }
    for (size_t i = 0, length; i < r->length; i += length) {
        const unsigned char c = (unsigned char)r->text[i];
        length = z3d_utf8_length(r->text + i, r->length - i);
        if (length == 0)
            return reader_refuse(r, mark_of(r, i), "byte 0x%02x is not UTF-8; is this a text file?",
                                 c);
        if ((c < 0x20 && c != '\n' && c != '\r' && c != '\t') || c == 0x7f)
            return reader_refuse(r, mark_of(r, i), "control character 0x%02x; is this a text file?",
                                 c);
    }
    return Z3D_OK;
}

/* The byte at a libyaml mark. index: in characters. */
static char byte_at(const config_reader *r, size_t index) {
    const unsigned char *at = (const unsigned char *)r->text;
    size_t left = r->length;
    for (; index > 0 && left > 0; index--) {
        size_t length = z3d_utf8_length((const char *)at, left);
        at += length;
        left -= length;
    }
    return left > 0 ? (char)*at : '\0';
}

/* ---- nodes ---- */

static z3d_status refuse_yaml(config_reader *r) {
    const yaml_parser_t *parser = &r->parser;
    const char *problem = parser->problem ? parser->problem : "unknown error";
    if (parser->error == YAML_MEMORY_ERROR) {
        return Z3D_ERROR(Z3D_ERR_MEMORY, "no memory to read the configuration");
    }
    if (parser->error == YAML_READER_ERROR) {
        return reader_refuse(r, mark_of(r, parser->problem_offset), "%s (0x%x)", problem,
                             (unsigned)parser->problem_value);
    }
    yaml_mark_t mark = parser->problem_mark;
    if (byte_at(r, mark.index) == '\t') {
        return reader_refuse(r, mark, "a tab; indent YAML with spaces");
    }
    if (strstr(problem, "mapping values are not allowed")) {
        return reader_refuse(
            r, mark,
            "'key: value' is not possible here; check the indentation, and put text "
            "that holds ': ' in quotes");
    }
    if (strstr(problem, "could not find expected ':'")) {
        return reader_refuse(r, mark, "not valid YAML: the line before needs a ':' after its key");
    }
    return reader_refuse(r, mark, "not valid YAML: %s%s%s", problem, parser->context ? " " : "",
                         parser->context ? parser->context : "");
}

static bool is_collection(const yaml_event_t *event) {
    return event->type == YAML_SEQUENCE_START_EVENT || event->type == YAML_MAPPING_START_EVENT;
}

/* reader_skip refuses less; libyaml needs quadratic time for many levels. */
static bool is_too_deep(int depth) {
    return depth > 2 * CONFIG_DEPTH_LIMIT;
}

/* The limit's values are allowed, and a node of the document's end. */
static bool is_too_long(int64_t index) {
    return index > CONFIG_NODE_LIMIT;
}

static z3d_status refuse_depth(config_reader *r, const config_node *node) {
    r->broken = true;
    return reader_refuse(r, node->event.start_mark, "nested deeper than %d levels",
                         CONFIG_DEPTH_LIMIT);
}

z3d_status reader_make_nodes(config_reader *r) {
    int64_t open = -1, capacity = 0; /* open: the innermost list or mapping that has not ended */
    int documents = 0;
    for (bool end = false; !end;) {
        yaml_event_t event;
        Z3D_TRY(z3d_grow(r->nodes, &capacity, sizeof *r->node, "the configuration", &r->node));
        const int depth = open >= 0 ? r->node[open].depth + 1 : 0;
        if (is_too_deep(depth) || is_too_long(r->nodes) || !yaml_parser_parse(&r->parser, &event))
            event = (yaml_event_t){.type = YAML_NO_EVENT, .start_mark = r->parser.mark};
        const yaml_event_type_t type = event.type;
        const bool begins = is_collection(&event);
        documents += type == YAML_DOCUMENT_START_EVENT;
        end = type == YAML_NO_EVENT || type == YAML_STREAM_END_EVENT || documents > 1;
        if (end || begins || type == YAML_SCALAR_EVENT || type == YAML_ALIAS_EVENT) {
            r->node[r->nodes] = (config_node){event, 1, open, depth};
            if (begins) open = r->nodes;
            r->nodes++;
            continue;
        }
        yaml_event_delete(&event);
        if (type != YAML_SEQUENCE_END_EVENT && type != YAML_MAPPING_END_EVENT) continue;
        r->node[open].size = r->nodes - open;
        open = r->node[open].parent;
    }
    for (; open >= 0; open = r->node[open].parent) r->node[open].size = r->nodes - open;
    return Z3D_OK;
}

void reader_free_nodes(config_reader *r) {
    for (int64_t i = 0; i < r->nodes; i++) yaml_event_delete(&r->node[i].event);
    free(r->node);
}

z3d_status reader_look(config_reader *r, const config_node *node) {
    const yaml_event_t *event = &node->event;
    const yaml_char_t *anchor = NULL, *tag = NULL;
    switch (event->type) {
    case YAML_NO_EVENT:
        r->broken = true;
        if (is_too_deep(node->depth)) return refuse_depth(r, node);
        if (is_too_long(node - r->node))
            return reader_refuse(r, event->start_mark,
                                 "too many keys and values; a configuration has at most %d",
                                 CONFIG_NODE_LIMIT);
        return refuse_yaml(r);
    case YAML_ALIAS_EVENT:
        return reader_refuse(r, event->start_mark,
                             "aliases (*%.40s) are not supported; write the value itself",
                             (const char *)event->data.alias.anchor);
    case YAML_SCALAR_EVENT:
        anchor = event->data.scalar.anchor;
        tag = event->data.scalar.tag;
        break;
    case YAML_SEQUENCE_START_EVENT:
        anchor = event->data.sequence_start.anchor;
        tag = event->data.sequence_start.tag;
        break;
    case YAML_MAPPING_START_EVENT:
        anchor = event->data.mapping_start.anchor;
        tag = event->data.mapping_start.tag;
        break;
    default:
        break;
    }
    if (anchor) {
        return reader_refuse(r, event->start_mark,
                             "anchors (&%.40s) are not supported; write the value itself",
                             (const char *)anchor);
    }
    if (tag) {
        return reader_refuse(r, event->start_mark,
                             "tags (%.40s) are not supported; write the value alone",
                             (const char *)tag);
    }
    return Z3D_OK;
}

z3d_status reader_check_value(const config_reader *r, yaml_mark_t mark, const char *text,
                              size_t length) {
    for (size_t i = 0; i < length; i++) {
        unsigned char c = (unsigned char)text[i];
        if ((c < 0x20 && c != '\n' && c != '\t') || c == 0x7f) {
            return reader_refuse(r, mark, "control character 0x%02x in a text", c);
        }
    }
    return Z3D_OK;
}

z3d_status reader_scalar(const config_reader *r, const config_node *node, config_scalar *out) {
    const yaml_event_t *event = &node->event;
    const char *text = (const char *)event->data.scalar.value;
    *out = (config_scalar){text, event->data.scalar.style != YAML_PLAIN_SCALAR_STYLE};
    return reader_check_value(r, event->start_mark, text, event->data.scalar.length);
}

z3d_status reader_skip(config_reader *r, const config_node *node, bool quiet) {
    for (const config_node *at = node; at < node + node->size; at++) {
        if (is_collection(&at->event) && at->depth - node->depth >= CONFIG_DEPTH_LIMIT)
            return refuse_depth(r, at);
        const z3d_status status = reader_look(r, at);
        if (status != Z3D_OK && (!quiet || r->broken || status != Z3D_ERR_CONFIG)) return status;
    }
    return Z3D_OK;
}

z3d_status reader_field(config_reader *r, const config_key *key, const config_node *name,
                        const char *known, const char *way, const char **field) {
    const yaml_event_t *event = &name->event;
    Z3D_TRY(reader_look(r, name));
    *field = event->type == YAML_SCALAR_EVENT ? (const char *)event->data.scalar.value
                                              : "a list or mapping";
    if (z3d_has_word(known, *field)) return reader_look(r, name + name->size);
    return reader_refuse(r, event->start_mark, "%s: unknown '%.40s'; %s", key->path, *field, way);
}

const char *config_comment(const char *text) {
    char quote = '\0';
    for (const char *at = text; *at; at++) {
        const bool starts = at == text || strchr(" \t\n[{,:", at[-1]);
        if (quote == '"' && at[0] == '\\' && at[1])
            at++;
        else if (quote)
            quote = *at == quote ? '\0' : quote;
        else if (starts && (*at == '"' || *at == '\''))
            quote = *at;
        else if (*at == '#' && (at == text || strchr(" \t\n", at[-1])))
            return at;
    }
    return NULL;
}
