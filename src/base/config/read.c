/* Reads YAML into the configuration from libyaml's events, without building a tree. After an entry
 * with an error it reads the next entry. */
#include "src/base/config/yaml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- values ---- */

static z3d_status refuse_shape(config_reader *r, yaml_mark_t mark, const config_key *key,
                               const char *found) {
    return reader_refuse_stored(r, mark, key->path, config_refuse(key, found));
}

/* Two numbers while they are read. */
typedef struct number_pair {
    double value[2];
    int count;
} number_pair;

static z3d_status take_number(config_reader *r, const config_key *key, const yaml_event_t *event,
                              void *out) {
    number_pair *pair = out;
    config_scalar scalar;
    if (event->type != YAML_SCALAR_EVENT)
        return refuse_shape(r, event->start_mark, key, "a list or mapping in the list");
    if (pair->count == 2) return refuse_shape(r, event->start_mark, key, "a third value");
    Z3D_TRY(reader_scalar(r, event, &scalar));
    return reader_refuse_stored(r, event->start_mark, key->path,
                                config_parse_element(key, scalar, &pair->value[pair->count++]));
}

static z3d_status read_two_numbers(config_reader *r, const config_key *key, yaml_mark_t start) {
    number_pair pair = {.count = 0};
    Z3D_TRY(reader_list(r, key, take_number, &pair));
    if (pair.count < 2) return refuse_shape(r, start, key, "too few values");
    memcpy(config_field(r->config, key), pair.value, sizeof pair.value);
    return Z3D_OK;
}

static z3d_status append_number(config_reader *r, const config_key *key, const yaml_event_t *event,
                                void *out) {
    z3d_string *list = out;
    config_scalar scalar;
    if (event->type != YAML_SCALAR_EVENT)
        return refuse_shape(r, event->start_mark, key, "a list or mapping in the list");
    Z3D_TRY(reader_scalar(r, event, &scalar));
    z3d_string_append(list, "%s%s", list->length ? ", " : "", scalar.text);
    return Z3D_OK;
}

/* Keeps a list of numbers as text. */
static z3d_status read_numbers(config_reader *r, const config_key *key, yaml_mark_t start) {
    z3d_string numbers = {0}, list = {0};
    z3d_status status = reader_list(r, key, append_number, &numbers);
    z3d_string_append(&list, "[%s]", numbers.text ? numbers.text : "");
    if (status == Z3D_OK && (numbers.failed || list.failed))
        status = Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for a list");
    if (status == Z3D_OK)
        status = reader_refuse_stored(
            r, start, key->path,
            config_set_scalar(r->config, key, (config_scalar){list.text, true}));
    z3d_string_free(&numbers);
    z3d_string_free(&list);
    return status;
}

/* A data file while it is read from {path: ..., weight: ...}. */
typedef struct data_item {
    char *path;
    double weight;
    bool has_weight;
} data_item;

/* Sets `field` to the scalar of `event`. */
static z3d_status set_item_field(config_reader *r, const config_key *key, const char *field,
                                 const yaml_event_t *event, void *out) {
    data_item *item = out;
    config_scalar scalar;
    bool is_path = strcmp(field, "path") == 0;
    if (event->type != YAML_SCALAR_EVENT) {
        return reader_refuse(r, event->start_mark, "%s: %s needs one value", key->path, field);
    }
    if (is_path ? item->path != NULL : item->has_weight) {
        return reader_refuse(r, event->start_mark, "%s: %s is given twice", key->path, field);
    }
    Z3D_TRY(reader_scalar(r, event, &scalar));
    if (!is_path) {
        item->has_weight = true;
        return reader_refuse_stored(r, event->start_mark, key->path,
                                    config_parse_weight(scalar, &item->weight));
    }
    if (scalar.text[0] == '\0') {
        return reader_refuse(r, event->start_mark, "%s: the path is empty", key->path);
    }
    item->path = strdup(scalar.text);
    return item->path ? Z3D_OK : Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for a path");
}

static z3d_status read_item(config_reader *r, const config_key *key, yaml_mark_t start,
                            z3d_data_list *list) {
    data_item item = {.weight = 1};
    z3d_status status = reader_fields(r, key, "path weight", "expected {path: ..., weight: ...}",
                                      set_item_field, &item);
    if (status == Z3D_OK && !item.path) {
        status = reader_refuse(
            r, start, "%s: a data file without path; expected {path: ..., weight: ...}", key->path);
    }
    if (status == Z3D_OK) status = config_list_append(list, item.path, item.weight);
    free(item.path);
    return status;
}

static z3d_status append_item(config_reader *r, const config_key *key, const yaml_event_t *event,
                              void *list) {
    const bool texts = key->rule[0] != '\0';
    config_scalar scalar;
    if (event->type == YAML_MAPPING_START_EVENT && !texts)
        return read_item(r, key, event->start_mark, list);
    if (event->type == YAML_MAPPING_START_EVENT && strcmp(key->rule, "groups") == 0)
        return reader_param_group(r, key, list);
    if (event->type != YAML_SCALAR_EVENT)
        return refuse_shape(r, event->start_mark, key,
                            texts ? "a list or mapping in the list" : "a list in the list");
    Z3D_TRY(reader_scalar(r, event, &scalar));
    if (config_is_empty(scalar) || scalar.text[0] == '\0')
        return refuse_shape(r, event->start_mark, key,
                            texts ? "the text is empty" : "the path is empty");
    return config_list_append(list, scalar.text, 1);
}

