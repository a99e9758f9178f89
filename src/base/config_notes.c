/* Keys without a field: what DeepSpeed has and this program does anyway, has not, or says with
 * another key. */
#include "src/base/config_yaml.h"

#include <stdio.h>
#include <string.h>

z3d_status reader_peer(config_reader *r, int index, config_place place, const yaml_event_t *value) {
    config_scalar scalar;
    double number;
    const char *path = config_peer_path[index];
    if (value->type != YAML_SCALAR_EVENT) {
        return reader_refuse(r, value->start_mark, "%s: expected a number", path);
    }
    Z3D_TRY(reader_scalar(r, value, &scalar));
    if (r->config->origin->report) {
        config_report_add(r->config->origin->report, CONFIG_TAKEN, path, "%s", scalar.text);
    }
    if (config_is_null(scalar) || strcmp(scalar.text, "auto") == 0) return Z3D_OK;
    z3d_status status = config_parse_peer(scalar, &number);
    if (status != Z3D_OK) return reader_refuse_stored(r, value->start_mark, path, status);
    r->config->origin->peer[index] = (config_peer){place, number};
    return Z3D_OK;
}

/* As text, or as a number: 0.0 is 0. */
static bool is_option(const char *options, const char *text) {
    char option[64];
    double wanted, given;
    bool number = z3d_parse_float(text, &given) == Z3D_OK;
    for (int i = 0; config_option(options, i, option, sizeof option); i++) {
        if (option[0] && strcmp(option, text) == 0) return true;
        if (number && z3d_parse_float(option, &wanted) == Z3D_OK && wanted == given) return true;
    }
    return false;
}

/* One entry of a later key's mapping. *says: it is the entry that switches the rest. */
static z3d_status read_switch(config_reader *r, const char *off, bool *says, bool *is_off,
                              bool *end) {
    yaml_event_t name, field;
    memset(&field, 0, sizeof field);
    z3d_status status = reader_next(r, &name);
    *end = status == Z3D_OK && name.type == YAML_MAPPING_END_EVENT;
    if (status == Z3D_OK && !*end) {
        const char *text =
            name.type == YAML_SCALAR_EVENT ? (const char *)name.data.scalar.value : "";
        bool is_switch = strcmp(text, "device") == 0 || strcmp(text, "enabled") == 0;
        status = reader_skip(r, &name);
        if (status == Z3D_OK) status = reader_next(r, &field);
        if (status == Z3D_OK && is_switch && field.type == YAML_SCALAR_EVENT) {
            *says = true;
            *is_off = is_option(off, (const char *)field.data.scalar.value);
        } else if (status == Z3D_OK) {
            status = reader_skip(r, &field);
        }
    }
    yaml_event_delete(&field);
    yaml_event_delete(&name);
    return status;
}

/* Whether a later key's value asks for nothing: one of its off values; a mapping by its device or
 * enabled, or when it is empty. Reads the node. */
static z3d_status read_off(config_reader *r, const char *off, const yaml_event_t *value,
                           bool *is_off) {
    const char *text = (const char *)value->data.scalar.value;
    *is_off = false;
    if (value->type == YAML_SCALAR_EVENT) {
        *is_off = is_option(off, text[0] ? text : "null");
        return Z3D_OK;
    }
    if (value->type != YAML_MAPPING_START_EVENT) return reader_skip(r, value);
    bool end = false, empty = true, says = false;
    while (!end) {
        Z3D_TRY(read_switch(r, off, &says, is_off, &end));
        empty = empty && end;
    }
    if (!says) *is_off = empty || is_option(off, "unsaid");
    return Z3D_OK;
}

static z3d_status refuse_later(config_reader *r, const config_note *note, yaml_mark_t mark) {
    char first[64], right[96];
    config_option(note->off, 0, first, sizeof first);
    snprintf(right, sizeof right, "leave it out or write %s", first);
    return reader_refuse(r, mark, "%s: %s: not supported yet; %s", note->path, note->why,
                         note->instead[0] ? note->instead : right);
}

z3d_status reader_later(config_reader *r, const config_note *note, yaml_mark_t mark,
                        const yaml_event_t *value) {
    bool off;
    Z3D_TRY(read_off(r, note->off, value, &off));
    if (!off) return refuse_later(r, note, mark);
    if (r->config->origin->report) {
        config_report_add(r->config->origin->report, CONFIG_TAKEN, note->path, "as here");
    }
    return Z3D_OK;
}

z3d_status reader_accepted(config_reader *r, const config_note *note, config_place place,
                           const yaml_event_t *value) {
    Z3D_TRY(reader_skip(r, value));
    config_tell(r->config, place, note->path, "has no effect here", note->why);
    return Z3D_OK;
}

/* The key without a field that `path` lies below: an override names keys of sections that we do not
 * have. */
static const config_note *note_above(const config_note *notes, int count, const char *path) {
    for (int i = 0; i < count; i++) {
        size_t length = strlen(notes[i].path);
        if (strncmp(notes[i].path, path, length) == 0 && path[length] == '.') return &notes[i];
    }
    return NULL;
}

z3d_status reader_below_note(config_reader *r, const char *path, config_place place,
                             yaml_mark_t mark, const yaml_event_t *value, bool *known) {
    const config_note *accepted = note_above(config_accepted, config_accepted_count, path);
    const config_note *later = note_above(config_later, config_later_count, path);
    *known = accepted || later;
    if (accepted) return reader_accepted(r, accepted, place, value);
    if (!later) return Z3D_OK;
    const char *leaf = strrchr(path, '.') + 1;
    bool is_switch = strcmp(leaf, "device") == 0 || strcmp(leaf, "enabled") == 0;
    return is_switch ? reader_later(r, later, mark, value) : refuse_later(r, later, mark);
}

z3d_status reader_unknown(config_reader *r, yaml_mark_t mark, const char *path) {
    char buf[128];
    const char *near = config_nearest(path, buf, sizeof buf);
    if (strcmp(path, "<<") == 0) {
        return reader_refuse(r, mark,
                             "merge keys (<<) are not supported; write the values themselves");
    }
    if (near) return reader_refuse(r, mark, "unknown key %.120s; did you mean %s?", path, near);
    return reader_refuse(r, mark, "unknown key %.120s; 'zero3d config' lists all keys", path);
}
