/* Collects all errors of a configuration in one message, finds keys without effect, and collects
 * the rows of a conversion. */
#include "src/base/config/table.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* A message holds 8192 bytes; its last line counts the errors left out. */
enum { ERRORS_SHOWN = 50, ERROR_BYTES = 7800, REPORT_COLUMN = 48 };

void config_errors_add(config_errors *errors) {
    const char *line = z3d_error_message();
    errors->total++;
    if (errors->kept == ERRORS_SHOWN || errors->total > errors->kept + 1) return;
    if (errors->kept > 0 && errors->text.length + strlen(line) > ERROR_BYTES) return;
    z3d_string_append(&errors->text, "%s%s", errors->kept ? "\n" : "", line);
    errors->kept++;
}

void config_errors_remove(config_errors *errors, const char *line) {
    z3d_string rest = {0};
    bool found = false;
    for (const char *at = errors->text.text; at && *at;) {
        const char *end = strchr(at, '\n');
        size_t length = end ? (size_t)(end - at) : strlen(at);
        bool same = !found && strlen(line) == length && strncmp(at, line, length) == 0;
        if (!same) z3d_string_append(&rest, "%s%.*s", rest.length ? "\n" : "", (int)length, at);
        found = found || same;
        at = end ? end + 1 : NULL;
    }
    errors->total--;
    errors->kept -= found;
    z3d_string_free(&errors->text);
    errors->text = rest;
}

z3d_status config_errors_status(const config_errors *errors) {
    z3d_string all = {0};
    if (errors->total == 0) return Z3D_OK;
    if (errors->text.failed) return Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for a list of errors");
    z3d_string_append(&all, "%s", errors->text.text);
    if (errors->total > errors->kept)
        z3d_string_append(&all, "\n... and %d more errors", errors->total - errors->kept);
    z3d_status status = z3d_error_set_lines(Z3D_ERR_CONFIG, __FILE__, __LINE__,
                                            all.failed ? errors->text.text : all.text);
    z3d_string_free(&all);
    return status;
}

void config_mark_wrong(z3d_config *config, const char *path) {
    for (int i = 0; i < CONFIG_KEY_COUNT; i++) {
        const char *key = config_table[i].path;
        if (strcmp(key, path) == 0 || config_is_below(key, path)) config->origin->wrong[i] = true;
    }
}

void config_add_error(z3d_config *config, const char *path) {
    char near[128];
    if (path) {
        bool known = config_find(path) >= 0 || config_is_section(path);
        const char *meant = known ? path : config_nearest(path, near, sizeof near);
        if (meant) config_mark_wrong(config, meant);
    }
    if (config->origin->report) {
        const char *what = z3d_error_message();
        const char *key = path ? strstr(what, path) : NULL; /* "file:1:2: key: what" */
        size_t length = key ? strlen(path) : 0;
        if (path && config_find(path) < 0) config_doubt(config, config_leaf(path));
        if (key && strncmp(key + length, ": ", 2) == 0) what = key + length + 2;
        config_report_add(config->origin->report, CONFIG_REFUSED, path ? path : "the file", "%s",
                          what);
    } else {
        config_errors_add(&config->origin->errors);
    }
}

/* ---- checks ---- */

void config_checker_begin(config_checker *k, z3d_config *config, const z3d_config_rules *rules,
                          config_errors *errors) {
    *k = (config_checker){.c = config, .rules = rules, .errors = errors};
    memcpy(k->wrong, config->origin->wrong, sizeof k->wrong);
}

bool config_sound(const config_checker *k, ...) {
    va_list paths;
    const char *path;
    bool sound = true;
    va_start(paths, k);
    while ((path = va_arg(paths, const char *))) {
        int key = config_find(path);
        sound = sound && key >= 0 && !k->wrong[key];
    }
    va_end(paths);
    return sound;
}

