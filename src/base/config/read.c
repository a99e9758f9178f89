/* Reads YAML into the configuration. After an entry with an error it reads the next entry. */
#include "src/base/config/yaml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- values ---- */

static z3d_status refuse_shape(config_reader *r, yaml_mark_t mark, const config_key *key,
                               const char *found) {
    return reader_refuse_stored(r, mark, key->path, config_refuse(key, found));
}

/* Looks at an item of a list of numbers. */
static z3d_status look_at_item(config_reader *r, const config_key *key, const config_node *item) {
    Z3D_TRY(reader_look(r, item));
    if (item->event.type == YAML_SCALAR_EVENT) return Z3D_OK;
    return refuse_shape(r, item->event.start_mark, key, "a list or mapping in the list");
}

static z3d_status read_two_numbers(config_reader *r, const config_key *key,
                                   const config_node *list) {
    z3d_config_FLOAT2 pair;
    int count = 0;
    for (const config_node *item = list + 1; item < list + list->size; item += item->size) {
        const yaml_mark_t mark = item->event.start_mark;
        config_scalar scalar;
        Z3D_TRY(look_at_item(r, key, item));
        if (count == 2) return refuse_shape(r, mark, key, "a third value");
        Z3D_TRY(reader_scalar(r, item, &scalar));
        Z3D_TRY(reader_refuse_stored(r, mark, key->path,
                                     config_set_float(key, scalar, &pair.value[count++])));
    }
    if (count < 2) return refuse_shape(r, list->event.start_mark, key, "too few values");
    *(z3d_config_FLOAT2 *)config_field(r->config, key) = pair;
    return Z3D_OK;
}

static z3d_status append_numbers(config_reader *r, const config_key *key, const config_node *list,
                                 z3d_string *out) {
    z3d_string_append(out, "[");
    for (const config_node *item = list + 1; item < list + list->size; item += item->size) {
        config_scalar scalar;
        Z3D_TRY(look_at_item(r, key, item));
        Z3D_TRY(reader_scalar(r, item, &scalar));
        z3d_string_append(out, "%s%s", out->length > 1 ? ", " : "", scalar.text);
    }
    z3d_string_append(out, "]");
    return out->failed ? Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for a list") : Z3D_OK;
}

/* Keeps a list of numbers as text. */
static z3d_status read_numbers(config_reader *r, const config_key *key, const config_node *list) {
    z3d_string text = {0};
    z3d_status status = append_numbers(r, key, list, &text);
    if (status == Z3D_OK)
        status = reader_refuse_stored(
            r, list->event.start_mark, key->path,
            config_set_scalar(r->config, key, (config_scalar){text.text, true}));
    z3d_string_free(&text);
    return status;
}

/* Reads {path: ..., weight: ...}, a data file. */
static z3d_status read_item(config_reader *r, const config_key *key, const config_node *item,
                            z3d_data_list *list) {
    static const char way[] = "expected {path: ..., weight: ...}";
    static const config_key number = {.path = "weight", .rule = "(0,1e30]", .type = CONFIG_FLOAT};
    const config_node *end = item + item->size;
    const char *path = NULL;
    double weight = 1;
    bool has_weight = false;
    for (const config_node *name = item + 1, *value; name < end; name = value + value->size) {
        const char *field;
        config_scalar scalar;
        Z3D_TRY(reader_field(r, key, name, "path weight", way, &field));
        value = name + name->size;
        const yaml_mark_t mark = value->event.start_mark;
        const bool is_path = strcmp(field, "path") == 0;
        if (value->event.type != YAML_SCALAR_EVENT)
            return reader_refuse(r, mark, "%s: %s needs one value", key->path, field);
        if (is_path ? path != NULL : has_weight)
            return reader_refuse(r, mark, "%s: %s is given twice", key->path, field);
        Z3D_TRY(reader_scalar(r, value, &scalar));
        if (is_path && scalar.text[0] == '\0')
            return reader_refuse(r, mark, "%s: the path is empty", key->path);
        if (is_path) {
            path = scalar.text;
            continue;
        }
        has_weight = true;
        Z3D_TRY(
            reader_refuse_stored(r, mark, key->path, config_set_float(&number, scalar, &weight)));
    }
    if (path) return config_list_append(list, path, weight);
    return reader_refuse(r, item->event.start_mark, "%s: a data file without path; %s", key->path,
                         way);
}