static z3d_status read_data_list(config_reader *r, const config_key *key) {
    z3d_data_list read = {0}, *field = config_field(r->config, key);
    const z3d_status status = reader_list(r, key, append_item, &read);
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
                              const yaml_event_t *value, bool *set) {
    const config_key *key = &config_table[index];
    config_scalar scalar;
    Z3D_TRY(reader_scalar(r, value, &scalar));
    *set = !leave_default(r, index, place, scalar);
    if (!*set) return Z3D_OK;
    Z3D_TRY(refuse_folded(r, key, value));
    return reader_refuse_stored(r, value->start_mark, key->path,
                                config_set_scalar(r->config, key, scalar));
}

static z3d_status read_key(config_reader *r, int index, config_place place,
                           const yaml_event_t *value) {
    const config_key *key = &config_table[index];
    bool set = true;
    if (value->type == YAML_SCALAR_EVENT) {
        Z3D_TRY(read_scalar(r, index, place, value, &set));
    } else if (value->type == YAML_SEQUENCE_START_EVENT && key->type == CONFIG_FLOAT2) {
        Z3D_TRY(read_two_numbers(r, key, value->start_mark));
    } else if (value->type == YAML_SEQUENCE_START_EVENT && key->type == CONFIG_LIST) {
        Z3D_TRY(read_data_list(r, key));
    } else if (value->type == YAML_SEQUENCE_START_EVENT && key->type == CONFIG_STRING &&
               key->rule[0]) {
        Z3D_TRY(read_numbers(r, key, value->start_mark));
    } else {
        return refuse_shape(r, value->start_mark, key,
                            value->type == YAML_MAPPING_START_EVENT ? "a mapping" : "a list");
    }
    if (set) r->config->origin->place[index] = place;
    return Z3D_OK;
}

/* ---- mappings ---- */

static z3d_status read_mapping(config_reader *r, const char *section);

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

/* Reads the value of `path`; `value` is its first event, `mark` the key's place. */
static z3d_status read_path(config_reader *r, const char *path, yaml_mark_t mark,
                            const yaml_event_t *value) {
    config_place place = reader_place(r, mark);
    int key = config_find(path), accepted = config_find_accepted(path);
    int later = config_find_later(path);
    int peer = config_find_peer(path);
    bool section = config_is_section(path), known = true;
    if (key < 0 && accepted < 0 && later < 0 && peer < 0 && !section) {
        z3d_status status = reader_below_note(r, path, place, mark, value, &known);
        return known ? status : reader_unknown(r, mark, path);
    }
    Z3D_TRY(mark_seen(r, mark, path));
    if (key >= 0) return read_key(r, key, place, value);
    if (peer >= 0) return reader_peer(r, peer, place, value);
    if (accepted >= 0) return reader_accepted(r, &config_accepted[accepted], place, value);
    if (later >= 0) return reader_later(r, &config_later[later], mark, value);
    if (value->type == YAML_MAPPING_START_EVENT) return read_mapping(r, path);
    if (value->type == YAML_SCALAR_EVENT &&
        config_is_null((config_scalar){(const char *)value->data.scalar.value,
                                       value->data.scalar.style != YAML_PLAIN_SCALAR_STYLE})) {
        config_unset_section(r->config, path);
        return Z3D_OK;
    }
    return reader_refuse_section(r, path, value);
}

