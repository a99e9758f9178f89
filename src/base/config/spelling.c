/* The options of a rule "a|b|c"; where a comment begins. */
#include "src/base/config/table.h"

#include <string.h>

bool config_option(const char *options, int index, char *buf, size_t size) {
    const char *at = options;
    for (; index > 0; index--) {
        at = strchr(at, '|');
        if (!at) return false;
        at++;
    }
    size_t length = strcspn(at, "|");
    const char *list = strstr(at, " ["); /* a STRING's example of a list is no option */
    if (list && (size_t)(list - at) < length) length = (size_t)(list - at);
    if (length >= size) length = size - 1;
    memcpy(buf, at, length);
    buf[length] = '\0';
    return true;
}

const char *config_nearest_option(const char *options, const char *text, char *buf, size_t size) {
    char option[Z3D_WORD];
    int best = 1 + (int)strlen(text) / 3;
    const char *nearest = NULL;
    for (int i = 0; config_option(options, i, option, sizeof option); i++) {
        int d = z3d_word_distance(text, option);
        if (strlen(text) > 2 && strcasestr(option, text)) d = 1; /* "cosine" */
        if (d <= best && (size_t)d < strlen(option)) {
            best = d - 1;
            config_option(options, i, buf, size);
            nearest = buf;
        }
    }
    return nearest;
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