/* ---- optimizer.param_groups ---- */

/* Appends one pattern, or the value of `field`. */
static z3d_status append_word(config_reader *r, const config_key *key, const char *field,
                              const config_node *node, z3d_string *out) {
    config_scalar scalar;
    const bool pattern = strcmp(field, "params") == 0;
    Z3D_TRY(reader_look(r, node));
    if (node->event.type != YAML_SCALAR_EVENT)
        return reader_refuse(r, node->event.start_mark, "%s: %s needs %s", key->path, field,
                             pattern ? "a pattern of names, or a list of them" : "one value");
    Z3D_TRY(reader_scalar(r, node, &scalar));
    if (!scalar.text[0] || strpbrk(scalar.text, pattern ? " \t\n=" : " \t\n"))
        return reader_refuse(r, node->event.start_mark, "%s: %s: '%.60s' is not %s", key->path,
                             field, scalar.text, pattern ? "a pattern of names" : "a number");
    z3d_string_append(out, "%s%s%s%s", out->length ? " " : "", pattern ? "" : field,
                      pattern ? "" : "=", scalar.text);
    return Z3D_OK;
}

static z3d_status append_fields(config_reader *r, const config_key *key, const config_node *group,
                                z3d_string *out) {
    const config_node *end = group + group->size;
    for (const config_node *name = group + 1, *value; name < end; name = value + value->size) {
        const char *field;
        Z3D_TRY(reader_field(r, key, name, "params lr lr_scale weight_decay",
                             "write params, lr, lr_scale or weight_decay", &field));
        value = name + name->size;
        const bool list =
            value->event.type == YAML_SEQUENCE_START_EVENT && strcmp(field, "params") == 0;
        const config_node *item = list ? value + 1 : value;
        for (; item < value + value->size; item += item->size)
            Z3D_TRY(append_word(r, key, field, item, out));
    }
    return out->failed ? Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for a parameter group") : Z3D_OK;
}

/* Adds {params: [...], lr: ..., weight_decay: ...} as a text of src/base/param_groups.h. */
static z3d_status read_param_group(config_reader *r, const config_key *key,
                                   const config_node *group, z3d_data_list *list) {
    z3d_string text = {0};
    z3d_status status = append_fields(r, key, group, &text);
    if (status == Z3D_OK) status = config_list_append(list, text.text ? text.text : " ", 1);
    z3d_string_free(&text);
    return status;
}

/* ---- keys ---- */

static z3d_status append_item(config_reader *r, const config_key *key, const config_node *item,
                              z3d_data_list *list) {
    const bool texts = key->rule[0] != '\0';
    const yaml_event_t *event = &item->event;
    config_scalar scalar;
    Z3D_TRY(reader_look(r, item));
    if (event->type == YAML_MAPPING_START_EVENT && !texts) return read_item(r, key, item, list);
    if (event->type == YAML_MAPPING_START_EVENT && strcmp(key->rule, "groups") == 0)
        return read_param_group(r, key, item, list);
    if (event->type != YAML_SCALAR_EVENT)
        return refuse_shape(r, event->start_mark, key,
                            texts ? "a list or mapping in the list" : "a list in the list");
    Z3D_TRY(reader_scalar(r, item, &scalar));
    if (config_is_empty(scalar) || scalar.text[0] == '\0')
        return refuse_shape(r, event->start_mark, key,
                            texts ? "the text is empty" : "the path is empty");
    return config_list_append(list, scalar.text, 1);
}