/* Makes "section.name" from a key's event. */
static z3d_status join_path(config_reader *r, const char *section, const yaml_event_t *name,
                            z3d_string *out) {
    if (name->type != YAML_SCALAR_EVENT) {
        return reader_refuse(r, name->start_mark, "a list or mapping as a key; keys are names");
    }
    config_scalar scalar;
    Z3D_TRY(reader_scalar(r, name, &scalar));
    z3d_string_append(out, "%s%s%s", section, section[0] ? "." : "", scalar.text);
    if (out->failed) return Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for a key");
    const char *dot = strchr(scalar.text, '.');
    if (dot && config_find(out->text) >= 0) {
        return reader_refuse(r, name->start_mark,
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

/* Reads one entry of a mapping; *end: the mapping ended instead. *path: the entry's key, if it was
 * read; *has_value: the first event of its value was read. */
static z3d_status read_entry(config_reader *r, const char *section, z3d_string *path, bool *end,
                             bool *has_value) {
    yaml_event_t name, value;
    memset(&value, 0, sizeof value);
    z3d_status status = reader_next(r, &name);
    *end = name.type == YAML_MAPPING_END_EVENT;
    if (status == Z3D_OK && !*end) status = join_path(r, section, &name, path);
    if (status == Z3D_OK && !*end) {
        *has_value = true;
        status = reader_next(r, &value);
    }
    if (status == Z3D_OK && !*end && is_note(&name)) {
        const config_note note = {.path = path->text, .why = "it is a note"};
        status = reader_accepted(r, &note, reader_place(r, name.start_mark), &value);
    } else if (status == Z3D_OK && !*end) {
        status = read_path(r, path->text, name.start_mark, &value);
    }
    yaml_event_delete(&value);
    yaml_event_delete(&name);
    return status;
}

/* Skips the rest of a wrong entry of a mapping at `depth`, without more errors. */
static z3d_status skip_entry(config_reader *r, int depth, bool has_value) {
    while (r->depth > depth || !has_value) {
        const bool first_of_value = r->depth == depth;
        const z3d_status status = reader_drop(r, depth);
        if (r->broken || (status != Z3D_OK && status != Z3D_ERR_CONFIG)) return status;
        has_value = has_value || first_of_value;
    }
    return Z3D_OK;
}

/* Reads the entries of a mapping after its start. Collects errors; returns only those that end the
 * reading. */
static z3d_status read_mapping(config_reader *r, const char *section) {
    const int depth = r->depth;
    z3d_status status = Z3D_OK;
    bool end = false;
    while (status == Z3D_OK && !end) {
        z3d_string path = {0};
        bool has_value = false;
        status = read_entry(r, section, &path, &end, &has_value);
        if (status == Z3D_ERR_CONFIG && !r->broken) {
            config_add_error(r->config, path.length ? path.text : NULL);
            status = skip_entry(r, depth, has_value);
        }
        if (status == Z3D_OK && r->config->origin->errors.total >= CONFIG_ERROR_LIMIT) {
            r->broken = true;
            status = Z3D_ERROR(Z3D_ERR_CONFIG, "the rest is not read: too many errors");
        }
        z3d_string_free(&path);
    }
    return status;
}

/* ---- documents ---- */

/* Gets the first event of the only document's only node; *empty: there is no document. */
static z3d_status open_document(config_reader *r, yaml_event_t *root, bool *empty) {
    yaml_event_t event;
    *empty = false;
    memset(root, 0, sizeof *root);
    z3d_status status = reader_next(r, &event); /* stream start */
    yaml_event_delete(&event);
    Z3D_TRY(status);
    status = reader_next(r, &event);
    *empty = event.type == YAML_STREAM_END_EVENT;
    yaml_event_delete(&event);
    if (status != Z3D_OK || *empty) return status;
    return reader_next(r, root);
}

/* Refuses anything after the node except the end. */
static z3d_status close_document(config_reader *r) {
    yaml_event_t event;
    z3d_status status = reader_next(r, &event); /* document end */
    yaml_event_delete(&event);
    Z3D_TRY(status);
    status = reader_next(r, &event);
    if (status == Z3D_OK && event.type != YAML_STREAM_END_EVENT) {
        status =
            reader_refuse(r, event.start_mark, "a second document; a configuration has only one");
    }
    yaml_event_delete(&event);
    return status;
}

/* Reads the whole text: a mapping (path NULL), or the value of `path`. */
static z3d_status read_document(config_reader *r, const char *path) {
    yaml_event_t root;
    bool empty;
    yaml_mark_t start = {0, 0, 0};
    z3d_status status = open_document(r, &root, &empty);
    if (status == Z3D_OK && empty) {
        root.type = YAML_SCALAR_EVENT;
        root.data.scalar.value = (yaml_char_t *)strdup("");
        root.data.scalar.style = YAML_PLAIN_SCALAR_STYLE;
        if (!root.data.scalar.value) status = Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for a value");
    }
    if (status != Z3D_OK) {
        /* refused already */
    } else if (path) {
        status = read_path(r, path, start, &root);
    } else if (root.type == YAML_MAPPING_START_EVENT) {
        status = read_mapping(r, "");
    } else if (!empty) {
        status = reader_refuse(r, root.start_mark, "expected 'key: value' lines, found %s",
                               root.type == YAML_SEQUENCE_START_EVENT ? "a list" : "text");
    }
    if (status == Z3D_OK && !empty) status = close_document(r);
    yaml_event_delete(&root);
    return status;
}

static z3d_status read_yaml(config_reader *r, const char *path) {
    Z3D_TRY(reader_check_text(r));
    if (!yaml_parser_initialize(&r->parser)) {
        return Z3D_ERROR(Z3D_ERR_MEMORY, "no memory to read the configuration");
    }
    yaml_parser_set_encoding(&r->parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&r->parser, (const unsigned char *)r->text, r->length);
    z3d_status status = read_document(r, path);
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
    const char *slash = strrchr(path, '/');
    const char **name = config_field(config, key);
    z3d_string beside = {0};
    if (!*name || !**name || **name == '/') return Z3D_OK;
    z3d_string_append(&beside, "%.*s%s", slash ? (int)(slash + 1 - path) : 0, path, *name);
    char *whole = beside.failed ? NULL : realpath(beside.text, NULL);
    z3d_status status = beside.failed ? Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for a path") : Z3D_OK;
    if (whole) status = config_set_scalar(config, key, (config_scalar){whole, true});
    free(whole);
    z3d_string_free(&beside);
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