void config_complain(config_checker *k, const char *path, const char *format, ...) {
    char message[1024];
    int key = config_find(path);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    (void)z3d_config_error(k->c, path, "%s", message);
    if (key >= 0) k->wrong[key] = true;
    config_errors_add(k->errors);
}

/* ---- keys without effect ---- */

enum { LONGEST = 128 };

/* Users try overrides without editing the file. So if only an override makes a key of the file
 * useless, the key gets its default again, with a note. */
static bool may_be_idle(const config_checker *k, int key, const char *causes, bool accepted) {
    char cause[LONGEST];
    while (z3d_next_word(&causes, cause, sizeof cause))
        accepted = accepted || config_is_overridden(k->c, cause);
    return accepted && k->c->origin->place[key].line > 0;
}

void config_note_idle(config_checker *k, const char *keys, const char *causes, const char *because,
                      const char *remedy, bool accepted) {
    char path[LONGEST];
    for (const char *at = causes; z3d_next_word(&at, path, sizeof path);)
        if (!config_sound(k, path, NULL)) return;
    while (z3d_next_word(&keys, path, sizeof path)) {
        const int key = config_find(path);
        if (!z3d_config_is_set(k->c, path) || config_is_standard(k->c, path) ||
            !config_sound(k, path, NULL))
            continue;
        if (may_be_idle(k, key, causes, accepted)) {
            config_tell(k->c, k->c->origin->place[key], config_table[key].path, "has no effect",
                        because);
            config_unset(k->c, key);
        } else {
            config_complain(k, path, "has no effect %s; %s%sleave this key out", because,
                            remedy ? remedy : "", remedy ? ", or " : "");
        }
    }
}

void config_refuse_idle(config_checker *k, const char *keys, const char *causes,
                        const char *because, const char *remedy) {
    config_note_idle(k, keys, causes, because, remedy, false);
}

bool config_refuse_below_3(config_checker *k, const char *keys, const char *remedy, bool accepted) {
    static const char stage[] = "zero_optimization.stage";
    if (k->c->zero_optimization_stage == 3 || !config_sound(k, stage, NULL)) return false;
    config_note_idle(k, keys, stage,
                     "below zero_optimization.stage 3: every rank keeps whole parameters", remedy,
                     accepted);
    return true;
}

/* ---- another framework's settings ---- */

void config_report_add(config_report *report, config_verdict verdict, const char *what,
                       const char *format, ...) {
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    bool fits = strlen(what) < REPORT_COLUMN;
    if (!fits) z3d_string_append(&report->rows[verdict], "  %s\n", what);
    z3d_string_append(&report->rows[verdict], "  %-*s %s\n", REPORT_COLUMN, fits ? what : "", text);
    report->count[verdict]++;
}

/* The end of the row at `row`; a long name has a line of its own before the text. */
static const char *end_of_row(const char *row) {
    const char *end = strchr(row, '\n');
    while (end && strncmp(end + 1, "   ", 3) == 0) end = strchr(end + 1, '\n');
    return end ? end + 1 : row + strlen(row);
}

/* Whether a row is about the key `path`: " path ..." or " --argument ... path: ...". */
static bool is_about(const char *row, const char *end, const char *path) {
    const size_t length = strlen(path);
    for (const char *at = row; (at = strstr(at, path)) && at < end; at++)
        if (at[-1] == ' ' && strchr(" :\n", at[length])) return true;
    return false;
}

void config_report_remove(config_report *report, config_verdict verdict, const char *path) {
    z3d_string *rows = &report->rows[verdict], kept = {0};
    for (const char *row = rows->text; row && *row;) {
        const char *end = end_of_row(row);
        if (is_about(row, end, path))
            report->count[verdict]--;
        else
            z3d_string_append_bytes(&kept, row, (size_t)(end - row));
        row = end;
    }
    kept.failed = kept.failed || rows->failed;
    z3d_string_free(rows);
    *rows = kept;
}