static z3d_status read_data_list(config_reader *r, const config_key *key, const config_node *list) {
    z3d_data_list read = {0}, *field = config_field(r->config, key);
    z3d_status status = Z3D_OK;
    for (const config_node *item = list + 1; item < list + list->size && status == Z3D_OK;
         item += item->size)
        status = append_item(r, key, item, &read);
    config_list_free(status == Z3D_OK ? field : &read);
    if (status == Z3D_OK) *field = read;
    return status;
}

/* YAML appends a more indented line to the value before it. Only texts may have such lines. */
static z3d_status refuse_folded(config_reader *r, const config_key *key,
                                const yaml_event_t *value) {
    bool text = key->type == CONFIG_STRING || key->type == CONFIG_LIST;
    bool plain = value->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    if (text || !plain || value->end_mark.line == value->start_mark.line) return Z3D_OK;
    return reader_refuse(r, value->start_mark,
                         "%s: the value continues on the next line; check the indentation",
                         key->path);
}

/* Handles null, and "auto" if the rule has none: the key gets its default, and auto gets a note.
 * False: the scalar is a value to read. */
static bool leave_default(config_reader *r, int index, config_place place, config_scalar scalar) {
    const config_key *key = &config_table[index];
    config_range range = {0};
    bool number = key->type == CONFIG_INT || key->type == CONFIG_FLOAT;
    if (config_is_null(scalar)) {
        config_unset(r->config, index);
        return true;
    }
    if (strcmp(scalar.text, "auto") != 0 || !config_auto(key->path)) return false;
    r->config->origin->is_auto[index] = true;
    if (number && config_parse_range(key, &range) == Z3D_OK && range.allow_auto) return false;
    config_unset(r->config, index);
    const bool type = index == CONFIG_KEY_bf16_enabled || index == CONFIG_KEY_fp16_enabled;
    if (!r->config->origin->report && !type) /* z3d_config_tell has its own line for the type */
        config_tell(r->config, place, key->path, CONFIG_IS_AUTO, key->standard);
    return true;
}

static z3d_status read_scalar(config_reader *r, int index, config_place place,
                              const config_node *value, bool *set) {
    const config_key *key = &config_table[index];
    config_scalar scalar;
    Z3D_TRY(reader_scalar(r, value, &scalar));
    *set = !leave_default(r, index, place, scalar);
    if (!*set) return Z3D_OK;
    Z3D_TRY(refuse_folded(r, key, &value->event));
    return reader_refuse_stored(r, value->event.start_mark, key->path,
                                config_set_scalar(r->config, key, scalar));
}

static z3d_status read_key(config_reader *r, int index, config_place place,
                           const config_node *value) {
    const config_key *key = &config_table[index];
    const yaml_event_type_t type = value->event.type;
    const bool list = type == YAML_SEQUENCE_START_EVENT;
    bool set = true;
    if (type == YAML_SCALAR_EVENT)
        Z3D_TRY(read_scalar(r, index, place, value, &set));
    else if (list && key->type == CONFIG_FLOAT2)
        Z3D_TRY(read_two_numbers(r, key, value));
    else if (list && key->type == CONFIG_LIST)
        Z3D_TRY(read_data_list(r, key, value));
    else if (list && key->type == CONFIG_STRING && key->rule[0])
        Z3D_TRY(read_numbers(r, key, value));
    else
        return refuse_shape(r, value->event.start_mark, key, list ? "a list" : "a mapping");
    if (set) r->config->origin->place[index] = place;
    return Z3D_OK;
}

/* ---- mappings ---- */

static z3d_status read_mapping(config_reader *r, const char *section, const config_node *mapping);

