/* The key table as an array, look-up, and the configuration object with the file positions of its
 * keys. */
#include "src/base/config/table.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const config_key config_table[CONFIG_KEY_COUNT] = {
#define X(field, path, type, standard, rule, bits, resume, inference, help)                        \
    {path, standard, rule, help, CONFIG_##type, offsetof(z3d_config, field)},
    Z3D_CONFIG_KEYS(X)
#undef X
};

const z3d_config_meaning z3d_config_meanings[Z3D_CONFIG_KEY_COUNT] = {
#define X(field, path, type, standard, rule, bits, resume, inference, help)                        \
    {path, Z3D_BITS_##bits, Z3D_RESUME_##resume, Z3D_INFERENCE_##inference},
    Z3D_CONFIG_KEYS(X)
#undef X
};

const config_note config_notes[CONFIG_NOTE_COUNT] = {
#define X(path, why) {path, why, NULL, NULL},
    Z3D_CONFIG_ACCEPTED(X)
#undef X
#define X(path, off, why, instead) {path, why, off, instead},
        Z3D_CONFIG_LATER(X)
#undef X
};

const config_key config_peer_key[CONFIG_PEER_COUNT] = {
#define X(name, path, type, rule) {path, "", rule, "", CONFIG_##type, 0},
    Z3D_CONFIG_PEERS(X)
#undef X
};

static int find_key(const config_key *keys, int count, const char *path) {
    for (int i = 0; i < count; i++)
        if (strcmp(keys[i].path, path) == 0) return i;
    return -1;
}

int config_find(const char *path) {
    return find_key(config_table, CONFIG_KEY_COUNT, path);
}

int config_find_peer(const char *path) {
    return find_key(config_peer_key, CONFIG_PEER_COUNT, path);
}

int config_find_note(const char *path) {
    for (int i = 0; i < CONFIG_NOTE_COUNT; i++)
        if (strcmp(config_notes[i].path, path) == 0) return i;
    return -1;
}

const char *config_auto(const char *path) {
    static const char *const known[][2] = {
#define X(path, theirs) {path, theirs},
        Z3D_CONFIG_AUTO(X)
#undef X
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(known[i][0], path) == 0) return known[i][1];
    }
    return NULL;
}

bool config_is_below(const char *key, const char *path) {
    const size_t length = strlen(path);
    return strncmp(key, path, length) == 0 && key[length] == '.';
}

bool config_is_section(const char *path) {
    for (int i = 0; i < CONFIG_KEY_COUNT; i++)
        if (config_is_below(config_table[i].path, path)) return true;
    for (int i = 0; i < CONFIG_NOTE_COUNT; i++)
        if (config_is_below(config_notes[i].path, path)) return true;
    for (int i = 0; i < CONFIG_PEER_COUNT; i++)
        if (config_is_below(config_peer_key[i].path, path)) return true;
    return false;
}

const char *config_leaf(const char *path) {
    const char *dot = strrchr(path, '.');
    return dot ? dot + 1 : path;
}

bool config_is_beside(const char *a, const char *b) {
    const size_t m = (size_t)(config_leaf(a) - a), n = (size_t)(config_leaf(b) - b);
    return m == n && strncmp(a, b, m) == 0;
}

z3d_status config_add_source(z3d_config *config, const char *name, int *source) {
    *source = config->origin->name.count;
    return config_list_append(&config->origin->name, name, 1);
}

void config_format_place(const z3d_config *config, config_place place, z3d_string *out) {
    const char *name = config->origin->name.path[place.source];
    if (place.line == 0) {
        z3d_string_append(out, "override %.120s%s", name, strlen(name) > 120 ? "..." : "");
    } else {
        z3d_string_append(out, "%s:%d:%d", name, place.line, place.column);
    }
}

/* FLOAT2 is the only type whose text is no scalar. */
z3d_status config_set_text(z3d_config *config, const config_key *key, const char *standard) {
    if (key->type == CONFIG_FLOAT2) {
        double *value = ((z3d_config_FLOAT2 *)config_field(config, key))->value;
        char first[64], second[64];
        if (sscanf(standard, "[%63[^,], %63[^]]]", first, second) != 2) {
            return Z3D_ERROR(Z3D_ERR_INTERNAL, "default of %s: %s", key->path, standard);
        }
        Z3D_TRY(config_set_float(key, (config_scalar){first, false}, &value[0]));
        return config_set_float(key, (config_scalar){second, false}, &value[1]);
    }
    bool text = key->type == CONFIG_STRING || key->type == CONFIG_ENUM;
    return config_set_scalar(config, key, (config_scalar){standard, text});
}

/* Defaults are read like the user's values, so the table cannot have a default that its own rule
 * refuses. */
