/* Logs notes: keys without effect, keys that are auto. Keys with the same reason share a line, so
 * that the notes about another framework's file fit a screen. */
#include "src/base/config/table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/log.h"

/* Up to REASONS_TOLD reasons with one key each get a line; more share one line. KEYS_TOLD limits
 * the notes about a file of nonsense. */
enum { REASONS_TOLD = 6, KEYS_TOLD = 500 };

typedef struct z3d_config_origin origin;

void config_tell(const z3d_config *config, config_place place, const char *path, const char *what,
                 const char *why) {
    origin *o = config->origin;
    if (o->report) {
        config_report_remove(o->report, CONFIG_TAKEN, path); /* a key has one row */
        config_report_add(o->report, CONFIG_NO_EFFECT, path, "%s", why);
        return;
    }
    if (o->told_count == KEYS_TOLD) {
        o->untold++;
        return;
    }
    config_told told = {place, strdup(path), what, strdup(why), 0, false};
    config_told *grown = realloc(o->told, ((size_t)o->told_count + 1) * sizeof *grown);
    if (grown) o->told = grown;
    if (grown && told.path && told.why) {
        grown[o->told_count++] = told;
    } else { /* no memory: the note is left out */
        free(told.path);
        free(told.why);
    }
}

void config_forget_told(struct z3d_config_origin *o) {
    for (int i = 0; i < o->told_count; i++) {
        free(o->told[i].path);
        free(o->told[i].why);
    }
    free(o->told);
    o->told = NULL;
    o->told_count = o->untold = 0;
}

static bool is_kind(const config_told *told, const char *what) {
    return strcmp(told->what, what) == 0;
}

/* Whether two notes can share a line: the same file and reason. */
static bool is_alike(const config_told *a, const config_told *b) {
    return a->place.source == b->place.source && a->place.line > 0 && is_kind(b, a->what) &&
           (is_kind(a, CONFIG_IS_AUTO) || strcmp(a->why, b->why) == 0);
}

static int size_of(const origin *o, int group) {
    int count = 0;
    for (int i = 0; i < o->told_count; i++) count += o->told[i].group == group;
    return count;
}

/* Whether no other key has this reason, and the reason names no remedy. */
static bool is_single(const origin *o, int i) {
    const config_told *told = &o->told[i];
    return is_kind(told, CONFIG_IDLE_HERE) && told->place.line > 0 &&
           strncmp(told->why, "use ", 4) != 0 && size_of(o, told->group) == 1;
}

static void find_groups(origin *o) {
    int singles = 0, first = -1;
    for (int i = 0; i < o->told_count; i++) {
        o->told[i].group = i;
        for (int j = 0; j < i && o->told[i].group == i; j++)
            if (is_alike(&o->told[j], &o->told[i])) o->told[i].group = o->told[j].group;
    }
    for (int i = 0; i < o->told_count; i++) {
        o->told[i].folded = is_single(o, i);
        singles += o->told[i].folded;
    }
    for (int i = 0; i < o->told_count; i++) {
        o->told[i].folded = o->told[i].folded && singles > REASONS_TOLD;
        if (!o->told[i].folded) continue;
        if (first < 0) first = i;
        o->told[i].group = first;
    }
}

/* Whether the keys are in the same section. */
static bool is_beside(const config_told *a, const config_told *b) {
    return strchr(a->path, '.') && config_is_beside(a->path, b->path);
}

/* Appends "zero_optimization.{a, b}, c"; a key that is auto is followed by its value. */
static void append_keys(const origin *o, int group, z3d_string *out) {
    const config_told *last = NULL;
    bool open = false;
    for (int i = group; i < o->told_count; i++) {
        const config_told *told = &o->told[i];
        if (told->group != group) continue;
        const bool goes_on = last && is_beside(last, told);
        if (open && !goes_on) z3d_string_append(out, "}");
        open = open && goes_on;
        const char *leaf = goes_on ? strrchr(told->path, '.') + 1 : told->path;
        if (last) z3d_string_append(out, ", ");
        int next = i + 1;
        while (next < o->told_count && o->told[next].group != group) next++;
        const bool opens = !goes_on && next < o->told_count && is_beside(told, &o->told[next]);
        const char *dot = opens ? strrchr(told->path, '.') : NULL;
        if (dot)
            z3d_string_append(out, "%.*s.{%s", (int)(dot - told->path), told->path, dot + 1);
        else
            z3d_string_append(out, "%s", leaf);
        if (is_kind(told, CONFIG_IS_AUTO)) z3d_string_append(out, " %s", told->why);
        open = open || opens;
        last = told;
    }
    if (open) z3d_string_append(out, "}");
}

static void tell_group(const z3d_config *config, int group) {
    static const char has[] = "has";
    const config_told *first = &config->origin->told[group];
    const char *file = config->origin->name.path[first->place.source];
    const int count = size_of(config->origin, group);
    z3d_string line = {0};
    if (count == 1)
        config_format_place(config, first->place, &line);
    else
        z3d_string_append(&line, "%s", file);
    z3d_string_append(&line, ": ");
    if (is_kind(first, CONFIG_IS_AUTO)) z3d_string_append(&line, "auto, so the default: ");
    append_keys(config->origin, group, &line);
    if (first->folded)
        z3d_string_append(&line,
                          " have no effect here: zero3d decides this itself; `zero3d config "
                          "--from-deepspeed %s` says why",
                          file);
    else if (count > 1 && strncmp(first->what, has, strlen(has)) == 0)
        z3d_string_append(&line, " have%s %s", first->what + strlen(has), first->why);
    else if (!is_kind(first, CONFIG_IS_AUTO))
        z3d_string_append(&line, " %s %s", first->what, first->why);
    if (!line.failed) z3d_log(Z3D_LOG_INFO, "note: %s", line.text);
    z3d_string_free(&line);
}

/* A type that is auto matters most, so it has the last line. */
static void tell_type(z3d_config *config) {
    static const int keys[] = {CONFIG_KEY_bf16_enabled, CONFIG_KEY_fp16_enabled};
    origin *o = config->origin;
    const bool bf16 = o->is_auto[keys[0]], fp16 = o->is_auto[keys[1]];
    if (o->type_told || (!bf16 && !fp16) || config->bf16_enabled || config->fp16_enabled) return;
    o->type_told = true;
    z3d_log(Z3D_LOG_INFO,
            "note: %s%s%s auto, so this is fp32; write bf16.enabled=true or fp16.enabled=true if "
            "your script chooses one",
            bf16 ? "bf16.enabled" : "", bf16 && fp16 ? " and " : "",
            fp16 ? bf16 ? "fp16.enabled are" : "fp16.enabled is" : " is");
}

void z3d_config_tell(z3d_config *config) {
    origin *o = config->origin;
    if (o->report) return;
    find_groups(o);
    for (int i = 0; i < o->told_count; i++)
        if (o->told[i].group == i) tell_group(config, i);
    if (o->untold) z3d_log(Z3D_LOG_INFO, "note: %d more keys have no effect", o->untold);
    config_forget_told(o);
    tell_type(config);
}