/* Remembers that `path` is set here; refuses a path that this text has set before. */
static z3d_status mark_seen(config_reader *r, yaml_mark_t mark, const char *path) {
    for (int i = 0; i < r->seen_count; i++) {
        if (strcmp(r->seen[i].path, path) != 0) continue;
        z3d_string first = {0};
        config_format_place(r->config, r->seen[i].place, &first);
        z3d_status status = reader_refuse(r, mark, "%.120s is set twice; first at %s", path,
                                          first.failed ? "an earlier place" : first.text);
        z3d_string_free(&first);
        return status;
    }
    seen_path *grown = realloc(r->seen, ((size_t)r->seen_count + 1) * sizeof *grown);
    if (!grown) return Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for a list of keys");
    r->seen = grown;
    char *copy = strdup(path);
    if (!copy) return Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for a list of keys");
    r->seen[r->seen_count++] = (seen_path){copy, reader_place(r, mark)};
    return Z3D_OK;
}

/* Reads the value of `path`; mark: the key's place. */
static z3d_status read_path(config_reader *r, const char *path, yaml_mark_t mark,
                            const config_node *value) {
    const int key = config_find(path), note = config_find_note(path), peer = config_find_peer(path);
    bool section = config_is_section(path), known = true;
    if (key < 0 && note < 0 && peer < 0 && !section) {
        z3d_status status = reader_below_note(r, path, mark, value, &known);
        return known ? status : reader_unknown(r, mark, path);
    }
    Z3D_TRY(mark_seen(r, mark, path));
    if (key >= 0) return read_key(r, key, reader_place(r, mark), value);
    if (peer >= 0) return reader_peer(r, peer, mark, value);
    if (note >= 0) return reader_note(r, &config_notes[note], mark, value);
    const yaml_event_t *event = &value->event;
    if (event->type == YAML_MAPPING_START_EVENT) return read_mapping(r, path, value);
    if (event->type == YAML_SCALAR_EVENT &&
        config_is_null((config_scalar){(const char *)event->data.scalar.value,
                                       event->data.scalar.style != YAML_PLAIN_SCALAR_STYLE})) {
        for (int i = 0; i < CONFIG_KEY_COUNT; i++)
            if (config_is_below(config_table[i].path, path)) config_unset(r->config, i);
        return Z3D_OK;
    }
    return reader_refuse_section(r, path, value);
}

/* Makes "section.name" from a key. */
static z3d_status join_path(config_reader *r, const char *section, const config_node *name,
                            z3d_string *out) {
    const yaml_mark_t mark = name->event.start_mark;
    if (name->event.type != YAML_SCALAR_EVENT)
        return reader_refuse(r, mark, "a list or mapping as a key; keys are names");
    config_scalar scalar;
    Z3D_TRY(reader_scalar(r, name, &scalar));
    z3d_string_append(out, "%s%s%s", section, section[0] ? "." : "", scalar.text);
    if (out->failed) return Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for a key");
    const char *dot = strchr(scalar.text, '.');
    if (dot && config_find(out->text) >= 0) {
        return reader_refuse(r, mark,
                             "%s: sections are nested in a file: write '%.*s:' and "
                             "below it '%s: ...'",
                             out->text, (int)(dot - scalar.text), scalar.text, dot + 1);
    }
    return Z3D_OK;
}

/* JSON has no comments. Files have notes instead: keys that begin with _, // or #. */
static bool is_note(const yaml_event_t *name) {
    const char *text = name->type == YAML_SCALAR_EVENT ? (const char *)name->data.scalar.value : "";
    return *text && name->data.scalar.style == YAML_DOUBLE_QUOTED_SCALAR_STYLE &&
           (*text == '_' || *text == '#' || strncmp(text, "//", 2) == 0);
}

/* Reads one entry of a mapping. *path: the entry's key, if it could be read. */
static z3d_status read_entry(config_reader *r, const char *section, const config_node *name,
                             z3d_string *path) {
    const yaml_mark_t mark = name->event.start_mark;
    const config_node *value = name + name->size;
    Z3D_TRY(reader_look(r, name));
    Z3D_TRY(join_path(r, section, name, path));
    Z3D_TRY(reader_look(r, value));
    const config_note note = {.path = path->text, .why = "it is a note"};
    return is_note(&name->event) ? reader_note(r, &note, mark, value)
                                 : read_path(r, path->text, mark, value);
}

