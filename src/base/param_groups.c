#include "src/base/param_groups.h"

#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "src/base/strings.h"

static const struct {
    const char *name;
    size_t field;
    double least, most;
} settings[] = {
#define X(field, least, most) {#field, offsetof(z3d_param_group, field), least, most},
    Z3D_PARAM_GROUP_SETTINGS(X)
#undef X
};

/* Reads the word at *at and moves *at after it; "": no more words. ERR_CONFIG: the word is too
 * long. */
static z3d_status next_word(const char **at, char word[Z3D_PATTERN]) {
    *at += strspn(*at, " ");
    size_t length = strcspn(*at, " ");
    word[0] = '\0';
    if (length >= Z3D_PATTERN)
        return Z3D_ERROR(Z3D_ERR_CONFIG, "'%.40s...' has more than %d characters", *at,
                         Z3D_PATTERN - 1);
    memcpy(word, *at, length);
    word[length] = '\0';
    *at += length;
    return Z3D_OK;
}

/* "lr=1e-4". */
static z3d_status set(z3d_param_group *group, const char *word) {
    const size_t length = strcspn(word, "=");
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        double *field = (double *)((char *)group + settings[i].field);
        if (strlen(settings[i].name) != length || strncmp(word, settings[i].name, length) != 0)
            continue;
        if (!isnan(*field)) return Z3D_ERROR(Z3D_ERR_CONFIG, "%s is given twice", settings[i].name);
        if (z3d_parse_float(word + length + 1, field) != Z3D_OK || *field < settings[i].least ||
            *field > settings[i].most)
            return Z3D_ERROR(Z3D_ERR_CONFIG, "%s: '%s' is not a number of %g to %g",
                             settings[i].name, word + length + 1, settings[i].least,
                             settings[i].most);
        return Z3D_OK;
    }
    return Z3D_ERROR(Z3D_ERR_CONFIG, "unknown '%.*s'; write params, lr, lr_scale or weight_decay",
                     (int)length, word);
}

z3d_status z3d_param_group_parse(const char *text, z3d_param_group *out) {
    char word[Z3D_PATTERN];
    int patterns = 0;
    *out = (z3d_param_group){NAN, NAN, NAN};
    for (;;) {
        Z3D_TRY(next_word(&text, word));
        if (!word[0]) break;
        if (strchr(word, '='))
            Z3D_TRY(set(out, word));
        else
            patterns++;
    }
    if (patterns == 0)
        return Z3D_ERROR(Z3D_ERR_CONFIG, "a group without params; write patterns of names there");
    if (!isnan(out->lr) && !isnan(out->lr_scale))
        return Z3D_ERROR(Z3D_ERR_CONFIG, "a group with lr and lr_scale; write one of them");
    if (isnan(out->lr) && isnan(out->lr_scale) && isnan(out->weight_decay))
        return Z3D_ERROR(Z3D_ERR_CONFIG,
                         "a group that changes nothing; write its lr, lr_scale or weight_decay");
    return Z3D_OK;
}

bool z3d_param_group_next(const char **at, char pattern[Z3D_PATTERN]) {
    while (next_word(at, pattern) == Z3D_OK && pattern[0])
        if (!strchr(pattern, '=')) return true;
    return false;
}

bool z3d_pattern_matches(const char *pattern, const char *name) {
    char whole[Z3D_PATTERN];
    snprintf(whole, sizeof whole, "%s", pattern);
    for (char *c = whole; *c; c++) /* checkpoint show prints block.0/ln_1.bias */
        if (*c == '/') *c = '.';
    return strpbrk(whole, "*?[") ? fnmatch(whole, name, 0) == 0 : strstr(name, whole) != NULL;
}