void config_unset(z3d_config *config, int key) {
    if (config_set_text(config, &config_table[key], config_table[key].standard) == Z3D_OK) {
        config->origin->place[key].source = -1;
    }
}

z3d_status z3d_config_create(z3d_config **out) {
    z3d_config *config = NULL;
    z3d_status status;
    *out = NULL;
    Z3D_TRY(z3d_new(1, sizeof *config, "the configuration", &config));
    Z3D_TRY_GOTO(status,
                 z3d_new(1, sizeof *config->origin, "the configuration's places", &config->origin),
                 fail);
    for (int i = 0; i < CONFIG_KEY_COUNT; i++) config->origin->place[i].source = -1;
    for (int i = 0; i < CONFIG_PEER_COUNT; i++) config->origin->peer[i].place.source = -1;
    for (int i = 0; i < CONFIG_KEY_COUNT; i++) {
        status = config_set_text(config, &config_table[i], config_table[i].standard);
        if (status != Z3D_OK) {
            z3d_error_context(status, "default of %s", config_table[i].path);
            goto fail;
        }
    }
    *out = config;
    return Z3D_OK;
fail:
    z3d_config_destroy(config);
    return status;
}

void config_release_value(z3d_config *config, const config_key *key) {
    void *field = config_field(config, key);
    if (key->type == CONFIG_STRING) free((void *)*(uintptr_t *)field);
    if (key->type == CONFIG_LIST) config_list_free(field);
}

void z3d_config_destroy(z3d_config *config) {
    if (!config) return;
    for (int i = 0; i < CONFIG_KEY_COUNT; i++) config_release_value(config, &config_table[i]);
    if (config->origin) {
        config_list_free(&config->origin->name);
        for (int i = 0; i < CONFIG_NOTE_COUNT; i++) free(config->origin->later[i]);
        z3d_string_free(&config->origin->errors.text);
        config_forget_told(config->origin);
        free(config->origin);
    }
    free(config);
}

z3d_status z3d_config_leave_training(z3d_config *config) {
    for (int i = 0; i < CONFIG_KEY_COUNT; i++)
        if (z3d_config_meanings[i].inference == Z3D_INFERENCE_STANDARD)
            Z3D_TRY(z3d_config_leave(config, config_table[i].path));
    return Z3D_OK;
}

z3d_status z3d_config_leave(z3d_config *config, const char *paths) {
    char path[128];
    z3d_status status = Z3D_OK;
    while (status == Z3D_OK && z3d_next_word(&paths, path, sizeof path)) {
        const int key = config_find(path);
        z3d_string assignment = {0};
        Z3D_REQUIRE(key >= 0, "there is no key %s", path);
        z3d_string_append(&assignment, "%s=%s", path, config_table[key].standard);
        status = assignment.failed ? Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for a key")
                                   : z3d_config_override(config, assignment.text);
        z3d_string_free(&assignment);
    }
    return status;
}

bool z3d_config_is_set(const z3d_config *config, const char *path) {
    int key = config_find(path);
    return key >= 0 && config->origin->place[key].source >= 0;
}

bool config_is_overridden(const z3d_config *config, const char *path) {
    return z3d_config_is_set(config, path) && config->origin->place[config_find(path)].line == 0;
}

bool config_is_written(const z3d_config *config, const char *path) {
    return z3d_config_is_set(config, path) || config->origin->is_auto[config_find(path)];
}

z3d_status config_error_at(const z3d_config *config, config_place place, const char *message) {
    const char *assignment = config->origin->name.path[place.source];
    const size_t key = strcspn(assignment, "=");
    const bool repeats = place.line == 0 && strncmp(assignment, message, key) == 0 &&
                         strncmp(message + key, ": ", 2) == 0;
    z3d_string where = {0};
    config_format_place(config, place, &where);
    z3d_status status =
        Z3D_ERROR(Z3D_ERR_CONFIG, "%s: %s", where.failed ? "configuration" : where.text,
                  message + (repeats ? key + 2 : 0));
    z3d_string_free(&where);
    return status;
}

z3d_status z3d_config_error(const z3d_config *config, const char *path, const char *format, ...) {
    const int key = config_find(path);
    const bool set = z3d_config_is_set(config, path);
    z3d_string line = {0};
    char message[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    z3d_string_append(&line, "%s", path);
    if (key >= 0 && !set && config_table[key].standard[0])
        z3d_string_append(&line, " (not set, default %s)", config_table[key].standard);
    z3d_string_append(&line, ": %s", message);
    const char *text = line.failed ? message : line.text;
    z3d_status status = set ? config_error_at(config, config->origin->place[key], text)
                            : Z3D_ERROR(Z3D_ERR_CONFIG, "%s", text);
    z3d_string_free(&line);
    return status;
}