/* Reads the entries of a mapping. Collects errors; returns only those that end the reading. After
 * an error of an entry, the rest of the entry gives no more errors. */
static z3d_status read_mapping(config_reader *r, const char *section, const config_node *mapping) {
    const config_node *end = mapping + mapping->size;
    for (const config_node *name = mapping + 1, *value; name < end; name = value + value->size) {
        z3d_string path = {0};
        z3d_status status = read_entry(r, section, name, &path);
        value = name + name->size;
        if (status == Z3D_ERR_CONFIG && !r->broken) {
            config_add_error(r->config, path.length ? path.text : NULL);
            status = reader_skip(r, name, true);
            if (status == Z3D_OK) status = reader_skip(r, value, true);
        }
        if (status == Z3D_OK && r->config->origin->errors.total >= CONFIG_ERROR_LIMIT) {
            r->broken = true;
            status = Z3D_ERROR(Z3D_ERR_CONFIG, "the rest is not read: too many errors");
        }
        z3d_string_free(&path);
        Z3D_TRY(status);
    }
    return Z3D_OK;
}

/* ---- documents ---- */

/* Reads the nodes: a mapping (path NULL), or the value of `path`. */
static z3d_status read_document(config_reader *r, const char *path) {
    static yaml_char_t no_text[] = "";
    static const config_node nothing = {
        .event = {.type = YAML_SCALAR_EVENT,
                  .data.scalar = {.value = no_text, .style = YAML_PLAIN_SCALAR_STYLE}},
        .size = 1};
    const config_node *root = r->node;
    Z3D_TRY(reader_look(r, root));
    const bool empty = root->event.type == YAML_STREAM_END_EVENT;
    if (path)
        Z3D_TRY(read_path(r, path, (yaml_mark_t){0, 0, 0}, empty ? &nothing : root));
    else if (root->event.type == YAML_MAPPING_START_EVENT)
        Z3D_TRY(read_mapping(r, "", root));
    else if (!empty)
        return reader_refuse(r, root->event.start_mark, "expected 'key: value' lines, found %s",
                             root->event.type == YAML_SEQUENCE_START_EVENT ? "a list" : "text");
    if (empty) return Z3D_OK;
    const config_node *end = root + root->size;
    Z3D_TRY(reader_look(r, end));
    if (end->event.type == YAML_STREAM_END_EVENT) return Z3D_OK;
    return reader_refuse(r, end->event.start_mark,
                         "a second document; a configuration has only one");
}

static z3d_status read_yaml(config_reader *r, const char *path) {
    Z3D_TRY(reader_check_text(r));
    if (!yaml_parser_initialize(&r->parser)) {
        return Z3D_ERROR(Z3D_ERR_MEMORY, "no memory to read the configuration");
    }
    yaml_parser_set_encoding(&r->parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&r->parser, (const unsigned char *)r->text, r->length);
    z3d_status status = reader_make_nodes(r);
    if (status == Z3D_OK) status = read_document(r, path);
    reader_free_nodes(r);
    yaml_parser_delete(&r->parser);
    for (int i = 0; i < r->seen_count; i++) free(r->seen[i].path);
    free(r->seen);
    return status;
}

/* Adds a reader's error to all errors so far, and returns their status. path: the key that was set;
 * NULL: a whole text. */
static z3d_status finish(config_reader *r, z3d_status status, const char *path) {
    if (status != Z3D_OK && status != Z3D_ERR_CONFIG) return status;
    bool unreadable = r->broken || (status != Z3D_OK && !path);
    if (unreadable && r->config->origin->report) return status;
    if (status != Z3D_OK) config_add_error(r->config, path);
    if (unreadable) r->config->origin->cut = true;
    return config_errors_status(&r->config->origin->errors);
}

