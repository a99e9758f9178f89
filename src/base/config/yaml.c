/* Checks a configuration's text before libyaml reads it, and provides libyaml's events with their
 * positions. */
#include "src/base/config/yaml.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

config_place reader_place(const config_reader *r, yaml_mark_t mark) {
    if (r->is_override) return (config_place){r->source, 0, 0};
    return (config_place){r->source, (int)mark.line + 1, (int)mark.column + 1};
}

z3d_status reader_refuse(const config_reader *r, yaml_mark_t mark, const char *format, ...) {
    char message[1024];
    z3d_string where = {0};
    config_place place = reader_place(r, mark);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    config_format_place(r->config, place, &where);
    z3d_status status =
        Z3D_ERROR(Z3D_ERR_CONFIG, "%s: %s", where.failed ? "configuration" : where.text,
                  message + config_repeated_key(r->config, place, message));
    z3d_string_free(&where);
    return status;
}

z3d_status reader_refuse_stored(config_reader *r, yaml_mark_t mark, const char *path,
                                z3d_status status) {
    if (status != Z3D_ERR_CONFIG) return status;
    return reader_refuse(r, mark, "%s: %s", path, z3d_error_message());
}

/* ---- the text before YAML ---- */

/* Advances over one character; counts lines as libyaml does. */
static void advance(yaml_mark_t *mark, const unsigned char *at, size_t left, size_t length) {
    bool carriage_return = at[0] == '\r' && !(left > 1 && at[1] == '\n');
    mark->index += length;
    if (at[0] == '\n' || carriage_return) {
        mark->line++;
        mark->column = 0;
    } else {
        mark->column++;
    }
}

z3d_status reader_check_text(const config_reader *r) {
    yaml_mark_t mark = {0, 0, 0};
    if (r->length > CONFIG_FILE_LIMIT) {
        return reader_refuse(r, mark, "%zu bytes are too many for a configuration; at most 1 MiB",
                             r->length);
    }
    while (mark.index < r->length) {
        const unsigned char *at = (const unsigned char *)r->text + mark.index;
        size_t left = r->length - mark.index;
        size_t length = z3d_utf8_length((const char *)at, left);
        if (length == 0) {
            return reader_refuse(r, mark, "byte 0x%02x is not UTF-8; is this a text file?", at[0]);
        }
        if ((at[0] < 0x20 && at[0] != '\n' && at[0] != '\r' && at[0] != '\t') || at[0] == 0x7f) {
            return reader_refuse(r, mark, "control character 0x%02x; is this a text file?", at[0]);
        }
        advance(&mark, at, left, length);
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

/* ---- events ---- */

static z3d_status refuse_yaml(config_reader *r) {
    const yaml_parser_t *parser = &r->parser;
    const char *problem = parser->problem ? parser->problem : "unknown error";
    if (parser->error == YAML_MEMORY_ERROR) {
        return Z3D_ERROR(Z3D_ERR_MEMORY, "no memory to read the configuration");
    }
    if (parser->error == YAML_READER_ERROR) {
        yaml_mark_t mark = {0, 0, 0};
        while (mark.index < parser->problem_offset && mark.index < r->length) {
            const unsigned char *at = (const unsigned char *)r->text + mark.index;
            size_t left = r->length - mark.index;
            advance(&mark, at, left, z3d_utf8_length((const char *)at, left));
        }
        return reader_refuse(r, mark, "%s (0x%x)", problem, (unsigned)parser->problem_value);
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

z3d_status reader_next(config_reader *r, yaml_event_t *event) {
    memset(event, 0, sizeof *event);
    if (!yaml_parser_parse(&r->parser, event)) {
        r->broken = true;
        return refuse_yaml(r);
    }
    yaml_event_type_t type = event->type;
    r->depth += type == YAML_SEQUENCE_START_EVENT || type == YAML_MAPPING_START_EVENT;
    r->depth -= type == YAML_SEQUENCE_END_EVENT || type == YAML_MAPPING_END_EVENT;
    const yaml_char_t *anchor = NULL, *tag = NULL;
    switch (event->type) {
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

z3d_status reader_scalar(const config_reader *r, const yaml_event_t *event, config_scalar *out) {
    const char *text = (const char *)event->data.scalar.value;
    *out = (config_scalar){text, event->data.scalar.style != YAML_PLAIN_SCALAR_STYLE};
    return reader_check_value(r, event->start_mark, text, event->data.scalar.length);
}

z3d_status reader_drop(config_reader *r, int depth) {
    yaml_event_t event;
    z3d_status status = reader_next(r, &event);
    if (!r->broken && r->depth > depth + CONFIG_DEPTH_LIMIT) {
        r->broken = true;
        status =
            reader_refuse(r, event.start_mark, "nested deeper than %d levels", CONFIG_DEPTH_LIMIT);
    }
    yaml_event_delete(&event);
    return status;
}

z3d_status reader_skip(config_reader *r, const yaml_event_t *first) {
    const int depth = r->depth - (first->type != YAML_SCALAR_EVENT);
    while (r->depth > depth) Z3D_TRY(reader_drop(r, depth));
    return Z3D_OK;
}

z3d_status reader_list(config_reader *r, const config_key *key, reader_item *take, void *out) {
    for (bool end = false; !end;) {
        yaml_event_t event;
        z3d_status status = reader_next(r, &event);
        end = event.type == YAML_SEQUENCE_END_EVENT;
        if (status == Z3D_OK && !end) status = take(r, key, &event, out);
        yaml_event_delete(&event);
        Z3D_TRY(status);
    }
    return Z3D_OK;
}

/* Gets a field's name. */
static z3d_status name_of(config_reader *r, const config_key *key, const yaml_event_t *event,
                          const char *known, const char *way, const char **out) {
    *out = event->type == YAML_SCALAR_EVENT ? (const char *)event->data.scalar.value
                                            : "a list or mapping";
    if (!strchr(*out, '.') && z3d_has_leaf(known, *out)) return Z3D_OK;
    return reader_refuse(r, event->start_mark, "%s: unknown '%.40s'; %s", key->path, *out, way);
}

z3d_status reader_fields(config_reader *r, const config_key *key, const char *known,
                         const char *way, reader_field *take, void *out) {
    for (bool end = false; !end;) {
        yaml_event_t name, value;
        const char *field;
        memset(&value, 0, sizeof value);
        z3d_status status = reader_next(r, &name);
        end = name.type == YAML_MAPPING_END_EVENT;
        if (status == Z3D_OK && !end) status = name_of(r, key, &name, known, way, &field);
        if (status == Z3D_OK && !end) status = reader_next(r, &value);
        if (status == Z3D_OK && !end) status = take(r, key, field, &value, out);
        yaml_event_delete(&value);
        yaml_event_delete(&name);
        Z3D_TRY(status);
    }
    return Z3D_OK;
}
