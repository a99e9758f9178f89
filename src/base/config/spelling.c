/* The distance between two words, and the options of a choice. */
#include "src/base/config/table.h"

#include <ctype.h>
#include <string.h>

enum { WORD = CONFIG_WORD, FAR_AWAY = CONFIG_FAR_AWAY };

static int min3(int a, int b, int c) {
    int least = a < b ? a : b;
    return least < c ? least : c;
}

int config_distance(const char *a, const char *b) {
    size_t m = strlen(a), n = strlen(b);
    if (m >= WORD || n >= WORD) return FAR_AWAY;
    int rows[3][WORD + 1];
    int *before = rows[0], *last = rows[1], *now = rows[2];
    for (size_t j = 0; j <= n; j++) last[j] = (int)j;
    for (size_t i = 1; i <= m; i++) {
        now[0] = (int)i;
        for (size_t j = 1; j <= n; j++) {
            int x = tolower((unsigned char)a[i - 1]), y = tolower((unsigned char)b[j - 1]);
            x = x == '-' ? '_' : x;
            now[j] = min3(last[j] + 1, now[j - 1] + 1, last[j - 1] + (x != y));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                before[j - 2] + 1 < now[j]) {
                now[j] = before[j - 2] + 1;
            }
        }
        int *free_row = before;
        before = last;
        last = now;
        now = free_row;
    }
    return last[n];
}

bool config_option(const char *options, int index, char *buf, size_t size) {
    const char *at = options;
    for (; index > 0; index--) {
        at = strchr(at, '|');
        if (!at) return false;
        at++;
    }
    size_t length = strcspn(at, "|");
    const char *list = strstr(at, " ["); /* of a STRING: what is also allowed */
    if (list && (size_t)(list - at) < length) length = (size_t)(list - at);
    if (length >= size) length = size - 1;
    memcpy(buf, at, length);
    buf[length] = '\0';
    return true;
}

const char *config_nearest_option(const char *options, const char *text, char *buf, size_t size) {
    char option[WORD];
    int best = 1 + (int)strlen(text) / 3;
    const char *nearest = NULL;
    for (int i = 0; config_option(options, i, option, sizeof option); i++) {
        int d = config_distance(text, option);
        if (strlen(text) > 2 && strcasestr(option, text)) d = 1; /* "cosine" */
        if (d <= best && (size_t)d < strlen(option)) {
            best = d - 1;
            config_option(options, i, buf, size);
            nearest = buf;
        }
    }
    return nearest;
}