z3d_status z3d_config_read_text(z3d_config *config, const char *text, size_t length,
                                const char *name) {
    config_reader r = {.config = config, .text = text ? text : "", .length = length};
    if (length >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0) { /* an editor's byte order mark */
        r.text += 3;
        r.length -= 3;
    }
    Z3D_TRY(config_add_source(config, name, &r.source));
    return finish(&r, read_yaml(&r, NULL), NULL);
}

/* If a tokenizer or checkpoint lies beside the file, as in the folder of an imported model, its
 * name becomes the whole path, which the run keeps. */
static z3d_status find_beside(z3d_config *config, const config_key *key, const char *path) {
    const char **name = config_field(config, key);
    char *beside;
    if (!*name || !**name || **name == '/') return Z3D_OK;
    Z3D_TRY(z3d_path_beside(path, *name, &beside));
    char *whole = realpath(beside, NULL);
    free(beside);
    z3d_status status =
        whole ? config_set_scalar(config, key, (config_scalar){whole, true}) : Z3D_OK;
    free(whole);
    return status;
}

z3d_status z3d_config_read_file(z3d_config *config, const char *path) {
    char *text;
    size_t length;
    Z3D_TRY(z3d_read_file(path, CONFIG_FILE_LIMIT, &text, &length));
    z3d_status status = z3d_config_read_text(config, text, length, path);
    free(text);
    static const int keys[] = {CONFIG_KEY_data_vocab, CONFIG_KEY_data_merges,
                               CONFIG_KEY_checkpoint_init_from};
    for (size_t i = 0; i < sizeof keys / sizeof *keys && status == Z3D_OK; i++)
        status = find_beside(config, &config_table[keys[i]], path);
    return status;
}

/* Text on the command line needs no YAML quotes: "generate.prompt=To be, or: not". */
static z3d_status override_text(config_reader *r, int key) {
    yaml_mark_t start = {0, 0, 0};
    Z3D_TRY(reader_check_text(r));
    Z3D_TRY(reader_check_value(r, start, r->text, r->length));
    Z3D_TRY(reader_refuse_stored(
        r, start, config_table[key].path,
        config_set_scalar(r->config, &config_table[key], (config_scalar){r->text, true})));
    r->config->origin->place[key] = reader_place(r, start);
    return Z3D_OK;
}

/* Whether an override's text is the value itself, not YAML. */
static bool is_plain_text(const config_key *key, const char *text) {
    const bool list = key->type == CONFIG_LIST;
    if (!list && key->type != CONFIG_STRING) return false;
    if (list && (!*text || strcmp(text, "null") == 0 || strcmp(text, "~") == 0)) return false;
    return !*text || !strchr(list ? "\"'[{" : "\"'", *text);
}

static z3d_status override_yaml(config_reader *r, const char *path) {
    const char *comment = config_comment(r->text);
    yaml_mark_t start = {0, 0, 0};
    if (!comment) return read_yaml(r, path);
    return reader_refuse(r, start,
                         "%s: '%.60s' would be a comment; put text that has ' #' in quotes", path,
                         comment);
}

z3d_status z3d_config_override(z3d_config *config, const char *assignment) {
    const char *equals = strchr(assignment, '=');
    config_reader r = {.config = config, .is_override = true};
    if (!equals || equals == assignment) {
        return finish(&r,
                      Z3D_ERROR(Z3D_ERR_CONFIG,
                                "'%.120s' is not an override; expected key.path=value", assignment),
                      "");
    }
    r.text = equals + 1;
    r.length = strlen(equals + 1);
    Z3D_TRY(config_add_source(config, assignment, &r.source));
    char *path = strndup(assignment, (size_t)(equals - assignment));
    if (!path) return Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for an override");
    int key = config_find(path);
    bool raw = key >= 0 && is_plain_text(&config_table[key], r.text);
    z3d_status status = finish(&r, raw ? override_text(&r, key) : override_yaml(&r, path), path);
    free(path);
    return status;
}
