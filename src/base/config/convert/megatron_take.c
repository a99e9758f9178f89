/* Single arguments of Megatron-LM: their values, their rows, and our keys that they set. */
#include <stdio.h>
#include <string.h>

#include "src/base/config/convert/megatron.h"

const char megatron_default[] = "Megatron-LM's default";

bool megatron_has(const megatron_converter *m, const char *name) {
    return megatron_value(&m->text, name) != NULL;
}

bool megatron_is_given(const megatron_converter *m, const char *name) {
    return megatron_has(m, name) || megatron_is_unknown(&m->text, name);
}

bool megatron_number(const megatron_converter *m, const char *name, double *out) {
    const char *value = megatron_value(&m->text, name);
    return value && z3d_parse_float(value, out) == Z3D_OK;
}

bool megatron_counts(const megatron_converter *m, const char *name) {
    double value;
    return megatron_has(m, name) && !(megatron_number(m, name, &value) && value == 0);
}

void megatron_row(megatron_converter *m, config_verdict verdict, const char *name,
                  const char *what) {
    char flag[80];
    snprintf(flag, sizeof flag, "--%.70s", name);
    config_report_add(&m->v.report, verdict, flag, "%s", what);
}

void megatron_rows(megatron_converter *m, config_verdict verdict, const char *names,
                   const char *what) {
    char name[80];
    while (z3d_next_word(&names, name, sizeof name))
        if (megatron_has(m, name)) megatron_row(m, verdict, name, what);
}

void megatron_must(megatron_converter *m, const char *name, bool same, const char *else_why) {
    megatron_rows(m, same ? CONFIG_TAKEN : CONFIG_REFUSED, name,
                  same ? "same as zero3d" : else_why);
}

bool megatron_take_as(megatron_converter *m, const char *name, const char *path, const char *text) {
    char flag[80];
    const char *value = megatron_value(&m->text, name);
    snprintf(flag, sizeof flag, "--%.70s", name);
    if (value) config_take(&m->v, flag, path, text ? text : value);
    return value != NULL;
}

bool megatron_take(megatron_converter *m, const char *name, const char *path) {
    return megatron_take_as(m, name, path, NULL);
}

void megatron_take_or_default(megatron_converter *m, const char *name, const char *path,
                              const char *text) {
    if (!megatron_take(m, name, path) && !megatron_is_unknown(&m->text, name))
        config_take_default(&m->v, path, text, megatron_default);
}

const char *megatron_choice(const megatron_converter *m, const char *name,
                            const char *const (*rows)[2], size_t count) {
    const char *value = megatron_value(&m->text, name);
    for (size_t i = 0; value && i < count; i++)
        if (strcmp(value, rows[i][0]) == 0) return rows[i][1];
    return NULL;
}
